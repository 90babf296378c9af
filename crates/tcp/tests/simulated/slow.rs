//! Hosts that begin and do not end, and hosts that take what they asked for by the spoonful: how
//! long they are waited for.

use flashyard_engine::Limits;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::tcp::H2CData;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, NO_DIGESTS, Site, pattern};
use flashyard_time::Duration;

/// A write of two blocks with its data.
fn write(io: &Client, cid: u16) -> Vec<u8> {
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: 2 * BLOCK,
    };
    let range = LbaRange { slba: 0, blocks: 2 };
    let entry = SubmissionQueueEntry::write(1, range, sgl).with_cid(cid);
    io.capsule(entry, &[1; 8192])
}

/// Capsules that are never finished hold up nobody, hosts of the same tenant neither, and end their
/// connections.
#[test]
fn half_capsules_hold_up_nobody() {
    let limits = Limits {
        capsule_bytes: 256 << 10,
        tenant_capsule_bytes: 64 << 10,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(3), 1, limits);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let (_other_admin, mut other) = bench.connect("a", 2).await;
        let mut halves = Vec::new();
        for qid in 1..=100 {
            let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await;
            let capsule = write(&io, 7);
            io.send_bytes(&capsule[..1000]).await;
            halves.push(io);
        }
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let begun = bench.host_rt.now();
        let status = other.write_in_capsule(1, 0, &[2; 8192], BLOCK).await;
        assert_eq!(status, Status::SUCCESS);
        let waited = bench.host_rt.now().since(begun);
        assert!(waited < Duration::from_ms(10), "{waited}");
        bench.host_rt.sleep(Duration::from_secs(12)).await;
        assert_eq!(bench.target.snapshot().alive.queues, 3);
        for io in &mut halves {
            io.closed().await;
        }
    });
}

/// How long a host is served that sends `bytes` in pieces of `piece`, one every two seconds.
async fn trickled(bench: &Bench, io: &mut Client, bytes: &[u8], piece: usize) -> Duration {
    let served = || bench.target.snapshot().alive.queues;
    let (begun, before) = (bench.host_rt.now(), served());
    for part in bytes.chunks(piece) {
        io.send_bytes(part).await;
        bench.host_rt.sleep(Duration::from_secs(2)).await;
        if served() < before {
            break;
        }
    }
    bench.host_rt.now().since(begun)
}

#[test]
fn a_pdu_byte_by_byte() {
    let site = Site::new(Config::calm(4), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (mut admin, cntlid) = bench.admin("a", 1).await;
        let mut io = bench.io("a", 1, cntlid).await;
        let capsule = write(&io, 7);
        let served = trickled(&bench, &mut io, &capsule[..40], 1).await;
        assert!(served < Duration::from_secs(15), "half a header: {served}");
        let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 2, 32)).await;
        let served = trickled(&bench, &mut io, &capsule, 100).await;
        assert!(served < Duration::from_secs(15), "its data: {served}");
        let served = trickled(&bench, &mut admin, &capsule[..40], 1).await;
        assert!(served < Duration::from_secs(15), "an Admin queue: {served}");
    });
}

/// A host that always is in the middle of a PDU, each of which comes in time, is served for as long
/// as it likes.
#[test]
fn a_slow_host_is_served() {
    let site = Site::new(Config::calm(5), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let mut rest = Vec::new();
        for cid in 0..20 {
            let capsule = write(&io, cid);
            let (front, back) = capsule.split_at(4000);
            rest.extend_from_slice(front);
            io.send_bytes(&rest).await;
            rest = back.to_vec();
            bench.host_rt.sleep(Duration::from_secs(6)).await;
        }
        io.send_bytes(&rest).await;
        for _ in 0..20 {
            assert!(io.response().await.status().is_success());
        }
        // Data requested by R2T have more time.
        let sgl = Sgl::Transport { length: 16 * BLOCK };
        let range = LbaRange {
            slba: 0,
            blocks: 16,
        };
        io.submit(SubmissionQueueEntry::write(1, range, sgl), &[])
            .await;
        let Incoming::R2t(r2t) = io.next().await else {
            panic!("an R2T")
        };
        let pdu = H2CData {
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            datao: 0,
            datal: 16 * BLOCK,
            last: true,
        };
        let bytes = io.h2c_data(pdu, &pattern(1, 16 << 12));
        for part in bytes.chunks(bytes.len() / 4) {
            io.send_bytes(part).await;
            bench.host_rt.sleep(Duration::from_secs(5)).await;
        }
        assert!(io.response().await.status().is_success());
    });
}

/// A host that takes a few answers now and then does not keep all the others waiting in memory.
#[test]
fn answers_by_the_spoonful() {
    const COMMANDS: u16 = 10_000;
    let config = Config {
        socket_buffer: 16 << 10,
        ..Config::calm(6)
    };
    let site = Site::new(config, 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let rt = bench.host_rt.clone();
        let commands = (0..COMMANDS).flat_map(|cid| {
            let flush = SubmissionQueueEntry::flush(1).with_cid(cid);
            io.capsule(flush, &[])
        });
        let commands: Vec<u8> = commands.collect();
        io.send_bytes(&commands).await;
        let begun = rt.now();
        while bench.target.snapshot().alive.connections > 1 {
            for _ in 0..600 {
                assert!(io.response().await.status().is_success());
            }
            rt.sleep(Duration::from_secs(10)).await;
            let served = rt.now().since(begun);
            assert!(served < Duration::from_secs(60), "{served}");
        }
    });
}
