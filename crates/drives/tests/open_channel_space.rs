//! Open-channel devices in files for which there is no space: nothing is lost but what cannot be
//! taken.

use std::future::Future;
use std::path::Path;

use flashyard_block::{Device, FileDevice, FileOptions, IoError};
use flashyard_drives::open_channel::{Medium, OpenChannel, PartitionError, Wanted};
use flashyard_flash::Profile;
use flashyard_flash::channel;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_testbed::{flush, read, write};
use flashyard_time::Duration;

const BLOCK: usize = 4096;
const PATH: &str = "/flash";

/// Opens a device of two channels with one unit each, made if it is not there.
async fn open(rt: &Rt) -> OpenChannel {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    let device = channel::Device::new(&profile, 32 << 20, 1, channel::Options::default());
    let device = device.expect("the capacity fits");
    let options = FileOptions {
        block_size: BLOCK as u32,
        size: Some(Medium::file_bytes(&device)),
        read_only: false,
    };
    let file = FileDevice::open(rt, Path::new(PATH), options).await;
    let medium = Medium::in_file(rt, device, file.expect("it is free"), Some([7; 16])).await;
    let opened = OpenChannel::open(rt, medium.expect("it is sound"), [9; 16], 1).await;
    opened.expect("it is sound")
}

/// Runs `main` on a machine that is switched off afterwards in one of two ways.
fn live<F: Future + 'static>(
    world: &World,
    machine: &Machine,
    end: u64,
    main: impl FnOnce(Rt) -> F,
) {
    world.run(machine, main);
    match end % 2 {
        0 => machine.power_cut(),
        _ => machine.crash_silently(),
    }
    machine.restart();
}

/// Writes value after value until there is no space left; the blocks whose write was acknowledged.
async fn fill(device: &dyn Device, value: u8) -> Vec<u64> {
    let mut written = Vec::new();
    for lba in (0..2048).step_by(16) {
        match write(device, lba, 16 * BLOCK, value).await {
            Ok(()) => written.push(lba),
            Err(error) => assert_eq!(error, IoError::NoSpace),
        }
    }
    assert_eq!(flush(device).await, Err(IoError::NoSpace));
    written
}

/// Without space for its file a device refuses what has to be written, and nothing else; with it,
/// it goes on.
#[test]
fn a_file_without_space_takes_no_writes_until_there_is_some() {
    for seed in 0..3 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let at = machine.clone();
        live(&world, &machine, seed, |rt| async move {
            let device = open(&rt).await;
            let wanted = Wanted::Channels(vec![0]);
            let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
            write(&*partition, 5, BLOCK, 1).await.unwrap();
            write(&*partition, 2100, BLOCK, 1).await.unwrap();
            flush(&*partition).await.unwrap();
            let disk = at.disk(PATH).expect("it was made");
            disk.set_space(Some(disk.allocated() + (300 << 10)));
            let written = fill(&*partition, 2).await;
            assert!(written.len() < 128 && device.is_full());
            assert_eq!(device.failure(), None);
            assert_eq!(read(&*partition, 2100, BLOCK).await.unwrap(), [1; BLOCK]);
            let refused = device.grow("db", &Wanted::Count(1)).await;
            assert_eq!(refused, Err(PartitionError::Full));

            disk.set_space(None);
            rt.sleep(Duration::from_secs(1)).await;
            assert!(!device.is_full());
            write(&*partition, 2101, BLOCK, 3).await.unwrap();
            flush(&*partition).await.unwrap();
            for &lba in &written {
                assert_eq!(read(&*partition, lba, BLOCK).await.unwrap(), [2; BLOCK]);
            }
            disk.set_space(Some(disk.allocated()));
            fill(&*partition, 4).await;
            assert_eq!(device.stop().await, Err(IoError::NoSpace));
            device.close().await;
        });
        world.run(&machine, |rt| async move {
            let device = open(&rt).await;
            let partition = device.partition("db").expect("it is there");
            assert_eq!(read(&*partition, 2100, BLOCK).await.unwrap(), [1; BLOCK]);
            assert_eq!(read(&*partition, 2101, BLOCK).await.unwrap(), [3; BLOCK]);
            let first = read(&*partition, 5, BLOCK).await.unwrap()[0];
            assert!([2, 4].contains(&first), "seed {seed}: {first}");
        });
    }
}

/// A change of partitions that finds no space fails, and nothing of it is left.
#[test]
fn a_partition_for_which_there_is_no_space_is_not_made() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    live(&world, &machine, 0, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        write(&*partition, 5, BLOCK, 1).await.unwrap();
        flush(&*partition).await.unwrap();
        let disk = at.disk(PATH).expect("it was made");
        disk.set_space(Some(disk.allocated()));
        let wanted = Wanted::Channels(vec![1]);
        let refused = device.create("more", [2; 16], &wanted, 200).await.err();
        assert_eq!(refused, Some(PartitionError::Failed(IoError::NoSpace)));
        assert_eq!(device.failure(), Some(IoError::NoSpace));
        device.close().await;
        disk.set_space(None);
    });
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        assert_eq!(device.list().len(), 1);
        let partition = device.partition("db").expect("it is there");
        assert_eq!(read(&*partition, 5, BLOCK).await.unwrap(), [1; BLOCK]);
    });
}
