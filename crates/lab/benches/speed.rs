//! I/Os per second of CPU time on the bench, with the first-in-first-out policy.
//!
//! The drive alone is measured by the benchmark of the crate `flash`; the difference is what
//! workers, switch and measurement cost.

use std::hint::black_box;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_lab::bench::Setup;
use flashyard_lab::load::{Pace, Pattern, Worker};
use flashyard_lab::policies;
use flashyard_time::Duration;

fn main() {
    for (what, reads_percent, workers) in [
        ("4 KiB reads, 1 worker of depth 128", 100, 1),
        ("4 KiB reads, 16 workers of depth 32", 100, 16),
        ("4 KiB 70:30, 16 workers of depth 32", 70, 16),
        ("4 KiB writes, 1 worker of depth 128", 0, 1),
    ] {
        let best = (0..3).map(|_| ios_per_second(reads_percent, workers)).max();
        println!("{what:<36} {:>12}", best.unwrap_or(0));
    }
}

fn ios_per_second(reads_percent: u32, workers: u32) -> u64 {
    let profile = Profile::named("dct983").expect("it ships");
    let device = Device::in_condition(&profile, 8 << 30, 1, Condition::Fragmented(100));
    let pace = Pace::Closed {
        depth: if workers == 1 { 128 } else { 32 },
    };
    let worker = |tenant| Worker::new("worker", tenant, pace, Pattern::random(reads_percent, 4096));
    let setup = Setup::new(
        device.expect("it fits"),
        policies::named("fifo").expect("it is there"),
        (0..workers).map(worker).collect(),
    );
    let setup = setup.measured(Duration::from_ms(100), Duration::from_ms(1500));
    let before = cpu_ns();
    let results = black_box(setup.run()).expect("it is sound");
    let spent = cpu_ns() - before;
    let ios = results.completed.saturating_mul(1_000_000_000);
    ios.checked_div(spent).unwrap_or(0)
}

/// CPU time of this thread; where the kernel does not tell, zero, and the table shows no rates.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next();
    first.and_then(|first| first.parse().ok()).unwrap_or(0)
}
