//! Write amplification of the log in steady state: blocks written to the device for each block of a
//! host, by how full the pool is and how skewed the writes are. `cargo bench -p flashyard-logstore
//! --bench amplification` prints the table; section "Write amplification of mapped volumes" of
//! docs/performance.md has it beside the figures of the simulation that the design was chosen by.

use std::collections::{BTreeMap, VecDeque};

use flashyard_logstore::format::chunk_sum;
use flashyard_logstore::format::rows::LABEL;
use flashyard_logstore::{
    Action, Geometry, IoOp, Lineage, Options, Outcome, Part, Secret, Stats, Store, Stored, Tag,
};
use flashyard_time::Rng;

const BLOCK: usize = 4096;
const GEOMETRY: Geometry = Geometry {
    row: 1,
    segments: 1024,
    segment_blocks: 256,
    first_block: 8,
};
/// Writes of one chunk in flight; half of them come in each turn.
const DEPTH: u64 = 256;

/// A device that keeps what the store itself writes; data of hosts are zeroes.
#[derive(Default)]
struct Device {
    blocks: BTreeMap<u64, Box<[u8]>>,
    queue: VecDeque<Tag>,
    in_flight: u64,
    full: bool,
}

impl Device {
    /// Until hosts may ask more.
    fn run(&mut self, store: &mut Store, depth: u64) {
        loop {
            while let Some(action) = store.poll() {
                match action {
                    Action::Submit(tag) => self.queue.push_back(tag),
                    Action::Done { outcome, .. } => {
                        self.in_flight -= 1;
                        self.full |= outcome == Outcome::NoSpace;
                    }
                    Action::Forget(_) | Action::Zeroes { .. } => {}
                }
            }
            if self.in_flight < depth && depth > 0 {
                return;
            }
            let Some(tag) = self.queue.pop_front() else {
                assert!(
                    depth == 0,
                    "it stands still: {:?} {:?} {:?}",
                    store.state(),
                    store.space(),
                    store.stats()
                );
                return;
            };
            self.end(store, tag);
        }
    }

    fn end(&mut self, store: &mut Store, tag: Tag) {
        let io = store.io(tag);
        let (op, block, blocks) = (io.op, io.block, io.blocks);
        let mut bytes = Vec::new();
        match op {
            IoOp::Write => {
                let mut at = block;
                for part in &io.parts {
                    let count = match *part {
                        Part::Own => (io.own.len() / BLOCK) as u32,
                        Part::Host { sectors, .. }
                        | Part::Copy { sectors, .. }
                        | Part::Gap(sectors) => sectors / 8,
                    };
                    for place in 0..count as usize {
                        if *part == Part::Own {
                            let own = &io.own[place * BLOCK..(place + 1) * BLOCK];
                            self.blocks.insert(at, own.into());
                        } else {
                            self.blocks.remove(&at);
                        }
                        at += 1;
                    }
                }
            }
            IoOp::Read => {
                bytes.resize(blocks as usize * BLOCK, 0);
                for (at, own) in self.blocks.range(block..block + u64::from(blocks)) {
                    let from = (at - block) as usize * BLOCK;
                    bytes[from..from + BLOCK].copy_from_slice(own);
                }
            }
            IoOp::Flush | IoOp::Discard | IoOp::WriteSuperblock(_) => {}
        }
        store.completed(tag, Ok(&bytes));
    }
}

/// A chunk by chance: of the part `hot` of all percent, with `heat` percent of the writes.
fn pick(chance: &mut Rng, chunks: u64, heat: u64, hot: u64) -> u64 {
    let edge = chunks * hot / 100;
    let place = match chance.below(100) < heat {
        true => chance.below(edge.max(1)),
        false => edge + chance.below(chunks - edge),
    };
    // Hot and cold chunks lie mixed.
    place.wrapping_mul(0x9e37_79b1) % chunks
}

/// Blocks of data, and of everything, for each block of a host.
fn amplification(percent: u64, heat: u64, hot: u64) -> Option<(f64, f64, u64)> {
    let options = Options {
        seed: 9,
        ..Options::default()
    };
    let store = Store::create(GEOMETRY, [1; 16], Secret([2; 16]), options);
    let mut store = store.ok()?;
    let mut device = Device::default();
    device.run(&mut store, 0);
    let blocks = u64::from(GEOMETRY.segments) * u64::from(GEOMETRY.segment_blocks);
    let chunks = (blocks * percent / 100) | 1;
    let mut request = 1;
    device.in_flight += 1;
    let lineage: Lineage = store.create_volume(request, chunks, [0; LABEL]).ok()?;
    device.run(&mut store, 0);
    let zeroes = [0; BLOCK];
    let mut chance = Rng::new(percent);
    let mut before = Stats::default();
    let steady = 4 * blocks;
    for step in 0..chunks + steady + blocks {
        let chunk = match step < chunks {
            true => step,
            false => pick(&mut chance, chunks, heat, hot),
        };
        if step == chunks + steady {
            before = store.stats();
        }
        request += 1;
        device.in_flight += 1;
        let sums = [Stored::block(chunk_sum(lineage, chunk, &zeroes))];
        store.write(request, lineage, chunk, &sums, false).ok()?;
        if device.in_flight >= DEPTH {
            device.run(&mut store, DEPTH / 2);
        }
        // As the switch does, in the simplest way: hosts wait while collection lags behind.
        if store.space().headroom < -40 {
            device.run(&mut store, 0);
        }
        if device.full {
            return None;
        }
    }
    let after = store.stats();
    let host = (after.host_blocks - before.host_blocks) as f64;
    let moved = (after.moved_blocks - before.moved_blocks) as f64;
    let headers = (after.header_blocks - before.header_blocks) as f64;
    let map = (after.map_blocks - before.map_blocks) as f64;
    let all = (host + moved + headers + map) / host;
    Some((
        (host + moved) / host,
        all,
        after.checkpoints - before.checkpoints,
    ))
}

fn main() {
    let skews = [
        ("uniform", 50, 50),
        ("80 % to 20 %", 80, 20),
        ("90 % to 10 %", 90, 10),
    ];
    for percent in [60, 65, 70, 75] {
        for (name, heat, hot) in skews {
            match amplification(percent, heat, hot) {
                Some((data, all, cuts)) => println!(
                    "{percent} % live, {name:<13}: data {data:.2}, with headers and map {all:.2}, {cuts} checkpoints"
                ),
                None => println!("{percent} % live, {name:<13}: the pool is full"),
            }
        }
    }
}
