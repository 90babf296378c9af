//! Whether a tenant's guarantee is kept, with any neighbours.

mod ideal;
mod watch;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::{Class, Op, Policy, Rates, Share, TenantId};
use flashyard_time::{Duration, Rng, Time};

use self::watch::{Kept, Watched};
use super::columns::{CONDITION, KIND, POLICY, PROFILE, column};
use super::drive;
use crate::bench::{self, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Pace, Pattern, Worker};
use crate::parallel;
use crate::policies::{self, Calibration};
use crate::report::{Column, Got, Promise, Report, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct Guarantee;

const CLAIM: &str = "A tenant that was promised a rate gets it in every tenth of a second throughout which something of it \
waits. Its neighbours are \
drawn at random, a new crowd for each seed: one to twenty-four of them, with weights from 1 to 8, now and then latency-sensitive or in the background, \
that read or write or both, from 4 to 256 KiB, with \
1 to 64 under way, all the time or by turns. The promise is a part of what the drive can do by itself. Intervals begin every 10 ms from the \
second second on, when the switch has learnt what I/O costs. What a switch answers for is what it sends to the drive in time; what \
comes back in time is the drive's matter, too, and counted in every interval, as the tenant always has 64 under way. On the ideal device, whose I/O always takes the same time, the first has to hold without exception.";

const SETTINGS: [Setting; 6] = [
    Setting {
        key: "crowds",
        default: "1000",
        domain: Domain::Number(1, 100_000),
        meaning: "how many crowds of neighbours, each from a seed of its own; a tenth of them for policies that know of no promise",
    },
    Setting {
        key: "part",
        default: "30",
        domain: Domain::Number(1, 90),
        meaning: "percent of what the drive can do that is promised",
    },
    Setting {
        key: "device",
        default: "ideal,drive",
        domain: Domain::Words(&["ideal", "drive"]),
        meaning: "the ideal device, the drives of the profiles, or both",
    },
    Setting {
        key: "profile",
        default: "dct983",
        domain: Domain::Profiles,
        meaning: "the drives",
    },
    Setting {
        key: "condition",
        default: "fragmented",
        domain: Domain::Conditions,
        meaning: "what was done to the drives before",
    },
    Setting {
        key: "gib",
        default: "1",
        domain: Domain::Number(1, 64),
        meaning: "capacity of the drives in GiB",
    },
];

const COLUMNS: [Column; 12] = [
    POLICY,
    PROFILE,
    CONDITION,
    KIND,
    column("crowds", "crowds", Unit::None),
    column("promised_iops", "promised", Unit::Iops),
    column("intervals", "tenths of a second", Unit::None),
    column("backlogged", "of them with something waiting", Unit::None),
    column("broken", "in which less was sent", Unit::None),
    column("least_sent", "least sent of the promise", Unit::Ratio),
    column("late", "in which less than 98 % came back", Unit::None),
    column("least_back", "least that came back", Unit::Ratio),
];

/// The one that was promised something.
const OWED: TenantId = TenantId(1);
const DEPTH: u32 = 64;
const BYTES: u64 = 4096;
const INTERVAL: Duration = Duration::from_ms(100);
const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_ms(500);
/// What comes back may be less by this part: I/O at the edges of an interval.
const SLACK: f64 = 0.02;

/// A device, a policy and what was promised.
struct Scenario {
    policy: &'static str,
    /// A drive and its condition, or the ideal device.
    drive: Option<(Profile, Condition)>,
    reads: bool,
    rate: u64,
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Under `fair` less than was promised is sent in no tenth of a second in which something waits",
    judge: |rows| Got::none(&rows.with("policy", "fair").numbers("broken")),
}];

impl Experiment for Guarantee {
    fn name(&self) -> &'static str {
        "guarantee"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo", "fair"]
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let gib = context.number("gib");
        let crowds = if context.quick {
            1
        } else {
            context.number("crowds")
        };
        let scenarios = scenarios(context, gib)?;
        context.progress.begin(scenarios.len() as u64);
        let (mut rows, mut digest) = (Vec::new(), 0);
        for scenario in &scenarios {
            // What becomes of guarantees that the policy ignores is soon seen.
            let crowds = if scenario.policy == "fair" {
                crowds
            } else {
                crowds.div_ceil(10)
            };
            let seeds: Vec<u64> = (0..crowds).map(|n| context.seed + n).collect();
            let kept = parallel::first(context.progress, &seeds, |&seed| {
                scenario.measure_all(gib, seed, context.quick)
            });
            let kept = kept.into_iter().collect::<Result<Vec<_>, Refused>>()?;
            if kept.is_empty() {
                break;
            }
            let met = kept.len() as u64;
            let digests = kept.iter().map(|(_, digest)| *digest);
            digest = digests.fold(digest, bench::fold);
            rows.push(scenario.row(met, kept.into_iter().map(|(kept, _)| kept)));
            if met < crowds {
                break;
            }
            context.progress.step(&scenario.label());
        }
        Ok(Report {
            rows,
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

fn scenarios(context: &Context, gib: u64) -> Result<Vec<Scenario>, Refused> {
    let (mut scenarios, devices) = (Vec::new(), context.words("device"));
    let part = context.number("part");
    let mut each = |drive: Option<(&Profile, Condition)>, reads, all| {
        scenarios.extend(context.policies.iter().map(|policy| Scenario {
            policy,
            drive: drive.map(|(profile, condition)| (profile.clone(), condition)),
            reads,
            rate: all * part / 100,
        }));
    };
    if devices.contains(&"ideal") {
        for reads in [true, false] {
            each(None, reads, ideal::rate(op(reads), BYTES));
        }
    }
    let profiles = drive::profiles(&context.words("profile"))?;
    for profile in profiles.iter().filter(|_| devices.contains(&"drive")) {
        let most = Calibration::measure(profile, gib << 30, context.seed, context.quick)?;
        for condition in drive::conditions(&context.words("condition")) {
            for reads in [true, false] {
                let all = most.bandwidth(reads, BYTES) / BYTES;
                each(Some((profile, condition)), reads, all);
            }
        }
    }
    Ok(scenarios)
}

fn op(reads: bool) -> Op {
    if reads { Op::Read } else { Op::Write }
}

impl Scenario {
    fn kind(&self) -> &'static str {
        if self.reads {
            "4 KiB read, QD 64"
        } else {
            "4 KiB write, QD 64"
        }
    }

    fn device(&self) -> (String, String) {
        self.drive.as_ref().map_or_else(
            || ("the ideal device".into(), "-".into()),
            |(profile, condition)| (profile.name.clone(), condition.to_string()),
        )
    }

    fn label(&self) -> String {
        let (device, condition) = self.device();
        format!("{}: {} on {device}, {condition}", self.policy, self.kind())
    }

    /// One crowd: how the promise was kept, and a number over everything that was done.
    fn measure_all(&self, gib: u64, seed: u64, quick: bool) -> Result<(Kept, u64), Refused> {
        let (warm_up, span) = if quick {
            (INTERVAL, INTERVAL)
        } else {
            (WARM_UP, SPAN)
        };
        let (mut policy, log) = Watched::new(
            policies::named(self.policy).unwrap_or_else(policies::fifo),
            OWED,
        );
        let workers = self.workers(seed, &mut policy);
        let (digest, begin) = match &self.drive {
            None => {
                let until = Time::ZERO + warm_up + span;
                (ideal::run(&mut policy, &workers, seed, until), Time::ZERO)
            }
            Some((profile, condition)) => {
                let device: Device = drive::build(profile, gib, seed, *condition)?;
                let begin = device.now();
                let setup = Setup::new(device, Box::new(policy), workers)
                    .measured(warm_up, span)
                    .seeded(seed);
                (setup.run()?.digest, begin)
            }
        };
        let span = (begin + warm_up, begin + warm_up + span);
        let kept = log.borrow().judge(span, INTERVAL, self.rate, SLACK);
        Ok((kept, digest))
    }

    /// The tenant with the guarantee, and its neighbours; the policy is given both.
    fn workers(&self, seed: u64, policy: &mut dyn Policy) -> Vec<Worker> {
        let rate = Some(self.rate);
        let guarantee = Rates {
            read_ios: rate.filter(|_| self.reads),
            write_ios: rate.filter(|_| !self.reads),
            ..Rates::NONE
        };
        let share = Share {
            guarantee,
            ..Share::default()
        };
        policy.set_share(Time::ZERO, OWED, &share);
        let pattern = Pattern::random(if self.reads { 100 } else { 0 }, BYTES);
        let owed = Worker::new("owed", OWED.0, Pace::Closed { depth: DEPTH }, pattern);
        let mut workers = vec![owed];
        for (worker, weight) in crowd(seed) {
            let share = Share {
                weight,
                ..Share::default()
            };
            policy.set_share(Time::ZERO, worker.tenant, &share);
            workers.push(worker);
        }
        workers
    }

    fn row(&self, crowds: u64, kept: impl Iterator<Item = Kept>) -> Vec<Value> {
        let (device, condition) = self.device();
        let kept = kept.reduce(Kept::and);
        let count = |of: fn(&Kept) -> u64| Value::Count(kept.as_ref().map_or(0, of));
        let least = |of: fn(&Kept) -> f64| {
            let value = kept.as_ref().map(of);
            value
                .filter(|least| *least < f64::MAX)
                .map_or(Value::Missing, Value::Real)
        };
        vec![
            Value::Text(self.policy.to_owned()),
            Value::Text(device),
            Value::Text(condition),
            Value::Text(self.kind().to_owned()),
            Value::Count(crowds),
            Value::Real(self.rate as f64),
            count(|kept| kept.intervals),
            count(|kept| kept.backlogged),
            count(|kept| kept.broken),
            least(|kept| kept.least_sent),
            count(|kept| kept.late),
            least(|kept| kept.least_back),
        ]
    }
}

/// The neighbours that a seed draws, with their weights.
fn crowd(seed: u64) -> Vec<(Worker, u32)> {
    let mut chance = Rng::new(seed).split(7);
    let count = 1 + chance.below(24);
    (0..count)
        .map(|n| {
            let worker = neighbour(n as u32, &mut chance);
            (worker, 1 + chance.below(8) as u32)
        })
        .collect()
}

fn neighbour(n: u32, chance: &mut Rng) -> Worker {
    let depth = 1 << chance.below(7);
    let bytes = BYTES << chance.below(7);
    let reads = [0, 30, 50, 70, 100][chance.below(5) as usize];
    let pattern = if chance.chance(1, 3) {
        Pattern::sequential(reads, bytes)
    } else {
        Pattern::random(reads, bytes)
    };
    let pace = Pace::Closed { depth };
    let mut worker = Worker::new(format!("neighbour {n}"), OWED.0 + 1 + n, pace, pattern);
    worker.class = match chance.below(8) {
        0 => Class::Latency,
        1 => Class::Background,
        _ => Class::Throughput,
    };
    if chance.chance(1, 3) {
        let mut span = || Duration::from_ms(1 + chance.below(200));
        let (on, off) = (span(), span());
        worker = worker.in_phases(on, off);
    }
    worker
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/scheduling.md claims: on a device that takes what it is given, what was promised
    /// is sent in every tenth of a second throughout which something waits, whatever the neighbours
    /// are.
    #[test]
    fn fair_sends_what_was_promised_in_every_interval_on_the_ideal_device() {
        let mut backlogged = 0;
        for seed in 0..50 {
            let reads = seed % 2 == 0;
            let scenario = Scenario {
                policy: "fair",
                drive: None,
                reads,
                rate: ideal::rate(op(reads), BYTES) * 3 / 10,
            };
            let (kept, _) = scenario
                .measure_all(1, seed, false)
                .expect("nothing can be refused");
            assert_eq!(kept.broken, 0, "seed {seed}: {kept:?}");
            backlogged += kept.backlogged;
        }
        assert!(
            backlogged > 1_000,
            "{backlogged} of 2,050 intervals say something"
        );
    }

    #[test]
    fn who_does_not_know_of_promises_breaks_them() {
        let scenario = Scenario {
            policy: "fifo",
            drive: None,
            reads: true,
            rate: ideal::rate(Op::Read, BYTES) * 3 / 10,
        };
        let kept = (0..10).map(|seed| {
            scenario
                .measure_all(1, seed, false)
                .expect("nothing can be refused")
                .0
        });
        let kept = kept.reduce(Kept::and).expect("ten");
        assert!(kept.late > 100, "{kept:?}");
    }
}
