//! Hosts that have an R2T and send their data so late that their turn at the device lapses: they
//! have another one, and pay for one.

use flashyard_engine::TenantId;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Caps, Fair, Policy, Rates, Share};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, pattern};
use flashyard_time::Duration;

use crate::drive::drive;

const BLOCKS: u32 = 2;
const WRITES: u64 = 40;
/// Writes per second that the tenant may do.
const LIMIT: u64 = 200;

/// Gives `a` a drive at home on core `home`, and its limit there.
fn attach_limited(bench: &Bench, home: usize, policy: Box<dyn Policy>) {
    let (drive, _) = drive(&bench.rts[home], 4, Duration::from_us(100));
    let core = &bench.cores[home];
    let switch = core.add_switch(policy);
    let device = core.add_device(drive, &switch);
    bench.attach_handle("a", 1, &device);
    let limit = Rates {
        write_ios: Some(LIMIT),
        ..Rates::NONE
    };
    let share = Share {
        limit,
        ..Share::default()
    };
    switch.set_share(TenantId(1), &share);
}

/// Does as many writes, whose data are sent when all of them have an R2T.
async fn write_all(io: &mut Client) {
    for n in 0..WRITES {
        let blocks = BLOCKS;
        let slba = n * u64::from(blocks);
        let length = blocks * BLOCK;
        let write =
            SubmissionQueueEntry::write(1, LbaRange { slba, blocks }, Sgl::Transport { length });
        io.submit(write, &[]).await;
    }
    let mut requested = Vec::new();
    for _ in 0..WRITES {
        let Incoming::R2t(r2t) = io.next().await else {
            panic!("an R2T comes")
        };
        requested.push(r2t);
    }
    for r2t in requested {
        let data = pattern(1, r2t.r2tl as usize);
        io.send_requested(&r2t, &data, 9000).await;
    }
    for _ in 0..WRITES {
        assert!(io.response().await.status().is_success());
    }
}

/// Each write counts once, be its tenant's device at home here or on another core.
#[test]
fn a_turn_that_lapses_does_not_count_against_a_limit() {
    let policies: [fn() -> Box<dyn Policy>; 2] =
        [|| Box::new(Fair::new()), || Box::new(Caps::new())];
    for (policy, home) in policies.into_iter().flat_map(|p| [(p, 0), (p, 1)]) {
        let site = Site::new(Config::calm(1), 2);
        site.run(move |bench| async move {
            attach_limited(&bench, home, policy());
            let (_admin, mut io) = bench.connect("a", 1).await;
            let begun = bench.host_rt.now();
            for _ in 0..3 {
                write_all(&mut io).await;
            }
            let took = bench.host_rt.now().since(begun);
            let due = Duration::from_secs(3 * WRITES) / LIMIT;
            assert!(took > due - due / 10, "faster than the limit: {took}");
            assert!(took < due + due / 10, "{took} instead of {due}");
        });
    }
}
