//! How connections, queues and devices end while something of them is still waiting.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_time::Duration;

use crate::client::Client;
use crate::world::{BLOCK, Site};

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
