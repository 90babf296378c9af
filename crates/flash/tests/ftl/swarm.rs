//! A swarm of media that fail in many ways at once, each by its seed: programs, erases, sectors
//! that go bad for good, chunks that wear out; with power cuts and without. Beside each a model
//! says what may be read.

use flashyard_flash::channel::{self, Faults};
use flashyard_flash::ftl::{Choice, Op, Options, Outcome, State};
use flashyard_time::Rng;

use crate::load::{live, recover};
use crate::model::Model;
use crate::owner::Owner;

/// How a partition fared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// Lives until its flash ran out, or all of them.
    pub lives: u64,
    /// It is read-only at the end.
    pub ended: bool,
    /// It had lost too much for its checkpoint to be read, and said so.
    pub refused: bool,
    /// Read-only, it still could make all durable that was acknowledged.
    pub saved: bool,
    /// Sectors that went bad with data in them, and units that cannot be read at the end.
    pub rotted: u64,
    pub lost: u64,
    /// Units that recovery put back to older data, for it could not know whose what it could not
    /// read was.
    pub stale: u64,
}

/// A rate in millionths, often none.
fn rate(chance: &mut Rng, most: u64) -> u32 {
    match chance.below(3) {
        0 => 0,
        1 => chance.below(most / 20 + 1) as u32,
        _ => chance.below(most + 1) as u32,
    }
}

fn device(chance: &mut Rng) -> channel::Options {
    channel::Options {
        buffered: chance.chance(1, 3),
        buffer_protected: chance.chance(1, 2),
        endurance: [0, 12, 30, 60][chance.below(4) as usize],
        faults: Faults {
            bad_chunks: rate(chance, 20_000),
            writes: rate(chance, 20_000),
            resets: rate(chance, 20_000),
            reads: rate(chance, 20_000),
        },
        ..channel::Options::default()
    }
}

fn options(chance: &mut Rng) -> Options {
    Options {
        over_provisioning: [70, 120, 200, 280][chance.below(4) as usize],
        write_slots: [0, 1024][chance.below(2) as usize],
        victim: [Choice::Greedy, Choice::CostBenefit][chance.below(2) as usize],
        collector_reads: 1 + chance.below(4) as u32,
        writes_per_chunk: 1 + chance.below(2) as u32,
        wear_spread: [1, 4, 64][chance.below(3) as usize],
        ..Options::default()
    }
}

/// Lives of one partition, with power cuts between them or without.
pub fn swarm(seed: u64, lives: u64, cuts: bool) -> Fate {
    let mut chance = Rng::new(seed);
    let names = ["dct983", "cnex", "970pro"];
    let name = names[chance.below(names.len() as u64) as usize];
    let lines = 16 + chance.below(16);
    let (device, options) = (device(&mut chance), options(&mut chance));
    let mut owner = Owner::on(name, lines, seed, device, options);
    owner.rot = u64::from(rate(&mut chance, 500));
    let mut model = Model::new(owner.ftl.capacity());
    model.may_end = true;
    let mut fate = Fate::default();
    while fate.lives < lives && !fate.ended {
        fate.lives += 1;
        let commands = chance.below(300);
        live(&mut model, &mut owner, &mut chance, commands, 16);
        owner.ftl.check().expect("the map is sound");
        fate.ended = owner.ftl.state() == State::ReadOnly;
        if cuts && !fate.ended && chance.chance(1, 2) {
            if !recover(&mut model, &mut owner, &mut chance) {
                fate.refused = true;
                break;
            }
            fate.stale += model.stale;
        }
    }
    end(&mut fate, &mut model, &mut owner, &mut chance, cuts);
    fate.rotted = owner.rotted.len() as u64;
    fate
}

/// Everything can be read; and if all could be made durable, a cut takes nothing.
fn end(fate: &mut Fate, model: &mut Model, owner: &mut Owner, chance: &mut Rng, cuts: bool) {
    if fate.refused {
        return;
    }
    model.check_now(owner);
    fate.lost = model.lost;
    let id = owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    let flushed = owner.done.iter().find(|(done, _)| *done == id);
    let (_, outcome) = flushed.expect("a flush is answered");
    fate.saved = *outcome == Outcome::Success;
    owner.done.clear();
    if fate.saved {
        model.all_is_durable();
    }
    if cuts && fate.ended {
        for _ in 0..3 {
            if !recover(model, owner, chance) {
                fate.refused = true;
                return;
            }
            fate.stale += model.stale;
            live(model, owner, chance, 20, 4);
        }
    }
}
