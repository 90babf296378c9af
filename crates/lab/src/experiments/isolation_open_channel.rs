//! A reader beside writers on an open-channel device: the experiment of the isolation study.

use flashyard_flash::channel::load::Work;

use super::columns::{MAX, MEAN, P50, P99, P999, PROFILE as PROFILE_COLUMN, column};
use super::units::{
    DRIVE, Extent, GIB, MS, Observed, Order, PROFILE, Placement, Scenario, measure_all,
};
use super::{drive, figures};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Mark, MarkAt, Promise, Report, Row, Rows, Scale, Series,
    Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct IsolationOpenChannel;

const CLAIM: &str = "A tenant whose flash units are on channels of its own does not notice its neighbours. One tenant reads 4 KiB at random, \
one at a time; one, three or seven others write without pause, a program under way on each unit they may use. Either all share all units, or \
each has whole channels, or each has units of every channel; the device does everything in turn, or reads first, or suspends programs for \
reads. After the study with open-channel SSDs (2017), whose conventional SSD answered in 0.30, 1.85 and 2.02 ms in the mean and 22.92, 19.76 \
and 29.97 ms at worst with 2, 4 and 8 tenants. The expected figures come from a prototype of the model, made before it, and not from the \
study: its figures of open-channel SSDs exist only as a picture. There some of the neighbours is left, by the queues and the processor of \
the device that all share. The model has neither, so that nothing is left of them on channels of one's own is the model's.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, MS];

const COLUMNS: [Column; 15] = [
    PROFILE_COLUMN,
    column("tenants", "tenants", Unit::None),
    column("placement", "placement", Unit::None),
    column("order", "order", Unit::None),
    MEAN,
    P50,
    P99,
    P999,
    MAX,
    column("writers_bytes_per_second", "writers", Unit::BytesPerSecond),
    column("gain", "gain of the mean", Unit::Ratio),
    column("expected_mean_us", "expected mean", Unit::Micros),
    column("expected_p99_us", "expected p99", Unit::Micros),
    column("expected_max_us", "expected max", Unit::Micros),
    column(
        "expected_writers_bytes_per_second",
        "expected writers",
        Unit::BytesPerSecond,
    ),
];

const TENANTS: [u32; 3] = [2, 4, 8];
const PLACEMENTS: [Placement; 3] = [Placement::Shared, Placement::Channels, Placement::Units];
const ORDERS: [Order; 4] = [
    Order::Fifo,
    Order::FifoVarying,
    Order::ReadsFirst,
    Order::Suspend,
];

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "On channels of its own the reader's mean is at most 1.2 times that alone, whoever writes and in whatever order",
        judge: |rows| Got::at_most(&of_alone(rows, "mean_us")?, 1.2),
    },
    Promise {
        wanted: "And so is its p99",
        judge: |rows| Got::at_most(&of_alone(rows, "p99_us")?, 1.2),
    },
];

/// A figure of the reader on channels of its own, as parts of that alone.
fn of_alone(rows: &Rows, figure: &str) -> Option<Vec<f64>> {
    let alone = rows.with("placement", "alone").first()?.number(figure)?;
    let part = |row: &Row| Some(row.number(figure)? / alone);
    Some(rows.with("placement", "by channel").each(part))
}

impl Experiment for IsolationOpenChannel {
    fn name(&self) -> &'static str {
        "isolation-open-channel"
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
        let mut scenarios = vec![Scenario {
            parts: 1,
            ..Scenario::encounter(&profile, Placement::Shared, Order::Fifo, 1)
        }];
        for placement in PLACEMENTS {
            for order in ORDERS {
                let scenario = |tenants| Scenario::encounter(&profile, placement, order, tenants);
                scenarios.extend(TENANTS.map(scenario));
            }
        }
        let (played, digest) = measure_all(context, Extent::of(context), &scenarios)?;
        let found = Found { played };
        Ok(Report {
            rows: found.played.iter().map(|one| found.row(one)).collect(),
            charts: found.chart().into_iter().collect(),
            notes: found.judge(),
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// Mean, p99 and greatest latency of the reader in microseconds, and MB/s of all writers; zero
/// where nothing, or only a range, was published.
type Expected = [u32; 4];

/// What a prototype of the model gave in 20 s with 2, 4 and 8 tenants.
fn expected(placement: Placement, order: Order) -> [Expected; 3] {
    match (placement, order) {
        (Placement::Shared, Order::Fifo | Order::FifoVarying) => [
            [1348, 3051, 5196, 4189],
            [5723, 8812, 10_303, 4017],
            [14_564, 19_306, 20_996, 3938],
        ],
        (Placement::Shared, Order::ReadsFirst) => [
            [1226, 0, 3205, 4000],
            [1278, 0, 3436, 4000],
            [1286, 0, 3553, 4000],
        ],
        (Placement::Shared, Order::Suspend) => [
            [187, 708, 0, 4000],
            [204, 835, 0, 4000],
            [213, 916, 0, 4000],
        ],
        (Placement::Channels, _) => [[76, 84, 84, 2090], [76, 84, 84, 3134], [76, 84, 84, 3657]],
        (Placement::Units, Order::Fifo | Order::FifoVarying) => [
            [189, 858, 1000, 2249],
            [423, 1931, 2900, 3250],
            [558, 2158, 3300, 3751],
        ],
        (Placement::Units, Order::ReadsFirst | Order::Suspend) => [
            [91, 140, 142, 2294],
            [97, 140, 142, 3280],
            [100, 140, 142, 3748],
        ],
    }
}

/// The scenarios that were played, the reader alone first.
struct Found<'a> {
    played: Vec<Observed<'a>>,
}

impl Found<'_> {
    fn alone(&self) -> Option<&Observed<'_>> {
        self.played.first()
    }

    /// The same scenario for each number of tenants; none if one of them was not played.
    fn of(&self, placement: Placement, order: Order) -> Option<[&Observed<'_>; 3]> {
        let [two, four, eight] = TENANTS.map(|tenants| {
            self.played.iter().find(|played| {
                let scenario = played.scenario;
                (scenario.placement, scenario.order, scenario.tenants)
                    == (placement, order, tenants)
            })
        });
        Some([two?, four?, eight?])
    }

    /// How many times the mean latency of everything shared and in turn is that of `played`.
    fn gain(&self, played: &Observed) -> Option<f64> {
        let place = TENANTS
            .iter()
            .position(|&tenants| tenants == played.scenario.tenants)?;
        let shared = self.of(Placement::Shared, Order::Fifo)?[place].mean_us();
        Some(shared / played.mean_us())
    }

    fn row(&self, played: &Observed) -> Vec<Value> {
        let scenario = played.scenario;
        let [mean, p50, p99, p999, max] = played.latencies();
        let [a, b, c, d] = expectations(scenario);
        let finite = |gain: f64| gain.is_finite().then_some(Value::Real(gain));
        vec![
            Value::Text(scenario.profile.name.clone()),
            Value::Count(scenario.tenants.into()),
            Value::Text(
                if scenario.tenants == 1 {
                    "alone"
                } else {
                    scenario.placement.label()
                }
                .into(),
            ),
            Value::Text(scenario.order.label().into()),
            mean,
            p50,
            p99,
            p999,
            max,
            played.others(),
            self.gain(played).and_then(finite).unwrap_or(Value::Missing),
            a,
            b,
            c,
            d,
        ]
    }

    /// The four predictions that were stated before the model was built, and what is promised of
    /// own channels; those for which everything was played.
    fn judge(&self) -> Vec<String> {
        let notes = [
            self.judge_growth(),
            self.judge_flatness(),
            self.judge_units(),
            self.judge_price(),
            self.judge_promise(),
        ];
        notes.into_iter().flatten().collect()
    }

    fn judge_growth(&self) -> Option<String> {
        let [two, four, eight] = self
            .of(Placement::Shared, Order::Fifo)?
            .map(Observed::mean_us);
        let slopes = [(four - two) / 2e3, (eight - four) / 4e3];
        let as_said = slopes.iter().all(|slope| (slope / 2.2 - 1.0).abs() <= 0.1);
        Some(format!(
            "Prediction 1, shared and in turn a read waits 2.2 ms more for each further writer, whose program stands before it on \
             every unit: {}. From 2 to 4 tenants {:.2} ms each, from 4 to 8 {:.2} ms.",
            verdict(as_said),
            slopes[0],
            slopes[1]
        ))
    }

    fn judge_flatness(&self) -> Option<String> {
        let alone = self.alone()?.mean_us();
        let own = self.of(Placement::Channels, Order::Fifo)?;
        let gains = own.map(|played| self.gain(played).unwrap_or(f64::NAN));
        let flat = own
            .iter()
            .all(|played| (played.mean_us() / alone - 1.0).abs() <= 0.02);
        let near = |(gain, said): (&f64, f64)| (gain / said - 1.0).abs() <= 0.1;
        let as_said = flat && gains.iter().zip([18.0, 75.0, 190.0]).all(near);
        Some(format!(
            "Prediction 2, with channels of its own a read takes {alone:.0} us as it does alone, which is 18, 75 and 190 times \
             less in the mean: {}. Gains of {:.1}, {:.0} and {:.0}.",
            verdict(as_said),
            gains[0],
            gains[1],
            gains[2]
        ))
    }

    fn judge_units(&self) -> Option<String> {
        let alone = self.alone()?.percentile_us(figures::P99);
        let times = |order| {
            let played = self.of(Placement::Units, order)?;
            Some(played.map(|one| one.percentile_us(figures::P99) / alone))
        };
        let (fifo, first) = (times(Order::Fifo)?, times(Order::ReadsFirst)?);
        let as_said = fifo.iter().all(|times| *times > 1.2);
        Some(format!(
            "Prediction 3, units of its own on shared channels are no isolation while programs of 64 KiB share the channel: {}. p99 is \
             {:.1}, {:.1} and {:.1} times that of the reader alone; where reads go first on the channel, {:.1}, {:.1} and {:.1} times.",
            verdict(as_said),
            fifo[0],
            fifo[1],
            fifo[2],
            first[0],
            first[1],
            first[2]
        ))
    }

    fn judge_price(&self) -> Option<String> {
        let shared = self.of(Placement::Shared, Order::Fifo)?;
        let own = self.of(Placement::Channels, Order::Fifo)?;
        let lost = [0, 1, 2].map(|place| {
            let (own, shared): (&Observed, &Observed) = (own[place], shared[place]);
            1.0 - own.others_bytes_per_second() / shared.others_bytes_per_second()
        });
        let near = |(lost, said): (f64, f64)| (lost - said).abs() <= 0.04;
        let as_said = near((lost[1], 0.22)) && near((lost[2], 0.07));
        Some(format!(
            "Prediction 4, the share that the reader leaves idle costs the writers 22 % of their bandwidth with 4 tenants and 7 % with 8, within 4 \
             points: {}. It costs {:.0}, {:.0} and {:.0} %.",
            verdict(as_said),
            lost[0] * 100.0,
            lost[1] * 100.0,
            lost[2] * 100.0
        ))
    }

    fn judge_promise(&self) -> Option<String> {
        let alone = self.alone()?;
        let (mean, p99) = (alone.mean_us(), alone.percentile_us(figures::P99));
        let own = ORDERS.map(|order| self.of(Placement::Channels, order));
        let own: Vec<_> = own.into_iter().collect::<Option<_>>()?;
        let all = || own.iter().flatten();
        let means = all().map(|one| one.mean_us() / mean);
        let tails = all().map(|one| one.percentile_us(figures::P99) / p99);
        let (means, tails) = (means.fold(0.0, f64::max), tails.fold(0.0, f64::max));
        Some(format!(
            "Promise, with channels of its own the reader's mean and p99 are within 1.2 times of those alone, whatever the order: {}. At \
             most {means:.3} and {tails:.3} times.",
            verdict(means <= 1.2 && tails <= 1.2)
        ))
    }

    fn chart(&self) -> Option<Chart> {
        let point = |one: &Observed| {
            let tenants = f64::from(one.scenario.tenants);
            (tenants, one.percentile_us(figures::P99))
        };
        let curve = |(placement, order): (Placement, Order)| {
            let played = self.of(placement, order)?;
            Some(Series {
                label: format!("{}, {}", placement.label(), order.label()),
                points: played.map(point).into(),
            })
        };
        let curves = [
            (Placement::Shared, Order::Fifo),
            (Placement::Shared, Order::ReadsFirst),
            (Placement::Shared, Order::Suspend),
            (Placement::Units, Order::Fifo),
            (Placement::Units, Order::ReadsFirst),
            (Placement::Channels, Order::Fifo),
        ];
        Some(Chart {
            name: "p99",
            title: "p99 of one read at a time beside writers".into(),
            claim: "Only channels of its own keep a reader at what it has alone; reads first and suspended programs come close.".into(),
            kind: ChartKind::Lines,
            x: axis("tenants", Unit::None),
            y: axis("p99", Unit::Micros),
            series: curves.into_iter().filter_map(curve).collect(),
            marks: vec![Mark {
                label: "alone".into(),
                at: MarkAt::Y(self.alone()?.percentile_us(figures::P99)),
            }],
        })
    }
}

fn axis(label: &str, unit: Unit) -> Axis {
    Axis {
        label: label.into(),
        unit,
        scale: Scale::Log,
    }
}

fn expectations(scenario: &Scenario) -> [Value; 4] {
    let place = TENANTS
        .iter()
        .position(|&tenants| tenants == scenario.tenants);
    let known = place.filter(|_| scenario.profile.name == DRIVE);
    let [mean, p99, max, writers] = match (known, scenario.tenants, scenario.first) {
        (Some(place), ..) => expected(scenario.placement, scenario.order)[place],
        (None, 1, Work::Read { .. }) if scenario.profile.name == DRIVE => [76, 0, 0, 0],
        _ => [0; 4],
    };
    let value = |number: u32, times: u64| match number {
        0 => Value::Missing,
        _ => Value::Real((u64::from(number) * times) as f64),
    };
    [
        value(mean, 1),
        value(p99, 1),
        value(max, 1),
        value(writers, 1_000_000),
    ]
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "does not hold" }
}
