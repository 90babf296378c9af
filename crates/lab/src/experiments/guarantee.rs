//! Whether what a tenant was promised is kept, whoever its neighbours are.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::{Rates, Share, TenantId};
use flashyard_time::{Duration, Rng, Time};

use super::columns::{CONDITION, KIND, POLICY, PROFILE, column};
use super::drive;
use crate::bench::{self, Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Pace, Pattern, Worker};
use crate::parallel;
use crate::policies::{self, Calibration};
use crate::report::{Column, Report, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct Guarantee;

const CLAIM: &str = "A tenant that was promised a rate gets it in every tenth of a second in which it asks for so much. Its neighbours are \
drawn at random, a new crowd for each seed: one to twenty-four of them, that read or write or both, from 4 to 256 KiB, with \
1 to 64 under way, all the time or by turns. The promise is a part of what the drive can do by itself, and is counted \
from the second second on, when the switch has learnt what I/O costs.";

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "crowds",
        default: "1000",
        domain: Domain::Number(1, 100_000),
        meaning: "how many crowds of neighbours, each from a seed of its own",
    },
    Setting {
        key: "part",
        default: "30",
        domain: Domain::Number(1, 90),
        meaning: "percent of what the drive can do that is promised",
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

const COLUMNS: [Column; 9] = [
    POLICY,
    PROFILE,
    CONDITION,
    KIND,
    column("crowds", "crowds", Unit::None),
    column("promised_iops", "promised", Unit::Iops),
    column("intervals", "tenths of a second", Unit::None),
    column("broken", "in which it got less", Unit::None),
    column("least_share", "least share of the promise", Unit::Ratio),
];

/// The one that was promised something.
const OWED: TenantId = TenantId(1);
const DEPTH: u32 = 64;
const BYTES: u64 = 4096;
const INTERVAL: Duration = Duration::from_ms(100);
const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_ms(500);
/// Less than this part of a promise breaks it: an I/O more or less at the edge of an interval does not.
const SLACK: f64 = 0.98;

/// A drive, a policy and what was promised.
struct Scene {
    policy: &'static str,
    profile: Profile,
    condition: Condition,
    reads: bool,
    rate: u64,
}

/// What became of a promise.
struct Kept {
    digest: u64,
    intervals: u64,
    broken: u64,
    least: f64,
}

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

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let gib = context.number("gib");
        let crowds = if context.quick {
            1
        } else {
            context.number("crowds")
        };
        let scenes = scenes(context, &profiles, gib)?;
        context.progress.begin(scenes.len() as u64);
        let (mut rows, mut digest) = (Vec::new(), 0);
        for scene in &scenes {
            let seeds: Vec<u64> = (0..crowds).map(|n| context.seed + n).collect();
            let kept = parallel::map(&seeds, |&seed| {
                let device = drive::build(&scene.profile, gib, seed, scene.condition)?;
                Ok(scene.judge(&scene.setup(device, seed, context.quick).run()?))
            });
            let kept = kept.into_iter().collect::<Result<Vec<_>, Refused>>()?;
            digest = kept
                .iter()
                .map(|kept| kept.digest)
                .fold(digest, bench::fold);
            rows.push(scene.row(crowds, &kept));
            context.progress.step(&format!(
                "{}: {} on {}, {}",
                scene.policy,
                scene.kind(),
                scene.profile.name,
                scene.condition
            ));
        }
        Ok(Report {
            rows,
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

fn scenes(context: &Context, profiles: &[Profile], gib: u64) -> Result<Vec<Scene>, Refused> {
    let mut scenes = Vec::new();
    for profile in profiles {
        let most = Calibration::measure(profile, gib << 30, context.seed, context.quick)?;
        for condition in drive::conditions(&context.words("condition")) {
            for reads in [true, false] {
                let all = most.bandwidth(reads, BYTES) / BYTES;
                scenes.extend(context.policies.iter().map(|policy| Scene {
                    policy,
                    profile: profile.clone(),
                    condition,
                    reads,
                    rate: all * context.number("part") / 100,
                }));
            }
        }
    }
    Ok(scenes)
}

impl Scene {
    fn kind(&self) -> &'static str {
        if self.reads {
            "4 KiB read, QD 64"
        } else {
            "4 KiB write, QD 64"
        }
    }

    fn setup(&self, device: Device, seed: u64, quick: bool) -> Setup {
        let mut policy = policies::named(self.policy).unwrap_or_else(policies::fifo);
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
        let workers = [owed].into_iter().chain(crowd(seed)).collect();
        let mut setup = Setup::new(device, policy, workers)
            .measured(
                if quick { INTERVAL } else { WARM_UP },
                if quick { INTERVAL } else { SPAN },
            )
            .seeded(seed);
        setup.window = INTERVAL;
        setup
    }

    fn judge(&self, results: &Results) -> Kept {
        let promised = self.rate as f64 * INTERVAL.as_secs_f64();
        let windows = &results.workers[0].windows;
        let shares = windows.iter().map(|window| window.ios as f64 / promised);
        Kept {
            digest: results.digest,
            intervals: windows.len() as u64,
            broken: shares.clone().filter(|share| *share < SLACK).count() as u64,
            least: shares.fold(f64::MAX, f64::min),
        }
    }

    fn row(&self, crowds: u64, kept: &[Kept]) -> Vec<Value> {
        let sum = |of: fn(&Kept) -> u64| Value::Count(kept.iter().map(of).sum());
        vec![
            Value::Text(self.policy.to_owned()),
            Value::Text(self.profile.name.clone()),
            Value::Text(self.condition.to_string()),
            Value::Text(self.kind().to_owned()),
            Value::Count(crowds),
            Value::Real(self.rate as f64),
            sum(|kept| kept.intervals),
            sum(|kept| kept.broken),
            Value::Real(kept.iter().map(|kept| kept.least).fold(f64::MAX, f64::min)),
        ]
    }
}

/// The neighbours that a seed draws.
fn crowd(seed: u64) -> Vec<Worker> {
    let mut chance = Rng::new(seed).split(7);
    let count = 1 + chance.below(24);
    (0..count)
        .map(|n| {
            let depth = 1 << chance.below(7);
            let bytes = BYTES << chance.below(7);
            let reads = [0, 30, 50, 70, 100][chance.below(5) as usize];
            let pattern = if chance.chance(1, 3) {
                Pattern::sequential(reads, bytes)
            } else {
                Pattern::random(reads, bytes)
            };
            let label = format!("neighbour {n}");
            let pace = Pace::Closed { depth };
            let worker = Worker::new(label, OWED.0 + 1 + n as u32, pace, pattern);
            if chance.chance(1, 3) {
                let mut span = || Duration::from_ms(1 + chance.below(200));
                let (on, off) = (span(), span());
                worker.in_phases(on, off)
            } else {
                worker
            }
        })
        .collect()
}
