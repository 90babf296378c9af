//! Power cuts at every write of short scripts, of recoveries, and of checkpoints.

use flashyard_logstore::format::batch::Lane;
use flashyard_logstore::{Geometry, Options};

use crate::device::{CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::rows::{ROWS, of_rows};
use crate::world::{FORMS, World, small};

/// Short, and it touches everything: small tables and caches make it do checkpoints and collect.
fn script(seed: u64, geometry: Geometry) -> (World, Load) {
    let options = Options {
        leaves: 8,
        unproved_blocks: 40,
        ..Options::default()
    };
    let mut world = World::new(seed, geometry, options);
    world.create(340);
    world.create_formed(90, FORMS[seed as usize % FORMS.len()]);
    let load = Load {
        steps: 70,
        ..Load::MIXED
    };
    (world, load)
}

/// Cuts a script at its write of that number and recoveries at theirs; false when the script has
/// fewer writes.
fn cut_at((seed, geometry): (u64, Geometry), first: u64, again: &[u64], cut: Cut) -> bool {
    let (mut world, load) = script(seed, geometry);
    world.cut_at = Some(world.writes + first);
    let through = load.run(&mut world);
    for &write in again {
        world.cut_at = Some(world.writes + write);
        if world.cut(cut) && world.read_all() && world.settle() {
            break;
        }
    }
    world.cut_at = None;
    assert!(world.cut(cut));
    assert!(world.read_all());
    world.check_all();
    !through
}

#[test]
fn a_cut_at_every_write_leaves_what_was_promised() {
    for (seed, cut) in (0..).zip(CUTS) {
        // Every write with torn sectors; every third with the milder cuts.
        let step = if cut == Cut::Torn { 1 } else { 3 };
        let mut writes = 0;
        while cut_at((seed, small()), writes, &[], cut) {
            writes += step;
        }
        assert!(writes > 30, "{writes} writes");
    }
}

#[test]
fn recovery_that_is_cut_again_at_any_write_decides_the_same() {
    for (seed, cut) in (10..).zip(CUTS) {
        for first in [7, 31] {
            for second in 0..14 {
                cut_at((seed, small()), first, &[second, second / 2], cut);
            }
        }
    }
}

#[test]
fn a_cut_at_any_write_of_whole_rows_and_of_the_recovery_leaves_what_was_promised() {
    for (seed, row) in (30..).zip(ROWS) {
        let life = (seed, of_rows(row));
        let cut = CUTS[1 + seed as usize % 3];
        let mut writes = seed % 3;
        while cut_at(life, writes, &[], cut) {
            writes += 3;
        }
        assert!(writes > 30, "{writes} writes");
        for second in 0..8 {
            cut_at(life, 19, &[second, second / 2], Cut::Torn);
        }
    }
}

#[test]
fn what_was_read_after_an_opening_never_changes_by_a_later_cut() {
    for seed in 0..16 {
        let (mut world, load) = script(seed, small());
        world.cut_at = Some(world.writes + 25 + seed);
        load.run(&mut world);
        world.cut_at = None;
        // A killed program leaves the cache of its device, which serves what no flush has proved.
        assert!(world.kill());
        assert!(world.read_all());
        let (lineage, _) = world.model.volumes()[1];
        let write = Ask::Write {
            lineage,
            chunk: seed,
            count: 1,
            durable: true,
        };
        world.ask(write).expect("it is ready");
        assert!(world.settle());
        for _ in 0..2 {
            assert!(world.cut(Cut::Nothing));
            assert!(world.read_all());
        }
        world.check_all();
    }
}

#[test]
fn a_cut_at_every_write_of_a_checkpoint_leaves_counts_that_are_right() {
    for (seed, cut) in (20..).zip(CUTS) {
        let mut write = 0;
        loop {
            let (mut world, load) = script(seed, small());
            assert!(load.run(&mut world));
            world.cut_at = Some(world.writes + write);
            let through = world.checkpoint();
            world.cut_at = None;
            assert!(world.cut(cut));
            let report = world.check();
            assert_eq!(report.problems, [], "before anything is applied");
            assert!(world.read_all());
            world.check_all();
            if through {
                break;
            }
            write += 1;
        }
        assert!(write > 5, "a checkpoint has {write} writes");
    }
}

#[test]
fn a_flush_of_one_lane_proves_it_though_others_lose_what_they_have_in_flight() {
    for seed in 0..40 {
        let (mut world, load) = script(seed, small());
        let (first, _) = world.model.volumes()[0];
        let lane = world.store.set_lane(first, Lane::Latency);
        lane.expect("it has no I/O");
        world.cut_at = Some(world.writes + 10 + seed);
        load.run(&mut world);
        world.cut_at = None;
        assert!(world.cut(CUTS[2 + seed as usize % 2]));
        assert!(world.read_all());
        world.check_all();
    }
}
