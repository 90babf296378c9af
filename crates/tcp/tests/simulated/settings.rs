//! What is set while hosts are connected: what controllers tell their hosts, and where the target
//! listens.

use std::net::SocketAddr;

use flashyard_controller::ControllerLimits;
use flashyard_nvme::identify::IdentifyController;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_tcp::listen;
use flashyard_testbed::{BLOCK, Client, NO_DIGESTS, Site, memory, pattern};
use flashyard_time::Duration;

async fn identify(admin: &mut Client) -> IdentifyController {
    let entry = SubmissionQueueEntry::identify(1, 0, 0, 0, Sgl::Transport { length: 4096 });
    let page = admin.fetch(entry).await.expect("a page");
    IdentifyController::decode(&page.try_into().expect("as long as asked for"))
}

/// Asks for as many I/O queues as there can be.
async fn granted(admin: &mut Client) -> u32 {
    let most = SubmissionQueueEntry::set_features(7, 0, 0xfffe_fffe);
    let answer = admin.command(most, &[]).await;
    assert!(answer.status().is_success());
    (answer.dw0() & 0xffff) + 1
}

/// Who connects later gets other limits, which are enforced; who is there keeps its limits.
#[test]
fn limits_hold_for_who_connects_from_now_on() {
    for (in_capsule, transfer) in [(0, 64 << 10), (64 << 10, 128 << 10), (4096, 8192)] {
        let site = Site::new(Config::stormy(1), 2);
        site.run(|bench| async move {
            bench.attach("a", 1, 1, memory(4 << 20));
            let (mut old_admin, mut old) = bench.connect("a", 1).await;
            let before = identify(&mut old_admin).await;
            let limits = ControllerLimits {
                io_queues: 2,
                queue_depth: 16,
                in_capsule_bytes: in_capsule,
                transfer_bytes: transfer,
            };
            bench.target.set_controller_limits(limits);
            assert_eq!(bench.target.controller_limits(), limits);

            let (mut admin, cntlid) = bench.admin("a", 2).await;
            let new = identify(&mut admin).await;
            assert_eq!(new.max_transfer(0), Some(u64::from(transfer)));
            assert_eq!(new.max_in_capsule_data(), u64::from(in_capsule));
            assert_eq!(new.maxcmd, 16);
            assert_eq!(granted(&mut admin).await, 2);
            let mut io = bench.io_with("a", 2, NO_DIGESTS, (cntlid, 2, 16)).await;
            let data = pattern(7, transfer as usize);
            let written = io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await;
            assert!(written.is_success(), "{written:?}");
            let blocks = transfer / BLOCK;
            assert_eq!(io.read(1, 0, blocks, BLOCK).await.expect("as much"), data);
            let more = io
                .read(1, 0, blocks + 1, BLOCK)
                .await
                .expect_err("too much");
            assert!(more.is(Status::INVALID_FIELD));
            if in_capsule > 0 {
                let data = pattern(8, in_capsule as usize);
                let written = io.write_in_capsule(1, 8, &data, BLOCK).await;
                assert!(written.is_success(), "{written:?}");
                let blocks = in_capsule / BLOCK;
                assert_eq!(io.read(1, 8, blocks, BLOCK).await.expect("written"), data);
            }

            let still = identify(&mut old_admin).await;
            assert_eq!(
                (still.mdts, still.ioccsz, still.maxcmd),
                (before.mdts, before.ioccsz, 1024)
            );
            let data = pattern(9, 1 << 20);
            let written = old.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await;
            assert!(written.is_success(), "{written:?}");
            let written = old.write_in_capsule(1, 0, &data[..8192], BLOCK).await;
            assert!(written.is_success(), "{written:?}");
        });
    }
}

/// A queue that is deeper than its controller was made with is refused, whatever newer ones have.
#[test]
fn the_depth_is_that_of_the_controller() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let limits = bench.target.controller_limits();
        bench.target.set_controller_limits(ControllerLimits {
            queue_depth: 16,
            ..limits
        });
        let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 1, 1024)).await;
        io.read(1, 0, 1, BLOCK).await.expect("as it was reported");
    });
}

/// Connections that were accepted stay when the target listens somewhere else.
#[test]
fn a_listener_goes_and_its_connections_stay() {
    let site = Site::new(Config::calm(1), 2);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let other = SocketAddr::new(bench.addr.ip(), 4421);
        let core = &bench.cores[0];
        listen(core, other).expect("a free port");
        assert!(listen(core, other).is_err(), "it is in use");
        core.unlisten(bench.addr);
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        io.read(1, 0, 1, BLOCK).await.expect("the connection stays");
        assert!(bench.host_rt.connect(bench.addr).await.is_err());
        assert!(bench.host_rt.connect(other).await.is_ok());
        listen(core, bench.addr).expect("it is free again");
        assert!(bench.host_rt.connect(bench.addr).await.is_ok());
    });
}
