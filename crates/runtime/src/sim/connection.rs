//! One TCP connection of the simulated network: two sides, a pipe each way, and how it ends.

use std::io;

use flashyard_time::Time;

use super::context::{Event, Ready, SimContext, Waiter};
use super::network::NetworkEvent;
use super::pipe::{End, Line, Pipe};
use super::trace::Mark;
use crate::handle::SocketId;
use crate::op::Outcome;

/// A connection. Sides are numbered 0 (who connected) and 1 (who accepted).
pub(super) struct Connection {
    number: u32,
    sides: [Side; 2],
    /// Half-open: nothing arrives any more, and neither side is notified.
    silent: bool,
}

struct Side {
    socket: SocketId,
    machine: usize,
    state: State,
    /// What comes to this side.
    inbox: Pipe,
    receiving: Option<Waiter>,
    sending: Option<Waiter>,
    /// The connection was reset; stays so.
    reset: bool,
    /// Answered data that will not be received with a reset.
    answered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Both directions were shut down here.
    Shut,
    /// No program holds this side any more; the machine answers for it.
    Closed,
    /// The machine vanished without a word.
    Gone,
}

/// One end of a new connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndPoint {
    pub(super) socket: SocketId,
    pub(super) machine: usize,
}

impl Connection {
    /// A connection whose side 0 learns of it at `opens`.
    pub(super) fn new(number: u32, ends: [EndPoint; 2], line: Line, opens: Time) -> Self {
        let [connecting, accepting] = ends;
        let sides = [
            Side::new(connecting, line, opens),
            Side::new(accepting, line, Time::ZERO),
        ];
        Self {
            number,
            sides,
            silent: false,
        }
    }

    pub(super) fn machine(&self, side: usize) -> usize {
        self.sides[side].machine
    }

    /// The side is known by another name from now on.
    pub(super) fn rename(&mut self, side: usize, socket: SocketId) {
        self.sides[side].socket = socket;
    }

    /// Bytes that could be received now.
    pub(super) fn readable(&self, side: usize) -> usize {
        self.sides[side].inbox.unread()
    }

    /// Whether no program will ever see this connection again.
    pub(super) fn is_over(&self) -> bool {
        self.sides
            .iter()
            .all(|side| matches!(side.state, State::Closed | State::Gone))
    }

    pub(super) fn recv(&mut self, sim: &mut SimContext, side: usize, waiter: Waiter) {
        let this = &mut self.sides[side];
        assert!(this.receiving.is_none(), "one receive at a time");
        this.receiving = Some(waiter);
        this.wake_receiver(sim);
    }

    /// Moves what a finished receive brings: bytes, 0 at the end of the stream, or an error.
    pub(super) fn receive(
        &mut self,
        sim: &mut SimContext,
        side: usize,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let this = &mut self.sides[side];
        let received = this.inbox.receive(into, &mut sim.network_rng);
        if received > 0 {
            self.pump(sim, 1 - side, sim.now);
            return Ok(received);
        }
        if this.reset {
            return Err(io::Error::from_raw_os_error(libc::ECONNRESET));
        }
        Ok(0)
    }

    pub(super) fn send<'a>(
        &mut self,
        sim: &mut SimContext,
        side: usize,
        waiter: Waiter,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        let this = &mut self.sides[side];
        assert!(this.sending.is_none(), "one send at a time");
        if this.reset {
            return sim.fail(waiter, libc::ECONNRESET);
        }
        if this.state != State::Open {
            return sim.fail(waiter, libc::EPIPE);
        }
        this.sending = Some(waiter);
        for piece in pieces {
            self.sides[1 - side].inbox.offer(piece);
        }
        let departs = sim.spend_on_send(waiter.core);
        self.pump(sim, side, departs);
    }

    /// Gives up an operation of this side, if it is still waiting.
    pub(super) fn cancel(&mut self, sim: &mut SimContext, side: usize, waiter: Waiter) {
        let this = &mut self.sides[side];
        if this.receiving == Some(waiter) {
            this.receiving = None;
            sim.fail(waiter, libc::ECANCELED);
        } else if this.sending == Some(waiter) {
            this.sending = None;
            self.sides[1 - side].inbox.withdraw();
            sim.fail(waiter, libc::ECANCELED);
        }
    }

    /// Ends both directions of this side now.
    pub(super) fn shutdown(&mut self, sim: &mut SimContext, side: usize) {
        self.shut(sim, side, End::Finished);
    }

    /// The same; the peer hears of it as of a reset.
    pub(super) fn abort(&mut self, sim: &mut SimContext, side: usize) {
        self.shut(sim, side, End::Reset);
    }

    fn shut(&mut self, sim: &mut SimContext, side: usize, end: End) {
        let this = &mut self.sides[side];
        if this.state != State::Open {
            return;
        }
        this.state = State::Shut;
        this.wake_receiver(sim);
        this.fail_sender(sim, libc::EPIPE);
        self.finish(sim, side, end);
    }

    /// The program has closed this side. Unread data turns the end into a reset, as TCP does.
    pub(super) fn close(&mut self, sim: &mut SimContext, side: usize) {
        let this = &mut self.sides[side];
        let (was, unread) = (this.state, this.inbox.unread() > 0);
        this.state = State::Closed;
        if unread {
            self.finish(sim, side, End::Reset);
        } else if was == State::Open {
            self.finish(sim, side, End::Finished);
        }
    }

    /// The program of this side was killed; the kernel closes for it, politely or not.
    pub(super) fn kill(&mut self, sim: &mut SimContext, side: usize) {
        if self.sides[side].forget_waiters() {
            self.sides[1 - side].inbox.withdraw();
        }
        if sim.network_rng.chance(1, 2) {
            return self.close(sim, side);
        }
        self.sides[side].state = State::Closed;
        self.finish(sim, side, End::Reset);
    }

    /// The machine of this side has vanished.
    pub(super) fn vanish(&mut self, side: usize) {
        self.sides[side].forget_waiters();
        self.sides[side].state = State::Gone;
        self.sides[1 - side].inbox.withdraw();
    }

    /// The machine of this side is back and knows nothing; what was sent to it arrives (anew) and
    /// is answered with a reset.
    pub(super) fn reappear(&mut self, sim: &mut SimContext, side: usize) {
        if self.sides[side].state == State::Gone {
            self.sides[side].state = State::Closed;
            self.resume(sim, side);
        }
    }

    /// From now on nothing arrives on either side, and neither side is notified.
    pub(super) fn silence(&mut self) {
        self.silent = true;
    }

    /// Resets the connection on both sides at once. What has arrived can still be received.
    pub(super) fn reset(&mut self, sim: &mut SimContext) {
        sim.trace
            .note(sim.now, Mark::Fault, u64::from(self.number), 0);
        for side in &mut self.sides {
            side.inbox.cut(End::Reset);
            side.be_reset(sim);
        }
    }

    /// Whatever could not pass for a while goes on towards this side.
    pub(super) fn resume(&mut self, sim: &mut SimContext, side: usize) {
        let event = self.arrival(side);
        let SimContext {
            now,
            events,
            network_rng,
            ..
        } = sim;
        self.sides[side].inbox.resume(*now, network_rng, |at| {
            events.push(at, Event::Network(event));
        });
    }

    /// Something may have arrived at this side. `passable`: the line is up and the machine runs.
    pub(super) fn arrive(&mut self, sim: &mut SimContext, side: usize, passable: bool) {
        if self.silent || !passable {
            return;
        }
        let per_million = u64::from(sim.config.resets_per_million);
        if per_million > 0 && sim.network_rng.chance(per_million, 1_000_000) {
            return self.reset(sim);
        }
        let this = &mut self.sides[side];
        let bytes = this.inbox.deliver(sim.now);
        let which = u64::from(self.number) << 1 | side as u64;
        sim.trace.note(sim.now, Mark::Parcel, which, bytes as u64);
        if this.inbox.was_reset() {
            this.be_reset(sim);
            return self.sides[1 - side].inbox.cut(End::Reset);
        }
        match this.state {
            State::Open => this.wake_receiver(sim),
            State::Shut | State::Closed if bytes > 0 && !this.answered => {
                this.answered = true;
                self.finish(sim, side, End::Reset);
            }
            State::Shut | State::Closed | State::Gone => {}
        }
    }

    /// Sends an end from this side.
    fn finish(&mut self, sim: &mut SimContext, side: usize, end: End) {
        let peer = 1 - side;
        let which = u64::from(self.number) << 1 | side as u64;
        sim.trace.note(sim.now, Mark::Close, which, end as u64);
        let at = self.sides[peer]
            .inbox
            .finish(sim.now, end, &mut sim.network_rng);
        sim.events.push(at, Event::Network(self.arrival(peer)));
    }

    /// In how many pieces has come what the last receive of this side found.
    pub(super) fn take_pieces(&mut self, side: usize) -> u32 {
        self.sides[side].inbox.take_pieces()
    }

    /// Moves what this side wants to send as far as there is room, from `departs` on.
    fn pump(&mut self, sim: &mut SimContext, side: usize, departs: Time) {
        let event = self.arrival(1 - side);
        let machine = self.sides[side].machine;
        let pipe = &mut self.sides[1 - side].inbox;
        let who = u64::from(self.number) << 1 | side as u64;
        let SimContext {
            config,
            events,
            network_rng,
            lines,
            ..
        } = sim;
        let line = config
            .toll
            .shared
            .then(|| (lines.entry(machine).or_default(), who));
        pipe.pump(departs, network_rng, line, |at, _| {
            events.push(at, Event::Network(event));
        });
        if pipe.is_accepted()
            && let Some(waiter) = self.sides[side].sending.take()
        {
            sim.done(waiter, Outcome::Done);
        }
    }

    fn arrival(&self, side: usize) -> NetworkEvent {
        NetworkEvent::Arrival {
            connection: self.number,
            side,
        }
    }
}

impl Side {
    fn new(end: EndPoint, line: Line, opens: Time) -> Self {
        Self {
            socket: end.socket,
            machine: end.machine,
            state: State::Open,
            inbox: Pipe::new(line, opens),
            receiving: None,
            sending: None,
            reset: false,
            answered: false,
        }
    }

    fn wake_receiver(&mut self, sim: &mut SimContext) {
        let ready = self.inbox.is_readable() || self.reset || self.state != State::Open;
        if ready && let Some(waiter) = self.receiving.take() {
            sim.end(waiter, Ready::Receive(self.socket));
        }
    }

    fn fail_sender(&mut self, sim: &mut SimContext, errno: i32) {
        if let Some(waiter) = self.sending.take() {
            sim.fail(waiter, errno);
        }
    }

    fn be_reset(&mut self, sim: &mut SimContext) {
        self.reset = true;
        self.wake_receiver(sim);
        self.fail_sender(sim, libc::ECONNRESET);
    }

    /// The core that waited is gone. True if a send was in flight.
    fn forget_waiters(&mut self) -> bool {
        self.receiving = None;
        self.sending.take().is_some()
    }
}
