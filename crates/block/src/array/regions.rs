//! The regions of a set, and what is known of each: which may differ between its copies, and which
//! some copies lack. Pure.
//!
//! A region is **dirty** from before its first write until the write is flushed everywhere and the
//! region has been at rest: a crash may leave its copies different. It is **missed** if a member
//! that has failed, or is being rebuilt, may lack what it holds. Both are in the region map on the
//! members, one bit each. In memory only are: whether the durable map says dirty (**marked**),
//! whether the copies have to be made equal before one is read (**unequal**), whether it is still
//! to be copied to members that are rebuilt (**behind**), whether it is being copied now
//! (**held**), so that writes wait, and whether it has become unequal or behind again since a copy
//! of it began (**renewed**), so that the copy does not count.

use std::ops::Range;

use flashyard_checksum::Crc32c;

use super::geometry::{MAP_SECTOR, REGIONS_PER_SECTOR};

const DIRTY: u8 = 1;
const MISSED: u8 = 2;
const MARKED: u8 = 4;
const UNEQUAL: u8 = 8;
const BEHIND: u8 = 16;
const HELD: u8 = 32;
const RENEWED: u8 = 64;

/// Bytes before the bits of a sector of a map: magic and checksum.
const HEAD: usize = 16;
const MAGIC: [u8; 8] = *b"FLSHRMAP";
/// Bytes of each kind of bit in a sector.
const BITS: usize = REGIONS_PER_SECTOR as usize / 8;

/// Rests of a region after which it is clean.
const RESTS: u8 = 2;

#[derive(Clone, Copy, Default)]
struct Cell {
    /// Writes in flight.
    writers: u32,
    flags: u8,
    /// Looks since the last write.
    rests: u8,
}

/// See the module.
pub(super) struct Regions {
    cells: Vec<Cell>,
    /// Regions that are dirty, and some that were.
    dirty: Vec<u32>,
    /// Sectors whose durable content is older than what is known.
    changed: Vec<bool>,
    /// How many are unequal, and behind.
    unequal: usize,
    behind: usize,
    /// Writes that have entered, of all regions.
    entered: u64,
}

/// What a write finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It is counted, and may go.
    Entered,
    /// A region is being copied.
    Held,
    /// Regions are dirty now, and the map has to say so first.
    Unmarked,
}

/// What a sector of a map says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    /// It could not be read or is damaged: all its regions count as dirty and missed.
    pub(super) damaged: bool,
}

impl Regions {
    /// So many regions, all equal and at rest.
    pub(super) fn new(count: usize) -> Self {
        let sectors = count.div_ceil(REGIONS_PER_SECTOR as usize);
        Self {
            cells: vec![Cell::default(); count],
            dirty: Vec::new(),
            changed: vec![false; sectors],
            unequal: 0,
            behind: 0,
            entered: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.cells.len()
    }

    /// Sectors of the map.
    pub(super) fn sectors(&self) -> usize {
        self.changed.len()
    }

    /// Counts a write in, if all its regions are marked and none is held.
    #[inline]
    pub(super) fn enter(&mut self, range: Range<usize>) -> Entry {
        let cells = &self.cells[range.clone()];
        if cells.iter().any(|cell| cell.flags & HELD != 0) {
            return Entry::Held;
        }
        if cells.iter().any(|cell| cell.flags & MARKED == 0) {
            return Entry::Unmarked;
        }
        for cell in &mut self.cells[range] {
            cell.writers += 1;
            cell.rests = 0;
        }
        self.entered += 1;
        Entry::Entered
    }

    /// Counts a write out; true if somebody may wait for that.
    #[inline]
    pub(super) fn leave(&mut self, range: Range<usize>) -> bool {
        let mut awaited = false;
        for cell in &mut self.cells[range] {
            cell.writers -= 1;
            cell.rests = 0;
            awaited |= cell.writers == 0 && cell.flags & HELD != 0;
        }
        awaited
    }

    /// Writes that have entered so far, if none is in flight in these regions.
    pub(super) fn quiet(&self, range: Range<usize>) -> Option<u64> {
        let busy = |cell: &Cell| cell.writers > 0 || cell.flags & HELD != 0;
        (!self.cells[range].iter().any(busy)).then_some(self.entered)
    }

    /// Whether the durable map says dirty of all of these.
    pub(super) fn are_marked(&self, range: Range<usize>) -> bool {
        self.cells[range]
            .iter()
            .all(|cell| cell.flags & MARKED != 0)
    }

    /// Makes regions dirty.
    pub(super) fn make_dirty(&mut self, range: Range<usize>) {
        for at in range {
            self.set_dirty(at);
        }
    }

    /// Makes regions dirty from a write on, and those behind it if it seems to be one of many in
    /// order: `ahead` more.
    pub(super) fn make_dirty_ahead(&mut self, range: Range<usize>, ahead: usize) {
        let follows = range.start > 0 && self.is(range.start - 1, DIRTY);
        let end = match follows {
            true => (range.end + ahead).min(self.cells.len()),
            false => range.end,
        };
        self.make_dirty(range.start..end);
    }

    fn set_dirty(&mut self, at: usize) {
        if !self.is(at, DIRTY) {
            self.cells[at].flags |= DIRTY;
            self.cells[at].rests = 0;
            self.dirty.push(at as u32);
            self.change(at);
        }
    }

    /// Notes that members lack what is in these regions.
    pub(super) fn make_missed(&mut self, range: Range<usize>) {
        for at in range {
            if !self.is(at, MISSED) {
                self.cells[at].flags |= MISSED;
                self.change(at);
            }
        }
    }

    /// All regions that a member may lack are to be copied to those that are rebuilt.
    pub(super) fn begin_rebuild(&mut self) {
        for at in 0..self.cells.len() {
            let lacks = self.cells[at].flags & (DIRTY | MISSED) != 0;
            self.cells[at].flags |= if lacks { RENEWED } else { 0 };
            if lacks && !self.is(at, BEHIND) {
                self.cells[at].flags |= BEHIND;
                self.behind += 1;
            }
        }
    }

    /// Nothing is to be copied any more: there is no member that is rebuilt.
    pub(super) fn end_rebuild(&mut self) {
        for cell in &mut self.cells {
            cell.flags &= !BEHIND;
        }
        self.behind = 0;
    }

    /// No member lacks what was in these when they were copied, durably.
    pub(super) fn not_missed(&mut self, copied: &[u32]) {
        for at in copied.iter().map(|at| *at as usize) {
            if self.is(at, MISSED) && !self.is(at, BEHIND) {
                self.cells[at].flags &= !MISSED;
                self.change(at);
            }
        }
    }

    /// No member lacks anything any more.
    pub(super) fn none_missed(&mut self) {
        for at in 0..self.cells.len() {
            if self.is(at, MISSED) {
                self.cells[at].flags &= !MISSED;
                self.change(at);
            }
        }
    }

    /// Copies of these regions may differ and are not to be read before they were made equal.
    pub(super) fn make_unequal(&mut self, range: Range<usize>) {
        for at in range {
            self.set_dirty(at);
            self.cells[at].flags |= RENEWED;
            if !self.is(at, UNEQUAL) {
                self.cells[at].flags |= UNEQUAL;
                self.unequal += 1;
            }
        }
    }

    /// All dirty regions may differ: a crash has ended what was written.
    pub(super) fn dirty_are_unequal(&mut self) {
        for at in 0..self.cells.len() {
            if self.is(at, DIRTY) {
                self.make_unequal(at..at + 1);
            }
        }
    }

    /// There is one copy only, so none differs from another.
    pub(super) fn none_unequal(&mut self) {
        for cell in &mut self.cells {
            cell.flags &= !UNEQUAL;
        }
        self.unequal = 0;
    }

    /// Whether any of these has to be made equal before it is read.
    #[inline]
    pub(super) fn any_unequal(&self, range: Range<usize>) -> bool {
        self.unequal > 0 && range.clone().any(|at| self.is(at, UNEQUAL))
    }

    /// Bars writes from a region, if it is not barred yet.
    pub(super) fn hold(&mut self, at: usize) -> bool {
        let free = !self.is(at, HELD);
        self.cells[at].flags |= HELD;
        free
    }

    /// Lets writes in again.
    pub(super) fn release(&mut self, range: Range<usize>) {
        for at in range {
            self.cells[at].flags &= !HELD;
        }
    }

    /// Whether no write is in flight in these.
    pub(super) fn is_still(&self, range: Range<usize>) -> bool {
        self.cells[range].iter().all(|cell| cell.writers == 0)
    }

    /// A copy of a region begins.
    pub(super) fn begin_copy(&mut self, at: usize) {
        self.cells[at].flags &= !RENEWED;
    }

    /// Whether a copy that has begun is still what the region needs.
    pub(super) fn is_wanted(&self, at: usize, unequal: bool) -> bool {
        let needs = if unequal { UNEQUAL } else { BEHIND };
        self.cells[at].flags & (needs | RENEWED) == needs
    }

    /// A region was copied, durably if `flushed`, to all that lacked it.
    pub(super) fn copied(&mut self, at: usize, flushed: bool) {
        if self.is(at, BEHIND) {
            self.cells[at].flags &= !BEHIND;
            self.behind -= 1;
        }
        if flushed && self.is(at, UNEQUAL) {
            self.cells[at].flags &= !UNEQUAL;
            self.unequal -= 1;
        }
    }

    /// A region that was copied lacks something still.
    pub(super) fn behind_again(&mut self, at: usize) {
        if !self.is(at, BEHIND) {
            self.cells[at].flags |= BEHIND;
            self.behind += 1;
        }
    }

    /// Whether a region is to be copied to members that are rebuilt.
    pub(super) fn is_behind(&self, at: usize) -> bool {
        self.is(at, BEHIND)
    }

    /// The next region from `from` on, round, that is to be copied, but for those that wait;
    /// unequal ones first.
    pub(super) fn next_to_copy(
        &self,
        from: usize,
        waits: impl Fn(usize) -> bool,
    ) -> Option<(usize, bool)> {
        let flag = match (self.unequal, self.behind) {
            (0, 0) => return None,
            (0, _) => BEHIND,
            _ => UNEQUAL,
        };
        let from = from.min(self.cells.len());
        let found = (from..self.cells.len()).chain(0..from);
        let found = found
            .into_iter()
            .find(|at| self.is(*at, flag) && !waits(*at));
        found.map(|at| (at, flag == UNEQUAL))
    }

    /// Regions that are to be copied: before they are read, and to members that are rebuilt.
    pub(super) fn to_copy(&self) -> (usize, usize) {
        (self.unequal, self.behind)
    }

    /// Regions that are dirty.
    pub(super) fn dirty(&self) -> usize {
        self.dirty
            .iter()
            .filter(|at| self.is(**at as usize, DIRTY))
            .count()
    }

    /// Whether a region is dirty.
    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Looks at the dirty regions; gives those that have rested, and may be clean after a flush.
    pub(super) fn rested(&mut self, at_once: bool) -> Vec<u32> {
        let mut rested = Vec::new();
        let cells = &mut self.cells;
        self.dirty.retain(|at| {
            let cell = &mut cells[*at as usize];
            if cell.flags & DIRTY == 0 {
                return false;
            }
            let quiet = cell.writers == 0 && cell.flags & (UNEQUAL | BEHIND | HELD) == 0;
            if quiet {
                cell.rests = cell.rests.saturating_add(1);
            }
            if quiet && (at_once || cell.rests > RESTS) {
                rested.push(*at);
            }
            true
        });
        rested
    }

    /// What was written to these before they rested is flushed everywhere: those that were not
    /// written since are clean. `degraded`: a member lacks what they hold.
    pub(super) fn clean(&mut self, rested: &[u32], degraded: bool, at_once: bool) {
        for at in rested {
            let cell = &mut self.cells[*at as usize];
            let quiet = cell.writers == 0 && cell.flags & (UNEQUAL | BEHIND | HELD) == 0;
            if !quiet || !(at_once || cell.rests > RESTS) || cell.flags & DIRTY == 0 {
                continue;
            }
            cell.flags &= !(DIRTY | MARKED);
            cell.flags |= if degraded { MISSED } else { 0 };
            self.change(*at as usize);
        }
    }

    fn change(&mut self, at: usize) {
        self.changed[at / REGIONS_PER_SECTOR as usize] = true;
    }

    /// The sectors that have changed, which count as unchanged from now on.
    pub(super) fn take_changed(&mut self) -> Vec<usize> {
        let sectors = 0..self.changed.len();
        let changed = sectors.filter(|sector| std::mem::take(&mut self.changed[*sector]));
        changed.collect()
    }

    /// Whether a sector has changed.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.contains(&true)
    }

    /// All sectors have to be written: somebody has none.
    pub(super) fn change_all(&mut self) {
        self.changed.fill(true);
    }

    /// A sector as it is to be written.
    pub(super) fn sector(&self, sector: usize, into: &mut [u8]) {
        into.fill(0);
        into[..8].copy_from_slice(&MAGIC);
        for (bit, cell) in self.cells_of(sector).iter().enumerate() {
            let byte = HEAD + bit / 8;
            into[byte] |= (cell.flags & DIRTY) << (bit % 8);
            into[byte + BITS] |= ((cell.flags & MISSED) >> 1) << (bit % 8);
        }
        let sum = checksum(into, sector);
        into[8..12].copy_from_slice(&sum.to_le_bytes());
    }

    /// A sector was written with what it says: writes may enter where it says dirty.
    pub(super) fn mark(&mut self, sector: usize, written: &[u8]) {
        let first = sector * REGIONS_PER_SECTOR as usize;
        for bit in 0..self.cells_of(sector).len() {
            let said = written[HEAD + bit / 8] >> (bit % 8) & 1 != 0;
            let cell = &mut self.cells[first + bit];
            if said && cell.flags & DIRTY != 0 {
                cell.flags |= MARKED;
            }
        }
    }

    /// Adds what a member's map says in a sector.
    pub(super) fn load(&mut self, sector: usize, read: &[u8]) -> Loaded {
        let first = sector * REGIONS_PER_SECTOR as usize;
        let sum = u32::from_le_bytes([read[8], read[9], read[10], read[11]]);
        let damaged = read[..8] != MAGIC || sum != checksum(read, sector);
        for bit in 0..self.cells_of(sector).len() {
            let says = |at: usize| damaged || read[HEAD + at + bit / 8] >> (bit % 8) & 1 != 0;
            if says(0) {
                self.set_dirty(first + bit);
            }
            if says(BITS) {
                self.make_missed(first + bit..first + bit + 1);
            }
        }
        Loaded { damaged }
    }

    fn cells_of(&self, sector: usize) -> &[Cell] {
        let first = sector * REGIONS_PER_SECTOR as usize;
        let end = (first + REGIONS_PER_SECTOR as usize).min(self.cells.len());
        &self.cells[first..end]
    }

    fn is(&self, at: usize, flag: u8) -> bool {
        self.cells[at].flags & flag != 0
    }
}

/// Of all of a sector but its checksum, and of where it is.
fn checksum(sector: &[u8], number: usize) -> u32 {
    let mut digest = Crc32c::new();
    digest.update(&(number as u64).to_le_bytes());
    digest.update(&sector[..8]);
    digest.update(&sector[12..MAP_SECTOR as usize]);
    digest.value()
}

const _: () = assert!(HEAD + 2 * BITS <= MAP_SECTOR as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = MAP_SECTOR as usize;

    fn marked(count: usize, range: Range<usize>) -> Regions {
        let mut regions = Regions::new(count);
        regions.make_dirty(range);
        write(&mut regions);
        regions
    }

    /// Writes the map as a member would have it.
    fn write(regions: &mut Regions) {
        for sector in regions.take_changed() {
            let mut bytes = [0; SECTOR];
            regions.sector(sector, &mut bytes);
            regions.mark(sector, &bytes);
        }
    }

    #[test]
    fn a_write_enters_only_what_the_map_says_is_dirty() {
        let mut regions = Regions::new(5000);
        assert_eq!(regions.enter(3..5), Entry::Unmarked);
        regions.make_dirty(3..5);
        assert_eq!(regions.enter(3..5), Entry::Unmarked, "not in the map yet");
        write(&mut regions);
        assert_eq!(regions.enter(3..5), Entry::Entered);
        assert_eq!(regions.enter(3..6), Entry::Unmarked);
        assert!(regions.hold(4));
        assert_eq!(regions.enter(4..5), Entry::Held);
        assert!(!regions.is_still(4..5));
        assert!(regions.leave(3..5), "one waits for the region");
        assert!(regions.is_still(4..5));
        regions.release(4..5);
        assert_eq!(regions.enter(4..5), Entry::Entered);
        assert!(!regions.leave(4..5));
    }

    /// A clean that is written while a write makes the region dirty anew does not let that in.
    #[test]
    fn what_becomes_dirty_while_the_map_is_written_waits_for_the_next_time() {
        let mut regions = marked(10, 2..3);
        (0..=RESTS).for_each(|_| drop(regions.rested(false)));
        let rested = regions.rested(false);
        regions.clean(&rested, false, false);
        let mut bytes = [0; SECTOR];
        let changed = regions.take_changed();
        regions.sector(changed[0], &mut bytes);
        // The write comes while the sector is on its way.
        regions.make_dirty(2..3);
        regions.mark(changed[0], &bytes);
        assert_eq!(regions.enter(2..3), Entry::Unmarked);
        write(&mut regions);
        assert_eq!(regions.enter(2..3), Entry::Entered);
    }

    #[test]
    fn a_region_is_clean_after_rests_without_a_write() {
        let mut regions = marked(10, 0..2);
        for _ in 0..RESTS {
            assert_eq!(regions.rested(false), []);
        }
        assert_eq!(regions.enter(1..2), Entry::Entered);
        let rested = regions.rested(false);
        assert_eq!(rested, [0]);
        assert_eq!(regions.enter(0..1), Entry::Entered);
        regions.clean(&rested, false, false);
        assert_eq!(regions.dirty(), 2, "it was written during the flush");
        regions.leave(0..1);
        regions.leave(1..2);
        let rested = regions.rested(true);
        regions.clean(&rested, true, true);
        assert_eq!(regions.dirty(), 0);
        assert!(regions.rested(false).is_empty() && !regions.has_dirty());
        regions.begin_rebuild();
        assert_eq!(regions.to_copy(), (0, 2), "the missing member lacks them");
    }

    #[test]
    fn what_a_map_says_is_loaded_and_a_damaged_sector_says_everything() {
        let count = 2 * REGIONS_PER_SECTOR as usize + 9;
        let mut regions = Regions::new(count);
        regions.make_dirty(7..8);
        regions.make_dirty(count - 1..count);
        regions.make_missed(REGIONS_PER_SECTOR as usize..REGIONS_PER_SECTOR as usize + 2);
        let mut other = Regions::new(count);
        for sector in 0..3 {
            let mut bytes = [0; SECTOR];
            regions.sector(sector, &mut bytes);
            assert!(!other.load(sector, &bytes).damaged);
            for bit in 0..8 * SECTOR {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                let mut third = Regions::new(count);
                assert!(third.load(sector, &changed).damaged);
            }
            let mut third = Regions::new(count);
            assert!(
                third.load((sector + 1) % 3, &bytes).damaged,
                "a place of its own"
            );
        }
        assert_eq!(other.dirty(), 2);
        other.begin_rebuild();
        assert_eq!(other.to_copy().1, 4);
        let mut lost = Regions::new(count);
        lost.load(2, &[0; SECTOR]);
        assert_eq!(lost.dirty(), 9);
    }

    #[test]
    fn unequal_regions_are_copied_first() {
        let mut regions = Regions::new(10);
        regions.make_missed(0..3);
        regions.begin_rebuild();
        regions.make_unequal(8..9);
        assert!(regions.any_unequal(5..9) && !regions.any_unequal(0..8));
        assert_eq!(regions.next_to_copy(1, |_| false), Some((8, true)));
        regions.copied(8, false);
        assert_eq!(
            regions.next_to_copy(1, |_| false),
            Some((8, true)),
            "not flushed"
        );
        regions.copied(8, true);
        assert_eq!(regions.next_to_copy(1, |_| false), Some((1, false)));
        for at in [1, 2, 0] {
            assert_eq!(regions.next_to_copy(1, |_| false), Some((at, false)));
            regions.copied(at, false);
        }
        assert_eq!(regions.next_to_copy(1, |_| false), None);
    }
}
