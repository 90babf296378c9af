//! Probes whose class does not come, or does not fill the device.

use super::machine::{Device, Worker, reader, run, writer};
use super::*;

/// Does reads and some writes, so many at a time: where only reads may go it comes to have nothing
/// but writes, which wait.
fn mixing(tenant: u32) -> Worker {
    Worker {
        writes: 30,
        depth: 256,
        ..reader(tenant)
    }
}

#[test]
fn a_probe_of_which_nothing_comes_any_more_is_given_up() {
    for seed in 0..8 {
        let mut fair = Fair::new();
        let workers = [mixing(1), mixing(2)];
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut fair, &mut device, &workers, ms(2000), seed);
        assert!(fair.learner.probes > 0, "{seed}");
        let gaps = done.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        let longest = gaps.max().expect("much was done");
        // A tick of 5 ms without any, of writes two, and what is left of the one before.
        assert!(longest < ms(20), "{longest:?} (seed {seed})");
    }
}

/// What somebody does one at a time takes as long as one takes.
#[test]
fn what_is_done_one_at_a_time_is_not_taken_for_what_the_device_does() {
    for seed in 0..8 {
        let mut fair = Fair::new();
        let single = Worker {
            bytes: 131_072,
            depth: 1,
            start: ms(300),
            ..writer(2)
        };
        let mut device = Device {
            large: 25,
            ..Device::new(8, 80_000, 80_000)
        };
        let workers = [mixing(1), single];
        run(&mut fair, &mut device, &workers, ms(2000), seed);
        assert!(fair.learner.probes > 0, "{seed}");
        let [small, large] =
            [4096, 131_072].map(|bytes| fair.costs.of(Kind::Write, bytes) / PER_NS);
        // It does 100,000 or 4,000 a second, and the large ones have not been measured.
        assert!(
            small < 25_000 && (125_000..375_000).contains(&large),
            "{small} ns, {large} ns (seed {seed})"
        );
    }
}
