//! From the bytes of a connection to checked headers and pieces of data.

use super::digest::Crc32c;
use super::header::Header;
use super::negotiate::Negotiated;
use super::protocol::{Role, header_len};
use super::rules::Limits;
use super::rules::{COMMON, Layout, Rules};
use super::violation::Violation;

/// What arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A header: its lengths, flags, phase and digest are in order. If the PDU has data, they
    /// follow.
    Pdu(Header),
    /// The next piece of the PDU's data, never empty, where it lies in the input.
    Data(&'a [u8]),
    /// All data of the PDU have been seen.
    DataEnd {
        /// Whether the data digest matched; true on a connection without.
        digest_ok: bool,
    },
}

/// Takes the bytes that one end of a connection receives, in pieces of any length, and says what
/// they are.
///
/// The first header is the peer's ICReq or ICResp; nothing after it is looked at until
/// [`Framer::negotiated`] says what was agreed. After a TermReq everything is thrown away; after a
/// [`Violation`] everything is refused.
#[derive(Clone, Debug)]
pub struct Framer {
    rules: Rules,
    section: Section,
    /// Bytes of `header` in use.
    gathered: u8,
    /// Bytes between header and data that are still to come.
    padding: u8,
    /// Whether a digest follows the data of this PDU.
    digest_follows: bool,
    /// Bytes of data that are still to come.
    remaining: u32,
    /// Headers that have come.
    headers: u64,
    /// Digest of the data so far.
    crc: Crc32c,
    /// A TermReq came.
    terminated: bool,
    violation: Option<Violation>,
    /// The front of a header, or of a digest, that is not all there; after a violation the header
    /// it was found in.
    header: [u8; header_len::IC],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Section {
    /// Nothing of a header yet.
    Header,
    /// The front of a header is in the buffer.
    RestOfHeader,
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

impl Framer {
    /// A framer for the bytes that this end receives.
    pub fn new(role: Role, limits: Limits) -> Self {
        Self {
            rules: Rules::new(role, limits),
            section: Section::Header,
            gathered: 0,
            padding: 0,
            digest_follows: false,
            remaining: 0,
            headers: 0,
            crc: Crc32c::new(),
            terminated: false,
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
        self.rules.negotiated(agreed);
        self.section = Section::Header;
    }

    /// Changes the most data of a CapsuleCmd, once it is known which queue the connection is.
    pub fn set_in_capsule_limit(&mut self, bytes: u32) {
        self.rules.set_in_capsule_limit(bytes);
    }

    /// Takes bytes from the front of `input` and says what they are. `None` means that more bytes
    /// are needed (or that [`Framer::negotiated`] has to be called); ask until then, for an event
    /// may need no bytes.
    ///
    /// # Errors
    /// A [`Violation`], from then on always the same. [`Framer::offending_header`] has the header
    /// for the TermReq.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if self.section == Section::Header {
            // How every piece of input ends that ends with a PDU.
            if input.is_empty() {
                return Ok(None);
            }
            if let Some(plain) = self.rules.plain(input) {
                *input = plain.rest;
                self.headers += 1;
                if plain.data != 0 {
                    self.enter_data(plain.data);
                }
                return Ok(Some(Event::Pdu(plain.header)));
            }
        }
        self.next_piece(input)
    }

    /// How many bytes of data the stream goes on with: they may be received straight to where they
    /// belong, reported by [`Framer::data_received_direct`]. 0 also while padding before the data
    /// is still to come.
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
        )
    }

    /// How many headers have come: while it stays the same, and this is no boundary, it is the same
    /// PDU that is on its way.
    pub fn headers(&self) -> u64 {
        self.headers
    }

    /// What is not the most common PDU in its most common form.
    fn next_piece<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        match self.section {
            Section::Header => self.take_header(input),
            Section::Data => Ok(self.take_data(input)),
            Section::End => Ok(Some(self.end_pdu(true))),
            Section::RestOfHeader => self.gather_header(input),
            Section::Padding => Ok(self.skip_padding(input)),
            Section::Digest => Ok(self.take_digest(input)),
            Section::Negotiation => Ok(None),
            Section::Discard => {
                *input = &[];
                Ok(None)
            }
            Section::Refuse => Err(self.violation.expect("kept when the first was found")),
        }
    }

    /// A header that begins here, whole or not.
    fn take_header<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if let Some((common, _)) = input.split_first_chunk() {
            let layout = match self.rules.layout(*common) {
                Ok(layout) => layout,
                Err(violation) => return Err(self.refuse(violation, input)),
            };
            if let Some((head, rest)) = input.split_at_checked(usize::from(layout.head)) {
                return match layout.parse(head) {
                    Ok(header) => {
                        *input = rest;
                        self.enter(&layout);
                        Ok(Some(Event::Pdu(header)))
                    }
                    Err(violation) => Err(self.refuse(violation, head)),
                };
            }
        }
        if input.is_empty() {
            return Ok(None);
        }
        self.section = Section::RestOfHeader;
        self.gather_header(input)
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
        let layout = match self.rules.layout(*common) {
            Ok(layout) => layout,
            Err(violation) => return Err(self.keep(violation)),
        };
        if !self.gather(input, usize::from(layout.head)) {
            return Ok(None);
        }
        let head = &self.header[..usize::from(layout.head)];
        match layout.parse(head) {
            Ok(header) => {
                self.gathered = 0;
                self.enter(&layout);
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

    /// Passes padding, and goes on with the data if that was all of it.
    fn skip_padding<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        let n = usize::from(self.padding).min(input.len());
        *input = &input[n..];
        self.padding -= n as u8;
        if self.padding != 0 {
            return None;
        }
        self.section = Section::Data;
        self.take_data(input)
    }

    fn take_data<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        if input.is_empty() {
            return None;
        }
        let (data, rest) = input.split_at(input.len().min(self.remaining as usize));
        *input = rest;
        self.count(data);
        Some(Event::Data(data))
    }

    fn take_digest<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        if !self.gather(input, Crc32c::LEN) {
            return None;
        }
        let digest_ok = self.header[..Crc32c::LEN] == self.crc.to_wire();
        Some(self.end_pdu(digest_ok))
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

    /// Begins data without padding and digest.
    #[inline]
    fn enter_data(&mut self, bytes: u32) {
        self.section = Section::Data;
        self.remaining = bytes;
        self.digest_follows = false;
    }

    /// Begins what follows a header.
    fn enter(&mut self, layout: &Layout) {
        self.headers += 1;
        self.section = match layout.data {
            0 => Section::Header,
            _ if layout.padding == 0 => Section::Data,
            _ => Section::Padding,
        };
        self.remaining = layout.data;
        self.padding = layout.padding;
        self.digest_follows = layout.digest_follows;
        self.crc = Crc32c::new();
        if layout.rare {
            self.enter_rare(layout);
        }
    }

    /// After an ICReq or ICResp nothing has a meaning until it is known what was agreed; after a
    /// TermReq nothing has.
    #[cold]
    fn enter_rare(&mut self, layout: &Layout) {
        if layout.is_initialize() {
            self.section = Section::Negotiation;
        } else {
            self.terminated = true;
            if layout.data == 0 {
                self.section = Section::Discard;
            }
        }
    }

    fn end_pdu<'a>(&mut self, digest_ok: bool) -> Event<'a> {
        self.gathered = 0;
        self.section = if self.terminated {
            Section::Discard
        } else {
            Section::Header
        };
        Event::DataEnd { digest_ok }
    }

    /// Refuses everything from now on; `head` is the header where it lies in the input, at least
    /// its common part and maybe more. As much of it is kept as it says it is long.
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
}
