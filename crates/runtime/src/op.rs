//! Operations in flight. The table owns the operation with its buffers until the driver reports its
//! end; the future holds only a ticket. Dropping the future asks the driver to cancel and leaves
//! the buffers where they are until the kernel has let go of them, so nothing can be freed too
//! early.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::direct::{Direct, Place, Receive};
use crate::driver::Connected;
use crate::executor::Core;
use crate::file::OpenFile;
use crate::net::Socket;
use crate::zone::{Zone, ZoneAction};
use crate::{Buf, Chunk, Gather, Shared};

/// What is asked of a driver. Sockets and files are held by the operation: they are closed when the
/// last operation on them has ended.
pub(crate) enum Operation {
    /// Wait for a connection on a listening socket. Ends with [`Outcome::Connected`].
    Accept { listener: Rc<Socket> },
    /// Open a connection. Ends with [`Outcome::Connected`].
    Connect { addr: SocketAddr },
    /// Receive what is there. Ends with [`Outcome::Chunk`], empty at the end of the stream.
    Recv { socket: Rc<Socket> },
    /// Receive into `room`. Ends with [`Outcome::Bytes`], 0 at the end of the stream.
    RecvInto { socket: Rc<Socket>, room: Room },
    /// Send all of `gather`; `sent` bytes of it are gone already (the driver's to count). Ends with
    /// [`Outcome::Done`].
    Send {
        socket: Rc<Socket>,
        gather: Gather,
        sent: usize,
    },
    /// Read `buf.len()` bytes at `offset`; `moved` bytes are there already (the driver's to count).
    /// Ends with [`Outcome::Bytes`], fewer only at the end of the file.
    Read {
        file: Rc<OpenFile>,
        buf: Buf,
        offset: u64,
        moved: usize,
    },
    /// Write `data` at `offset`; ends with [`Outcome::Bytes`].
    Write {
        file: Rc<OpenFile>,
        data: Shared,
        offset: u64,
        durable: bool,
        moved: usize,
    },
    /// Make everything written durable. Ends with [`Outcome::Done`], as do those below.
    Sync { file: Rc<OpenFile> },
    /// Free a range; it reads as zeroes.
    Punch {
        file: Rc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Make a range read as zeroes, space kept.
    Zero {
        file: Rc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Do something with zones of a zoned block device.
    Zone {
        file: Rc<OpenFile>,
        action: ZoneAction,
    },
}

/// Where received bytes go: to `buf[at..]`, and what is more than that to `behind`.
pub(crate) struct Room {
    pub(crate) buf: Buf,
    pub(crate) at: usize,
    pub(crate) behind: Option<Buf>,
}

impl Room {
    /// The memory, in the order in which it is filled.
    #[inline]
    pub(crate) fn pieces(&mut self) -> (&mut [u8], &mut [u8]) {
        let behind = self.behind.as_deref_mut().unwrap_or_default();
        (&mut self.buf[self.at..], behind)
    }
}

/// Whose doing the end of an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The other end of a connection: what it sends comes when it likes.
    Peer,
    /// A file or block device.
    Device,
    /// This machine: a socket takes what is sent to it at once, as a rule.
    Nobody,
}

impl Operation {
    /// Whose doing its end is.
    pub(crate) fn ended_by(&self) -> EndedBy {
        match self {
            Self::Accept { .. }
            | Self::Connect { .. }
            | Self::Recv { .. }
            | Self::RecvInto { .. } => EndedBy::Peer,
            Self::Send { .. } => EndedBy::Nobody,
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Sync { .. }
            | Self::Punch { .. }
            | Self::Zero { .. }
            | Self::Zone { .. } => EndedBy::Device,
        }
    }
}

/// How an operation ended well.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Bytes(usize),
    Chunk(Chunk),
    Connected(Box<Connected>),
    Zones(Vec<Zone>),
}

impl Outcome {
    /// What a transfer has moved.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes(moved) => moved,
            _ => unreachable!("a transfer brings a number of bytes"),
        }
    }
}

/// The end of one operation, as a driver reports it.
pub(crate) struct Completion {
    pub(crate) ticket: Ticket,
    pub(crate) result: io::Result<Outcome>,
}

/// Names one operation of one core; never valid again once the operation has been taken out of the
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// As the 64 bits that travel through the kernel.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`Ticket::pack`].
    pub(crate) fn unpack(packed: u64) -> Self {
        Self {
            index: packed as u32,
            generation: (packed >> 32) as u32,
        }
    }
}

/// Entries per block; blocks never move, so an entry's address is stable.
const BLOCK: usize = 64;

/// The operations of a core. Grows to the largest number ever in flight and stays there.
#[derive(Default)]
pub(crate) struct Table {
    blocks: Vec<Box<[Entry; BLOCK]>>,
    free: Vec<u32>,
    in_flight: usize,
    with_devices: usize,
    /// How many have ended by somebody else's doing.
    arrivals: u64,
    /// Receives that need no driver.
    direct: Direct,
}

struct Entry {
    generation: u32,
    state: State,
    operation: Option<Operation>,
}

enum State {
    Free,
    /// With the driver; the waker of whoever polled last.
    InFlight(Option<Waker>),
    /// With the driver, and nobody wants to know the result.
    Orphaned,
    /// Ended; waits for the future to be polled.
    Ended(io::Result<Outcome>),
}

/// An operation that has ended, and how.
pub(crate) type Finished = (Operation, io::Result<Outcome>);

/// What became of an operation that the driver reported as ended.
pub(crate) enum Ended {
    /// Somebody wants the result: to be woken, if already waiting.
    Wanted(Option<Waker>),
    /// Nobody does: to be dropped, outside of any borrow.
    Unwanted(Finished),
}

impl Table {
    /// Puts an operation in; it counts as being with the driver.
    pub(crate) fn insert(&mut self, operation: Operation) -> (Ticket, &mut Operation) {
        if self.free.is_empty() {
            self.grow();
        }
        let index = self.free.pop().expect("the table has just grown");
        self.in_flight += 1;
        self.with_devices += usize::from(operation.ended_by() == EndedBy::Device);
        let entry = self.entry(index);
        entry.state = State::InFlight(None);
        let ticket = Ticket {
            index,
            generation: entry.generation,
        };
        (ticket, entry.operation.insert(operation))
    }

    /// The operation, which is with the driver. `None` for a ticket that is not valid any more.
    pub(crate) fn operation(&mut self, ticket: Ticket) -> Option<&mut Operation> {
        let entry = self.blocks.get_mut(ticket.index as usize / BLOCK)?;
        let entry = &mut entry[ticket.index as usize % BLOCK];
        if entry.generation != ticket.generation {
            return None;
        }
        match entry.state {
            State::InFlight(_) | State::Orphaned => entry.operation.as_mut(),
            State::Free | State::Ended(_) => None,
        }
    }

    /// Whether the future of this operation has been dropped: a driver need not go on with it.
    pub(crate) fn is_orphaned(&mut self, ticket: Ticket) -> bool {
        let entry = self.entry(ticket.index);
        entry.generation == ticket.generation && matches!(entry.state, State::Orphaned)
    }

    /// How many operations are with the driver.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many of them are with a file or block device.
    pub(crate) fn with_devices(&self) -> usize {
        self.with_devices
    }

    /// How many operations have ended because somebody else did something; what was sent is gone at
    /// once and does not count.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals + self.direct.arrivals()
    }

    /// The receives that are tried past the table.
    #[inline]
    pub(crate) fn direct(&mut self) -> &mut Direct {
        &mut self.direct
    }

    /// Makes an operation of one of them: from now on it is with the driver.
    pub(crate) fn hand_over(&mut self, place: Place) -> (Ticket, &mut Operation) {
        let (Receive { socket, room }, waker) = self.direct.take(place);
        let operation = match room {
            Some(room) => Operation::RecvInto {
                socket: socket.clone(),
                room,
            },
            None => Operation::Recv {
                socket: socket.clone(),
            },
        };
        let (ticket, _) = self.insert(operation);
        socket.receive_in_table(ticket);
        let entry = self.entry(ticket.index);
        entry.state = State::InFlight(waker);
        (
            ticket,
            entry.operation.as_mut().expect("it was just put in"),
        )
    }

    /// Takes note of an end.
    pub(crate) fn finish(&mut self, completion: Completion) -> Ended {
        let Completion { ticket, result } = completion;
        self.count_end(ticket);
        let entry = self.entry(ticket.index);
        match std::mem::replace(&mut entry.state, State::Free) {
            State::InFlight(waker) => {
                entry.state = State::Ended(result);
                Ended::Wanted(waker)
            }
            State::Orphaned => {
                let operation = self.release(ticket.index);
                Ended::Unwanted((operation, result))
            }
            State::Free | State::Ended(_) => unreachable!("an operation ends once"),
        }
    }

    /// The operation with its result; before the end takes note of who waits, and gives the waker
    /// that was noted before, to be dropped outside of any borrow.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: Waker) -> Result<Finished, Option<Waker>> {
        let entry = self.entry(ticket.index);
        debug_assert_eq!(
            entry.generation, ticket.generation,
            "the future owns its ticket"
        );
        if let State::InFlight(waiting) = &mut entry.state {
            return Err(waiting.replace(waker));
        }
        let State::Ended(result) = std::mem::replace(&mut entry.state, State::Free) else {
            unreachable!("a future polls its own operation")
        };
        Ok((self.release(ticket.index), result))
    }

    /// The future has been dropped. If the operation is still with the driver it is now an orphan,
    /// to be cancelled; otherwise it comes back. Either is to be dropped outside of any borrow.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Result<Finished, Option<Waker>> {
        let entry = self.entry(ticket.index);
        debug_assert_eq!(
            entry.generation, ticket.generation,
            "the future owns its ticket"
        );
        match std::mem::replace(&mut entry.state, State::Orphaned) {
            State::Ended(result) => Ok((self.release(ticket.index), result)),
            State::InFlight(waker) => Err(waker),
            State::Free | State::Orphaned => unreachable!("a future is dropped once"),
        }
    }

    /// Tickets of everything with the driver.
    pub(crate) fn all_in_flight(&self) -> Vec<Ticket> {
        let entries = self.blocks.iter().flat_map(|block| block.iter());
        let busy = entries
            .enumerate()
            .filter(|(_, entry)| matches!(entry.state, State::InFlight(_) | State::Orphaned));
        busy.map(|(index, entry)| Ticket {
            index: index as u32,
            generation: entry.generation,
        })
        .collect()
    }

    fn count_end(&mut self, ticket: Ticket) {
        let operation = self.operation(ticket).expect("an operation ends once");
        let ended_by = operation.ended_by();
        self.in_flight -= 1;
        self.with_devices -= usize::from(ended_by == EndedBy::Device);
        self.arrivals += u64::from(ended_by != EndedBy::Nobody);
    }

    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.blocks[index as usize / BLOCK][index as usize % BLOCK]
    }

    fn release(&mut self, index: u32) -> Operation {
        let entry = self.entry(index);
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        let operation = entry
            .operation
            .take()
            .expect("a used entry holds its operation");
        self.free.push(index);
        operation
    }

    fn grow(&mut self) {
        let first = (self.blocks.len() * BLOCK) as u32;
        self.blocks.push(Box::new(std::array::from_fn(|_| Entry {
            generation: 0,
            state: State::Free,
            operation: None,
        })));
        self.free.extend((first..first + BLOCK as u32).rev());
    }
}

/// One operation in flight as its future holds it.
pub(crate) struct Flight {
    core: Rc<Core>,
    ticket: Option<Ticket>,
}

impl Flight {
    pub(crate) fn new(core: Rc<Core>, ticket: Ticket) -> Self {
        Self {
            core,
            ticket: Some(ticket),
        }
    }

    /// The operation's ticket.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket.expect("the operation has not ended")
    }
}

impl Future for Flight {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let ticket = self.ticket.expect("polled after it was ready");
        match self.core.poll_operation(ticket, context.waker()) {
            Some(finished) => {
                self.ticket = None;
                Poll::Ready(finished)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.abandon_operation(ticket);
        }
    }
}

/// A file read: bytes moved, and the buffer back.
#[must_use = "dropping it cancels the read"]
pub struct ReadOp(pub(crate) Flight);

impl Future for ReadOp {
    type Output = (io::Result<usize>, Buf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|(operation, result)| match operation {
                Operation::Read { buf, .. } => (result.map(Outcome::bytes), buf),
                _ => unreachable!("the operation is the one that was started"),
            })
    }
}

/// A file write: bytes moved, and the data back.
#[must_use = "dropping it cancels the write"]
pub struct WriteOp(pub(crate) Flight);

impl Future for WriteOp {
    type Output = (io::Result<usize>, Shared);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|(operation, result)| match operation {
                Operation::Write { data, .. } => (result.map(Outcome::bytes), data),
                _ => unreachable!("the operation is the one that was started"),
            })
    }
}

/// A file operation without payload.
#[must_use = "dropping it cancels the operation"]
pub struct ControlOp(pub(crate) Flight);

impl Future for ControlOp {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|(_, result)| result.map(drop))
    }
}
