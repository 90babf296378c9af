//! What every part of the world needs to act: the clock, the queue of events, the seeded choices,
//! the trace, and a place to notify cores of ended operations.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use flashyard_time::{Duration, EventQueue, Rng, Time};

use super::config::Config;
use super::disk::DiskEvent;
use super::network::NetworkEvent;
use super::pipe::SharedLine;
use super::trace::Trace;
use crate::handle::SocketId;
use crate::op::Outcome;
use crate::ticket::Ticket;

/// State that all parts of the simulation share.
pub(super) struct SimContext {
    pub(super) now: Time,
    pub(super) config: Config,
    /// Decides about the network.
    pub(super) network_rng: Rng,
    /// Decides about disks.
    pub(super) disk_rng: Rng,
    /// Decides the order of tasks.
    pub(super) order_rng: Rng,
    pub(super) events: EventQueue<Event>,
    pub(super) trace: Trace,
    /// By core: operations that have ended and were not reaped yet.
    ended: Vec<VecDeque<(Ticket, Ready)>>,
    /// By core: what its turn costs it beyond [`Config::turn`].
    spent: Vec<Duration>,
    /// The core that turns, or turned last.
    turning: usize,
    /// By machine: its line, where all of its connections share it.
    pub(super) lines: BTreeMap<usize, SharedLine>,
    sends: u64,
}

/// Something that will happen.
pub(super) enum Event {
    Network(NetworkEvent),
    Disk(DiskEvent),
}

/// The core and ticket that wait for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    /// Number of the core in the world.
    pub(super) core: usize,
    pub(super) ticket: Ticket,
}

/// A new connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Established {
    pub(super) id: SocketId,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// How an operation has ended. Data is moved when the core reaps, for the buffer is in the core's
/// table.
pub(super) enum Ready {
    Done(io::Result<Outcome>),
    /// A connection was accepted or made.
    Connected(Established),
    /// There is something to receive on this socket.
    Receive(SocketId),
    /// This much can be read from a disk.
    Read {
        disk: usize,
        offset: u64,
        len: usize,
    },
}

impl SimContext {
    pub(super) fn new(config: Config) -> Self {
        let seed = Rng::new(config.seed);
        Self {
            now: Time::ZERO,
            config,
            network_rng: seed.split(1),
            disk_rng: seed.split(2),
            order_rng: seed.split(3),
            events: EventQueue::new(),
            trace: Trace::new(),
            ended: Vec::new(),
            spent: Vec::new(),
            turning: 0,
            lines: BTreeMap::new(),
            sends: 0,
        }
    }

    pub(super) fn add_core(&mut self) -> usize {
        self.ended.push(VecDeque::new());
        self.spent.push(Duration::ZERO);
        self.ended.len() - 1
    }

    /// A core begins a turn.
    pub(super) fn begin_turn(&mut self, core: usize) {
        self.turning = core;
        self.spent[core] = Duration::ZERO;
    }

    /// What the turn of a core has cost it so far.
    pub(super) fn spent(&self, core: usize) -> Duration {
        self.spent[core]
    }

    /// The core that turns is busy for so much longer.
    pub(super) fn spend(&mut self, span: Duration) {
        if let Some(spent) = self.spent.get_mut(self.turning) {
            *spent += span;
        }
    }

    /// A core sends. Tells when that leaves it.
    pub(super) fn spend_on_send(&mut self, core: usize) -> Time {
        self.sends += 1;
        self.spent[core] += self.config.toll.send;
        self.now + self.spent[core]
    }

    /// A core receives what came in so many pieces.
    pub(super) fn spend_on_receive(&mut self, core: usize, pieces: u32) {
        let toll = &self.config.toll;
        let cost = toll.receive + toll.piece.scale(u64::from(pieces), 1);
        self.spent[core] += cost;
    }

    /// How many sends there were.
    pub(super) fn sends(&self) -> u64 {
        self.sends
    }

    /// Tells a core that an operation has ended.
    pub(super) fn end(&mut self, waiter: Waiter, ready: Ready) {
        self.ended[waiter.core].push_back((waiter.ticket, ready));
    }

    pub(super) fn done(&mut self, waiter: Waiter, outcome: Outcome) {
        self.end(waiter, Ready::Done(Ok(outcome)));
    }

    pub(super) fn fail(&mut self, waiter: Waiter, errno: i32) {
        self.end(
            waiter,
            Ready::Done(Err(io::Error::from_raw_os_error(errno))),
        );
    }

    /// Whether a core has something to reap.
    pub(super) fn has_ended(&self, core: usize) -> bool {
        !self.ended[core].is_empty()
    }

    pub(super) fn take_ended(&mut self, core: usize) -> Option<(Ticket, Ready)> {
        self.ended[core].pop_front()
    }

    /// Forgets the notifications for a core that is gone.
    pub(super) fn forget_core(&mut self, core: usize) {
        self.ended[core].clear();
    }
}
