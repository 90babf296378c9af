//! The cost of dedicated units for tenants: capacity, and the bandwidth of the other tenants'
//! units.

use flashyard_flash::channel::load::{Tally, Work};

use super::columns::{PROFILE as PROFILE_COLUMN, column};
use super::drive;
use super::units::{Extent, GIB, MS, Observed, Order, PROFILE, Placement, Scenario, measure_all};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Row, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct IsolationSpace;

const CLAIM: &str = "Units of its own cost a tenant the bandwidth that others leave unused, and nothing else. A tenant that is alone on a shared \
device has all of it; on its own units it never has more than its part, with whole channels a \
little less than with as many units of every channel when it writes, and up to a half less when it reads, as its channels carry less than its units could give and take. Capacity is divided without loss; over-provisioning is bought per tenant, and a tenant \
that writes at random decides by it how much of its bandwidth is left for its own writes. Write amplification is that of greedy collection with uniform random writes, \
a / (a + W(-a exp(-a))) with a the flash over the capacity; reads of garbage collection are left out.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, MS];

const COLUMNS: [Column; 13] = [
    PROFILE_COLUMN,
    column("tenants", "tenants", Unit::None),
    column("placement", "placement", Unit::None),
    column("units", "units of each", Unit::None),
    column(
        "write_bytes_per_second",
        "sequential write",
        Unit::BytesPerSecond,
    ),
    column("write_part", "of the device's", Unit::Ratio),
    column(
        "read_bytes_per_second",
        "4 KiB read, QD 256",
        Unit::BytesPerSecond,
    ),
    column("read_part", "of the device's reads", Unit::Ratio),
    column(
        "over_provisioning_percent",
        "over-provisioning",
        Unit::Percent,
    ),
    column("capacity_bytes", "capacity of each", Unit::Bytes),
    column("capacity_part", "of the flash", Unit::Ratio),
    column("write_amplification", "write amplification", Unit::Ratio),
    column(
        "random_write_bytes_per_second",
        "random write",
        Unit::BytesPerSecond,
    ),
];

const PARTS: [u32; 4] = [1, 2, 4, 8];
const PLACEMENTS: [Placement; 2] = [Placement::Channels, Placement::Units];
/// Flash beyond the capacity, in percent of the capacity.
const OVER_PROVISIONING: [u32; 4] = [7, 12, 20, 28];
const WORKS: [Work; 2] = [Work::Write, Work::Read { depth: 256 }];

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Capacity is divided without loss: tenants times the part of each is what one alone has",
    judge: |rows| {
        let sum = |row: &Row| {
            let alike = rows.like(row, &["profile", "placement", "over_provisioning_percent"]);
            let alone = alike.first()?.number("capacity_part")?;
            Some(row.number("capacity_part")? * row.number("tenants")? / alone)
        };
        Got::within(&rows.each(sum), 0.999, 1.001)
    },
}];

impl Experiment for IsolationSpace {
    fn name(&self) -> &'static str {
        "isolation-space"
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
        let extent = Extent::of(context);
        let mut scenarios = Vec::new();
        for placement in PLACEMENTS {
            for parts in PARTS {
                let scenario = |first| Scenario {
                    parts,
                    first,
                    ..Scenario::encounter(&profile, placement, Order::FifoVarying, 1)
                };
                scenarios.extend(WORKS.map(scenario));
            }
        }
        let (played, digest) = measure_all(context, extent, &scenarios)?;
        let parts: Vec<Part> = played.chunks_exact(WORKS.len()).map(Part).collect();
        let flash = scenarios[0].device(extent, context.seed)?;
        let bytes_per_unit = flash.geometry().capacity() / u64::from(flash.geometry().total_pus());
        let mut rows = Vec::new();
        for part in &parts {
            // The first part is the whole device.
            let whole = &parts[0];
            let units = flash.geometry().total_pus() / part.scenario().parts;
            let bytes = bytes_per_unit * u64::from(units);
            let row = |percent| part.row(whole, units, bytes, percent);
            rows.extend(OVER_PROVISIONING.map(row));
        }
        Ok(Report {
            rows,
            charts: vec![chart(&parts)],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// A tenant alone on its part of the device: writing, then reading.
struct Part<'a>(&'a [Observed<'a>]);

impl Part<'_> {
    fn scenario(&self) -> &Scenario {
        self.0[0].scenario
    }

    fn writing(&self) -> f64 {
        self.0[0].first_bytes_per_second()
    }

    fn reading(&self) -> f64 {
        self.0[1].first_bytes_per_second()
    }

    fn row(&self, whole: &Part, units: u32, flash: u64, percent: u32) -> Vec<Value> {
        let scenario = self.scenario();
        let rate = |tallies: &[Tally]| tallies[0].bytes_per_second() as f64;
        let capacity = flash * 100 / u64::from(100 + percent);
        let amplification = write_amplification(1.0 + f64::from(percent) / 100.0);
        vec![
            Value::Text(scenario.profile.name.clone()),
            Value::Count(scenario.parts.into()),
            Value::Text(scenario.placement.label().into()),
            Value::Count(units.into()),
            self.0[0].value(rate),
            Value::Real(self.writing() / whole.writing()),
            self.0[1].value(rate),
            Value::Real(self.reading() / whole.reading()),
            Value::Count(percent.into()),
            Value::Count(capacity),
            Value::Real(capacity as f64 / flash as f64 / f64::from(scenario.parts)),
            Value::Real(amplification),
            Value::Real(self.writing() / amplification),
        ]
    }
}

/// Of greedy collection with uniform random writes; `a`, above 1, is the flash over the capacity.
pub(super) fn write_amplification(a: f64) -> f64 {
    // W is where w = -a exp(-a - w) comes to rest, each step nearer by the factor |w| < 1.
    let mut w = 0.0;
    for _ in 0..10_000 {
        w = -a * f64::exp(-a - w);
    }
    a / (a + w)
}

fn chart(parts: &[Part]) -> Chart {
    let of = |placement| {
        parts
            .iter()
            .filter(move |part| part.scenario().placement == placement)
    };
    let series = |placement: Placement, name: &str, figure: &dyn Fn(&Part) -> f64| Series {
        label: format!("{name}, {}", placement.label()),
        points: of(placement)
            .map(|part| (f64::from(part.scenario().parts), figure(part)))
            .collect(),
    };
    let axis = |label: &str, unit| Axis {
        label: label.into(),
        unit,
        scale: Scale::Log,
    };
    Chart {
        name: "bandwidth",
        title: "What one tenant reaches on its own units".into(),
        claim: "Bandwidth is divided by the number of tenants, whether they use theirs or not."
            .into(),
        kind: ChartKind::Lines,
        x: axis("tenants", Unit::None),
        y: axis("bandwidth of one", Unit::BytesPerSecond),
        series: vec![
            series(Placement::Channels, "write", &|part| part.writing()),
            series(Placement::Units, "write", &|part| part.writing()),
            series(Placement::Channels, "read", &|part| part.reading()),
            series(Placement::Units, "read", &|part| part.reading()),
        ],
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_amplification_is_that_of_the_closed_form() {
        // The published values, for 7, 12, 20, 28 and 100 % of the capacity.
        for (a, published) in [
            (1.07, 7.8),
            (1.12, 4.85),
            (1.2, 3.19),
            (1.28, 2.48),
            (2.0, 1.25),
        ] {
            let found = write_amplification(a);
            assert!((found / published - 1.0).abs() < 0.01, "{a}: {found}");
        }
    }
}
