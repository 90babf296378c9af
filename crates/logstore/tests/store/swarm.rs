//! Whole lives of a pool by seed: volumes that come and go, lanes, failed writes, slow moves, kills
//! and power cuts, one after another. `FLASHYARD_ROUNDS=100` makes it a search.

use flashyard_logstore::format::batch::Lane;
use flashyard_logstore::{Form, Geometry, Options, State};
use flashyard_time::Rng;

use crate::device::CUTS;
use crate::load::Load;
use crate::rows::{ROWS, of_rows};
use crate::world::{FORMS, World, small};

#[test]
fn lives_of_pools_keep_their_promises() {
    // 181: writes waited for a cut that commits of the list of segments never let begin.
    lives((0..16 * rounds()).chain([181]), |_| small());
}

#[test]
fn lives_of_pools_whose_writes_are_of_whole_rows_keep_them_too() {
    lives(1000..1000 + 16 * rounds(), |seed| {
        of_rows(ROWS[seed as usize % ROWS.len()])
    });
}

fn rounds() -> u64 {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

fn lives(seeds: impl Iterator<Item = u64>, geometry: impl Fn(u64) -> Geometry) {
    let (mut errors, mut deletes, mut moved) = (0, 0, 0);
    for seed in seeds {
        let mut chance = Rng::new(seed);
        let options = Options {
            leaves: chance.below(40) as usize,
            discard: chance.below(3) == 0,
            at_once: 1 + chance.below(6) as usize,
            unproved_blocks: 20 + chance.below(400),
            ..Options::default()
        };
        let mut world = World::new(seed, geometry(seed), options);
        world.create(1 + chance.below(500));
        let (chunks, form) = (1 + chance.below(200), form(&mut chance));
        world.create_formed(chunks, form);
        for _ in 0..4 {
            live(&mut world, &mut chance, &mut deletes);
            moved += world.store.stats().moved_blocks;
            world.cut_at = None;
            world.write_errors = 0;
            let opened = match chance.below(5) {
                0 => world.kill(),
                kind => world.cut(CUTS[kind as usize - 1]),
            };
            assert!(opened);
            world.model_follows_deletes();
            assert!(world.read_all());
            world.check_all();
        }
        errors += world.errors;
    }
    assert!(
        errors > 10 && deletes > 3 && moved > 500,
        "{errors} failed writes, {deletes} deletes, {moved} blocks moved"
    );
}

fn live(world: &mut World, chance: &mut Rng, deletes: &mut u64) {
    world.slow_moves = chance.below(2) == 0;
    world.write_errors = [0, 0, 20][chance.below(3) as usize];
    let volumes = world.model.volumes();
    let (first, _) = volumes[chance.below(volumes.len() as u64) as usize];
    // Refused when it has writes that are not durable.
    let lane = [Lane::Latency, Lane::User][chance.below(2) as usize];
    let _ = world.store.set_lane(first, lane);
    let load = Load {
        steps: 100 + chance.below(200),
        depth: 1 + chance.below(32) as usize,
        trims: chance.below(20),
        reads: chance.below(30),
        flushes: chance.below(15),
        within: 1 + chance.below(600),
        most: 1 + chance.below(32),
    };
    if chance.below(3) > 0 {
        world.cut_at = Some(world.writes + chance.below(200));
    }
    world.model.may_be_read_only = true;
    if !load.run(world) || is_read_only(world) {
        return;
    }
    if volumes.len() > 1 && chance.below(2) == 0 {
        *deletes += 1;
        if !world.delete(first) || is_read_only(world) {
            return;
        }
        world.cut_at = None;
        world.write_errors = 0;
        let (chunks, form) = (1 + chance.below(200), form(chance));
        world.create_formed(chunks, form);
    }
}

fn form(chance: &mut Rng) -> Form {
    FORMS[chance.below(FORMS.len() as u64) as usize]
}

fn is_read_only(world: &World) -> bool {
    matches!(world.store.state(), State::ReadOnly(_))
}
