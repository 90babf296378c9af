//! A drive as its owner sees it: completions, order, limits, snapshots.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{
    BuildError, Command, Completion, Condition, Content, Device, Lost, Op, PowerCut, Recovered,
    Rejected, SnapshotError,
};
use flashyard_time::{Duration, Rng, Time};

const CAPACITY: u64 = 256 << 20;
const UNITS: u64 = CAPACITY / 4096;
/// Commands of the test that puts them on every drive.
const COMMANDS: u64 = if cfg!(debug_assertions) { 2_000 } else { 8_000 };

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
            for (now, command) in commands(1, COMMANDS, 40_000) {
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
            assert!(tags.into_iter().eq(0..COMMANDS), "{name} {condition:?}");
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

/// The same numbers in every build and on every machine; they change only when the model does.
#[test]
fn a_seed_has_its_digest() {
    let found = DIGESTS.map(|(name, condition, seed, _)| {
        let mut device = device(name, condition);
        for (now, command) in commands(seed, 5_000, 30_000) {
            device.submit(now, command).expect("it lies on the drive");
        }
        finish(&mut device, &mut Vec::new());
        (name, condition, seed, device.digest())
    });
    assert_eq!(found, DIGESTS, "{found:#X?}");
}

const DIGESTS: [(&str, Condition, u64, u64); 6] = [
    (
        "dct983",
        Condition::Fragmented(100),
        7,
        0x262F_4AF8_9178_5E77,
    ),
    ("dct983", Condition::Empty, 8, 0x32DB_DD54_764D_B1DE),
    (
        "dct983-b",
        Condition::Fragmented(100),
        9,
        0xF0F0_0690_6D43_79BA,
    ),
    (
        "970pro",
        Condition::Fragmented(100),
        10,
        0x4BBC_3295_4938_30F8,
    ),
    ("970pro", Condition::Clean, 11, 0x2FB6_AEFB_3B49_07AE),
    ("cnex", Condition::Fragmented(50), 12, 0x732E_A0A2_B4B6_A322),
];

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
fn a_damaged_snapshot_is_reported() {
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

/// A forged snapshot is an error or gives a drive that works, whatever it contains.
#[test]
fn a_forged_snapshot_is_reported_or_harmless() {
    let mut chance = Rng::new(11);
    for name in ["dct983", "970pro"] {
        let profile = Profile::named(name).expect("it ships");
        let mut device = device(name, Condition::Fragmented(100));
        for (now, command) in commands(5, 3_000, 20_000) {
            device.submit(now, command).expect("it lies on the drive");
        }
        finish(&mut device, &mut Vec::new());
        let bytes = device.snapshot().expect("it is at rest");
        let head = 48 + UNITS as usize * 4;
        for round in 0..if cfg!(debug_assertions) { 60 } else { 600 } {
            let mut forged = bytes.clone();
            forged.truncate(bytes.len() - 8);
            for _ in 0..=chance.below(3) {
                // Mostly behind the long part, the map.
                let from = if chance.chance(3, 4) { head } else { 24 };
                let place = from + chance.below((forged.len() - from) as u64) as usize;
                forged[place] = chance.below(256) as u8;
            }
            if chance.chance(1, 8) {
                forged.truncate(head + chance.below((forged.len() - head) as u64) as usize);
            }
            let digest = snapshot_digest(&forged);
            forged.extend_from_slice(&digest.to_le_bytes());
            let Ok(mut device) = Device::restore(&profile, CAPACITY, &forged) else {
                continue;
            };
            let start = device.now().as_ns();
            for (now, command) in commands(round, 400, 20_000) {
                let now = Time::from_ns(start + now.as_ns());
                device.submit(now, command).expect("it lies on the drive");
            }
            device.advance(Time::from_ns(start + 50_000_000), &mut Vec::new());
            device.power_cut(device.now(), &PowerCut::default());
            device
                .check()
                .unwrap_or_else(|wrong| panic!("{name}, round {round}: {wrong}"));
        }
    }
}

/// As in `ssd::snapshot`.
fn snapshot_digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 29
    })
}

/// A write in the buffer when the power fails, as `op` and with capacitors for `hold_up`: what is
/// lost.
fn cut_after(name: &str, op: Op, hold_up: Duration) -> Recovered {
    let mut device = device(name, Condition::Clean);
    let write = command(0, op, 5, 2);
    device.submit(Time::ZERO, write).expect("it fits");
    finish(&mut device, &mut Vec::new());
    let power = PowerCut {
        hold_up,
        ..PowerCut::default()
    };
    let recovered = device.power_cut(device.now(), &power);
    device.check().expect("it is sound");
    recovered
}

#[test]
fn a_power_cut_takes_what_is_neither_programmed_nor_held_up() {
    let long = Duration::from_ms(100);
    let both = [5, 6].map(|unit| Lost {
        unit,
        writes: 1,
        content: Content::Earlier,
    });
    for (name, op, hold_up, lost) in [
        ("dct983", Op::Write, long, &[][..]),
        ("dct983", Op::Write, Duration::ZERO, &both),
        ("970pro", Op::Write, long, &both),
        ("970pro", Op::WriteThrough, Duration::ZERO, &[]),
    ] {
        let recovered = cut_after(name, op, hold_up);
        assert_eq!(recovered.lost, lost, "{name} {op:?} {hold_up:?}");
    }
}

#[test]
fn recovery_takes_the_time_of_reading_open_rows_and_those_since_the_checkpoint() {
    // Two units were written: one row is open, and none of the host's was programmed since the
    // drive was built.
    let profile = Profile::named("dct983").expect("it ships");
    let recovered = cut_after("dct983", Op::Write, Duration::ZERO);
    assert_eq!(recovered.spent.as_ns(), 3 * profile.read_lower_ns);
}

#[test]
fn commands_go_on_after_a_cut_and_those_before_do_not() {
    let mut device = device("970pro", Condition::Fragmented(100));
    for tag in 0..50 {
        let write = command(tag, Op::Write, tag * 8, 8);
        device.submit(Time::ZERO, write).expect("it fits");
    }
    let cut = Time::from_ns(100_000);
    let recovered = device.power_cut(cut, &PowerCut::default());
    assert_eq!(recovered.ready, cut + recovered.spent);
    assert_eq!(device.outstanding(), 0);
    let mut done = Vec::new();
    device.advance(cut, &mut done);
    assert!(done.iter().all(|completion| completion.at <= cut));
    done.clear();
    device
        .submit(cut, command(99, Op::Read, 0, 1))
        .expect("it fits");
    finish(&mut device, &mut done);
    assert_eq!((done.len(), done[0].tag), (1, 99));
    assert!(done[0].at > recovered.ready);
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
