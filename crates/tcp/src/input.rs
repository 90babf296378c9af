//! What a connection receives. An idle connection waits on the core's shared ring and holds no
//! memory; when a piece of the ring came full, the next receive goes into a large buffer, so that
//! deep queues of writes need few system calls. The data of a large PDU are received straight to
//! where they belong, and what follows them by the same call.

use std::rc::Rc;

use flashyard_engine::HostEventKind;
use flashyard_engine::front::{Connection as _, Reservation};
use flashyard_nvme::tcp::{Event, Framer, Header, MAX_TERM_REQ, Role, Violation};
use flashyard_runtime::{Buf, Chunk};
use flashyard_time::Time;

use crate::coalesce::Pushed;
use crate::connection::{Connection, End};

/// A piece of the ring that is full is this long.
const CHUNK: usize = 16 << 10;
/// Length of a large buffer: a queue of 60 writes of 4 KiB, and still in the cache.
const LARGE: usize = 256 << 10;
/// What a peer may still send after a termination request, before nothing more is read at all.
const LAST_WORDS: usize = 1 << 20;
/// A large buffer that brought less is given back.
const WORTH_KEEPING: usize = 64 << 10;
/// Of what follows large data at most this is received with them: some headers, and little that
/// has to be copied.
const BEHIND: usize = 4 << 10;

/// The receiving side of a connection.
pub(crate) struct Input {
    connection: Rc<Connection>,
    /// Where the bytes are looked at.
    pub(crate) framer: Framer,
    /// When the last bytes came.
    at: Time,
    left: Option<Received>,
    next_is_large: bool,
    kept: Option<Large>,
    /// For what follows large data, while they come one after the other.
    behind: Option<Large>,
}

/// Received bytes, the front of which may have been looked at.
pub(crate) struct Received {
    from: Source,
    at: usize,
}

enum Source {
    Chunk(Chunk),
    Large(Large, usize),
    Left(Vec<u8>),
}

/// A buffer to receive into, counted against what the core has for them.
struct Large {
    buf: Buf,
    reservation: Reservation,
}

/// A whole PDU, for the slow phases of a connection.
pub(crate) struct Pdu {
    pub(crate) header: Header,
    pub(crate) data: Vec<u8>,
    pub(crate) digest_ok: bool,
}

impl Received {
    /// What has not been looked at.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.from {
            Source::Chunk(chunk) => &chunk[self.at..],
            Source::Large(large, len) => &large.buf[self.at..*len],
            Source::Left(bytes) => &bytes[self.at..],
        }
    }
}

impl Input {
    /// The input of a connection, looked at by `framer`.
    pub(crate) fn new(connection: Rc<Connection>, framer: Framer) -> Self {
        Self {
            connection,
            framer,
            at: Time::ZERO,
            left: None,
            next_is_large: false,
            kept: None,
            behind: None,
        }
    }

    /// When the bytes that were received last came.
    #[inline]
    pub(crate) fn at(&self) -> Time {
        self.at
    }

    /// What is left over, or what comes next. `r2t_sent`: the rest of the PDU is a part of what an
    /// R2T asked for, which has a time of its own; otherwise the peer has to send the rest of what
    /// it has begun (`Limits::pdu_deadline`). Once the connection is closed, nothing: what was
    /// received and not looked at is not begun any more.
    pub(crate) async fn receive(&mut self, r2t_sent: bool) -> Result<Received, End> {
        if self.connection.is_closed() {
            return Err(End::Closed);
        }
        if let Some(left) = self.left.take() {
            return Ok(left);
        }
        let owed = !r2t_sent && !self.framer.at_pdu_boundary();
        self.connection
            .set_awaited(owed.then(|| self.framer.headers()));
        self.behind = None;
        let received = match self.large() {
            Some(large) => self.receive_large(large).await,
            None => {
                let chunk = self.connection.stream().recv().await;
                self.take_chunk(chunk)
            }
        };
        self.connection.set_awaited(None);
        received
    }

    /// Takes back what was received, with `rest` bytes at its end that were not looked at. Memory
    /// of the ring does not stay here.
    #[inline]
    pub(crate) fn keep(&mut self, received: Received, rest: usize) {
        if rest > 0 {
            self.keep_rest(received, rest);
        } else if let Source::Large(large, len) = received.from {
            if large.buf.len() == BEHIND {
                self.behind = Some(large);
            } else if len >= WORTH_KEEPING {
                self.kept = Some(large);
            }
        }
    }

    /// Receives a part of the current PDU's data into `buf[at..at + len]`, and behind them what
    /// follows; gives the buffer back with the number of bytes in it. Only when nothing is left
    /// over.
    pub(crate) async fn receive_direct(
        &mut self,
        mut buf: Buf,
        at: usize,
        len: usize,
    ) -> (Result<usize, End>, Buf) {
        debug_assert!(self.left.is_none(), "what is left over comes first");
        let whole = buf.len();
        buf.set_len(at + len);
        // There was much for these data, which says nothing about what follows them.
        self.next_is_large = false;
        let behind = self.behind.take().or_else(|| self.memory(BEHIND));
        let (result, mut buf) = match behind {
            Some(behind) => self.receive_both(buf, at, behind).await,
            None => self.connection.stream().recv_into(buf, at).await,
        };
        if let Ok(n) = result {
            self.framer.data_received_direct(&buf[at..at + n]);
        }
        buf.set_len(whole);
        (self.some(result.unwrap_or(0)), buf)
    }

    /// Receives into `buf[at..]`, and what is more than that into `behind`, where it is left over.
    async fn receive_both(
        &mut self,
        buf: Buf,
        at: usize,
        behind: Large,
    ) -> (std::io::Result<usize>, Buf) {
        let Large {
            buf: rest,
            reservation,
        } = behind;
        let stream = self.connection.stream();
        let (result, buf, rest) = stream.recv_into_both(buf, at, rest).await;
        let behind = Large {
            buf: rest,
            reservation,
        };
        let len = buf.len() - at;
        let result = match result {
            Ok(n) if n > len => {
                self.left = Some(Received {
                    from: Source::Large(behind, n - len),
                    at: 0,
                });
                Ok(len)
            }
            result => {
                self.behind = Some(behind);
                result
            }
        };
        (result, buf)
    }

    /// The next whole PDU with its data.
    pub(crate) async fn pdu(&mut self) -> Result<Pdu, End> {
        let mut begun = None;
        loop {
            let received = self.receive(false).await?;
            let mut bytes = received.bytes();
            let pdu = whole_pdu(&mut self.framer, &mut bytes, &mut begun)?;
            let rest = bytes.len();
            self.keep(received, rest);
            if let Some(pdu) = pdu {
                return Ok(pdu);
            }
        }
    }

    /// Receives and forgets up to `most` bytes, until the peer closes.
    pub(crate) async fn discard(&mut self, most: usize) {
        let mut seen = 0;
        self.left = None;
        self.kept = None;
        self.behind = None;
        while seen < most {
            let chunk = self.connection.stream().recv().await;
            match self.take_chunk(chunk) {
                Ok(received) => seen += received.bytes().len(),
                Err(_) => return,
            }
        }
    }

    fn keep_rest(&mut self, mut received: Received, rest: usize) {
        received.at += received.bytes().len() - rest;
        if matches!(received.from, Source::Chunk(_)) {
            received = Received {
                from: Source::Left(received.bytes().to_vec()),
                at: 0,
            };
        }
        self.left = Some(received);
    }

    #[inline]
    fn take_chunk(&mut self, chunk: std::io::Result<Chunk>) -> Result<Received, End> {
        let len = chunk.as_ref().map_or(0, |chunk| chunk.len());
        self.next_is_large = self.some(len)? >= CHUNK;
        let chunk = chunk.map_err(|_| End::Closed)?;
        Ok(Received {
            from: Source::Chunk(chunk),
            at: 0,
        })
    }

    async fn receive_large(&mut self, large: Large) -> Result<Received, End> {
        let Large { buf, reservation } = large;
        let (result, buf) = self.connection.stream().recv_into(buf, 0).await;
        let n = self.some(result.unwrap_or(0))?;
        self.next_is_large = n >= WORTH_KEEPING;
        Ok(Received {
            from: Source::Large(Large { buf, reservation }, n),
            at: 0,
        })
    }

    fn large(&mut self) -> Option<Large> {
        if !std::mem::take(&mut self.next_is_large) {
            self.kept = None;
            return None;
        }
        if let Some(kept) = self.kept.take() {
            return Some(kept);
        }
        self.memory(LARGE)
    }

    /// A buffer of `len` bytes, if there is memory for it.
    fn memory(&self, len: usize) -> Option<Large> {
        let share = self.connection.core().receive_share();
        let reservation = Reservation::now(share, len)?;
        let buf = Buf::take(len)?;
        Some(Large { buf, reservation })
    }

    /// So many bytes have come; none are the end of the connection, as errors are.
    #[inline]
    fn some(&mut self, received: usize) -> Result<usize, End> {
        self.at = self.connection.core().rt().turn_time();
        if received == 0 || self.connection.is_closed() {
            return Err(End::Closed);
        }
        Ok(received)
    }
}

/// Looks for the end of a PDU; `begun` is one whose data are on the way. Data come in capsules
/// only: whoever reads whole PDUs has r2t_sent none.
fn whole_pdu(
    framer: &mut Framer,
    bytes: &mut &[u8],
    begun: &mut Option<Pdu>,
) -> Result<Option<Pdu>, End> {
    while let Some(event) = framer.next(bytes)? {
        match event {
            Event::Pdu(Header::TermReq(_)) => return Err(End::Closed),
            Event::Pdu(Header::H2CData(_)) => return Err(Violation::tag().into()),
            Event::Pdu(header) => {
                let pdu = Pdu {
                    header,
                    data: Vec::new(),
                    digest_ok: true,
                };
                if matches!(header, Header::CapsuleCmd(capsule) if capsule.data_len > 0) {
                    *begun = Some(pdu);
                } else {
                    return Ok(Some(pdu));
                }
            }
            Event::Data(piece) => {
                if let Some(pdu) = begun {
                    pdu.data.extend_from_slice(piece);
                }
            }
            Event::DataEnd { digest_ok } => {
                return Ok(begun.take().map(|pdu| Pdu { digest_ok, ..pdu }));
            }
        }
    }
    Ok(None)
}

/// Ends a connection: says why, if the peer is to blame; then waits until it has gone, but not for
/// long.
pub(crate) async fn finish(input: &mut Input, end: End) {
    let connection = input.connection.clone();
    if let End::Violation(violation) = end {
        connection.report(HostEventKind::Violation(violation));
        let mut pdu = [0; MAX_TERM_REQ];
        let len = violation.term_req().encode(
            Role::Controller,
            input.framer.offending_header(),
            &mut pdu,
        );
        connection.outbox().push(Pushed::AtOnce, &pdu[..len]);
        connection.outbox().seal();
        connection.set_deadline(Some(
            connection.core().rt().now() + connection.limits().terminate_deadline,
        ));
        connection.outbox().flushed().await;
        input.discard(LAST_WORDS).await;
    }
    connection.close();
}
