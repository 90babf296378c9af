//! Without faults: what is written is read, before and after an orderly end.

use flashyard_logstore::Options;
use flashyard_time::Rng;

use crate::device::Cut;
use crate::load::Load;
use crate::world::{World, small};

#[test]
fn what_is_written_is_read_and_the_check_finds_nothing() {
    for seed in 0..6 {
        let mut world = World::new(seed, small(), Options::default());
        world.create(400);
        world.create(100_000);
        let load = Load {
            within: 200,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        assert!(world.read_all_within(600));
        world.check_all();
    }
}

#[test]
fn after_a_cut_everything_is_as_the_model_allows_and_goes_on() {
    let mut discards = 0;
    for seed in 0..24 {
        let options = Options {
            discard: seed % 3 == 0,
            ..Options::default()
        };
        let mut world = World::new(seed, small(), options);
        world.create(300);
        world.create(500);
        let cut = crate::device::CUTS[seed as usize % 4];
        for _ in 0..3 {
            let mut chance = Rng::new(seed);
            world.cut_at = Some(world.writes + chance.below(120));
            Load::MIXED.run(&mut world);
            world.cut_at = None;
            assert!(world.cut(cut));
            assert!(world.read_all());
            world.check_all();
        }
        assert_eq!(cut == Cut::Everything, world.device.lost_sectors == 0);
        discards += world.discards;
    }
    assert!(discards > 10, "{discards} segments were discarded");
}

#[test]
fn an_idle_pool_writes_nothing_and_the_same_seed_does_the_same() {
    let run = || {
        let mut world = World::new(4, small(), Options::default());
        world.create(600);
        let load = Load {
            steps: 900,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        let writes = world.writes;
        for _ in 0..10 {
            assert!(world.is_idle());
        }
        // What is not proved is proved when the driver says so, and then nothing is left to prove.
        world.store.prove();
        assert!(world.settle());
        world.store.prove();
        assert!(world.is_idle());
        assert_eq!(world.writes, writes);
        (writes, world.store.stats())
    };
    assert_eq!(run(), run());
}
