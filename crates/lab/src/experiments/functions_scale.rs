//! Many functions of virtual machines beside each other.

use std::cell::RefCell;
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use flashyard_block::{Io, MemoryDevice, SharedDevice};
use flashyard_engine::Limits;
use flashyard_host::vfio::{Guest, GuestOptions};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::Fair;
use flashyard_testbed::{Paced, Scratch, Site, subnqn, tenant};
use flashyard_time::{Duration, Histogram, Rng, Time};
use flashyard_vfio::{Doorbells, Function, FunctionSpec, HostId, offer};

use super::columns::{BANDWIDTH, IOPS, P50, P99, column};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::measure::jain;
use crate::report::{Column, Got, Promise, Report, Row, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct FunctionsScale;

const CLAIM: &str = "However many functions there are, each gets the same of a device that all of them want. 1 to 32 tenants of equal weight have a \
function each, on one core in virtual time; guests without a machine read 4 KiB at random, and wait for interrupts. The drive does 40,000 such reads a second, four \
at a time, behind the policy fair. In one row all guests have as many reads in flight, in the other every second one has four times as many as the others: that gains \
nothing once all of them together have more than the policy lets to the drive, which two do not have yet. \
Messages of a client and interrupts take no time here, so rates and latencies are those of the drive and of the core's turns.";

const SETTINGS: [Setting; 1] = [Setting {
    key: "ms",
    default: "1000",
    domain: Domain::Number(10, 60_000),
    meaning: "how long rates are counted, ms",
}];

const COLUMNS: [Column; 8] = [
    column("functions", "functions", Unit::None),
    column("in_flight", "in flight of each", Unit::None),
    IOPS,
    BANDWIDTH,
    P50,
    P99,
    column("jain", "Jain's index", Unit::None),
    column("least_ratio", "least, of most", Unit::Ratio),
];

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16_384;
/// Parts of the drive that work at the same time.
const PARTS: usize = 4;
/// Before anything counts.
const SETTLE: Duration = Duration::from_ms(150);

/// Reads that a guest has in flight.
#[derive(Clone, Copy)]
enum Depth {
    Equal,
    Unequal,
}

impl Depth {
    fn of(self, number: usize) -> u16 {
        match self {
            Self::Unequal if number % 2 == 1 => 64,
            _ => 16,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Equal => "16",
            Self::Unequal => "16, 64",
        }
    }
}

/// What came of one guest.
#[derive(Clone, Default)]
struct Tally {
    reads: u64,
    latency: Histogram,
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Each function has at least 0.95 of what any other has, where all want more than there is",
    judge: |rows| {
        let want =
            |row: &Row| row.number("functions") > Some(2.0) || !row.word("in_flight").contains(',');
        Got::at_least(&rows.that(want).numbers("least_ratio"), 0.95)
    },
}];

impl Experiment for FunctionsScale {
    fn name(&self) -> &'static str {
        "functions-scale"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let (counts, span): (&[usize], _) = if context.quick {
            (&[1, 3], Duration::from_ms(20))
        } else {
            let span = Duration::from_ms(context.number("ms"));
            (&[1, 2, 4, 8, 16, 32], span)
        };
        context.progress.begin(counts.len() as u64 * 2);
        let (mut rows, mut digest) = (Vec::new(), 0u64);
        for &count in counts {
            for depth in [Depth::Equal, Depth::Unequal] {
                if context.progress.is_stopped() {
                    break;
                }
                let (tallies, history) = side_by_side(context.seed, (count, depth), span);
                digest = digest.rotate_left(1) ^ history;
                rows.push(row((count, depth), &tallies, span));
                context
                    .progress
                    .step(&format!("{count} functions, {} in flight", depth.label()));
            }
        }
        Ok(Report {
            rows,
            notes: vec![
                "What a function takes of memory and of a processor is measured with real ones \
                 (docs/performance.md, Many functions)."
                    .into(),
            ],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

fn row((count, depth): (usize, Depth), tallies: &[Tally], span: Duration) -> Vec<Value> {
    let reads: Vec<f64> = tallies.iter().map(|tally| tally.reads as f64).collect();
    let rate = reads.iter().sum::<f64>() / span.as_secs_f64();
    let mut latency = Histogram::default();
    for tally in tallies {
        latency.merge(&tally.latency);
    }
    let us = |part| Value::Real(latency.percentile(part) as f64 / 1e3);
    let least = reads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = reads.iter().copied().fold(0.0, f64::max);
    vec![
        Value::Count(count as u64),
        Value::Text(depth.label().into()),
        Value::Real(rate),
        Value::Real(rate * BLOCK as f64),
        us(500_000),
        us(990_000),
        jain(&reads).map_or(Value::Missing, Value::Real),
        Value::Real(least / most),
    ]
}

/// What so many guests have read beside each other, and the digest of how.
fn side_by_side(seed: u64, (count, depth): (usize, Depth), span: Duration) -> (Vec<Tally>, u64) {
    let site = Site::with_limits(Config::calm(seed), 1, Limits::default());
    let core = &site.bench.cores[0];
    let switch = core.add_switch(Box::new(Fair::new()));
    let device = core.add_device(drive(site.server.rt(0)), &switch);
    let scratch = Scratch::new("functions-scale");
    let mut functions: Vec<Function> = Vec::new();
    for number in 0..count {
        let name = format!("vm{number}");
        // Numbers 1 and 2 are those of the site's own tenants.
        let spec = tenant(number as u32 + 3, &name, &[]);
        site.bench.target.set_tenant(spec).expect("a new tenant");
        site.bench.attach_handle(&name, 1, &device);
        let listener = UnixListener::bind(scratch.join(&name)).expect("a socket");
        let function = offer(core, spec_of(&name, number), listener).expect("it listens");
        functions.push(function);
    }
    let tallies = site.run(move |bench| async move {
        let rt = bench.host_rt.clone();
        let mut guests = Vec::new();
        for number in 0..count {
            let path = scratch.join(format!("vm{number}"));
            let guest = Guest::start(&rt, &path, options()).await;
            guests.push(guest.expect("a function that works"));
        }
        let from = rt.now() + SETTLE;
        let tasks = guests.into_iter().enumerate().map(|(number, guest)| {
            let rng = Rng::new(seed).split(number as u64);
            rt.spawn(read(
                rt.clone(),
                (guest, depth.of(number)),
                (from, from + span),
                rng,
            ))
        });
        let mut tallies = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            tallies.push(task.await);
        }
        drop(functions);
        tallies
    });
    (tallies, site.world.digest())
}

fn spec_of(name: &str, number: usize) -> FunctionSpec {
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    FunctionSpec {
        subnqn: nqn(&subnqn(name)),
        host: HostId {
            nqn: nqn(&format!("nqn.2026-11.lab:{name}")),
            id: [number as u8 + 1; 16],
        },
        doorbells: Doorbells::default(),
        cores: 1,
    }
}

fn options() -> GuestOptions {
    GuestOptions {
        ram: 8 << 20,
        queues: 1,
        entries: 66,
        transfer: 4 << 10,
        shadow: false,
        ..GuestOptions::SMALL
    }
}

/// A guest that always has so many reads in flight; what ends between both times counts.
async fn read(
    rt: Rt,
    (mut guest, depth): (Guest, u16),
    (from, until): (Time, Time),
    mut rng: Rng,
) -> Tally {
    let mut begun = vec![Time::ZERO; usize::from(u16::MAX) + 1];
    let mut tally = Tally::default();
    let mut put = |guest: &mut Guest, begun: &mut [Time]| {
        let cid = guest.take_place(1).expect("room");
        let range = LbaRange {
            slba: rng.below(BLOCKS),
            blocks: 1,
        };
        let entry = SubmissionQueueEntry::read(1, range, Sgl::Transport { length: 0 });
        guest
            .put_io(1, (entry, cid), (0, BLOCK as u32))
            .expect("room");
        begun[usize::from(cid)] = rt.now();
    };
    for _ in 0..depth {
        put(&mut guest, &mut begun);
    }
    guest.ring(1).await.expect("rung");
    while rt.now() < until {
        let done = guest.completion(1).await.expect("a completion");
        assert!(done.status().is_success(), "it is in order");
        let now = rt.now();
        if (from..until).contains(&now) {
            tally.reads += 1;
            let taken = now.since(begun[usize::from(done.cid())]);
            tally.latency.record(taken.as_ns());
        }
        put(&mut guest, &mut begun);
        guest.ring(1).await.expect("rung");
    }
    tally
}

/// A drive of 40,000 reads of 4 KiB a second, in memory.
fn drive(rt: Rt) -> SharedDevice {
    let memory = MemoryDevice::new(BLOCK as u32, BLOCKS * BLOCK as u64).expect("a good size");
    let free = RefCell::new([Time::ZERO; PARTS]);
    let pace = move |_, io: &Io| {
        let part = Rng::new(io.lba()).below(PARTS as u64) as usize;
        let free = &mut free.borrow_mut()[part];
        *free = (*free).max(rt.now()) + Duration::from_us(100);
        rt.sleep_until(*free)
    };
    Rc::new(Paced::new(Rc::new(memory), pace))
}
