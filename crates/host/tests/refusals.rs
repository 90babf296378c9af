//! What an association does with a controller that breaks the protocol, falls silent or goes away.

mod controller;

use controller::{BLOCK, Mischief, options, range, world};
use flashyard_host::{Association, HostError, Options, ReadInto, Violation};
use flashyard_nvme::command::Status;
use flashyard_nvme::tcp::FatalErrorStatus;
use flashyard_runtime::{Buf, Data};
use flashyard_time::Duration;

#[derive(Clone, Copy)]
enum Io {
    Read,
    Write,
}

/// Every breach of a live controller ends the association with the right error, every waiting
/// command gets it, and the reason is sent to the controller.
#[test]
fn breaches_end_the_association() {
    use Violation as V;
    let table = [
        (
            Io::Read,
            Mischief::DataBeyondStart,
            Some(V::DataOutOfRange),
            4,
        ),
        (Io::Read, Mischief::TooMuchData, Some(V::DataOutOfRange), 4),
        (Io::Read, Mischief::UnknownCid, Some(V::UnknownCommand), 1),
        (Io::Read, Mischief::NoData, Some(V::DataMissing), 2),
        (
            Io::Write,
            Mischief::DataForWrite,
            Some(V::DataNotAskedFor),
            2,
        ),
        (
            Io::Read,
            Mischief::TransferForRead,
            Some(V::TransferNotOffered),
            2,
        ),
        (
            Io::Write,
            Mischief::TransferBeyondEnd,
            Some(V::TransferOutOfRange),
            4,
        ),
        (Io::Read, Mischief::AnswerTwice, Some(V::UnknownCommand), 1),
        (
            Io::Read,
            Mischief::WrongDirection,
            None,
            FatalErrorStatus::INVALID_HEADER_FIELD.0,
        ),
        (
            Io::Read,
            Mischief::BadLength,
            None,
            FatalErrorStatus::INVALID_HEADER_FIELD.0,
        ),
        (
            Io::Read,
            Mischief::DamageHeader,
            None,
            FatalErrorStatus::HEADER_DIGEST.0,
        ),
    ];
    for (io, mischief, expected, fes) in table {
        world(move |rt, controller, addr| async move {
            let options = Options {
                header_digest: mischief == Mischief::DamageHeader,
                ..options()
            };
            let association = Association::connect(&rt, addr, options)
                .await
                .expect("connects");
            let queue = association.queue(0);
            controller.mischief.set(mischief);
            let waiting = queue.clone();
            let waiting = rt.spawn(async move {
                let first = match io {
                    Io::Read => waiting
                        .read(1, range(0, 8), ReadInto::Discard(8 * BLOCK))
                        .await
                        .map(drop),
                    Io::Write => {
                        waiting
                            .write(1, range(0, 64), Data::Zeroes(64 * BLOCK), false)
                            .await
                    }
                };
                // A controller that says too much may have answered the command itself in order.
                first.and(waiting.flush(1).await)
            });
            let error = association.ended().await;
            assert_eq!(waiting.await, Err(error), "{mischief:?}");
            match (error, expected) {
                (HostError::Protocol(found), Some(expected)) => {
                    assert_eq!(found, expected, "{mischief:?}")
                }
                (HostError::Protocol(Violation::Framing(_)), None) => {}
                other => panic!("{mischief:?} gave {other:?}"),
            }
            assert_eq!(queue.flush(1).await, Err(error), "nothing works any more");
            while controller.terminations.borrow().is_empty() {
                rt.sleep(Duration::from_ms(1)).await;
            }
            assert_eq!(controller.terminations.borrow()[0].0, fes, "{mischief:?}");
        });
    }
}

#[test]
fn damaged_data_fail_one_command_only() {
    world(|rt, controller, addr| async move {
        let options = Options {
            data_digest: true,
            ..options()
        };
        let association = Association::connect(&rt, addr, options)
            .await
            .expect("connects");
        let queue = association.queue(0);
        for blocks in [8, 200] {
            controller.mischief.set(Mischief::DamageData);
            let buf = Buf::take(blocks as usize * BLOCK).expect("memory");
            let damaged = queue.read(1, range(0, blocks), ReadInto::Buf(buf)).await;
            assert_eq!(damaged.err(), Some(HostError::DataDigest));
            controller.mischief.set(Mischief::None);
            queue
                .read(
                    1,
                    range(0, blocks),
                    ReadInto::Discard(blocks as usize * BLOCK),
                )
                .await
                .expect("reads");
        }
    });
}

#[test]
fn a_status_fails_one_command_only() {
    world(|rt, controller, addr| async move {
        let association = Association::connect(&rt, addr, options())
            .await
            .expect("connects");
        let queue = association.queue(0);
        let status = Status::LBA_OUT_OF_RANGE.with_dnr();
        controller.mischief.set(Mischief::Refuse(status.bits()));
        let refused = queue
            .read(1, range(0, 8), ReadInto::Discard(8 * BLOCK))
            .await;
        assert_eq!(refused.err(), Some(HostError::Status(status)));
        let refused = queue
            .write(1, range(0, 64), Data::Zeroes(64 * BLOCK), false)
            .await;
        assert_eq!(refused, Err(HostError::Status(status)), "before any R2T");
        controller.mischief.set(Mischief::None);
        queue.flush(1).await.expect("works on");
    });
}

#[test]
fn a_controller_that_goes_away() {
    for mischief in [Mischief::HalfAnswer, Mischief::NoAnswer] {
        world(move |rt, controller, addr| async move {
            let association = Association::connect(&rt, addr, options())
                .await
                .expect("connects");
            controller.mischief.set(mischief);
            let queue = association.queue(0);
            let waiting = rt.spawn(async move { queue.flush(1).await });
            rt.sleep(Duration::from_ms(5)).await;
            controller.drop_connections();
            let error = waiting.await.expect_err("the connection broke");
            assert!(error.is_path_failure() && matches!(error, HostError::Transport(_)));
            association.ended().await;
        });
    }
}

#[test]
fn a_late_command_is_aborted_and_then_the_association_ends() {
    world(|rt, controller, addr| async move {
        let options = Options {
            command_timeout: Duration::from_ms(40),
            ..options()
        };
        let association = Association::connect(&rt, addr, options)
            .await
            .expect("connects");
        controller.mischief.set(Mischief::NoAnswer);
        assert_eq!(association.queue(0).flush(1).await, Err(HostError::Timeout));
        assert_eq!(controller.aborts.get(), 1);
        assert_eq!(association.failure(), Some(HostError::Timeout));
    });
}

#[test]
fn a_controller_without_a_pulse() {
    world(|rt, controller, addr| async move {
        let options = Options {
            kato: Duration::from_ms(40),
            ..options()
        };
        let association = Association::connect(&rt, addr, options)
            .await
            .expect("connects");
        controller.mischief.set(Mischief::Dead);
        assert_eq!(association.ended().await, HostError::Timeout);
    });
}

#[test]
fn a_peer_is_missing_or_silent() {
    world(|rt, _, _| async move {
        let silent = rt
            .listen("0.0.0.0:0".parse().expect("an address"))
            .expect("a port");
        let addr = silent.local_addr();
        let options = Options {
            connect_timeout: Duration::from_ms(50),
            ..options()
        };
        let refused = Association::connect(&rt, addr, options.clone()).await;
        assert_eq!(refused.err(), Some(flashyard_host::ConnectError::Timeout));
        drop(silent);
        let refused = Association::connect(&rt, addr, options).await;
        assert!(matches!(
            refused,
            Err(flashyard_host::ConnectError::Host(HostError::Transport(_)))
        ));
    });
}
