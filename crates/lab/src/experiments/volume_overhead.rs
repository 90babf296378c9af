//! What a volume costs by what it does with data: raw, encrypted, mirrored, mapped, compressed.

use flashyard_codec::compress::Codec;

use super::columns::{IOPS, P50, P99, column};
use super::overhead::{Case, Content, Load, Measured, SETTINGS, Stack, measure};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Column, Got, Promise, Report, Row, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct VolumeOverhead;

const CLAIM: &str = "Each thing that a volume does for its data has its price in CPU time: most add a microsecond or two to an I/O of 4 KiB, chunks of \
16 KiB some more, and compression of text tens of them. Volumes on devices in memory are read and written at random, without a network, one \
after the other on one core; the best of several runs counts. CPU time is that of the core, device and all. Data are text of which a fourth is \
left when it is compressed.";

const COLUMNS: [Column; 7] = [
    column("load", "load", Unit::None),
    column("volume", "volume", Unit::None),
    IOPS,
    column("of_raw", "of raw", Unit::Ratio),
    P50,
    P99,
    column("cpu_us", "CPU time each", Unit::Micros),
];

const STACKS: [Stack; 8] = [
    Stack::Raw,
    Stack::Encrypted,
    Stack::Mirror { safe_read: false },
    Stack::Mirror { safe_read: true },
    mapped(4, None),
    mapped(16, None),
    mapped(16, Some(Codec::Lz4)),
    mapped(16, Some(Codec::Zstd)),
];

const LOADS: [Load; 5] = [
    load(false, 4, 1),
    load(false, 4, 32),
    load(true, 4, 1),
    load(true, 4, 32),
    load(true, 128, 8),
];

const fn mapped(kib: u32, codec: Option<Codec>) -> Stack {
    let chunk = kib << 10;
    Stack::Mapped { chunk, codec }
}

const fn load(write: bool, kib: u64, depth: u64) -> Load {
    Load {
        write,
        bytes: kib << 10,
        depth,
    }
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Encryption, a mirror, and a mapped volume with chunks of 4 KiB add at most 2 us of CPU time to an I/O of 4 KiB",
    judge: |rows| {
        let more = |row: &Row| {
            let raw = rows.like(row, &["load"]).with("volume", "raw").first()?;
            Some(row.number("cpu_us")? - raw.number("cpu_us")?)
        };
        let few = |row: &Row| {
            row.word("load").starts_with("4 KiB") && !row.word("volume").contains("16 KiB")
        };
        Got::at_most(&rows.that(few).each(more), 2.0)
    },
}];

impl Experiment for VolumeOverhead {
    fn name(&self) -> &'static str {
        "volume-overhead"
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
        let cases = STACKS.map(|stack| Case {
            stack,
            content: Content::Text,
        });
        let found = measure(context, &cases, &LOADS)?;
        let rows = LOADS.iter().enumerate().flat_map(|(at, load)| {
            let raw = found[0][at].iops;
            let lines = STACKS.iter().zip(&found);
            lines.map(move |(stack, line)| row((*load, *stack), &line[at], raw))
        });
        Ok(Report {
            rows: rows.collect(),
            ..Report::of(self, context, 0, &COLUMNS)
        })
    }
}

fn row((load, stack): (Load, Stack), measured: &Measured, raw: f64) -> Vec<Value> {
    let us = |part| Value::Real(measured.latency.percentile(part) as f64 / 1e3);
    vec![
        Value::Text(load.label()),
        Value::Text(stack.label()),
        Value::Real(measured.iops),
        Value::Real(measured.iops / raw),
        us(500_000),
        us(990_000),
        Value::Real(measured.cpu_ns / 1e3),
    ]
}
