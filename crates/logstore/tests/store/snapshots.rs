//! Snapshots, clones and going back: against the model, with garbage collection, and with power
//! cuts.

use flashyard_logstore::format::superblock::Features;
use flashyard_logstore::{Lineage, MOST_VOLUMES, Options, Refused, Stored};
use flashyard_time::Rng;

use crate::device::{CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::world::{FORMS, World, small};

fn small_cache() -> Options {
    Options {
        leaves: 8,
        unproved_blocks: 40,
        ..Options::default()
    }
}

fn write(world: &mut World, lineage: Lineage, chunk: u64, count: u32) {
    let durable = false;
    let ask = Ask::Write {
        lineage,
        chunk,
        count,
        durable,
    };
    world.ask(ask).expect("it is ready");
    assert!(world.settle());
}

#[test]
fn a_snapshot_stays_as_it_was_and_costs_only_what_changes() {
    let mut world = World::new(1, small(), Options::default());
    let volume = world.create(700);
    assert_eq!(world.store.superblock().features, Features::default());
    for chunk in (0..600).step_by(30) {
        write(&mut world, volume, chunk, 30);
    }
    assert!(world.checkpoint());
    let used = world.store.space().used;
    let snapshot = world.snapshot(volume).expect("power");
    assert!(world.store.space().used <= used + 8, "nothing is copied");
    assert_eq!(world.store.superblock().features, Features::SNAPSHOTS);
    write(&mut world, volume, 100, 20);
    let trim = Ask::Trim {
        lineage: volume,
        chunk: 300,
        count: 336,
    };
    world.ask(trim).expect("it is ready");
    assert!(world.settle());
    assert!(world.read_all());
    world.check_all();
    world.counts_are_exact();
    let of = |world: &World, lineage| {
        let one = world.store.volumes().find(|one| one.lineage == lineage);
        one.map(|one| (one.tally.chunks, one.shared))
    };
    assert_eq!(of(&world, volume), Some((20, 280)));
    assert_eq!(of(&world, snapshot), Some((600, 0)));
    assert!(world.delete(snapshot));
    assert!(world.read_all());
    world.check_all();
    world.counts_are_exact();
    assert_eq!(of(&world, volume), Some((300, 0)));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let mut world = World::new(2, small(), Options::default());
    let volume = world.create(100);
    write(&mut world, volume, 0, 10);
    let first = world.snapshot(volume).expect("power");
    let second = world.snapshot(volume).expect("power");
    let clone = world.clone_of(first).expect("power");
    let label = [0; 176];
    let store = &mut world.store;
    assert_eq!(
        store.write(1 << 40, first, 0, &[Stored::block(0)], false),
        Err(Refused::Snapshot)
    );
    assert_eq!(store.trim(1 << 40, first, 0..1), Err(Refused::Snapshot));
    assert_eq!(
        store.delete_volume(1 << 40, volume),
        Err(Refused::HasSnapshots)
    );
    assert_eq!(store.delete_volume(1 << 40, first), Err(Refused::HasClones));
    assert_eq!(
        store.restore(1 << 40, volume, first),
        Err(Refused::NotNewest)
    );
    assert_eq!(store.restore(1 << 40, clone, first), Err(Refused::NoVolume));
    assert_eq!(store.restore(1 << 40, first, first), Err(Refused::Snapshot));
    let twice = [(volume, label), (volume, label)];
    assert_eq!(store.snapshot(1 << 40, 0, &twice), Err(Refused::Changing));
    let of_snapshot = store.snapshot(1 << 40, 0, &[(first, label)]);
    assert_eq!(of_snapshot, Err(Refused::Snapshot));
    let of_volume = store.clone_snapshot(1 << 40, volume, label);
    assert_eq!(of_volume, Err(Refused::NoVolume));
    assert_eq!(
        store.change_volume(1 << 40, first, 101, label),
        Err(Refused::Range)
    );
    let begun = world.begin_snapshots(&[volume]);
    let store = &mut world.store;
    assert_eq!(store.delete_volume(1 << 40, volume), Err(Refused::Changing));
    assert_eq!(
        store.restore(1 << 40, volume, second),
        Err(Refused::Changing)
    );
    assert!(world.settle());
    assert!(world.read_all());
    world.check_all();
    assert_eq!(world.model.snapshots_of(volume), [first, second, begun[0]]);
    for one in [clone, first, second, begun[0], volume] {
        assert!(world.delete(one));
    }
    world.check_all();
    assert_eq!(world.store.volumes().count(), 0);
}

/// The snapshot of a clone is being deleted, and what it inherits is not the clone's yet.
#[test]
fn a_volume_goes_back_only_where_the_catalogue_has_room_for_what_is_given_up() {
    let mut world = World::new(4, small(), Options::default());
    let volume = world.create(100);
    write(&mut world, volume, 0, 10);
    let snapshot = world.snapshot(volume).expect("power");
    write(&mut world, volume, 5, 10);
    let mut last = volume;
    while world.store.volumes().count() < MOST_VOLUMES {
        let request = world.request();
        let made = world.store.create_volume(request, 1, [0; 176]);
        last = made.expect("there is a place");
    }
    assert!(world.settle());
    let refused = world.store.restore(1 << 40, volume, snapshot);
    assert_eq!(refused, Err(Refused::TooManyVolumes));
    assert_eq!(
        world.store.snapshot(1 << 40, 0, &[(volume, [0; 176])]),
        Err(Refused::TooManyVolumes)
    );
    assert!(world.delete(last));
    assert!(world.restore(volume, snapshot));
    assert!(world.cut(Cut::Nothing));
    assert!(world.read_all());
}

#[test]
fn a_snapshot_stays_while_a_clone_stands_on_it_over_one_that_goes() {
    let mut world = World::new(3, small(), Options::default());
    let volume = world.create(100);
    write(&mut world, volume, 0, 30);
    world.snapshot(volume).expect("power");
    write(&mut world, volume, 20, 20);
    let below = world.snapshot(volume).expect("power");
    let clone = world.clone_of(below).expect("power");
    write(&mut world, clone, 30, 1);
    let between = world.snapshot(clone).expect("power");
    let request = world.request();
    let asked = world.store.delete_volume(request, between);
    asked.expect("it has no clones");
    world.model.delete(between);
    assert_eq!(
        world.store.delete_volume(1 << 40, below),
        Err(Refused::HasClones)
    );
    write(&mut world, volume, 0, 30);
    assert!(world.settle());
    assert!(world.read_all());
    world.check_all();
}

/// Snapshots are asked for while hosts have much in flight.
#[test]
fn a_snapshot_has_what_was_answered_before_and_nothing_that_came_after() {
    let mut moved = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, small(), small_cache());
        let volumes = [world.create(500), world.create(200)];
        let load = Load {
            steps: 120,
            depth: 24,
            trims: 3,
            ..Load::MIXED
        };
        for round in 0..8 {
            for volume in volumes {
                if let [oldest, _, _, ..] = world.model.snapshots_of(volume)[..] {
                    assert!(world.delete(oldest));
                }
            }
            world.begin_snapshots(if round % 2 == 0 {
                &volumes
            } else {
                &volumes[..1]
            });
            assert!(load.run(&mut world));
            assert!(world.read_all());
        }
        moved += world.store.stats().moved_blocks;
        assert!(world.cut(CUTS[seed as usize % 4]));
        assert!(world.read_all());
        world.check_all();
    }
    assert!(moved > 500, "{moved} blocks were moved");
}

/// One random step of what can be done with snapshots; false when the power went.
fn step(world: &mut World, chance: &mut Rng) -> bool {
    let all = world.model.volumes();
    let (one, _) = all[chance.below(all.len() as u64) as usize];
    let is_snapshot = world.model.is_snapshot(one);
    match chance.below(6) {
        0 | 1 if !is_snapshot && all.len() < 14 => world.snapshot(one).is_some(),
        2 if is_snapshot && all.len() < 14 => world.clone_of(one).is_some(),
        3 if !is_snapshot => match world.model.snapshots_of(one).last() {
            Some(&newest) => world.restore(one, newest),
            None => true,
        },
        4 | 5 if one != all[0].0 => {
            let request = world.request();
            // What has clones or snapshots stays.
            if world.store.delete_volume(request, one).is_err() {
                return true;
            }
            let through = world.settle();
            if through {
                world.model.delete(one);
            }
            through
        }
        _ => true,
    }
}

#[test]
fn snapshot_algebra_ends_with_the_bytes_of_the_volume() {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let (mut moved, mut most, mut freed) = (0, 0, 0);
    for seed in 0..10 * rounds {
        let mut chance = Rng::new(seed);
        let mut world = World::new(seed, small(), small_cache());
        let volume = world.create(400);
        world.create_formed(60, FORMS[seed as usize % FORMS.len()]);
        let load = Load {
            steps: 30,
            depth: 1 + chance.below(12) as usize,
            most: 1 + chance.below(12),
            ..Load::MIXED
        };
        for turn in 0..60 {
            assert!(load.run(&mut world));
            assert!(step(&mut world, &mut chance));
            most = most.max(world.model.volumes().len());
            if turn % 10 == 9 {
                assert!(world.read_all());
                world.differences_are_exact();
                world.check_all();
                world.counts_are_exact();
            }
        }
        moved += world.store.stats().moved_blocks;
        // Everything but one volume goes, in whatever order it can.
        while world.model.volumes().len() > 1 {
            let all = world.model.volumes();
            let (one, _) = all[chance.below(all.len() as u64) as usize];
            // What its deletion frees is the same before and after what others are giving away.
            let is_snapshot = world.model.is_snapshot(one);
            let early = is_snapshot.then(|| world.freed(one));
            let exact = chance.below(2) == 0;
            assert!(!exact || world.settle() && world.checkpoint());
            assert_eq!(is_snapshot.then(|| world.freed(one)), early, "seed {seed}");
            let before = world.stored_sectors();
            let request = world.request();
            if one != volume && world.store.delete_volume(request, one).is_ok() {
                world.model.delete(one);
                if let (Some(early), true) = (early, exact) {
                    assert!(world.settle() && world.checkpoint());
                    assert_eq!(before - world.stored_sectors(), early, "seed {seed}");
                    freed += early;
                }
                // Others may be asked for while it gives its leaves away.
                assert!(chance.below(2) == 0 || world.settle());
            }
        }
        assert!(world.settle());
        assert!(world.read_all());
        world.check_all();
        world.counts_are_exact();
        let last = world.store.volumes().next().expect("one is left");
        assert_eq!((last.lineage, last.shared), (volume, 0));
    }
    assert!(moved > 500 && most > 8, "{moved} moved, {most} volumes");
    assert!(freed > 1000, "{freed} sectors were freed by snapshots");
}

#[test]
fn a_cut_at_every_write_of_what_is_done_with_snapshots_leaves_what_was_promised() {
    for (seed, cut) in (30..).zip(CUTS) {
        for script in 0..6 {
            let mut write = 0;
            while !cut_script(seed + 10 * script, script, write, cut) {
                write += if cut == Cut::Torn { 1 } else { 2 };
            }
            assert!(write > 5, "script {script} has {write} writes");
        }
    }
}

/// True when the script has fewer writes.
fn cut_script(seed: u64, script: u64, at: u64, cut: Cut) -> bool {
    let mut world = World::new(seed, small(), small_cache());
    let volume = world.create(400);
    let load = Load {
        steps: 25,
        ..Load::MIXED
    };
    assert!(load.run(&mut world));
    let first = world.snapshot(volume).expect("power");
    assert!(load.run(&mut world));
    let second = world.snapshot(volume).expect("power");
    assert!(load.run(&mut world));
    assert!(world.read_all());
    world.cut_at = Some(world.writes + at);
    let through = match script {
        0 => world.snapshot(volume).is_some() && load.run(&mut world),
        1 => world.clone_of(first).is_some() && load.run(&mut world),
        2 => world.restore(volume, second) && load.run(&mut world),
        3 => world.delete(first) && load.run(&mut world),
        4 => world.delete(second) && world.delete(first) && load.run(&mut world),
        _ => {
            let made = world.begin_snapshots(&[volume]);
            load.run(&mut world) && world.delete(second) && world.restore(volume, made[0])
        }
    };
    world.cut_at = None;
    assert!(world.cut(cut));
    world.model_follows_deletes();
    assert!(world.read_all());
    world.check_all();
    world.counts_are_exact();
    through
}

#[test]
fn lives_of_pools_with_snapshots_keep_their_promises() {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let (mut moved, mut cuts) = (0, 0);
    for seed in 0..16 * rounds {
        let mut chance = Rng::new(seed);
        let options = Options {
            leaves: chance.below(40) as usize,
            discard: chance.below(3) == 0,
            at_once: 1 + chance.below(6) as usize,
            unproved_blocks: 20 + chance.below(400),
            ..Options::default()
        };
        let mut world = World::new(seed, small(), options);
        world.create(1 + chance.below(300));
        world.create_formed(1 + chance.below(120), FORMS[seed as usize % FORMS.len()]);
        for _ in 0..4 {
            world.slow_moves = chance.below(2) == 0;
            world.cut_at = (chance.below(3) > 0).then(|| world.writes + chance.below(300));
            for _ in 0..12 {
                let load = Load {
                    steps: chance.below(60),
                    depth: 1 + chance.below(24) as usize,
                    within: 1 + chance.below(400),
                    most: 1 + chance.below(24),
                    ..Load::MIXED
                };
                if !load.run(&mut world) || !step(&mut world, &mut chance) {
                    cuts += 1;
                    break;
                }
            }
            world.cut_at = None;
            moved += world.store.stats().moved_blocks;
            let opened = match chance.below(5) {
                0 => world.kill(),
                kind => world.cut(CUTS[kind as usize - 1]),
            };
            assert!(opened);
            world.model_follows_deletes();
            assert!(world.read_all());
            world.check_all();
            world.counts_are_exact();
        }
    }
    assert!(
        moved > 500 && cuts > 10,
        "{moved} blocks moved, {cuts} cuts"
    );
}

/// A pool in which garbage collection never rests, with a snapshot of its volume.
fn busy(seed: u64) -> (World, Lineage, Lineage, Load) {
    let options = Options {
        at_once: 1 + seed as usize % 3,
        ..small_cache()
    };
    let mut world = World::new(seed, small(), options);
    let volume = world.create(800);
    for chunk in (0..800).step_by(20) {
        write(&mut world, volume, chunk, 20);
    }
    let load = Load {
        steps: 250,
        depth: 20,
        trims: 2,
        flushes: 3,
        most: 12,
        ..Load::MIXED
    };
    assert!(load.run(&mut world));
    let snapshot = world.snapshot(volume).expect("power");
    assert!(load.run(&mut world));
    assert!(world.read_all());
    assert!(world.store.stats().moved_blocks > 100);
    (world, volume, snapshot, load)
}

/// Writes until garbage collection is in the middle of moving.
fn until_moving(world: &mut World, volume: Lineage) {
    let moved = world.store.stats().moved_blocks;
    while world.store.stats().moved_blocks == moved {
        let chunk = world.chance.below(780);
        let ask = Ask::Write {
            lineage: volume,
            chunk,
            count: 12,
            durable: false,
        };
        world.ask(ask).expect("it is ready");
        world.pump();
        while world.model.in_flight() > 8 && world.store.stats().moved_blocks == moved {
            world.end_one();
            world.pump();
        }
    }
}

#[test]
fn a_snapshot_that_is_cut_off_while_blocks_move_brings_nothing_older_back() {
    for seed in 0..14 {
        let (mut world, volume, _, load) = busy(seed);
        until_moving(&mut world, volume);
        world.begin_snapshots(&[volume]);
        world.cut_at = Some(world.writes + 4 + seed);
        load.run(&mut world);
        world.cut_at = None;
        assert!(world.cut(CUTS[seed as usize % 4]));
        world.model_follows_deletes();
        assert!(world.read_all());
        world.check_all();
        world.counts_are_exact();
    }
}

#[test]
fn a_delete_that_is_cut_off_while_blocks_move_loses_nothing() {
    for seed in 0..14 {
        let (mut world, volume, snapshot, load) = busy(seed);
        until_moving(&mut world, volume);
        let request = world.request();
        world
            .store
            .delete_volume(request, snapshot)
            .expect("it can be");
        world.model.delete(snapshot);
        world.cut_at = (seed % 2 == 0).then_some(world.writes + 4 + seed);
        load.run(&mut world);
        world.cut_at = None;
        assert!(world.cut(CUTS[seed as usize % 4]));
        let is_there = |one: &flashyard_logstore::Volume| one.lineage == snapshot && !one.deleting;
        if world.store.volumes().any(is_there) {
            let request = world.request();
            let asked = world.store.delete_volume(request, snapshot);
            asked.expect("it can be");
        }
        assert!(world.settle());
        assert!(world.read_all());
        world.check_all();
        world.counts_are_exact();
    }
}
