//! Volumes with long chunks and with codecs: data of any number of sectors, plain ones and zeroes
//! among them.

use flashyard_logstore::{Form, LEAF_CHUNKS, Lineage, Options, Refused, Stored};

use crate::device::{BLOCK, CUTS, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::world::{FORMS, World, small};

const PACKED: Form = FORMS[3];

#[test]
fn chunks_of_every_form_are_read_as_they_were_written_and_counted_right() {
    for seed in 0..10 {
        let form = FORMS[seed as usize % FORMS.len()];
        let mut world = World::new(seed, small(), Options::default());
        let lineage = world.create_formed(300, form);
        world.create(300);
        let load = Load {
            steps: 500,
            within: 90,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        assert!(world.read_all_within(120));
        world.check_all();
        let volume = world
            .store
            .volumes()
            .find(|volume| volume.lineage == lineage);
        let tally = volume.expect("it was made").tally;
        let whole = tally.chunks * u64::from(form.chunk_sectors());
        assert_eq!(form.codec != 0, tally.sectors < whole, "{tally:?}");
        assert_eq!(form.codec != 0, tally.packed > 0, "{tally:?}");
        assert!(world.cut(CUTS[seed as usize % 4]));
        let volume = world
            .store
            .volumes()
            .find(|volume| volume.lineage == lineage);
        assert_eq!(volume.map(|volume| volume.form), Some(form));
    }
}

#[test]
fn a_pool_says_what_its_volumes_need_when_the_first_of_them_is_made_and_not_before() {
    use flashyard_logstore::format::superblock::Features;
    for form in FORMS {
        let mut world = World::new(1, small(), Options::default());
        world.create(10);
        let before = world.store.superblock();
        assert_eq!(before.features, Features::default());
        assert_eq!(before.encode(0)[67], 1, "an older program opens it");
        world.create_formed(10, form);
        assert_eq!(world.store.superblock().features, Features::of(form));
        assert!(world.cut(Cut::Nothing));
        assert_eq!(world.store.superblock().features, Features::of(form));
    }
}

#[test]
fn garbage_of_packed_data_is_collected_and_a_full_pool_does_not_creep() {
    for seed in 0..4 {
        let mut world = World::new(seed, small(), Options::default());
        let form = FORMS[[1, 3, 4, 2][seed as usize]];
        let lineage = world.create_formed(4000, form);
        let plain = world.create(400);
        let filled = fill(&mut world, lineage);
        let capacity = world.store.space().capacity;
        let load = Load {
            steps: 300,
            trims: 0,
            within: filled,
            most: 4,
            ..Load::MIXED
        };
        for _ in 0..6 {
            assert!(load.run(&mut world));
            assert!(world.checkpoint());
            let space = world.store.space();
            assert!(space.used <= capacity, "{space:?}");
        }
        assert!(world.store.stats().victims > 10);
        // A trim makes room for somebody else.
        for chunk in (0..filled).step_by(LEAF_CHUNKS as usize) {
            let count = LEAF_CHUNKS.min(filled - chunk);
            let ask = Ask::Trim {
                lineage,
                chunk,
                count,
            };
            world.ask(ask).expect("it is ready");
        }
        assert!(world.settle() && world.checkpoint());
        let full = world.model.full;
        for chunk in (0..400).step_by(20) {
            let ask = Ask::Write {
                lineage: plain,
                chunk,
                count: 20,
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

/// Writes from end to end until the pool is full.
fn fill(world: &mut World, lineage: Lineage) -> u64 {
    let before = world.model.full;
    for chunk in (0..4000).step_by(4) {
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
    4000
}

#[test]
fn a_flipped_bit_of_packed_data_is_an_error_of_its_chunk_and_of_no_other() {
    let mut lost = 0;
    for seed in 0..30 {
        let mut world = World::new(seed, small(), Options::default());
        let lineage = world.create_formed(60, PACKED);
        let load = Load {
            steps: 80,
            trims: 0,
            ..Load::MIXED
        };
        assert!(load.run(&mut world));
        assert!(world.checkpoint());
        world.model.may_lose = true;
        world.referenced.off = true;
        for _ in 0..30 {
            let blocks = world.device.blocks();
            let block = world.chance.below(blocks);
            world
                .device
                .flip(block, (seed as usize * 7919) % (8 * BLOCK));
        }
        for chunk in 0..60 {
            let ask = Ask::Read {
                lineage,
                chunk,
                count: 1,
            };
            world.ask(ask).expect("it is there");
            assert!(world.settle());
        }
        lost += world.model.media_errors;
    }
    assert!(lost > 5, "{lost} chunks were lost");
}

#[test]
fn data_that_are_not_of_the_volumes_form_are_refused() {
    let mut world = World::new(1, small(), Options::default());
    let [plain, packed] = [FORMS[0], PACKED].map(|form| world.create_formed(20, form));
    let stored = |sectors, codec| Stored {
        sectors,
        codec,
        crc: 0,
    };
    for (lineage, one) in [
        (plain, stored(32, 0)),
        (plain, stored(7, 0)),
        (plain, stored(8, 1)),
        (packed, stored(8, 0)),
        (packed, stored(32, 1)),
        (packed, stored(9, 3)),
    ] {
        let refused = world.store.write(90, lineage, 0, &[one], false);
        assert_eq!(refused, Err(Refused::Form), "{one:?}");
    }
    let ten = [stored(32, 0); 10];
    let refused = world.store.write(90, packed, 0, &ten, false);
    assert_eq!(refused, Err(Refused::Range));
    let odd = Form {
        chunk_shift: 13,
        ..PACKED
    };
    let refused = world.store.create_formed(90, 10, odd, [0; 176]);
    assert_eq!(refused, Err(Refused::Form));
}

#[test]
fn zeroes_that_are_written_over_and_over_again_do_not_keep_a_pool_from_opening() {
    let mut world = World::new(1, small(), Options::default());
    let lineage = world.create_formed(20, PACKED);
    for round in 0..3000 {
        let zeroes = [Stored::ZERO; 9];
        let asked = world
            .store
            .write(1_000_000 + round, lineage, round % 10, &zeroes, false);
        asked.expect("it is ready");
        if round % 20 == 0 {
            assert!(world.settle());
        }
    }
    assert!(world.settle());
    assert!(world.cut(Cut::Everything));
    assert!(world.read_all());
    world.check_all();
}
