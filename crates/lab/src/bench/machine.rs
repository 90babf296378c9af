//! The event loop of a bench.
//!
//! What is due at the same instant happens in a fixed order: drives, ways to them, answers on the
//! network, workers, commands on the network, policies that waited.

use std::collections::{BTreeSet, VecDeque};

use flashyard_flash::ssd::{self, Command, Completion};
use flashyard_sched::{Ask, Credit, IoId, Next, Op, Outcome};
use flashyard_time::{Duration, EventQueue, Time};

use super::path::{Arrived, Road};
use super::worker::{Active, Timer, bytes};
use super::{Drive, HostPolicy, Results, Setup};
use crate::load::source::Draft;
use crate::measure::Sample;

/// A bench at work.
pub(super) struct Machine {
    drives: Vec<Station>,
    workers: Vec<Active>,
    host: Option<Box<dyn HostPolicy>>,
    network: Duration,
    until: Time,
    timers: EventQueue<(u32, Timer)>,
    /// On the network, in order: when they are there, and which.
    commands: VecDeque<(Time, u32)>,
    answers: VecDeque<(Time, u32, Option<Credit>)>,
    ios: Vec<InFlight>,
    free: Vec<u32>,
    done: Vec<Completion>,
    digest: u64,
    completed: u64,
}

/// A drive, and when its policy wants to be asked again.
struct Station {
    drive: Drive,
    wake: Time,
    road: Option<Road>,
}

/// An I/O in flight; its place is its id.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    worker: u32,
    draft: Draft,
    issued: Time,
    sent: Time,
    dispatched: Time,
    device: Duration,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Due {
    Drive(usize),
    Road(usize),
    Answer,
    Timer,
    Command,
    Wake(usize),
}

impl InFlight {
    /// How long its switch held it when it lets it go at `until`.
    fn held(&self, until: Time, network: Duration) -> Duration {
        until.since(self.sent) - network
    }
}

impl Machine {
    /// A machine for a setup that was checked.
    pub(super) fn new(setup: Setup) -> Self {
        let begin = setup
            .drives
            .first()
            .map_or(Time::ZERO, |drive| drive.device.now());
        let workers = Active::all(&setup, begin);
        let most: usize = workers.iter().map(|worker| worker.most as usize).sum();
        let mut timers = EventQueue::with_capacity(2 * workers.len());
        for (place, worker) in setup.workers.iter().enumerate() {
            let start = begin + worker.start.since(Time::ZERO);
            timers.push(start, (place as u32, Timer::Turn));
        }
        let flying = if setup.network > Duration::ZERO {
            most
        } else {
            0
        };
        let station = |drive| Station {
            drive,
            wake: Time::MAX,
            road: Road::new(begin, &setup.paths),
        };
        Self {
            drives: setup.drives.into_iter().map(station).collect(),
            workers,
            host: setup.host,
            network: setup.network,
            until: begin + setup.warm_up + setup.span,
            timers,
            commands: VecDeque::with_capacity(flying),
            answers: VecDeque::with_capacity(flying),
            ios: Vec::with_capacity(most),
            free: Vec::with_capacity(most),
            done: Vec::with_capacity(most),
            digest: 0,
            completed: 0,
        }
    }

    /// Lets everything happen until the end of the span.
    pub(super) fn run(&mut self) {
        while let Some((now, due)) = self.next_due().filter(|&(at, _)| at <= self.until) {
            match due {
                Due::Drive(place) => self.drive_due(place, now),
                Due::Road(place) => self.road_due(place, now),
                Due::Answer => {
                    if let Some((_, id, credit)) = self.answers.pop_front() {
                        self.answered(now, id, credit);
                    }
                }
                Due::Timer => self.timer_due(now),
                Due::Command => {
                    if let Some((_, id)) = self.commands.pop_front() {
                        self.arrive(now, id);
                    }
                }
                Due::Wake(place) => self.pump(place, now),
            }
        }
    }

    /// What came of it.
    pub(super) fn results(mut self) -> Results {
        self.tally_held();
        let devices = self
            .drives
            .iter()
            .map(|station| station.drive.device.digest());
        Results {
            digest: devices.fold(self.digest, fold),
            completed: self.completed,
            workers: self
                .workers
                .into_iter()
                .map(|worker| worker.tally)
                .collect(),
        }
    }

    /// Counts how long those have been held that the switches still hold.
    fn tally_held(&mut self) {
        let not_sent = self.workers.iter().flat_map(|worker| &worker.held);
        let gone: BTreeSet<u32> = self.free.iter().chain(not_sent).copied().collect();
        for (in_flight, id) in self.ios.iter().zip(0..) {
            if in_flight.dispatched == Time::MAX && !gone.contains(&id) {
                let tally = &mut self.workers[in_flight.worker as usize].tally;
                tally.held(in_flight.draft.op, in_flight.held(self.until, self.network));
            }
        }
    }

    /// The earliest of everything that may happen, and the first in order among equals.
    fn next_due(&self) -> Option<(Time, Due)> {
        let mut first: Option<(Time, Due)> = None;
        let mut offer = |at: Option<Time>, due| {
            if let Some(at) = at
                && first.is_none_or(|(earliest, _)| at < earliest)
            {
                first = Some((at, due));
            }
        };
        for (place, station) in self.drives.iter().enumerate() {
            offer(station.drive.device.next_event(), Due::Drive(place));
        }
        for (place, station) in self.drives.iter().enumerate() {
            let road = station.road.as_ref();
            offer(road.and_then(Road::next_time), Due::Road(place));
        }
        offer(self.answers.front().map(|&(at, _, _)| at), Due::Answer);
        offer(self.timers.next_time(), Due::Timer);
        offer(self.commands.front().map(|&(at, _)| at), Due::Command);
        for (place, station) in self.drives.iter().enumerate() {
            if station.wake < Time::MAX {
                offer(Some(station.wake), Due::Wake(place));
            }
        }
        first
    }

    fn drive_due(&mut self, place: usize, now: Time) {
        let mut done = core::mem::take(&mut self.done);
        self.drives[place].drive.device.advance(now, &mut done);
        for completion in done.drain(..) {
            match &mut self.drives[place].road {
                Some(road) => road.answer(completion),
                None => self.completed_by(place, completion),
            }
        }
        self.done = done;
    }

    fn road_due(&mut self, place: usize, now: Time) {
        let road = self.drives[place].road.as_mut();
        match road.and_then(|road| road.arrive(now)) {
            Some(Arrived::AtDrive(command)) => self.submit(place, now, command),
            Some(Arrived::AtSwitch(completion)) => self.completed_by(place, completion),
            None => {}
        }
    }

    /// A drive has done an I/O: reports it to its policy, and sends the answer.
    fn completed_by(&mut self, place: usize, completion: Completion) {
        let (id, now) = (completion.tag as u32, completion.at);
        let io = self.io(id);
        let in_flight = &mut self.ios[id as usize];
        in_flight.device = now.since(in_flight.dispatched);
        let outcome = Outcome {
            latency: in_flight.device,
            ok: true,
        };
        let policy = &mut self.drives[place].drive.policy;
        policy.complete(now, &io, outcome);
        let credit = policy.credit(io.tenant);
        self.pump(place, now);
        if self.network > Duration::ZERO {
            self.answers.push_back((now + self.network, id, credit));
        } else {
            self.answered(now, id, credit);
        }
    }

    /// An answer is with its worker.
    fn answered(&mut self, now: Time, id: u32, credit: Option<Credit>) {
        let io = self.io(id);
        let in_flight = self.ios[id as usize];
        let place = in_flight.worker as usize;
        let worker = &mut self.workers[place];
        worker.in_flight -= 1;
        worker.tally.record(&Sample {
            at: now,
            op: in_flight.draft.op,
            bytes: io.bytes,
            total: now.since(in_flight.issued),
            flight: now.since(in_flight.sent),
            held: in_flight.held(in_flight.dispatched, self.network),
            device: in_flight.device,
        });
        self.completed += 1;
        let what = u64::from(in_flight.worker) << 40 ^ in_flight.draft.start;
        self.digest = fold(fold(self.digest, now.as_ns()), what);
        self.free.push(id);
        if let Some(host) = &mut self.host {
            host.complete(now, place, &io, now.since(in_flight.sent), credit);
            self.send_held(now, place);
        }
        self.refill(now, place);
    }

    fn timer_due(&mut self, now: Time) {
        let Some((_, (place, timer))) = self.timers.pop() else {
            return;
        };
        let worker = &mut self.workers[place as usize];
        match timer {
            Timer::Turn => {
                if let Some(next) = worker.turn(now) {
                    self.timers.push(next, (place, Timer::Turn));
                }
                if let Some(arrival) = worker.arrival.take() {
                    self.timers.cancel(arrival);
                }
                self.expect_arrival(now, place as usize);
                self.refill(now, place as usize);
            }
            Timer::Arrival => {
                worker.arrival = None;
                let draft = worker.source.draft();
                let room = worker.has_room();
                self.expect_arrival(now, place as usize);
                match draft {
                    Some(draft) if room => self.issue(now, place as usize, draft),
                    Some(_) => self.workers[place as usize].tally.lost(now),
                    None => {}
                }
            }
        }
    }

    /// Sets the timer for the next I/O of an open loop.
    fn expect_arrival(&mut self, now: Time, place: usize) {
        let worker = &mut self.workers[place];
        if worker.working
            && let Some(gap) = worker.source.gap()
        {
            worker.arrival = Some(self.timers.push(now + gap, (place as u32, Timer::Arrival)));
        }
    }

    /// Issues I/O of a closed loop until as many are in flight as should be.
    fn refill(&mut self, now: Time, place: usize) {
        loop {
            let worker = &mut self.workers[place];
            if !worker.working || !worker.has_room() || worker.source.is_open() {
                return;
            }
            let Some(draft) = worker.source.draft() else {
                return;
            };
            self.issue(now, place, draft);
        }
    }

    fn issue(&mut self, now: Time, place: usize, draft: Draft) {
        let in_flight = InFlight {
            worker: place as u32,
            draft,
            issued: now,
            sent: now,
            dispatched: Time::MAX,
            device: Duration::ZERO,
        };
        let id = if let Some(id) = self.free.pop() {
            self.ios[id as usize] = in_flight;
            id
        } else {
            self.ios.push(in_flight);
            self.ios.len() as u32 - 1
        };
        self.workers[place].in_flight += 1;
        if self.host.is_some() {
            self.workers[place].held.push_back(id);
            self.send_held(now, place);
        } else {
            self.send(now, id);
        }
    }

    /// Sends what the host lets go, in order.
    fn send_held(&mut self, now: Time, place: usize) {
        while let Some(&id) = self.workers[place].held.front() {
            let io = self.io(id);
            if !self
                .host
                .as_mut()
                .is_none_or(|host| host.admit(now, place, &io))
            {
                return;
            }
            self.workers[place].held.pop_front();
            self.send(now, id);
        }
    }

    fn send(&mut self, now: Time, id: u32) {
        self.ios[id as usize].sent = now;
        if self.network > Duration::ZERO {
            self.commands.push_back((now + self.network, id));
        } else {
            self.arrive(now, id);
        }
    }

    /// A command is at its switch.
    fn arrive(&mut self, now: Time, id: u32) {
        let io = self.io(id);
        let place = self.workers[self.ios[id as usize].worker as usize].drive as usize;
        let policy = &mut self.drives[place].drive.policy;
        if policy.pass(now, &io) {
            return self.dispatch(place, now, id);
        }
        policy.arrive(now, io);
        self.pump(place, now);
    }

    /// Gives a drive everything that its policy lets go now.
    fn pump(&mut self, place: usize, now: Time) {
        loop {
            match self.drives[place].drive.policy.next(now) {
                Next::Dispatch(IoId(id)) => self.dispatch(place, now, id),
                // One that waits for what has passed would be asked forever.
                Next::WaitUntil(at) => {
                    self.drives[place].wake = at.max(now + Duration::from_ns(1));
                    return;
                }
                Next::WaitForEvent => {
                    self.drives[place].wake = Time::MAX;
                    return;
                }
            }
        }
    }

    fn dispatch(&mut self, place: usize, now: Time, id: u32) {
        let in_flight = &mut self.ios[id as usize];
        in_flight.dispatched = now;
        let command = Command {
            tag: u64::from(id),
            op: device_op(in_flight.draft.op),
            start: in_flight.draft.start,
            units: in_flight.draft.units,
        };
        match &mut self.drives[place].road {
            Some(road) => road.send(now, command),
            None => self.submit(place, now, command),
        }
    }

    fn submit(&mut self, place: usize, now: Time, command: Command) {
        let taken = self.drives[place].drive.device.submit(now, command);
        taken.expect("addresses and the sum of all depths are checked before a run");
    }

    /// An I/O in flight as a policy sees it.
    fn io(&self, id: u32) -> Ask {
        let InFlight { worker, draft, .. } = self.ios[id as usize];
        let worker = &self.workers[worker as usize];
        Ask {
            id: IoId(id),
            tenant: worker.tenant,
            class: worker.class,
            op: draft.op,
            bytes: if draft.op == Op::Flush {
                0
            } else {
                bytes(draft.units)
            },
            lba: if draft.op == Op::Flush {
                0
            } else {
                draft.start
            },
        }
    }
}

/// What a drive does for an I/O of a worker.
fn device_op(op: Op) -> ssd::Op {
    match op {
        Op::Read => ssd::Op::Read,
        Op::Write | Op::CompareAndWrite => ssd::Op::Write,
        Op::Flush => ssd::Op::Flush,
        Op::WriteZeroes | Op::Deallocate => ssd::Op::Deallocate,
    }
}

/// Adds a number to a digest: both orders and values count.
pub(crate) fn fold(digest: u64, value: u64) -> u64 {
    (digest ^ value)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
}
