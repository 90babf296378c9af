//! What compression costs and saves by size of I/O and kind of data.

use flashyard_codec::compress::Codec;

use super::columns::{BANDWIDTH, P99, column};
use super::overhead::{Case, Content, Load, Measured, SETTINGS, Stack, measure};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Column, Got, Promise, Report, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct Compression;

const CLAIM: &str = "Compression on the core of the pool costs text an order of magnitude before a device as fast as memory, incompressible data a \
third of their writes, and zeroes nothing (the FlexBSO study lost four orders of magnitude with a compressing layer). Volumes with chunks of \
16 KiB on devices in memory are written and read at random, eight at a time, without a network, one after the other on one core; the best of \
several runs counts. A fourth of the text is left by Zstandard; I/O smaller than a chunk reads and writes all of it.";

const COLUMNS: [Column; 7] = [
    column("load", "load", Unit::None),
    column("content", "data", Unit::None),
    column("codec", "compression", Unit::None),
    BANDWIDTH,
    column("of_none", "of uncompressed", Unit::Ratio),
    P99,
    column("cpu_us", "CPU time each", Unit::Micros),
];

const CODECS: [Option<Codec>; 3] = [None, Some(Codec::Lz4), Some(Codec::Zstd)];
const CONTENTS: [Content; 3] = [Content::Text, Content::Random, Content::Zeroes];
const KIB: [u64; 5] = [4, 16, 64, 128, 1024];
const DEPTH: u64 = 8;

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "Data that cannot be compressed are written with at least 0.9 of the rate without compression",
        judge: |rows| {
            let tried = rows
                .with("content", "random")
                .that(|row| row.word("load").contains("write"));
            Got::at_least(&tried.numbers("of_none"), 0.9)
        },
    },
    Promise {
        wanted: "Zeroes cost nothing",
        judge: |rows| Got::at_least(&rows.with("content", "zeroes").numbers("of_none"), 1.0),
    },
];

impl Experiment for Compression {
    fn name(&self) -> &'static str {
        "compression"
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
        let kinds = CONTENTS.map(|content| {
            CODECS.map(|codec| Case {
                stack: Stack::Mapped {
                    chunk: 16 << 10,
                    codec,
                },
                content,
            })
        });
        let load = |write, kib: u64| Load {
            write,
            bytes: kib << 10,
            depth: DEPTH,
        };
        let loads = [true, false].map(|write| KIB.map(|kib| load(write, kib)));
        let (cases, loads) = (kinds.as_flattened(), loads.as_flattened());
        let found = measure(context, cases, loads)?;
        let mut rows = Vec::new();
        for (at, load) in loads.iter().enumerate() {
            for (cases, found) in cases.chunks(CODECS.len()).zip(found.chunks(CODECS.len())) {
                let plain = found[0][at].iops;
                let lines = cases.iter().zip(CODECS).zip(found);
                rows.extend(lines.map(|((case, codec), line)| {
                    row(*load, (case.content, codec), &line[at], plain)
                }));
            }
        }
        Ok(Report {
            rows,
            ..Report::of(self, context, 0, &COLUMNS)
        })
    }
}

fn row(
    load: Load,
    (content, codec): (Content, Option<Codec>),
    measured: &Measured,
    plain: f64,
) -> Vec<Value> {
    vec![
        Value::Text(load.label()),
        Value::Text(content.label().into()),
        Value::Text(codec.map_or("none".into(), |codec| codec.to_string())),
        Value::Real(measured.iops * load.bytes as f64),
        Value::Real(measured.iops / plain),
        Value::Real(measured.latency.percentile(990_000) as f64 / 1e3),
        Value::Real(measured.cpu_ns / 1e3),
    ]
}
