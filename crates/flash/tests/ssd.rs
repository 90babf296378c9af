//! A drive as its owner sees it: completions, order, limits, snapshots.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{
    BuildError, Command, Completion, Condition, Device, Op, Rejected, SnapshotError,
};
use flashyard_time::{Rng, Time};

const CAPACITY: u64 = 256 << 20;
const UNITS: u64 = CAPACITY / 4096;

fn device(name: &str, condition: Condition) -> Device {
    let profile = Profile::named(name).expect("it ships");
    Device::in_condition(&profile, CAPACITY, 5, condition).expect("256 MiB suit it")
}

fn command(tag: u64, op: Op, start: u64, units: u32) -> Command {
    Command {
        tag,
        op,
        start,
        units,
    }
}

/// What a restless host sends: instants rise, operations and sizes vary.
fn commands(seed: u64, count: u64, gap: u64) -> Vec<(Time, Command)> {
    let mut chance = Rng::new(seed);
    let mut now = 0;
    (0..count)
        .map(|tag| {
            now += chance.below(gap);
            let op = match chance.below(40) {
                0 => Op::Flush,
                1 => Op::WriteThrough,
                2 => Op::Deallocate,
                3..20 => Op::Read,
                _ => Op::Write,
            };
            let most = if chance.chance(1, 8) { 64 } else { 1 };
            let units = 1 + chance.below(most) as u32;
            let start = chance.below(UNITS - u64::from(units));
            (Time::from_ns(now), command(tag, op, start, units))
        })
        .collect()
}

fn finish(device: &mut Device, done: &mut Vec<Completion>) {
    while let Some(next) = device.next_event() {
        device.advance(next, done);
    }
}

#[test]
fn every_command_is_completed_once_and_in_order_on_every_drive() {
    for name in Profile::names() {
        for condition in [
            Condition::Empty,
            Condition::Clean,
            Condition::Fragmented(100),
            Condition::Fragmented(40),
        ] {
            let mut device = device(name, condition);
            let mut done = Vec::new();
            for (now, command) in commands(1, 6_000, 40_000) {
                device.submit(now, command).expect("it lies on the drive");
                if command.tag % 1_000 == 0 {
                    device
                        .check()
                        .unwrap_or_else(|wrong| panic!("{name} {condition:?}: {wrong}"));
                }
            }
            finish(&mut device, &mut done);
            device
                .check()
                .unwrap_or_else(|wrong| panic!("{name} {condition:?}: {wrong}"));
            assert!(
                done.is_sorted_by_key(|completion| completion.at),
                "{name} {condition:?}"
            );
            let mut tags: Vec<_> = done.iter().map(|completion| completion.tag).collect();
            tags.sort_unstable();
            assert!(tags.into_iter().eq(0..6_000), "{name} {condition:?}");
            assert_eq!(device.outstanding(), 0);
        }
    }
}

#[test]
fn how_often_it_is_asked_changes_nothing() {
    for seed in 0..4 {
        let load = commands(seed, 4_000, 30_000);
        let mut once = device("dct983", Condition::Fragmented(100));
        let mut often = device("dct983", Condition::Fragmented(100));
        let mut by_completion = device("dct983", Condition::Fragmented(100));
        let (mut once_done, mut often_done) = (Vec::new(), Vec::new());
        let mut by_completion_done = Vec::new();
        let mut chance = Rng::new(seed).split(9);
        let mut last = 0;
        for (now, command) in load {
            once.submit(now, command).expect("it lies on the drive");
            for _ in 0..chance.below(4) {
                last += chance.below(now.as_ns() - last + 1);
                often.advance(Time::from_ns(last), &mut often_done);
            }
            last = now.as_ns();
            often.submit(now, command).expect("it lies on the drive");
            while by_completion.advance_to_completion(now, &mut by_completion_done) {}
            by_completion
                .submit(now, command)
                .expect("it lies on the drive");
        }
        once.advance(Time::MAX, &mut once_done);
        finish(&mut often, &mut often_done);
        while by_completion.advance_to_completion(Time::MAX, &mut by_completion_done) {}
        assert_eq!(once_done, often_done, "seed {seed}");
        assert_eq!(once.digest(), often.digest(), "seed {seed}");
        assert_eq!(once_done, by_completion_done, "seed {seed}");
    }
}

/// The same number in every build and on every machine; it changes only when the model does.
#[test]
fn a_seed_has_its_digest() {
    let mut device = device("dct983", Condition::Fragmented(100));
    for (now, command) in commands(7, 5_000, 30_000) {
        device.submit(now, command).expect("it lies on the drive");
    }
    device.advance(Time::MAX, &mut Vec::new());
    assert_eq!(device.digest(), DIGEST, "{:#X}", device.digest());
}

const DIGEST: u64 = 0x262F_4AF8_9178_5E77;

#[test]
fn what_does_not_fit_is_refused() {
    let mut device = device("dct983", Condition::Empty);
    for (start, units) in [
        (UNITS, 1),
        (UNITS - 1, 2),
        (0, 0),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
        (0, u32::MAX),
    ] {
        for op in [Op::Read, Op::Write, Op::WriteThrough, Op::Deallocate] {
            let refused = device.submit(Time::ZERO, command(0, op, start, units));
            assert_eq!(refused, Err(Rejected::OutOfRange), "{op:?} {start} {units}");
        }
    }
    for tag in 0..65_536 {
        device
            .submit(Time::ZERO, command(tag, Op::Read, 0, 1))
            .expect("there is room");
    }
    let refused = device.submit(Time::ZERO, command(0, Op::Read, 0, 1));
    assert_eq!(refused, Err(Rejected::QueueFull));
    let mut done = Vec::new();
    finish(&mut device, &mut done);
    assert_eq!(done.len(), 65_536);
}

#[test]
fn a_command_may_be_as_large_as_the_drive() {
    for (name, condition) in [
        ("dct983", Condition::Fragmented(100)),
        ("970pro", Condition::Empty),
    ] {
        let mut device = device(name, condition);
        for (tag, op) in [
            (1, Op::Write),
            (2, Op::Read),
            (3, Op::Deallocate),
            (4, Op::Read),
            (5, Op::Flush),
        ] {
            device
                .submit(device.now(), command(tag, op, 0, UNITS as u32))
                .expect("it fits");
            let mut done = Vec::new();
            finish(&mut device, &mut done);
            assert_eq!(done.len(), 1, "{name} {op:?}");
        }
        device.check().expect("it is sound");
        assert_eq!(device.stats().deallocated_units, UNITS);
    }
}

#[test]
fn a_volatile_buffer_is_forced_out_and_a_protected_one_is_not() {
    for (name, least, most) in [("dct983", 0, 30_000), ("970pro", 185_000, 2_000_000)] {
        for op in [Op::Flush, Op::WriteThrough] {
            let mut device = device(name, Condition::Clean);
            let mut done = Vec::new();
            device
                .submit(Time::ZERO, command(0, Op::Write, 0, 1))
                .expect("it fits");
            finish(&mut device, &mut done);
            let start = device.now();
            device.submit(start, command(1, op, 1, 1)).expect("it fits");
            finish(&mut device, &mut done);
            let taken = done[1].at.since(start).as_ns();
            assert!((least..=most).contains(&taken), "{name} {op:?}: {taken} ns");
        }
    }
}

#[test]
fn a_restored_drive_goes_on_as_the_first_would() {
    for name in ["dct983", "970pro"] {
        let profile = Profile::named(name).expect("it ships");
        let mut first = device(name, Condition::Fragmented(100));
        for (now, command) in commands(3, 8_000, 20_000) {
            first.submit(now, command).expect("it lies on the drive");
        }
        assert_eq!(first.snapshot(), Err(SnapshotError::Busy));
        finish(&mut first, &mut Vec::new());
        let bytes = first.snapshot().expect("it is at rest");
        let mut second = Device::restore(&profile, CAPACITY, &bytes).expect("it is sound");
        assert_eq!(second.snapshot().expect("it is at rest"), bytes);
        let start = first.now().as_ns();
        for (now, command) in commands(4, 8_000, 20_000) {
            let now = Time::from_ns(start + now.as_ns());
            first.submit(now, command).expect("it lies on the drive");
            second.submit(now, command).expect("it lies on the drive");
        }
        let (mut first_done, mut second_done) = (Vec::new(), Vec::new());
        finish(&mut first, &mut first_done);
        finish(&mut second, &mut second_done);
        assert_eq!(first_done, second_done, "{name}");
        assert_eq!(first.digest(), second.digest(), "{name}");
    }
}

#[test]
fn a_damaged_snapshot_is_told() {
    let profile = Profile::named("dct983").expect("it ships");
    let mut device = device("dct983", Condition::Fragmented(100));
    device
        .submit(Time::ZERO, command(0, Op::Write, 0, 1))
        .expect("it fits");
    finish(&mut device, &mut Vec::new());
    let bytes = device.snapshot().expect("it is at rest");
    let restore = |bytes: &[u8]| Device::restore(&profile, CAPACITY, bytes).map(|_| ());
    assert_eq!(restore(&[]), Err(SnapshotError::NotASnapshot));
    assert_eq!(restore(&[0; 64]), Err(SnapshotError::NotASnapshot));
    let mut chance = Rng::new(1);
    for _ in 0..60 {
        let cut = chance.below(bytes.len() as u64) as usize;
        assert!(restore(&bytes[..cut]).is_err(), "cut at {cut}");
        let mut altered = bytes.clone();
        altered[cut] ^= 1 << chance.below(8);
        assert!(restore(&altered).is_err(), "altered at {cut}");
    }
    let other = Profile::named("dct983-a0").expect("it ships");
    assert_eq!(
        Device::restore(&other, CAPACITY, &bytes).map(|_| ()),
        Err(SnapshotError::OtherDrive)
    );
    let smaller = Device::restore(&profile, CAPACITY / 2, &bytes).map(|_| ());
    assert_eq!(smaller, Err(SnapshotError::OtherDrive));
}

#[test]
fn a_drive_without_sense_is_not_built() {
    let mut profile = Profile::named("dct983").expect("it ships");
    assert!(matches!(
        Device::new(&profile, 4096, 0),
        Err(BuildError::Capacity { .. })
    ));
    profile.channels = 0;
    assert!(matches!(
        Device::new(&profile, CAPACITY, 0),
        Err(BuildError::Profile(_))
    ));
}

#[test]
fn an_instant_that_has_passed_changes_nothing() {
    let mut device = device("dct983", Condition::Clean);
    let mut done = Vec::new();
    device.advance(Time::from_ns(1_000_000), &mut done);
    device
        .submit(Time::from_ns(5), command(1, Op::Read, 0, 1))
        .expect("it fits");
    device.advance(Time::from_ns(6), &mut done);
    assert!(done.is_empty());
    finish(&mut device, &mut done);
    assert!(done[0].at > Time::from_ns(1_000_000));
}
