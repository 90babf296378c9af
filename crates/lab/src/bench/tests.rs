//! What a bench does with workers, hosts, networks and policies.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::{Ask, Credit, Fifo, IoId, Next, Outcome, Policy, TenantId, Window};
use flashyard_time::{Duration, Time};

use super::{HostPolicy, Results, Setup, SetupError};
use crate::load::{Arrivals, Pace, Pattern, Record, ReplayPace, Trace, Unfit, Worker};

const CAPACITY: u64 = 512 << 20;
const MS_20: Duration = Duration::from_ms(20);

fn drive() -> Device {
    let profile = Profile::named("dct983").expect("it ships");
    Device::in_condition(&profile, CAPACITY, 1, Condition::Clean).expect("it fits")
}

fn fifo() -> Box<dyn Policy> {
    Box::new(Fifo::new(Window::UNLIMITED))
}

fn reader(depth: u32) -> Worker {
    Worker::new(
        "reader",
        1,
        Pace::Closed { depth },
        Pattern::random(100, 4096),
    )
}

fn setup(workers: Vec<Worker>) -> Setup {
    Setup::new(drive(), fifo(), workers).measured(Duration::from_ms(2), MS_20)
}

fn run(setup: Setup) -> Results {
    setup.run().expect("the setup is sound")
}

fn mean(results: &Results) -> f64 {
    crate::measure::mean_us(&results.workers[0].total()).expect("something came back")
}

#[test]
fn littles_law_holds() {
    for depth in [1, 8, 64] {
        let results = run(setup(vec![reader(depth)]));
        let in_flight = results.workers[0].iops() * mean(&results) / 1e6;
        assert!(
            (in_flight / f64::from(depth) - 1.0).abs() < 0.01,
            "{depth}: {in_flight}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let digest = |seed| {
        let workers = vec![
            reader(8),
            Worker::new(
                "writer",
                2,
                Pace::poisson(20_000),
                Pattern::random(0, 16_384),
            ),
        ];
        run(setup(workers).seeded(seed)).digest
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn the_network_is_crossed_twice_and_the_drive_does_not_notice() {
    let near = run(setup(vec![reader(1)]));
    let far = run(Setup {
        network: Duration::from_us(15),
        ..setup(vec![reader(1)])
    });
    assert!((mean(&far) - mean(&near) - 30.0).abs() < 1.0);
    let device = |results: &Results| results.workers[0].reads.device.mean();
    assert!(device(&far).abs_diff(device(&near)) < 1_000);
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_what_it_loses() {
    let pace = |most| Pace::Open {
        gap: Duration::from_us(10),
        arrivals: Arrivals::Constant,
        most,
    };
    let open = |most| {
        run(setup(vec![Worker::new(
            "open",
            1,
            pace(most),
            Pattern::random(100, 4096),
        )]))
    };
    let kept = open(1000);
    assert_eq!(kept.workers[0].lost, 0);
    assert!((kept.workers[0].iops() / 100_000.0 - 1.0).abs() < 0.01);
    let tight = open(1);
    assert!(tight.workers[0].lost > 1000);
}

#[test]
fn a_worker_works_in_its_time_only() {
    let at = |ms| Time::ZERO + Duration::from_ms(ms);
    let part = reader(4).between(at(7), at(12));
    let turns = reader(4).in_phases(Duration::from_ms(5), Duration::from_ms(5));
    let setup = Setup {
        window: Duration::from_ms(5),
        ..setup(vec![part, turns])
    };
    let results = run(setup);
    // The windows begin at 2 ms.
    let active = |worker: usize| -> Vec<bool> {
        results.workers[worker]
            .windows
            .iter()
            .map(|window| window.ios > 100)
            .collect()
    };
    assert_eq!(active(0), [false, true, false, false]);
    let busy: Vec<u64> = results.workers[1]
        .windows
        .iter()
        .map(|window| window.ios)
        .collect();
    let ratio = busy[0] as f64 / busy[1] as f64;
    assert!(
        (1.2..1.8).contains(&ratio),
        "three fifths against two: {busy:?}"
    );
}

#[test]
fn a_trace_is_repeated_at_its_times() {
    let text = "0,write,0,4096\n3000,read,0,4096\n9000,read,8192,8192\n9000,flush,0,0\n";
    let trace = Trace::from_csv(text.as_bytes()).expect("it is sound");
    let replay = |speed_percent| {
        let pace = ReplayPace::Recorded {
            speed_percent,
            most: 8,
        };
        let worker = Worker::replaying("trace", 1, trace.clone().into(), pace);
        run(Setup {
            warm_up: Duration::ZERO,
            ..setup(vec![worker])
        })
        .workers
        .remove(0)
    };
    let tally = replay(100);
    assert_eq!(
        (
            tally.reads.bytes,
            tally.writes.bytes,
            tally.writes.total.count()
        ),
        (12_288, 4096, 2)
    );
    assert_eq!(
        replay(20).reads.bytes,
        4096,
        "at a fifth of the speed the last is beyond the span"
    );
}

/// Lets one I/O go every 50 us, and writes down when it was asked.
struct Spaced {
    queue: Vec<IoId>,
    due: Time,
    asked: Rc<RefCell<Vec<(Time, usize)>>>,
}

impl Policy for Spaced {
    fn arrive(&mut self, _: Time, io: Ask) {
        self.queue.push(io.id);
    }

    fn next(&mut self, now: Time) -> Next {
        self.asked.borrow_mut().push((now, self.queue.len()));
        if self.queue.is_empty() {
            return Next::WaitForEvent;
        }
        if now < self.due {
            return Next::WaitUntil(self.due);
        }
        self.due = now + Duration::from_us(50);
        Next::Dispatch(self.queue.remove(0))
    }

    fn complete(&mut self, _: Time, _: &Ask, outcome: Outcome) {
        assert!(outcome.ok && outcome.latency > Duration::ZERO);
    }

    fn cancel(&mut self, _: Time, _: IoId) {}

    fn credit(&self, _: TenantId) -> Option<Credit> {
        Some(Credit {
            ios: 2,
            bytes: 8192,
        })
    }
}

#[test]
fn a_policy_that_waits_is_asked_in_time() {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let policy = Spaced {
        queue: Vec::new(),
        due: Time::ZERO,
        asked: asked.clone(),
    };
    let setup = Setup::new(drive(), Box::new(policy), vec![reader(16)])
        .measured(Duration::from_ms(2), MS_20);
    let results = run(setup);
    assert!((results.workers[0].iops() - 20_000.0).abs() < 100.0);
    assert!(asked.borrow().is_sorted_by_key(|&(at, _)| at));
}

/// A window as wide as the switch says.
struct Credited {
    window: u32,
    sent: u32,
}

impl HostPolicy for Credited {
    fn admit(&mut self, _: Time, _: usize, _: &Ask) -> bool {
        let room = self.sent < self.window;
        self.sent += u32::from(room);
        room
    }

    fn complete(&mut self, _: Time, _: usize, _: &Ask, _: Duration, credit: Option<Credit>) {
        self.sent -= 1;
        self.window = credit.expect("the policy says").ios;
    }
}

#[test]
fn a_host_holds_what_it_has_no_credit_for() {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let policy = Spaced {
        queue: Vec::new(),
        due: Time::ZERO,
        asked: asked.clone(),
    };
    let host = Credited { window: 1, sent: 0 };
    let setup = Setup::new(drive(), Box::new(policy), vec![reader(16)]);
    let setup = Setup {
        host: Some(Box::new(host)),
        ..setup
    };
    let results = run(setup.measured(Duration::ZERO, MS_20));
    assert!(results.completed > 300, "{}", results.completed);
    assert!(asked.borrow().iter().all(|&(_, queued)| queued <= 2));
}

#[test]
fn a_worker_does_the_same_beside_others_on_drives_of_their_own() {
    let alone = run(setup(vec![reader(8)]));
    let mut two = setup(vec![reader(8), reader(32).on(1)]);
    two.drives.push(super::Drive {
        device: drive(),
        policy: fifo(),
    });
    let beside = run(two);
    assert_eq!(alone.workers[0].reads.total, beside.workers[0].reads.total);
}

#[test]
fn what_cannot_run_is_refused() {
    let with = |worker| setup(vec![worker]).run().err();
    let unfit = |why| Some(SetupError::Worker("reader".into(), why));
    let drawn = |pace, pattern| Worker::new("reader", 1, pace, pattern);
    let closed = Pace::Closed { depth: 1 };
    let never = Pace::Open {
        gap: Duration::ZERO,
        arrivals: Arrivals::Poisson,
        most: 1,
    };
    let random = Pattern::random(50, 4096);
    assert_eq!(with(reader(1).on(1)), unfit(Unfit::NoDrive));
    assert_eq!(with(reader(0)), unfit(Unfit::Number));
    assert_eq!(with(drawn(never, random.clone())), unfit(Unfit::Number));
    assert_eq!(
        with(drawn(closed, Pattern::random(101, 4096))),
        unfit(Unfit::Number)
    );
    for bytes in [0, 512, 128 << 20] {
        assert_eq!(
            with(drawn(closed, Pattern::random(50, bytes))),
            unfit(Unfit::Size)
        );
    }
    for region in [0..CAPACITY + 4096, 4096..4096, 1..8192, 0..4095] {
        assert_eq!(
            with(drawn(closed, random.clone().within(region))),
            unfit(Unfit::Region)
        );
    }
    let record = Record {
        at: Duration::ZERO,
        offset: CAPACITY,
        bytes: 4096,
        tenant: 0,
        op: flashyard_sched::Op::Read,
    };
    let trace = Trace::new(vec![record]).expect("one record");
    let replay = Worker::replaying("reader", 1, trace.into(), ReplayPace::Closed { depth: 1 });
    assert_eq!(with(replay), unfit(Unfit::Trace));
    assert_eq!(with(reader(70_000)), Some(SetupError::TooMany(70_000)));
    let finely = Setup {
        window: Duration::from_ns(1),
        ..setup(vec![reader(1)])
    };
    assert_eq!(finely.run().err(), Some(SetupError::Windows));
    let years = Duration::from_secs(20 * 366 * 86_400);
    let endless = setup(vec![reader(1)]).measured(Duration::ZERO, years);
    assert_eq!(endless.run().err(), Some(SetupError::Span));
}
