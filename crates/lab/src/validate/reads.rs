//! Tests 1 to 5 and 14: how long reads take, and how many there can be.

use flashyard_time::{Duration, Histogram};

use super::bench::{Bench, FRAGMENTED, shipped};
use super::oracle::{Stages, product_form};
use super::row::Row;
use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_flash::workload::{Source, Worker, open_loop};

/// Test 1: the sum of the stages.
pub(super) fn unloaded(bench: &Bench) -> Vec<Row> {
    let stages = Stages::of(&bench.profile);
    let load = |worker, span| bench.load(&bench.profile, Condition::Clean, worker, span);
    let read = load(Worker::reader(1), bench.short).reads;
    let large = load(Worker::streamer(1, 100), bench.short).reads;
    let write = load(Worker::writer(1), Duration::from_ms(5)).writes;
    let row = |test, oracle, measured: Histogram, tolerance| {
        Row::near(test, oracle, mean_us(&measured), tolerance)
    };
    vec![
        row("idle 4 KiB read, us", stages.idle_read(1.0), read, 0.01),
        row("idle 128 KiB read, us", stages.idle_read(32.0), large, 0.01),
        row("idle 4 KiB write, us", stages.idle_write(), write, 0.001),
    ]
}

/// Test 2: dies, firmware, link and channels as the bottleneck in turn.
pub(super) fn bounds(bench: &Bench) -> Vec<Row> {
    let fast = Profile {
        read_lower_ns: 1_000,
        read_middle_ns: 1_000,
        read_upper_ns: 1_000,
        ..bench.profile.clone()
    };
    let quick = Profile {
        command_ns: 100,
        ..fast.clone()
    };
    let wide = Profile {
        link_bytes_per_second: 100_000_000_000,
        ..quick.clone()
    };
    let stages = Stages::of(&bench.profile);
    let row = |test, oracle, profile, depth| {
        let span = Duration::from_ms(30);
        let tally = bench.load(profile, FRAGMENTED, Worker::reader(depth), span);
        Row::near(test, oracle, tally.read_iops() as f64, 0.02)
    };
    let by_firmware = 1e6 / stages.command;
    let by_link = 1e6 / stages.link;
    let by_channels = 1e6 * stages.channels / stages.channel;
    vec![
        row(
            "reads bound by dies, IOPS",
            stages.die_reads(),
            &bench.profile,
            4096,
        ),
        row("reads bound by firmware, IOPS", by_firmware, &fast, 512),
        row("reads bound by the link, IOPS", by_link, &quick, 512),
        row("reads bound by channels, IOPS", by_channels, &wide, 4096),
    ]
}

/// Test 3: between the product form, for service times that vary without bound, and the dies' own
/// limit. And Little's law.
pub(super) fn queue_depths(bench: &Bench) -> Vec<Row> {
    let names = [
        "4 KiB reads, depth 32, IOPS",
        "4 KiB reads, depth 64, IOPS",
        "4 KiB reads, depth 128, IOPS",
        "4 KiB reads, depth 256, IOPS",
    ];
    let stages = Stages::of(&bench.profile);
    let mut rows = Vec::new();
    for (test, depth) in names.into_iter().zip([32, 64, 128, 256]) {
        let worker = Worker::reader(depth);
        let tally = bench.load(&bench.profile, FRAGMENTED, worker, bench.short);
        let depth = f64::from(depth);
        let oracle = product_form(depth, stages.dies, stages.die_read());
        let iops = tally.read_iops() as f64;
        let room = stages.die_reads() / oracle - 1.0;
        let row = Row::within(test, oracle, iops, (0.0, room));
        rows.push(row.note("at least the product form, at most what the dies can do"));
        if depth > 200.0 {
            let in_flight = iops * mean_us(&tally.reads) / 1e6;
            // What is in flight when the span begins or ends is counted on one side only.
            let tolerance = 2.0 * tally.reads.mean() as f64 / bench.short.as_ns() as f64;
            rows.push(Row::near(
                "reads under way by Little's law",
                depth,
                in_flight,
                tolerance,
            ));
        }
    }
    rows
}

/// Test 4: the idle latency and the wait of an M/D/1 queue at firmware, die, channel and link.
pub(super) fn random_arrivals(bench: &Bench) -> Vec<Row> {
    let names = [
        "reads at 50 K/s, mean us",
        "reads at 100 K/s, mean us",
        "reads at 200 K/s, mean us",
        "reads at 300 K/s, mean us",
    ];
    let stages = Stages::of(&bench.profile);
    let tolerance = if bench.full { 0.03 } else { 0.06 };
    let warm_up = Duration::from_ms(5);
    let mut rows = Vec::new();
    for (test, rate) in names.into_iter().zip([50_000, 100_000, 200_000, 300_000]) {
        let mut device = bench.device(&bench.profile, FRAGMENTED);
        let mut latencies = Histogram::new();
        let sources = [Source::reads(rate, warm_up + bench.short)];
        open_loop(&mut device, &sources, 3, |answer| {
            if answer.arrived > warm_up {
                latencies.record(answer.latency.as_ns());
            }
        });
        let oracle = stages.idle_read(1.0) + stages.wait(rate as f64 / 1e6);
        rows.push(Row::near(test, oracle, mean_us(&latencies), tolerance));
    }
    rows
}

/// Test 5: for 50 ms more arrives than the dies can do, then half of it. What is in excess is a
/// fluid.
pub(super) fn overload(bench: &Bench) -> Vec<Row> {
    // Only the dies: the firmware would be saturated, too, and dies that wait for their channel do
    // less.
    let profile = Profile {
        command_ns: 600,
        channel_bytes_per_second: 1_000_000_000_000,
        ..bench.profile.clone()
    };
    let stages = Stages::of(&profile);
    let (excess, rest, step) = (0.2, 0.5, 50);
    let offered = |load: f64| (stages.die_reads() * load) as u64;
    let (begin, end) = (Duration::from_ms(step), Duration::from_ms(step + 30));
    let sources = [
        Source::reads(offered(1.0 + excess), begin),
        Source {
            span: (begin, end),
            ..Source::reads(offered(rest), end)
        },
    ];
    let (mut rise, mut fall) = (Line::default(), Line::default());
    for seed in 0..if bench.full { 64 } else { 6 } {
        let mut device = bench.device(&profile, FRAGMENTED);
        open_loop(&mut device, &sources, seed, |answer| {
            let (at, latency) = (ms(answer.arrived), ms(answer.latency));
            // Near the ends of a ramp some dies have no queue, which is not a fluid's way.
            if (5.0..50.0).contains(&at) {
                rise.add(at, latency);
            } else if (50.0..60.0).contains(&at) {
                fall.add(at, latency);
            }
        });
    }
    let drained = (stages.idle_read(1.0) / 1e3 - fall.at(0.0)) / fall.slope();
    let tolerance = if bench.full { 0.05 } else { 0.1 };
    vec![
        Row::near(
            "latency gained in an overload of 20 %, ms/ms",
            excess,
            rise.slope(),
            tolerance,
        ),
        Row::near(
            "time to drain at half load, ms",
            excess * step as f64 / (1.0 - rest),
            drained - step as f64,
            tolerance,
        )
        .note("the straight line through the first half of the recovery, to the idle latency"),
    ]
}

/// Test 14: a read that comes at random finds its die programming with the probability that it
/// does, and waits for what is left: E\[T²\] / 2 E\[T\] in the mean, for lower and upper pages that
/// take different times.
pub(super) fn busy_die(bench: &Bench) -> Vec<Row> {
    let profile = Profile {
        pages_per_program: 1,
        page_types: 2,
        program_ns: 850_000,
        program_upper_ns: 2_300_000,
        erase_ns: 0,
        ..shipped("dct983-a0")
    };
    let stages = Stages::of(&profile);
    let (units, gap_us) = (32, 400);
    let span = Duration::from_ms(if bench.full { 30_000 } else { 2_000 });
    let sources = [
        Source::reads(2_000, span),
        Source {
            units,
            random: false,
            gap: Duration::from_us(gap_us),
            regular: true,
            ..Source::writes(1, span)
        },
    ];
    let mut device = bench.device(&profile, Condition::Clean);
    let mut latencies = Histogram::new();
    open_loop(&mut device, &sources, 3, |answer| {
        if answer.source == 0 {
            latencies.record(answer.latency.as_ns());
        }
    });
    let loading = stages.program_units * stages.channel;
    let times = [850.0 + loading, 2300.0 + loading];
    let rate = f64::from(units) / gap_us as f64 / stages.program_units / stages.dies;
    let mean_square = times.iter().map(|time| time * time).sum::<f64>() / 2.0;
    let wait = mean_us(&latencies) - stages.idle_read(1.0);
    let row = Row::near(
        "wait of a read for programs, us",
        rate * mean_square / 2.0,
        wait,
        0.1,
    );
    vec![row]
}

fn mean_us(latencies: &Histogram) -> f64 {
    latencies.mean() as f64 / 1e3
}

fn ms(span: Duration) -> f64 {
    span.as_ns() as f64 / 1e6
}

/// The straight line nearest to points.
#[derive(Default)]
struct Line {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    fn slope(&self) -> f64 {
        (self.count * self.xy - self.x * self.y) / (self.count * self.xx - self.x * self.x)
    }

    fn at(&self, x: f64) -> f64 {
        (self.y - self.slope() * self.x) / self.count + self.slope() * x
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn a_line_goes_through_its_points() {
        let mut line = Line::default();
        for x in [1.0, 2.0, 5.0] {
            line.add(x, 3.0 - 2.0 * x);
        }
        assert!((line.slope() + 2.0).abs() < 1e-9);
        assert!((line.at(10.0) + 17.0).abs() < 1e-9);
    }
}
