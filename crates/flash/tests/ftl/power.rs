//! Power cuts: at every write of a script, at random instants, and again while recovering.

use flashyard_flash::channel;
use flashyard_flash::ftl::{Op, Options, State};
use flashyard_time::{Duration, Rng};

use crate::model::Model;
use crate::owner::Owner;

/// A random command; small units of a small part of the capacity, so that they meet.
pub fn random_command(model: &mut Model, owner: &mut Owner, chance: &mut Rng) {
    let capacity = owner.ftl.capacity();
    let part = if chance.chance(1, 3) {
        capacity / 16
    } else {
        capacity
    };
    let most = if chance.chance(1, 4) { 40 } else { 4 };
    let count = (1 + chance.below(most)).min(part);
    let first = chance.below(part - count + 1);
    let op = match chance.below(100) {
        0..3 => Op::Flush,
        3..8 => Op::Write { durable: true },
        8..18 => Op::Read,
        18..24 => Op::Deallocate,
        24 => Op::Stop,
        _ => Op::Write { durable: false },
    };
    model.submit(owner, op, first, count as u32);
}

/// Random commands for a while, up to `depth` at once. False when the power had to go.
pub fn live(
    model: &mut Model,
    owner: &mut Owner,
    chance: &mut Rng,
    commands: u64,
    depth: usize,
) -> bool {
    for _ in 0..commands {
        random_command(model, owner, chance);
        let span = Duration::from_us(chance.below(200));
        let until = owner.now() + span;
        if !owner.run(until) {
            return false;
        }
        model.take(owner);
        let mut waits = 0;
        while model.under_way() >= depth {
            waits += 1;
            assert!(waits < 10_000, "commands are not answered");
            let until = owner.now() + Duration::from_us(500);
            if !owner.run(until) {
                return false;
            }
            model.take(owner);
        }
    }
    true
}

/// Recovers, perhaps with more cuts before it is done, and checks everything.
pub fn recover(model: &mut Model, owner: &mut Owner, chance: &mut Rng) {
    owner.cut();
    while chance.chance(1, 3) {
        // Into the reads of recovery, or the checkpoint after it.
        let until = owner.now() + Duration::from_us(chance.below(6000));
        owner.run(until);
        owner.cut();
    }
    owner.recover();
    assert_eq!(owner.ftl.state(), State::Ready);
    owner.ftl.check().expect("the map is sound");
    model.check_after_cut(owner);
}

fn survives_random_cuts(
    name: &str,
    device: channel::Options,
    seed: u64,
    lives: u64,
    commands: u64,
) {
    let mut owner = Owner::on(name, 16, seed, device, Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    let mut chance = Rng::new(seed);
    for _ in 0..lives {
        let commands = chance.below(commands);
        live(&mut model, &mut owner, &mut chance, commands, 16);
        owner.ftl.check().expect("the map is sound");
        recover(&mut model, &mut owner, &mut chance);
    }
}

const LIVES: u64 = if cfg!(debug_assertions) { 20 } else { 300 };

#[test]
fn one_shot_programmes_cut_at_random() {
    survives_random_cuts("dct983", channel::Options::default(), 1, LIVES, 300);
}

#[test]
fn page_pairs_cut_at_random() {
    survives_random_cuts("cnex", channel::Options::default(), 2, LIVES, 400);
    survives_random_cuts("970pro", channel::Options::default(), 3, LIVES, 200);
}

#[test]
fn a_buffering_device_cut_at_random() {
    for (seed, buffer_protected) in [(4, false), (5, true)] {
        let device = channel::Options {
            buffered: true,
            buffer_protected,
            ..channel::Options::default()
        };
        survives_random_cuts("dct983", device, seed, LIVES, 300);
        survives_random_cuts("cnex", device, seed, LIVES, 300);
    }
}

/// A script that flushes, overwrites, deallocates and moves; the power goes instead of one of its writes.
fn script(name: &str, cut_at: Option<u64>) -> u64 {
    let mut owner = Owner::on(name, 16, 9, channel::Options::default(), Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    owner.writes = 0;
    owner.cut_at = cut_at;
    let mut chance = Rng::new(77);
    live(&mut model, &mut owner, &mut chance, 250, 8);
    let written = owner.writes;
    owner.cut();
    owner.recover();
    assert_eq!(owner.ftl.state(), State::Ready);
    model.check_after_cut(&mut owner);
    written
}

#[test]
fn nothing_is_lost_whichever_write_is_cut() {
    for name in ["dct983", "cnex"] {
        let all = script(name, None);
        assert!(all > 50);
        let stride = if cfg!(debug_assertions) { 7 } else { 1 };
        for cut in (0..all).step_by(stride) {
            script(name, Some(cut));
        }
    }
}
