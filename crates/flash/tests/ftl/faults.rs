//! A medium that fails: programs, erases and reads, until the flash runs out.

use flashyard_flash::channel::{self, Fault, Faults};
use flashyard_flash::ftl::{Op, Options, State};
use flashyard_time::Rng;

use crate::load::{live, recover};
use crate::model::Model;
use crate::owner::Owner;
use crate::swarm::swarm;

const SEEDS: u64 = if cfg!(debug_assertions) { 1 } else { 60 };

/// Lives until so many are over or the flash has run out; whether it has.
fn live_with(name: &str, device: channel::Options, seed: u64, lives: u64) -> bool {
    let mut owner = Owner::on(name, 24, seed, device, Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    model.may_end = true;
    let mut chance = Rng::new(seed);
    for _ in 0..lives {
        live(&mut model, &mut owner, &mut chance, 300, 16);
        owner.ftl.check().expect("the map is sound");
        if owner.ftl.state() == State::ReadOnly {
            model.check_now(&mut owner);
            return true;
        }
        if chance.chance(1, 2) {
            recover(&mut model, &mut owner, &mut chance);
        }
    }
    false
}

/// The owner of the device may report commands in another order than the device ended them.
#[test]
fn completions_may_be_late_and_in_any_order() {
    for seed in 0..4 * SEEDS {
        let faults = Faults {
            writes: 5_000,
            reads: 5_000,
            ..Faults::default()
        };
        let device = channel::Options {
            faults: if seed % 2 == 0 {
                Faults::default()
            } else {
                faults
            },
            ..channel::Options::default()
        };
        for name in ["dct983", "cnex"] {
            let mut owner = Owner::on(name, 12, seed, device, Options::default());
            owner.late = 20_000_000;
            let mut model = Model::new(owner.ftl.capacity());
            let mut chance = Rng::new(seed);
            for _ in 0..3 {
                live(&mut model, &mut owner, &mut chance, 400, 64);
                owner.ftl.check().expect("the map is sound");
                assert_eq!(owner.ftl.state(), State::Ready, "{name}, seed {seed}");
                recover(&mut model, &mut owner, &mut chance);
            }
        }
    }
}

#[test]
fn failing_programs_and_reads_lose_nothing() {
    for seed in 0..SEEDS {
        let faults = Faults {
            writes: 5_000,
            reads: 5_000,
            bad_chunks: 5_000,
            ..Faults::default()
        };
        let device = channel::Options {
            faults,
            buffered: seed % 3 == 2,
            ..channel::Options::default()
        };
        for name in ["dct983", "cnex"] {
            live_with(name, device, seed, 8);
        }
    }
}

#[test]
fn flash_that_runs_out_is_read_only_and_keeps_all() {
    for seed in 0..SEEDS {
        let faults = Faults {
            writes: 1_000,
            resets: 30_000,
            reads: 1_000,
            ..Faults::default()
        };
        let device = channel::Options {
            faults,
            ..channel::Options::default()
        };
        assert!(live_with("dct983", device, seed, 400), "seed {seed}");
    }
}

#[test]
fn what_the_medium_has_lost_is_reported_and_nothing_old_comes_back() {
    let device = channel::Options::default();
    let mut owner = Owner::on("dct983", 16, 1, device, Options::default());
    let capacity = owner.ftl.capacity();
    owner.submit(Op::Write { durable: true }, 0, 100, 1000);
    owner.settle();
    owner.submit(Op::Write { durable: true }, 0, 100, 2000);
    owner.settle();
    let address = owner.ftl.locate(50).expect("it was written");
    for _ in 0..200 {
        owner.device.inject(Fault::Read(address));
    }
    assert_eq!(owner.read(50), None);
    // Garbage collection comes by.
    let mut chance = Rng::new(1);
    while owner.ftl.stats().lost_units == 0 {
        let first = 100 + chance.below(capacity - 100);
        owner.submit(Op::Write { durable: false }, first, 1, 1);
        owner.settle();
        assert!(
            owner.ftl.stats().host_units < 50 * capacity,
            "nothing was moved"
        );
    }
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    for _ in 0..2 {
        assert_eq!(owner.read(50), None);
        assert_eq!(owner.read(51), Some(2051));
        owner.cut();
        owner.recover();
    }
    owner.submit(Op::Write { durable: true }, 50, 1, 7);
    owner.settle();
    assert_eq!(owner.read(50), Some(7));
    owner.cut();
    owner.recover();
    assert_eq!(owner.read(50), Some(7));
}

#[test]
fn a_swarm_of_failing_media_loses_nothing_but_what_went_bad() {
    let seeds = if cfg!(debug_assertions) { 3 } else { 60 };
    let (mut ended, mut rotted) = (0, 0);
    for seed in 0..seeds {
        for cuts in [false, true] {
            let fate = swarm(seed, 50, cuts);
            ended += u64::from(fate.ended);
            rotted += fate.rotted;
        }
    }
    assert!(ended > 0 && rotted > 0, "too kind: {ended} {rotted}");
}
