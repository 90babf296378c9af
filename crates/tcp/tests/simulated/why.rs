//! Where the latency of a tenant comes from, from the first byte of a command to the last of its
//! answer, for devices at home on the core of the connection and on another one.

use std::rc::Rc;

use flashyard_engine::{Class, Stages, Switch, TenantId, Why};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::feature::{CompletionCoalescing, FeatureId};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, NO_DIGESTS, Site, pattern, tenant};
use flashyard_time::Duration;

use crate::drive::{Dial, drive};

const MS: u64 = 1_000_000;
/// What the drive takes for an I/O.
const DRIVE: Duration = Duration::from_us(100);

/// A tenant with a queue on core 1 of 2, and a drive at home on this core.
struct Case {
    bench: Bench,
    switch: Rc<Switch>,
    dial: Rc<Dial>,
    _admin: Client,
    io: Client,
}

impl Case {
    /// With answers coalesced so many at a time, if that is asked for.
    async fn new(bench: Bench, home: usize, window: Option<u8>) -> Self {
        let (drive, dial) = drive(&bench.rts[home], 4, DRIVE);
        let core = &bench.cores[home];
        let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
        let device = core.add_device(drive, &switch);
        bench.attach_handle("a", 1, &device);
        let (mut admin, cntlid) = bench.admin("a", 1).await;
        if let Some(window) = window {
            let packed = false;
            let value = CompletionCoalescing { window, packed }.bits();
            let feature = FeatureId::COMPLETION_COALESCING.0;
            let set = SubmissionQueueEntry::set_features(feature, 0, value);
            assert!(admin.command(set, &[]).await.status().is_success());
        }
        let io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 1, 64)).await;
        assert_eq!(bench.target.snapshot().connections_per_core, [1, 1]);
        Self {
            bench,
            switch,
            dial,
            _admin: admin,
            io,
        }
    }

    /// What is known once the answers that have come are booked.
    async fn why(&self) -> Why {
        self.bench.host_rt.sleep(Duration::from_ms(5)).await;
        self.switch.why(TenantId(1)).expect("it has had I/O")
    }

    async fn sleep(&self, ms: u64) {
        self.bench.host_rt.sleep(Duration::from_ms(ms)).await;
    }
}

/// Runs a case for drives of both cores, with several seeds.
fn each_home<F: Future<Output = ()> + 'static>(
    window: Option<u8>,
    test: impl Fn(Case) -> F + Copy + 'static,
) {
    for seed in 0..6 {
        let site = Site::new(Config::calm(seed), 2);
        site.run(move |bench| async move {
            test(Case::new(bench, seed as usize % 2, window).await).await;
        });
    }
}

/// All that the stages add up to is the latency.
fn is_whole(why: &Why) {
    let (all, sum) = (why.stages.all(), why.latency.mean() * why.ios);
    assert!(all.abs_diff(sum) <= all / 20, "{all} and {sum}: {why:?}");
}

/// About as much: networks deliver sooner and later.
fn within(ns: u64, wanted: u64) -> bool {
    (wanted - MS / 10..wanted + MS / 2).contains(&ns)
}

#[test]
fn a_command_alone_is_at_the_device_and_on_its_way_out() {
    each_home(None, |mut case| async move {
        for slba in 0..8 {
            case.io.read(1, slba, 1, BLOCK).await.expect("good");
        }
        let why = case.why().await;
        assert_eq!(why.ios, 8);
        is_whole(&why);
        let Stages {
            receive,
            intake,
            turn,
            device,
            send,
        } = why.stages;
        assert_eq!((receive, turn), (0, 0));
        let (least, each) = (DRIVE.as_ns(), 8);
        assert!((least * each..(least + 9_000) * each).contains(&device));
        // A hand-over, and the turn in which the answer goes.
        assert!(intake < 20_000 * each && send < 20_000 * each, "{why:?}");
        assert!(why.latency.max() < 150_000, "{why:?}");
    });
}

/// A capsule that comes in pieces, be it the command or its data that are cut.
#[test]
fn what_a_host_takes_to_send_is_received_late() {
    each_home(None, |mut case| async move {
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: BLOCK,
        };
        let range = LbaRange { slba: 3, blocks: 1 };
        let write = SubmissionQueueEntry::write(1, range, sgl);
        let data = pattern(1, BLOCK as usize);
        for (cid, cut) in [(500, 20), (501, 72), (502, 2000)] {
            let bytes = case.io.capsule(write.with_cid(cid), &data);
            case.io.send_bytes(&bytes[..cut]).await;
            case.sleep(7).await;
            case.io.send_bytes(&bytes[cut..]).await;
            assert!(case.io.response().await.status().is_success());
        }
        // What comes after it is on time.
        case.io.read(1, 3, 1, BLOCK).await.expect("good");
        let why = case.why().await;
        is_whole(&why);
        assert_eq!(why.ios, 4);
        assert!(within(why.stages.receive, 3 * 7 * MS), "{why:?}");
        assert!(why.stages.all() < 23 * MS, "{why:?}");
    });
}

/// Data requested by R2T, with and without the turn having lapsed meanwhile.
#[test]
fn what_a_host_owes_is_received_late_and_not_the_device() {
    each_home(None, |mut case| async move {
        for ms in [10, 45] {
            let sgl = Sgl::Transport { length: 16 * BLOCK };
            let range = LbaRange {
                slba: 32,
                blocks: 16,
            };
            case.io
                .submit(SubmissionQueueEntry::write(1, range, sgl), &[])
                .await;
            let Incoming::R2t(r2t) = case.io.next().await else {
                panic!("its R2T comes")
            };
            case.sleep(ms).await;
            case.io
                .send_requested(&r2t, &pattern(2, 64 << 10), 9000)
                .await;
            assert!(case.io.response().await.status().is_success());
        }
        let why = case.why().await;
        is_whole(&why);
        assert_eq!(why.ios, 2, "a turn that lapsed is no I/O");
        assert!(within(why.stages.receive, 55 * MS), "{why:?}");
        assert!(why.stages.device < 250_000, "{why:?}");
    });
}

/// Answers that are held to go together wait at most 50 us, and that is reported.
#[test]
fn answers_that_are_held_are_on_their_way_out() {
    each_home(Some(64), |mut case| async move {
        case.dial.set_latency(Duration::from_us(10));
        let read = |slba| {
            let sgl = Sgl::Transport { length: BLOCK };
            SubmissionQueueEntry::read(1, LbaRange { slba, blocks: 1 }, sgl)
        };
        case.io.submit(read(0), &[]).await;
        case.sleep(1).await;
        case.dial.set_latency(Duration::from_ms(3));
        for slba in 1..4 {
            case.io.submit(read(slba), &[]).await;
        }
        case.sleep(1).await;
        case.dial.set_latency(Duration::from_us(10));
        // It is done long before the others, which have come before it.
        case.io.submit(read(4), &[]).await;
        let mut answers = 0;
        while answers < 5 {
            if let Incoming::Response(answer) = case.io.next().await {
                assert_eq!(answer.status(), Status::SUCCESS);
                answers += 1;
            }
        }
        let why = case.why().await;
        is_whole(&why);
        assert_eq!(why.ios, 5);
        // The one that came last, and those before it but for the last, for which all are waiting.
        assert!((50_000..400_000).contains(&why.stages.send), "{why:?}");
    });
}

/// The answer of a latency-sensitive command is not held, whatever else is in flight and however
/// many were asked for.
#[test]
fn an_answer_that_somebody_waits_for_is_not_held() {
    each_home(Some(64), |mut case| async move {
        let mut sensitive = tenant(1, "a", &["*"]);
        sensitive.class = Class::Latency;
        case.bench.target.set_tenant(sensitive).expect("it changes");
        let read = |slba| {
            let sgl = Sgl::Transport { length: BLOCK };
            SubmissionQueueEntry::read(1, LbaRange { slba, blocks: 1 }, sgl)
        };
        for slba in 0..2 {
            let latency = [Duration::from_ms(3), Duration::from_us(10)][slba as usize];
            case.dial.set_latency(latency);
            case.io.submit(read(slba), &[]).await;
            case.sleep(1).await;
        }
        for slba in [1, 0] {
            let Incoming::Data { header, .. } = case.io.next().await else {
                panic!("data")
            };
            assert!(case.io.response().await.status().is_success());
            assert_eq!(header.cccid % 2, slba, "the quick one comes first");
        }
        let why = case.why().await;
        assert_eq!(why.ios, 2);
        assert!(why.stages.send < 45_000, "{why:?}");
    });
}
