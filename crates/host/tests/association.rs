//! What an association does with a controller that keeps to the protocol.

mod controller;

use std::rc::Rc;

use controller::{BLOCK, Mischief, options, pattern, range, world};
use flashyard_host::{Association, ConnectError, Event, HostError, Options, ReadInto};
use flashyard_nvme::command::{Fuse, IoOpcode, Status};
use flashyard_nvme::fabrics::InvalidParameter;
use flashyard_runtime::{Buf, Data};
use flashyard_time::Duration;

fn into(len: usize) -> ReadInto {
    ReadInto::Buf(Buf::take(len).expect("memory"))
}

#[test]
fn reads_and_writes_of_all_sizes_with_all_digests() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)]
    {
        world(move |rt, controller, addr| async move {
            let options = Options {
                header_digest,
                data_digest,
                queues: 2,
                ..options()
            };
            let association = Association::connect(&rt, addr, options)
                .await
                .expect("connects");
            assert_eq!(association.queues().len(), 2);
            let queue = association.queue(1);
            for blocks in [1, 8, 16, 17, 100, 256, 1000, 2048] {
                let len = blocks as usize * BLOCK;
                let data = pattern(len, blocks as u8);
                let copy = data.to_vec();
                queue
                    .write(1, range(5, blocks), Data::Buf(data), false)
                    .await
                    .expect("writes");
                assert_eq!(controller.storage.borrow()[5 * BLOCK..][..len], copy);
                let read = queue
                    .read(1, range(5, blocks), into(len))
                    .await
                    .expect("reads");
                assert_eq!(*read.into_buf().expect("a buffer"), copy);
                queue
                    .read(1, range(5, blocks), ReadInto::Discard(len))
                    .await
                    .expect("reads");
                queue
                    .write(1, range(5, blocks), Data::Zeroes(len), true)
                    .await
                    .expect("writes");
                assert!(
                    controller.storage.borrow()[5 * BLOCK..][..len]
                        .iter()
                        .all(|byte| *byte == 0)
                );
            }
            queue.flush(1).await.expect("flushes");
            association.close().await;
        });
    }
}

#[test]
fn data_and_transfers_may_come_in_pieces() {
    for digest in [false, true] {
        world(move |rt, controller, addr| async move {
            let options = Options {
                data_digest: digest,
                header_digest: digest,
                ..options()
            };
            let association = Association::connect(&rt, addr, options)
                .await
                .expect("connects");
            let queue = association.queue(0);
            let len = 400 * BLOCK;
            for size in [4, 1000, 16_384, 65_536, 131_072, 200_000] {
                controller.mischief.set(Mischief::TransferInPieces(size));
                let data = pattern(len, size as u8);
                let copy = data.to_vec();
                if len as u32 / size < 1000 {
                    queue
                        .write(1, range(0, 400), Data::Buf(data), false)
                        .await
                        .expect("writes");
                    assert_eq!(controller.storage.borrow()[..len], copy, "R2T of {size}");
                }
                controller.mischief.set(Mischief::DataInPieces(size));
                let read = queue
                    .read(1, range(0, 400), into(len))
                    .await
                    .expect("reads");
                assert_eq!(
                    *read.into_buf().expect("a buffer"),
                    controller.storage.borrow()[..len]
                );
            }
            controller.mischief.set(Mischief::SuccessFlag);
            queue
                .read(1, range(0, 400), ReadInto::Discard(len))
                .await
                .expect("reads");
        });
    }
}

#[test]
fn commands_in_flight_are_bounded_and_all_answered() {
    world(|rt, _, addr| async move {
        let options = Options {
            depth: 4,
            ..options()
        };
        let association = Association::connect(&rt, addr, options)
            .await
            .expect("connects");
        let queue = association.queue(0);
        assert_eq!(queue.depth(), 4);
        let tasks: Vec<_> = (0..100_u64)
            .map(|number| {
                let queue = queue.clone();
                rt.spawn(async move {
                    queue
                        .read(1, range(number, 1), into(BLOCK))
                        .await
                        .map(ReadInto::into_buf)
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let buf = task.await.expect("reads").expect("a buffer");
            assert_eq!(buf[0], (number * BLOCK / 7 + number) as u8);
        }
    });
}

#[test]
fn a_dropped_command_leaves_nothing_behind() {
    world(|rt, controller, addr| async move {
        let association = Association::connect(
            &rt,
            addr,
            Options {
                depth: 1,
                ..options()
            },
        )
        .await
        .expect("connects");
        let queue = association.queue(0);
        let dropped = queue.clone();
        let task = rt.spawn(async move {
            dropped
                .read(1, range(0, 8), into(8 * BLOCK))
                .await
                .map(drop)
        });
        while controller.seen.borrow().is_empty() {
            rt.sleep(Duration::from_us(50)).await;
        }
        drop(task);
        // The only place is free again when the late answer has come.
        queue
            .read(1, range(0, 8), into(8 * BLOCK))
            .await
            .expect("reads");
    });
}

#[test]
fn a_fused_pair_stays_together() {
    world(|rt, controller, addr| async move {
        let association = Association::connect(
            &rt,
            addr,
            Options {
                depth: 8,
                ..options()
            },
        )
        .await
        .expect("connects");
        let queue = association.queue(0);
        let noise: Vec<_> = (0..20)
            .map(|_| {
                let queue = queue.clone();
                rt.spawn(async move { queue.flush(1).await })
            })
            .collect();
        queue
            .write(1, range(3, 1), Data::Buf(pattern(BLOCK, 1)), false)
            .await
            .expect("writes");
        let [old, new] = [1, 2].map(|seed| Data::Buf(pattern(BLOCK, seed)));
        queue
            .compare_and_write(1, range(3, 1), old, new, false)
            .await
            .expect("is what is there");
        let [old, new] = [1, 3].map(|seed| Data::Buf(pattern(BLOCK, seed)));
        let refused = queue
            .compare_and_write(1, range(3, 1), old, new, false)
            .await;
        assert!(
            matches!(refused, Err(HostError::Status(status)) if status.is(Status::COMPARE_FAILURE))
        );
        for task in noise {
            task.await.expect("flushes");
        }
        let seen = controller.seen.borrow();
        let firsts: Vec<_> = (0..seen.len())
            .filter(|at| seen[*at] == (IoOpcode::COMPARE, Fuse::First))
            .collect();
        assert_eq!(firsts.len(), 2);
        assert!(
            firsts
                .iter()
                .all(|at| seen[at + 1] == (IoOpcode::WRITE, Fuse::Second))
        );
    });
}

#[test]
fn events_are_reported_once_and_their_log_is_read() {
    world(|rt, controller, addr| async move {
        let association = Association::connect(&rt, addr, options())
            .await
            .expect("connects");
        for nsids in [vec![1], vec![2, 3]] {
            controller.announce(&rt, &nsids).await;
            assert_eq!(
                association.next_event().await,
                Ok(Event::NamespacesChanged(nsids))
            );
        }
        controller.drop_connections();
        assert!(association.next_event().await.is_err());
    });
}

#[test]
fn keep_alive_is_sent() {
    world(|rt, controller, addr| async move {
        let options = Options {
            kato: Duration::from_secs(1),
            ..options()
        };
        let _association = Association::connect(&rt, addr, options)
            .await
            .expect("connects");
        while controller.keep_alives.get() < 3 {
            rt.sleep(Duration::from_ms(5)).await;
        }
    });
}

#[test]
fn administration() {
    world(|rt, _, addr| async move {
        let association = Association::connect(&rt, addr, options())
            .await
            .expect("connects");
        assert_eq!(association.namespaces().await, Ok(vec![1]));
        assert_eq!(
            association
                .identify_namespace(1)
                .await
                .expect("is there")
                .block_size(),
            Some(512)
        );
        assert_eq!(
            association
                .identify_namespace(2)
                .await
                .expect("all zeroes")
                .ncap,
            0
        );
        assert_eq!(
            (association.cntlid(), association.max_transfer()),
            (7, 1 << 20)
        );
    });
}

#[test]
fn refused_connects_say_why() {
    let sub = InvalidParameter::SUBNQN;
    let table = [
        (
            Status::CONNECT_INVALID_PARAMETERS,
            sub.dw0(),
            ConnectError::InvalidParameter(sub),
        ),
        (
            Status::CONNECT_INVALID_HOST,
            0,
            ConnectError::HostNotAllowed,
        ),
        (Status::CONNECT_CONTROLLER_BUSY, 0, ConnectError::Busy),
        (
            Status::SUCCESS,
            1 << 17 | 7,
            ConnectError::AuthenticationRequired,
        ),
    ];
    for (status, dw0, expected) in table {
        world(move |rt, controller, addr| async move {
            controller.connect_status.set(Some((status, dw0)));
            let refused = Association::connect(&rt, addr, options()).await;
            assert_eq!(refused.err(), Some(expected));
        });
    }
}

#[test]
fn options_and_offers_out_of_range() {
    world(|rt, controller, addr| async move {
        for bad in [
            Options {
                depth: 0,
                ..options()
            },
            Options {
                depth: 4096,
                ..options()
            },
            Options {
                priority: Some(4),
                ..options()
            },
            Options {
                hostid: [0; 16],
                ..options()
            },
        ] {
            let refused = Association::connect(&rt, addr, bad).await;
            assert!(matches!(refused, Err(ConnectError::Option(_))));
        }
        assert_eq!(controller.connections.get(), 0);
        controller.ioccsz.set(3);
        let refused = Association::connect(&rt, addr, options()).await;
        assert!(matches!(refused, Err(ConnectError::Unusable(_))));
        controller.ioccsz.set(4);
        controller.mqes.set(9);
        let association = Association::connect(&rt, addr, options())
            .await
            .expect("connects");
        assert_eq!(
            association.queue(0).depth(),
            9,
            "as deep as the controller allows"
        );
        association
            .queue(0)
            .write(1, range(0, 1), Data::Zeroes(BLOCK), false)
            .await
            .expect("by R2T");
    });
}

#[test]
fn what_an_association_held_is_given_back() {
    world(|rt, _, addr| async move {
        let before = Buf::balance();
        for _ in 0..3 {
            let association = Rc::new(
                Association::connect(&rt, addr, options())
                    .await
                    .expect("connects"),
            );
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    let queue = association.queue(0);
                    rt.spawn(async move {
                        queue
                            .read(1, range(0, 64), into(64 * BLOCK))
                            .await
                            .map(drop)
                    })
                })
                .collect();
            rt.sleep(Duration::from_us(100)).await;
            drop(association);
            for task in tasks {
                let _ = task.await;
            }
        }
        rt.sleep(Duration::from_ms(20)).await;
        assert_eq!(Buf::balance(), before);
    });
}
