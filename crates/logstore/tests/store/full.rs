//! A pool that is full: writes are refused, overwrites go on, trims and deletes make room.

use flashyard_logstore::{Geometry, Lineage, Options};

use crate::device::{CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::rows::{ROWS, of_rows};
use crate::world::{World, small};

/// Writes from end to end until the pool says that it is full; how many chunks were taken.
fn fill(world: &mut World, lineage: Lineage, chunks: u64) -> u64 {
    let before = world.model.full;
    for chunk in (0..chunks).step_by(4) {
        let ask = Ask::Write {
            lineage,
            chunk,
            count: 4,
            durable: false,
        };
        world.ask(ask).expect("it is ready");
        assert!(world.settle());
        if world.model.full > before {
            return chunk;
        }
    }
    panic!("the pool does not become full");
}

#[test]
fn a_full_pool_refuses_new_chunks_takes_overwrites_and_does_not_creep() {
    does_not_creep(small());
}

#[test]
fn a_full_pool_of_rows_does_not_creep() {
    for row in [ROWS[0], ROWS[2], ROWS[4]] {
        let geometry = Geometry {
            segments: 120,
            ..of_rows(row)
        };
        does_not_creep(geometry);
    }
}

fn does_not_creep(geometry: Geometry) {
    let mut world = World::new(5, geometry, Options::default());
    let lineage = world.create(4000);
    let filled = fill(&mut world, lineage, 4000);
    let capacity = world.store.space().capacity;
    assert!(filled > capacity / 2, "{filled} of {capacity}");
    let used = world.store.space().used;
    let (full, victims) = (world.model.full, world.store.stats().victims);
    for _ in 0..6 {
        let load = Load {
            steps: 250,
            trims: 0,
            within: filled,
            most: 4,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        assert!(world.checkpoint());
        assert!(world.store.space().used <= used.max(capacity));
    }
    assert_eq!(world.model.full, full, "overwrites add nothing");
    assert!(world.store.stats().victims > victims + 10);
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn at_the_wall_trims_and_deletes_end_and_writes_work_again_wherever_the_power_goes() {
    for seed in 0..12 {
        let mut world = World::new(seed, small(), Options::default());
        let first = world.create(3000);
        let second = world.create(3000);
        let half = Ask::Write {
            lineage: second,
            chunk: 0,
            count: 32,
            durable: true,
        };
        for step in 0..6 {
            let mut ask = half;
            if let Ask::Write { chunk, .. } = &mut ask {
                *chunk = step * 32;
            }
            world.ask(ask).expect("it is ready");
        }
        assert!(world.settle());
        let filled = fill(&mut world, first, 3000);
        let writes = world.writes;
        world.cut_at = (seed > 0).then_some(writes + 3 * seed);
        let trim = Ask::Trim {
            lineage: first,
            chunk: 0,
            count: 64,
        };
        world.ask(trim).expect("it is ready");
        let mut through = world.settle() && world.delete(second);
        if through {
            assert!(world.writes < writes + 200, "deleting takes bounded writes");
        } else {
            world.cut_at = None;
            assert!(world.cut(CUTS[seed as usize % 4]));
            world.model_follows_deletes();
            assert!(world.read_all());
            if world.model.volumes().len() == 2 {
                through = world.delete(second);
                assert!(through);
            }
        }
        world.cut_at = None;
        assert!(world.checkpoint());
        let full = world.model.full;
        for step in 0..20 {
            let ask = Ask::Write {
                lineage: first,
                chunk: filled + 8 + 4 * step,
                count: 4,
                durable: false,
            };
            world.ask(ask).expect("it is ready");
            assert!(world.settle());
        }
        assert_eq!(world.model.full, full, "there is room again");
        assert!(world.read_all());
        world.check_all();
    }
}

#[test]
fn one_chunk_with_many_writes_trims_and_reads_at_once_is_linearizable_while_it_is_collected() {
    for seed in 0..10 {
        let mut world = World::new(seed, small(), Options::default());
        let lineage = world.create(900);
        fill_some(&mut world, lineage, 500);
        let load = Load {
            steps: 500,
            depth: 32,
            trims: 12,
            reads: 30,
            flushes: 4,
            within: 3,
            most: 2,
        };
        assert!(load.run(&mut world));
        // The segments around it become garbage as well.
        let around = Load {
            steps: 200,
            within: 500,
            ..load
        };
        assert!(around.run(&mut world));
        assert!(load.run(&mut world));
        assert!(world.store.stats().moved_blocks > 50);
        assert!(world.cut(CUTS[seed as usize % 4]));
        assert!(world.read_all());
        world.check_all();
    }
}

fn fill_some(world: &mut World, lineage: Lineage, chunks: u64) {
    for chunk in (0..chunks).step_by(20) {
        let ask = Ask::Write {
            lineage,
            chunk,
            count: 20,
            durable: false,
        };
        world.ask(ask).expect("it is ready");
        assert!(world.settle());
    }
}

#[test]
fn a_move_that_was_overtaken_before_it_was_issued_does_not_come_back() {
    for seed in 0..20 {
        // Batches of the collector stay open while one is in flight.
        let options = Options {
            at_once: 1,
            ..Options::default()
        };
        let mut world = World::new(seed, small(), options);
        let lineage = world.create(1200);
        fill_some(&mut world, lineage, 800);
        world.slow_moves = true;
        let load = Load {
            steps: 250,
            depth: 24,
            trims: 4,
            reads: 5,
            flushes: 12,
            within: 800,
            most: 12,
        };
        world.cut_at = Some(world.writes + 90 + 7 * seed);
        load.run(&mut world);
        world.cut_at = None;
        assert!(world.store.stats().moved_blocks > 50);
        let cut = [Cut::Everything, Cut::Some][seed as usize % 2];
        assert!(world.cut(cut));
        assert!(world.read_all());
        world.check_all();
    }
}

#[test]
fn a_checkpoint_gives_back_many_segments_while_there_is_space() {
    let geometry = Geometry {
        segments: 1000,
        ..small()
    };
    let mut world = World::new(1, geometry, Options::default());
    let lineage = world.create(4000);
    let mut before = world.store.stats();
    for step in 0..1700 {
        let ask = Ask::Write {
            lineage,
            chunk: world.chance.below(4000 - 31),
            count: 32,
            durable: false,
        };
        world.ask(ask).expect("it is ready");
        assert!(world.settle());
        if step == 1200 {
            before = world.store.stats();
            assert!(before.victims > 10, "{before:?}");
        }
    }
    let after = world.store.stats();
    let cuts = after.checkpoints - before.checkpoints;
    let victims = after.victims - before.victims;
    assert!(victims > 10 * cuts, "{victims} in {cuts} checkpoints");
}
