//! Test 19, continued: sets of parameters that write at the same rate and differ in what reads
//! suffer from it.
//!
//! The figures are those of the study in which the sets were chosen. It used another model; only
//! the parameters are kept here.

use flashyard_time::Duration;

use super::bench::{Bench, FRAGMENTED, shipped};
use super::row::Row;
use flashyard_flash::Profile;
use flashyard_flash::workload::{Tally, Worker, closed_loop};

/// A set, and what the study found on a fragmented drive.
struct Studied {
    profile: &'static str,
    /// Random writes at depth 32, in thousands a second.
    writes: f64,
    /// Seven reads to three writes at depth 128, in thousands a second.
    mixed: f64,
    /// Microseconds of a read, one after another, beside writes at depth 32.
    beside: f64,
    /// Reads of eight readers beside eight writers, each at depth 32, in thousands a second.
    shared: f64,
}

const STUDY: [Studied; 5] = [
    studied("dct983", 43.6, 119.0, 147.0, 228.0),
    studied("dct983-a0", 43.6, 125.0, 977.0, 174.0),
    studied("dct983-b", 43.1, 137.0, 201.0, 298.0),
    studied("dct983-c", 44.7, 118.0, 546.0, 248.0),
    studied("dct983-d", 48.8, 143.0, 158.0, 266.0),
];

const BUSY: &str = "19 K programs a second of 1.36 ms on 32 dies, not suspended, are met by 82 % of the reads and \
    hold them for 0.56 ms in the mean: 0.64 ms in all";

/// The rows of a full run.
pub(super) fn compared(bench: &Bench) -> Vec<Row> {
    STUDY.iter().flat_map(|set| rows(bench, set)).collect()
}

fn rows(bench: &Bench, set: &Studied) -> Vec<Row> {
    let profile = shipped(set.profile);
    let mixed = Worker {
        reads: 70,
        ..Worker::reader(128)
    };
    let mut crowd = [Worker::reader(32); 16];
    crowd[8..].fill(Worker::writer(32));
    let load = |workers: &[Worker], span| load(bench, &profile, workers, span);
    let (writes, _) = load(&[Worker::writer(32)], bench.long);
    let (mixed, _) = load(&[mixed], bench.long);
    let (_, beside) = load(&[Worker::reader(1), Worker::writer(32)], bench.long);
    let (_, shared) = load(&crowd, bench.long.scale(1, 2));
    let seconds = shared[0].span.as_secs_f64();
    let shared: u64 = shared.iter().map(|tally| tally.reads.count()).sum();
    let beside = beside[0].reads.mean() as f64 / 1e3;
    let row = |what, oracle, measured| {
        let test = format!("{}: {what}", set.profile);
        Row::near(test, oracle, measured, 0.1).note("the study's own model")
    };
    let mut rows = Vec::new();
    rows.push(row("fragmented writes, IOPS", set.writes * 1e3, writes));
    rows.push(row("70:30 mix, IOPS", set.mixed * 1e3, mixed));
    let read = row("read beside writes, us", set.beside, beside);
    rows.push(if set.profile == "dct983-c" {
        read.unless_within(BUSY)
    } else {
        read
    });
    let shared = shared as f64 / seconds;
    rows.push(row(
        "reads beside as many writers, IOPS",
        set.shared * 1e3,
        shared,
    ));
    rows
}

/// I/Os per second of the first worker, and what all got.
fn load(bench: &Bench, profile: &Profile, workers: &[Worker], span: Duration) -> (f64, Vec<Tally>) {
    let mut device = bench.device(profile, FRAGMENTED);
    let tallies = closed_loop(&mut device, workers, span.scale(1, 2), span, 3);
    let first = &tallies[0];
    ((first.read_iops() + first.write_iops()) as f64, tallies)
}

const fn studied(
    profile: &'static str,
    writes: f64,
    mixed: f64,
    beside: f64,
    shared: f64,
) -> Studied {
    Studied {
        profile,
        writes,
        mixed,
        beside,
        shared,
    }
}
