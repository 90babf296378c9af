//! Simulated disks: what programs see of them, what goes wrong on demand, and what a power cut
//! leaves.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::rc::Rc;

use flashyard_runtime::sim::{Access, Config, DiskConfig, Machine, World};
use flashyard_runtime::{Buf, File, FileKind, OpenOptions, Rt};
use flashyard_time::Duration;

const DISK: &str = "/dev/ssd0";
const SIZE: u64 = 1 << 20;

const DIRECT: OpenOptions = OpenOptions {
    write: true,
    create: false,
    direct: true,
    exclusive: false,
};
const CREATE: OpenOptions = OpenOptions {
    write: true,
    create: true,
    direct: false,
    exclusive: false,
};

fn open(rt: &Rt) -> File {
    rt.open(Path::new(DISK), DIRECT).expect("the disk is there")
}

fn filled(len: usize, byte: u8) -> Buf {
    let mut buf = Buf::take(len).expect("the bound is far");
    buf.fill(byte);
    buf
}

async fn write(file: &File, offset: u64, len: usize, byte: u8, durable: bool) -> io::Result<usize> {
    file.write_at(filled(len, byte), offset, durable).await.0
}

async fn read(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let (moved, buf) = file.read_at(filled(len, 0xEE), offset).await;
    moved.map(|moved| buf[..moved].to_vec())
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result
        .unwrap_err()
        .raw_os_error()
        .expect("it comes from the kernel")
}

/// Runs `test` on a calm machine with one disk.
fn on_disk<F: Future<Output = ()> + 'static>(test: impl FnOnce(Rt, Machine) -> F) {
    let world = World::new(Config::default());
    let machine = world.machine(1);
    machine.add_disk(DISK, SIZE);
    world.run(&machine, |rt| test(rt, machine.clone()));
}

#[test]
fn what_is_written_is_read() {
    on_disk(|rt, machine| async move {
        let (file, started) = (open(&rt), rt.now());
        let info = file.info();
        assert_eq!(
            (info.kind, info.size, info.direct, info.alignment),
            (FileKind::Block, SIZE, true, 512)
        );
        assert_eq!(read(&file, 0, 4096).await.unwrap(), [0; 4096]);
        assert_eq!(write(&file, 512, 1024, 7, false).await.unwrap(), 1024);
        assert_eq!(
            read(&file, 1024, 1024).await.unwrap(),
            [[7; 512], [0; 512]].concat()
        );
        assert!(
            rt.now() - started > Duration::from_us(60),
            "three operations of at least 20 us"
        );
        file.sync().await.unwrap();
        let disk = machine.disk(DISK).unwrap();
        assert_eq!(
            (disk.unflushed(), disk.read_durable(512..514)),
            (0, vec![7, 7])
        );
    });
}

#[test]
fn the_end_of_a_device_is_hard() {
    on_disk(|rt, _| async move {
        let file = open(&rt);
        assert_eq!(read(&file, SIZE - 512, 1024).await.unwrap().len(), 512);
        assert_eq!(write(&file, SIZE - 512, 1024, 1, false).await.unwrap(), 512);
        assert_eq!(errno(write(&file, SIZE, 512, 1, false).await), libc::ENOSPC);
        assert_eq!(errno(read(&file, 100, 512).await), libc::EINVAL);
        assert_eq!(errno(read(&file, 0, 100).await), libc::EINVAL);
        assert_eq!(errno(read(&file, u64::MAX - 511, 512).await), libc::EINVAL);
        assert!(file.set_size(SIZE * 2).is_err());
        let read_only = rt.open(Path::new(DISK), OpenOptions::default()).unwrap();
        assert_eq!(
            errno(write(&read_only, 0, 512, 1, false).await),
            libc::EBADF
        );
    });
}

#[test]
fn files_are_created_grow_and_are_held_exclusively() {
    on_disk(|rt, _| async move {
        let path = Path::new("/var/state");
        assert_eq!(
            rt.open(path, DIRECT).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let file = rt
            .open(
                path,
                OpenOptions {
                    exclusive: true,
                    ..CREATE
                },
            )
            .unwrap();
        assert_eq!((file.info().kind, file.info().size), (FileKind::File, 0));
        assert_eq!(write(&file, 10, 3, 5, false).await.unwrap(), 3);
        assert_eq!(read(&file, 8, 100).await.unwrap(), [0, 0, 5, 5, 5]);
        file.set_size(11).unwrap();
        assert_eq!(read(&file, 8, 100).await.unwrap(), [0, 0, 5]);
        assert!(
            rt.open(
                path,
                OpenOptions {
                    exclusive: true,
                    ..CREATE
                }
            )
            .is_err()
        );
        drop(file);
        assert!(
            rt.open(
                path,
                OpenOptions {
                    exclusive: true,
                    ..CREATE
                }
            )
            .is_ok()
        );
    });
}

#[test]
fn zeroed_ranges_read_as_zeroes_and_give_space_back() {
    on_disk(|rt, machine| async move {
        let (file, disk) = (open(&rt), machine.disk(DISK).unwrap());
        write(&file, 0, 64 << 10, 9, false).await.unwrap();
        let allocated = disk.allocated();
        file.punch(4096, 32 << 10).await.unwrap();
        file.zero(60 << 10, 512).await.unwrap();
        assert_eq!(disk.allocated(), allocated - (32 << 10));
        let seen = read(&file, 0, 64 << 10).await.unwrap();
        let zeroes: usize = seen.iter().map(|byte| usize::from(*byte == 0)).sum();
        assert_eq!(
            (zeroes, seen[4095], seen[4096], seen[36 << 10]),
            ((32 << 10) + 512, 9, 0, 9)
        );
    });
}

#[test]
fn faults_strike_where_and_as_often_as_set() {
    on_disk(|rt, machine| async move {
        let (file, disk) = (open(&rt), machine.disk(DISK).unwrap());
        write(&file, 0, 4096, 1, true).await.unwrap();
        disk.fail(Access::Read, 1024..1025, libc::EIO, Some(2));
        assert!(read(&file, 0, 1024).await.is_ok());
        assert_eq!(errno(read(&file, 0, 2048).await), libc::EIO);
        assert_eq!(errno(read(&file, 1024, 512).await), libc::EIO);
        assert!(read(&file, 1024, 512).await.is_ok());
        disk.fail(Access::Sync, 0..0, libc::EIO, None);
        disk.fail(Access::Write, 0..SIZE, libc::ENOSPC, None);
        assert_eq!(errno(write(&file, 0, 512, 2, false).await), libc::ENOSPC);
        assert_eq!(errno(file.punch(0, 512).await), libc::ENOSPC);
        assert_eq!(errno(file.sync().await), libc::EIO);
        disk.repair();
        assert!(file.sync().await.is_ok());
        assert_eq!(read(&file, 0, 512).await.unwrap(), [1; 512]);
        disk.flip(3, 0x81);
        assert_eq!(read(&file, 0, 512).await.unwrap()[3], 0x80);
    });
}

#[test]
fn slow_and_full_disks() {
    on_disk(|rt, machine| async move {
        let (file, disk) = (open(&rt), machine.disk(DISK).unwrap());
        disk.set_space(Some(8192));
        assert!(write(&file, 0, 8192, 1, false).await.is_ok());
        assert_eq!(errno(write(&file, 8192, 512, 1, false).await), libc::ENOSPC);
        assert!(
            write(&file, 512, 4096, 2, false).await.is_ok(),
            "overwriting needs no more"
        );
        file.punch(0, 4096).await.unwrap();
        assert!(write(&file, 8192, 512, 1, false).await.is_ok());
        disk.slow(Duration::from_secs(30));
        let started = rt.now();
        read(&file, 0, 512).await.unwrap();
        assert_eq!((rt.now() - started).as_secs(), 30);
    });
}

#[test]
fn a_transfer_dropped_half_way_gives_its_buffer_back() {
    on_disk(|rt, _| async move {
        let file = open(&rt);
        let balance = Buf::balance();
        for _ in 0..10 {
            let mut operation = Box::pin(file.write_at(filled(4096, 3), 0, false));
            let waker = std::task::Waker::noop();
            assert!(
                operation
                    .as_mut()
                    .poll(&mut std::task::Context::from_waker(waker))
                    .is_pending()
            );
        }
        assert!(Buf::balance() > balance, "the disk still works on them");
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(Buf::balance(), balance);
    });
}

/// A log writer: record `n` fills block `n` with `n`, synced before it counts as acknowledged.
async fn write_log(rt: Rt, acknowledged: Rc<Cell<u8>>, durable: bool) {
    let file = open(&rt);
    for record in 1..=200 {
        write(&file, u64::from(record) * 1536, 1536, record, durable)
            .await
            .unwrap();
        if !durable {
            file.sync().await.unwrap();
        }
        acknowledged.set(record);
    }
}

#[test]
fn what_was_synced_survives_a_power_cut_at_any_moment() {
    let mut torn = 0;
    for seed in 0..300 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let disk = machine.add_disk(DISK, SIZE);
        let acknowledged = Rc::new(Cell::new(0));
        machine
            .rt(0)
            .spawn(write_log(
                machine.rt(0),
                acknowledged.clone(),
                seed % 2 == 0,
            ))
            .detach();
        world.run_for(Duration::from_us(50 * (1 + seed)));
        machine.power_cut();
        machine.restart();
        let last = acknowledged.get();
        for record in 1..=last {
            let at = u64::from(record) * 1536;
            assert!(
                disk.read(at..at + 1536).iter().all(|byte| *byte == record),
                "seed {seed}"
            );
        }
        let next = (u64::from(last) + 1) * 1536;
        let sectors = disk.read(next..next + 1536);
        let sectors: BTreeSet<u8> = sectors.chunks(512).map(|sector| sector[0]).collect();
        torn += u32::from(sectors.len() > 1);
        world.run_for(Duration::from_secs(1));
        assert_eq!(acknowledged.get(), last, "the program is dead");
    }
    assert!(torn > 5, "the record in flight is sometimes torn: {torn}");
}

#[test]
fn what_was_not_synced_survives_a_crash_but_not_every_power_cut() {
    let mut lost = 0;
    for seed in 0..100 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let disk = machine.add_disk(DISK, SIZE);
        world.run(&machine, |rt| async move {
            write(&open(&rt), 0, 4096, 1, false).await.unwrap();
        });
        machine.crash();
        assert_eq!(disk.read(0..4096), [1; 4096]);
        machine.restart();
        machine.power_cut();
        lost += u32::from(disk.read(0..4096) == [0; 4096]);
    }
    assert!((20..80).contains(&lost), "{lost} of 100");
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let slow = DiskConfig {
        latency: (Duration::from_ms(1), Duration::from_ms(1)),
        ..Config::default().disk
    };
    let mut lost = 0;
    for seed in 0..60 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        let disk = machine.add_disk_with(DISK, SIZE, slow.clone());
        world.run(&machine, |rt| async move {
            let file = open(&rt);
            let early = file.write_at(filled(512, 1), 0, false);
            let sync = file.sync();
            early.await.0.unwrap();
            sync.await.unwrap();
        });
        machine.power_cut();
        lost += u32::from(disk.read(0..1) == [0]);
    }
    assert!(lost > 0, "the write had not ended when the sync began");
}
