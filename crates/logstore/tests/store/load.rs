//! What hosts do, by chance.

use flashyard_logstore::{LEAF_CHUNKS, Lineage, Refused};

use crate::model::Ask;
use crate::world::World;

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub steps: u64,
    /// Requests in flight at most.
    pub depth: usize,
    /// Of 100 requests: trims, reads, flushes; the rest are writes.
    pub trims: u64,
    pub reads: u64,
    pub flushes: u64,
    /// Chunks that are written to, from the first on.
    pub within: u64,
    /// Chunks of a write at most.
    pub most: u64,
}

impl Load {
    pub const MIXED: Self = Self {
        steps: 300,
        depth: 8,
        trims: 8,
        reads: 15,
        flushes: 7,
        within: u64::MAX,
        most: 16,
    };

    /// False when the power went.
    pub fn run(&self, world: &mut World) -> bool {
        for _ in 0..self.steps {
            self.ask(world);
            if !world.pump() {
                return false;
            }
            while world.model.in_flight() >= self.depth || world.chance.below(3) == 0 {
                if !world.end_one() || !world.pump() {
                    break;
                }
            }
            if world.cut_at == Some(world.writes) && !world.pump() {
                return false;
            }
        }
        world.settle()
    }

    fn ask(&self, world: &mut World) {
        let volumes = world.model.volumes();
        let (lineage, chunks) = volumes[world.chance.below(volumes.len() as u64) as usize];
        let chunks = chunks.min(self.within);
        let mut ask = self.one(world, lineage, chunks);
        if world.model.is_snapshot(lineage) {
            ask = Self {
                trims: 0,
                reads: 100,
                ..*self
            }
            .one(world, lineage, chunks);
        }
        match world.ask(ask) {
            Ok(()) | Err(Refused::ReadOnly) => {}
            Err(why) => panic!("{ask:?} was refused: {why}"),
        }
    }

    fn one(&self, world: &mut World, lineage: Lineage, chunks: u64) -> Ask {
        let chunk = world.chance.below(chunks);
        let left = chunks - chunk;
        let kind = world.chance.below(100);
        let trims = self.trims;
        if kind < trims {
            let most = if kind == 0 { 3 * LEAF_CHUNKS } else { 24 };
            return Ask::Trim {
                lineage,
                chunk,
                count: left.min(1 + world.chance.below(most)),
            };
        }
        let most = self.most.min(world.form(lineage).most_chunks().into());
        let count = left.min(1 + world.chance.below(most)) as u32;
        if kind < trims + self.reads {
            return Ask::Read {
                lineage,
                chunk,
                count,
            };
        }
        if kind < trims + self.reads + self.flushes {
            return Ask::Flush { lineage };
        }
        Ask::Write {
            lineage,
            chunk,
            count,
            durable: world.chance.below(12) == 0,
        }
    }
}
