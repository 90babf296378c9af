//! Devices that fail writes, flip bits, and tenants that write what looks like metadata.

use flashyard_logstore::format::batch::{Header, Lane, Place};
use flashyard_logstore::{OpenError, Options, ReadOnly, Secret, State, Store};

use crate::device::{BLOCK, CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::world::{World, small};

#[test]
fn batches_behind_a_failed_one_are_written_again_before_any_is_answered() {
    let (mut errors, mut reissued) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(seed, small(), Options::default());
        world.create(300);
        world.create(200);
        world.write_errors = 40;
        let load = Load {
            depth: 16,
            most: 3,
            steps: 200,
            ..Load::MIXED
        };
        world.cut_at = Some(world.writes + 60 + 4 * seed);
        load.run(&mut world);
        world.cut_at = None;
        world.write_errors = 0;
        errors += world.errors;
        reissued += world.store.stats().reissued;
        assert!(world.cut(CUTS[seed as usize % 4]));
        assert!(world.read_all());
        world.check_all();
    }
    assert!(errors > 50 && reissued > 30, "{errors}, {reissued}");
}

#[test]
fn a_device_that_fails_all_writes_makes_the_pool_read_only_and_loses_nothing() {
    let mut world = World::new(3, small(), Options::default());
    let lineage = world.create(200);
    assert!(Load::MIXED.run(&mut world));
    world.ask(Ask::Flush { lineage }).expect("it is ready");
    assert!(world.settle());
    world.write_errors = 1000;
    world.model.may_be_read_only = true;
    world.model.may_lose = true;
    let load = Load {
        steps: 40,
        reads: 0,
        flushes: 0,
        ..Load::MIXED
    };
    assert!(load.run(&mut world));
    assert_eq!(world.store.state(), State::ReadOnly(ReadOnly::Device));
    world.write_errors = 0;
    world.model.may_lose = false;
    assert!(world.cut(Cut::Nothing));
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn a_flipped_bit_anywhere_is_never_read_as_data() {
    let (mut bad_reads, mut bad_pages, mut lost) = (0, 0, 0);
    for seed in 0..40 {
        let options = Options {
            leaves: 1,
            ..Options::default()
        };
        let mut world = World::new(seed, small(), options);
        world.create(300);
        world.create(300);
        assert!(Load::MIXED.run(&mut world));
        assert!(world.checkpoint());
        world.model.may_lose = true;
        world.referenced.off = true;
        for _ in 0..40 {
            let blocks = world.device.blocks();
            let block = world.chance.below(blocks);
            let bit = world.chance.below(8 * BLOCK as u64) as usize;
            world.device.flip(block, bit);
        }
        if world.try_cut(Cut::Everything).is_ok() {
            assert!(world.read_all());
            let load = Load {
                steps: 100,
                ..Load::MIXED
            };
            assert!(load.run(&mut world));
            assert!(world.read_all());
            let stats = world.store.stats();
            bad_reads += stats.bad_reads;
            bad_pages += stats.bad_pages;
        }
        lost += world.model.media_errors;
    }
    assert!(
        bad_reads > 20 && bad_pages > 0 && lost > 20,
        "{bad_reads} bad reads, {bad_pages} bad pages, {lost} chunks lost"
    );
}

#[test]
fn blocks_that_look_like_headers_are_data_when_a_tenant_writes_them() {
    let mut forged = 0;
    for seed in 0..12 {
        let mut world = World::new(seed, small(), Options::default());
        let lineage = world.create(500);
        // Headers of this pool as they are, of a former one, and of segments that will be used.
        let mut headers = world.headers();
        for segment in 0..64 {
            for block in [0, 1, 5, 9] {
                let header = Header {
                    lane: Lane::User,
                    incarnation: 1,
                    sequence: 1_000_000,
                    place: Place {
                        segment,
                        generation: 1 + segment % 2,
                        block,
                    },
                    blocks: 1,
                    row: 1,
                    before: 0,
                    watermark: 999_999,
                };
                let mut bytes = [0; BLOCK];
                header.encode(Secret::NONE, &[], &mut bytes);
                headers.push(bytes.to_vec());
            }
        }
        for round in 0..4 {
            headers.extend(world.headers());
            for step in 0..60 {
                let place = world.chance.below(headers.len() as u64) as usize;
                world.forge(headers[place].clone());
                let chunk = (step * 7 + round) % 500;
                let ask = Ask::Write {
                    lineage,
                    chunk,
                    count: 1,
                    durable: step % 9 == 0,
                };
                world.ask(ask).expect("it is ready");
                forged += 1;
                world.end_one();
                assert!(world.pump());
            }
            assert!(world.cut(CUTS[(seed + round) as usize % 4]));
            assert!(world.read_all());
            world.check_all();
        }
    }
    assert!(forged > 1000);
}

#[test]
fn any_one_good_superblock_opens_the_pool_and_none_is_refused_with_the_reason() {
    let mut world = World::new(1, small(), Options::default());
    world.create(100);
    assert!(Load::MIXED.run(&mut world));
    for damaged in 0..4 {
        world.damage_superblocks(|copy| copy != damaged);
        assert!(world.cut(Cut::Everything));
        assert!(world.read_all());
        world.check_all();
    }
    world.damage_superblocks(|_| true);
    let refused = world.try_cut(Cut::Everything);
    assert!(
        matches!(refused, Err(OpenError::NoSuperblock(_))),
        "{refused:?}"
    );
    let refused = Store::open([None; 4], 10_000, Options::default());
    assert!(matches!(refused, Err(OpenError::NoSuperblock(_))));
}

#[test]
fn a_pool_that_is_larger_than_its_device_is_refused() {
    let mut world = World::new(1, small(), Options::default());
    assert!(world.settle());
    let bytes = world.store.superblock().encode(0);
    let refused = Store::open([Some(&bytes), None, None, None], 100, Options::default());
    let smaller = matches!(refused.err(), Some(OpenError::Smaller { blocks: 100, .. }));
    assert!(smaller);
}

#[test]
fn a_volume_with_unproved_writes_does_not_change_its_lane() {
    let mut world = World::new(1, small(), Options::default());
    let lineage = world.create(100);
    let ask = Ask::Write {
        lineage,
        chunk: 0,
        count: 1,
        durable: false,
    };
    world.ask(ask).expect("it is ready");
    assert!(world.store.set_lane(lineage, Lane::Latency).is_err());
    assert!(world.settle());
    assert!(world.store.set_lane(lineage, Lane::Latency).is_err());
    world.ask(Ask::Flush { lineage }).expect("it is ready");
    assert!(world.settle());
    assert_eq!(world.store.set_lane(lineage, Lane::Latency), Ok(()));
}
