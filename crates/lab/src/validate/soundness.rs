//! Tests 13, 15, 16, 17 and 20: properties of the model itself.

use flashyard_time::{Duration, Rng, Time};

use super::bench::{Bench, CpuClock, FRAGMENTED};
use super::row::Row;
use super::writes::Load;
use flashyard_flash::ssd::{Command, Completion, Condition, Device, Op};
use flashyard_flash::workload::{Worker, closed_loop};
use flashyard_flash::{Profile, UNIT_BYTES};

/// Test 13: a drive scaled down behaves as the one it was scaled from, and a fragmented drive that
/// was made as one that was written - and it stays so.
pub(super) fn scaled_and_made(bench: &Bench) -> Vec<Row> {
    let mut rows = capacities(bench);
    if bench.full {
        rows.extend(preconditioning(bench));
    }
    rows
}

fn capacities(bench: &Bench) -> Vec<Row> {
    let mixed = Worker {
        reads: 70,
        ..Worker::reader(128)
    };
    let small = bench.with_capacity(if bench.full { 4 << 30 } else { 1 << 30 });
    let large = bench.with_capacity(if bench.full { 32 << 30 } else { 2 << 30 });
    let row = |test, worker, span: Duration| {
        let iops = |bench: &Bench| {
            let tally = bench.load(&bench.profile, FRAGMENTED, worker, span);
            (tally.read_iops() + tally.write_iops()) as f64
        };
        Row::near(test, iops(&large), iops(&small), 0.05)
    };
    let long = bench.long.scale(1, 2);
    let mut rows = vec![row(
        "fragmented writes, small drive for large, IOPS",
        Worker::writer(32),
        long,
    )];
    if bench.full {
        rows.push(row(
            "reads, small drive for large, IOPS",
            Worker::reader(128),
            bench.short,
        ));
        rows.push(row("70:30 mix, small drive for large, IOPS", mixed, long));
        let beside = |bench: &Bench| {
            let mut device = bench.device(&bench.profile, FRAGMENTED);
            let workers = [Worker::reader(1), Worker::writer(32)];
            let tallies = closed_loop(&mut device, &workers, long, bench.long, 3);
            tallies[0].reads.mean() as f64 / 1e3
        };
        rows.push(Row::near(
            "read beside writes, small drive for large, us",
            beside(&large),
            beside(&small),
            0.05,
        ));
    }
    rows
}

fn preconditioning(bench: &Bench) -> Vec<Row> {
    let mut made = bench.device(&bench.profile, FRAGMENTED);
    let mut load = Load::uniform(&made, 1);
    let first = load.write(&mut made, 0.25);
    let mut written = bench.device(&bench.profile, Condition::Clean);
    let mut other = Load::uniform(&written, 2);
    other.write(&mut written, 4.0);
    let as_written = other.write(&mut written, 0.25);
    load.write(&mut made, 1.5);
    let last = load.write(&mut made, 0.25);
    vec![
        Row::near(
            "write amplification, made for written",
            as_written,
            first,
            0.02,
        ),
        Row::near(
            "write amplification, made, after two overwrites",
            first,
            last,
            0.02,
        ),
    ]
}

/// Test 15: what the dies did, to the nanosecond, with suspended programs.
pub(super) fn accounts(bench: &Bench) -> Vec<Row> {
    // Blocks so small that erases are not diluted much.
    let profile = Profile {
        programs_per_block: 4,
        ..bench.profile.clone()
    };
    let mut device = bench.device(&profile, FRAGMENTED);
    let workers = [Worker::reader(64), Worker::writer(32)];
    let span = Duration::from_ms(300);
    closed_loop(&mut device, &workers, Duration::ZERO, span, 3);
    finish(&mut device, &mut Vec::new());
    let stats = device.stats();
    let time = stats.die_time;
    let switching = stats.suspends * (profile.suspend_ns + profile.resume_ns);
    vec![
        Row::exact(
            "programming, ns",
            stats.programs * profile.program_ns,
            time.programming,
        ),
        Row::exact("erasing, ns", stats.erases * profile.erase_ns, time.erasing),
        Row::exact("suspending and resuming, ns", switching, time.switching),
    ]
}

/// Test 16: a restless host beside its twin that looks at the drive more often.
pub(super) fn determinism(bench: &Bench) -> Vec<Row> {
    let commands = if bench.full { 10_000_000 } else { 20_000 };
    let build = || {
        let profile = &bench.profile;
        Device::in_condition(profile, 1 << 30, 5, FRAGMENTED).expect("1 GiB suits it")
    };
    let (mut once, mut often) = (build(), build());
    let (mut once_done, mut often_done) = (Vec::new(), Vec::new());
    let (mut completed, mut different, mut unsound) = (0, 0, 0);
    let mut looks = Rng::new(6);
    let mut last = Time::ZERO;
    for (number, (now, command)) in (1_u64..).zip(Restless::new(7).take(commands)) {
        submit(&mut once, now, command);
        for _ in 0..looks.below(3) {
            last = last + Duration::from_ns(looks.below(now.since(last).as_ns() + 1));
            often.advance(last, &mut often_done);
        }
        last = now;
        submit(&mut often, now, command);
        if number.is_multiple_of(commands as u64 / 10) {
            unsound += u64::from(once.check().is_err());
            once.advance(now, &mut once_done);
            often.advance(now, &mut often_done);
            completed += once_done.len() as u64;
            different += u64::from(once_done != often_done);
            once_done.clear();
            often_done.clear();
        }
    }
    finish(&mut once, &mut once_done);
    often.advance(Time::MAX, &mut often_done);
    completed += once_done.len() as u64;
    different += u64::from(once_done != often_done || once.digest() != often.digest());
    vec![
        Row::exact("commands completed", commands as u64, completed),
        Row::exact(
            "times that looking more often made a difference",
            0,
            different,
        ),
        Row::exact("times that an invariant did not hold", 0, unsound),
    ]
}

/// Test 20: I/Os simulated in a second of CPU time, load generation included.
pub(super) fn speed(bench: &Bench, clock: CpuClock<'_>) -> Vec<Row> {
    if cfg!(debug_assertions) {
        return Vec::new();
    }
    let row = |test, oracle, worker, span| {
        let mut device = bench.device(&bench.profile, FRAGMENTED);
        let before = clock();
        closed_loop(&mut device, &[worker], Duration::ZERO, span, 1);
        let spent = (clock() - before).as_secs_f64();
        let rate = device.stats().completions as f64 / spent;
        Row::within(test, oracle, rate, (0.0, f64::INFINITY))
            .note("at least; depends on the machine")
    };
    vec![
        row(
            "4 KiB reads simulated, per CPU s",
            3e6,
            Worker::reader(128),
            Duration::from_ms(5_000),
        ),
        row(
            "fragmented 4 KiB writes simulated, per CPU s",
            1.5e6,
            Worker::writer(32),
            Duration::from_ms(20_000),
        ),
    ]
}

/// Commands of all kinds and many sizes at rising instants, about as many as a drive can do.
struct Restless {
    chance: Rng,
    now: Time,
}

impl Restless {
    fn new(seed: u64) -> Self {
        Self {
            chance: Rng::new(seed),
            now: Time::ZERO,
        }
    }
}

impl Iterator for Restless {
    type Item = (Time, Command);

    fn next(&mut self) -> Option<Self::Item> {
        let units_of_drive = (1 << 30) / UNIT_BYTES;
        let chance = &mut self.chance;
        self.now += Duration::from_ns(chance.below(40_000));
        let op = match chance.below(40) {
            0 => Op::Flush,
            1 => Op::WriteThrough,
            2 => Op::Deallocate,
            3 => Op::WriteCold,
            4..24 => Op::Read,
            _ => Op::Write,
        };
        let most = if chance.chance(1, 16) { 32 } else { 1 };
        let units = 1 + chance.below(most) as u32;
        let start = chance.below(units_of_drive - u64::from(units));
        let command = Command {
            tag: chance.next_u64(),
            op,
            start,
            units,
        };
        Some((self.now, command))
    }
}

fn submit(device: &mut Device, now: Time, command: Command) {
    device
        .submit(now, command)
        .expect("it lies on the drive, which is not overloaded for long");
}

fn finish(device: &mut Device, done: &mut Vec<Completion>) {
    while let Some(next) = device.next_event() {
        device.advance(next, done);
    }
}
