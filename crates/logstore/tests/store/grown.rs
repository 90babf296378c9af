//! A pool takes up a device that has become larger: under load, again and again, and with the power
//! going at every write of it.

use flashyard_logstore::format::superblock::Features;
use flashyard_logstore::{Geometry, OpenError, Options, Store};

use crate::device::{CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::rows::{ROWS, of_rows};
use crate::world::{FORMS, SUPER_BLOCKS, World, small};

/// Blocks by which the segment table needs another page, and is elsewhere then.
const MUCH: u64 = 3000;

fn world(seed: u64, geometry: Geometry) -> (World, Load) {
    let options = Options {
        leaves: 8,
        unproved_blocks: 40,
        ..Options::default()
    };
    let mut world = World::new(seed, geometry, options);
    world.create(340);
    world.create_formed(90, FORMS[seed as usize % FORMS.len()]);
    let load = Load {
        steps: 60,
        ..Load::MIXED
    };
    (world, load)
}

/// Grows the device and begins to take it up while hosts are at work; false when the power went.
fn grow_under_load(world: &mut World, load: &Load, blocks: u64) -> bool {
    world.device.grow(blocks);
    if let Some(growth) = world.growth() {
        let request = world.request();
        world.store.grow(request, growth).expect("it is ready");
    }
    load.run(world)
}

/// Writes from end to end until the pool is full; how many chunks it took.
fn fill(world: &mut World, chunks: u64) -> u64 {
    let lineage = world.create(chunks);
    let before = world.model.full;
    for chunk in (0..chunks).step_by(8) {
        let ask = Ask::Write {
            lineage,
            chunk,
            count: 8,
            durable: false,
        };
        world.ask(ask).expect("it is ready");
        assert!(world.settle());
        if world.model.full > before {
            return chunk;
        }
    }
    chunks
}

#[test]
fn a_full_pool_takes_more_when_its_device_has_grown_and_after_a_cut_still_has_it() {
    let (mut world, _) = world(1, small());
    let full = fill(&mut world, 8000);
    assert!(!world.store.superblock().features.has(Features::GROWN));
    let before = world.store.space().capacity;
    assert_eq!(world.growth(), None, "the device is as it was");
    world.device.grow(MUCH);
    assert!(world.grow());
    assert_eq!(world.growth(), None, "all of it is taken up");
    let after = world.store.space().capacity;
    assert!(after > before + MUCH / 2, "{before} {after}");
    assert!(world.store.superblock().features.has(Features::GROWN));
    let more = fill(&mut world, 8000);
    assert!(more > full / 2, "{full} {more}");
    world.check_all();
    assert!(world.cut(Cut::Nothing));
    assert_eq!(world.store.space().capacity, after);
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn a_cut_at_every_write_while_it_grows_leaves_what_was_promised() {
    for (seed, cut) in (40..).zip(CUTS) {
        let step = if cut == Cut::Torn { 3 } else { 7 };
        let mut grown_by_cut = 0;
        let mut write = 0;
        loop {
            let (mut world, load) = world(seed, small());
            assert!(load.run(&mut world));
            let segments = world.store.superblock().segments;
            world.cut_at = Some(world.writes + write);
            let through = grow_under_load(&mut world, &load, MUCH);
            world.cut_at = None;
            assert!(world.cut(cut));
            // As it was, or as it is to be.
            let now = world.store.superblock().segments;
            grown_by_cut += u64::from(now > segments);
            assert!(now == segments || world.growth().is_none());
            assert!(world.read_all());
            assert!(world.grow() && world.growth().is_none());
            assert!(load.run(&mut world));
            world.check_all();
            if through {
                break;
            }
            write += step;
        }
        assert!(write > 20 && grown_by_cut > 0, "{write} writes");
    }
}

#[test]
fn it_grows_again_and_again_with_cuts_between_and_inside() {
    for (seed, row) in (60..72).zip([1, ROWS[1], 1, ROWS[3]].into_iter().cycle()) {
        let geometry = if row == 1 { small() } else { of_rows(row) };
        let (mut world, load) = world(seed, geometry);
        let first = world.store.space().capacity;
        for turn in 0..6 {
            let blocks = [90, 1, 400, MUCH, 777, 2 * MUCH][turn];
            if turn % 2 == 1 {
                world.cut_at = Some(world.writes + world.chance.below(60));
            }
            grow_under_load(&mut world, &load, blocks);
            world.cut_at = None;
            assert!(world.cut(CUTS[(seed as usize + turn) % 4]));
            assert!(world.grow());
            assert!(world.read_all());
            world.check_all();
        }
        let capacity = world.store.space().capacity;
        assert!(capacity > first + 3 * MUCH / 2, "{first} {capacity}");
        let unused = world.store.superblock().unused();
        assert!(
            (1..=2).contains(&unused.len()),
            "the last superblocks are where they were"
        );
    }
}

#[test]
fn a_little_more_that_would_hold_nothing_is_not_taken_up() {
    let (mut world, _) = world(2, small());
    world.device.grow(u64::from(small().segment_blocks));
    assert_eq!(world.growth(), None);
}

#[test]
fn a_device_that_is_smaller_is_refused_and_says_by_how_much() {
    let (mut world, _) = world(3, small());
    world.device.grow(MUCH);
    assert!(world.grow());
    let superblock = world.store.superblock().clone();
    let geometry = small();
    let end = u64::from(superblock.segments) * u64::from(geometry.segment_blocks);
    let wanted = geometry.first_block + end;
    let bytes = superblock.encode(0);
    for blocks in [wanted - 1, 4 * SUPER_BLOCKS] {
        let opened = Store::open([Some(&bytes), None, None, None], blocks, world.options);
        assert_eq!(opened.err(), Some(OpenError::Smaller { wanted, blocks }));
    }
    let message = OpenError::Smaller { wanted, blocks: 2 }.to_string();
    assert!(message.contains("the device has 8192"), "{message}");
    assert!(Store::open([Some(&bytes), None, None, None], wanted, world.options).is_ok());
}
