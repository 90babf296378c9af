//! Those who ask for their share with what they have in flight, and have nothing queued.

use super::machine::{Device, Worker, reader, run};
use super::*;

/// Has eight times the weight of the others. With 20 reads in flight it has half of the device where
/// others fill the window, which is 40 here.
fn heavy(depth: u32) -> Worker {
    Worker { depth, ..reader(1) }
}

fn deep(tenant: u32, start: Duration) -> Worker {
    Worker {
        depth: 128,
        start,
        ..reader(tenant)
    }
}

fn heavy_first() -> Fair {
    let mut fair = Fair::new();
    fair.set_share(Time::ZERO, TenantId(1), &weighted(8));
    fair
}

#[test]
fn others_of_the_same_kind_wait_for_who_has_less_than_its_share() {
    for seed in 0..4 {
        let workers = [heavy(20), deep(2, Duration::ZERO), deep(3, Duration::ZERO)];
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut heavy_first(), &mut device, &workers, ms(2000), seed);
        let rates = rates(&done, 3, ms(1000), ms(2000));
        let sum: f64 = rates.iter().sum();
        // Eight tenths are its share.
        assert!(rates[0] > 0.72 * sum, "{rates:?} (seed {seed})");
        // All 100,000 that the device does.
        assert!(sum > 90_000.0, "{rates:?} (seed {seed})");
    }
}

/// What somebody has had beyond its share, while nobody could use it, is not held against it.
#[test]
fn who_had_more_than_its_share_is_level_with_who_comes_later() {
    for seed in 0..4 {
        let workers = [heavy(40), deep(2, Duration::ZERO), deep(3, ms(1000))];
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut heavy_first(), &mut device, &workers, ms(2000), seed);
        let rates = rates(&done, 3, ms(1200), ms(2000));
        assert!(close(rates[1], rates[2], 10.0), "{rates:?} (seed {seed})");
    }
}
