//! Operations in flight. The table owns the operation with its buffers until the driver reports its
//! end; the future holds only a ticket. Dropping the future asks the driver to cancel and leaves
//! the buffers where they are until the kernel has let go of them, so nothing can be freed too
//! early.

use std::io;
use std::task::Waker;

use crate::direct::Direct;
use crate::handle::Direction;
use crate::op::{Completion, EndedBy, Operation, Outcome};
use crate::ticket::{Place, Ticket};

/// Entries per block; blocks never move, so an entry's address is stable.
const BLOCK: usize = 64;

/// The operations of a core. Grows to the largest number ever in flight and stays there.
#[derive(Default)]
pub(crate) struct Table {
    blocks: Vec<Box<[Entry; BLOCK]>>,
    free: Vec<u32>,
    in_flight: usize,
    with_devices: usize,
    /// How many were ended by a peer or a device.
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
    /// With the driver; the waker of the task that polled last.
    InFlight(Option<Waker>),
    /// With the driver, and its result is not wanted.
    Orphaned,
    /// Ended; waits for the future to be polled.
    Ended(io::Result<Outcome>),
}

/// An operation that has ended, and how.
pub(crate) type Finished = (Operation, io::Result<Outcome>);

/// The state of an operation that the driver reported as ended.
pub(crate) enum Ended {
    /// The result is wanted: the task is to be woken, if already waiting.
    Wanted(Option<Waker>),
    /// The result is not wanted: to be dropped, outside of any borrow.
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

    /// How many operations have ended because a peer or a device did something; what was sent is
    /// gone at once and does not count.
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
        let (receive, waker) = self.direct.take(place);
        let socket = receive.socket.clone();
        let (ticket, _) = self.insert(Operation::Receive(receive));
        socket.receiving.set(Direction::Busy(ticket));
        let entry = self.entry(ticket.index);
        entry.state = State::InFlight(waker);
        (
            ticket,
            entry.operation.as_mut().expect("it was just put in"),
        )
    }

    /// Records an end.
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

    /// The operation with its result; before the end records the waker of the task, and gives the
    /// waker that was recorded before, to be dropped outside of any borrow.
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
        self.arrivals += u64::from(ended_by != EndedBy::Local);
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
