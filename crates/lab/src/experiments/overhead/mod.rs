//! What a volume costs beside the device below it: volumes of several kinds on devices in memory,
//! measured one after the other on one core of this machine, for the experiments that ask that.

mod content;
mod site;

use flashyard_codec::compress::Codec;
use flashyard_runtime::{Rt, uring};
use flashyard_time::Histogram;

pub(super) use content::Content;
use site::Site;

use crate::experiment::{Context, Domain, Refused, Setting};

/// What a user may set of each of these experiments.
pub(super) const SETTINGS: [Setting; 3] = [
    Setting {
        key: "mib",
        default: "64",
        domain: Domain::Number(4, 4096),
        meaning: "size of each volume in MiB",
    },
    Setting {
        key: "ms",
        default: "200",
        domain: Domain::Number(1, 60_000),
        meaning: "length of a run in milliseconds",
    },
    Setting {
        key: "runs",
        default: "5",
        domain: Domain::Number(1, 1000),
        meaning: "runs of each load, of which the best counts",
    },
];

/// How a volume keeps its data, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Raw,
    /// On an encrypted device.
    Encrypted,
    /// On two copies, which each read compares or not.
    Mirror {
        safe_read: bool,
    },
    Mapped {
        chunk: u32,
        codec: Option<Codec>,
    },
}

impl Stack {
    pub(super) fn label(self) -> String {
        match self {
            Self::Raw => "raw".into(),
            Self::Encrypted => "raw, encrypted device".into(),
            Self::Mirror { safe_read: false } => "raw, mirror of two".into(),
            Self::Mirror { safe_read: true } => "raw, mirror of two, safe read".into(),
            Self::Mapped { chunk, codec } => {
                let codec = codec.map_or("none".into(), |codec| codec.to_string());
                format!("mapped, {} KiB, {codec}", chunk >> 10)
            }
        }
    }
}

/// I/Os of so many bytes, so many at a time, anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) write: bool,
    pub(super) bytes: u64,
    pub(super) depth: u64,
}

impl Load {
    pub(super) fn label(self) -> String {
        let kind = if self.write { "write" } else { "read" };
        let size = match self.bytes >> 20 {
            0 => format!("{} KiB", self.bytes >> 10),
            mib => format!("{mib} MiB"),
        };
        format!("{size} {kind}, QD {}", self.depth)
    }
}

/// What a load got in its best run.
#[derive(Clone, Default)]
pub(super) struct Measured {
    pub(super) iops: f64,
    /// CPU time of the core for each I/O, in nanoseconds.
    pub(super) cpu_ns: f64,
    pub(super) latency: Histogram,
}

/// A volume that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) stack: Stack,
    pub(super) content: Content,
}

/// How it is measured.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Size of each volume.
    pub(super) mib: u64,
    /// Length of a run.
    pub(super) ms: u64,
    pub(super) runs: u64,
}

impl Plan {
    pub(super) fn of(context: &Context) -> Self {
        match context.quick {
            true => Self {
                mib: 4,
                ms: 5,
                runs: 1,
            },
            false => Self {
                mib: context.number("mib"),
                ms: context.number("ms"),
                runs: context.number("runs"),
            },
        }
    }
}

/// Measures each load at each volume, all of them in turn, several times; gives the best run of
/// each, by volume and load.
pub(super) fn measure(
    context: &Context,
    cases: &[Case],
    loads: &[Load],
) -> Result<Vec<Vec<Measured>>, Refused> {
    let plan = Plan::of(context);
    context.progress.begin(plan.runs);
    let mut best = vec![vec![Measured::default(); loads.len()]; cases.len()];
    for number in 0..plan.runs {
        if context.progress.is_stopped() {
            break;
        }
        let (cases, loads) = (cases.to_vec(), loads.to_vec());
        let run = move |rt| in_turn(rt, cases, loads, (plan, number));
        let found = uring::run(uring::Config::default(), run);
        let found =
            found.map_err(|error| Refused::Conflict(format!("no core can be run: {error}")))?;
        let pairs = best.iter_mut().flatten().zip(found.into_iter().flatten());
        for (best, found) in pairs.filter(|(best, found)| best.iops < found.iops) {
            *best = found;
        }
        context.progress.step(&format!("run {}", number + 1));
    }
    match best.iter().flatten().all(|best| best.iops > 0.0) {
        true => Ok(best),
        false => Err(Refused::Stopped),
    }
}

async fn in_turn(
    rt: Rt,
    cases: Vec<Case>,
    loads: Vec<Load>,
    (plan, number): (Plan, u64),
) -> Vec<Vec<Measured>> {
    let mut sites = Vec::new();
    for case in cases {
        sites.push(Site::new(&rt, case, plan.mib).await);
    }
    let mut found = vec![Vec::new(); sites.len()];
    for load in loads {
        for (site, found) in sites.iter().zip(&mut found) {
            found.push(site.run(&rt, load, (plan.ms, number)).await);
        }
    }
    for site in sites {
        site.close().await;
    }
    found
}
