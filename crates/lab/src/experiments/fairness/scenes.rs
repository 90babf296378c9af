//! Scenes on which fair switches have been found to fail.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_time::Duration;

use super::alone::Alone;
use super::scene::{Scene, Spans, Tenant};
use crate::bench::{Path, Results, Stall, fold};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::experiments::columns::{CONDITION, POLICY, PROFILE, column};
use crate::experiments::drive;
use crate::experiments::figures::P99;
use crate::measure::{Side, percentile_us};
use crate::parallel;
use crate::policies::{self, Calibration};
use crate::report::{Axis, Chart, ChartKind, Column, Report, Scale, Series, Unit, Value};

/// See [`Experiment::claim`].
pub(in crate::experiments) struct Scenes;

const CLAIM: &str = "A fair switch that holds its promise for long-lived, deep tenants of one size on a stationary drive may break it \
elsewhere. Each scene here was found to break it for some policy: tenants that mix sizes, tenants by weight on a drive \
that begins clean, a drive of four bits per cell, tenants with little in flight, a sequential reader among random ones, \
writes that stall, a drive at the end of a network. FlashFQ is calibrated on the fragmented drive.";

const SETTINGS: [Setting; 3] = [
    Setting {
        key: "scene",
        default: "mixed,weighted,qlc,few,sequential,stall,far,shallow",
        domain: Domain::Words(&NAMES),
        meaning: "the scenes",
    },
    Setting {
        key: "gib",
        default: "4",
        domain: Domain::Number(1, 1024),
        meaning: "capacity of the drives in GiB",
    },
    Setting {
        key: "ms",
        default: "2000",
        domain: Domain::Number(1, 3_600_000),
        meaning: "milliseconds that are measured, after 1.2 seconds",
    },
];

const NAMES: [&str; 8] = [
    "mixed",
    "weighted",
    "qlc",
    "few",
    "sequential",
    "stall",
    "far",
    "shallow",
];

const COLUMNS: [Column; 13] = [
    column("scene", "scene", Unit::None),
    column("tenants", "tenants", Unit::None),
    PROFILE,
    CONDITION,
    POLICY,
    column("f_util_min", "least f-Util", Unit::Ratio),
    column("f_util_max", "greatest f-Util", Unit::Ratio),
    column("utilization", "utilisation", Unit::Ratio),
    column("utilization_to_fifo", "of FIFO's", Unit::Ratio),
    column("read_p99_us", "p99 of reads", Unit::Micros),
    column("write_p99_us", "p99 of writes", Unit::Micros),
    column(
        "longest_read_hold_us",
        "longest hold of a read",
        Unit::Micros,
    ),
    column(
        "longest_write_hold_us",
        "longest hold of a write",
        Unit::Micros,
    ),
];

impl Experiment for Scenes {
    fn name(&self) -> &'static str {
        "fairness-scenes"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo", "gimbal", "flashfq", "fair"]
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let words = context.words("scene").len();
        let runs = words * (1 + context.policies.len());
        context.progress.begin(runs as u64);
        let known = known(context)?;
        let measured = measure(context, &known)?;
        let digests = measured.iter().map(|measured| measured.results.digest);
        Ok(Report {
            rows: rows(&measured),
            charts: vec![chart(context, &known, &measured)],
            ..Report::of(self, context, digests.fold(0, fold), &COLUMNS)
        })
    }
}

/// A scene with its name, a word on its tenants, and what the work in it reaches alone.
struct Known {
    name: &'static str,
    tenants: &'static str,
    scene: Scene,
    alone: Alone,
}

/// A scene under a policy.
struct Measured<'a> {
    known: &'a Known,
    policy: &'static str,
    results: Results,
}

/// How large and how long everything is.
fn spans(context: &Context) -> Spans {
    let ms = if context.quick {
        10
    } else {
        context.number("ms")
    };
    Spans {
        warm_up: Duration::from_ms(if context.quick { 5 } else { 1200 }),
        measured: Duration::from_ms(ms),
    }
}

/// The scenes that were chosen, each measured alone.
fn known(context: &Context) -> Result<Vec<Known>, Refused> {
    let gib = if context.quick {
        1
    } else {
        context.number("gib")
    };
    let found = parallel::map(context.progress, &context.words("scene"), |name| {
        let (name, tenants, scene) = named(name, gib << 30)?;
        let alone = Alone::measure(&scene, spans(context), context.seed)?;
        context.progress.step(&format!("{name}: each kind alone"));
        Ok(Known {
            name,
            tenants,
            scene,
            alone,
        })
    })?;
    found.into_iter().collect()
}

/// Every drive by the name of its profile, measured for the policies that need it.
fn calibrations(context: &Context, known: &[Known]) -> Result<Vec<(String, Calibration)>, Refused> {
    let wanted = |policy: &&str| policies::named(policy).is_none();
    let mut profiles: Vec<&Profile> = known.iter().map(|known| &known.scene.profile).collect();
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    profiles.dedup();
    if !context.policies.iter().any(wanted) {
        profiles.clear();
    }
    let found = parallel::map(context.progress, &profiles, |profile| {
        let capacity = known[0].scene.capacity;
        let found = Calibration::measure(profile, capacity, context.seed, context.quick)?;
        Ok((profile.name.clone(), found))
    })?;
    found.into_iter().collect()
}

/// Runs all scenes under all policies, scene by scene.
fn measure<'a>(context: &Context, known: &'a [Known]) -> Result<Vec<Measured<'a>>, Refused> {
    let calibrations = calibrations(context, known)?;
    let jobs: Vec<_> = known
        .iter()
        .flat_map(|known| context.policies.iter().map(move |&policy| (known, policy)))
        .collect();
    let found = parallel::first(context.progress, &jobs, |&(known, policy)| {
        let name = &known.scene.profile.name;
        let calibration = calibrations.iter().find(|(drive, _)| drive == name);
        let switch = policies::switch(policy, calibration.map(|(_, found)| found));
        let results = known
            .scene
            .run(switch, spans(context), Duration::ZERO, context.seed)?;
        let Known { name, .. } = known;
        context.progress.step(&format!("{policy}: {name}"));
        Ok(Measured {
            known,
            policy,
            results,
        })
    });
    found.into_iter().collect()
}

impl Measured<'_> {
    fn f_utils(&self) -> Vec<f64> {
        self.known.alone.f_utils(&self.known.scene, &self.results)
    }

    fn utilization(&self) -> f64 {
        self.known.alone.use_of(&self.known.scene, &self.results)
    }

    /// Reads and writes of all tenants.
    fn sides(&self) -> (Side, Side) {
        let mut sum = self.results.workers[0].clone();
        for tally in &self.results.workers[1..] {
            sum.merge(tally);
        }
        (sum.reads, sum.writes)
    }

    fn row(&self, fifo: Option<&Self>) -> Vec<Value> {
        let f_utils = self.f_utils();
        let (reads, writes) = self.sides();
        let to_fifo = fifo.map(|fifo| self.utilization() / fifo.utilization());
        let p99 = |side: &Side| or_missing(percentile_us(&side.total, P99));
        let hold = |side: &Side| {
            let any = side.total.count() > 0 || side.longest_hold > Duration::ZERO;
            or_missing(any.then_some(side.longest_hold.as_ns() as f64 / 1e3))
        };
        vec![
            Value::Text(self.known.name.into()),
            Value::Text(self.known.tenants.into()),
            Value::Text(self.known.scene.profile.name.clone()),
            Value::Text(self.known.scene.condition.to_string()),
            Value::Text(self.policy.into()),
            Value::Real(f_utils.iter().copied().fold(f64::INFINITY, f64::min)),
            Value::Real(f_utils.iter().copied().fold(0.0, f64::max)),
            Value::Real(self.utilization()),
            or_missing(to_fifo),
            p99(&reads),
            p99(&writes),
            hold(&reads),
            hold(&writes),
        ]
    }
}

fn or_missing(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Real)
}

/// The row of each, beside what FIFO gives in the same scene if it was run.
fn rows(measured: &[Measured]) -> Vec<Vec<Value>> {
    let row = |one: &Measured| {
        let same = |other: &&Measured| other.policy == "fifo" && other.known.name == one.known.name;
        one.row(measured.iter().find(same))
    };
    measured.iter().map(row).collect()
}

/// The least f-Util of each scene under each policy.
fn chart(context: &Context, known: &[Known], measured: &[Measured]) -> Chart {
    let series = |&policy: &&'static str| Series {
        label: policy.into(),
        points: measured
            .iter()
            .filter(|measured| measured.policy == policy)
            .zip(0..)
            .map(|(measured, place)| {
                let least = measured.f_utils().into_iter().fold(f64::INFINITY, f64::min);
                (f64::from(place), least)
            })
            .collect(),
    };
    let axis = |label: &str, unit| Axis {
        label: label.into(),
        unit,
        scale: Scale::Linear,
    };
    Chart {
        name: "least",
        title: "The least f-Util of all tenants".into(),
        claim: "Equal parts make the least as large as it can be.".into(),
        kind: ChartKind::Bars {
            categories: known.iter().map(|known| known.name.into()).collect(),
        },
        x: axis("scene", Unit::None),
        y: axis("least f-Util", Unit::Ratio),
        series: context.policies.iter().map(series).collect(),
        marks: Vec::new(),
    }
}

const KIB: u64 = 1024;
const MIXED: [u64; 2] = [16 * KIB, 64 * KIB];

/// A scene by name, with a word on its tenants.
fn named(name: &str, capacity: u64) -> Result<(&'static str, &'static str, Scene), Refused> {
    let clean = Condition::Clean;
    let old = Condition::Fragmented(100);
    let at_once = Path::default();
    let stall = Path {
        stall: Some(Stall {
            every: Duration::from_secs(2),
            lasts: Duration::from_ms(500),
        }),
        ..at_once
    };
    let far = Path {
        distance: Duration::from_us(900),
        ..at_once
    };
    let (name, tenants, profile, condition, path, cast) = match name {
        "mixed" => (
            "mixed",
            "16 readers + 16 writers, each 16 and 64 KiB, QD 32, weights 1:2:4",
            "dct983",
            old,
            at_once,
            both(16, &MIXED, 32, weighted),
        ),
        "weighted" => (
            "weighted",
            "8 of each: 16 KiB, QD 32, and 64 KiB, QD 8, readers and writers, weights 1:2:4",
            "dct983",
            clean,
            at_once,
            [
                both(8, &MIXED[..1], 32, weighted),
                both(8, &MIXED[1..], 8, weighted),
            ]
            .concat(),
        ),
        "qlc" => (
            "qlc",
            "16 readers + 16 writers, 4 KiB, QD 32",
            "qlc",
            clean,
            at_once,
            both(16, &[4 * KIB], 32, equal),
        ),
        "few" => (
            "few",
            "2 readers + 2 writers, 4 KiB, QD 16",
            "dct983",
            old,
            at_once,
            both(2, &[4 * KIB], 16, equal),
        ),
        "sequential" => (
            "sequential",
            "1 sequential reader, 128 KiB, QD 4 + 16 readers, 4 KiB, QD 32",
            "dct983",
            old,
            at_once,
            sequential(),
        ),
        "stall" => (
            "stall",
            "16 readers + 16 writers, 4 KiB, QD 32; writes stall for 0.5 s of every 2 s",
            "dct983",
            clean,
            stall,
            both(16, &[4 * KIB], 32, equal),
        ),
        "far" => (
            "far",
            "4 readers + 4 writers, 4 KiB, QD 32; the drive is 0.9 ms away",
            "dct983",
            old,
            far,
            both(4, &[4 * KIB], 32, equal),
        ),
        _ => (
            "shallow",
            "4 of each: 4 KiB readers and writers at QD 1, 4 and 64",
            "dct983",
            old,
            at_once,
            [1, 4, 64]
                .map(|depth| both(4, &[4 * KIB], depth, equal))
                .concat(),
        ),
    };
    let scene = Scene {
        profile: drive::profile(profile)?,
        capacity,
        condition,
        paths: vec![(Duration::ZERO, path)],
        tenants: cast,
    };
    Ok((name, tenants, scene))
}

fn equal(_: usize) -> u32 {
    1
}

fn weighted(place: usize) -> u32 {
    [1, 2, 4][place % 3]
}

/// So many readers and as many writers.
fn both(count: usize, sizes: &[u64], depth: u32, weight: fn(usize) -> u32) -> Vec<Tenant> {
    let side =
        |reads| (0..count).map(move |place| Tenant::closed(weight(place), reads, sizes, depth));
    side(true).chain(side(false)).collect()
}

/// A reader of long parts in order, and readers of short ones at random.
fn sequential() -> Vec<Tenant> {
    let mut cast = vec![Tenant::closed(1, true, &[128 * KIB], 4).in_order()];
    cast.extend(vec![Tenant::closed(1, true, &[4 * KIB], 32); 16]);
    cast
}
