//! The headers of the PDUs, typed, and how they are written.
//!
//! Every `encode` writes the header, its digest, and the padding before the data into the front of
//! `out` and returns how many bytes that is, at most [`MAX_HEADER`]. The data and their digest
//! follow from elsewhere; PLEN counts them.

use zerocopy::{IntoBytes, transmute};

use super::digest::Crc32c;
use super::protocol::{Digests, Role, flag, header_len, pdu_type};
use super::violation::FatalErrorStatus;
use crate::bytes::Field;
use crate::command::{CompletionQueueEntry, SubmissionQueueEntry};

/// The most bytes before the data of a PDU: a header with its digest and padding.
pub const MAX_HEADER: usize = 144;
/// The most bytes of a TermReq PDU.
pub const MAX_TERM_REQ: usize = header_len::OTHERS + TermReq::MAX_DATA;

/// How PDUs are to be sent on a connection: digests and the alignment the other end asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    /// Digests in use.
    pub digests: Digests,
    /// CPDA or HPDA of the other end: data begin at a multiple of `(pda + 1) * 4` bytes; 0 to 31.
    pub pda: u8,
}

impl Outgoing {
    /// PDO of a PDU with data behind a header of `hlen` bytes.
    #[inline]
    fn data_offset(self, hlen: usize) -> usize {
        let end = hlen + self.digests.header_len();
        if self.pda == 0 {
            end
        } else {
            end.next_multiple_of((usize::from(self.pda & 31) + 1) * 4)
        }
    }
}

/// A header that a [`super::Framer`] found in order, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A command.
    CapsuleCmd(CapsuleCmd),
    /// Data for the controller.
    H2CData(H2CData),
    /// A completion.
    CapsuleResp(CapsuleResp),
    /// Data for the host.
    C2HData(C2HData),
    /// An invitation to send data.
    R2T(R2T),
    /// The host's first PDU.
    ICReq(ICReq),
    /// The controller's first PDU.
    ICResp(ICResp),
    /// The other end gives up (H2CTermReq or C2HTermReq); data are its reason. It sends nothing
    /// more.
    TermReq(TermReq),
}

/// CapsuleCmd: a submission queue entry, and data of the command or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapsuleCmd {
    /// The command.
    pub entry: SubmissionQueueEntry,
    /// Bytes of data in the capsule.
    pub data_len: u32,
}

/// CapsuleResp: a completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapsuleResp {
    /// The completion.
    pub entry: CompletionQueueEntry,
}

/// H2CData: data that an R2T asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct H2CData {
    /// Command Capsule CID.
    pub cccid: u16,
    /// Transfer Tag of the R2T.
    pub ttag: u16,
    /// Offset of the data in the command's buffer, bytes.
    pub datao: u32,
    /// Length of the data, bytes, not 0.
    pub datal: u32,
    /// The last PDU of the R2T's data.
    pub last: bool,
}

/// C2HData: data of a command that reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct C2HData {
    /// Command Capsule CID.
    pub cccid: u16,
    /// Offset of the data in the command's buffer, bytes.
    pub datao: u32,
    /// Length of the data, bytes, not 0.
    pub datal: u32,
    /// The last PDU of the command's data.
    pub last: bool,
    /// The command succeeded; no CapsuleResp follows. Only with `last`.
    pub success: bool,
}

/// R2T: the controller is ready for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct R2T {
    /// Command Capsule CID.
    pub cccid: u16,
    /// Transfer Tag, chosen by the controller.
    pub ttag: u16,
    /// Offset of the data in the command's buffer, bytes.
    pub r2to: u32,
    /// Length of the data, bytes, not 0.
    pub r2tl: u32,
}

/// ICReq: what the host offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ICReq {
    /// PDU Format Version, 0.
    pub pfv: u16,
    /// Host PDU Data Alignment, `(n + 1) * 4` bytes; 0 to 31.
    pub hpda: u8,
    /// Digests that the host wants.
    pub digests: Digests,
    /// Maximum Number of Outstanding R2Ts of a command, zero-based.
    pub maxr2t: u32,
}

/// ICResp: what the controller answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ICResp {
    /// PDU Format Version, 0.
    pub pfv: u16,
    /// Controller PDU Data Alignment, `(n + 1) * 4` bytes; 0 to 31.
    pub cpda: u8,
    /// Digests in use from now on.
    pub digests: Digests,
    /// Maximum Host to Controller Data of one H2CData PDU, bytes; at least 4,096, a multiple of 4.
    pub maxh2cdata: u32,
}

/// H2CTermReq or C2HTermReq: the end of a connection, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermReq {
    /// Fatal Error Status.
    pub fes: FatalErrorStatus,
    /// Fatal Error Information.
    pub fei: u32,
}

impl CapsuleCmd {
    #[inline]
    pub(super) fn decode(head: &[u8; header_len::CAPSULE_CMD], data_len: u32) -> Self {
        let (_, entry) = head
            .split_last_chunk::<{ SubmissionQueueEntry::LEN }>()
            .expect("8 + 64 bytes");
        Self {
            entry: transmute!(*entry),
            data_len,
        }
    }

    /// Writes header, digest and padding.
    #[inline]
    pub fn encode(&self, how: Outgoing, out: &mut [u8]) -> usize {
        let mut head = [0; header_len::CAPSULE_CMD];
        head[8..].copy_from_slice(self.entry.as_bytes());
        finish(pdu_type::CAPSULE_CMD, 0, self.data_len, head, how, out)
    }
}

impl CapsuleResp {
    #[inline]
    pub(super) fn decode(head: &[u8; header_len::OTHERS]) -> Self {
        let (_, entry) = head.split_last_chunk::<16>().expect("8 + 16 bytes");
        Self {
            entry: transmute!(*entry),
        }
    }

    /// Writes the whole PDU.
    #[inline]
    pub fn encode(&self, how: Outgoing, out: &mut [u8]) -> usize {
        let mut head = [0; header_len::OTHERS];
        head[8..].copy_from_slice(self.entry.as_bytes());
        finish(pdu_type::CAPSULE_RESP, 0, 0, head, how, out)
    }
}

impl H2CData {
    #[inline]
    pub(super) fn decode(head: &[u8; header_len::OTHERS]) -> Self {
        Self {
            cccid: Field::get(head, 8),
            ttag: Field::get(head, 10),
            datao: Field::get(head, 12),
            datal: Field::get(head, 16),
            last: head[1] & flag::LAST != 0,
        }
    }

    /// Writes header, digest and padding.
    #[inline]
    pub fn encode(&self, how: Outgoing, out: &mut [u8]) -> usize {
        let mut head = [0; header_len::OTHERS];
        self.cccid.put(&mut head, 8);
        self.ttag.put(&mut head, 10);
        self.datao.put(&mut head, 12);
        self.datal.put(&mut head, 16);
        let flags = if self.last { flag::LAST } else { 0 };
        finish(pdu_type::H2C_DATA, flags, self.datal, head, how, out)
    }
}

impl C2HData {
    #[inline]
    pub(super) fn decode(head: &[u8; header_len::OTHERS]) -> Self {
        Self {
            cccid: Field::get(head, 8),
            datao: Field::get(head, 12),
            datal: Field::get(head, 16),
            last: head[1] & flag::LAST != 0,
            success: head[1] & flag::SUCCESS != 0,
        }
    }

    /// Writes header, digest and padding.
    #[inline]
    pub fn encode(&self, how: Outgoing, out: &mut [u8]) -> usize {
        debug_assert!(self.last || !self.success, "SUCCESS goes with LAST");
        let mut head = [0; header_len::OTHERS];
        self.cccid.put(&mut head, 8);
        self.datao.put(&mut head, 12);
        self.datal.put(&mut head, 16);
        let flags =
            if self.last { flag::LAST } else { 0 } | if self.success { flag::SUCCESS } else { 0 };
        finish(pdu_type::C2H_DATA, flags, self.datal, head, how, out)
    }
}

impl R2T {
    #[inline]
    pub(super) fn decode(head: &[u8; header_len::OTHERS]) -> Self {
        Self {
            cccid: Field::get(head, 8),
            ttag: Field::get(head, 10),
            r2to: Field::get(head, 12),
            r2tl: Field::get(head, 16),
        }
    }

    /// Writes the whole PDU.
    #[inline]
    pub fn encode(&self, how: Outgoing, out: &mut [u8]) -> usize {
        let mut head = [0; header_len::OTHERS];
        self.cccid.put(&mut head, 8);
        self.ttag.put(&mut head, 10);
        self.r2to.put(&mut head, 12);
        self.r2tl.put(&mut head, 16);
        finish(pdu_type::R2T, 0, 0, head, how, out)
    }
}

impl ICReq {
    pub(super) fn decode(head: &[u8; header_len::IC]) -> Self {
        let digests = Digests::from_bits(head[11]);
        Self {
            pfv: Field::get(head, 8),
            hpda: head[10],
            digests,
            maxr2t: Field::get(head, 12),
        }
    }

    /// The whole PDU.
    pub fn encode(&self) -> [u8; header_len::IC] {
        initialize(
            pdu_type::IC_REQ,
            self.pfv,
            self.hpda,
            self.digests,
            self.maxr2t,
        )
    }
}

impl ICResp {
    pub(super) fn decode(head: &[u8; header_len::IC]) -> Self {
        let digests = Digests::from_bits(head[11]);
        Self {
            pfv: Field::get(head, 8),
            cpda: head[10],
            digests,
            maxh2cdata: Field::get(head, 12),
        }
    }

    /// The whole PDU.
    pub fn encode(&self) -> [u8; header_len::IC] {
        initialize(
            pdu_type::IC_RESP,
            self.pfv,
            self.cpda,
            self.digests,
            self.maxh2cdata,
        )
    }
}

impl TermReq {
    /// The most bytes of the offending header that go with it.
    pub const MAX_DATA: usize = 128;

    pub(super) fn decode(head: &[u8; header_len::OTHERS]) -> Self {
        Self {
            fes: FatalErrorStatus(Field::get(head, 8)),
            fei: Field::get(head, 10),
        }
    }

    /// Writes the whole PDU as `from` sends it, with (the front of) the header that was wrong;
    /// returns its length.
    pub fn encode(&self, from: Role, offending: &[u8], out: &mut [u8; MAX_TERM_REQ]) -> usize {
        let offending = &offending[..offending.len().min(Self::MAX_DATA)];
        let kind = match from {
            Role::Controller => pdu_type::C2H_TERM_REQ,
            Role::Host => pdu_type::H2C_TERM_REQ,
        };
        let plen = header_len::OTHERS + offending.len();
        out.fill(0);
        [kind, 0, header_len::OTHERS as u8, 0].put(out, 0);
        (plen as u32).put(out, 4);
        self.fes.0.put(out, 8);
        self.fei.put(out, 10);
        out[header_len::OTHERS..plen].copy_from_slice(offending);
        plen
    }
}

/// Fills in the common header, then writes header, digest and padding to `out`.
#[inline]
fn finish<const HLEN: usize>(
    kind: u8,
    flags: u8,
    data_len: u32,
    mut head: [u8; HLEN],
    how: Outgoing,
    out: &mut [u8],
) -> usize {
    let mut flags = flags;
    let mut end = HLEN + how.digests.header_len();
    let mut plen = end as u64;
    if how.digests.header {
        flags |= flag::HEADER_DIGEST;
    }
    let mut pdo = 0;
    if data_len != 0 {
        end = how.data_offset(HLEN);
        pdo = end as u8;
        plen = end as u64 + u64::from(data_len) + how.digests.data_len() as u64;
        if how.digests.data {
            flags |= flag::DATA_DIGEST;
        }
    }
    let plen = u32::try_from(plen).expect("our own PDUs are shorter than 4 GiB");
    head[..4].copy_from_slice(&[kind, flags, HLEN as u8, pdo]);
    head[4..8].copy_from_slice(&plen.to_le_bytes());
    let out = &mut out[..end];
    let (front, behind) = out.split_at_mut(HLEN);
    front.copy_from_slice(&head);
    if !behind.is_empty() {
        behind.fill(0);
        if how.digests.header {
            behind[..Crc32c::LEN].copy_from_slice(&Crc32c::of(&head));
        }
    }
    end
}

fn initialize(kind: u8, pfv: u16, pda: u8, digests: Digests, limit: u32) -> [u8; header_len::IC] {
    let mut head = [0; header_len::IC];
    [kind, 0, header_len::IC as u8, 0].put(&mut head, 0);
    (header_len::IC as u32).put(&mut head, 4);
    pfv.put(&mut head, 8);
    [pda, digests.bits()].put(&mut head, 10);
    limit.put(&mut head, 12);
    head
}
