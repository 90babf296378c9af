//! Latency-sensitive commands come to a core: the others there work in small pieces.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_block::Tag;
use flashyard_engine::{Class, Limits, TenantId};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Paced, Site, memory, tenant};
use flashyard_time::{Duration, Time};

/// Commands that come in one piece.
const BATCH: u16 = 120;

/// Commands of each tenant that a drive was given in each turn of its core.
type Turns = Rc<RefCell<BTreeMap<(TenantId, Time), u32>>>;

/// Gives both tenants a drive that takes its time; `a` may be latency-sensitive.
fn attach(bench: &Bench) -> Turns {
    let mut sensitive = tenant(1, "a", &["*"]);
    sensitive.class = Class::Latency;
    bench.target.set_tenant(sensitive).expect("it changes");
    let turns = Turns::default();
    let (rt, given) = (bench.rts[0].clone(), turns.clone());
    let pace = move |tag: Tag, _: &_| {
        let turn = (tag.tenant, rt.turn_time());
        *given.borrow_mut().entry(turn).or_default() += 1;
        rt.sleep(Duration::from_us(100))
    };
    let core = &bench.cores[0];
    let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
    let device = core.add_device(Rc::new(Paced::new(memory(1 << 20), pace)), &switch);
    for name in ["a", "b"] {
        bench.attach_handle(name, 1, &device);
    }
    turns
}

fn read() -> SubmissionQueueEntry {
    let range = LbaRange { slba: 0, blocks: 1 };
    SubmissionQueueEntry::read(1, range, Sgl::Transport { length: BLOCK })
}

/// Sends a batch in one piece and waits for all answers.
async fn batch(io: &mut Client) {
    let capsules: Vec<_> = (0..BATCH)
        .flat_map(|cid| io.capsule(read().with_cid(cid), &[]))
        .collect();
    io.send_bytes(&capsules).await;
    let mut left = BATCH;
    while left > 0 {
        if let Incoming::Response(answer) = io.next().await {
            assert!(answer.status().is_success());
            left -= 1;
        }
    }
}

/// The most commands of `b` that were taken in one turn, while `a` has so many reads in flight.
fn most(seed: u64, depth: u16) -> u32 {
    let site = Site::new(Config::calm(seed), 1);
    site.run(move |bench| async move {
        let turns = attach(&bench);
        let (_admin, mut bulk) = bench.connect("b", 2).await;
        let (_other, mut sensitive) = bench.connect("a", 1).await;
        for cid in 0..depth {
            sensitive.submit_as(cid, read(), &[]).await;
        }
        let going = bench.host_rt.spawn(async move {
            while let Incoming::Data { header, .. } = sensitive.next().await {
                assert!(sensitive.response().await.status().is_success());
                sensitive.submit_as(header.cccid, read(), &[]).await;
            }
        });
        bench.host_rt.sleep(Duration::from_ms(2)).await;
        for _ in 0..20 {
            batch(&mut bulk).await;
        }
        drop(going);
        let turns = turns.borrow();
        let of_bulk = turns.iter().filter(|((id, _), _)| *id == TenantId(2));
        of_bulk.map(|(_, count)| *count).max().expect("it has read")
    })
}

#[test]
fn while_others_are_latency_sensitive_a_batch_is_taken_in_pieces() {
    let piece = Limits::default().throughput_batch;
    for seed in 0..4 {
        let alone = most(seed, 0);
        assert!(alone > 2 * piece, "{alone} at once, with nobody about");
        let beside = most(seed, 1);
        // One when its turn comes, and one at the end of that.
        assert!(beside <= 2 * piece, "{beside} at once");
    }
}
