//! Random commands and random ends, for tests and for the example that cuts a hundred thousand
//! times.

use flashyard_flash::ftl::{Op, RecoverError, State};
use flashyard_time::{Duration, Rng};

use crate::model::Model;
use crate::owner::Owner;

/// A random command; small units of a small part of the capacity, so that they meet.
fn random_command(model: &mut Model, owner: &mut Owner, chance: &mut Rng) {
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
        while model.in_flight() >= depth {
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

/// Recovers, perhaps with more cuts before it is done, and checks everything. False when what the
/// medium has lost makes that impossible, and the FTL says so.
pub fn recover(model: &mut Model, owner: &mut Owner, chance: &mut Rng) -> bool {
    owner.cut();
    while chance.chance(1, 3) {
        // Into the reads of recovery, or the checkpoint after it.
        let until = owner.now() + Duration::from_us(chance.below(6000));
        owner.run(until);
        owner.cut();
    }
    owner.recover();
    if owner.ftl.state() == State::Failed(RecoverError::Unreadable) && owner.rot > 0 {
        return false;
    }
    let ready = owner.ftl.state() == State::Ready;
    let may_end = model.may_end && owner.ftl.state() == State::ReadOnly;
    assert!(ready || may_end, "{:?}", owner.ftl.state());
    owner.ftl.check().expect("the map is sound");
    model.check_after_cut(owner);
    true
}
