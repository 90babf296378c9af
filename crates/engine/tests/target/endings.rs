//! How connections, queues and devices end while something of them is still waiting.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_time::Duration;

use crate::client::{Client, Identity};
use crate::devices::Held;
use crate::world::{BLOCK, NO_DIGESTS, Site, memory, subnqn};

const WHOLE: LbaRange = LbaRange {
    slba: 0,
    blocks: (1 << 20) / BLOCK,
};

/// Many long reads in one segment, so that the target has received commands that it does not take yet.
async fn submit_reads(io: &mut Client, count: u16) {
    let sgl = Sgl::Transport { length: 1 << 20 };
    let read = SubmissionQueueEntry::read(1, WHOLE, sgl);
    let capsules = (0..count).flat_map(|n| io.capsule(read.with_cid(1000 + n), &[]));
    let bytes: Vec<u8> = capsules.collect();
    io.send_bytes(&bytes).await;
}

/// The core goes on when a host leaves whose output is full and whose last commands have not been looked at.
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

/// A queue that has gone with writes under way is a fence, although its association has not ended yet: the host may be
/// repeating them elsewhere.
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
            let alive = admin
                .command(SubmissionQueueEntry::keep_alive(), &[])
                .await;
            assert!(alive.status().is_success());
        });
    }
}
