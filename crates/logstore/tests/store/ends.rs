//! Everything that is asked comes to an end, whatever the load and the device do.

use flashyard_logstore::{Geometry, Options, Outcome, ReadOnly, State};

use crate::device::Cut;
use crate::load::Load;
use crate::model::Ask;
use crate::world::{SUPER_BLOCKS, World, small};

fn write(world: &mut World, chunk: u64, count: u32) {
    let (lineage, _) = world.model.volumes()[0];
    let ask = Ask::Write {
        lineage,
        chunk,
        count,
        durable: false,
    };
    world.ask(ask).expect("it is ready");
}

#[test]
fn overwrites_of_a_few_chunks_are_cut_before_the_log_is_longer_than_a_superblock_lists() {
    let geometry = Geometry {
        segments: 700,
        segment_blocks: 40,
        first_block: 2 * SUPER_BLOCKS,
        row: 1,
    };
    let mut world = World::new(1, geometry, Options::default());
    world.create(8);
    let blocks = u64::from(geometry.segments * geometry.segment_blocks);
    for step in 0..12_000 {
        write(&mut world, step % 8, 1);
        assert!(world.settle());
    }
    let stats = world.store.stats();
    assert!(stats.checkpoints > 10, "{stats:?}");
    assert!(world.cut(Cut::Everything));
    let read = world.store.stats().recovery_blocks;
    assert!(read < blocks / 32, "recovery reads {read} blocks");
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn what_waits_for_a_write_ends_when_the_device_takes_no_write_any_more() {
    let mut world = World::new(2, small(), Options::default());
    let lineage = world.create(100);
    world.write_errors = 1000;
    world.model.may_be_read_only = true;
    world.model.may_lose = true;
    write(&mut world, 7, 1);
    assert!(world.pump());
    // The write is in flight: the read waits for it.
    let read = Ask::Read {
        lineage,
        chunk: 7,
        count: 1,
    };
    world.ask(read).expect("it is ready");
    assert!(world.settle());
    assert_eq!(world.store.state(), State::ReadOnly(ReadOnly::Device));
    assert_eq!(world.model.in_flight(), 0, "the read has ended");
    assert_eq!(world.model.media_errors, 1);
}

#[test]
fn a_check_and_a_scrub_end_when_the_device_takes_no_write_any_more() {
    let options = Options {
        leaves: 1,
        ..Options::default()
    };
    for scrubs in [false, true] {
        let mut world = World::new(3, small(), options);
        world.create(40_000);
        let load = Load {
            steps: 100,
            trims: 0,
            most: 2,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        assert!(world.checkpoint());
        assert!(world.cut(Cut::Everything));
        let request = match scrubs {
            true => {
                let request = world.request();
                world.store.scrub(request).expect("it is ready");
                request
            }
            false => world.begin_check(),
        };
        world.model.may_be_read_only = true;
        world.model.may_lose = true;
        world.write_errors = 1000;
        for chunk in 0..8 {
            write(&mut world, chunk, 1);
        }
        assert!(world.settle());
        assert_eq!(world.store.state(), State::ReadOnly(ReadOnly::Device));
        assert!(!world.store.is_scrubbing());
        let ended = world.done.remove(&request);
        assert!(
            matches!(ended, Some(Outcome::Success | Outcome::ReadOnly)),
            "{ended:?}"
        );
    }
}

#[test]
fn batches_that_fail_while_earlier_ones_wait_to_be_written_again_are_written_again_too() {
    let mut interrupted = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, small(), Options::default());
        world.create(700);
        world.model.may_be_read_only = true;
        let load = Load {
            steps: 400,
            depth: 60,
            trims: 0,
            reads: 0,
            flushes: 2,
            within: 700,
            most: 32,
        };
        world.write_errors = 150;
        assert!(load.run(&mut world));
        interrupted += world.store.stats().reissued;
        assert_eq!(world.model.in_flight(), 0, "seed {seed}");
    }
    assert!(interrupted > 100, "{interrupted}");
}

#[test]
fn a_volume_that_takes_many_checkpoints_to_delete_may_be_collected_when_that_begins() {
    let mut moved = 0;
    for seed in 0..1 {
        let geometry = Geometry {
            segments: 250,
            segment_blocks: 80,
            first_block: 2 * SUPER_BLOCKS,
            row: 1,
        };
        let mut world = World::new(seed, geometry, Options::default());
        let (wide, busy) = (world.create(2600 * 336), world.create(3000));
        for leaf in 0..2600 {
            let ask = Ask::Write {
                lineage: wide,
                chunk: (2599 - leaf) * 336,
                count: 1,
                durable: false,
            };
            world.ask(ask).expect("it is ready");
            let ask = Ask::Write {
                lineage: busy,
                chunk: (leaf * 7) % 2990,
                count: 8,
                durable: false,
            };
            world.ask(ask).expect("it is ready");
            while world.model.in_flight() > 16 {
                world.end_one();
                assert!(world.pump());
            }
        }
        assert!(world.settle());
        let before = world.store.stats().moved_blocks;
        // Until garbage collection is at work.
        let mut chunk = 0;
        while world.store.stats().moved_blocks == before && chunk < 60_000 {
            let ask = Ask::Write {
                lineage: busy,
                chunk: (chunk * 13) % 2990,
                count: 4,
                durable: false,
            };
            world.ask(ask).expect("it is ready");
            world.end_one();
            assert!(world.pump());
            chunk += 1;
        }
        moved += world.store.stats().moved_blocks - before;
        world.begin_delete(wide);
        world.model.delete(wide);
        let mut checks = 0;
        while world.store.volumes().any(|volume| volume.deleting) {
            // No checkpoint begins before the check has ended.
            let request = world.begin_check();
            while !world.done.contains_key(&request) {
                assert!(world.pump());
                world.end_one();
            }
            let report = world.store.take_report();
            assert_eq!(report.expect("it is done").problems, []);
            checks += 1;
        }
        assert!(checks > 3, "{checks}");
        assert!(world.settle());
        assert!(world.read_all());
        world.check_all();
    }
    assert!(moved > 0);
}
