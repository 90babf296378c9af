//! Whole lives of a target by seed. `flashyard sim` lives as many as one has time for.

use flashyard_lab::swarm::{Fault, Plan, examine, live};

/// Optimised builds look further.
const SEEDS: u64 = if cfg!(debug_assertions) { 100 } else { 3_000 };

/// Two threads, for the two processors that a machine has at least.
#[test]
fn lives_by_seed_have_no_finding() {
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                for seed in (first..SEEDS).step_by(2) {
                    let life = examine(seed, &Fault::ALL);
                    let plan = Plan::draw(seed, &Fault::ALL);
                    assert_eq!(life.finding, None, "flashyard sim --seed {seed}\n{plan}");
                }
            });
        }
    });
}

/// In all but the last one half of a fused pair waits for memory in vain, and the other one was
/// informed that it never came. In the last the target is killed while a host connects, which then
/// asks for an I/O queue of a controller that is another host's.
#[test]
fn lives_that_had_a_finding_have_none_any_more() {
    for seed in [540, 1_930, 7_839, 11_950, 12_404, 11_348] {
        let life = live(seed, &Fault::ALL);
        assert_eq!(life.finding, None, "flashyard sim --seed {seed}");
    }
}

/// Without trouble hosts are served without a hitch, and the network is all that a seed can vary.
#[test]
fn lives_without_trouble_do_all_that_they_are_to_do() {
    for seed in 0..SEEDS / 20 {
        let life = live(seed, &[]);
        assert_eq!(
            life.finding, None,
            "flashyard sim --seed {seed} --faults none"
        );
        assert!(life.commands > 0 && life.troubles == 0);
    }
}

#[test]
fn a_life_is_lived_the_same_way_on_every_thread() {
    for seed in [3, 5, 8, 13] {
        let lived = || std::thread::spawn(move || live(seed, &Fault::ALL)).join();
        let [one, other] = [lived(), lived()].map(|life| life.expect("panics are findings"));
        assert_eq!(
            (one.digest, one.span),
            (other.digest, other.span),
            "seed {seed}"
        );
    }
}
