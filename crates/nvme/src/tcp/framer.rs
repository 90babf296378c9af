//! From the bytes of a connection to checked headers and pieces of data.

use super::{
    C2HData, CapsuleCmd, CapsuleResp, Crc32c, Digests, H2CData, Header, ICReq, ICResp, Negotiated,
    R2T, Role, TermReq, Violation, ViolationKind, flag, header_len, offset, pdu_type,
};

/// Bytes of the common header: TYPE, FLAGS, HLEN, PDO, PLEN.
const COMMON: usize = 8;

/// The most data in one PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// In a CapsuleCmd, bytes. At least 8,192 before it is known which queue a connection is.
    pub in_capsule: u32,
    /// In a C2HData PDU, bytes: the longest read that a host asks for.
    pub c2h_data: u32,
}

/// What arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A header: its lengths, flags, phase and digest are in order. If the PDU has data, they follow.
    Pdu(Header),
    /// The next piece of the PDU's data, never empty, where it lies in the input.
    Data(&'a [u8]),
    /// All data of the PDU have been seen.
    DataEnd {
        /// Whether the data digest matched; true on a connection without.
        digest_ok: bool,
    },
}

/// Takes the bytes that one end of a connection receives, in pieces of any length, and says what they are.
///
/// The first header is the peer's ICReq or ICResp; nothing after it is looked at until [`Framer::negotiated`] says what
/// was agreed. After a TermReq everything is thrown away; after a [`Violation`] everything is refused.
#[derive(Clone, Debug)]
pub struct Framer {
    role: Role,
    phase: Phase,
    section: Section,
    /// FLAGS bits of the digests in use.
    digests: u8,
    /// Data begin at multiples of this many bytes.
    alignment: u8,
    /// Bytes of `header` in use.
    gathered: u8,
    /// Bytes between header and data that are still to come.
    padding: u8,
    /// Whether a digest follows the data of this PDU.
    digest_follows: bool,
    /// Bytes of data that are still to come.
    remaining: u32,
    /// Digest of the data so far.
    crc: Crc32c,
    limits: Limits,
    max_h2c_data: u32,
    violation: Option<Violation>,
    /// The front of a header, or of a digest, that is not all there; after a violation the header it was found in.
    header: [u8; header_len::IC],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing but ICReq or ICResp.
    Initialize,
    /// Everything but those.
    Open,
    /// The peer sent a TermReq.
    Terminated,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Section {
    Header,
    Padding,
    Data,
    Digest,
    /// All data seen, and no digest.
    End,
    /// Between the ICReq or ICResp and what was agreed.
    Negotiation,
    /// Throws away what comes.
    Discard,
    Refuse,
}

/// What the common header says about a PDU.
struct Layout {
    /// Length of the header.
    hlen: u8,
    /// Length of the header and its digest.
    head: u8,
    padding: u8,
    digest_follows: bool,
    data: u32,
}

impl Framer {
    /// A framer for the bytes that this end receives.
    pub fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            phase: Phase::Initialize,
            section: Section::Header,
            digests: 0,
            alignment: 4,
            gathered: 0,
            padding: 0,
            digest_follows: false,
            remaining: 0,
            crc: Crc32c::new(),
            limits,
            max_h2c_data: 0,
            violation: None,
            header: [0; header_len::IC],
        }
    }

    /// Goes on with what was agreed, after the peer's ICReq or ICResp.
    pub fn negotiated(&mut self, agreed: &Negotiated) {
        assert!(
            self.section == Section::Negotiation,
            "agreement follows the peer's ICReq or ICResp, once"
        );
        let pda = match self.role {
            Role::Controller => agreed.cpda,
            Role::Host => agreed.hpda,
        };
        self.digests = digest_flags(agreed.digests);
        self.alignment = (pda & 31) * 4 + 4;
        self.max_h2c_data = agreed.maxh2cdata;
        self.phase = Phase::Open;
        self.section = Section::Header;
    }

    /// Changes the most data of a CapsuleCmd, once it is known which queue the connection is.
    pub fn set_in_capsule_limit(&mut self, bytes: u32) {
        self.limits.in_capsule = bytes;
    }

    /// Takes bytes from the front of `input` and says what they are. `None` means that more bytes are needed (or
    /// that [`Framer::negotiated`] has to be called); ask until then, for an event may need no bytes.
    ///
    /// # Errors
    /// A [`Violation`], from then on always the same. [`Framer::offending_header`] has the header for the TermReq.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if self.section == Section::Header
            && self.gathered == 0
            && let Some((common, _)) = input.split_first_chunk()
        {
            let layout = match self.layout(common) {
                Ok(layout) => layout,
                Err(violation) => return Err(self.refuse(violation, input)),
            };
            if let Some((head, rest)) = input.split_at_checked(usize::from(layout.head)) {
                let header = match parse(head, &layout) {
                    Ok(header) => header,
                    Err(violation) => return Err(self.refuse(violation, head)),
                };
                *input = rest;
                self.enter(&header, &layout);
                return Ok(Some(Event::Pdu(header)));
            }
        }
        self.next_piece(input)
    }

    /// How many bytes of data the stream goes on with: they may be received straight to where they belong and be
    /// told by [`Framer::data_received_direct`]. 0 also while padding before the data is still to come.
    #[inline]
    pub fn data_remaining(&self) -> u32 {
        if self.section == Section::Data {
            self.remaining
        } else {
            0
        }
    }

    /// Counts data that the caller received elsewhere, and adds them to the digest. At most
    /// [`Framer::data_remaining`] bytes.
    #[inline]
    pub fn data_received_direct(&mut self, data: &[u8]) {
        let fits = data.len() as u64 <= u64::from(self.data_remaining());
        assert!(fits, "no more than data_remaining() belongs to this PDU");
        if !data.is_empty() {
            self.count(data);
        }
    }

    /// After a violation: (the front of) the header it was found in.
    pub fn offending_header(&self) -> &[u8] {
        if self.violation.is_some() {
            &self.header[..usize::from(self.gathered)]
        } else {
            &[]
        }
    }

    /// Whether the next byte begins a new PDU: where a peer may close in good order.
    pub fn at_pdu_boundary(&self) -> bool {
        matches!(
            self.section,
            Section::Header | Section::Negotiation | Section::Discard
        ) && self.gathered == 0
    }

    /// Everything but a whole header in the input.
    fn next_piece<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if self.section == Section::Padding && !self.skip_padding(input) {
            return Ok(None);
        }
        match self.section {
            Section::Header => self.gather_header(input),
            Section::Data | Section::Padding => Ok(self.take_data(input).map(Event::Data)),
            Section::Digest => {
                if !self.gather(input, Crc32c::LEN) {
                    return Ok(None);
                }
                let digest_ok = self.header[..Crc32c::LEN] == self.crc.to_wire();
                Ok(Some(self.end_pdu(digest_ok)))
            }
            Section::End => Ok(Some(self.end_pdu(true))),
            Section::Negotiation => Ok(None),
            Section::Discard => {
                *input = &[];
                Ok(None)
            }
            Section::Refuse => Err(self.violation.expect("kept when the first was found")),
        }
    }

    #[cold]
    fn gather_header<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if !self.gather(input, COMMON) {
            return Ok(None);
        }
        let common = self
            .header
            .first_chunk()
            .expect("longer than a common header");
        let layout = match self.layout(common) {
            Ok(layout) => layout,
            Err(violation) => return Err(self.keep(violation)),
        };
        if !self.gather(input, usize::from(layout.head)) {
            return Ok(None);
        }
        match parse(&self.header[..usize::from(layout.head)], &layout) {
            Ok(header) => {
                self.gathered = 0;
                self.enter(&header, &layout);
                Ok(Some(Event::Pdu(header)))
            }
            Err(violation) => Err(self.keep(violation)),
        }
    }

    /// Moves bytes from `input` to `header` until it has `want`; whether it has.
    fn gather(&mut self, input: &mut &[u8], want: usize) -> bool {
        let have = usize::from(self.gathered);
        let (piece, rest) = input.split_at(want.saturating_sub(have).min(input.len()));
        self.header[have..have + piece.len()].copy_from_slice(piece);
        self.gathered += piece.len() as u8;
        *input = rest;
        usize::from(self.gathered) >= want
    }

    /// Whether all padding has been passed.
    fn skip_padding(&mut self, input: &mut &[u8]) -> bool {
        let n = usize::from(self.padding).min(input.len());
        *input = &input[n..];
        self.padding -= n as u8;
        if self.padding == 0 {
            self.section = Section::Data;
        }
        self.padding == 0
    }

    fn take_data<'a>(&mut self, input: &mut &'a [u8]) -> Option<&'a [u8]> {
        if input.is_empty() {
            return None;
        }
        let (data, rest) = input.split_at(input.len().min(self.remaining as usize));
        *input = rest;
        self.count(data);
        Some(data)
    }

    /// Counts data, which are some and not more than there are to come.
    #[inline]
    fn count(&mut self, data: &[u8]) {
        self.remaining -= data.len() as u32;
        if self.digest_follows {
            self.crc.update(data);
        }
        if self.remaining == 0 {
            self.section = if self.digest_follows {
                Section::Digest
            } else {
                Section::End
            };
        }
    }

    /// Begins what follows a header.
    #[inline]
    fn enter(&mut self, header: &Header, layout: &Layout) {
        if layout.data != 0 {
            self.remaining = layout.data;
            self.padding = layout.padding;
            self.digest_follows = layout.digest_follows;
            self.section = if layout.padding == 0 {
                Section::Data
            } else {
                Section::Padding
            };
            if layout.digest_follows {
                self.crc = Crc32c::new();
            }
        }
        match header {
            Header::ICReq(_) | Header::ICResp(_) => self.section = Section::Negotiation,
            Header::TermReq(_) => {
                self.phase = Phase::Terminated;
                if layout.data == 0 {
                    self.section = Section::Discard;
                }
            }
            _ => {}
        }
    }

    fn end_pdu<'a>(&mut self, digest_ok: bool) -> Event<'a> {
        self.gathered = 0;
        self.section = if self.phase == Phase::Terminated {
            Section::Discard
        } else {
            Section::Header
        };
        Event::DataEnd { digest_ok }
    }

    /// Refuses everything from now on; `head` is the header where it lies in the input, at least its common part
    /// and maybe more. As much of it is kept as it says it is long.
    #[cold]
    fn refuse(&mut self, violation: Violation, head: &[u8]) -> Violation {
        let hlen = usize::from(head[2]).clamp(COMMON, self.header.len());
        let n = head.len().min(hlen);
        self.header[..n].copy_from_slice(&head[..n]);
        self.gathered = n as u8;
        self.keep(violation)
    }

    /// Refuses everything from now on; the header has been gathered.
    #[cold]
    fn keep(&mut self, violation: Violation) -> Violation {
        self.violation = Some(violation);
        self.section = Section::Refuse;
        violation
    }

    /// Checks the common header.
    #[inline]
    fn layout(&self, common: &[u8; COMMON]) -> Result<Layout, Violation> {
        let [kind, flags, hlen, pdo, plen @ ..] = *common;
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

    /// A PDU that ends with its header: PDO is reserved, and there is nothing a data digest could be of.
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
        let aligned = pdo & 3 == 0 && (self.alignment == 4 || pdo.is_multiple_of(self.alignment));
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
        })
    }

    /// The PDUs of the beginning and the end of a connection, and unknown ones. They have no digests.
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

/// Checks the digest of a whole header and reads its fields.
#[inline]
fn parse(head: &[u8], layout: &Layout) -> Result<Header, Violation> {
    let (header, digest) = head.split_at(usize::from(layout.hlen));
    if !digest.is_empty() {
        check_digest(header, digest)?;
    }
    if let Some(header) = header.first_chunk() {
        // Of the long headers one is a CapsuleCmd, and an ICReq or ICResp is longer still.
        if header[0] == pdu_type::CAPSULE_CMD {
            return Ok(Header::CapsuleCmd(CapsuleCmd::decode(header, layout.data)));
        }
    }
    parse_others(header, layout)
}

fn parse_others(header: &[u8], layout: &Layout) -> Result<Header, Violation> {
    let kind = header[0];
    if let Some(header) = header.first_chunk() {
        match kind {
            pdu_type::IC_REQ => return Ok(Header::ICReq(ICReq::decode(header))),
            pdu_type::IC_RESP => return Ok(Header::ICResp(ICResp::decode(header))),
            _ => {}
        }
    }
    let header = header
        .first_chunk()
        .expect("the layout made sure of the length of every type");
    match kind {
        pdu_type::H2C_DATA => {
            let pdu = H2CData::decode(header);
            check_length(pdu.datal, layout)?;
            Ok(Header::H2CData(pdu))
        }
        pdu_type::C2H_DATA => {
            let pdu = C2HData::decode(header);
            check_length(pdu.datal, layout)?;
            if pdu.success && !pdu.last {
                Err(Violation::flags())
            } else {
                Ok(Header::C2HData(pdu))
            }
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

#[inline]
fn check_length(datal: u32, layout: &Layout) -> Result<(), Violation> {
    if datal == layout.data {
        Ok(())
    } else {
        Err(Violation::field(offset::DATAL, ViolationKind::DataLength))
    }
}

fn check_digest(header: &[u8], digest: &[u8]) -> Result<(), Violation> {
    let received: [u8; Crc32c::LEN] = digest.try_into().expect("the layout made it four bytes");
    if received == Crc32c::of(header) {
        Ok(())
    } else {
        Err(Violation::header_digest(u32::from_le_bytes(received)))
    }
}
