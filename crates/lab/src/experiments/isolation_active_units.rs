//! How a writer on fewer units affects a reader of all of them.

use super::columns::{MAX, MEAN, P50, P99, P999, PROFILE as PROFILE_COLUMN, column};
use super::units::{
    DRIVE, Extent, GIB, MS, Observed, Order, PROFILE, Placement, Scenario, measure_all,
};
use super::{drive, figures};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct IsolationActiveUnits;

const CLAIM: &str = "A translation layer that writes to fewer units at a time buys its readers time with bandwidth, and cannot buy them the \
tail. One tenant writes without pause to 128 down to 4 of the units, one reads 4 KiB at random, one at a time, from all of them. The mean \
falls with the units that are busy; p99 stays at a program until hardly any is, and the longest wait does not change: whoever meets a \
program waits for it. The expected figures come from a prototype of the model, made before it, and not from a study.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, MS];

const COLUMNS: [Column; 12] = [
    PROFILE_COLUMN,
    column("order", "order", Unit::None),
    column("active_units", "units written", Unit::None),
    MEAN,
    P50,
    P99,
    P999,
    MAX,
    column("writers_bytes_per_second", "writer", Unit::BytesPerSecond),
    column("expected_mean_us", "expected mean", Unit::Micros),
    column("expected_p99_us", "expected p99", Unit::Micros),
    column(
        "expected_writers_bytes_per_second",
        "expected writer",
        Unit::BytesPerSecond,
    ),
];

const ACTIVE: [u32; 6] = [128, 64, 32, 16, 8, 4];
const ORDERS: [Order; 3] = [Order::Fifo, Order::FifoVarying, Order::Suspend];

/// Mean and p99 in microseconds, and MB/s, of a prototype with everything in turn.
const EXPECTED: [[u32; 3]; 6] = [
    [1341, 3000, 4192],
    [675, 2600, 2249],
    [372, 2500, 1147],
    [222, 2300, 576],
    [151, 2100, 288],
    [112, 1500, 144],
];

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "The longest wait does not change with the units written (within a fifth, in turn)",
        judge: |rows| {
            let max = rows.with("order", "fifo").numbers("max_us");
            let first = max.first().copied()?;
            let parts: Vec<f64> = max.iter().map(|max| max / first).collect();
            Got::within(&parts, 0.8, 1.2)
        },
    },
    Promise {
        wanted: "The mean grows with the units written (in turn)",
        judge: |rows| {
            let mut mean = rows.with("order", "fifo").numbers("mean_us");
            mean.reverse();
            Got::rising(&mean)
        },
    },
];

impl Experiment for IsolationActiveUnits {
    fn name(&self) -> &'static str {
        "isolation-active-units"
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
        let profile = drive::profile(context.word("profile"))?;
        let mut scenarios = Vec::new();
        for order in ORDERS {
            let scenario = |active| Scenario {
                active: Some(active),
                ..Scenario::encounter(&profile, Placement::Shared, order, 2)
            };
            scenarios.extend(ACTIVE.map(scenario));
        }
        let (played, digest) = measure_all(context, Extent::of(context), &scenarios)?;
        Ok(Report {
            rows: played.iter().map(row).collect(),
            charts: vec![trade(&played)],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

fn row(played: &Observed) -> Vec<Value> {
    let scenario = played.scenario;
    let active = scenario.active.unwrap_or(0);
    let [mean, p50, p99, p999, max] = played.latencies();
    let known = scenario.profile.name == DRIVE && scenario.order != Order::Suspend;
    let place = ACTIVE.iter().position(|&units| units == active);
    let expected = |what: usize, times: u32| match place.filter(|_| known) {
        Some(place) => Value::Real(f64::from(EXPECTED[place][what]) * f64::from(times)),
        None => Value::Missing,
    };
    vec![
        Value::Text(scenario.profile.name.clone()),
        Value::Text(scenario.order.label().into()),
        Value::Count(active.into()),
        mean,
        p50,
        p99,
        p999,
        max,
        played.others(),
        expected(0, 1),
        expected(1, 1),
        expected(2, 1_000_000),
    ]
}

/// Mean and p99 of the reader against what the writer gets.
fn trade(played: &[Observed]) -> Chart {
    let series = |order: Order, name: &str, figure: &dyn Fn(&Observed) -> f64| Series {
        label: format!("{name}, {}", order.label()),
        points: played
            .iter()
            .rev()
            .filter(|one| one.scenario.order == order)
            .map(|one| (one.others_bytes_per_second(), figure(one)))
            .collect(),
    };
    let mean = |one: &Observed| one.mean_us();
    let p99 = |one: &Observed| one.percentile_us(figures::P99);
    let axis = |label: &str, unit| Axis {
        label: label.into(),
        unit,
        scale: Scale::Log,
    };
    Chart {
        name: "trade",
        title: "A reader's latency against what the writer beside it gets".into(),
        claim: "Fewer units written lower the mean and leave the tail; suspending lowers both and costs no bandwidth.".into(),
        kind: ChartKind::Lines,
        x: axis("bandwidth of the writer", Unit::BytesPerSecond),
        y: axis("latency", Unit::Micros),
        series: vec![
            series(Order::Fifo, "mean", &mean),
            series(Order::Fifo, "p99", &p99),
            series(Order::Suspend, "mean", &mean),
            series(Order::Suspend, "p99", &p99),
        ],
        marks: Vec::new(),
    }
}
