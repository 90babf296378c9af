//! What every segment is used for, as it is now.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::entry::Entry;
use crate::format::BLOCK_SECTORS;
use crate::format::batch::{Lane, MOST_BATCH_BLOCKS, MOST_ROW};
use crate::format::rows::{Row, SegmentRow};

/// Where segments are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// How many.
    pub segments: u32,
    /// Blocks of each.
    pub segment_blocks: u32,
    /// The first block of the first one.
    pub first_block: u64,
    /// Blocks of a row: every write to a segment is of whole rows, counted from the first block on.
    /// 1 where the device takes any block by itself.
    pub row: u32,
}

/// What a pool can become on a larger device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Growth {
    pub(super) segments: u32,
    pub(super) unused: Range<u32>,
}

/// Blocks of a batch at most, with its header, where writes are of whole rows.
const MOST_ROWS: u32 = 112;
/// Blocks of a segment at least: the longest write and its header, and a footer.
const LEAST_BATCH: u32 = super::io::MOST_BLOCKS + 1;
const LEAST_FOOTER: u32 = 7;

impl Geometry {
    /// The first block of a segment.
    pub(super) fn block(&self, segment: u32) -> u64 {
        self.first_block + u64::from(segment) * u64::from(self.segment_blocks)
    }

    /// The segment and the block in it; nothing for a block outside of all.
    pub(super) fn locate(&self, block: u64) -> Option<(u32, u32)> {
        let from = block.checked_sub(self.first_block)?;
        let segment = from / u64::from(self.segment_blocks);
        let within = (from % u64::from(self.segment_blocks)) as u32;
        (segment < u64::from(self.segments)).then_some((segment as u32, within))
    }

    /// So many blocks, and those that fill the last row.
    pub(super) fn whole(&self, blocks: u32) -> u32 {
        blocks.next_multiple_of(self.row)
    }

    /// Blocks of data in a batch at most. With its header a full one is whole rows, so that garbage
    /// collection leaves no gap.
    pub(super) fn most_batch(&self) -> u32 {
        match self.row {
            1 => MOST_BATCH_BLOCKS,
            row => MOST_ROWS / row * row - 1,
        }
    }

    /// Whether segments have room for the longest write, and are of whole rows.
    pub(super) fn is_possible(&self) -> bool {
        let least = || self.whole(LEAST_BATCH) + self.whole(LEAST_FOOTER);
        (1..=MOST_ROW).contains(&self.row)
            && self.segment_blocks >= least()
            && self.segment_blocks.is_multiple_of(self.row)
    }

    /// Blocks of data in a segment, at most, that it is worth to move: a few less than there are in
    /// one that garbage collection has filled with full batches, so that it comes to an end.
    pub(super) fn most_live(&self) -> u32 {
        let blocks = self.segment_blocks;
        let footer = self.whole(1 + blocks.div_ceil(128));
        let filled = blocks.saturating_sub(footer + blocks.div_ceil(self.most_batch() + 1));
        filled.saturating_sub((blocks / 16).max(2))
    }

    /// The segment of an address in sectors.
    pub(super) fn segment_of(&self, address: u64) -> Option<u32> {
        self.locate(address / BLOCK_SECTORS).map(|found| found.0)
    }
}

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Free,
    /// A superblock that is on its way lists it.
    Proposed,
    /// The superblock lists it: a lane may take it.
    Listed,
    /// A lane writes to it.
    Open,
    Closed,
    /// Garbage collection reads it.
    Victim,
    /// Nothing in it is needed once a checkpoint says so.
    Drained,
    /// A checkpoint that says so is on its way.
    Freeing,
    Discarding,
    /// It has pages of the map.
    Map,
    /// A superblock is there, from before the pool has grown.
    Unused,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub generation: u32,
    pub used: Use,
    pub suspect: bool,
    /// Its records cannot be listed.
    pub stuck: bool,
    /// Sectors that leaves refer to; of a map segment, pages.
    pub live: u32,
    pub age: u64,
    /// Who wrote it.
    pub lane: Lane,
    /// The last batch in it.
    pub last: u64,
    /// Blocks from here on are not written yet.
    pub done: u32,
    /// Reads of hosts that are in flight.
    pub readers: u32,
    /// Writes that are in flight.
    pub writers: u32,
    /// The first block that leaves do not know, while there is one.
    pub log_from: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Segments {
    pub geometry: Geometry,
    all: Vec<Segment>,
    /// Pages of the segment table that have changed.
    dirty: Vec<bool>,
    free: u32,
    listed: u32,
    unused: Range<u32>,
}

/// A segment that was never used.
const NONE: Segment = Segment {
    generation: 0,
    used: Use::Free,
    suspect: false,
    stuck: false,
    live: 0,
    age: 0,
    lane: Lane::User,
    last: 0,
    done: 0,
    readers: 0,
    writers: 0,
    log_from: None,
};

impl Segments {
    /// Of these the segments in `unused` are not for the pool.
    pub fn new(geometry: Geometry, unused: Range<u32>) -> Self {
        let mut segments = Self {
            geometry: Geometry {
                segments: 0,
                ..geometry
            },
            all: Vec::new(),
            dirty: Vec::new(),
            free: 0,
            listed: 0,
            unused: 0..0,
        };
        segments.grow(geometry.segments, unused);
        segments
    }

    /// There are so many now, of which those in `unused` are not for the pool.
    pub fn grow(&mut self, count: u32, unused: Range<u32>) {
        self.free += count - self.geometry.segments;
        self.geometry.segments = count;
        self.all.resize(count as usize, NONE);
        let pages = (count as usize).div_ceil(SegmentRow::PER_PAGE);
        self.dirty.resize(pages, true);
        self.dirty.fill(true);
        for segment in unused.clone() {
            self.set_use(segment, Use::Unused);
        }
        self.unused = unused;
    }

    /// The geometry of a pool that has as many as this one can use.
    pub fn usable(&self) -> Geometry {
        let segments = self.geometry.segments - self.unused.len() as u32;
        Geometry {
            segments,
            ..self.geometry
        }
    }

    /// Those that are not for the pool.
    pub fn unused(&self) -> Range<u32> {
        self.unused.clone()
    }

    pub fn get(&self, segment: u32) -> &Segment {
        &self.all[segment as usize]
    }

    /// For what the segment table does not hold.
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.all[segment as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.all)
    }

    pub fn set_use(&mut self, segment: u32, used: Use) {
        let before = core::mem::replace(&mut self.all[segment as usize].used, used);
        if holds_data(before) != holds_data(used) {
            self.touch(segment);
        }
        self.free -= u32::from(before == Use::Free);
        self.free += u32::from(used == Use::Free);
        self.listed -= u32::from(before == Use::Listed);
        self.listed += u32::from(used == Use::Listed);
    }

    /// The row of a segment has changed.
    pub fn touch(&mut self, segment: u32) {
        self.dirty[segment as usize / SegmentRow::PER_PAGE] = true;
    }

    /// Leaves refer to so many sectors more or fewer.
    pub fn add_live(&mut self, segment: u32, sectors: i64) {
        let live = &mut self.all[segment as usize].live;
        *live = (i64::from(*live) + sectors).max(0) as u32;
        self.touch(segment);
    }

    /// Whether garbage collection has written what an entry says.
    pub fn is_moved(&self, entry: Entry) -> bool {
        let segment = self.geometry.segment_of(entry.address());
        let segment = segment.filter(|_| entry.is_stored());
        segment.is_some_and(|segment| self.get(segment).lane == Lane::Collector)
    }

    /// Pages that the page table refers to.
    pub fn add_page(&mut self, segment: u32, more: bool) {
        let live = &mut self.all[segment as usize].live;
        *live = if more {
            *live + 1
        } else {
            live.saturating_sub(1)
        };
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    pub fn listed(&self) -> u32 {
        self.listed
    }

    pub fn pages(&self) -> u32 {
        self.dirty.len() as u32
    }

    /// A page of the segment table that has changed since it was asked last.
    pub fn take_dirty(&mut self) -> Option<u32> {
        let place = self.dirty.iter().position(|&dirty| dirty)?;
        self.dirty[place] = false;
        Some(place as u32)
    }

    pub fn set_dirty(&mut self, page: u32) {
        self.dirty[page as usize] = true;
    }

    /// Rows of a page of the segment table, with their places.
    pub fn rows(&self, page: u32) -> impl Iterator<Item = (usize, SegmentRow)> {
        let from = page as usize * SegmentRow::PER_PAGE;
        let rows = self.all.iter().skip(from).take(SegmentRow::PER_PAGE);
        rows.enumerate().map(|(place, segment)| {
            let used = holds_data(segment.used);
            let row = SegmentRow {
                generation: segment.generation,
                used,
                suspect: used && segment.suspect,
                live: if used { segment.live } else { 0 },
                end: if used { segment.done } else { 0 },
                age: segment.age,
            };
            (place, row)
        })
    }

    pub fn restore(&mut self, segment: u32, row: SegmentRow) {
        let used = match row.used {
            true => Use::Closed,
            false if self.unused.contains(&segment) => Use::Unused,
            false => Use::Free,
        };
        self.set_use(segment, used);
        let state = self.get_mut(segment);
        (state.generation, state.suspect) = (row.generation, row.suspect);
        (state.live, state.age, state.done) = (row.live, row.age, row.end);
    }

    /// A free segment; the first after the one that was given last.
    pub fn find_free(&self, after: u32) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let count = self.geometry.segments;
        let mut places = (1..=count).map(|step| (after + step) % count);
        places.find(|&segment| self.get(segment).used == Use::Free)
    }

    /// Whether a segment may be collected.
    pub fn may_collect(&self, segment: &Segment) -> bool {
        let most = u64::from(self.geometry.most_live()) * BLOCK_SECTORS;
        segment.used == Use::Closed
            && segment.writers == 0
            && segment.log_from.is_none()
            && !segment.stuck
            && (u64::from(segment.live) <= most || segment.suspect)
    }

    /// The segments that are best to collect, the best last: those with the fewest live when short
    /// of space, else cost against benefit; suspects before all.
    pub fn victims(&self, most: usize, now: u64, greedy: bool) -> Vec<u32> {
        let sectors = u64::from(self.geometry.segment_blocks) * BLOCK_SECTORS;
        let score = |segment: &Segment| {
            let live = u64::from(segment.live).min(sectors);
            let age = now.saturating_sub(segment.age).min(1 << 32) + 1;
            let benefit = match greedy {
                true => sectors - live,
                false => (sectors - live) * age * 1024 / (sectors + live),
            };
            (segment.suspect, benefit)
        };
        let mut best = BinaryHeap::with_capacity(most + 1);
        let candidates = self.iter().filter(|(_, segment)| self.may_collect(segment));
        for (number, segment) in candidates {
            let key = Reverse((score(segment), Reverse(number)));
            if best.len() < most || best.peek().is_some_and(|worst| key < *worst) {
                best.push(key);
                if best.len() > most {
                    best.pop();
                }
            }
        }
        let sorted = best.into_sorted_vec();
        let numbers = sorted.into_iter().rev();
        numbers
            .map(|Reverse((_, Reverse(number)))| number)
            .collect()
    }
}

/// Whether the segment table says that there are data.
fn holds_data(used: Use) -> bool {
    matches!(used, Use::Open | Use::Closed | Use::Victim | Use::Drained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::footer::footer_blocks;

    fn geometry(row: u32, segment_blocks: u32) -> Geometry {
        Geometry {
            segments: 1,
            segment_blocks,
            first_block: 1,
            row,
        }
    }

    #[test]
    fn full_batches_are_whole_rows_and_garbage_collection_comes_to_an_end() {
        for row in 1..=MOST_ROW {
            for blocks in [64u32, 256, 4096].map(|blocks| blocks.next_multiple_of(row)) {
                let geometry = geometry(row, blocks);
                if !geometry.is_possible() {
                    continue;
                }
                let batch = geometry.most_batch() + 1;
                assert_eq!(geometry.whole(batch), batch, "row {row}");
                assert!(batch > super::super::io::MOST_BLOCKS, "row {row}");
                // What full batches put into a segment, with its footer.
                let (mut live, mut items, mut at) = (0, 0, 0);
                loop {
                    let fits = |data: u32| {
                        let footer = geometry.whole(footer_blocks((items + 1 + data) as usize));
                        at + geometry.whole(1 + data) + footer <= blocks
                    };
                    let Some(data) = (1..batch).rev().find(|data| fits(*data)) else {
                        break;
                    };
                    (live, items) = (live + data, items + 1 + data);
                    at += geometry.whole(1 + data);
                }
                let most = geometry.most_live();
                assert!(most < live && 2 * most > live, "{live} {most} row {row}");
            }
        }
    }

    #[test]
    fn segments_of_parts_of_rows_and_rows_that_are_none_are_impossible() {
        for (row, blocks) in [(0, 64), (3, 64), (MOST_ROW + 1, 66), (1, 39), (4, 40)] {
            assert!(!geometry(row, blocks).is_possible(), "{row} {blocks}");
        }
        for (row, blocks) in [(1, 40), (2, 42), (4, 44), (15, 60)] {
            assert!(geometry(row, blocks).is_possible(), "{row} {blocks}");
        }
    }
}
