//! Data in capsules for which there is no memory: their tenant has all that it may have, at a
//! device that does not answer.

use std::rc::Rc;

use flashyard_engine::Limits;
use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Site, memory, pattern};
use flashyard_time::Duration;

use crate::devices::{Gate, Held};

/// What a tenant may have, and how many writes of a block that is.
const OWN: u64 = 4;

fn site(seed: u64) -> Site {
    let limits = Limits {
        tenant_capsule_bytes: OWN as usize * BLOCK as usize,
        ..Limits::default()
    };
    Site::with_limits(Config::calm(seed), 1, limits)
}

fn write(nsid: u32, slba: u64) -> SubmissionQueueEntry {
    SubmissionQueueEntry::write(nsid, LbaRange { slba, blocks: 1 }, capsule())
}

fn capsule() -> Sgl {
    Sgl::InCapsule {
        offset: 0,
        length: BLOCK,
    }
}

/// Tenant `a` has a namespace 1 in memory, and a namespace 2 on a device that is stuck with all
/// that its capsules may hold.
async fn stuck(bench: &Bench) -> (Rc<Gate>, [Client; 2]) {
    bench.attach_memory("a", 1);
    let (device, gate) = Held::around(memory(1 << 20));
    bench.attach("a", 2, 0, device);
    let (admin, mut io) = bench.connect("a", 1).await;
    gate.shut();
    for slba in 0..OWN {
        io.submit(write(2, slba), &pattern(slba, BLOCK as usize))
            .await;
    }
    bench.host_rt.sleep(Duration::from_ms(10)).await;
    assert_eq!(gate.issued.borrow().len(), OWN as usize);
    (gate, [admin, io])
}

/// Such a command is answered to come again before its host loses patience; what comes after it on
/// its connection is served.
#[test]
fn a_command_without_memory_is_told_to_come_again() {
    for seed in 0..3 {
        site(seed).run(|bench| async move {
            let rt = bench.host_rt.clone();
            let (gate, stuck) = stuck(&bench).await;
            let (_admin, mut io) = bench.connect("a", 2).await;
            let data = pattern(9, BLOCK as usize);
            let begun = rt.now();
            io.submit(write(1, 7), &data).await;
            let answer = io.response().await;
            assert!(answer.status().is(Status::COMMAND_INTERRUPTED));
            assert!(!answer.status().dnr());
            let waited = rt.now().since(begun);
            assert!((20..22).contains(&(waited.as_ms() / 1000)), "{waited}");
            // Of a pair, the second half only; the first one does not wait for it any more.
            let range = LbaRange { slba: 8, blocks: 1 };
            let compare = SubmissionQueueEntry::compare(1, range, Sgl::Transport { length: BLOCK });
            let first = io.submit(compare.with_fuse(Fuse::First), &[]).await;
            let second = io.submit(write(1, 8).with_fuse(Fuse::Second), &data).await;
            let answers = [io.response().await, io.response().await];
            assert_eq!(answers.map(|answer| answer.cid()), [second, first]);
            assert!(answers[0].status().is(Status::COMMAND_INTERRUPTED));
            assert!(!answers[1].status().is_success());
            gate.open();
            assert_eq!(
                io.read(1, 7, 2, BLOCK).await,
                Ok(vec![0; 2 * BLOCK as usize])
            );
            io.submit(write(1, 7), &data).await;
            assert!(io.response().await.status().is_success());
            drop(stuck);
        });
    }
}

/// A host that leaves meanwhile has left: it can come back, whatever becomes of the device.
#[test]
fn a_host_that_waits_for_memory_can_leave_and_come_back() {
    for seed in 0..3 {
        site(seed).run(|bench| async move {
            let rt = bench.host_rt.clone();
            let (gate, _stuck) = stuck(&bench).await;
            let (admin, mut io) = bench.connect("a", 2).await;
            io.submit(write(1, 7), &pattern(9, BLOCK as usize)).await;
            rt.sleep(Duration::from_ms(10)).await;
            drop((admin, io));
            let again = rt.timeout(Duration::from_secs(2), bench.connect("a", 2));
            let (_admin, mut io) = again.await.expect("nothing of it is left");
            assert!(io.read(1, 7, 1, BLOCK).await.is_ok());
            gate.open();
        });
    }
}
