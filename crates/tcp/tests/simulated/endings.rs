//! How connections, queues and devices end while something of them is still waiting.

use flashyard_engine::Limits;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::tcp::ICReq;
use flashyard_nvme::{Nqn, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{
    BLOCK, Bench, Client, Identity, Incoming, NO_DIGESTS, Site, memory, pattern, subnqn,
};
use flashyard_time::Duration;

use crate::devices::Held;

const WHOLE: LbaRange = LbaRange {
    slba: 0,
    blocks: (1 << 20) / BLOCK,
};

/// Many long reads in one segment, so that the target has received commands that it does not take
/// yet.
async fn submit_reads(io: &mut Client, count: u16) {
    let sgl = Sgl::Transport { length: 1 << 20 };
    let read = SubmissionQueueEntry::read(1, WHOLE, sgl);
    let capsules = (0..count).flat_map(|n| io.capsule(read.with_cid(1000 + n), &[]));
    let bytes: Vec<u8> = capsules.collect();
    io.send_bytes(&bytes).await;
}

/// The core goes on when a host leaves whose output is full and whose last commands have not been
/// looked at.
#[test]
fn a_host_that_leaves_with_its_output_full() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        bench.attach_memory("b", 1);
        let (admin, mut io) = bench.connect("a", 1).await;
        submit_reads(&mut io, 100).await;
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        drop((admin, io));
        let (_admin, mut other) = bench.connect("b", 2).await;
        other.read(1, 0, 1, BLOCK).await.expect("the core goes on");
        bench.host_rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(bench.target.snapshot().controllers.len(), 1);
    });
}

/// A queue that has gone with writes in flight is a fence, although its association has not ended
/// yet: the host may be repeating them elsewhere.
#[test]
fn a_queue_that_ends_alone_is_a_fence() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            bench.attach("a", 1, 1, device);
            let (mut admin, cntlid) = bench.admin("a", 1).await;
            let mut io = bench.io("a", 1, cntlid).await;
            gate.shut();
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            let block = LbaRange { slba: 0, blocks: 1 };
            io.submit(SubmissionQueueEntry::write(1, block, sgl), &[1; 4096])
                .await;
            while gate.issued.borrow().is_empty() {
                bench.host_rt.sleep(Duration::from_ms(1)).await;
            }
            drop(io);
            bench.host_rt.sleep(Duration::from_secs(1)).await;

            let busy = Status::CONNECT_CONTROLLER_BUSY;
            let (seat, host) = ((cntlid, 2, 32), Identity::number(1));
            let connect = Connect {
                sqsize: 31,
                ..Connect::default()
            };
            let mut again = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let answer = again
                .connect(connect, ConnectData::DYNAMIC, &subnqn("a"), &host)
                .await;
            assert!(answer.status().is(busy), "{answer:?}");
            let mut beside = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let connect = Connect {
                qid: seat.1,
                ..connect
            };
            let answer = beside.connect(connect, cntlid, &subnqn("a"), &host).await;
            assert!(answer.status().is(busy), "{answer:?}");

            gate.open();
            let mut io = bench.io_with("a", 1, NO_DIGESTS, seat).await;
            assert_eq!(io.read(1, 0, 1, BLOCK).await, Ok(vec![1; 4096]));
            let alive = admin.command(SubmissionQueueEntry::keep_alive(), &[]).await;
            assert!(alive.status().is_success());
        });
    }
}

/// A read that waits for memory while its device is taken away does not reach it: it may be another
/// tenant's by now.
#[test]
fn a_device_that_was_taken_away_is_not_reached_by_those_who_waited() {
    let site = Site::new(Config::calm(2), 1);
    site.run(|bench| async move {
        let (device, gate) = Held::around(memory(16 << 20));
        let handle = bench.attach("a", 1, 0, device);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let data = pattern(1, 1 << 20);
        let status = io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await;
        assert_eq!(status, Status::SUCCESS);
        submit_reads(&mut io, 20).await;
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        bench.target.detach("a", 1).expect("it is there");
        bench.cores[0].remove_device(&handle).await;
        let issued = gate.issued.borrow().len();
        let mut refused = 0;
        for _ in 0..20 {
            match io.next().await {
                Incoming::Data { .. } => assert!(io.response().await.status().is_success()),
                Incoming::Response(response) => {
                    refused += 1;
                    assert!(
                        response.status().is(Status::NAMESPACE_NOT_READY),
                        "{response:?}"
                    );
                }
                other => panic!("data or a response: {other:?}"),
            }
        }
        assert!(refused > 10, "most of them had to wait");
        assert_eq!(gate.issued.borrow().len(), issued);
    });
}

/// Capsules that are never finished take the memory of their tenant only.
#[test]
fn half_capsules_hold_up_their_own_tenant_only() {
    let limits = Limits {
        capsule_bytes: 256 << 10,
        tenant_capsule_bytes: 64 << 10,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(3), 1, limits);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        bench.attach_memory("b", 1);
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 2 * BLOCK,
        };
        let range = LbaRange { slba: 0, blocks: 2 };
        let mut halves = Vec::new();
        for qid in 1..=100 {
            let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await;
            let entry = SubmissionQueueEntry::write(1, range, sgl).with_cid(7);
            let capsule = io.capsule(entry, &[1; 8192]);
            io.send_bytes(&capsule[..1000]).await;
            halves.push(io);
        }
        let (_other_admin, mut other) = bench.connect("b", 2).await;
        let status = other.write_in_capsule(1, 0, &[2; 8192], BLOCK).await;
        assert_eq!(status, Status::SUCCESS);
    });
}

/// Anybody may ask for the discovery log, and that keeps nobody from their volumes.
#[test]
fn discovery_and_each_tenant_have_their_bounds() {
    let limits = Limits {
        controllers: 30,
        discovery_controllers: 15,
        queues_per_tenant: 4,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(4), 1, limits);
    site.run(|bench| async move {
        let connect = Connect {
            sqsize: 31,
            ..Connect::default()
        };
        let busy = Status::CONNECT_CONTROLLER_BUSY;
        let mut discovering = Vec::new();
        for n in 0..5 {
            let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let (name, host) = (Nqn::DISCOVERY.to_string(), Identity::number(n));
            let answer = client
                .connect(connect, ConnectData::DYNAMIC, &name, &host)
                .await;
            assert_eq!(answer.status().is(busy), n >= 3, "{answer:?}");
            discovering.push(client);
        }
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let mut queues = Vec::new();
        for qid in 1..=4 {
            let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let connect = Connect { qid, ..connect };
            let answer = client
                .connect(connect, cntlid, &subnqn("a"), &Identity::number(1))
                .await;
            assert_eq!(answer.status().is(busy), qid == 4, "{answer:?}");
            queues.push(client);
        }
        let (_other_admin, _other) = bench.connect("b", 2).await;
    });
}

/// A host that breaks the rules on its Admin queue and then takes its time to close has lost its
/// I/O queues already.
#[test]
fn a_violation_on_the_admin_queue_ends_the_association_at_once() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            let (mut admin, mut io) = bench.connect("a", 1).await;
            // An ICReq where none belongs; the connection stays open on this side.
            admin.send_bytes(&ICReq::default().encode()).await;
            let term = admin.next_within(Duration::from_secs(1)).await;
            assert!(matches!(term, Some(Incoming::TermReq(_))), "{term:?}");
            let end = io.next_within(Duration::from_secs(1)).await;
            assert!(matches!(end, Some(Incoming::End)), "{end:?}");
            bench.host_rt.sleep(Duration::from_secs(1)).await;
            assert!(bench.target.snapshot().controllers.is_empty());
            // Nothing but the farewell is left, and then nothing at all.
            assert_eq!(connections(&bench), 1);
            bench.host_rt.sleep(Duration::from_secs(12)).await;
            assert_eq!(connections(&bench), 0);
            let tenant = bench.target.snapshot().tenants[0].counters;
            assert_eq!(tenant.unsafe_shutdowns, 1);
        });
    }
}

fn connections(bench: &Bench) -> usize {
    bench.target.snapshot().connections_per_core.iter().sum()
}

/// A core ends while connections that another one has accepted are on their way to it.
#[test]
fn a_core_that_ends_serves_nobody_who_comes_late() {
    for seed in 0..60 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(move |bench| async move {
            let mut clients = Vec::new();
            for _ in 0..8 {
                clients.push(Client::silent(&bench.host_rt, bench.addr).await);
            }
            bench.host_rt.sleep(Duration::from_us(seed % 20 * 10)).await;
            let begun = bench.host_rt.now();
            bench.cores[1].shutdown().await;
            // Whoever connects now is served by the other core.
            let (_admin, _io) = bench.connect("a", 1).await;
            bench.cores[0].shutdown().await;
            bench.host_rt.sleep(Duration::from_secs(1)).await;
            assert_eq!(connections(&bench), 0);
            for client in &mut clients {
                client.closed().await;
            }
            // Long before the deadlines of those who have said nothing.
            assert!(bench.host_rt.now().since(begun) < Duration::from_secs(5));
        });
    }
}

/// A host that sends the end of a write when its volume has been taken away does not reach what
/// lies there now.
#[test]
fn a_capsule_that_arrives_slowly_does_not_outlive_its_device() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 1);
        site.run(|bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            let handle = bench.attach("a", 1, 0, device);
            let (_admin, mut io) = bench.connect("a", 1).await;
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            let range = LbaRange { slba: 3, blocks: 1 };
            let write = SubmissionQueueEntry::write(1, range, sgl).with_cid(77);
            let capsule = io.capsule(write, &[1; 4096]);
            let (begin, rest) = capsule.split_at(2000);
            io.send_bytes(begin).await;
            bench.host_rt.sleep(Duration::from_ms(300)).await;
            bench.target.detach("a", 1).expect("it is attached");
            bench.cores[0].remove_device(&handle).await;
            io.send_bytes(rest).await;
            let answer = io.response().await;
            assert!(answer.cid() == 77 && !answer.status().is_success());
            assert!(gate.issued.borrow().is_empty(), "seed {seed}");
        });
    }
}
