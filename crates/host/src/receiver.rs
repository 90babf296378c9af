//! The receiving task of a queue: takes what the controller sends and gives it to the commands it
//! belongs to. Everything in it is hostile: the framer checks each PDU, the table of commands
//! checks that it was asked for.

use std::io;
use std::rc::Rc;

use flashyard_nvme::CompletionQueueEntry;
use flashyard_nvme::command::Status;
use flashyard_nvme::tcp::{Event, Framer, Header};
use flashyard_runtime::{Buf, Rt};
use flashyard_time::Duration;

use crate::queue::{HostError, Shared};

/// Data from this size on are received straight into the command's buffer.
const DIRECT: usize = 16 << 10;
/// A receive from the shared ring brings at most this much; one that brings as much means that more
/// is there.
const CHUNK: usize = 16 << 10;
/// Size of one receive while much is coming in. It fits the second-level cache.
const BATCH: usize = 256 << 10;
/// Of what follows large data at most this is received with them: some headers, and little that
/// has to be copied.
const BEHIND: usize = 4 << 10;
/// How long the controller has to read our termination request before the connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a controller must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A PDU that is malformed, in the wrong place, or damaged (header digest).
    Framing(flashyard_nvme::tcp::Violation),
    /// An answer, data or R2T for a command that is not in flight.
    UnknownCommand,
    /// Data for a command that does not read.
    DataNotAskedFor,
    /// Data out of order or beyond the end of what was asked for.
    DataOutOfRange,
    /// Success without all the data.
    DataMissing,
    /// R2T for a command that offers no data.
    TransferNotOffered,
    /// R2T out of order, empty, or beyond the end of the data.
    TransferOutOfRange,
    /// An answer to Connect, Identify or Property Get whose content cannot be.
    Content(&'static str),
}

impl Violation {
    /// Fatal Error Status and Information for the termination request (NVMe/TCP, H2CTermReq).
    pub(crate) fn fatal_error(self) -> (u16, u32) {
        const CCCID: u32 = 8;
        const OFFSET: u32 = 12;
        match self {
            Self::Framing(violation) => (violation.fes.0, violation.fei),
            Self::UnknownCommand => (1, CCCID),
            Self::DataNotAskedFor | Self::TransferNotOffered | Self::DataMissing => (2, 0),
            Self::DataOutOfRange | Self::TransferOutOfRange => (4, OFFSET),
            Self::Content(_) => (6, 0),
        }
    }
}

impl From<Violation> for HostError {
    fn from(violation: Violation) -> Self {
        Self::Protocol(violation)
    }
}

impl From<flashyard_nvme::tcp::Violation> for HostError {
    fn from(violation: flashyard_nvme::tcp::Violation) -> Self {
        Self::Protocol(Violation::Framing(violation))
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Framing(violation) => write!(f, "{violation}"),
            Self::UnknownCommand => write!(f, "an answer to a command that is not in flight"),
            Self::DataNotAskedFor => write!(f, "data for a command that does not read"),
            Self::DataOutOfRange => write!(f, "data out of order or range"),
            Self::DataMissing => write!(f, "success without all the data"),
            Self::TransferNotOffered => write!(f, "R2T for a command without data to send"),
            Self::TransferOutOfRange => write!(f, "R2T out of order or range"),
            Self::Content(what) => write!(f, "{what}"),
        }
    }
}

/// Receives until the queue ends, and ends it when the connection does.
pub(crate) async fn receive(rt: Rt, queue: Rc<Shared>, framer: Framer) {
    let mut receiver = Receiver {
        queue: &queue,
        framer,
        data: None,
        batch: None,
        behind: None,
    };
    let error = receiver.run().await;
    if let (HostError::Protocol(violation), None) = (error, queue.failure()) {
        queue
            .outbox
            .push_termination(violation, receiver.framer.offending_header());
        queue.end_commands(error);
        rt.timeout(FAREWELL, drain(&queue)).await;
    }
    queue.fail(error);
}

/// Reads and drops until the controller closes: one that is stuck sending would not come to read
/// our reason.
async fn drain(queue: &Shared) {
    while queue
        .stream
        .recv()
        .await
        .is_ok_and(|chunk| !chunk.is_empty())
    {}
}

struct Receiver<'a> {
    queue: &'a Shared,
    framer: Framer,
    /// The C2HData PDU whose data are coming in.
    data: Option<Incoming>,
    /// For big receives while much is coming in; none while little is, so that an idle queue holds
    /// no memory.
    batch: Option<Buf>,
    /// For what follows large data, while they come one after the other.
    behind: Option<Buf>,
}

#[derive(Clone, Copy)]
struct Incoming {
    cid: u16,
    success: bool,
}

impl Receiver<'_> {
    /// Gives why it ended.
    async fn run(&mut self) -> HostError {
        loop {
            let step = match self.direct() {
                Some((cid, buf, at)) => self.receive_direct(cid, buf, at).await,
                None => self.receive_batch().await,
            };
            if let Err(error) = step {
                return error;
            }
        }
    }

    /// Where the next bytes go if they are all data of one command that wants them in a buffer of
    /// its own.
    fn direct(&mut self) -> Option<(u16, Buf, usize)> {
        let rest = self.framer.data_remaining() as usize;
        let cid = self.data.filter(|_| rest >= DIRECT)?.cid;
        let (mut buf, at) = self.queue.slots.borrow_mut().borrow_target(cid)?;
        buf.set_len(at + rest);
        Some((cid, buf, at))
    }

    /// Receives data into `buf[at..]`, and by the same call what follows them.
    async fn receive_direct(&mut self, cid: u16, buf: Buf, at: usize) -> Result<(), HostError> {
        // There was much for these data, which says nothing about what follows them.
        self.batch = None;
        let len = buf.len() - at;
        let stream = &self.queue.stream;
        let (result, buf, behind) = match self.behind.take().or_else(|| Buf::take(BEHIND)) {
            Some(behind) => {
                let (result, buf, behind) = stream.recv_into_both(buf, at, behind).await;
                (result, buf, Some(behind))
            }
            None => {
                let (result, buf) = stream.recv_into(buf, at).await;
                (result, buf, None)
            }
        };
        let received = *result.as_ref().unwrap_or(&0);
        let direct = received.min(len);
        self.framer.data_received_direct(&buf[at..at + direct]);
        self.queue.slots.borrow_mut().put_back(cid, buf, direct);
        arrived(result)?;
        // The end of the data is an event, even if nothing follows them.
        self.consume(&behind.as_deref().unwrap_or_default()[..received - direct])?;
        self.behind = behind;
        Ok(())
    }

    async fn receive_batch(&mut self) -> Result<(), HostError> {
        self.behind = None;
        let Some(batch) = self.batch.take() else {
            let chunk = self
                .queue
                .stream
                .recv()
                .await
                .map_err(|error| HostError::Transport(error.kind()))?;
            arrived(Ok(chunk.len()))?;
            if chunk.len() >= CHUNK {
                self.batch = Buf::take(BATCH);
            }
            return self.consume(&chunk);
        };
        let (result, batch) = self.queue.stream.recv_into(batch, 0).await;
        let received = arrived(result)?;
        self.consume(&batch[..received])?;
        self.batch = (received >= CHUNK).then_some(batch);
        Ok(())
    }

    fn consume(&mut self, mut input: &[u8]) -> Result<(), HostError> {
        while let Some(event) = self.framer.next(&mut input)? {
            match event {
                Event::Pdu(pdu) => self.pdu(pdu)?,
                Event::Data(piece) => {
                    if let Some(data) = self.data {
                        self.queue.slots.borrow_mut().fill(data.cid, piece);
                    }
                }
                Event::DataEnd { digest_ok } => self.data_end(digest_ok)?,
            }
        }
        Ok(())
    }

    fn pdu(&mut self, header: Header) -> Result<(), HostError> {
        match header {
            Header::CapsuleResp(response) => self.queue.complete(response.entry)?,
            Header::C2HData(data) => {
                self.queue
                    .slots
                    .borrow_mut()
                    .expect_data(data.cccid, data.datao, data.datal)?;
                self.data = Some(Incoming {
                    cid: data.cccid,
                    success: data.success,
                });
            }
            Header::R2T(r2t) => {
                let mut slots = self.queue.slots.borrow_mut();
                let asked = slots.ask(r2t.cccid, r2t.r2to, r2t.r2tl)?;
                self.queue
                    .outbox
                    .push_transfer(&r2t, asked, slots.outgoing(r2t.cccid));
            }
            Header::TermReq(reason) => {
                return Err(HostError::Terminated {
                    fes: reason.fes.0,
                    fei: reason.fei,
                });
            }
            Header::ICReq(_) | Header::ICResp(_) | Header::CapsuleCmd(_) | Header::H2CData(_) => {
                return Err(HostError::Protocol(Violation::Framing(
                    flashyard_nvme::tcp::Violation::sequence(),
                )));
            }
        }
        Ok(())
    }

    fn data_end(&mut self, digest_ok: bool) -> Result<(), HostError> {
        let Some(data) = self.data.take() else {
            return Ok(());
        };
        if !digest_ok {
            self.queue.slots.borrow_mut().damage(data.cid);
        }
        if data.success {
            self.queue
                .complete(CompletionQueueEntry::new(data.cid, Status::SUCCESS))?;
        }
        Ok(())
    }
}

/// No bytes mean the end of the stream.
fn arrived(result: io::Result<usize>) -> Result<usize, HostError> {
    match result {
        Ok(0) => Err(HostError::Transport(io::ErrorKind::UnexpectedEof)),
        Ok(received) => Ok(received),
        Err(error) => Err(HostError::Transport(error.kind())),
    }
}
