//! Who may connect, how associations end, and what has to have happened before a host may come
//! back.

use std::collections::BTreeSet;
use std::rc::Rc;

use flashyard_engine::HostEventKind;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData, InvalidParameter};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{
    BLOCK, Bench, Client, Identity, Incoming, NO_DIGESTS, Site, memory, subnqn, tenant,
};
use flashyard_time::Duration;

use crate::devices::Held;

/// A Connect of the Admin queue, whatever comes of it.
async fn try_admin(
    bench: &Bench,
    name: &str,
    host: u8,
    kato: u32,
) -> (Client, CompletionQueueEntry) {
    let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
    let connect = Connect {
        sqsize: 31,
        kato,
        ..Connect::default()
    };
    let answer = client
        .connect(
            connect,
            ConnectData::DYNAMIC,
            &subnqn(name),
            &Identity::number(host.into()),
        )
        .await;
    (client, answer)
}

async fn try_io(
    bench: &Bench,
    name: &str,
    identity: &Identity,
    seat: (u16, u16, u16),
) -> CompletionQueueEntry {
    let (cntlid, qid, sqsize) = seat;
    let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
    client
        .connect(
            Connect {
                qid,
                sqsize,
                ..Connect::default()
            },
            cntlid,
            &subnqn(name),
            identity,
        )
        .await
}

#[test]
fn only_hosts_on_the_list() {
    let site = Site::new(Config::stormy(1), 1);
    site.run(|bench| async move {
        let allowed = Identity::number(1).hostnqn;
        bench
            .target
            .set_tenant(tenant(1, "a", &[allowed.as_str()]))
            .expect("good");
        let (_good, answer) = try_admin(&bench, "a", 1, 0).await;
        assert!(answer.status().is_success());
        let (_bad, unknown) = try_admin(&bench, "nobody", 1, 0).await;
        assert_eq!(
            (unknown.status(), unknown.dw0()),
            (
                Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
                InvalidParameter::SUBNQN.dw0()
            )
        );
        // The same to the last bit, for I/O queues as well.
        let (_bad, forbidden) = try_admin(&bench, "a", 2, 0).await;
        assert_eq!(forbidden, unknown);
        let connect = Connect {
            sqsize: 31,
            qid: 1,
            ..Connect::default()
        };
        for cntlid in [1, 2] {
            let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let host = Identity::number(2);
            let forbidden = client.connect(connect, cntlid, &subnqn("a"), &host).await;
            assert_eq!(forbidden, unknown);
        }
        let events = bench.target.snapshot().recent_events;
        assert_eq!(events.len(), 1, "whoever runs the target is notified");
        assert_eq!(events[0].kind, HostEventKind::NotAllowed);
        assert!(
            events[0].to_string().contains("host2 of a ("),
            "{}",
            events[0]
        );
    });
}

#[test]
fn io_queues_belong_to_the_controller_of_their_host() {
    let site = Site::new(Config::stormy(2), 2);
    site.run(|bench| async move {
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let (me, other) = (Identity::number(1), Identity::number(2));
        let same_name = Identity {
            hostid: other.hostid,
            ..me
        };
        let refused = |answer: CompletionQueueEntry, why: InvalidParameter| {
            assert!(
                answer.status().is(Status::CONNECT_INVALID_PARAMETERS),
                "{answer:?}"
            );
            assert_eq!(answer.dw0(), why.dw0());
        };
        refused(
            try_io(&bench, "a", &me, (cntlid + 1, 1, 31)).await,
            InvalidParameter::CNTLID,
        );
        refused(
            try_io(&bench, "b", &me, (cntlid, 1, 31)).await,
            InvalidParameter::CNTLID,
        );
        refused(
            try_io(&bench, "a", &other, (cntlid, 1, 31)).await,
            InvalidParameter::HOSTNQN,
        );
        refused(
            try_io(&bench, "a", &same_name, (cntlid, 1, 31)).await,
            InvalidParameter::HOSTID,
        );
        refused(
            try_io(&bench, "a", &me, (cntlid, 0xffff, 31)).await,
            InvalidParameter::QID,
        );
        refused(
            try_io(&bench, "a", &me, (cntlid, 1, 5000)).await,
            InvalidParameter::SQSIZE,
        );
        refused(
            try_io(&bench, "a", &me, (cntlid, 1, 0)).await,
            InvalidParameter::SQSIZE,
        );
        let _io = bench.io("a", 1, cntlid).await;
        let twice = try_io(&bench, "a", &me, (cntlid, 1, 31)).await;
        assert!(!twice.status().is_success(), "the queue is there already");
    });
}

#[test]
fn the_end_of_the_admin_queue_ends_all() {
    for seed in 0..10 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (admin, cntlid) = bench.admin("a", 1).await;
            let mut queues = Vec::new();
            for qid in 1..5 {
                queues.push(bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await);
            }
            assert_eq!(bench.target.snapshot().controllers[0].io_queues, 4);
            drop(admin);
            for queue in &mut queues {
                queue.closed().await;
            }
            bench.host_rt.sleep(Duration::from_secs(5)).await;
            let snapshot = bench.target.snapshot();
            assert!(snapshot.controllers.is_empty());
            assert_eq!(snapshot.connections_per_core.iter().sum::<usize>(), 0);
            assert_eq!(snapshot.tenants[0].counters.unsafe_shutdowns, 1);
        });
    }
}

#[test]
fn a_host_that_is_not_allowed_any_more_has_to_go() {
    let site = Site::new(Config::stormy(3), 1);
    site.run(|bench| async move {
        let (mut admin, mut io) = bench.connect("a", 1).await;
        let (mut other_admin, _other) = bench.connect("a", 2).await;
        let left = Identity::number(2).hostnqn;
        bench
            .target
            .set_tenant(tenant(1, "a", &[left.as_str()]))
            .expect("good");
        admin.closed().await;
        io.closed().await;
        let alive = other_admin
            .command(SubmissionQueueEntry::keep_alive(), &[])
            .await;
        assert!(alive.status().is_success());
        bench.target.remove_tenant("a").expect("it is there");
        other_admin.closed().await;
    });
}

#[test]
fn a_silent_host_expires_and_a_working_one_does_not() {
    let site = Site::new(Config::calm(4), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (mut silent, answer) = try_admin(&bench, "a", 1, 5_000).await;
        assert!(answer.status().is_success());
        silent.enable().await;
        let (mut busy, answer) = try_admin(&bench, "a", 2, 5_000).await;
        busy.enable().await;
        let cntlid = answer.dw0() as u16;
        let mut io = bench.io("a", 2, cntlid).await;
        for _ in 0..30 {
            bench.host_rt.sleep(Duration::from_secs(1)).await;
            io.read(1, 0, 1, BLOCK).await.expect("I/O keeps it alive");
        }
        silent.closed().await;
        assert!(
            busy.command(SubmissionQueueEntry::keep_alive(), &[])
                .await
                .status()
                .is_success()
        );
        assert_eq!(bench.target.snapshot().controllers.len(), 1);
        let events = bench.target.snapshot().recent_events;
        let [event] = &events[..] else {
            panic!("one event: {events:?}")
        };
        assert_eq!(
            (event.number, event.kind),
            (1, HostEventKind::KeepAliveExpired)
        );
        let line = event.to_string();
        let name = "nqn.2014-08.org.nvmexpress:uuid:host1";
        assert!(line.starts_with(&format!("host {name} of a (controller ")));
        assert!(line.ends_with("): the keep-alive timer expired"), "{line}");
    });
}

#[test]
fn a_reset_drops_the_io_queues_and_keeps_the_admin_queue() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            let (mut admin, cntlid) = bench.admin("a", 1).await;
            let mut io = bench.io("a", 1, cntlid).await;
            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            admin.disable().await;
            io.closed().await;
            assert!(
                !try_io(&bench, "a", &Identity::number(1), (cntlid, 1, 31))
                    .await
                    .status()
                    .is_success()
            );
            admin.enable().await;
            let mut io = bench.io("a", 1, cntlid).await;
            io.read(1, 0, 1, BLOCK).await.expect("a new queue works");
        });
    }
}

#[test]
fn a_shutdown_with_notice_is_not_unsafe() {
    let site = Site::new(Config::calm(5), 1);
    site.run(|bench| async move {
        let (mut admin, _) = bench.admin("a", 1).await;
        let shutdown = SubmissionQueueEntry::property_set(0x14, false, 0x0046_4001);
        assert!(admin.command(shutdown, &[]).await.status().is_success());
        let status = admin
            .command(SubmissionQueueEntry::property_get(0x1c, false), &[])
            .await;
        assert_eq!(status.dw0() >> 2 & 3, 2, "shutdown complete");
        drop(admin);
        bench.host_rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(
            bench.target.snapshot().tenants[0].counters.unsafe_shutdowns,
            0
        );
    });
}

/// A write of an association that has died may not land after its host has connected again.
#[test]
fn the_fence() {
    for seed in 0..10 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            bench.attach("a", 1, 1, device);
            let (admin, mut io) = bench.connect("a", 1).await;
            gate.shut();
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            io.submit(
                SubmissionQueueEntry::write(1, LbaRange { slba: 0, blocks: 1 }, sgl),
                &[1; 4096],
            )
            .await;
            while gate.issued.borrow().is_empty() {
                bench.host_rt.sleep(Duration::from_ms(1)).await;
            }
            drop((admin, io));
            bench.host_rt.sleep(Duration::from_secs(1)).await;

            let (_other, answer) = try_admin(&bench, "a", 2, 0).await;
            assert!(
                answer.status().is_success(),
                "another host is not concerned"
            );
            let (_late, answer) = try_admin(&bench, "a", 1, 0).await;
            assert!(
                answer.status().is(Status::CONNECT_CONTROLLER_BUSY) && !answer.status().dnr(),
                "{answer:?}"
            );

            let opener = gate.clone();
            let rt = bench.host_rt.clone();
            bench
                .host_rt
                .spawn(async move {
                    rt.sleep(Duration::from_ms(700)).await;
                    opener.open();
                })
                .detach();
            let (mut admin, answer) = try_admin(&bench, "a", 1, 0).await;
            assert!(
                answer.status().is_success(),
                "the wait was short enough: {answer:?}"
            );
            admin.enable().await;
            let mut io = bench.io("a", 1, answer.dw0() as u16).await;
            assert_eq!(
                io.read(1, 0, 1, BLOCK).await.expect("good"),
                vec![1; 4096],
                "it has landed before"
            );
            assert!(Rc::strong_count(&gate) > 0);
        });
    }
}

/// What had not been issued when the association died is never issued.
#[test]
fn nothing_queued_survives() {
    // The I/O queue is served by core 1; the device is at home there, or elsewhere.
    for home in [1, 0] {
        nothing_queued_survives_at(home);
    }
}

fn nothing_queued_survives_at(home: usize) {
    let site = Site::new(Config::stormy(6), 2);
    site.run(move |bench| async move {
        let (device, gate) = Held::around(memory(1 << 20));
        let window = flashyard_sched::Window {
            ios: 1,
            bytes: u64::MAX,
        };
        let policy = Box::new(flashyard_sched::Fifo::new(window));
        let device = bench.cores[home].add_device(device, &bench.cores[home].add_switch(policy));
        bench.attach_handle("a", 1, &device);
        let (admin, mut io) = bench.connect("a", 1).await;
        gate.shut();
        for slba in 0..8 {
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            io.submit(
                SubmissionQueueEntry::write(1, LbaRange { slba, blocks: 1 }, sgl),
                &[1; 4096],
            )
            .await;
        }
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(gate.issued.borrow().len(), 1, "the window of the switch");
        drop((admin, io));
        bench.host_rt.sleep(Duration::from_secs(2)).await;
        gate.open();
        bench.host_rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(gate.issued.borrow().len(), 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        assert!(matches!(
            io.next_within(Duration::from_ms(1)).await,
            None | Some(Incoming::End)
        ));
    });
}

/// Hosts of a tenant that does not have all its volumes yet come again; who is connected stays, and
/// hosts of other tenants are not concerned.
#[test]
fn hosts_that_are_held_back_are_asked_to_come_again() {
    let site = Site::new(Config::calm(4), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        bench.attach_memory("b", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        bench.target.hold_back(BTreeSet::from(["a".to_owned()]));
        io.read(1, 0, 1, BLOCK).await.expect("it was there before");
        let (_refused, answer) = try_admin(&bench, "a", 2, 0).await;
        let status = answer.status();
        assert!(
            status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.dnr(),
            "{answer:?}"
        );
        let (_other, answer) = try_admin(&bench, "b", 2, 0).await;
        assert!(answer.status().is_success(), "{answer:?}");
        bench.target.hold_back(BTreeSet::new());
        let (_admitted, answer) = try_admin(&bench, "a", 2, 0).await;
        assert!(answer.status().is_success(), "{answer:?}");
    });
}
