//! Everything at once, by seed: hosts that read, write, abort, coalesce, dawdle and vanish, on a
//! device of any core whose policy is replaced meanwhile. Each command of a host that stays is
//! answered once, and nothing is left of the others.

use std::collections::BTreeSet;
use std::rc::Rc;

use flashyard_engine::Switch;
use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::feature::{CompletionCoalescing, FeatureId};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fair, Fifo, Policy, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory};
use flashyard_time::{Duration, Rng};

use crate::devices::{Gate, Held};

/// Optimised builds look further.
const SEEDS: u64 = if cfg!(debug_assertions) { 6 } else { 400 };
const ROUNDS: usize = 4;
const BLOCKS: u32 = 4;

#[test]
fn each_command_is_answered_once_and_nothing_is_left() {
    for seed in 0..SEEDS {
        let site = Site::new(Config::stormy(seed), 3);
        site.run(move |bench| async move {
            let rt = bench.host_rt.clone();
            let home = (seed % 3) as usize;
            let (device, gate) = Held::around(memory(1 << 20));
            let switch = bench.cores[home].add_switch(policy(seed));
            let device = bench.cores[home].add_device(device, &switch);
            for tenant in ["a", "b"] {
                bench.attach_handle(tenant, 1, &device);
            }
            let hosts: Vec<_> = (1..5)
                .map(|number| rt.spawn(host(bench.clone(), seed, number)))
                .collect();
            let weather = rt.spawn(weather(rt.clone(), switch.clone(), gate.clone(), seed));
            for host in hosts {
                host.await;
            }
            drop(weather);
            gate.open();
            let late = rt.now() + Duration::from_secs(60);
            for tenant in ["a", "b"] {
                bench.target.detach(tenant, 1).expect("it is attached");
            }
            let removed = rt
                .timeout_at(late, bench.cores[home].remove_device(&device))
                .await;
            assert!(removed.is_some(), "seed {seed}: permits have been lost");
            while bench.target.snapshot().connections_per_core != [0; 3] {
                assert!(rt.now() < late, "seed {seed}: connections are left");
                rt.sleep(Duration::from_ms(100)).await;
            }
        });
    }
}

fn policy(number: u64) -> Box<dyn Policy> {
    let few = Window {
        ios: 1 + number as u32 % 3,
        bytes: 1 << 30,
    };
    match number % 3 {
        0 => Box::new(Fair::new()),
        1 => Box::new(Fifo::new(Window::UNLIMITED)),
        _ => Box::new(Fifo::new(few)),
    }
}

/// A device that stops now and then, under policies that change.
async fn weather(rt: Rt, switch: Rc<Switch>, gate: Rc<Gate>, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        gate.shut();
        rt.sleep(Duration::from_us(rng.below(3_000))).await;
        switch.set_policy(policy(rng.below(9)));
        gate.open();
        rt.sleep(Duration::from_us(rng.below(3_000))).await;
    }
}

async fn host(bench: Bench, seed: u64, number: u8) {
    let mut rng = Rng::new(seed * 4 + u64::from(number));
    let tenant = ["a", "b"][usize::from(number % 2)];
    let (mut admin, cntlid) = bench.admin(tenant, number).await;
    let coalescing = CompletionCoalescing {
        window: rng.below(129) as u8,
        packed: rng.below(2) == 1,
    };
    let set = SubmissionQueueEntry::set_features(
        FeatureId::COMPLETION_COALESCING.0,
        0,
        coalescing.bits(),
    );
    assert!(admin.command(set, &[]).await.status().is_success());
    let mut io = bench.io(tenant, number, cntlid).await;
    let vanishes = number == 4;
    for round in 0..ROUNDS {
        let mut open = submit_some(&mut io, &mut rng).await;
        bench
            .host_rt
            .sleep(Duration::from_us(rng.below(4_000)))
            .await;
        for cid in open.clone() {
            if rng.below(4) == 0 {
                let abort = SubmissionQueueEntry::abort(1, cid);
                assert!(admin.command(abort, &[]).await.status().is_success());
            }
        }
        if vanishes && round + 1 == ROUNDS {
            return;
        }
        while !open.is_empty() {
            match io.next().await {
                Incoming::Data { .. } => {}
                Incoming::R2t(r2t) => {
                    if rng.below(8) == 0 {
                        bench.host_rt.sleep(Duration::from_ms(30)).await;
                    }
                    let data = vec![7; r2t.r2tl as usize];
                    io.send_requested(&r2t, &data, 9000).await;
                }
                Incoming::Response(answer) => {
                    let more = answer.status().is_success() && coalescing.packed;
                    let more = more.then(|| answer.retired().expect("at most four"));
                    for cid in more.into_iter().flatten().chain([answer.cid()]) {
                        assert!(open.remove(&cid), "seed {seed}: {cid} is not open");
                    }
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }
}

/// Submits commands of all kinds; gives what they are called.
async fn submit_some(io: &mut Client, rng: &mut Rng) -> BTreeSet<u16> {
    let mut open = BTreeSet::new();
    for _ in 0..=rng.below(30) {
        let range = LbaRange {
            slba: rng.below(200),
            blocks: 1,
        };
        let long = LbaRange {
            blocks: BLOCKS,
            ..range
        };
        let (one, some) = (
            Sgl::Transport { length: BLOCK },
            Sgl::Transport {
                length: BLOCK * BLOCKS,
            },
        );
        let here = Sgl::InCapsule {
            offset: 0,
            length: BLOCK,
        };
        let (block, nothing): (&[u8], &[u8]) = (&[3; BLOCK as usize], &[]);
        let commands: Vec<(SubmissionQueueEntry, &[u8])> = match rng.below(8) {
            0..=2 => vec![(SubmissionQueueEntry::write(1, range, here), block)],
            3 | 4 => vec![(SubmissionQueueEntry::write(1, long, some), nothing)],
            5 => vec![(SubmissionQueueEntry::flush(1), nothing)],
            6 => vec![
                (
                    SubmissionQueueEntry::compare(1, range, here).with_fuse(Fuse::First),
                    block,
                ),
                (
                    SubmissionQueueEntry::write(1, range, one).with_fuse(Fuse::Second),
                    nothing,
                ),
            ],
            _ => vec![(SubmissionQueueEntry::read(1, long, some), nothing)],
        };
        for (command, data) in commands {
            open.insert(io.submit(command, data).await);
        }
    }
    open
}
