//! What a policy costs the processor: experiment E7 of the Gimbal study. Measured, not simulated.

mod clock;
mod engine;
mod policy;

use flashyard_sched::POLICY_NAMES;

use super::columns::{IOPS, POLICY, column};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct GimbalOverhead;

const CLAIM: &str = "A switch decides about every I/O, and what it takes for that the processor has not for anything else. Measured on the \
machine that runs this, the best of several runs: each policy by itself, apart for what is done when an I/O comes (with \
the dispatches that follow) and when one ends (with those that follow that); and the engine's switch with port, stamps, books, executor and a \
null device, without commands and network, in I/Os per second of time that its thread ran. Virtual time goes on as on a drive of 400,000 I/Os a second. \
An I/O over NVMe/TCP costs a core about 1 us in all (docs/performance.md), so the last column is a share of much less than what a target \
does for an I/O.";

const LOADS: [Load; 3] = [
    Load {
        tenants: 1,
        depth: 1,
    },
    Load {
        tenants: 1,
        depth: 32,
    },
    Load {
        tenants: 16,
        depth: 32,
    },
];

/// So many tenants, each with so many I/Os in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Load {
    tenants: u32,
    depth: u32,
}

const SETTINGS: [Setting; 2] = [
    Setting {
        key: "ios",
        default: "1000000",
        domain: Domain::Number(1_000, 100_000_000),
        meaning: "I/Os of one run",
    },
    Setting {
        key: "runs",
        default: "5",
        domain: Domain::Number(1, 100),
        meaning: "runs, of which the best counts",
    },
];

const COLUMNS: [Column; 8] = [
    column("load", "load", Unit::None),
    POLICY,
    column("submit_ns", "ns to submit", Unit::None),
    column("complete_ns", "ns to complete", Unit::None),
    column("both_ns", "ns for both", Unit::None),
    column("more_ns", "ns more than fifo", Unit::None),
    IOPS,
    column("fewer_percent", "IOPS fewer than fifo", Unit::Percent),
];

/// What one policy costs under one load, as far as measured.
struct Cost {
    load: Load,
    policy: &'static str,
    /// Nanoseconds for each I/O.
    best: Option<Spent>,
    iops: f64,
}

/// Nanoseconds that a policy takes for an I/O.
#[derive(Clone, Copy)]
struct Spent {
    /// When it comes; unknown where one I/O is all there is, as the clock takes longer.
    submit: Option<f64>,
    both: f64,
}

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "`fair` costs at most 100 ns more than `fifo` for an I/O",
        judge: |rows| Got::at_most(&rows.with("policy", "fair").numbers("more_ns"), 100.0),
    },
    Promise {
        wanted: "The engine's switch with `fair` does at most 5 % fewer I/Os than with `fifo`",
        judge: |rows| Got::at_most(&rows.with("policy", "fair").numbers("fewer_percent"), 5.0),
    },
];

impl Experiment for GimbalOverhead {
    fn name(&self) -> &'static str {
        "gimbal-overhead"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        POLICY_NAMES
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        if let Some(name) = context
            .policies
            .iter()
            .find(|name| policy::make(name).is_none())
        {
            return Err(Refused::Conflict(format!(
                "`{name}` is a policy of hosts and costs the target nothing; there are {}",
                POLICY_NAMES.join(", ")
            )));
        }
        let (ios, runs) = if context.quick {
            (2_000, 1)
        } else {
            (context.number("ios") as u32, context.number("runs"))
        };
        context.progress.begin(runs);
        let mut costs: Vec<Cost> = LOADS
            .into_iter()
            .flat_map(|load| {
                context
                    .policies
                    .iter()
                    .map(move |policy| Cost::new(load, policy))
            })
            .collect();
        // In turn, so that what else the machine does strikes all alike.
        for run in 0..runs {
            for cost in &mut costs {
                cost.measure(ios);
            }
            context.progress.step(&format!("run {}", run + 1));
            if context.progress.is_stopped() {
                break;
            }
        }
        Ok(Report {
            rows: costs.iter().map(|cost| cost.row(&costs)).collect(),
            charts: vec![chart(&costs, &context.policies)],
            notes: vec![format!(
                "Measured on {}; the differences between policies repeat within about 10 %, the values are those of this machine.",
                std::env::consts::ARCH
            )],
            ..Report::of(self, context, 0, &COLUMNS)
        })
    }
}

impl Load {
    fn label(self) -> String {
        let tenants = if self.tenants == 1 {
            "tenant"
        } else {
            "tenants"
        };
        format!("{} {tenants}, QD {}", self.tenants, self.depth)
    }

    fn in_flight(self) -> u32 {
        self.tenants * self.depth
    }
}

impl Cost {
    fn new(load: Load, policy: &'static str) -> Self {
        Self {
            load,
            policy,
            best: None,
            iops: 0.0,
        }
    }

    /// One more run.
    fn measure(&mut self, ios: u32) {
        let fresh = || policy::make(self.policy).expect("names were checked");
        let spent = policy::run(&mut *fresh(), self.load, ios);
        if self.best.is_none_or(|best| spent.both < best.both) {
            self.best = Some(spent);
        }
        self.iops = self.iops.max(engine::run(fresh(), self.load, ios));
    }

    fn both(&self) -> f64 {
        self.best.map_or(f64::NAN, |best| best.both)
    }

    fn row(&self, all: &[Self]) -> Vec<Value> {
        let of_fifo = |cost: &&Self| cost.policy == "fifo" && cost.load == self.load;
        let fifo = all.iter().find(of_fifo);
        let real = |value: Option<f64>| value.map_or(Value::Missing, Value::Real);
        let submit = self.best.and_then(|best| best.submit);
        vec![
            Value::Text(self.load.label()),
            Value::Text(self.policy.into()),
            real(submit),
            real(submit.map(|submit| self.both() - submit)),
            Value::Real(self.both()),
            real(fifo.map(|fifo| self.both() - fifo.both())),
            Value::Real(self.iops),
            real(fifo.map(|fifo| 100.0 * (1.0 - self.iops / fifo.iops))),
        ]
    }
}

fn chart(costs: &[Cost], policies: &[&'static str]) -> Chart {
    let series = |load: Load| Series {
        label: load.label(),
        points: (0..)
            .map(f64::from)
            .zip(
                costs
                    .iter()
                    .filter(|cost| cost.load == load)
                    .map(Cost::both),
            )
            .collect(),
    };
    Chart {
        name: "cost",
        title: "What a policy costs for an I/O".into(),
        claim: "From its arrival over its dispatch to its end, on a device that costs the processor nothing.".into(),
        kind: ChartKind::Bars {
            categories: policies.iter().map(|policy| (*policy).to_owned()).collect(),
        },
        x: Axis {
            label: "policy".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        },
        y: Axis {
            label: "nanoseconds".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        },
        series: LOADS.map(series).into(),
        marks: Vec::new(),
    }
}
