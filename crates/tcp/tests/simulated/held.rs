//! Which answers may wait for others in a completion window: of plain reads and writes. Somebody
//! waits for the answer to a Flush and to forced unit access, and for a failure, so those go at
//! once.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::feature::{CompletionCoalescing, FeatureId};
use flashyard_nvme::{Sgl, SubmissionQueueEntry as Entry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory};
use flashyard_time::Duration;

use crate::devices::Held;

/// One way. Nothing else takes a time worth the name, but for what is held.
const LATENCY: Duration = Duration::from_us(5);
/// An answer is held for so long.
const HELD: Duration = Duration::from_us(50);

const RANGE: LbaRange = LbaRange { slba: 3, blocks: 1 };
const CAPSULE: Sgl = Sgl::InCapsule {
    offset: 0,
    length: BLOCK,
};
const BY_R2T: Sgl = Sgl::Transport { length: BLOCK };
const BEYOND: LbaRange = LbaRange {
    slba: u64::MAX / 2,
    blocks: 1,
};

/// How long the answer takes, from when the target has all that the command needs.
async fn answered(bench: &Bench, io: &mut Client, entry: Entry) -> Duration {
    let data = [0; BLOCK as usize];
    let in_capsule: &[u8] = match entry.sgl() {
        CAPSULE => &data,
        _ => &[],
    };
    let mut begun = bench.host_rt.now();
    let cid = io.submit(entry, in_capsule).await;
    loop {
        match io.next().await {
            Incoming::R2t(r2t) => {
                begun = bench.host_rt.now();
                io.send_requested(&r2t, &data, data.len()).await;
            }
            Incoming::Data { .. } => {}
            Incoming::Response(answer) => {
                assert_eq!(answer.cid(), cid);
                return bench.host_rt.now().since(begun);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_answer_that_somebody_waits_for_is_held() {
    let table = [
        ("write", Entry::write(1, RANGE, CAPSULE), true),
        ("write by R2T", Entry::write(1, RANGE, BY_R2T), true),
        ("read", Entry::read(1, RANGE, BY_R2T), true),
        (
            "FUA write",
            Entry::write(1, RANGE, CAPSULE).with_fua(),
            false,
        ),
        (
            "FUA write by R2T",
            Entry::write(1, RANGE, BY_R2T).with_fua(),
            false,
        ),
        ("Flush", Entry::flush(1), false),
        ("Write Zeroes", Entry::write_zeroes(1, RANGE, false), false),
        ("Compare", Entry::compare(1, RANGE, CAPSULE), false),
        ("failure", Entry::write(1, BEYOND, CAPSULE), false),
    ];
    for packed in [false, true] {
        let config = Config {
            latency: (LATENCY, LATENCY),
            ..Config::calm(1)
        };
        let site = Site::new(config, 1);
        site.run(move |bench| async move {
            bench.attach_memory("a", 1);
            let (device, gate) = Held::around(memory(1 << 20));
            bench.attach("a", 2, 0, device);
            let (mut admin, cntlid) = bench.admin("a", 1).await;
            let window = CompletionCoalescing { window: 64, packed }.bits();
            let set = Entry::set_features(FeatureId::COMPLETION_COALESCING.0, 0, window);
            assert!(admin.command(set, &[]).await.status().is_success());
            let mut io = bench.io("a", 1, cntlid).await;
            // Others are in flight, so more answers would come.
            gate.shut();
            for _ in 0..8 {
                io.submit(Entry::read(2, RANGE, BY_R2T), &[]).await;
            }
            bench.host_rt.sleep(Duration::from_ms(1)).await;
            for (name, entry, held) in table {
                let took = answered(&bench, &mut io, entry).await;
                assert_eq!(took > HELD, held, "{name}, packed {packed}: {took}");
            }
            gate.open();
        });
    }
}
