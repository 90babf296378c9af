//! Which blocks durable checkpoints refer to: none of them may be written. Found from the bytes on
//! the medium alone, by the formats.

use std::collections::BTreeSet;

use flashyard_logstore::format::page::{self, FANOUT, HEAD};
use flashyard_logstore::format::rows::{PageRef, Row, VolumeRow};
use flashyard_logstore::format::superblock::Superblock;
use flashyard_logstore::format::{Block, block_sum, fields};
use flashyard_logstore::{COPIES, LEAF_CHUNKS, SUPERBLOCK};

use crate::device::{BLOCK, Device};

#[derive(Debug, Default)]
pub struct Referenced {
    blocks: BTreeSet<u64>,
    /// The superblocks that they are from.
    known: Vec<Superblock>,
    /// The medium is damaged: nothing can be found.
    pub off: bool,
}

impl Referenced {
    /// Looks at the superblocks that are durable now, if any is new.
    pub fn look(&mut self, device: &Device, copies: [u64; COPIES]) {
        let superblocks: Vec<Superblock> = (0..)
            .zip(copies)
            .filter_map(|(copy, block)| {
                let bytes = device.durable(block, (SUPERBLOCK / BLOCK) as u32);
                Superblock::decode(bytes, copy).ok()
            })
            .collect();
        if superblocks == self.known {
            return;
        }
        self.blocks.clear();
        if self.off {
            return;
        }
        for (place, superblock) in superblocks.iter().enumerate() {
            if place == 0 || superblocks[place - 1] != *superblock {
                self.add(device, superblock);
            }
        }
        self.known = superblocks;
    }

    fn add(&mut self, device: &Device, superblock: &Superblock) {
        let mut rows: Vec<PageRef> = Vec::new();
        for directory in &superblock.directory {
            let bytes = self.page(device, directory);
            let tables = (0..PageRef::PER_PAGE).filter_map(|place| PageRef::get(bytes, place).ok());
            for table in tables.filter(PageRef::is_used) {
                let bytes = self.page(device, &table);
                let all = 0..PageRef::PER_PAGE;
                rows.extend(all.map(|place| PageRef::get(bytes, place).expect("a row")));
            }
        }
        let (segments, catalogue) = (superblock.segment_table(), superblock.catalogue());
        let catalogue = rows[catalogue.start as usize..catalogue.end as usize].to_vec();
        for row in &rows[segments.start as usize..segments.end as usize] {
            self.page(device, row);
        }
        for place in catalogue.iter().filter(|row| row.is_used()) {
            let bytes = self.page(device, place);
            for place in 0..VolumeRow::PER_PAGE {
                let Ok(volume) = VolumeRow::get(bytes, place) else {
                    break;
                };
                self.inner(device, &rows, volume.root as usize, 3);
            }
        }
    }

    fn inner(&mut self, device: &Device, rows: &[PageRef], page: usize, level: u32) {
        if page == 0 {
            return;
        }
        let bytes = self.page(device, &rows[page]);
        if level == 0 {
            for place in 0..LEAF_CHUNKS as usize {
                let entry = page::leaf_entry(bytes, place);
                if entry.is_stored() {
                    let end = entry.address() + u64::from(entry.sectors());
                    self.blocks.extend(entry.address() / 8..end.div_ceil(8));
                }
            }
            return;
        }
        for place in 0..FANOUT {
            let child = fields::get_u64(bytes, HEAD + place * 8) as usize;
            self.inner(device, rows, child, level - 1);
        }
    }

    fn page<'a>(&mut self, device: &'a Device, place: &PageRef) -> &'a Block {
        self.blocks.insert(place.block);
        if place.copy != 0 {
            self.blocks.insert(place.copy);
        }
        let bytes = device.durable(place.block, 1);
        assert_eq!(block_sum(bytes), place.crc, "a durable checkpoint is whole");
        bytes.try_into().expect("a block")
    }

    /// No write to what is live in a durable checkpoint.
    pub fn assert_free(&self, block: u64, blocks: u32) {
        if self.off {
            return;
        }
        let hit = self.blocks.range(block..block + u64::from(blocks)).next();
        assert_eq!(hit, None, "a durable checkpoint needs this block");
    }
}
