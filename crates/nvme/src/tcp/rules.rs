//! What a header has to keep to: type, flags, lengths, offset and digest.

use super::digest::Crc32c;
use super::header::{
    C2HData, CapsuleCmd, CapsuleResp, H2CData, Header, ICReq, ICResp, R2T, TermReq,
};
use super::negotiate::Negotiated;
use super::protocol::{Digests, Role, flag, header_len, offset, pdu_type};
use super::violation::{Violation, ViolationKind};
use crate::bytes::Field;

/// Bytes of the common header: TYPE, FLAGS, HLEN, PDO, PLEN.
pub(super) const COMMON: usize = 8;

/// The most data in one PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// In a CapsuleCmd, bytes. At least 8,192 before it is known which queue a connection is.
    pub in_capsule: u32,
    /// In a C2HData PDU, bytes: the longest read that a host asks for.
    pub c2h_data: u32,
}

/// The rules for what one end receives at present.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    role: Role,
    phase: Phase,
    /// FLAGS bits of the digests in use.
    digests: u8,
    /// Data begin at multiples of this many bytes.
    alignment: u8,
    max_h2c_data: u32,
    limits: Limits,
    /// Whether [`Rules::plain`] may look: no digests, and an alignment that needs no padding behind
    /// a command.
    plain: bool,
}

/// TYPE, FLAGS and HLEN of a CapsuleCmd and of a CapsuleResp without digests.
const PLAIN_COMMAND: [u8; 3] = [pdu_type::CAPSULE_CMD, 0, header_len::CAPSULE_CMD as u8];
const PLAIN_RESPONSE: [u8; 3] = [pdu_type::CAPSULE_RESP, 0, header_len::OTHERS as u8];

/// A PDU that was found by [`Rules::plain`].
pub(super) struct Plain<'a> {
    pub(super) header: Header,
    /// Bytes of data, without padding and digest.
    pub(super) data: u32,
    /// The input behind the header.
    pub(super) rest: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing but ICReq or ICResp, or a TermReq.
    Initialize,
    /// Everything but ICReq and ICResp.
    Open,
}

/// What the common header says about a PDU.
pub(super) struct Layout {
    /// Length of the header.
    hlen: u8,
    /// Length of the header and its digest.
    pub(super) head: u8,
    /// Bytes between those and the data.
    pub(super) padding: u8,
    /// Whether a digest follows the data.
    pub(super) digest_follows: bool,
    /// Bytes of data.
    pub(super) data: u32,
    /// ICReq, ICResp or a TermReq.
    pub(super) rare: bool,
}

impl Layout {
    /// Of an ICReq or ICResp.
    pub(super) fn is_initialize(&self) -> bool {
        usize::from(self.hlen) == header_len::IC
    }

    /// Checks the digest of a whole header and reads its fields.
    pub(super) fn parse(&self, head: &[u8]) -> Result<Header, Violation> {
        let (header, digest) = head.split_at(usize::from(self.hlen));
        if !digest.is_empty() && digest != Crc32c::of(header) {
            return Err(Violation::header_digest(Field::get(digest, 0)));
        }
        if let Some(header) = header.first_chunk() {
            return Ok(match header[0] {
                pdu_type::IC_REQ => Header::ICReq(ICReq::decode(header)),
                _ => Header::ICResp(ICResp::decode(header)),
            });
        }
        match header.first_chunk() {
            Some(command) => Ok(Header::CapsuleCmd(CapsuleCmd::decode(command, self.data))),
            None => self.parse_short(header.first_chunk().expect("no header is shorter")),
        }
    }

    /// The PDUs whose header has 24 bytes.
    fn parse_short(&self, header: &[u8; header_len::OTHERS]) -> Result<Header, Violation> {
        match header[0] {
            pdu_type::H2C_DATA => {
                let pdu = H2CData::decode(header);
                self.check_length(pdu.datal).map(|()| Header::H2CData(pdu))
            }
            pdu_type::C2H_DATA => {
                let pdu = C2HData::decode(header);
                self.check_length(pdu.datal)?;
                if pdu.success && !pdu.last {
                    return Err(Violation::flags());
                }
                Ok(Header::C2HData(pdu))
            }
            pdu_type::CAPSULE_RESP => Ok(Header::CapsuleResp(CapsuleResp::decode(header))),
            pdu_type::R2T => {
                let pdu = R2T::decode(header);
                if pdu.r2tl == 0 {
                    return Err(Violation::field(offset::R2TL, ViolationKind::DataLength));
                }
                Ok(Header::R2T(pdu))
            }
            _ => Ok(Header::TermReq(TermReq::decode(header))),
        }
    }

    /// DATAL has to be what PLEN leaves for data.
    fn check_length(&self, datal: u32) -> Result<(), Violation> {
        if datal == self.data {
            Ok(())
        } else {
            Err(Violation::field(offset::DATAL, ViolationKind::DataLength))
        }
    }
}

impl Rules {
    /// The rules before ICReq and ICResp.
    pub(super) fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            phase: Phase::Initialize,
            digests: 0,
            alignment: 4,
            max_h2c_data: 0,
            limits,
            plain: false,
        }
    }

    /// The rules after them.
    pub(super) fn negotiated(&mut self, agreed: &Negotiated) {
        let pda = match self.role {
            Role::Controller => agreed.cpda,
            Role::Host => agreed.hpda,
        };
        self.phase = Phase::Open;
        self.digests = digest_flags(agreed.digests);
        self.alignment = (pda & 31) * 4 + 4;
        self.max_h2c_data = agreed.maxh2cdata;
        self.plain = self.digests == 0
            && header_len::CAPSULE_CMD.is_multiple_of(usize::from(self.alignment));
    }

    pub(super) fn set_in_capsule_limit(&mut self, bytes: u32) {
        self.limits.in_capsule = bytes;
    }

    /// The most common PDU, a command or a completion without digests and padding, if it is the
    /// next and its header is all there. A few comparisons check what [`Rules::layout`] and
    /// [`Layout::parse`] check field by field.
    #[inline]
    pub(super) fn plain<'a>(&self, input: &'a [u8]) -> Option<Plain<'a>> {
        if !self.plain {
            return None;
        }
        let [kind, flags, hlen, pdo, plen @ ..] = *input.first_chunk::<COMMON>()?;
        let plen = u32::from_le_bytes(plen);
        match self.role {
            Role::Controller if [kind, flags, hlen] == PLAIN_COMMAND => {
                let data = plen.checked_sub(u32::from(hlen))?;
                if data != 0 && (pdo != hlen || data > self.limits.in_capsule) {
                    return None;
                }
                let (header, rest) = input.split_first_chunk()?;
                let header = Header::CapsuleCmd(CapsuleCmd::decode(header, data));
                Some(Plain { header, data, rest })
            }
            Role::Host if [kind, flags, hlen] == PLAIN_RESPONSE && plen == u32::from(hlen) => {
                let (header, rest) = input.split_first_chunk()?;
                let header = Header::CapsuleResp(CapsuleResp::decode(header));
                Some(Plain {
                    header,
                    data: 0,
                    rest,
                })
            }
            _ => None,
        }
    }

    /// Checks a common header.
    #[inline]
    pub(super) fn layout(&self, common: [u8; COMMON]) -> Result<Layout, Violation> {
        let [kind, flags, hlen, pdo, plen @ ..] = common;
        let plen = u32::from_le_bytes(plen);
        let (want_hlen, max_data) = match (self.role, kind) {
            (Role::Controller, pdu_type::CAPSULE_CMD) => {
                (header_len::CAPSULE_CMD, self.limits.in_capsule)
            }
            (Role::Controller, pdu_type::H2C_DATA) => (header_len::OTHERS, self.max_h2c_data),
            (Role::Host, pdu_type::CAPSULE_RESP | pdu_type::R2T) => (header_len::OTHERS, 0),
            (Role::Host, pdu_type::C2H_DATA) => (header_len::OTHERS, self.limits.c2h_data),
            _ => return self.layout_of_rare(kind, hlen, plen),
        };
        if self.phase != Phase::Open {
            return Err(Violation::sequence());
        }
        if usize::from(hlen) != want_hlen {
            return Err(Violation::field(offset::HLEN, ViolationKind::HeaderLength));
        }
        let header_digest = if self.digests & flag::HEADER_DIGEST == 0 {
            0
        } else {
            Crc32c::LEN
        };
        let head = (want_hlen + header_digest) as u8;
        if plen < u32::from(head) {
            return Err(Violation::field(offset::PLEN, ViolationKind::PduLength));
        }
        if plen == u32::from(head) {
            return self.layout_without_data(kind, flags, hlen, head);
        }
        if (flags ^ self.digests) & (flag::HEADER_DIGEST | flag::DATA_DIGEST) != 0 {
            return Err(Violation::flags());
        }
        self.layout_with_data(kind, pdo, plen, hlen, head, max_data)
    }

    /// A PDU that ends with its header: PDO is reserved, and there is nothing a data digest could
    /// be of.
    #[inline]
    fn layout_without_data(
        &self,
        kind: u8,
        flags: u8,
        hlen: u8,
        head: u8,
    ) -> Result<Layout, Violation> {
        if (flags ^ (self.digests & flag::HEADER_DIGEST))
            & (flag::HEADER_DIGEST | flag::DATA_DIGEST)
            != 0
        {
            return Err(Violation::flags());
        }
        if matches!(kind, pdu_type::H2C_DATA | pdu_type::C2H_DATA) {
            return Err(Violation::field(offset::PLEN, ViolationKind::PduLength));
        }
        Ok(Layout {
            hlen,
            head,
            padding: 0,
            digest_follows: false,
            data: 0,
            rare: false,
        })
    }

    #[inline]
    fn layout_with_data(
        &self,
        kind: u8,
        pdo: u8,
        plen: u32,
        hlen: u8,
        head: u8,
        max_data: u32,
    ) -> Result<Layout, Violation> {
        if matches!(kind, pdu_type::CAPSULE_RESP | pdu_type::R2T) {
            return Err(Violation::field(offset::PLEN, ViolationKind::PduLength));
        }
        let aligned =
            pdo.is_multiple_of(4) && (self.alignment == 4 || pdo.is_multiple_of(self.alignment));
        if pdo < head || !aligned {
            return Err(Violation::field(offset::PDO, ViolationKind::DataOffset));
        }
        let digest_follows = self.digests & flag::DATA_DIGEST != 0;
        let around = u32::from(pdo)
            + if digest_follows {
                Crc32c::LEN as u32
            } else {
                0
            };
        let data = plen.saturating_sub(around);
        if data == 0 {
            return Err(Violation::field(offset::PLEN, ViolationKind::PduLength));
        }
        if data > max_data {
            return Err(too_much_data(kind));
        }
        Ok(Layout {
            hlen,
            head,
            padding: pdo - head,
            digest_follows,
            data,
            rare: false,
        })
    }

    /// The PDUs of the beginning and the end of a connection, and unknown ones. They have no
    /// digests.
    #[cold]
    fn layout_of_rare(&self, kind: u8, hlen: u8, plen: u32) -> Result<Layout, Violation> {
        let (want_hlen, max_data) = match (self.role, kind) {
            (Role::Controller, pdu_type::IC_REQ) | (Role::Host, pdu_type::IC_RESP) => {
                if self.phase != Phase::Initialize {
                    return Err(Violation::sequence());
                }
                (header_len::IC, 0)
            }
            (Role::Controller, pdu_type::H2C_TERM_REQ) | (Role::Host, pdu_type::C2H_TERM_REQ) => {
                (header_len::OTHERS, TermReq::MAX_DATA)
            }
            _ => return Err(Violation::field(offset::TYPE, ViolationKind::PduType)),
        };
        if usize::from(hlen) != want_hlen {
            return Err(Violation::field(offset::HLEN, ViolationKind::HeaderLength));
        }
        let data = u64::from(plen).checked_sub(u64::from(hlen));
        match data.filter(|data| *data <= max_data as u64) {
            Some(data) => Ok(Layout {
                hlen,
                head: hlen,
                padding: 0,
                digest_follows: false,
                data: data as u32,
                rare: true,
            }),
            None => Err(Violation::field(offset::PLEN, ViolationKind::PduLength)),
        }
    }
}

const fn digest_flags(digests: Digests) -> u8 {
    (if digests.header {
        flag::HEADER_DIGEST
    } else {
        0
    }) | if digests.data { flag::DATA_DIGEST } else { 0 }
}

#[cold]
fn too_much_data(kind: u8) -> Violation {
    match kind {
        pdu_type::H2C_DATA => Violation::limit(),
        pdu_type::C2H_DATA => Violation::out_of_range(),
        _ => Violation::field(offset::PLEN, ViolationKind::PduLength),
    }
}
