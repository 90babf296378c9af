//! What a remote namespace tries again, how soon and for how long; and that the namespace that
//! comes back is the one that went away.

mod controller;

use std::rc::Rc;

use controller::{BLOCK, BLOCKS, Controller, Identity, Mischief, options, pattern, world};
use flashyard_block::{DeviceExt, IoError, Tag};
use flashyard_host::{Options, Persistence, RemoteDevice};
use flashyard_nvme::command::Status;
use flashyard_nvme::identify::NamespaceDescriptors;
use flashyard_runtime::Buf;
use flashyard_time::Duration;

const PERSISTENCE: Persistence = Persistence {
    first_delay: Duration::from_ms(10),
    max_delay: Duration::from_ms(20),
    loss_timeout: Duration::from_secs(600),
    io_timeout: Duration::from_secs(60),
};

fn tag() -> Tag {
    Tag::default()
}

fn identity() -> Identity {
    Identity {
        descriptors: NamespaceDescriptors {
            eui64: Some([1; 8]),
            nguid: Some([2; 16]),
            uuid: Some([3; 16]),
            csi: Some(0),
        },
        nguid: [2; 16],
        eui64: [1; 8],
        larger_blocks: 0,
    }
}

/// How it is called, and what makes it so.
type Change = (&'static str, fn(&Controller));

/// What a namespace may have become while the host was away.
const OTHERS: [Change; 9] = [
    ("another UUID", |controller| {
        controller.identity.borrow_mut().descriptors.uuid = Some([9; 16]);
    }),
    ("no UUID", |controller| {
        controller.identity.borrow_mut().descriptors.uuid = None;
    }),
    ("another NGUID", |controller| {
        controller.identity.borrow_mut().descriptors.nguid = Some([9; 16]);
    }),
    ("another EUI64", |controller| {
        controller.identity.borrow_mut().descriptors.eui64 = Some([9; 8]);
    }),
    ("another NGUID of Identify Namespace", |controller| {
        controller.identity.borrow_mut().nguid = [9; 16];
    }),
    ("another EUI64 of Identify Namespace", |controller| {
        controller.identity.borrow_mut().eui64 = [9; 8];
    }),
    ("larger blocks", |controller| {
        controller.identity.borrow_mut().larger_blocks = 3;
    }),
    ("fewer blocks", |controller| {
        controller.blocks.set(BLOCKS as u64 - 1);
    }),
    ("nothing", |controller| controller.blocks.set(0)),
];

/// Whether the controller tells of it or just comes back with it: not one command goes to another
/// disk.
#[test]
fn another_disk_in_the_same_place_is_left_alone() {
    for (what, change) in OTHERS {
        for announced in [false, true] {
            world(move |rt, controller, addr| async move {
                eprintln!("it has become {what}, announced: {announced}");
                *controller.identity.borrow_mut() = identity();
                let device = RemoteDevice::open(&rt, addr, options(), 1, PERSISTENCE).await;
                let device = Rc::new(device.expect("connects"));
                change(&controller);
                if announced {
                    controller.announce(&rt, &[1]).await;
                } else {
                    controller.drop_connections();
                }
                while device.remote().is_connected() {
                    rt.sleep(Duration::from_ms(1)).await;
                }
                let before = controller.storage.borrow().clone();
                let attempts = controller.connections.get();
                controller.seen.borrow_mut().clear();
                let writer = Rc::clone(&device);
                let written = rt
                    .spawn(async move { writer.write(tag(), 5, pattern(BLOCK, 77), false).await });
                rt.sleep(Duration::from_ms(500)).await;
                assert!(controller.connections.get() > attempts, "it looks again");
                assert_eq!(*controller.seen.borrow(), [], "{what}");
                assert!(*controller.storage.borrow() == before, "{what}");
                assert!(!device.remote().is_connected(), "{what}");
                *controller.identity.borrow_mut() = identity();
                controller.blocks.set(BLOCKS as u64);
                assert_eq!(written.await, Ok(()), "{what}");
                let at = 5 * BLOCK;
                assert_eq!(
                    controller.storage.borrow()[at..at + BLOCK],
                    *pattern(BLOCK, 77)
                );
            });
        }
    }
}

/// One I/O of each direction.
async fn io(device: &RemoteDevice, write: bool) -> Result<(), IoError> {
    if write {
        return device.write(tag(), 5, pattern(BLOCK, 77), false).await;
    }
    let buf = Buf::take(BLOCK).expect("memory");
    device.read(tag(), 5, buf).await.map(drop)
}

/// Data that were damaged on the way to us or to the controller come again, and not without end.
#[test]
fn damaged_data_are_tried_again_three_times() {
    let damaged = Mischief::Refuse(Status::TRANSIENT_TRANSPORT_ERROR.bits());
    let for_good = Mischief::Refuse(Status::TRANSIENT_TRANSPORT_ERROR.with_dnr().bits());
    let table = [
        (Mischief::DamageData, 1, Ok(()), 2),
        (Mischief::DamageData, 3, Ok(()), 4),
        (Mischief::DamageData, 1000, Err(IoError::Internal), 4),
        (damaged, 1, Ok(()), 2),
        (damaged, 3, Ok(()), 4),
        (damaged, 1000, Err(IoError::Internal), 4),
        (for_good, 1, Err(IoError::Internal), 1),
    ];
    for (mischief, times, outcome, commands) in table {
        world(move |rt, controller, addr| async move {
            let options = Options {
                data_digest: true,
                ..options()
            };
            let device = RemoteDevice::open(&rt, addr, options, 1, PERSISTENCE)
                .await
                .expect("connects");
            for write in [false, true] {
                if write && mischief == Mischief::DamageData {
                    continue;
                }
                controller.seen.borrow_mut().clear();
                controller.mischiefs_left.set(times);
                controller.mischief.set(mischief);
                assert_eq!(io(&device, write).await, outcome, "{mischief:?}, {times}");
                let seen = controller.seen.borrow().len();
                assert_eq!(seen, commands, "{mischief:?}, {times}");
            }
            assert_eq!(device.remote().reconnects(), 0);
        });
    }
}

/// What the controller interrupts comes again after the delay that it tells, and only as long as an
/// I/O may take.
#[test]
fn an_interrupted_command_waits_before_it_comes_again() {
    let bare = Status::COMMAND_INTERRUPTED;
    // Milliseconds between two attempts; without a word from the controller, those of the library.
    for (status, delay) in [
        (bare.with_crd(1), 200),
        (bare.with_crd(2), 500),
        (bare, 10),
        (Status::NAMESPACE_NOT_READY.with_crd(3), 100),
    ] {
        world(move |rt, controller, addr| async move {
            controller.retry_delays.set([2, 5, 1]);
            let persistence = Persistence {
                io_timeout: Duration::from_secs(2),
                ..PERSISTENCE
            };
            let device = RemoteDevice::open(&rt, addr, options(), 1, persistence)
                .await
                .expect("connects");
            controller.mischief.set(Mischief::Refuse(status.bits()));
            let begun = rt.now();
            assert!(device.flush(tag()).await.is_err(), "{status}");
            let took = rt.now().since(begun).as_ms();
            let attempts = controller.seen.borrow().len() as u64;
            assert!((1000..2500).contains(&took), "{status}: {took} ms");
            assert!(attempts > 2 && (attempts - 1) * delay <= took, "{status}");
            controller.seen.borrow_mut().clear();
            controller.mischiefs_left.set(2);
            assert_eq!(device.flush(tag()).await, Ok(()), "{status}");
            assert_eq!(controller.seen.borrow().len(), 3, "{status}");
        });
    }
}

/// An I/O that breaks every connection it is given is not issued without end.
#[test]
fn what_breaks_each_connection_fails_in_time() {
    world(|rt, controller, addr| async move {
        let persistence = Persistence {
            first_delay: Duration::from_ms(100),
            max_delay: Duration::from_ms(100),
            io_timeout: Duration::from_secs(2),
            ..PERSISTENCE
        };
        let device = RemoteDevice::open(&rt, addr, options(), 1, persistence)
            .await
            .expect("connects");
        controller.mischief.set(Mischief::HalfAnswer);
        let begun = rt.now();
        assert_eq!(device.flush(tag()).await, Err(IoError::NotReady));
        let took = rt.now().since(begun);
        assert!(took < Duration::from_secs(4), "{took}");
        let attempts = controller.seen.borrow().len() as u64;
        assert!(
            attempts > 1 && (attempts - 1) * 100 <= took.as_ms(),
            "{attempts} in {took}"
        );
        controller.mischief.set(Mischief::None);
        assert_eq!(device.flush(tag()).await, Ok(()));
    });
}

/// Each attempt to connect again waits twice as long as the one before, up to a bound, and from the
/// beginning the next time.
#[test]
fn attempts_to_connect_again_become_rarer() {
    world(|rt, controller, addr| async move {
        let persistence = Persistence {
            first_delay: Duration::from_ms(500),
            max_delay: Duration::from_secs(4),
            ..PERSISTENCE
        };
        let device = RemoteDevice::open(&rt, addr, options(), 1, persistence)
            .await
            .expect("connects");
        for _ in 0..2 {
            let refused = (Status::CONNECT_INVALID_HOST, 0);
            controller.connect_status.set(Some(refused));
            controller.connected_at.borrow_mut().clear();
            let mut last = rt.now();
            controller.drop_connections();
            rt.sleep(Duration::from_secs(30)).await;
            let attempts = controller.connected_at.take();
            assert!(attempts.len() > 5, "{attempts:?}");
            for (at, delay) in attempts
                .into_iter()
                .zip([500, 1000, 2000, 4000, 4000, 4000])
            {
                let gap = at.since(last).as_ms();
                assert!((delay..delay + 1000).contains(&gap), "{gap} for {delay} ms");
                last = at;
            }
            controller.connect_status.set(None);
            while !device.remote().is_connected() {
                rt.sleep(Duration::from_ms(1)).await;
            }
            assert_eq!(device.flush(tag()).await, Ok(()));
        }
    });
}
