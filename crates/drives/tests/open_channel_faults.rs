//! Partitions on flash that fails: programs, erases, reads, and chunks that wear out, with the
//! power going now and then, until too little is left. By seed, in the simulated world.

use std::rc::Rc;

use flashyard_block::{Device, DeviceExt, IoError, Tag};
use flashyard_drives::open_channel::{Medium, OpenChannel, Partition, PartitionError, Wanted};
use flashyard_flash::Profile;
use flashyard_flash::channel::{self, Faults};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};
use flashyard_testbed::{flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const SEEDS: u64 = if cfg!(debug_assertions) { 4 } else { 80 };

/// Two channels with one unit each, and 32 chunks of 512 KiB of each.
fn medium(seed: u64, options: channel::Options) -> Medium {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    let device = channel::Device::new(&profile, 32 * MIB, seed, options);
    Medium::new(device.expect("the capacity fits"))
}

/// What fails, by seed; always enough for the flash to run out.
fn options(seed: u64) -> channel::Options {
    let (writes, resets, reads, endurance) = match seed % 4 {
        0 => (20_000, 0, 2_000, 14),
        1 => (1_000, 60_000, 1_000, 0),
        2 => (0, 0, 0, 8),
        _ => (8_000, 30_000, 8_000, 30),
    };
    channel::Options {
        endurance,
        faults: Faults {
            bad_chunks: 10_000,
            writes,
            resets,
            reads,
        },
        ..channel::Options::default()
    }
}

/// What every block may hold: its versions since the last flush that was answered, and that one's.
struct Model {
    versions: Vec<Vec<u8>>,
    /// Blocks of writes that were refused, and what of them may be stored nevertheless.
    refused: Vec<(std::ops::Range<usize>, u8)>,
    chance: Rng,
}

impl Model {
    /// One I/O. False when it was refused because the partition is read-only.
    async fn step(&mut self, partition: &Partition) -> bool {
        let blocks = self.versions.len() as u64;
        let lba = self.chance.below(blocks);
        let count = 1 + self.chance.below((blocks - lba).min(40));
        let range = lba as usize..(lba + count) as usize;
        let value = 1 + self.chance.below(255) as u8;
        let (value, outcome) = match self.chance.below(50) {
            0 => return self.flush(partition).await,
            1 => (0, partition.deallocate(Tag::default(), lba, count).await),
            _ => {
                let len = count as usize * BLOCK;
                (value, write(partition, lba, len, value).await)
            }
        };
        match outcome {
            // What was refused may be stored, in part.
            Err(IoError::WriteProtected) => {
                for versions in &mut self.versions[range.clone()] {
                    versions.insert(versions.len() - 1, value);
                }
                self.refused.push((range, value));
                return false;
            }
            outcome => outcome.expect("the partition goes on, or is read-only"),
        }
        for versions in &mut self.versions[range] {
            versions.push(value);
        }
        true
    }

    async fn flush(&mut self, partition: &Partition) -> bool {
        match flush(partition).await {
            Ok(()) => {
                for versions in &mut self.versions {
                    versions.drain(..versions.len() - 1);
                }
                true
            }
            Err(error) => {
                assert_eq!(error, IoError::WriteProtected);
                false
            }
        }
    }

    /// Looks at all blocks: each holds the newest version, or after a cut one that is possible.
    async fn look(&mut self, partition: &Partition, cut: bool, what: &str) {
        for (lba, versions) in (0..).zip(&mut self.versions) {
            let found = read(partition, lba, BLOCK).await;
            let found = found.unwrap_or_else(|error| panic!("{what}, block {lba}: {error:?}"));
            let value = found[0];
            assert!(found.iter().all(|&byte| byte == value), "{what}: torn");
            let right = match cut {
                true => versions.contains(&value),
                false => {
                    let stored = |(range, refused): &(std::ops::Range<usize>, u8)| {
                        range.contains(&(lba as usize)) && *refused == value
                    };
                    versions.last() == Some(&value) || self.refused.iter().any(stored)
                }
            };
            assert!(right, "{what}, block {lba}: {value} of {versions:?}");
            if cut {
                *versions = vec![value];
            }
        }
    }
}

async fn open(rt: &Rt, medium: Medium) -> OpenChannel {
    let opened = OpenChannel::open(rt, medium, [9; 16], 1).await;
    opened.expect("its layout is whole")
}

fn partition(device: &OpenChannel) -> Rc<Partition> {
    device.partition("db").expect("it is there")
}

/// Uses a partition until it is read-only. The device then; nothing when the layout's own flash
/// failed before.
async fn use_up(rt: &Rt, seed: u64, model: &mut Model) -> Option<OpenChannel> {
    let mut device = open(rt, medium(seed, options(seed))).await;
    let wanted = Wanted::Channels(vec![0]);
    match device.create("db", [1; 16], &wanted, 250).await {
        Ok(_) => {}
        Err(PartitionError::Medium) => return None,
        Err(error) => panic!("{seed}: {error}"),
    }
    for _ in 0..1_000_000 {
        let partition = partition(&device);
        if !model.step(&partition).await {
            assert!(device.list()[0].read_only && partition.info().read_only);
            let health = partition.health();
            assert_eq!((health.spare, health.worn_out), (0, true));
            model
                .look(&partition, false, &format!("seed {seed}, at the end"))
                .await;
            return Some(device);
        }
        if model.chance.below(400) == 0 {
            rt.sleep(Duration::from_us(model.chance.below(3000))).await;
            let medium = device.power_cut().expect("it has power");
            device = open(rt, medium).await;
            let partition = self::partition(&device);
            model
                .look(&partition, true, &format!("seed {seed}, after a cut"))
                .await;
        }
    }
    panic!("seed {seed}: the flash does not run out");
}

#[test]
fn flash_that_fails_is_read_only_in_the_end_and_loses_nothing() {
    let mut ends = 0;
    for seed in 0..SEEDS {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        ends += world.run(&machine, move |rt| async move {
            let mut model = Model {
                versions: vec![vec![0]; if seed % 8 < 4 { 700 } else { 1800 }],
                refused: Vec::new(),
                chance: Rng::new(seed),
            };
            let Some(device) = use_up(&rt, seed, &mut model).await else {
                return 0;
            };
            let partition = partition(&device);
            assert_eq!(
                write(&*partition, 3, BLOCK, 1).await,
                Err(IoError::WriteProtected)
            );
            let forgotten = partition.deallocate(Tag::default(), 3, 1).await;
            assert_eq!(forgotten, Err(IoError::WriteProtected));
            // What was flushed outlives even that.
            let medium = device.power_cut().expect("it has power");
            let device = open(&rt, medium).await;
            model
                .look(
                    &self::partition(&device),
                    true,
                    &format!("seed {seed}, after the end"),
                )
                .await;
            // It can be given up, and its neighbour's flash is as good as before.
            match device.delete("db").await {
                Ok(()) | Err(PartitionError::Medium) => 1,
                Err(error) => panic!("{seed}: {error}"),
            }
        });
    }
    assert!(ends * 4 >= SEEDS * 3, "{ends} of {SEEDS}");
}

/// A neighbour of a partition that fails does not notice.
#[test]
fn a_neighbour_of_flash_that_fails_goes_on() {
    let world = World::new(Config::calm(5));
    let machine = world.machine(1);
    world.run(&machine, |rt| async move {
        let device = Rc::new(open(&rt, medium(2, options(2))).await);
        for (name, channel) in [("db", 0), ("calm", 1)] {
            let wanted = Wanted::Channels(vec![channel]);
            let created = device.create(name, [channel as u8; 16], &wanted, 250).await;
            created.expect("the channel is free");
        }
        let calm = device.partition("calm").expect("it is there");
        for lba in 0..300 {
            write(&*calm, lba, BLOCK, 8).await.unwrap();
        }
        flush(&*calm).await.unwrap();
        let mut model = Model {
            versions: vec![vec![0]; 700],
            refused: Vec::new(),
            chance: Rng::new(5),
        };
        let preconditioned = partition(&device);
        while model.step(&preconditioned).await {}
        let infos = device.list();
        assert_eq!(
            (infos[0].name.as_str(), infos[0].read_only),
            ("calm", false)
        );
        assert!(infos[1].read_only && infos[1].spare < infos[0].spare);
        let health = calm.health();
        assert!((50..=100).contains(&health.spare) && !health.worn_out);
        write(&*calm, 0, BLOCK, 9).await.unwrap();
        flush(&*calm).await.unwrap();
        assert_eq!(read(&*calm, 0, BLOCK).await.unwrap(), [9; BLOCK]);
        assert_eq!(read(&*calm, 299, BLOCK).await.unwrap(), [8; BLOCK]);
    });
}
