//! Open-channel devices in files, in the simulated world: programs killed, power cut, disks that
//! fail.

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::{DeviceExt, FileDevice, FileOptions, IoError, Verdict};
use flashyard_drives::open_channel::{
    Medium, OpenChannel, PartitionError, Report, Wanted, check, is_image,
};
use flashyard_flash::Profile;
use flashyard_flash::channel;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Access, Config, Machine, World};
use flashyard_testbed::{behaves_as_an_array, flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const PATH: &str = "/flash";

/// Two channels with one unit each, and 32 chunks of 512 KiB of each.
fn factory(options: channel::Options) -> channel::Device {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    channel::Device::new(&profile, 32 * MIB, 1, options).expect("the capacity fits")
}

async fn open_with(rt: &Rt, device: channel::Device) -> Result<OpenChannel, PartitionError> {
    let options = FileOptions {
        block_size: BLOCK as u32,
        size: Some(Medium::file_bytes(&device)),
        read_only: false,
    };
    let file = FileDevice::open(rt, Path::new(PATH), options).await;
    let file = file.map_err(|error| PartitionError::Store(error.to_string()))?;
    let medium = Medium::in_file(rt, device, file, Some([7; 16])).await?;
    OpenChannel::open(rt, medium, [9; 16], 1).await
}

async fn open(rt: &Rt) -> OpenChannel {
    let opened = open_with(rt, factory(channel::Options::default())).await;
    opened.expect("it is sound")
}

/// Runs `main` on a machine that is switched off afterwards in one of three ways.
fn live<F: Future + 'static>(
    world: &World,
    machine: &Machine,
    end: u64,
    main: impl FnOnce(Rt) -> F,
) -> F::Output {
    let output = world.run(machine, main);
    match end % 3 {
        0 => machine.power_cut(),
        1 => machine.crash(),
        _ => machine.crash_silently(),
    }
    machine.restart();
    output
}

#[test]
fn a_partition_in_a_file_is_an_array() {
    for seed in 0..2 {
        let world = World::new(Config::stormy(seed));
        let machine = world.machine(1);
        world.run(&machine, move |rt| async move {
            let device = open(&rt).await;
            let wanted = Wanted::Channels(vec![1]);
            let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
            behaves_as_an_array(&*partition, seed, 120).await;
            assert_eq!(device.allocated(), 0, "nothing is kept in memory");
            device.stop().await.unwrap();
            device.close().await;
        });
    }
}

/// What blocks may hold: all that was written since the last flush that was answered, and what that
/// one made durable.
struct Possible(Vec<Vec<u8>>);

impl Possible {
    fn settle(&mut self) {
        for versions in &mut self.0 {
            versions.drain(..versions.len() - 1);
        }
    }
}

/// Writes, deallocates and flushes without end.
async fn use_it(rt: Rt, seed: u64, possible: Rc<RefCell<Possible>>) {
    let mut chance = Rng::new(seed);
    let device = open(&rt).await;
    let partition = match device.partition("db") {
        Some(partition) => partition,
        None => {
            let wanted = Wanted::Channels(vec![0]);
            let created = device.create("db", [1; 16], &wanted, 200).await;
            created.expect("the channel is free")
        }
    };
    let blocks = possible.borrow().0.len() as u64;
    loop {
        let lba = chance.below(blocks);
        let count = 1 + chance.below((blocks - lba).min(48));
        let value = 1 + chance.below(255) as u8;
        let value = if chance.below(12) == 0 { 0 } else { value };
        for versions in &mut possible.borrow_mut().0[lba as usize..(lba + count) as usize] {
            versions.push(value);
        }
        if value == 0 {
            let tag = flashyard_block::Tag::default();
            partition.deallocate(tag, lba, count).await.unwrap();
        } else {
            let len = count as usize * BLOCK;
            write(&*partition, lba, len, value).await.unwrap();
        }
        match chance.below(40) {
            0 => {
                flush(&*partition).await.unwrap();
                possible.borrow_mut().settle();
            }
            1 => {
                partition.stop().await.unwrap();
                possible.borrow_mut().settle();
            }
            _ => {}
        }
    }
}

/// The partition was used up to some instant, several times: erases, collecting and checkpoints are
/// cut off too.
#[test]
fn what_was_flushed_is_there_whenever_the_program_or_the_power_goes() {
    for seed in 0..if cfg!(debug_assertions) { 3 } else { 60 } {
        // A fraction of the partition, so that it is written many times over; and nearly all of it.
        let blocks = if seed % 2 == 0 { 900 } else { 2200 };
        let possible = Rc::new(RefCell::new(Possible(vec![vec![0]; blocks])));
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let mut chance = Rng::new(seed).split(1);
        for life in 0..5 {
            let span = Duration::from_us(chance.range(1..700_000));
            let (log, life_seed) = (Rc::clone(&possible), chance.below(1 << 40));
            live(&world, &machine, chance.below(3), |rt| async move {
                rt.spawn(use_it(rt.clone(), life_seed, log)).detach();
                rt.sleep(span).await;
            });
            // A second cut while it is opened again.
            let span = Duration::from_us(chance.range(1..20_000));
            live(&world, &machine, chance.below(3), |rt| async move {
                let opening = rt.clone();
                rt.spawn(async move { drop(open(&opening).await) }).detach();
                rt.sleep(span).await;
            });
            let looked_at = Rc::clone(&possible);
            live(&world, &machine, 1, |rt| async move {
                let device = open(&rt).await;
                let Some(partition) = device.partition("db") else {
                    assert_eq!(life, 0, "seed {seed}");
                    return;
                };
                let mut all = std::mem::take(&mut looked_at.borrow_mut().0);
                for (lba, versions) in (0..).zip(&mut all) {
                    let found = read(&*partition, lba, BLOCK).await.unwrap();
                    let value = found[0];
                    assert!(found.iter().all(|&byte| byte == value), "torn");
                    assert!(
                        versions.contains(&value),
                        "seed {seed}, life {life}, block {lba}: {value} of {versions:?}"
                    );
                    *versions = vec![value];
                }
                looked_at.borrow_mut().0 = all;
            });
        }
    }
}

/// Partitions are created and deleted, and the power goes.
#[test]
fn the_layout_in_a_file_survives_a_cut_at_any_instant() {
    for cut in 0..if cfg!(debug_assertions) { 12 } else { 80 } {
        let world = World::new(Config::calm(cut));
        let machine = world.machine(1);
        let done = Rc::new(RefCell::new(Vec::new()));
        let states = [&[][..], &["first"], &["first", "second"], &["second"]];
        let log = Rc::clone(&done);
        live(&world, &machine, cut, |rt| async move {
            let on = rt.clone();
            let change = async move {
                let device = open(&on).await;
                for (name, channel) in [("first", 0), ("second", 1)] {
                    let wanted = Wanted::Channels(vec![channel]);
                    let created = device
                        .create(name, [channel as u8 + 1; 16], &wanted, 200)
                        .await;
                    created.unwrap();
                    log.borrow_mut().push(name);
                }
                device.delete("first").await.unwrap();
                log.borrow_mut().push("deleted");
                std::future::pending::<()>().await;
            };
            rt.spawn(change).detach();
            rt.sleep(Duration::from_us(
                cut * 40_000 / if cfg!(debug_assertions) { 1 } else { 7 },
            ))
            .await;
        });
        let done = done.borrow().len();
        world.run(&machine, |rt| async move {
            let device = open(&rt).await;
            let names: Vec<String> = device.list().into_iter().map(|one| one.name).collect();
            let possible = &states[done..(done + 2).min(4)];
            assert!(
                possible.iter().any(|state| *state == names),
                "{cut}: {done} {names:?}"
            );
        });
    }
}

#[test]
fn after_a_clean_stop_little_is_read_and_wear_is_known() {
    let world = World::new(Config::calm(4));
    let machine = world.machine(1);
    let before = live(&world, &machine, 2, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        for round in 1..12 {
            for lba in (0..2048).step_by(32) {
                write(&*partition, lba, 32 * BLOCK, round).await.unwrap();
            }
        }
        device.stop().await.unwrap();
        let info = device.list().remove(0);
        device.close().await;
        assert_eq!(read(&*partition, 0, BLOCK).await, Err(IoError::NotReady));
        info
    });
    assert!(before.erases.1 > 2, "{before:?}");
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        let after = device.list().remove(0);
        assert_eq!((after.bytes, after.units), (before.bytes, before.units));
        assert!(after.erases.1 >= before.erases.1, "{:?}", after.erases);
        let partition = device.partition("db").expect("it is there");
        for lba in 0..2048 {
            assert_eq!(read(&*partition, lba, BLOCK).await.unwrap(), [11; BLOCK]);
        }
    });
}

/// Records are read one by one only of chunks that were being written, and once: the heads have
/// those of the others.
#[test]
fn a_file_is_opened_by_its_heads() {
    let each = Duration::from_ms(10);
    let open_slowly = |world: &World, machine: &Machine, stops: bool| {
        let at = machine.clone();
        live(world, machine, 1, |rt| async move {
            let disk = at.disk(PATH).expect("it was made");
            disk.slow(each);
            let began = rt.now();
            let device = open(&rt).await;
            let took = rt.now().since(began);
            disk.slow(Duration::ZERO);
            let partition = device.partition("db").expect("it is there");
            for lba in (0..2048).step_by(7) {
                assert_eq!(read(&*partition, lba, BLOCK).await.unwrap(), [9; BLOCK]);
            }
            if stops {
                write(&*partition, 5, BLOCK, 9).await.unwrap();
                device.stop().await.unwrap();
                device.close().await;
            }
            took
        })
    };
    for cut in 0..3 {
        let world = World::new(Config::calm(cut));
        let machine = world.machine(1);
        live(&world, &machine, cut, |rt| async move {
            let device = open(&rt).await;
            let wanted = Wanted::Channels(vec![0]);
            let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
            for lba in (0..2048).step_by(32) {
                write(&*partition, lba, 32 * BLOCK, 9).await.unwrap();
            }
            flush(&*partition).await.unwrap();
        });
        let after_cut = open_slowly(&world, &machine, false);
        let again = open_slowly(&world, &machine, true);
        let after_stop = open_slowly(&world, &machine, false);
        let took = [after_cut, again, after_stop];
        // The records of one chunk follow each other, and so do its data.
        assert!(after_cut < each.scale(40, 1), "{took:?}");
        assert!(again < each.scale(20, 1), "{took:?}");
        assert!(after_stop < each.scale(12, 1), "{took:?}");
    }
}

/// Chunks that were bad from the factory, or went out of use, stay so.
#[test]
fn what_is_out_of_use_stays_so() {
    let faulty = channel::Options {
        endurance: 6,
        faults: channel::Faults {
            bad_chunks: 50_000,
            writes: 4_000,
            ..channel::Faults::default()
        },
        ..channel::Options::default()
    };
    let world = World::new(Config::calm(4));
    let machine = world.machine(1);
    let before = live(&world, &machine, 0, |rt| async move {
        let device = open_with(&rt, factory(faulty)).await.unwrap();
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 400).await.unwrap();
        for lba in (0..1024).step_by(32) {
            write(&*partition, lba, 32 * BLOCK, 9).await.unwrap();
        }
        let mut chance = Rng::new(1);
        while !device.list()[0].read_only {
            let lba = chance.below(1024);
            match write(&*partition, lba, BLOCK, 9).await {
                Ok(()) => {}
                Err(error) => assert_eq!(error, IoError::WriteProtected),
            }
        }
        flush(&*partition).await.ok();
        device.list().remove(0)
    });
    world.run(&machine, |rt| async move {
        // As if it were new and sound: what the file tells counts.
        let device = open(&rt).await;
        let after = device.list().remove(0);
        assert_eq!(after.spare, before.spare);
        let partition = device.partition("db").expect("it is there");
        for lba in 0..1024 {
            assert_eq!(read(&*partition, lba, BLOCK).await.unwrap(), [9; BLOCK]);
        }
    });
}

#[test]
fn a_file_that_is_another_device_or_none_is_refused() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let shown = |opened: Result<OpenChannel, PartitionError>| match opened {
        Ok(_) => "opened".to_owned(),
        Err(error) => error.to_string(),
    };
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        let again = open_with(&rt, factory(channel::Options::default())).await;
        assert!(shown(again).contains("another program uses it"));
        device.close().await;
        drop(device);

        let mut profile = Profile::named("cnex").expect("it ships");
        profile.channels = 1;
        profile.dies_per_channel = 2;
        let other = channel::Device::new(&profile, 32 * MIB, 1, channel::Options::default());
        let other = open_with(&rt, other.expect("it fits")).await;
        assert!(shown(other).contains("another geometry"));

        let disk = at.disk(PATH).expect("it was made");
        let header = disk.read(0..8192);
        disk.write(0, &[0xFF; 8192]);
        let foreign = open_with(&rt, factory(channel::Options::default())).await;
        assert!(shown(foreign).contains("holds something else"));
        disk.write(0, &header);
        disk.flip(40, 1);
        disk.flip(4096 + 40, 1);
        let damaged = open_with(&rt, factory(channel::Options::default())).await;
        assert!(shown(damaged).contains("damaged"));
        disk.write(0, &header);
        open(&rt).await.close().await;
    });
}

/// The disk under the file fails: no I/O hangs, and nothing that was flushed is lost.
#[test]
fn a_file_that_fails_ends_the_device_and_loses_nothing() {
    for (seed, access) in [(1, Access::Write), (2, Access::Sync)] {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let at = machine.clone();
        live(&world, &machine, 0, |rt| async move {
            let device = open(&rt).await;
            let wanted = Wanted::Channels(vec![0]);
            let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
            write(&*partition, 5, BLOCK, 1).await.unwrap();
            flush(&*partition).await.unwrap();
            let disk = at.disk(PATH).expect("it was made");
            disk.fail(access, 0..u64::MAX, 5, None);
            write(&*partition, 6, BLOCK, 2).await.unwrap();
            assert_eq!(flush(&*partition).await, Err(IoError::NotReady));
            assert_eq!(device.failure(), Some(IoError::Write));
            let wanted = Wanted::Channels(vec![1]);
            let refused = device.create("more", [2; 16], &wanted, 200).await.err();
            assert_eq!(refused, Some(PartitionError::Failed(IoError::Write)));
            assert_eq!(read(&*partition, 5, BLOCK).await, Err(IoError::NotReady));
            device.close().await;
            disk.repair();
        });
        world.run(&machine, |rt| async move {
            let device = open(&rt).await;
            let partition = device.partition("db").expect("it is there");
            assert_eq!(read(&*partition, 5, BLOCK).await.unwrap(), [1; BLOCK]);
            let found = read(&*partition, 6, BLOCK).await.unwrap()[0];
            assert!(found == 0 || found == 2);
        });
    }
}

/// A sector that the disk cannot read is one that the flash has lost; others are as they were.
#[test]
fn what_the_disk_cannot_read_is_reported() {
    let world = World::new(Config::calm(3));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        for lba in 0..64 {
            write(&*partition, lba, BLOCK, 3).await.unwrap();
        }
        partition.stop().await.unwrap();
        let disk = at.disk(PATH).expect("it was made");
        disk.fail(Access::Read, 0..u64::MAX, 5, None);
        assert_eq!(read(&*partition, 5, BLOCK).await, Err(IoError::Read));
        disk.repair();
        assert_eq!(read(&*partition, 5, BLOCK).await.unwrap(), [3; BLOCK]);
    });
}

/// Pieces of a chunk in the file: eight units of 64 KiB, each with its record.
const CHUNK: u64 = 8 * 17;

/// Where the head of a chunk of 32 of a channel is in the file.
fn head_of(channel: u64, chunk: u64) -> u64 {
    (2 + channel * 32 + chunk) * BLOCK as u64
}

/// Where its first sector is.
fn data_of(channel: u64, chunk: u64) -> u64 {
    (2 + 64 + (channel * 32 + chunk) * CHUNK + 1) * BLOCK as u64
}

async fn look(rt: &Rt) -> Result<Report, PartitionError> {
    let options = FileOptions {
        block_size: BLOCK as u32,
        size: None,
        read_only: true,
    };
    let file = FileDevice::open(rt, Path::new(PATH), options).await;
    check(rt, file.expect("it is free")).await
}

/// A device with a partition in which something was written.
async fn written(rt: &Rt) {
    let device = open(rt).await;
    let wanted = Wanted::Channels(vec![0]);
    let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
    for lba in 0..256 {
        write(&*partition, lba, BLOCK, 3).await.unwrap();
    }
    device.stop().await.unwrap();
    device.close().await;
}

#[test]
fn whatever_was_cut_off_is_sound() {
    for seed in 0..if cfg!(debug_assertions) { 2 } else { 30 } {
        let possible = Rc::new(RefCell::new(Possible(vec![vec![0]; 1500])));
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let mut chance = Rng::new(seed).split(2);
        let span = Duration::from_us(chance.range(60_000..900_000));
        live(&world, &machine, seed, |rt| async move {
            rt.spawn(use_it(rt.clone(), seed, possible)).detach();
            rt.sleep(span).await;
        });
        let at = machine.clone();
        world.run(&machine, |rt| async move {
            let disk = at.disk(PATH).expect("it was made");
            let before = disk.read(0..disk.size());
            let report = look(&rt).await.expect("it can be read");
            assert_eq!(report.verdict(), Verdict::Sound, "{seed}: {report}");
            assert_eq!(report.partitions[0].name, "db");
            assert_eq!(report, look(&rt).await.expect("as before"));
            assert!(disk.read(0..disk.size()) == before, "nothing was changed");
        });
    }
}

#[test]
fn a_damaged_copy_of_the_layout_is_reported_and_repaired_and_two_are_refused() {
    for damaged in 0..2 {
        let world = World::new(Config::calm(damaged));
        let machine = world.machine(1);
        let at = machine.clone();
        world.run(&machine, |rt| async move {
            written(&rt).await;
            let disk = at.disk(PATH).expect("it was made");
            assert!(is_image(&disk.read(0..4096)));
            let report = look(&rt).await.unwrap();
            assert_eq!(report.verdict(), Verdict::Sound, "{report}");
            assert_eq!(report.partitions.len(), 1);
            assert!(report.partitions[0].recoverable && report.partitions[0].bytes > 8 * MIB);

            disk.flip(data_of(damaged, 0) + 70, 4);
            let report = look(&rt).await.unwrap();
            assert!(
                report.verdict() == Verdict::Repairable && !report.copies[damaged as usize].whole
            );
            assert!(report.copies[1 - damaged as usize].whole);
            assert!(report.partitions[0].recoverable, "{report}");
            // Opening repairs it.
            let device = open(&rt).await;
            assert_eq!(device.list().len(), 1);
            device.close().await;
            drop(device);
            let report = look(&rt).await.unwrap();
            assert_eq!(report.verdict(), Verdict::Sound, "{report}");

            for copy in 0..2 {
                disk.flip(data_of(copy, 0) + 70, 4);
            }
            let report = look(&rt).await.unwrap();
            assert!(report.verdict() == Verdict::Lost && report.partitions.is_empty());
            assert!(!report.problems.is_empty(), "{report}");
            let refused = open_with(&rt, factory(channel::Options::default())).await;
            let error = refused.err().expect("both are damaged");
            assert!(matches!(error, PartitionError::Damaged(_)), "{error}");
            // And nothing was made anew.
            for copy in 0..2 {
                disk.flip(data_of(copy, 0) + 70, 4);
            }
            assert_eq!(open(&rt).await.list().len(), 1);
        });
    }
}

/// One copy is damaged while the other is being written: the device was used, so it is not taken
/// for a new one.
#[test]
fn a_device_that_was_used_is_never_made_anew() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        written(&rt).await;
        let disk = at.disk(PATH).expect("it was made");
        // The second copy is as if it were erased, and nothing were written.
        disk.write(head_of(1, 0), &[0; BLOCK]);
        let record = data_of(1, 0) - BLOCK as u64;
        disk.write(record, &vec![0; (CHUNK as usize) * BLOCK]);
        disk.flip(data_of(0, 0) + 70, 4);
        let refused = open_with(&rt, factory(channel::Options::default())).await;
        let error = refused.err().expect("there is no layout");
        assert!(matches!(error, PartitionError::Damaged(_)), "{error}");
    });
}

#[test]
fn damaged_data_and_headers_are_reported() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        written(&rt).await;
        let disk = at.disk(PATH).expect("it was made");
        // Chunks 1 and later of channel 0 hold the partition; what is full is durable for sure.
        let full =
            (1..32).find(|chunk| disk.read(data_of(0, *chunk)..data_of(0, *chunk) + 1) == [3]);
        let full = full.expect("something was written");
        let place = data_of(0, full);
        disk.flip(place + 100, 1);
        let report = look(&rt).await.unwrap();
        let is_reported = report
            .problems
            .iter()
            .any(|one| one.contains("are not what was written"));
        assert!(is_reported, "{report}");
        disk.flip(place + 100, 1);
        disk.flip(4096 + 40, 1);
        let report = look(&rt).await.unwrap();
        assert!(
            report.verdict() == Verdict::Repairable
                && report.repairs[0].contains("second copy of the header"),
            "{report}"
        );
        open(&rt).await.close().await;
        assert_eq!(look(&rt).await.unwrap().verdict(), Verdict::Sound);
        // The head of a chunk of the partition: nothing of it is read any more, and that is
        // reported.
        disk.flip(head_of(0, full) + 20, 1);
        let report = look(&rt).await.unwrap();
        assert!(
            report.problems[0].contains("the head of the chunk"),
            "{report}"
        );
        assert!(report.partitions[0].lost > 0, "{report}");
    });
}

/// A record that rotted is no end of a chunk: those behind it say that it was there.
#[test]
fn a_damaged_record_of_a_chunk_that_was_being_written_is_reported() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    live(&world, &machine, 2, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        for lba in (0..20 * 16).step_by(16) {
            write(&*partition, lba, 16 * BLOCK, 3).await.unwrap();
            flush(&*partition).await.unwrap();
        }
    });
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let disk = at.disk(PATH).expect("it was made");
        let record = |chunk, unit: u64| data_of(0, chunk) - BLOCK as u64 + unit * 17 * BLOCK as u64;
        let is_open = |chunk: &u64| {
            let head = head_of(0, *chunk);
            let last = record(*chunk, 3);
            disk.read(head + 28..head + 29) == [0] && disk.read(last..last + 4) == *b"FLWU"
        };
        let chunk = (1..32).find(is_open).expect("one was being written");
        assert_eq!(look(&rt).await.unwrap().verdict(), Verdict::Sound);
        disk.flip(record(chunk, 1) + 40, 1);
        let report = look(&rt).await.unwrap();
        assert!(
            report.problems[0].contains("the record of write unit 1 is not what was written"),
            "{report}"
        );
    });
}

/// A partition that cannot be opened is reported, can be deleted, and does not disturb its
/// neighbours.
#[test]
fn a_partition_that_is_lost_does_not_take_others_with_it() {
    let world = World::new(Config::calm(2));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        written(&rt).await;
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![1]);
        let other = device.create("other", [2; 16], &wanted, 200).await.unwrap();
        write(&*other, 7, BLOCK, 4).await.unwrap();
        device.stop().await.unwrap();
        device.close().await;
        drop((other, device));
        let disk = at.disk(PATH).expect("it was made");
        for chunk in 1..32 {
            disk.write(head_of(0, chunk), &[0xEE; 64]);
        }
        assert!(!look(&rt).await.unwrap().partitions[0].recoverable);

        let device = open(&rt).await;
        let fault = device.fault("db").expect("nothing of it can be read");
        assert!(matches!(fault, PartitionError::Recover(..)), "{fault}");
        assert!(device.partition("db").is_none());
        let grown = device.grow("db", &Wanted::Count(1)).await;
        assert_eq!(grown, Err(fault));
        let other = device.partition("other").expect("it is sound");
        assert_eq!(read(&*other, 7, BLOCK).await.unwrap(), [4; BLOCK]);
        device.delete("db").await.unwrap();
        let wanted = Wanted::Channels(vec![0]);
        let again = device.create("db", [3; 16], &wanted, 200).await.unwrap();
        assert_eq!(read(&*again, 0, BLOCK).await.unwrap(), [0; BLOCK]);
        device.close().await;
        drop((again, other, device));
        assert_eq!(look(&rt).await.unwrap().verdict(), Verdict::Sound);
    });
}
