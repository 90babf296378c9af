//! A remote namespace over a controller that goes away and comes back.

mod controller;

use std::rc::Rc;

use controller::{BLOCK, BLOCKS, Mischief, options, pattern, range, world};
use flashyard_block::{Device, DeviceExt, Io, IoError, Tag};
use flashyard_host::{ConnectError, HostError, Options, Persistence, Remote, RemoteDevice};
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::command::{IoOpcode, LbaRange, Status};
use flashyard_runtime::{Buf, Data};
use flashyard_time::Duration;

fn impatient() -> Persistence {
    Persistence {
        first_delay: Duration::from_ms(10),
        max_delay: Duration::from_ms(20),
        loss_timeout: Duration::from_secs(60),
        io_timeout: Duration::from_secs(60),
    }
}

const TAG: Tag = Tag {
    tenant: flashyard_block::TenantId(0),
    class: flashyard_block::Class::Throughput,
};

#[test]
fn io_goes_on_over_broken_connections() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let device = Rc::new(device);
        let writers: Vec<_> = (0..8_u64)
            .map(|number| {
                let device = Rc::clone(&device);
                rt.spawn(async move {
                    for round in 0..40_u8 {
                        let seed = round ^ number as u8;
                        let lba = number * 100 + u64::from(round);
                        device
                            .write(TAG, lba, pattern(32 * BLOCK, seed), false)
                            .await
                            .expect("written in the end");
                        let read = device
                            .read(TAG, lba, Buf::take(32 * BLOCK).expect("memory"))
                            .await;
                        let Ok(Data::Buf(read)) = read else {
                            panic!("{read:?}")
                        };
                        assert_eq!(*read, *pattern(32 * BLOCK, seed));
                    }
                    device.flush(TAG).await.expect("flushed");
                })
            })
            .collect();
        for mischief in [
            Mischief::None,
            Mischief::HalfAnswer,
            Mischief::NoAnswer,
            Mischief::UnknownCid,
        ] {
            rt.sleep(Duration::from_ms(5)).await;
            let before = device.remote().reconnects();
            controller.mischief.set(mischief);
            rt.sleep(Duration::from_ms(5)).await;
            controller.drop_connections();
            controller.mischief.set(Mischief::None);
            while device.remote().reconnects() == before {
                rt.sleep(Duration::from_ms(1)).await;
            }
        }
        for writer in writers {
            writer.await;
        }
    });
}

#[test]
fn io_fails_when_the_target_stays_away() {
    world(|rt, _, _| async move {
        // Of its own, to be taken away as a whole.
        let other = rt.clone();
        let (controller, addr) =
            controller::Controller::start(&other, "0.0.0.0:0".parse().expect("an address"));
        let persistence = Persistence {
            io_timeout: Duration::from_ms(50),
            ..impatient()
        };
        let device = RemoteDevice::open(&rt, addr, options(), 1, persistence)
            .await
            .expect("connects");
        controller
            .connect_status
            .set(Some((Status::CONNECT_INVALID_HOST, 0)));
        controller.drop_connections();
        assert_eq!(device.flush(TAG).await, Err(IoError::NotReady));
        controller.connect_status.set(None);
        while !device.remote().is_connected() {
            rt.sleep(Duration::from_ms(1)).await;
        }
        assert_eq!(device.flush(TAG).await, Ok(()));
    });
}

#[test]
fn a_controller_lost_for_good() {
    world(|rt, controller, addr| async move {
        let persistence = Persistence {
            loss_timeout: Duration::from_ms(30),
            ..impatient()
        };
        let remote = Remote::connect(&rt, addr, options(), 1, persistence)
            .await
            .expect("connects");
        controller
            .connect_status
            .set(Some((Status::CONNECT_INVALID_HOST, 0)));
        controller.drop_connections();
        let failed = remote.repeatable(async |queue| queue.flush(1).await).await;
        assert_eq!(failed, Err(HostError::Closed));
    });
}

#[test]
fn what_cannot_be_repeated_is_not() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let device = Rc::new(device);
        let (compare, write) = (pattern(BLOCK, 0), pattern(BLOCK, 1));
        assert_eq!(
            device
                .compare_and_write(TAG, 0, compare, write, false)
                .await,
            Err(IoError::Miscompare)
        );
        controller.mischief.set(Mischief::NoAnswer);
        let waiting = Rc::clone(&device);
        let waiting = rt.spawn(async move {
            waiting
                .compare_and_write(TAG, 0, pattern(BLOCK, 0), pattern(BLOCK, 1), false)
                .await
        });
        rt.sleep(Duration::from_ms(5)).await;
        controller.mischief.set(Mischief::None);
        controller.seen.borrow_mut().clear();
        controller.drop_connections();
        assert_eq!(
            waiting.await,
            Err(IoError::Internal),
            "its outcome is unknown"
        );
        assert_eq!(device.flush(TAG).await, Ok(()));
        assert_eq!(
            controller
                .seen
                .borrow()
                .iter()
                .filter(|seen| seen.0 == IoOpcode::COMPARE)
                .count(),
            0
        );
    });
}

#[test]
fn the_device_grows_when_the_controller_reports_it() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let info = device.info();
        assert_eq!(
            (info.block_size, info.blocks),
            (BLOCK as u32, BLOCKS as u64)
        );
        assert!(info.volatile_cache && !info.read_only);
        let end = info.blocks;
        let beyond = device
            .read(TAG, end, Buf::take(BLOCK).expect("memory"))
            .await;
        assert_eq!(beyond.err(), Some(IoError::OutOfRange));
        controller.blocks.set(end + 8);
        controller
            .storage
            .borrow_mut()
            .resize((BLOCKS + 8) * BLOCK, 0);
        controller.announce(&rt, &[1]).await;
        while device.info().blocks == end {
            rt.sleep(Duration::from_ms(1)).await;
        }
        device
            .read(TAG, end, Buf::take(8 * BLOCK).expect("memory"))
            .await
            .expect("is there now");
    });
}

#[test]
fn long_ranges_are_cut() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let long = 2 << 20;
        assert!(long > device.remote().namespace().max_transfer);
        device
            .write(TAG, 0, pattern(long, 9), true)
            .await
            .expect("written");
        assert_eq!(controller.storage.borrow()[..long], *pattern(long, 9));
        let Ok(Data::Buf(read)) = device.read(TAG, 0, Buf::take(long).expect("memory")).await
        else {
            panic!()
        };
        assert_eq!(*read, *pattern(long, 9));
        device.deallocate(TAG, 1, 4000).await.expect("zeroed");
        assert!(
            controller.storage.borrow()[BLOCK..4001 * BLOCK]
                .iter()
                .all(|byte| *byte == 0)
        );
        let bad = [
            (0, u64::MAX),
            (u64::MAX, 1),
            (BLOCKS as u64, 1),
            (0, BLOCKS as u64 + 1),
        ];
        for (lba, blocks) in bad {
            assert_eq!(
                device.write_zeroes(TAG, lba, blocks, false).await,
                Err(IoError::OutOfRange)
            );
        }
    });
}

/// Nothing is answered, and nevertheless all commands of a long I/O come: they are in flight at the
/// same time. They end even if no task waits for the I/O any more.
#[test]
fn the_commands_of_a_long_io_are_in_flight_together() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let at_once = device.remote().namespace().max_transfer;
        let long = at_once + BLOCK;
        assert!(long <= BLOCKS * BLOCK);
        let write = || Io::Write {
            lba: 0,
            data: pattern(long, 5).into(),
            fua: false,
        };
        let read = || Io::Read {
            lba: 0,
            into: Buf::take(long).expect("memory"),
        };
        for io in [read(), write()] {
            controller.seen.borrow_mut().clear();
            controller.mischief.set(Mischief::NoAnswer);
            let waiting = rt.spawn(device.submit(TAG, io));
            rt.sleep(Duration::from_ms(20)).await;
            assert_eq!(controller.seen.borrow().len(), 2);
            controller.mischief.set(Mischief::None);
            controller.drop_connections();
            drop(waiting);
            // All are issued again.
            while controller.seen.borrow().len() < 4 {
                rt.sleep(Duration::from_ms(1)).await;
            }
        }
        let written = pattern(long, 5);
        while controller.storage.borrow()[..long] != *written {
            rt.sleep(Duration::from_ms(100)).await;
        }
    });
}

#[test]
fn there_must_be_a_namespace_and_a_queue() {
    world(|rt, _, addr| async move {
        let refused = Remote::connect(&rt, addr, options(), 2, impatient()).await;
        assert!(matches!(refused, Err(ConnectError::Unusable(_))));
        let without = Options {
            queues: 0,
            ..options()
        };
        let refused = RemoteDevice::open(&rt, addr, without, 1, impatient()).await;
        assert!(matches!(refused, Err(ConnectError::Option(_))));
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let queue = device
            .remote()
            .once(async |queue| Ok(queue.clone()))
            .await
            .expect("connected");
        queue
            .read(1, range(0, 1), flashyard_host::ReadInto::Discard(BLOCK))
            .await
            .expect("reads");
    });
}

/// What a command says: opcode, first block, blocks, forced unit access, and whether blocks may be
/// deallocated.
type Said = (IoOpcode, u64, u32, bool, bool);

fn said(entry: &SubmissionQueueEntry) -> Said {
    let opcode = entry.io_opcode();
    let range = entry.lba_range().filter(|_| opcode != IoOpcode::FLUSH);
    let LbaRange { slba, blocks } = range.unwrap_or(LbaRange { slba: 0, blocks: 0 });
    let deac = opcode == IoOpcode::WRITE_ZEROES && entry.deac();
    (opcode, slba, blocks, entry.fua(), deac)
}

#[test]
fn all_parameters_of_an_io_are_in_its_commands() {
    world(|rt, controller, addr| async move {
        let device = RemoteDevice::open(&rt, addr, options(), 1, impatient())
            .await
            .expect("connects");
        let at_once = device.remote().namespace().max_transfer / BLOCK;
        let long = at_once + 3;
        let take = |blocks| Buf::take(blocks * BLOCK).expect("memory");
        let stored = |lba: usize| {
            let mut buf = take(1);
            buf.copy_from_slice(&controller.storage.borrow()[lba * BLOCK..][..BLOCK]);
            buf
        };
        device.read(TAG, 7, take(2)).await.expect("read");
        device.flush(TAG).await.expect("flushed");
        let mut expected = vec![
            (IoOpcode::READ, 7, 2, false, false),
            (IoOpcode::FLUSH, 0, 0, false, false),
        ];
        for flag in [false, true] {
            let short = device.write(TAG, 9, pattern(BLOCK, 1), flag).await;
            let whole = device.write(TAG, 11, pattern(long * BLOCK, 2), flag).await;
            let zeroed = device.write_zeroes(TAG, 5, 20, flag).await;
            let (compare, write) = (stored(6), pattern(BLOCK, 3));
            let both = device.compare_and_write(TAG, 6, compare, write, flag).await;
            assert_eq!([short, whole, zeroed, both], [Ok(()); 4]);
            expected.extend([
                (IoOpcode::WRITE, 9, 1, flag, false),
                (IoOpcode::WRITE, 11, at_once as u32, flag, false),
                (IoOpcode::WRITE, 11 + at_once as u64, 3, flag, false),
                (IoOpcode::WRITE_ZEROES, 5, 20, false, flag),
                (IoOpcode::COMPARE, 6, 1, false, false),
                (IoOpcode::WRITE, 6, 1, flag, false),
            ]);
        }
        device.deallocate(TAG, 40, 2).await.expect("deallocated");
        expected.push((IoOpcode::WRITE_ZEROES, 40, 2, false, true));
        let found: Vec<_> = controller.entries.borrow().iter().map(said).collect();
        assert_eq!(found, expected);
    });
}
