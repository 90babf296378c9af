//! A log of which the medium has changed parts: what it says is never followed blindly.

use flashyard_logstore::format::batch::Lane;
use flashyard_logstore::format::block_sum;
use flashyard_logstore::format::fields::{get_u32, get_u64};
use flashyard_logstore::format::superblock::LogEntry;
use flashyard_logstore::{
    Action, Geometry, IoOp, Options, Outcome, ReadOnly, Refused, Secret, State, Stored,
};

use crate::device::{BLOCK, Cut};
use crate::load::Load;
use crate::model::Ask;
use crate::rows::{ROWS, of_rows};
use crate::world::{FORMS, World, small};

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

/// A header on the device.
struct Header {
    block: u64,
    lane: u8,
    sequence: u64,
    watermark: u64,
    /// Whether the footer of its segment repeats it.
    repeated: bool,
}

/// All headers of batches behind a sequence.
fn headers(world: &World, segments: Geometry, behind: u64) -> Vec<Header> {
    let mut all = Vec::new();
    for block in 0..world.device.blocks() {
        let bytes = world.device.read(block, 1).expect("it can be read");
        if bytes[8..12] != *b"FYLB" || get_u64(&bytes, 16) <= behind {
            continue;
        }
        let segment = u64::from(get_u32(&bytes, 28));
        let last = segments.first_block + (segment + 1) * u64::from(segments.segment_blocks) - 1;
        let trailer = world.device.read(last, 1).expect("it can be read");
        let of_it = trailer[8..12] == *b"FYLF" && trailer[20..24] == bytes[32..36];
        all.push(Header {
            block,
            lane: bytes[13],
            sequence: get_u64(&bytes, 16),
            watermark: get_u64(&bytes, 48),
            repeated: of_it,
        });
    }
    all
}

/// Some pools have writes of whole rows.
fn geometry(seed: u64) -> Geometry {
    match seed % 4 {
        3 => of_rows(ROWS[seed as usize % ROWS.len()]),
        _ => small(),
    }
}

/// A pool with volumes of two forms in two lanes, many of whose batches are in the log. Gives the
/// sequence behind which that begins.
fn busy(seed: u64) -> (World, u64) {
    let mut world = World::new(seed, geometry(seed), Options::default());
    let first = world.create(200);
    world.create_formed(60, FORMS[seed as usize % FORMS.len()]);
    let lane = world.store.set_lane(first, Lane::Latency);
    lane.expect("it has no I/O");
    assert!(world.checkpoint());
    let cut = headers(&world, geometry(seed), 0)
        .iter()
        .map(|one| one.sequence)
        .max();
    let load = Load {
        steps: 60,
        depth: 1 + seed as usize % 12,
        most: 1 + seed % 4,
        flushes: 20,
        ..Load::MIXED
    };
    let before = world.store.stats().checkpoints;
    assert!(load.run(&mut world));
    assert_eq!(world.store.stats().checkpoints, before, "one log");
    (world, cut.unwrap_or(0))
}

/// Flips a bit of each header in turn. Where another one says that its batch was durable the pool
/// can be read only, and nothing is written: it is whole when the bit is right again.
#[test]
fn a_header_that_the_medium_has_changed_is_never_the_silent_end_of_a_log_that_was_durable() {
    let (mut alarms, mut footers, mut unproved) = (0, 0, 0);
    for seed in 0..8 {
        let (_, cut) = busy(seed);
        for number in 0.. {
            let (mut world, _) = busy(seed);
            let all = headers(&world, geometry(seed), cut);
            let Some(ill) = all.get(number) else {
                break;
            };
            let bit = 8 * 16 + world.chance.below(8 * 40) as usize;
            world.device.flip(ill.block, bit);
            let mut others = all.iter().filter(|one| one.lane == ill.lane);
            let proved = others.any(|one| one.watermark >= ill.sequence);
            world.model.may_be_read_only = true;
            let opened = world.try_cut(Cut::Everything);
            opened.expect("it can be read at least");
            if ill.repeated || !proved {
                assert_eq!(world.store.state(), State::Ready, "seed {seed}, {number}");
                (footers, unproved) = match ill.repeated {
                    true => (footers + 1, unproved),
                    false => (footers, unproved + 1),
                };
                // What no header says to be durable may be gone, silently.
                assert!(!ill.repeated || world.read_all());
                continue;
            }
            alarms += 1;
            let state = State::ReadOnly(ReadOnly::Log);
            assert_eq!(world.store.state(), state, "seed {seed}, {number}");
            assert_can_only_be_read(&mut world);
            world.device.flip(ill.block, bit);
            world.model.may_be_read_only = false;
            assert!(world.cut(Cut::Nothing));
            assert!(world.read_all());
            world.check_all();
        }
    }
    assert!(
        alarms > 40 && footers > 100 && unproved > 20,
        "{alarms} alarms, {footers} repeated, {unproved} unproved"
    );
}

/// What recovery relies on when it looks for a lane behind the last segment that it sees.
#[test]
fn segments_are_taken_in_the_order_in_which_the_superblock_lists_them() {
    let (mut seen, mut lists) = (0, 0);
    for seed in 0..3 {
        let mut world = World::new(seed, small(), Options::default());
        world.create_formed(300, FORMS[[0, 2, 3][seed as usize % 3]]);
        let load = Load {
            steps: 12,
            ..Load::MIXED
        };
        for _ in 0..25 {
            assert!(load.run(&mut world));
            let is_taken = |entry: &LogEntry| {
                let first = small().first_block;
                let block = u64::from(entry.segment) * u64::from(small().segment_blocks);
                let bytes = world.device.read(first + block, 1);
                let bytes = bytes.expect("it can be read");
                bytes[8..12] == *b"FYLB" && get_u32(&bytes, 32) == entry.generation
            };
            let log = &world.store.superblock().log;
            let taken: Vec<bool> = log.iter().map(is_taken).collect();
            let count = taken.iter().filter(|taken| **taken).count();
            assert!(taken[..count].iter().all(|taken| *taken), "{taken:?}");
            seen += usize::from(count > 1);
        }
        assert!(world.store.stats().checkpoints > 2);
        lists += world.store.stats().commits;
    }
    assert!(seen > 20 && lists > 2, "{seen}, {lists} between cuts");
}

fn assert_can_only_be_read(world: &mut World) {
    let (lineage, _) = world.model.volumes()[0];
    let store = &mut world.store;
    let refused = store.write(1 << 40, lineage, 0, &[Stored::block(0)], false);
    assert_eq!(refused, Err(Refused::ReadOnly));
    assert_eq!(store.checkpoint(1 << 40), Err(Refused::ReadOnly));
    for chunk in 0..200 {
        let request = (1 << 41) + chunk;
        let asked = store.read(request, lineage, chunk, 1);
        asked.expect("it can be read");
        let mut ended = None;
        while let Some(action) = store.poll() {
            match action {
                Action::Submit(tag) => {
                    let io = store.io(tag);
                    assert_eq!(io.op, IoOp::Read);
                    let bytes = world.device.read(io.block, io.blocks);
                    store.completed(tag, Ok(&bytes.expect("it can be read")));
                }
                Action::Done { outcome, .. } => ended = Some(outcome),
                Action::Zeroes { .. } | Action::Forget(_) => {}
            }
        }
        assert_eq!(ended, Some(Outcome::Success), "chunk {chunk}");
    }
}
