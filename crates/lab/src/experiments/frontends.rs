//! What a front end costs: the same loads over NVMe/TCP, through an NVMe function, and on the
//! device itself. Measured, not simulated.

mod load;
mod target;

use std::sync::mpsc;
use std::thread;

use flashyard_testbed::Scratch;
use flashyard_time::Duration;

use super::columns::{BANDWIDTH, IOPS, P50, P99, column};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Rows, Scale, Series, Unit, Value,
};
use load::Measured;

/// See [`Experiment::claim`].
pub(super) struct Frontends;

const CLAIM: &str = "A function of a virtual machine answers sooner and moves more than NVMe/TCP on the same core. A null device stands behind \
one core of a target, which a second thread loads in turn over NVMe/TCP on the loopback interface, through a function over vfio-user (a guest without a machine: \
its driver polls, and uses shadow doorbells), and in its own process without any front end. Each figure is the best of several runs in turn. Both sides poll, each on a \
processor of its own where there are two. The study of FlexBSO (Figure 4) measured 16 against 63.7 us at queue depth 1, and more than three times the throughput with 1 MiB.";

const SETTINGS: [Setting; 2] = [
    Setting {
        key: "ms",
        default: "500",
        domain: Domain::Number(5, 60_000),
        meaning: "how long one run takes, ms",
    },
    Setting {
        key: "runs",
        default: "5",
        domain: Domain::Number(1, 100),
        meaning: "runs of each, of which the best counts",
    },
];

const COLUMNS: [Column; 7] = [
    column("load", "load", Unit::None),
    column("front_end", "front end", Unit::None),
    IOPS,
    BANDWIDTH,
    P50,
    P99,
    column("rate_ratio", "rate, of NVMe/TCP", Unit::Ratio),
];

const LOADS: [Load; 6] = [
    Load::new(false, 4096, 1),
    Load::new(true, 4096, 1),
    Load::new(false, 4096, 128),
    Load::new(true, 4096, 128),
    Load::new(false, 1 << 20, 32),
    Load::new(true, 1 << 20, 32),
];

/// Reads or writes, each of so many bytes, so many at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Load {
    write: bool,
    bytes: u32,
    depth: u16,
}

/// By what the load reaches the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrontEnd {
    Tcp,
    Function,
    None,
}

const FRONT_ENDS: [FrontEnd; 3] = [FrontEnd::Tcp, FrontEnd::Function, FrontEnd::None];

/// A load over a front end, and the best of its runs.
struct Line {
    load: Load,
    front_end: FrontEnd,
    best: Option<Measured>,
}

const PROMISES: [Promise; 3] = [
    Promise {
        wanted: "A function moves more than NVMe/TCP under every load",
        judge: |rows| Got::at_least(&of_functions(rows, |_| true), 1.0),
    },
    Promise {
        wanted: "With one 4 KiB I/O in flight at least the 4 times of the FlexBSO study (63.7 against 16 us)",
        judge: |rows| Got::at_least(&of_functions(rows, |load| load.ends_with("QD 1")), 3.98),
    },
    Promise {
        wanted: "With 1 MiB at least 3 times, as in that study",
        judge: |rows| Got::at_least(&of_functions(rows, |load| load.starts_with("1 MiB")), 3.0),
    },
];

/// Rates over vfio-user, as parts of those over NVMe/TCP, under these loads.
fn of_functions(rows: &Rows, is: impl Fn(&str) -> bool) -> Vec<f64> {
    let rows = rows.with("front_end", "vfio-user");
    rows.that(|row| is(row.word("load"))).numbers("rate_ratio")
}

impl Experiment for Frontends {
    fn name(&self) -> &'static str {
        "frontends"
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

    fn is_measured(&self) -> bool {
        true
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let (span, runs) = if context.quick {
            (Duration::from_ms(20), 1)
        } else {
            (
                Duration::from_ms(context.number("ms")),
                context.number("runs"),
            )
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let scratch = Scratch::new("frontends");
        let mut lines: Vec<_> = LOADS
            .into_iter()
            .flat_map(|load| FRONT_ENDS.map(|front_end| Line::new(load, front_end)))
            .collect();
        context.progress.begin(runs);
        let target = target::start(&scratch, (cores > 1).then_some(0))?;
        for run in 0..runs {
            for line in &mut lines {
                let measured = load::run(
                    (line.load, line.front_end),
                    (&target.place, span),
                    (cores > 1).then_some(1),
                )?;
                line.take(measured);
            }
            context.progress.step(&format!("run {}", run + 1));
            if context.progress.is_stopped() {
                break;
            }
        }
        target.stop();
        Ok(Report {
            rows: lines.iter().map(|line| line.row(&lines)).collect(),
            charts: vec![chart(&lines)],
            notes: vec![format!(
                "Measured on {} with {cores} processors; ratios repeat better than values, which are those of this machine. \
                 Data go nowhere in the row without a front end.",
                std::env::consts::ARCH
            )],
            ..Report::of(self, context, 0, &COLUMNS)
        })
    }
}

impl Load {
    const fn new(write: bool, bytes: u32, depth: u16) -> Self {
        Self {
            write,
            bytes,
            depth,
        }
    }

    fn label(self) -> String {
        let size = match self.bytes >> 20 {
            0 => format!("{} KiB", self.bytes >> 10),
            mib => format!("{mib} MiB"),
        };
        let kind = if self.write { "write" } else { "read" };
        format!("{size} {kind}, QD {}", self.depth)
    }
}

impl FrontEnd {
    fn label(self) -> &'static str {
        match self {
            Self::Tcp => "NVMe/TCP",
            Self::Function => "vfio-user",
            Self::None => "none",
        }
    }
}

impl Line {
    fn new(load: Load, front_end: FrontEnd) -> Self {
        Self {
            load,
            front_end,
            best: None,
        }
    }

    fn take(&mut self, measured: Measured) {
        if self
            .best
            .as_ref()
            .is_none_or(|best| measured.iops > best.iops)
        {
            self.best = Some(measured);
        }
    }

    fn iops(&self) -> Option<f64> {
        self.best.as_ref().map(|best| best.iops)
    }

    /// Its rate as a multiple of that over NVMe/TCP.
    fn ratio(&self, all: &[Self]) -> Option<f64> {
        let over_tcp = |line: &&Self| line.load == self.load && line.front_end == FrontEnd::Tcp;
        // A machine that is busy with other things may finish nothing in a short run.
        let tcp = all
            .iter()
            .find(over_tcp)?
            .iops()
            .filter(|iops| *iops > 0.0)?;
        Some(self.iops()? / tcp)
    }

    fn row(&self, all: &[Self]) -> Vec<Value> {
        let real = |value: Option<f64>| value.map_or(Value::Missing, Value::Real);
        let us = |part| {
            let best = self.best.as_ref();
            real(best.map(|best| best.latency.percentile(part) as f64 / 1e3))
        };
        vec![
            Value::Text(self.load.label()),
            Value::Text(self.front_end.label().into()),
            real(self.iops()),
            real(self.iops().map(|iops| iops * f64::from(self.load.bytes))),
            us(500_000),
            us(990_000),
            real(self.ratio(all)),
        ]
    }
}

fn chart(lines: &[Line]) -> Chart {
    let of = |front_end| Series {
        label: FrontEnd::label(front_end).into(),
        points: (0..)
            .map(f64::from)
            .zip(
                lines
                    .iter()
                    .filter(|line| line.front_end == front_end)
                    .map(|line| line.ratio(lines).unwrap_or(0.0)),
            )
            .collect(),
    };
    Chart {
        name: "ratio",
        title: "A function beside NVMe/TCP".into(),
        claim: "I/Os per second as a multiple of those over NVMe/TCP, from the same core.".into(),
        kind: ChartKind::Bars {
            categories: LOADS.iter().map(|load| load.label()).collect(),
        },
        x: Axis {
            label: "load".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        },
        y: Axis {
            label: "times the rate of NVMe/TCP".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        },
        series: vec![of(FrontEnd::Tcp), of(FrontEnd::Function)],
        marks: Vec::new(),
    }
}

/// Something that was needed could not be had.
fn refused(what: &str, why: impl std::fmt::Display) -> Refused {
    Refused::Conflict(format!("{what}: {why}"))
}

/// The other thread has ended without a word.
fn ended(_: mpsc::RecvError) -> Refused {
    Refused::Conflict("the target of the experiment has ended".into())
}
