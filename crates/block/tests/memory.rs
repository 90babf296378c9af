//! The devices without a medium.

use flashyard_block::pool::Pool;
use flashyard_block::{Device, DeviceExt, IoError, MemoryDevice, NullDevice, OpenError, Tag};
use flashyard_runtime::{Data, Rt};
use flashyard_testbed::{
    Disk, behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, run, write,
};

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_an_array_of_any_size() {
    run(async |_: Rt| {
        for block_size in [512, 4096] {
            let device = MemoryDevice::new(block_size, 1 << 40).unwrap();
            behaves_as_an_array(&device, 1, 2000).await;
            refuses_what_is_not_there(&device).await;
            let small = MemoryDevice::new(block_size, 3 * u64::from(block_size) + 1).unwrap();
            assert_eq!(small.info().blocks, 3);
            refuses_what_is_not_there(&small).await;
        }
        assert!(matches!(
            MemoryDevice::new(512, 65 << 40),
            Err(OpenError::Config(_))
        ));
    });
}

#[test]
fn zeroes_never_written_are_answered_without_bytes() {
    run(async |_: Rt| {
        let device = MemoryDevice::new(512, 16 * MIB).unwrap();
        let zeroes = device.read(Tag::default(), 0, filled(128 << 10, 1)).await;
        assert!(matches!(zeroes, Ok(Data::Zeroes(131_072))));
        write(&device, 128, 512, 7).await.unwrap();
        let mixed = read(&device, 0, 128 << 10).await.unwrap();
        assert_eq!(mixed[64 << 10..][..512], [7; 512]);
        assert_eq!(mixed[(64 << 10) + 512..], vec![0; (64 << 10) - 512]);
        assert_eq!(device.allocated(), 64 << 10);
        device
            .deallocate(Tag::default(), 0, device.info().blocks)
            .await
            .unwrap();
        assert_eq!(device.allocated(), 0);
        device.grow(17 * MIB).unwrap();
        assert_eq!(device.info().blocks, 17 * 2048);
        assert!(device.grow(MIB).is_err());
    });
}

#[test]
fn null_keeps_nothing_and_checks_ranges() {
    run(async |_: Rt| {
        let device = NullDevice::new(4096, MIB).unwrap();
        write(&device, 3, 8192, 9).await.unwrap();
        assert_eq!(read(&device, 3, 8192).await.unwrap(), [0; 8192]);
        flush(&device).await.unwrap();
        refuses_what_is_not_there(&device).await;
        let tag = Tag::default();
        let differs = device
            .compare_and_write(tag, 0, filled(4096, 9), filled(4096, 1), false)
            .await;
        assert_eq!(differs, Err(IoError::Miscompare));
        assert_eq!(
            device
                .compare_and_write(tag, 0, filled(4096, 0), filled(4096, 1), false)
                .await,
            Ok(())
        );
    });
}

/// A volume in pieces is an array, too.
#[test]
fn a_volume_of_many_runs_is_an_array() {
    run(async |rt: Rt| {
        for block_size in [512, 4096] {
            let disk = Disk::new(block_size, vec![0; 12 * MIB as usize], 1);
            let pool = Pool::create(&rt, disk.shared(), [1; 16], false)
                .await
                .unwrap();
            for n in 0..8 {
                pool.create_volume(&format!("v{n}"), [n + 1; 16], MIB)
                    .await
                    .unwrap();
            }
            for n in (0..8).step_by(2) {
                pool.delete(&format!("v{n}")).await.unwrap();
            }
            let volume = pool
                .create_volume("pieces", [9; 16], 4 * MIB - 1)
                .await
                .unwrap();
            behaves_as_an_array(&*volume, 2, 300).await;
            refuses_what_is_not_there(&*volume).await;
        }
    });
}
