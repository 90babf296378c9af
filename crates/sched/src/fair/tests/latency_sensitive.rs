//! Latency-sensitive I/O, what is done in the background, and turns of reads and writes.

use super::machine::{Device, Done, Worker, reader, run, writer};
use super::*;

#[test]
fn latency_sensitive_io_goes_first_and_takes_no_more_than_is_kept_for_it() {
    let mut fair = Fair::new();
    let latency = |tenant, depth| Worker {
        class: Class::Latency,
        depth,
        ..reader(tenant)
    };
    let crowd = [2, 3, 4, 5].map(|tenant| Worker {
        depth: 64,
        ..reader(tenant)
    });
    let workers = [latency(1, 1), crowd[0], crowd[1], crowd[2], crowd[3]];
    let mut device = Device::new(8, 80_000, 80_000);
    let done = run(&mut fair, &mut device, &workers, ms(400), 7);
    let mut latencies: Vec<u64> = done
        .iter()
        .filter(|io| io.worker == 0 && io.at > Time::ZERO + ms(100))
        .map(|io| io.latency.as_us())
        .collect();
    latencies.sort_unstable();
    assert!(latencies[latencies.len() * 99 / 100] < 320, "{latencies:?}");

    let greedy = [latency(1, 256), crowd[0], crowd[1], crowd[2], crowd[3]];
    let done = run(
        &mut Fair::new(),
        &mut Device::new(8, 80_000, 80_000),
        &greedy,
        ms(400),
        8,
    );
    let rates = rates(&done, 5, ms(100), ms(400));
    assert!(rates[0] < 100_000.0 * (0.2 + 0.125) * 1.1, "{rates:?}");
    assert!(3.0 * rates[1] > rates[0], "{rates:?}");
}

/// However slow the device is: also where one I/O takes longer than others pause for, and ticks
/// last.
#[test]
fn latency_sensitive_io_goes_first_on_slow_devices_too() {
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        ..reader(1)
    };
    let bulk = Worker {
        depth: 64,
        ..reader(2)
    };
    for slow in [1, 10, 100] {
        let device = &mut Device::new(8, 160_000 * slow, 160_000 * slow);
        let done = run(&mut Fair::new(), device, &[latency, bulk], ms(12_000), 7);
        let rates = rates(&done, 2, ms(6_000), ms(12_000));
        // Of 6,250 a second alone and, once with all 64 under way, 690; and of 50,000 in all.
        let scaled = [rates[0] * slow as f64, rates[1] * slow as f64];
        assert!(scaled[0] > 5_500.0, "{slow} times slower: {scaled:?}");
        assert!(scaled[1] > 15_000.0, "{slow} times slower: {scaled:?}");
    }
}

#[test]
fn background_io_fills_what_is_left_and_is_never_quite_starved() {
    let background = Worker {
        class: Class::Background,
        ..reader(1)
    };
    let beside = |other: Worker| {
        let done = run(
            &mut Fair::new(),
            &mut Device::new(4, 80_000, 80_000),
            &[background, other],
            ms(400),
            9,
        );
        rates(&done, 2, ms(100), ms(400))
    };
    let busy = beside(Worker {
        depth: 128,
        ..reader(2)
    });
    assert!(busy[0] > 100.0 && busy[0] < 0.05 * busy[1], "{busy:?}");
    let light = beside(Worker {
        depth: 1,
        pause: ms(1),
        ..reader(2)
    });
    assert!(light[0] > 40_000.0, "{light:?}");
}

/// What nobody else wants is divided by weight among those who work in the background, whatever
/// they have in flight, and one that comes later has not the time made up to it.
#[test]
fn background_tenants_share_what_is_left() {
    let background = |tenant, depth, start| Worker {
        class: Class::Background,
        depth,
        start,
        ..writer(tenant)
    };
    let late = background(4, 32, ms(400));
    let early =
        [(1, 32), (2, 128), (3, 64)].map(|(tenant, depth)| background(tenant, depth, ms(0)));
    let all = [early[0], early[1], early[2], late];
    for (workers, weights, from) in [
        (&early[..], &[1.0, 1.0, 2.0][..], ms(100)),
        (&all, &[1.0, 1.0, 2.0, 1.0], ms(500)),
    ] {
        let mut fair = Fair::new();
        fair.set_share(Time::ZERO, TenantId(3), &weighted(2));
        let mut device = Device::new(8, 80_000, 320_000);
        let done = run(&mut fair, &mut device, workers, ms(800), 3);
        let shares = rates(&done, workers.len(), from, ms(800));
        let (sum, weighed): (f64, f64) = (shares.iter().sum(), weights.iter().sum());
        for (share, weight) in shares.iter().zip(weights) {
            let part = share / sum * weighed / weight;
            assert!((0.95..1.05).contains(&part), "{shares:?}");
        }
    }
}

/// One who asks for one thing at a time never waits in the switch, so that nobody seems to want the
/// device.
#[test]
fn background_io_keeps_to_its_part_beside_latency_sensitive_io() {
    let background = Worker {
        class: Class::Background,
        ..reader(1)
    };
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        ..reader(2)
    };
    let mut fair = Fair::new();
    let device = || Device::new(4, 80_000, 80_000);
    let done = run(&mut fair, &mut device(), &[background, latency], ms(400), 9);
    let shares = rates(&done, 2, ms(100), ms(400));
    // A sixteenth of 400,000 as far as the policy knows, of the 50,000 that the device does; with
    // nobody about, all.
    assert!(shares[0] > 1_000.0 && shares[0] < 26_000.0, "{shares:?}");
    let alone = run(&mut Fair::new(), &mut device(), &[background], ms(400), 9);
    let alone = rates(&alone, 1, ms(100), ms(400));
    assert!(alone[0] > 45_000.0, "{alone:?}");
}

/// Beside others, too, and however fast the device is; of which nobody knows what background writes
/// cost it.
#[test]
fn background_io_beside_others_has_its_part_of_the_time() {
    for slow in [1, 4] {
        let background = Worker {
            class: Class::Background,
            ..writer(1)
        };
        let latency = Worker {
            class: Class::Latency,
            depth: 1,
            ..reader(2)
        };
        let bulk = Worker {
            depth: 8,
            ..reader(3)
        };
        let device = || Device::new(8, 80_000 * slow, 320_000 * slow);
        // It takes some seconds to see enough of what the slow device does with few writes.
        let rate = |workers: &[Worker]| {
            let done = run(&mut Fair::new(), &mut device(), workers, ms(12_000), 9);
            rates(&done, workers.len(), ms(8_000), ms(12_000))[0]
        };
        let part = rate(&[background, latency, bulk]) / rate(&[background]);
        assert!((0.02..0.1).contains(&part), "{slow} times slower: {part}");
    }
}

/// Those who do not ask for enough to be measured are kept apart from others all the same, if
/// later.
#[test]
fn kinds_go_by_turns_though_one_was_never_measured() {
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        pause: Duration::from_us(100),
        ..reader(1)
    };
    let few = Worker {
        depth: 6,
        ..reader(2)
    };
    let many = Worker {
        depth: 64,
        ..writer(3)
    };
    let mut fair = Fair::new();
    let device = &mut Device::new(16, 80_000, 320_000);
    let mut done = run(&mut fair, device, &[latency, few, many], ms(2000), 4);
    assert!(!fair.costs.is_any_learnt(Kind::Read));
    done.retain(|io| io.worker > 0 && io.sent > Time::ZERO + ms(1000));
    done.sort_by_key(|io| io.sent);
    let changed = |two: &&[Done]| two[0].worker != two[1].worker;
    let changes = done.windows(2).filter(changed).count();
    assert!(changes > 20 && changes < 200, "{changes}");
}

/// One who writes now and then does not take half of the time from those who read.
#[test]
fn a_slice_is_not_longer_than_somebody_wants_it() {
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        ..reader(1)
    };
    let bulk = Worker {
        depth: 64,
        ..reader(2)
    };
    let seldom = Worker {
        depth: 1,
        pause: ms(3),
        ..writer(3)
    };
    let flood = Worker {
        depth: 64,
        pause: Duration::ZERO,
        ..seldom
    };
    // All costs are learnt while there are many writes, then there are few.
    let reads = |writers: &[Worker]| {
        let workers = [&[latency, bulk], writers].concat();
        let device = &mut Device::new(8, 80_000, 320_000);
        let done = run(&mut Fair::new(), device, &workers, ms(4000), 3);
        rates(&done, workers.len(), ms(2000), ms(4000))[1]
    };
    let (many, few) = (reads(&[flood]), reads(&[seldom]));
    assert!(few > 1.5 * many, "{few} {many}");
}

#[test]
fn reads_and_writes_go_by_turns_beside_latency_sensitive_io() {
    let bulk = [reader(1), reader(2), writer(3), writer(4)].map(|worker| Worker {
        depth: 64,
        ..worker
    });
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        pause: Duration::from_us(100),
        ..reader(5)
    };
    let switches = |workers: &[Worker]| {
        let mut device = Device::new(8, 80_000, 320_000);
        let mut done = run(&mut Fair::new(), &mut device, workers, ms(2000), 7);
        let shares = rates(&done, workers.len(), ms(1000), ms(2000));
        done.retain(|io| io.worker < 4 && io.sent > Time::ZERO + ms(1000));
        done.sort_by_key(|io| io.sent);
        let changed = |two: &[Done]| workers[two[0].worker].op != workers[two[1].worker].op;
        (done.windows(2).filter(|two| changed(two)).count(), shares)
    };
    let (alone, _) = switches(&bulk);
    assert!(alone > 1_000, "without latency-sensitive I/O: {alone}");
    let (beside, shares) = switches(&[bulk.as_slice(), &[latency]].concat());
    // A slice takes 10 ms; latency-sensitive I/O and probes make some more.
    assert!(beside > 20 && beside < 200, "{beside}");
    // Alone, readers would do 100,000 a second and writers 25,000.
    let (reads, writes) = (shares[0] / 1e5, shares[2] / 25e3);
    assert!(close(reads, writes, 15.0), "{shares:?}");
}

#[test]
fn background_io_that_was_held_back_goes_on_when_latency_sensitive_io_has_gone() {
    let mut fair = Fair::new();
    let io = |id, class| Ask {
        id: IoId(id),
        tenant: TenantId(id.min(1)),
        class,
        op: if id == 0 { Op::Read } else { Op::Write },
        bytes: if id == 0 { 4096 } else { 1 << 20 },
        lba: 0,
    };
    fair.arrive(Time::ZERO, io(0, Class::Latency));
    assert_eq!(fair.next(Time::ZERO), Next::Dispatch(IoId(0)));
    (1..=2).for_each(|id| fair.arrive(Time::ZERO, io(id, Class::Background)));
    assert_eq!(fair.next(Time::ZERO), Next::Dispatch(IoId(1)));
    for id in 0..=1 {
        let outcome = Outcome {
            latency: Duration::from_us(1),
            ok: true,
        };
        fair.complete(Time::from_ns(1_000), &io(id, Class::Latency), outcome);
    }
    // 1 MiB of writes costs some tenths of a millisecond, and has a sixteenth of the time.
    let Next::WaitUntil(at) = fair.next(Time::from_ns(1_000)) else {
        panic!("it is to be asked again, though nothing will happen");
    };
    assert!(
        at > Time::ZERO + ms(3) && at <= Time::ZERO + ms(20),
        "{at:?}"
    );
    assert_eq!(fair.next(at), Next::Dispatch(IoId(2)));
}

/// What background I/O took without latency-sensitive I/O beside it is no debt.
#[test]
fn background_io_has_its_part_however_long_it_had_the_device_to_itself() {
    let mut fair = Fair::new();
    let background = Worker {
        class: Class::Background,
        ..reader(1)
    };
    let latency = Worker {
        class: Class::Latency,
        depth: 1,
        pause: ms(5),
        start: ms(1000),
        ..reader(2)
    };
    let mut device = Device::new(8, 80_000, 80_000);
    let done = run(&mut fair, &mut device, &[background, latency], ms(3000), 15);
    let rates = rates(&done, 2, ms(1100), ms(3000));
    // Alone it does 100,000 a second.
    assert!((5_000.0..8_000.0).contains(&rates[0]), "{rates:?}");
}
