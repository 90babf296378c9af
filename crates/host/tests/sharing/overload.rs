//! A tenant that floods a slow device exhausts what is its own and nothing else. (A shared pool of
//! buffers without this has brought down clusters: all retried at once, Keep Alives and Connects
//! with them, until every host had given up.)

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::{DeviceExt, IoError, Tag};
use flashyard_engine::{Class, Limits, TenantId, Timed};
use flashyard_host::{Association, HostError, Options, Persistence, RemoteDevice};
use flashyard_nvme::Status;
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Fair, Fifo, Policy, Window};
use flashyard_time::{Duration, Rng};

use crate::world::{BLOCK, BLOCKS, Site, Speed, Work, load, one, options};

/// About 50 MB/s: the flood would take it minutes.
const SLOW: Speed = Speed {
    parts: 2,
    fixed: Duration::from_us(100),
    each: Duration::from_us(160),
};
/// Memory for data by R2T and reads of a tenant.
const OWN: usize = 4 << 20;
/// The same for data in capsules.
const OWN_CAPSULES: usize = 1 << 20;

const TAG: Tag = Tag {
    tenant: TenantId(0),
    class: Class::Throughput,
};

fn limits() -> Limits {
    Limits {
        tenant_bytes: OWN,
        tenant_capsule_bytes: OWN_CAPSULES,
        core_bytes: 4 * OWN,
        capsule_bytes: 4 * OWN_CAPSULES,
        ..Limits::default()
    }
}

fn site(seed: u64, limits: Limits) -> Site {
    Site::new(Config::calm(seed), 1, limits, Box::new(Fair::new()), SLOW)
}

/// Writes of 4 KiB to 1 MiB on every queue, as many as there are places, until `ends`; what is to
/// come again does. Gives how many were done and how many were interrupted.
async fn flood(rt: Rt, association: Rc<Association>, ends: Rc<Cell<bool>>) -> (u64, u64) {
    let counts = Rc::new((Cell::new(0), Cell::new(0)));
    let writers: Vec<_> = (0..16 * 32)
        .map(|number| {
            let (rt, ends, counts) = (rt.clone(), Rc::clone(&ends), Rc::clone(&counts));
            let queue = association.queue(number);
            let mut rng = Rng::new(number as u64);
            rt.clone().spawn(async move {
                while !ends.get() {
                    let work = Work {
                        depth: 0,
                        blocks: [1, 4, 16, 64, 256][rng.below(5) as usize],
                        write: true,
                        sensitive: false,
                    };
                    match one(&queue, work, &mut rng).await {
                        Ok(()) => counts.0.set(counts.0.get() + 1),
                        Err(HostError::Status(status)) => {
                            let delay = queue.retry_delay(status).expect("only interrupted");
                            counts.1.set(counts.1.get() + 1);
                            rt.sleep(delay).await;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await;
    }
    (counts.0.get(), counts.1.get())
}

fn flooding() -> Options {
    Options {
        queues: 16,
        depth: 32,
        kato: Duration::from_ms(500),
        ..options("a", 1)
    }
}

/// Whatever the flood of `a`, `b` is served with a latency that the device explains; associations
/// of both come up, are kept alive and are administered; and memory stays within its bounds.
///
/// `b` asks for less than its share, so it does not wait for its turn but when costs are measured,
/// and the flood is held to what the device has a use for: who is served in the order in which all
/// came has half as much. How many of its I/Os end in a given second is chance: 15 to 60 of them,
/// by which of the drive's two parts each write of 1 MiB meets, and no fewer when all costs are
/// known from the start. So seconds are added up.
#[test]
fn a_flood_does_not_starve_other_tenants() {
    let done_under = |policy: fn() -> Box<dyn Policy>| -> (u64, Timed) {
        let (mut done, mut reads) = (0, Timed::default());
        for seed in 1..=3 {
            let site = Site::new(Config::calm(seed), 1, limits(), policy(), SLOW);
            done += beside_a_flood(&site);
            reads += &site.reads();
        }
        (done, reads)
    };
    let (fair, reads) = done_under(|| Box::new(Fair::new()));
    assert!(fair > 20 * 3 * ROUNDS, "{fair}");
    let (waited, served) = (reads.waited_ns, reads.served_ns);
    assert!(waited * 20 < served, "{waited} ns waited, {served} served");
    let (unfair, _) = done_under(|| Box::new(Fifo::new(Window::UNLIMITED)));
    assert!(2 * fair > 3 * unfair, "{fair}, and {unfair} in order");
}

/// Seconds for which `b` reads.
const ROUNDS: u64 = 4;

/// How many I/Os of `b` are done.
fn beside_a_flood(site: &Site) -> u64 {
    let (addr, target) = (site.bench.addr, Arc::clone(&site.bench.target));
    site.run(move |rt: Rt| async move {
        let before = Buf::balance();
        let flooder = Association::connect(&rt, addr, flooding()).await;
        let flooder = Rc::new(flooder.expect("connects"));
        let ends = Rc::new(Cell::new(false));
        let flooding = rt.spawn(flood(rt.clone(), Rc::clone(&flooder), Rc::clone(&ends)));
        rt.sleep(Duration::from_secs(2)).await;

        let small = Work {
            depth: 1,
            blocks: 1,
            write: false,
            sensitive: false,
        };
        let kato = Duration::from_ms(500);
        let mut total = 0;
        for round in 0..ROUNDS as u8 {
            // Others come, and so do more hosts of the tenant that floods.
            for tenant in ["a", "b"] {
                let begun = rt.now();
                let options = Options {
                    kato,
                    ..options(tenant, 10 + round)
                };
                let association = Association::connect(&rt, addr, options).await;
                let association = association.expect("connects");
                let took = rt.now().since(begun);
                assert!(
                    took < Duration::from_ms(50),
                    "{tenant} connected in {took:?}"
                );
                let begun = rt.now();
                association.identify_namespace(1).await.expect("is served");
                association.smart_log().await.expect("is served");
                let took = rt.now().since(begun);
                assert!(took < Duration::from_ms(10), "{tenant} asked for {took:?}");
                if tenant == "b" {
                    let span = (rt.now(), rt.now() + Duration::from_secs(1));
                    let tally = load(&rt, &association, small, span, 7).await;
                    let worst = tally.latency.borrow().max();
                    // As in order in the worst of 160 seconds: none is without service.
                    assert!(tally.done.get() >= 12, "{} in a second", tally.done.get());
                    total += tally.done.get();
                    // A few writes of 1 MiB, at 41 ms each, may be at the device already.
                    assert!(worst < 250_000_000, "{worst} ns");
                }
                association.close().await;
            }
            let held = Buf::balance() - before;
            let most = 2 * (OWN + OWN_CAPSULES) + (16 << 20);
            assert!(held < most.cast_signed(), "{held} bytes of buffers");
            assert_eq!(flooder.failure(), None);
        }
        ends.set(true);
        let (done, interrupted) = flooding.await;
        assert!(done > 300, "{done} done, {interrupted} interrupted");
        assert_eq!(flooder.failure(), None, "its Keep Alives were answered");
        let errors = target.snapshot().tenants[0].counters.errors;
        assert_eq!(errors, interrupted);
        total
    })
}

/// Nothing goes round in circles while all wait: what happens in the world follows from the I/O
/// that is done, not from the I/O that waits.
#[test]
fn who_waits_costs_nothing() {
    let site = site(2, limits());
    let addr = site.bench.addr;
    let ends = Rc::new(Cell::new(false));
    let signal = Rc::clone(&ends);
    let (flooding,) = site.run(move |rt: Rt| async move {
        let flooder = Association::connect(&rt, addr, flooding()).await;
        let flooder = Rc::new(flooder.expect("connects"));
        let flooding = rt.spawn(flood(rt.clone(), flooder, signal));
        rt.sleep(Duration::from_secs(1)).await;
        (flooding,)
    });
    let writes = || {
        site.bench.target.snapshot().tenants[0]
            .counters
            .bytes_written
    };
    let (events, written) = (site.world.events(), writes());
    site.run(|rt: Rt| async move { rt.sleep(Duration::from_secs(5)).await });
    let events = site.world.events() - events;
    let written = writes() - written;
    assert!(written > 100 << 20, "{written} bytes");
    // Of both machines and the network between them, which carries 64 KiB at most in one piece.
    let each = events * (64 << 10) / written;
    assert!(
        each < 40,
        "{events} events for {written} bytes: {each} for 64 KiB"
    );
    ends.set(true);
    let (done, interrupted) = site.run(|_| flooding);
    assert!(done > 300 && interrupted == 0, "{done} and {interrupted}");
}

/// What has waited for too long is answered to come again, with a delay, before its host loses
/// patience; a host that applies that finishes everything without an error, and what was written is
/// there.
#[test]
fn what_is_interrupted_comes_again_and_is_done() {
    for seed in 0..3 {
        let limits = Limits {
            wait_deadline: Duration::from_ms(1_000 + 500 * seed),
            ..limits()
        };
        let site = site(seed, limits);
        let (addr, target) = (site.bench.addr, Arc::clone(&site.bench.target));
        site.run(move |rt: Rt| async move {
            let persistence = Persistence {
                io_timeout: Duration::from_secs(1_000),
                ..Persistence::default()
            };
            let options = Options {
                queues: 4,
                depth: 128,
                ..options("a", 1)
            };
            let device = RemoteDevice::open(&rt, addr, options, 1, persistence).await;
            let device = Rc::new(device.expect("connects"));
            let len = 256 * BLOCK;
            let filled = move |number: u64| {
                let mut buf = Buf::take(len).expect("memory");
                Rng::new(number).fill_bytes(&mut buf);
                buf
            };
            let writes: Vec<_> = (0..192)
                .map(|number| {
                    let device = Rc::clone(&device);
                    rt.spawn(async move {
                        let place = number % (BLOCKS / 256) * 256;
                        device.write(TAG, place, filled(number % 64), false).await
                    })
                })
                .collect();
            for write in writes {
                assert_eq!(write.await, Ok(()));
            }
            let counters = target.snapshot().tenants[0].counters;
            assert!(counters.errors > 20, "{} were interrupted", counters.errors);
            assert_eq!(device.remote().reconnects(), 0, "no host lost patience");
            for number in 0..64 {
                let buf = Buf::take(len).expect("memory");
                let read = device.read(TAG, number % (BLOCKS / 256) * 256, buf).await;
                let flashyard_runtime::Data::Buf(read) = read.expect("it is in order") else {
                    panic!("not zeroes")
                };
                assert!(*read == *filled(number), "{number}");
            }
        });
    }
}

/// Nor does a host try without end: when the time is over that an I/O may take, it fails.
#[test]
fn what_is_interrupted_does_not_come_again_for_ever() {
    const PATIENCE: Duration = Duration::from_secs(3);
    let deadline = Duration::from_secs(1);
    let limits = Limits {
        wait_deadline: deadline,
        ..limits()
    };
    let site = site(7, limits);
    let addr = site.bench.addr;
    site.run(move |rt: Rt| async move {
        let persistence = Persistence {
            io_timeout: PATIENCE,
            ..Persistence::default()
        };
        let options = Options {
            depth: 128,
            ..options("a", 1)
        };
        let device = RemoteDevice::open(&rt, addr, options, 1, persistence).await;
        let device = Rc::new(device.expect("connects"));
        let begun = rt.now();
        let writes: Vec<_> = (0..128)
            .map(|_| {
                let (rt, device) = (rt.clone(), Rc::clone(&device));
                rt.clone().spawn(async move {
                    let buf = Buf::take(256 * BLOCK).expect("memory");
                    let written = device.write(TAG, 0, buf, false).await;
                    (written, rt.now())
                })
            })
            .collect();
        let mut failed = 0;
        for write in writes {
            let (written, ended) = write.await;
            // Of those that have their turn at last the drive does a few at 41 ms each.
            let most = PATIENCE + deadline * 2;
            assert!(ended.since(begun) < most, "{}", ended.since(begun));
            failed += u32::from(written == Err(IoError::Busy));
        }
        assert!((20..128).contains(&failed), "{failed}");
    });
}

/// The status by itself: Command Interrupted, not without end, with the first delay for a host that
/// has said that it waits.
#[test]
fn the_answer_at_overload_is_to_come_again() {
    let limits = Limits {
        wait_deadline: Duration::from_secs(1),
        ..limits()
    };
    let site = site(5, limits);
    let addr = site.bench.addr;
    site.run(move |rt: Rt| async move {
        let options = Options {
            depth: 128,
            ..options("a", 1)
        };
        let association = Association::connect(&rt, addr, options).await;
        let association = association.expect("connects");
        let large = Work {
            depth: 0,
            blocks: 256,
            write: true,
            sensitive: false,
        };
        let writes: Vec<_> = (0..128)
            .map(|number| {
                let queue = association.queue(0);
                rt.spawn(async move { one(&queue, large, &mut Rng::new(number)).await })
            })
            .collect();
        let mut interrupted = 0;
        for write in writes {
            match write.await {
                Ok(()) => {}
                Err(HostError::Status(status)) => {
                    assert!(status.is(Status::COMMAND_INTERRUPTED), "{status}");
                    assert_eq!((status.crd(), status.dnr()), (1, false));
                    let delay = association.queue(0).retry_delay(status);
                    assert_eq!(delay, Some(Duration::from_ms(100)));
                    interrupted += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!((20..128).contains(&interrupted), "{interrupted}");
        // A host that gets no status, or no delay, nevertheless does not try again at once.
        let queue = association.queue(0);
        let bare = Status::COMMAND_INTERRUPTED;
        let moment = Some(Duration::from_ms(10));
        for (status, delay) in [
            (bare, moment),
            (bare.with_crd(2), moment),
            (bare.with_dnr(), None),
            (Status::NAMESPACE_NOT_READY, None),
            (Status::SUCCESS, None),
        ] {
            assert_eq!(queue.retry_delay(status), delay, "{status}");
        }
    });
}
