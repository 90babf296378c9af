//! Tests 10, 11 and 18: drives of which figures were published.

use flashyard_time::Duration;

use super::bench::{Bench, FRAGMENTED, shipped};
use super::row::Row;
use flashyard_flash::Profile;
use flashyard_flash::profile::Victim;
use flashyard_flash::ssd::Condition;
use flashyard_flash::workload::Worker;

/// Test 10: figures of the DCT 983 and its twin, the PM983.
pub(super) fn dct983(bench: &Bench) -> Vec<Row> {
    // Below 2 GiB there are too few superblocks to collect from as the real drive does.
    let bench = bench.with_capacity(bench.capacity.max(2 << 30));
    let load = |condition, worker, span| bench.load(&bench.profile, condition, worker, span);
    let reads = load(FRAGMENTED, Worker::reader(128), bench.short).read_iops() as f64;
    let writes = load(FRAGMENTED, Worker::writer(32), bench.long).write_iops() as f64;
    let mixed = Worker {
        reads: 70,
        ..Worker::reader(128)
    };
    let mixed = load(FRAGMENTED, mixed, bench.long);
    let both = (mixed.read_iops() + mixed.write_iops()) as f64;
    let large = load(Condition::Clean, Worker::streamer(32, 100), bench.short);
    let large = large.bytes_per_second() as f64;
    let span = Duration::from_ms(250);
    let clean = load(Condition::Empty, Worker::streamer(32, 0), span).bytes_per_second() as f64;
    vec![
        Row::near("DCT 983: 4 KiB reads, IOPS", 400e3, reads, 0.1).note("data sheet of the PM983"),
        Row::near("DCT 983: 4 KiB writes, fragmented, IOPS", 42e3, writes, 0.1)
            .note("data sheet of the PM983: 40 K; 44 K where writes cost as Gimbal found"),
        Row::near(
            "DCT 983: reads for a write, fragmented",
            9.0,
            reads / writes,
            0.1,
        )
        .note("Gimbal's worst write cost"),
        Row::near(
            "DCT 983: reads for a write, 128 KiB clean",
            2.7,
            large / clean,
            0.1,
        )
        .note("measured for Gimbal"),
        Row::near(
            "DCT 983: 70:30 mix for reads alone",
            0.30,
            both / reads,
            0.1,
        )
        .note("measured for Gimbal"),
    ]
}

/// Test 11: figures of the 970 PRO's data sheet. NVMeVirt meets them within 12 %.
pub(super) fn pro970(bench: &Bench) -> Vec<Row> {
    let profile = shipped("970pro");
    let load = |condition, worker, span| bench.load(&profile, condition, worker, span);
    let reads = load(FRAGMENTED, Worker::reader(128), bench.short).read_iops() as f64;
    let large = load(Condition::Clean, Worker::streamer(32, 100), bench.short);
    let write = load(
        Condition::Empty,
        Worker::streamer(32, 0),
        Duration::from_ms(150),
    );
    let large = large.bytes_per_second() as f64;
    let write = write.bytes_per_second() as f64;
    vec![
        Row::near("970 PRO: 4 KiB reads, IOPS", 370e3, reads, 0.12),
        Row::near("970 PRO: 128 KiB reads, B/s", 3.5e9, large, 0.12),
        Row::near("970 PRO: 128 KiB writes, B/s", 2.3e9, write, 0.12),
    ]
}

/// Test 18: MQSim 7ec40e3b with its own configuration, which a run of it served with 242 K random
/// reads per second at depth 128. Its scheduler gives work only to chips that do nothing, so a chip
/// is what is a die here.
pub(super) fn other_simulator(bench: &Bench) -> Vec<Row> {
    let profile = Profile {
        gc_victim: Victim::Greedy,
        channels: 8,
        dies_per_channel: 4,
        planes: 2,
        page_bytes: 8192,
        page_types: 2,
        pages_per_program: 1,
        read_lower_ns: 75_000,
        read_middle_ns: 75_000,
        read_upper_ns: 75_000,
        program_ns: 750_000,
        program_upper_ns: 750_000,
        erase_ns: 3_800_000,
        channel_bytes_per_second: 333_000_000,
        link_bytes_per_second: 4_000_000_000,
        ..shipped("dct983")
    };
    let reads = bench.load(&profile, FRAGMENTED, Worker::reader(128), bench.short);
    vec![
        Row::near(
            "MQSim's drive: 4 KiB reads, depth 128, IOPS",
            242e3,
            reads.read_iops() as f64,
            0.15,
        )
        .note("MQSim gives work only to idle chips: a chip of its drive is a die of ours")
        .unless_within(
            "MQSim sends no command while data waits for a channel, so its chips work in step: at most 32 reads in \
             75 + 4 x 12.3 us, 258 K; here every die goes on by itself",
        ),
    ]
}
