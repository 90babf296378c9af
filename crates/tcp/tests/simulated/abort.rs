//! Abort: what has not been issued is taken back, what has been is not.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Site, memory};
use flashyard_time::Duration;

use crate::devices::Held;

#[test]
fn queued_commands_are_taken_back() {
    // The second connection goes to core 1: once the home of the device, once the other one.
    for (seed, home) in (0..10).flat_map(|seed| [(seed, 1), (seed, 0)]) {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(move |bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            let device = bench.cores[home].add_device(
                device,
                &bench.cores[home].add_switch(Box::new(Fifo::new(Window {
                    ios: 1,
                    bytes: 1 << 30,
                }))),
            );
            bench.attach_handle("a", 1, &device);
            let (mut admin, cntlid) = bench.admin("a", 1).await;
            let mut io = bench.io("a", 1, cntlid).await;
            gate.shut();
            let mut cids = Vec::new();
            for slba in 0..3 {
                let sgl = Sgl::InCapsule {
                    offset: 0,
                    length: BLOCK,
                };
                let write = SubmissionQueueEntry::write(1, LbaRange { slba, blocks: 1 }, sgl);
                cids.push(io.submit(write, &[1; 4096]).await);
            }
            bench.host_rt.sleep(Duration::from_secs(1)).await;
            let aborted = |answer: flashyard_nvme::CompletionQueueEntry| answer.dw0() & 1 == 0;
            let issued = admin
                .command(SubmissionQueueEntry::abort(1, cids[0]), &[])
                .await;
            assert!(issued.status().is_success() && !aborted(issued));
            let queued = admin
                .command(SubmissionQueueEntry::abort(1, cids[1]), &[])
                .await;
            assert!(queued.status().is_success() && aborted(queued));
            let answer = io.response().await;
            assert!(answer.cid() == cids[1] && answer.status().is(Status::ABORT_REQUESTED));
            for (sqid, cid) in [(1, cids[1]), (1, 0x7777), (9, 1), (0, 1)] {
                assert!(!aborted(
                    admin
                        .command(SubmissionQueueEntry::abort(sqid, cid), &[])
                        .await
                ));
            }
            gate.open();
            let mut answered = Vec::new();
            for _ in 0..2 {
                let answer = io.response().await;
                assert!(answer.status().is_success());
                answered.push(answer.cid());
            }
            answered.sort_unstable();
            assert_eq!(answered, [cids[0], cids[2]]);
            assert_eq!(*gate.issued.borrow(), [("write", 0), ("write", 2)]);
        });
    }
}

#[test]
fn an_event_request_can_be_aborted() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        let (mut admin, _) = bench.admin("a", 1).await;
        let request = admin
            .submit(SubmissionQueueEntry::async_event_request(), &[])
            .await;
        let abort = admin
            .submit(SubmissionQueueEntry::abort(0, request), &[])
            .await;
        let (first, second) = (admin.response().await, admin.response().await);
        assert!(first.cid() == request && first.status().is(Status::ABORT_REQUESTED));
        assert!(second.cid() == abort && second.dw0() == 0);
    });
}
