//! Partitions of an open-channel device, in the simulated world: virtual time, so nothing is late
//! and the seed decides all.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use flashyard_block::{Device, IoError};
use flashyard_drives::open_channel::{
    LayoutError, Medium, OpenChannel, Partition, PartitionError, Wanted,
};
use flashyard_flash::Profile;
use flashyard_flash::channel;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};
use flashyard_testbed::{behaves_as_an_array, flush, read, refuses_what_is_not_there, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = [9; 16];
const BLOCK: usize = 4096;
/// Four channels with two units each, and 32 chunks of 1 MiB of each unit.
const CHANNELS: u64 = 4;

fn medium() -> Medium {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = CHANNELS;
    profile.dies_per_channel = 2;
    let device = channel::Device::new(&profile, 256 * MIB, 1, channel::Options::default());
    Medium::new(device.expect("the capacity fits"))
}

async fn open(rt: &Rt, medium: Medium) -> OpenChannel {
    let opened = OpenChannel::open(rt, medium, UUID, 1).await;
    opened.expect("it is sound")
}

/// A partition of one channel.
async fn on_channel(device: &OpenChannel, name: &str, channel: u32) -> Rc<Partition> {
    let wanted = Wanted::Channels(vec![channel]);
    let created = device.create(name, [channel as u8; 16], &wanted, 200).await;
    created.expect("the channel is free")
}

/// Runs `test` on a machine of a simulated world.
fn in_world<F: Future + 'static>(config: Config, test: impl FnOnce(Rt) -> F) -> F::Output {
    let world = World::new(config);
    let machine = world.machine(1);
    world.run(&machine, test)
}

/// A world in which programs take no time, so that all that passes is the device's.
fn timeless() -> Config {
    Config {
        turn: (Duration::ZERO, Duration::ZERO),
        ..Config::calm(1)
    }
}

#[test]
fn a_partition_is_an_array() {
    for seed in 0..2 {
        in_world(Config::stormy(seed), move |rt| async move {
            let device = open(&rt, medium()).await;
            let partition = on_channel(&device, "db", 1).await;
            assert!(partition.is_blank());
            behaves_as_an_array(&*partition, seed, 200).await;
            refuses_what_is_not_there(&*partition).await;
            assert!(!partition.is_blank());
            let info = device.list().remove(0);
            assert_eq!(info.units, [(1, 0), (1, 1)]);
            assert!(info.own_channels && !info.read_only);
            assert!(info.bytes > 40 * MIB && info.bytes < 64 * MIB, "{info:?}");
            assert!(info.written.0 > 0);
        });
    }
}

#[test]
fn tenants_keep_their_data_apart() {
    in_world(timeless(), |rt| async move {
        let device = open(&rt, medium()).await;
        let mut partitions = Vec::new();
        for channel in 0..3 {
            partitions.push(on_channel(&device, &format!("p{channel}"), channel).await);
        }
        for lba in 0..300 {
            for (value, partition) in (1..).zip(&partitions) {
                write(&**partition, lba, BLOCK, value).await.unwrap();
            }
        }
        for lba in [0, 17, 299] {
            for (value, partition) in (1..).zip(&partitions) {
                assert_eq!(
                    read(&**partition, lba, BLOCK).await.unwrap(),
                    [value; BLOCK]
                );
            }
        }
        device.delete("p1").await.unwrap();
        assert_eq!(
            read(&*partitions[1], 0, BLOCK).await,
            Err(IoError::NotReady)
        );
        let next = on_channel(&device, "next", 1).await;
        for lba in 0..300 {
            assert_eq!(read(&*next, lba, BLOCK).await.unwrap(), [0; BLOCK]);
        }
        assert_eq!(read(&*partitions[2], 299, BLOCK).await.unwrap(), [3; BLOCK]);
    });
}

/// A deletion waits for all that was issued, flushes too: none of them is left without an end.
#[test]
fn a_flush_ends_though_its_partition_is_deleted() {
    in_world(timeless(), |rt| async move {
        let device = open(&rt, medium()).await;
        let partition = on_channel(&device, "db", 1).await;
        for lba in 0..10 {
            write(&*partition, lba, BLOCK, 1).await.unwrap();
        }
        let flushing = Rc::clone(&partition);
        let flushing = rt.spawn(async move { flush(&*flushing).await });
        rt.sleep(Duration::from_us(1)).await;
        assert!(!flushing.is_finished(), "it takes a program");
        device.delete("db").await.unwrap();
        assert!(flushing.is_finished(), "it was waited for");
        assert_eq!(flushing.await, Ok(()));
        assert_eq!(flush(&*partition).await, Err(IoError::NotReady));
    });
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    in_world(timeless(), |rt| async move {
        let device = open(&rt, medium()).await;
        on_channel(&device, "db", 0).await;
        let cases: [(&str, Wanted, LayoutError); 4] = [
            ("db", Wanted::Count(2), LayoutError::Exists("db".into())),
            (
                "logs",
                Wanted::Channels(vec![0]),
                LayoutError::Overlap((0, 0), "db".into()),
            ),
            (
                "logs",
                Wanted::Units(vec![(1, 0), (1, 1), (2, 0)]),
                LayoutError::Uneven([(1, 2), (2, 1)]),
            ),
            ("logs", Wanted::Count(7), LayoutError::Scarce(7, 6)),
        ];
        for (name, wanted, reason) in cases {
            let refused = device.create(name, UUID, &wanted, 200).await.err();
            assert_eq!(refused, Some(PartitionError::Layout(reason)));
        }
        assert_eq!(device.free().len(), 6);
        let unknown = device.delete("logs").await.err();
        assert_eq!(
            unknown,
            Some(PartitionError::Layout(LayoutError::Unknown("logs".into())))
        );
    });
}

#[test]
fn a_partition_grows_while_it_is_used() {
    in_world(timeless(), |rt| async move {
        let device = open(&rt, medium()).await;
        let partition = on_channel(&device, "db", 3).await;
        let before = partition.info().blocks;
        write(&*partition, before - 1, BLOCK, 7).await.unwrap();
        device.grow("db", &Wanted::Channels(vec![1])).await.unwrap();
        let after = partition.info().blocks;
        assert!(after > before + before / 2, "{before} {after}");
        // Across the seam.
        write(&*partition, before, 2 * BLOCK, 8).await.unwrap();
        assert_eq!(
            read(&*partition, before - 1, BLOCK).await.unwrap(),
            [7; BLOCK]
        );
        write(&*partition, before - 1, 2 * BLOCK, 9).await.unwrap();
        let seam = read(&*partition, before - 1, 3 * BLOCK).await.unwrap();
        assert_eq!(seam[..2 * BLOCK], [9; 2 * BLOCK]);
        assert_eq!(seam[2 * BLOCK..], [8; BLOCK]);
        flush(&*partition).await.unwrap();
        let medium = device.power_cut().expect("it has power");
        let device = open(&rt, medium).await;
        let partition = device.partition("db").expect("it is there");
        assert_eq!(partition.info().blocks, after);
        assert_eq!(
            read(&*partition, before - 1, 3 * BLOCK).await.unwrap(),
            seam
        );
    });
}

/// Cuts the power at some instant while partitions are created and deleted, and looks at what is
/// left.
#[test]
fn the_layout_survives_a_cut_at_any_instant() {
    let (cuts, step) = if cfg!(debug_assertions) {
        (10, 2800)
    } else {
        (70, 400)
    };
    for cut in 0..cuts {
        in_world(timeless(), move |rt| async move {
            let device = Rc::new(open(&rt, medium()).await);
            let first = on_channel(&device, "first", 0).await;
            write(&*first, 5, BLOCK, 1).await.unwrap();
            flush(&*first).await.unwrap();
            let done = Rc::new(Cell::new(0));
            let (changing, changed) = (Rc::clone(&device), Rc::clone(&done));
            let changes = rt.spawn(async move {
                let wanted = Wanted::Channels(vec![1, 2]);
                changing.create("second", [2; 16], &wanted, 200).await.ok();
                changed.set(1);
                changing.delete("first").await.ok();
                changed.set(2);
                changing
                    .create("third", [3; 16], &Wanted::Count(2), 200)
                    .await
                    .ok();
                changed.set(3);
            });
            rt.sleep(Duration::from_us(step * cut)).await;
            let medium = device.power_cut().expect("it has power");
            let done = done.get();
            drop(changes);
            let device = open(&rt, medium).await;
            let names: Vec<String> = device.list().into_iter().map(|one| one.name).collect();
            let states: [&[&str]; 4] = [
                &["first"],
                &["first", "second"],
                &["second"],
                &["second", "third"],
            ];
            let possible = &states[done..(done + 2).min(4)];
            assert!(
                possible.iter().any(|state| *state == names),
                "{cut}: {done} {names:?}"
            );
            if let Some(first) = device.partition("first") {
                assert_eq!(read(&*first, 5, BLOCK).await.unwrap(), [1; BLOCK]);
            }
        });
    }
}

/// What was flushed is there after a cut; what was written since is there or not; nothing else is.
#[test]
fn what_was_flushed_survives_cuts() {
    for seed in 0..if cfg!(debug_assertions) { 3 } else { 40 } {
        in_world(timeless(), move |rt| async move {
            const BLOCKS: u64 = 512;
            let mut chance = Rng::new(seed);
            let mut device = open(&rt, medium()).await;
            on_channel(&device, "db", 2).await;
            let mut possible = vec![vec![0_u8]; BLOCKS as usize];
            for life in 1..4 {
                let partition = device.partition("db").expect("it is there");
                for _ in 0..chance.range(20..300) {
                    let lba = chance.below(BLOCKS);
                    let value = (life * 50 + chance.below(50)) as u8;
                    write(&*partition, lba, BLOCK, value).await.unwrap();
                    possible[lba as usize].push(value);
                    if chance.below(60) == 0 {
                        flush(&*partition).await.unwrap();
                        for versions in &mut possible {
                            versions.drain(..versions.len() - 1);
                        }
                    }
                }
                rt.sleep(Duration::from_us(chance.below(4000))).await;
                let medium = device.power_cut().expect("it has power");
                assert_eq!(read(&*partition, 0, BLOCK).await, Err(IoError::NotReady));
                device = open(&rt, medium).await;
                let partition = device.partition("db").expect("it is there");
                for (lba, versions) in (0..).zip(&mut possible) {
                    let found = read(&*partition, lba, BLOCK).await.unwrap()[0];
                    assert!(
                        versions.contains(&found),
                        "{seed} {life} {lba}: {found} {versions:?}"
                    );
                    *versions = vec![found];
                }
            }
        });
    }
}

/// The mean time of reads, one at a time, of what was written before.
async fn reads(rt: &Rt, partition: &Partition, seed: u64) -> Duration {
    let mut chance = Rng::new(seed);
    let begun = rt.now();
    for _ in 0..400 {
        read(partition, chance.below(2048), BLOCK).await.unwrap();
    }
    (rt.now() - begun) / 400
}

/// A partition with something to read.
async fn written(device: &OpenChannel, name: &str, wanted: &Wanted) -> Rc<Partition> {
    let created = device.create(name, [7; 16], wanted, 200).await;
    let partition = created.expect("the units are free");
    for lba in (0..2048).step_by(64) {
        write(&*partition, lba, 64 * BLOCK, 5).await.unwrap();
    }
    partition.stop().await.unwrap();
    partition
}

#[test]
fn a_neighbour_on_other_channels_is_not_noticed() {
    let (alone, own, shared) = in_world(timeless(), |rt| async move {
        let device = open(&rt, medium()).await;
        let channel = Wanted::Channels(vec![0]);
        let reader = written(&device, "reader", &channel).await;
        let halves = |pu| Wanted::Units((0..2).map(|channel| (channel + 1, pu)).collect());
        let half = written(&device, "half", &halves(0)).await;
        let alone = reads(&rt, &reader, 1).await;
        let writer = device
            .create("writer", [8; 16], &halves(1), 200)
            .await
            .unwrap();
        let blocks = writer.info().blocks;
        let busy = rt.spawn(async move {
            let mut chance = Rng::new(4);
            loop {
                write(&*writer, chance.below(blocks), BLOCK, 1)
                    .await
                    .unwrap();
            }
        });
        rt.sleep(Duration::from_ms(50)).await;
        let own = reads(&rt, &reader, 2).await;
        let shared = reads(&rt, &half, 3).await;
        drop(busy);
        (alone, own, shared)
    });
    assert!(
        own.as_ns() * 5 <= alone.as_ns() * 6,
        "alone {alone:?}, beside a writer {own:?}"
    );
    // One unit that writes takes a seventh of its channel's time.
    assert!(
        shared.as_ns() * 20 > alone.as_ns() * 21,
        "shared channels {shared:?}, alone {alone:?}"
    );
}
