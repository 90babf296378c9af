//! The host library against the real target, in the simulated world, by seed.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_block::{DeviceExt, Tag};
use flashyard_engine::{Class, TenantId};
use flashyard_host::{
    Association, ConnectError, Event, HostError, Options, Persistence, ReadInto, RemoteDevice,
    discover,
};
use flashyard_nvme::command::{LbaRange, Status};
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{Site, memory, tenant};
use flashyard_time::{Duration, Rng};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;

/// A target of two cores with the tenants `a` (open to every host) and `b` (not to ours).
fn new_site(config: Config) -> Site {
    let site = Site::new(config, 2);
    let other = tenant(2, "b", &["nqn.2026-11.test:other"]);
    site.bench.target.set_tenant(other).expect("a good tenant");
    site
}

/// The same; `a` has namespace 1 in memory, at home on the core that does not listen.
fn site_with_memory(config: Config) -> Site {
    let site = new_site(config);
    site.bench.attach("a", 1, 1, memory(BLOCKS * BLOCK as u64));
    site
}

fn options(tenant: &str) -> Options {
    flashyard_testbed::options(tenant, 9)
}

fn pattern(len: usize, seed: u64) -> Buf {
    let mut buf = Buf::take(len).expect("memory");
    Rng::new(seed).fill_bytes(&mut buf);
    buf
}

fn range(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

/// Each task writes to blocks of its own and reads what it wrote; sizes from in the capsule to many
/// R2Ts.
#[test]
fn what_is_written_is_read_under_every_fault() {
    for seed in 0..12 {
        let site = site_with_memory(if seed == 0 {
            Config::calm(0)
        } else {
            Config::stormy(seed)
        });
        let addr = site.bench.addr;
        site.world.run(&site.hosts, move |rt: Rt| async move {
            let coalescing = CompletionCoalescing {
                window: [1, 0, 2, 32, 128][seed as usize % 5],
                packed: seed % 2 == 0,
            };
            let options = Options {
                header_digest: seed % 2 == 1,
                data_digest: seed % 3 == 1,
                disable_sq_flow_control: seed % 4 == 1,
                coalescing: (seed % 3 != 2).then_some(coalescing),
                queues: 3,
                depth: 8,
                ..options("a")
            };
            let association = Association::connect(&rt, addr, options)
                .await
                .expect("connects");
            let tasks: Vec<_> = (0..16)
                .map(|task| {
                    let queue = association.queue(task as usize);
                    rt.spawn(async move {
                        let mut rng = Rng::new(seed).split(task);
                        for _ in 0..6 {
                            let blocks = [1, 2, 3, 8, 33, 64][rng.below(6) as usize];
                            let (lba, content) = (task * 64, rng.next_u64());
                            let len = blocks as usize * BLOCK;
                            let data = Data::Buf(pattern(len, content));
                            queue
                                .write(1, range(lba, blocks), data, rng.chance(1, 4))
                                .await
                                .expect("writes");
                            let into = ReadInto::Buf(Buf::take(len).expect("memory"));
                            let read = queue
                                .read(1, range(lba, blocks), into)
                                .await
                                .expect("reads");
                            assert_eq!(*read.into_buf().expect("a buffer"), *pattern(len, content));
                        }
                        queue.flush(1).await.expect("flushes");
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            association.close().await;
        });
    }
}

/// Whatever the window, the depth and the mixture: each command is answered once, failures among
/// them as failures, and none waits for answers that will not come.
#[test]
fn held_and_packed_answers_reach_their_commands() {
    let windows = [1, 2, 7, 32, 64, 128, 0];
    for (seed, window) in (0..).zip(windows.into_iter().chain(windows)) {
        let site = site_with_memory(Config::stormy(seed));
        let addr = site.bench.addr;
        site.world.run(&site.hosts, move |rt: Rt| async move {
            let options = Options {
                depth: [3, 32, 128][seed as usize % 3],
                disable_sq_flow_control: seed % 2 == 1,
                coalescing: Some(CompletionCoalescing {
                    window,
                    packed: seed % 4 < 3,
                }),
                ..options("a")
            };
            let association = Association::connect(&rt, addr, options)
                .await
                .expect("connects");
            let tasks: Vec<_> = (0..40)
                .map(|task| {
                    let queue = association.queue(0);
                    rt.spawn(async move {
                        let mut rng = Rng::new(seed).split(task);
                        for _ in 0..25 {
                            let beyond = rng.chance(1, 8);
                            let lba = if beyond { BLOCKS } else { task };
                            let data = Data::Buf(pattern(BLOCK, rng.next_u64()));
                            let written = queue.write(1, range(lba, 1), data, false).await;
                            match written {
                                Ok(()) => assert!(!beyond),
                                Err(HostError::Status(status)) => {
                                    assert!(beyond && status.is(Status::LBA_OUT_OF_RANGE));
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            association.close().await;
        });
    }
}

#[test]
fn every_command_of_the_library() {
    let site = site_with_memory(Config::calm(3));
    let addr = site.bench.addr;
    site.world.run(&site.hosts, move |rt: Rt| async move {
        let association = Association::connect(&rt, addr, options("a"))
            .await
            .expect("connects");
        let queue = association.queue(0);
        queue
            .write(1, range(0, 8), Data::Buf(pattern(8 * BLOCK, 1)), true)
            .await
            .expect("writes");
        queue
            .compare(1, range(0, 8), Data::Buf(pattern(8 * BLOCK, 1)))
            .await
            .expect("is equal");
        let other = queue
            .compare(1, range(0, 8), Data::Buf(pattern(8 * BLOCK, 2)))
            .await;
        assert!(
            matches!(other, Err(HostError::Status(status)) if status.is(Status::COMPARE_FAILURE))
        );
        let [old, new] = [1, 1].map(|seed| Data::Buf(pattern(BLOCK, seed)));
        let swapped = queue
            .compare_and_write(1, range(9, 1), old, new, false)
            .await;
        assert!(
            matches!(swapped, Err(HostError::Status(status)) if status.is(Status::COMPARE_FAILURE))
        );
        let (zeroes, new) = (Data::Zeroes(BLOCK), Data::Buf(pattern(BLOCK, 5)));
        queue
            .compare_and_write(1, range(9, 1), zeroes, new, false)
            .await
            .expect("was zero");
        queue
            .compare(1, range(9, 1), Data::Buf(pattern(BLOCK, 5)))
            .await
            .expect("is what was written");
        queue
            .write_zeroes(1, range(0, 4), true)
            .await
            .expect("zeroes");
        let ranges = [
            DsmRange {
                attributes: 0,
                blocks: 2,
                slba: 4,
            },
            DsmRange {
                attributes: 0,
                blocks: 1,
                slba: 9,
            },
        ];
        queue.deallocate(1, &ranges).await.expect("deallocates");
        queue
            .compare(1, range(0, 6), Data::Zeroes(6 * BLOCK))
            .await
            .expect("reads as zeroes");
        let beyond = queue
            .read(1, range(BLOCKS, 1), ReadInto::Discard(BLOCK))
            .await;
        assert!(
            matches!(beyond, Err(HostError::Status(status)) if status.is(Status::LBA_OUT_OF_RANGE))
        );
        let nowhere = queue.read(2, range(0, 1), ReadInto::Discard(BLOCK)).await;
        assert!(matches!(nowhere, Err(HostError::Status(_))));
        assert_eq!(association.namespaces().await, Ok(vec![1]));
        assert_eq!(
            association
                .namespace_descriptors(1)
                .await
                .expect("an answer")
                .uuid,
            Some([1; 16])
        );
        assert!(
            association
                .smart_log()
                .await
                .expect("an answer")
                .host_read_commands
                > 0
        );
        association.close().await;
    });
}

/// Namespaces of both cores, each by itself and together; the busy one of another tenant is in
/// neither.
#[test]
fn a_host_reads_what_came_to_its_namespaces() {
    let site = site_with_memory(Config::calm(6));
    let others = tenant(3, "c", &["*"]);
    site.bench.target.set_tenant(others).expect("a good tenant");
    site.run(move |bench| async move {
        bench.attach_memory("a", 2);
        bench.attach_memory("c", 1);
        let (rt, addr) = (bench.host_rt.clone(), bench.addr);
        let connect = async |tenant| Association::connect(&rt, addr, options(tenant)).await;
        let (ours, theirs) = (connect("a").await, connect("c").await);
        let (ours, theirs) = (ours.expect("connects"), theirs.expect("connects"));
        let write = async |association: &Association, nsid, blocks| {
            let data = Data::Zeroes(blocks as usize * BLOCK);
            let queue = association.queue(0);
            let written = queue.write(nsid, range(0, blocks), data, false).await;
            written.expect("is written");
        };
        for (nsid, blocks) in [(1, 1), (1, 2), (2, 4)] {
            write(&ours, nsid, blocks).await;
        }
        write(&theirs, 1, 8).await;
        let into = ReadInto::Discard(BLOCK);
        let read = ours.queue(0).read(2, range(0, 1), into).await;
        read.expect("is read");

        let log = async |nsid| ours.statistics_log(nsid).await;
        for (nsid, namespaces, [reads, writes, written]) in
            [(1, 1, [0, 2, 3]), (2, 1, [1, 1, 4]), (0, 2, [1, 3, 7])]
        {
            let log = log(nsid).await.expect("an answer").expect("that log");
            assert_eq!((log.nsid, log.namespaces), (nsid, namespaces));
            assert_eq!((log.reads.ops, log.writes.ops), (reads, writes), "{nsid}");
            assert_eq!(log.writes.bytes, written * BLOCK as u64);
            for direction in [&log.reads, &log.writes] {
                let binned = direction.latency.iter().map(|bin| u64::from(bin.count));
                assert_eq!(binned.sum::<u64>(), direction.ops);
                assert!(direction.waited_us <= Some(direction.time_us));
            }
        }
        let all = log(u32::MAX).await.expect("an answer").expect("that log");
        assert_eq!((all.nsid, all.writes.ops), (0, 3));
        let unknown = log(3).await.expect_err("there is no such namespace");
        let wanted = Status::INVALID_NAMESPACE_OR_FORMAT;
        assert!(matches!(unknown, HostError::Status(status) if status.is(wanted)));
        ours.close().await;
        theirs.close().await;
    });
}

#[test]
fn only_those_who_may_come_in() {
    let site = new_site(Config::calm(4));
    let addr = site.bench.addr;
    site.world.run(&site.hosts, move |rt: Rt| async move {
        let refused = Association::connect(&rt, addr, options("b")).await;
        let unknown = Association::connect(&rt, addr, options("unknown")).await;
        assert!(matches!(unknown, Err(ConnectError::InvalidParameter(_))));
        assert_eq!(refused.err(), unknown.err(), "names are not disclosed");
        let ours = options("a");
        let entries = discover(&rt, addr, ours.hostnqn, ours.hostid)
            .await
            .expect("discovers");
        let found: Vec<_> = entries.iter().filter_map(|entry| entry.subnqn).collect();
        assert!(found.contains(&ours.subnqn), "{found:?}");
        assert!(!found.contains(&options("b").subnqn), "is not for us");
    });
}

#[test]
fn namespaces_come_and_go_before_the_eyes_of_the_host() {
    let site = site_with_memory(Config::calm(5));
    site.run(move |bench| async move {
        let (rt, addr) = (bench.host_rt.clone(), bench.addr);
        let association = Association::connect(&rt, addr, options("a"))
            .await
            .expect("connects");
        rt.sleep(Duration::from_ms(10)).await;
        bench.attach_memory("a", 2);
        assert_eq!(
            association.next_event().await,
            Ok(Event::NamespacesChanged(vec![2]))
        );
        association
            .queue(0)
            .write(2, range(0, 1), Data::Zeroes(BLOCK), false)
            .await
            .expect("is there");
        bench.target.detach("a", 2).expect("was there");
        assert_eq!(
            association.next_event().await,
            Ok(Event::NamespacesChanged(vec![2]))
        );
        assert_eq!(association.namespaces().await, Ok(vec![1]));
    });
}

/// Connections are reset again and again under I/O to a remote device: everything is done in the
/// end, and what was written last is what is read.
#[test]
fn a_remote_device_survives_resets() {
    const TAG: Tag = Tag {
        tenant: TenantId(0),
        class: Class::Throughput,
    };
    for seed in 0..6 {
        let site = site_with_memory(if seed == 0 {
            Config::calm(0)
        } else {
            Config::stormy(seed)
        });
        let (addr, handle) = (site.bench.addr, site.world.handle());
        let (server, hosts) = (site.server.clone(), site.hosts.clone());
        site.world.run(&site.hosts, move |rt: Rt| async move {
            let persistence = Persistence {
                first_delay: Duration::from_ms(100),
                loss_timeout: Duration::from_secs(10_000),
                io_timeout: Duration::from_secs(10_000),
                ..Persistence::default()
            };
            let options = Options {
                queues: 2,
                depth: 8,
                data_digest: seed % 2 == 0,
                ..options("a")
            };
            let device = RemoteDevice::open(&rt, addr, options, 1, persistence)
                .await
                .expect("connects");
            let device = Rc::new(device);
            let running = Rc::new(Cell::new(8));
            for task in 0..8 {
                let (device, running) = (Rc::clone(&device), Rc::clone(&running));
                rt.spawn(async move {
                    let mut rng = Rng::new(seed).split(task);
                    for _ in 0..20 {
                        let len = [1, 2, 16][rng.below(3) as usize] * BLOCK;
                        let content = rng.next_u64();
                        device
                            .write(TAG, task * 16, pattern(len, content), false)
                            .await
                            .expect("in the end");
                        let read = device
                            .read(TAG, task * 16, Buf::take(len).expect("memory"))
                            .await;
                        let Ok(Data::Buf(read)) = read else {
                            panic!("{read:?}")
                        };
                        assert_eq!(*read, *pattern(len, content));
                    }
                    running.set(running.get() - 1);
                })
                .detach();
            }
            let mut rng = Rng::new(seed).split(99);
            while running.get() > 0 {
                rt.sleep(Duration::from_us(200 + rng.below(40_000))).await;
                if device.remote().is_connected() && device.remote().reconnects() < 10 {
                    handle.reset_connections(&hosts, &server);
                }
            }
            assert!(
                device.remote().reconnects() > 0,
                "seed {seed}: nothing was reset"
            );
        });
    }
}
