//! What the log of a mapped pool writes for what hosts write, by how full it is and how skewed the
//! writes are.

use std::rc::Rc;

use flashyard_block::pool::{Kind, Pool};
use flashyard_block::{DeviceExt, MemoryDevice, SharedDevice, Tag};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_time::Rng;

use super::columns::column;
use super::isolation_space::write_amplification;
use crate::bench::fold;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::parallel;
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Row, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct LogWriteAmplification;

const CLAIM: &str = "The fuller a mapped pool is, the more garbage collection moves for each write, and skewed writes cost less than \
uniform ones. One volume is filled so far, and 4 KiB blocks of it are overwritten by chance, 32 at a time, until three times the \
pool's space was written; the next space's worth is measured. Where writes are skewed, most of them go to few of the blocks, which \
lie anywhere. Moved data are those that garbage collection wrote again. Headers come with each batch, and the map with each \
checkpoint: with 32 in flight batches are short, so headers weigh more than beside deeper queues. The closed form is that of greedy \
collection under uniform writes without headers and map, a / (a + W(-a exp(-a))), with a the log over the data.";

const SETTINGS: [Setting; 1] = [Setting {
    key: "mib",
    default: "512",
    domain: Domain::Number(64, 65_536),
    meaning: "size of the device in MiB",
}];

const COLUMNS: [Column; 9] = [
    column("skew", "writes", Unit::None),
    column("fill_percent", "space in use", Unit::Percent),
    column("log_percent", "of the log", Unit::Percent),
    column("written_bytes", "hosts wrote", Unit::Bytes),
    column("data", "data written per write", Unit::Ratio),
    column("closed_form", "uniform, closed form", Unit::Ratio),
    column("headers", "and headers", Unit::Ratio),
    column("map", "and map", Unit::Ratio),
    column("all", "all", Unit::Ratio),
];

/// Which blocks are written: so many percent of the writes go to so many percent of the blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Skew(u64, u64);

const SKEWS: [Skew; 4] = [Skew(50, 50), Skew(80, 20), Skew(90, 10), Skew(99, 1)];
const FILLS: [u64; 4] = [60, 70, 80, 90];
const BLOCK: usize = 4096;
const DEPTH: u64 = 32;
/// What is written before anything is measured, in spaces of the pool.
const WARM_UP: u64 = 3;

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "Uniform writes cost more, the fuller the pool is",
        judge: |rows| Got::rising(&rows.with("skew", "uniform").numbers("data")),
    },
    Promise {
        wanted: "Skewed writes cost at most what uniform ones do in a pool as full (within a twentieth)",
        judge: |rows| {
            let part = |row: &Row| {
                let alike = rows.like(row, &["fill_percent"]).with("skew", "uniform");
                Some(row.number("data")? / alike.first()?.number("data")?)
            };
            Got::at_most(&rows.each(part), 1.05)
        },
    },
];

impl Experiment for LogWriteAmplification {
    fn name(&self) -> &'static str {
        "log-write-amplification"
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
        let mib = if context.quick {
            64
        } else {
            context.number("mib")
        };
        let mut jobs = Vec::new();
        for skew in SKEWS {
            jobs.extend(FILLS.map(|fill| Job {
                skew,
                fill,
                mib,
                seed: context.seed,
            }));
        }
        if context.quick {
            jobs.retain(|job| job.fill == 80 && [SKEWS[0], SKEWS[3]].contains(&job.skew));
        }
        context.progress.begin(jobs.len() as u64);
        let found = parallel::map(context.progress, &jobs, |job| {
            let found = job.run();
            context
                .progress
                .step(&format!("{}, {} % full", job.skew.label(), job.fill));
            found
        })?;
        let digest = found.iter().flat_map(Found::counts).fold(0, fold);
        Ok(Report {
            rows: jobs
                .iter()
                .zip(&found)
                .map(|(job, found)| found.row(job))
                .collect(),
            charts: vec![chart(&jobs, &found)],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

impl Skew {
    fn label(self) -> String {
        match self {
            Self(50, 50) => "uniform".into(),
            Self(writes, blocks) => format!("{writes} % to {blocks} %"),
        }
    }

    /// A block of `blocks`; those that are written often lie anywhere.
    fn pick(self, rng: &mut Rng, blocks: u64) -> u64 {
        let Self(writes, part) = self;
        let hot = (blocks * part / 100).max(1);
        let place = match rng.below(100) < writes {
            true => rng.below(hot),
            false => hot + rng.below(blocks - hot),
        };
        // A prime above the number of blocks: each place is one block.
        (u128::from(place) * 0x9E37_79B1 % u128::from(blocks)) as u64
    }
}

/// One pool.
struct Job {
    skew: Skew,
    fill: u64,
    mib: u64,
    seed: u64,
}

/// What was written while it was measured, in blocks.
struct Found {
    host: u64,
    moved: u64,
    headers: u64,
    map: u64,
    /// Blocks of the volume, and of the log.
    data: u64,
    log: u64,
}

impl Job {
    /// In a world of its own.
    fn run(&self) -> Found {
        let world = World::new(Config {
            max_steps: u64::MAX,
            ..Config::calm(self.seed)
        });
        let machine = world.machine(1);
        let (skew, fill, mib, seed) = (self.skew, self.fill, self.mib, self.seed);
        world.run(&machine, move |rt| async move {
            measure(&rt, skew, fill, mib, seed).await
        })
    }
}

async fn measure(rt: &Rt, skew: Skew, fill: u64, mib: u64, seed: u64) -> Found {
    let device = Rc::new(MemoryDevice::new(BLOCK as u32, mib << 20).expect("whole blocks"));
    let pool = Pool::create_kind(rt, device, [1; 16], Kind::Mapped, false).await;
    let Pool::Mapped(pool) = pool.expect("the device is new") else {
        unreachable!("it was made so");
    };
    let space = pool.info().bytes / BLOCK as u64;
    let blocks = space * fill / 100;
    let all = Pool::Mapped(pool.clone());
    let volume = all.create_volume("v", [2; 16], blocks * BLOCK as u64).await;
    let volume = volume.expect("there is room");
    for block in 0..blocks {
        write(&volume, block).await;
    }
    overwrite(rt, &volume, skew, (blocks, WARM_UP * space), seed).await;
    let before = pool.stats();
    overwrite(rt, &volume, skew, (blocks, space), !seed).await;
    let after = pool.stats();
    let found = Found {
        host: after.host_blocks - before.host_blocks,
        moved: after.moved_blocks - before.moved_blocks,
        headers: after.header_blocks - before.header_blocks,
        map: after.map_blocks - before.map_blocks,
        data: blocks,
        log: pool.log_bytes() / BLOCK as u64,
    };
    drop(volume);
    pool.close().await;
    found
}

/// Overwrites `count` of `blocks`, some at a time.
async fn overwrite(
    rt: &Rt,
    volume: &SharedDevice,
    skew: Skew,
    (blocks, count): (u64, u64),
    seed: u64,
) {
    let work = |task| {
        let (volume, mut rng) = (volume.clone(), Rng::new(seed ^ task << 32));
        async move {
            for _ in 0..count / DEPTH {
                write(&volume, skew.pick(&mut rng, blocks)).await;
            }
        }
    };
    let tasks: Vec<_> = (0..DEPTH).map(|task| rt.spawn(work(task))).collect();
    for task in tasks {
        task.await;
    }
}

async fn write(volume: &SharedDevice, block: u64) {
    let mut data = Buf::take(BLOCK).expect("memory for one");
    // Data that no pool leaves out, as it may do with zeroes.
    data.fill(1 + block as u8 / 2);
    let written = volume.write(Tag::default(), block, data, false).await;
    written.expect("its blocks fit into the pool");
}

impl Found {
    fn counts(&self) -> [u64; 4] {
        [self.host, self.moved, self.headers, self.map]
    }

    fn per_write(&self, blocks: u64) -> f64 {
        blocks as f64 / self.host as f64
    }

    fn row(&self, job: &Job) -> Vec<Value> {
        let over = self.log as f64 / self.data as f64;
        vec![
            Value::Text(job.skew.label()),
            Value::Count(job.fill),
            Value::Real(100.0 / over),
            Value::Count(self.host * BLOCK as u64),
            Value::Real(self.per_write(self.host + self.moved)),
            Value::Real(write_amplification(over)),
            Value::Real(self.per_write(self.headers)),
            Value::Real(self.per_write(self.map)),
            Value::Real(self.per_write(self.counts().iter().sum())),
        ]
    }
}

fn chart(jobs: &[Job], found: &[Found]) -> Chart {
    let series = |skew: Skew| Series {
        label: skew.label(),
        points: jobs
            .iter()
            .zip(found)
            .filter(|(job, _)| job.skew == skew)
            .map(|(job, found)| (job.fill as f64, found.per_write(found.host + found.moved)))
            .collect(),
    };
    let axis = |label: &str, unit| Axis {
        label: label.into(),
        unit,
        scale: Scale::Linear,
    };
    Chart {
        name: "data",
        title: "Data written for each write".into(),
        claim: "It grows with what is in use, less where few blocks are written often.".into(),
        kind: ChartKind::Lines,
        x: axis("space in use", Unit::Percent),
        y: axis("blocks of data per block", Unit::Ratio),
        series: SKEWS.map(series).into(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skew_sends_its_part_of_the_writes_to_its_part_of_the_blocks() {
        for skew in SKEWS {
            let Skew(writes, part) = skew;
            let (mut rng, mut counts) = (Rng::new(3), vec![0u64; 100]);
            for _ in 0..100_000 {
                counts[skew.pick(&mut rng, 100) as usize] += 1;
            }
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let hot: u64 = counts[..part as usize].iter().sum();
            let expected = writes * 1000;
            // The half that was written more often by chance has more than half.
            assert!(hot.abs_diff(expected) < 6000, "{skew:?}: {hot}");
            assert!(counts.iter().all(|count| *count > 0), "{skew:?}");
        }
    }
}
