//! What every policy guarantees to the switch, in any order of events: each I/O that arrives is
//! dispatched once, or cancelled; nothing else is; and nothing waits forever.

use std::collections::VecDeque;

use flashyard_sched::{
    Ask, Class, Figures, IoId, Known, Make, Next, Op, Outcome, POLICIES, Point, Policy, PolicyKind,
    Rates, Share, TenantId, Window,
};
use flashyard_time::{Duration, Rng, Time};
use turns::Turns;

/// The one that the guide shows is held to the same.
#[path = "../../lab/examples/policy/turns.rs"]
mod turns;

/// The entry as the guide has it.
const OF_THE_GUIDE: &[PolicyKind] = &[PolicyKind {
    name: "turns",
    about: "One I/O of each tenant in turn.",
    keeps_guarantees: false,
    made_of: Make::Untold(|| Box::new(Turns::default())),
}];

/// All that there are.
fn policies() -> impl Iterator<Item = &'static PolicyKind> {
    POLICIES.iter().chain(OF_THE_GUIDE)
}

/// One that has seen nothing yet, for a device that is known well.
fn fresh(kind: &PolicyKind) -> Box<dyn Policy> {
    let curve = vec![Point {
        latency: Duration::from_ms(1),
        tokens: 40_000_000,
    }];
    let figures = Figures::new([400_000, 25_000], [40_000, 1_400]).expect("no rate is zero");
    let known = Known {
        window: Window {
            ios: 16,
            bytes: 1 << 20,
        },
        figures: Some(figures.with_depth(16).with_curve(curve)),
    };
    kind.make(&known).expect("all is known")
}

/// Ids that may be in use at a time.
const IDS: u32 = 96;

/// A switch, a device and hosts that do anything at all.
struct World {
    name: &'static str,
    seed: u64,
    policy: Box<dyn Policy>,
    chance: Rng,
    now: Time,
    wake: Option<Time>,
    free: Vec<u32>,
    queued: Vec<Ask>,
    /// With the instants of dispatch and of the end.
    in_flight: Vec<(Ask, Time, Time)>,
    arrived: u64,
    dispatched: u64,
    cancelled: u64,
}

impl World {
    fn new(kind: &PolicyKind, seed: u64) -> Self {
        Self {
            name: kind.name,
            seed,
            policy: fresh(kind),
            chance: Rng::new(seed),
            now: Time::ZERO,
            wake: None,
            free: (0..IDS).collect(),
            queued: Vec::new(),
            in_flight: Vec::new(),
            arrived: 0,
            dispatched: 0,
            cancelled: 0,
        }
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..45 => self.arrive(),
            45..50 => self.cancel(),
            50..52 => self.set_share(),
            52 => {
                let tenant = TenantId(self.chance.below(6) as u32);
                self.policy.forget(self.now, tenant);
            }
            53 => self.pass_time(Duration::from_ms(300)),
            _ => self.pass_time(Duration::from_us(40)),
        }
        self.pump();
    }

    fn draw(&mut self, id: u32) -> Ask {
        let ops = [
            Op::Read,
            Op::Read,
            Op::Write,
            Op::Write,
            Op::Flush,
            Op::WriteZeroes,
            Op::Deallocate,
            Op::CompareAndWrite,
        ];
        let classes = [Class::Latency, Class::Throughput, Class::Background];
        let op = *self.chance.pick(&ops).expect("there are some");
        let bytes = match (op, self.chance.below(10)) {
            (Op::Flush, _) => 0,
            (Op::Deallocate, 0) => u64::MAX,
            (_, 1) => 2 << 20,
            (_, 2..5) => 128 << 10,
            _ => 4096,
        };
        Ask {
            id: IoId(id),
            tenant: TenantId(self.chance.below(6) as u32),
            class: *self.chance.pick(&classes).expect("there are some"),
            op,
            bytes,
            lba: self.chance.below(1 << 20),
        }
    }

    fn arrive(&mut self) {
        let at = self.chance.below(self.free.len().max(1) as u64) as usize;
        if at >= self.free.len() {
            return;
        }
        let id = self.free.swap_remove(at);
        let io = self.draw(id);
        self.arrived += 1;
        if self.chance.below(8) == 0 {
            self.policy.arrive_again(self.now, io);
            self.queued.push(io);
        } else if self.policy.pass(self.now, &io) {
            self.start(io);
        } else {
            self.policy.arrive(self.now, io);
            self.queued.push(io);
        }
    }

    fn cancel(&mut self) {
        // One that is not queued, too: the switch does not know.
        let id = IoId(self.chance.below(u64::from(IDS) + 9) as u32);
        if self.in_flight.iter().any(|(io, _, _)| io.id == id) {
            return;
        }
        self.policy.cancel(self.now, id);
        if let Some(at) = self.queued.iter().position(|io| io.id == id) {
            self.queued.swap_remove(at);
            self.free.push(id.0);
            self.cancelled += 1;
        }
    }

    fn set_share(&mut self) {
        let weight = self.chance.below(5) as u32;
        let tenant = TenantId(self.chance.below(6) as u32);
        let chance = &mut self.chance;
        let mut rate = || (chance.below(3) == 0).then(|| chance.below(100_000));
        // ReFlex holds those with a guarantee to it.
        let guarantee = Rates {
            read_ios: rate().map(|rate| rate + 1_000),
            write_bytes: rate().map(|rate| (rate + 1) * 1_000),
            ..Rates::NONE
        };
        // A limit of nothing would rightly let nothing go.
        let limit = Rates {
            ios: rate().map(|rate| rate + 10_000),
            bytes: rate().map(|rate| (rate + 1) * 10_000),
            ..Rates::NONE
        };
        let share = Share {
            weight,
            guarantee,
            limit,
            latency_target: rate().map(|ns| Duration::from_ns(ns * 10)),
        };
        self.policy.set_share(self.now, tenant, &share);
    }

    /// Lets everything happen that is due in a while.
    fn pass_time(&mut self, span: Duration) {
        let until = self.now + Duration::from_ns(self.chance.below(span.as_ns()));
        loop {
            let ends = self.in_flight.iter().map(|&(_, _, end)| end);
            let due = ends.chain(self.wake).min().filter(|&due| due <= until);
            let Some(due) = due else { break };
            self.happen(due);
        }
        self.now = until;
    }

    /// What is due first happens.
    fn happen(&mut self, due: Time) {
        self.now = self.now.max(due);
        let ended = self.in_flight.iter().position(|&(_, _, end)| end <= due);
        if let Some(at) = ended {
            let (io, begin, end) = self.in_flight.swap_remove(at);
            let outcome = Outcome {
                latency: end.since(begin),
                ok: self.chance.below(20) > 0,
            };
            self.policy.complete(self.now, &io, outcome);
            let _ = self.policy.credit(io.tenant);
            self.free.push(io.id.0);
        }
        self.pump();
    }

    fn pump(&mut self) {
        for _ in 0..10_000 {
            match self.policy.next(self.now) {
                Next::Dispatch(id) => {
                    let at = self.queued.iter().position(|io| io.id == id);
                    let at = at.unwrap_or_else(|| self.fail("dispatched what is not queued"));
                    let io = self.queued.swap_remove(at);
                    self.start(io);
                }
                Next::WaitUntil(at) => {
                    self.wake = Some(at.max(self.now + Duration::from_ns(1)));
                    return;
                }
                Next::WaitForEvent => {
                    self.wake = None;
                    return;
                }
            }
        }
        self.fail("dispatches without end");
    }

    fn start(&mut self, io: Ask) {
        self.dispatched += 1;
        let latency = if self.chance.below(50) == 0 {
            Duration::from_ms(20)
        } else {
            Duration::from_us(20 + self.chance.below(400))
        };
        self.in_flight.push((io, self.now, self.now + latency));
    }

    /// No more I/O comes: all that is here has to end.
    fn drain(&mut self) {
        let patience = self.now + Duration::from_secs(600);
        while !self.queued.is_empty() || !self.in_flight.is_empty() {
            let ends = self.in_flight.iter().map(|&(_, _, end)| end);
            match ends.chain(self.wake).min() {
                Some(due) if due < patience => self.happen(due),
                _ => self.fail("leaves I/O waiting forever"),
            }
        }
        assert_eq!(self.arrived, self.dispatched + self.cancelled);
        self.policy.watch(self.now, &mut |gauge| {
            assert!(gauge.value.is_finite(), "{}", gauge.name);
        });
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{} {what} (seed {}, {:?})", self.name, self.seed, self.now);
    }
}

#[test]
fn every_io_is_dispatched_once_or_cancelled_and_none_waits_forever() {
    for kind in policies() {
        for seed in 0..10 {
            let mut world = World::new(kind, seed);
            (0..500).for_each(|_| world.step());
            world.drain();
            assert!(world.dispatched > 100, "{} {seed}", kind.name);
        }
    }
}

/// What needs figures is not made without, and nothing else is refused; each has a name of its own.
#[test]
fn a_policy_is_made_of_what_it_says_that_it_needs() {
    for (place, kind) in POLICIES.iter().enumerate() {
        let made = kind.make(&Known::NOTHING);
        assert_eq!(made.is_none(), kind.needs_figures(), "{}", kind.name);
        let first = POLICIES.iter().position(|other| other.name == kind.name);
        assert_eq!(first, Some(place), "{} is there twice", kind.name);
        assert_eq!(PolicyKind::named(kind.name), Some(kind));
    }
    assert_eq!(PolicyKind::named("none"), None);
}

/// The page shows the entry as it stands above.
#[test]
fn the_guide_shows_the_entry_of_its_policy() {
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let page = lines(include_str!("../../../docs/guide/writing-a-policy.md"));
    let here = lines(include_str!("contract.rs"));
    let (_, shown) = page
        .split_once("```rust\nPolicyKind {\n")
        .expect("it shows the entry");
    let (shown, _) = shown.split_once("},\n```").expect("a fence ends");
    assert!(
        shown.contains("\"turns\"") && here.contains(shown),
        "{shown}"
    );
}

#[test]
fn a_device_that_does_nothing_of_a_kind_has_no_figures() {
    assert_eq!(Figures::new([0, 1], [1, 1]), None);
    assert_eq!(Figures::new([1, 1], [1, 0]), None);
    // Large I/O is not quicker than small I/O.
    let figures = Figures::new([10, 20], [5, 2]).expect("no rate is zero");
    assert_eq!((figures.reads(), figures.writes()), ([10, 10], [5, 2]));
}

#[test]
fn the_same_events_give_the_same_decisions() {
    let course = |kind: &PolicyKind| {
        let mut world = World::new(kind, 7);
        (0..500).for_each(|_| world.step());
        (world.now, world.dispatched, world.queued.len())
    };
    for kind in policies() {
        assert_eq!(course(kind), course(kind), "{}", kind.name);
    }
}

/// I/Os that each of two tenants always has, while it has any.
const DEPTH: u32 = 512;
/// Reads that the device does at a time, and what each takes: somewhat more a second than the
/// models above say, so that what they allow can be seen.
const PARALLEL: usize = 16;
const SERVICE: Duration = Duration::from_us(32);
const WINDOW: Duration = Duration::from_ms(10);

/// Two tenants at a device.
struct Rivals {
    policy: Box<dyn Policy>,
    now: Time,
    wake: Option<Time>,
    /// Given to the device, the oldest of them in flight.
    given: VecDeque<(Ask, Time)>,
    /// When those in flight end.
    ends: VecDeque<Time>,
    /// What their tenants do not ask for at present.
    idle: Vec<u32>,
}

impl Rivals {
    fn new(kind: &PolicyKind) -> Self {
        Self {
            policy: fresh(kind),
            now: Time::ZERO,
            wake: None,
            given: VecDeque::new(),
            ends: VecDeque::new(),
            idle: (0..2 * DEPTH).collect(),
        }
    }

    /// Reads done by each in every window of `span`, in which they have so many at a time.
    fn work(&mut self, span: Duration, depths: [u32; 2]) -> Vec<[u32; 2]> {
        for id in std::mem::take(&mut self.idle) {
            self.ask(id, depths);
        }
        let begin = self.now;
        let windows = span.as_ns() / WINDOW.as_ns();
        let mut done = vec![[0; 2]; windows as usize];
        loop {
            self.pump();
            let due = self
                .ends
                .front()
                .copied()
                .into_iter()
                .chain(self.wake)
                .min();
            let Some(due) = due.filter(|due| *due < begin + span) else {
                self.now = begin + span;
                return done;
            };
            self.now = self.now.max(due);
            if self.ends.pop_front_if(|end| *end <= due).is_some() {
                let window = self.now.since(begin).as_ns() / WINDOW.as_ns();
                let id = self.complete();
                done[window as usize][owner(id)] += 1;
                self.ask(id, depths);
            }
        }
    }

    /// The oldest at the device has ended.
    fn complete(&mut self) -> u32 {
        let (io, begun) = self.given.pop_front().expect("something ends");
        let latency = self.now.since(begun);
        self.policy
            .complete(self.now, &io, Outcome { latency, ok: true });
        io.id.0
    }

    fn ask(&mut self, id: u32, depths: [u32; 2]) {
        if id % DEPTH < depths[owner(id)] {
            self.policy.arrive(self.now, read_of(id));
        } else {
            self.idle.push(id);
        }
    }

    fn pump(&mut self) {
        self.wake = loop {
            match self.policy.next(self.now) {
                Next::Dispatch(IoId(id)) => self.given.push_back((read_of(id), self.now)),
                Next::WaitUntil(at) => break Some(at.max(self.now + Duration::from_ns(1))),
                Next::WaitForEvent => break None,
            }
        };
        while self.ends.len() < self.given.len().min(PARALLEL) {
            self.ends.push_back(self.now + SERVICE);
        }
    }
}

fn read_of(id: u32) -> Ask {
    Ask {
        id: IoId(id),
        tenant: RIVALS[owner(id)],
        class: Class::Throughput,
        op: Op::Read,
        bytes: 4096,
        lba: 0,
    }
}

fn owner(id: u32) -> usize {
    (id / DEPTH) as usize
}

const RIVALS: [TenantId; 2] = [TenantId(1), TenantId(2)];

/// What a tenant asked for less than it might have had, it does not get later, and least of all at
/// the cost of another one: right after its pause it has no more than it had before, and the other
/// one no less. In its pause it was idle, or had one I/O at a time. It has the same share as the
/// other one, a guarantee of a quarter of the device, or a limit to that.
///
/// `Fifo` knows no tenants: it passes as it keeps no state of a tenant.
#[test]
fn a_pause_is_not_repaid() {
    let quarter = Rates {
        read_ios: Some(100_000),
        ..Rates::NONE
    };
    let guaranteed = Share {
        guarantee: quarter,
        latency_target: Some(Duration::from_ms(1)),
        ..Share::default()
    };
    let limited = Share {
        limit: quarter,
        ..Share::default()
    };
    for kind in policies() {
        for pause in [0, 1] {
            // Windows that are looked at together: `Fair` makes up for 50 ms of a guarantee at
            // once.
            for (share, together) in [(Share::default(), 1), (guaranteed, 5), (limited, 1)] {
                let (before, after) = around_a_pause(kind, &share, pause);
                for windows in after.chunks(together) {
                    let what = format!("{}, {share:?}: {before:?}, {windows:?}", kind.name);
                    let mean = |owner: usize| mean_of(windows, owner);
                    assert!(mean(0) * 4 <= before[0] * 5, "the first has more: {what}");
                    assert!(mean(1) * 5 >= before[1] * 4, "the other has less: {what}");
                }
            }
        }
    }
}

/// What both tenants do in a window, and what they do in each after the first one, which has this
/// `share`, had but `pause` I/Os at a time for a while.
fn around_a_pause(kind: &PolicyKind, share: &Share, pause: u32) -> ([u32; 2], Vec<[u32; 2]>) {
    let mut rivals = Rivals::new(kind);
    rivals.policy.set_share(Time::ZERO, RIVALS[0], share);
    let before = rivals.work(Duration::from_ms(80), [DEPTH; 2]);
    rivals.work(Duration::from_ms(150), [pause, DEPTH]);
    let after = rivals.work(Duration::from_ms(50), [DEPTH; 2]);
    ([0, 1].map(|owner| mean_of(&before[5..], owner)), after)
}

fn mean_of(windows: &[[u32; 2]], owner: usize) -> u32 {
    let sum: u32 = windows.iter().map(|done| done[owner]).sum();
    sum / windows.len() as u32
}
