//! A log of which the medium has changed parts: what it says is never followed blindly.

use flashyard_logstore::format::block_sum;
use flashyard_logstore::format::fields::get_u32;
use flashyard_logstore::{Options, Secret};

use crate::device::{BLOCK, Cut};
use crate::model::Ask;
use crate::world::{World, small};

/// What the checksums of all worlds are keyed with.
const SECRET: Secret = Secret(*b"a secret of test");
const ITEM: usize = 32;

/// Fills some segments since the last cut, in batches of a few chunks.
fn filled(seed: u64) -> World {
    let mut world = World::new(seed, small(), Options::default());
    let lineage = world.create(200);
    assert!(world.checkpoint());
    for step in 0..40 {
        let ask = Ask::Write {
            lineage,
            chunk: step * 4 % 160,
            count: 1 + (step % 4) as u32,
            durable: step % 5 == 0,
        };
        world.ask(ask).expect("it is ready");
        assert!(world.settle());
    }
    world
}

/// The trailers of all footers.
fn trailers(world: &World) -> Vec<u64> {
    let blocks = 0..world.device.blocks();
    let is_trailer = |block: &u64| {
        let bytes = world.device.read(*block, 1).expect("it can be read");
        bytes[8..12] == *b"FYLF"
    };
    blocks.filter(is_trailer).collect()
}

/// Changes a field of a footer that says where something is, and makes its checksums right.
fn change(world: &mut World, trailer: u64) {
    let mut end = world.device.read(trailer, 1).expect("it can be read");
    let items = get_u32(&end, 28) as usize;
    let blocks = (items * ITEM).div_ceil(BLOCK) as u64;
    let body = world.device.read(trailer - blocks, blocks as u32);
    let mut body = body.expect("it can be read");
    let at = ITEM * world.chance.below(items as u64) as usize;
    let is_batch = body[at] == 0x80;
    // A batch: its first block, or its length. A record: its sectors, or its address. More sectors
    // than there are, since fewer may be.
    let (field, len, least) = match (is_batch, world.chance.below(2)) {
        (true, 0) => (4, 4, 0),
        (true, _) => (24, 2, 0),
        (false, 0) => (2, 1, 9),
        (false, _) => (24, 5, 0),
    };
    let field = at + field..at + field + len;
    let before = body[field.clone()].to_vec();
    while body[field.clone()] == before {
        for byte in &mut body[field.clone()] {
            let any = least + world.chance.below(256 - least);
            *byte = [least, 0xff, any][world.chance.below(3) as usize] as u8;
        }
    }
    let sum = block_sum(&body);
    end[40..44].copy_from_slice(&sum.to_le_bytes());
    let sum = SECRET.checksum(&end[8..64]);
    end[..8].copy_from_slice(&sum.to_le_bytes());
    body.extend(end);
    world.device.write(trailer - blocks, &body);
}

#[test]
fn footers_that_say_what_cannot_be_are_not_followed_and_nothing_is_lost() {
    let mut changed = 0;
    for seed in 0..60 {
        let mut world = filled(seed);
        for trailer in trailers(&world) {
            change(&mut world, trailer);
            changed += 1;
        }
        assert!(world.cut(Cut::Everything));
        assert!(world.read_all());
        world.check_all();
    }
    assert!(changed > 100, "{changed}");
}
