//! Tests 6 to 9: the rate of writes, and what garbage collection makes of them.

use flashyard_time::{Duration, Rng};

use super::bench::{Bench, FRAGMENTED};
use super::oracle::{Stages, amplification, amplification_of_classes};
use super::row::Row;
use flashyard_flash::profile::Victim;
use flashyard_flash::ssd::{Command, Condition, Device, Op, Stats};
use flashyard_flash::workload::Worker;
use flashyard_flash::{Profile, UNIT_BYTES};

/// Test 6: all dies program without a break.
pub(super) fn sequential(bench: &Bench) -> Vec<Row> {
    let write = bench.load(
        &bench.profile,
        Condition::Empty,
        Worker::streamer(32, 0),
        Duration::from_ms(250),
    );
    vec![Row::near(
        "128 KiB writes bound by dies, B/s",
        Stages::of(&bench.profile).write_rate(),
        write.bytes_per_second() as f64,
        0.02,
    )]
}

/// Test 7: greedy collection under uniformly random writes against the closed form.
pub(super) fn greedy(bench: &Bench) -> Vec<Row> {
    let points = [
        ("write amplification, 5 % spare", 50_000),
        ("write amplification, 7 % spare", 70_000),
        ("write amplification, 9 % spare", 90_000),
        ("write amplification, 12 % spare", 120_000),
        ("write amplification, 20 % spare", 200_000),
        ("write amplification, 28 % spare", 280_000),
        ("write amplification, 60 % spare", 600_000),
        ("write amplification, 100 % spare", 1_000_000),
    ];
    // With little spare flash a small drive has too few superblocks for the limit of large blocks.
    let points = if bench.full {
        &points[..]
    } else {
        &points[5..]
    };
    let row = |&(test, spare_ppm)| {
        let profile = Profile {
            spare_ppm,
            ..bench.profile.clone()
        };
        let mut device = bench.device(&profile, FRAGMENTED);
        let oracle = amplification(flash_for_data(&device));
        let mut load = Load::uniform(&device, 1);
        let measured = load.write(&mut device, if bench.full { 1.0 } else { 0.25 });
        Row::within(test, oracle, measured, (0.05, 0.01))
            .note("greedy does up to 3 % better than the limit for large blocks")
    };
    points.iter().map(row).collect()
}

/// Test 8: collection in order of age has exact closed forms; deallocated units count as spare;
/// streams of their own for hot and cold data help a greedy collector.
pub(super) fn by_age_and_kind(bench: &Bench) -> Vec<Row> {
    let bench = bench.with_spare(280_000).with_capacity(bench.capacity / 2);
    let by_age = Profile {
        gc_victim: Victim::Fifo,
        ..bench.profile.clone()
    };
    let measured = |profile: &Profile, load: &dyn Fn(&Device) -> Load, settle: f64| {
        let mut device = bench.device(profile, FRAGMENTED);
        let mut load = load(&device);
        load.write(&mut device, settle);
        let ratio = flash_for_data(&device);
        (ratio, load.write(&mut device, 0.5))
    };
    let hinted = |hinted| move |device: &Device| Load::skewed(device, hinted);
    let (ratio, plain) = measured(&by_age, &|device| Load::uniform(device, 1), 0.0);
    let (_, trimmed) = measured(&by_age, &Load::with_deallocation, 4.0);
    let in_use = 1.0 - DEALLOCATIONS as f64 / 100.0;
    let row = |test, oracle, measured| Row::near(test, oracle, measured, 0.03);
    let mut rows = vec![
        row("in order of age, uniform", amplification(ratio), plain),
        row(
            "in order of age, 10 % of commands deallocate",
            amplification(ratio / in_use),
            trimmed,
        )
        .note("in equilibrium a tenth of the addresses is not in use (Frankie et al.)"),
    ];
    if bench.full {
        let classes = [(HOT_DATA, HOT_WRITES), (1.0 - HOT_DATA, 1.0 - HOT_WRITES)];
        let of_classes = amplification_of_classes(ratio, &classes);
        let (_, skewed) = measured(&by_age, &hinted(false), 4.0);
        let (_, apart) = measured(&by_age, &hinted(true), 4.0);
        let (_, mixed) = measured(&bench.profile, &hinted(false), 4.0);
        let (_, separate) = measured(&bench.profile, &hinted(true), 4.0);
        rows.push(
            row("in order of age, hot and cold", of_classes, skewed)
                .note("90 % of writes to 10 % of data: Desnoyers' closed form for two classes"),
        );
        rows.push(
            row("in order of age, streams of their own", of_classes, apart)
                .note("all flash waits for its turn, whatever it holds: streams change nothing"),
        );
        let below = (1.0, 0.0);
        rows.push(
            Row::within("greedy, streams of their own", mixed, separate, below)
                .note("below hot and cold data mixed"),
        );
    }
    rows
}

/// Test 9: the dies' time for a unit written. Round-robin placement leaves some of it idle.
pub(super) fn fragmented(bench: &Bench) -> Vec<Row> {
    let mut device = bench.device(&bench.profile, FRAGMENTED);
    let span = bench.long;
    let load = [Worker::writer(32)];
    flashyard_flash::workload::closed_loop(&mut device, &load, span.scale(1, 2), Duration::ZERO, 3);
    let before = device.stats();
    let tally = flashyard_flash::workload::closed_loop(&mut device, &load, Duration::ZERO, span, 4)
        .remove(0);
    let amplification = device.stats().since(&before).write_amplification() as f64 / 1e3;
    let oracle = Stages::of(&bench.profile).fragmented_writes(amplification);
    let iops = tally.write_iops() as f64;
    let row = Row::within("fragmented writes, IOPS", oracle, iops, (0.15, 0.0));
    vec![row.note("bound of the dies' time; rows in turn leave a die idle while others lag")]
}

/// The share of the data that is hot, and the share of the writes that go there.
const HOT_DATA: f64 = 0.1;
const HOT_WRITES: f64 = 0.9;
/// How many of a hundred commands deallocate.
const DEALLOCATIONS: u64 = 10;

/// Writes of single units, as many in flight as a drive with a buffer needs to be busy.
pub(super) struct Load {
    chance: Rng,
    capacity: u64,
    /// Units that are hot, and whether the drive is given the hint.
    hot: Option<(u64, bool)>,
    /// How many of a hundred commands deallocate.
    deallocations: u64,
}

impl Load {
    /// Writes all over the drive.
    pub fn uniform(device: &Device, seed: u64) -> Self {
        Self {
            chance: Rng::new(seed),
            capacity: device.capacity() / UNIT_BYTES,
            hot: None,
            deallocations: 0,
        }
    }

    fn skewed(device: &Device, hinted: bool) -> Self {
        let load = Self::uniform(device, 2);
        let hot = (load.capacity as f64 * HOT_DATA) as u64;
        Self {
            hot: Some((hot, hinted)),
            ..load
        }
    }

    fn with_deallocation(device: &Device) -> Self {
        Self {
            deallocations: DEALLOCATIONS,
            ..Self::uniform(device, 3)
        }
    }

    /// Issues `fill` times as many commands as the drive has units. Returns the write amplification
    /// meanwhile.
    pub fn write(&mut self, device: &mut Device, fill: f64) -> f64 {
        let before = device.stats();
        let mut done = Vec::new();
        for _ in 0..(self.capacity as f64 * fill) as u64 {
            while device.outstanding() >= 32 {
                let next = device.next_event().expect("what is in flight ends");
                device.advance(next, &mut done);
            }
            done.clear();
            let command = self.next();
            device
                .submit(device.now(), command)
                .expect("the address lies on the drive");
        }
        exact_amplification(&device.stats().since(&before))
    }

    fn next(&mut self) -> Command {
        let (start, op) = match self.hot {
            Some((hot, hinted)) => {
                if self.chance.chance((HOT_WRITES * 100.0) as u64, 100) {
                    (self.chance.below(hot), Op::Write)
                } else {
                    let op = if hinted { Op::WriteCold } else { Op::Write };
                    (hot + self.chance.below(self.capacity - hot), op)
                }
            }
            None if self.chance.chance(self.deallocations, 100) => {
                (self.chance.below(self.capacity), Op::Deallocate)
            }
            None => (self.chance.below(self.capacity), Op::Write),
        };
        Command {
            tag: 0,
            op,
            start,
            units: 1,
        }
    }
}

/// Flash that data can lie on, for each byte of capacity: what is kept free is not.
fn flash_for_data(device: &Device) -> f64 {
    let superblocks =
        device.erase_counts().len() as u64 - u64::from(device.stats().free_superblocks);
    let units = superblocks * u64::from(device.superblock_units());
    units as f64 * UNIT_BYTES as f64 / device.capacity() as f64
}

fn exact_amplification(stats: &Stats) -> f64 {
    let all = stats.written_units + stats.moved_units + stats.padded_units;
    all as f64 / stats.written_units as f64
}
