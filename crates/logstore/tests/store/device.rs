//! A device with a volatile cache: what was not flushed may be lost at a power cut, whole or by
//! sector, whatever its order.

use std::collections::BTreeSet;

use flashyard_time::Rng;

const SECTOR: usize = 512;
pub const BLOCK: usize = 4096;

/// What becomes of writes that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All are lost.
    Nothing,
    /// None is lost.
    Everything,
    /// Each whole write by chance.
    Some,
    /// Each sector by chance.
    Torn,
}

pub const CUTS: [Cut; 4] = [Cut::Nothing, Cut::Everything, Cut::Some, Cut::Torn];

#[derive(Clone, Debug)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Device {
    /// What survives.
    media: Vec<u8>,
    /// What is read.
    view: Vec<u8>,
    unflushed: Vec<Write>,
    /// Blocks whose reads fail.
    pub unreadable: BTreeSet<u64>,
    /// Sectors that a cut has lost though they were written.
    pub lost_sectors: u64,
}

impl Device {
    pub fn new(blocks: u64) -> Self {
        Self {
            media: vec![0; blocks as usize * BLOCK],
            view: vec![0; blocks as usize * BLOCK],
            unflushed: Vec::new(),
            unreadable: BTreeSet::new(),
            lost_sectors: 0,
        }
    }

    /// It has more blocks from now on.
    pub fn grow(&mut self, blocks: u64) {
        let bytes = self.view.len() + blocks as usize * BLOCK;
        self.media.resize(bytes, 0);
        self.view.resize(bytes, 0);
    }

    pub fn blocks(&self) -> u64 {
        (self.view.len() / BLOCK) as u64
    }

    pub fn write(&mut self, block: u64, bytes: &[u8]) {
        let at = block as usize * BLOCK;
        self.view[at..at + bytes.len()].copy_from_slice(bytes);
        self.unflushed.push(Write {
            at,
            bytes: bytes.to_vec(),
        });
    }

    pub fn read(&self, block: u64, blocks: u32) -> Option<Vec<u8>> {
        let failed = self
            .unreadable
            .range(block..block + u64::from(blocks))
            .next();
        let at = block as usize * BLOCK;
        failed
            .is_none()
            .then(|| self.view[at..at + blocks as usize * BLOCK].to_vec())
    }

    /// What would be there after a cut that loses all it can.
    pub fn durable(&self, block: u64, blocks: u32) -> &[u8] {
        let at = block as usize * BLOCK;
        &self.media[at..at + blocks as usize * BLOCK]
    }

    /// How many writes a flush that begins now makes durable.
    pub fn mark(&self) -> usize {
        self.unflushed.len()
    }

    /// A flush is complete that began at this mark.
    pub fn flushed(&mut self, mark: usize) {
        for write in self.unflushed.drain(..mark.min(self.unflushed.len())) {
            self.media[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    /// The power goes while these writes are in flight.
    pub fn cut(&mut self, cut: Cut, in_flight: &[(u64, Vec<u8>)], chance: &mut Rng) {
        let mut writes = std::mem::take(&mut self.unflushed);
        writes.extend(in_flight.iter().map(|(block, bytes)| Write {
            at: *block as usize * BLOCK,
            bytes: bytes.clone(),
        }));
        for write in writes {
            let whole = match cut {
                Cut::Nothing => false,
                Cut::Everything => true,
                Cut::Some | Cut::Torn => chance.below(2) == 0,
            };
            for (place, sector) in write.bytes.chunks(SECTOR).enumerate() {
                let torn = cut == Cut::Torn && chance.below(4) == 0;
                if whole && !torn {
                    let at = write.at + place * SECTOR;
                    self.media[at..at + sector.len()].copy_from_slice(sector);
                } else {
                    self.lost_sectors += 1;
                }
            }
        }
        self.view.copy_from_slice(&self.media);
    }

    /// Flips a bit of a block, for good.
    pub fn flip(&mut self, block: u64, bit: usize) {
        let at = block as usize * BLOCK + bit / 8;
        self.view[at] ^= 1 << (bit % 8);
        self.media[at] ^= 1 << (bit % 8);
    }
}
