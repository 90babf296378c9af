//! Recovery: finding the newest checkpoint, and what was written after it began.
//!
//! Only reads; nothing is written before all is known. First one sector of each chunk says which
//! line it belongs to; lines of checkpoints are read for the newest root and its pages; then the
//! metadata of every line that was not settled when the checkpoint began. Power may go at any time:
//! the next recovery finds the same.

use alloc::vec;

use super::io::{Action, IoOp, Part, Purpose, Tag};
use super::layout::NONE;
use super::map::Map;
use super::recovery::{Found, Gone, Phase, RecoverError, Recovery, RecoveryStats};
use super::stamp::{
    Kind, LINES_PER_PAGE, PageReader, Root, SETTLED, Stamp, UNITS_PER_PAGE, VERSION,
};
use super::{Ftl, State};
use crate::channel::{MOST_ADDRESSES, Metadata};

/// How often recovery reads again what it cannot do without.
const TRIES: u8 = 16;
/// Sectors of a chunk that are tried for its line.
const HEADS: u32 = 8;
/// Records in a page at most.
const RECORDS: u64 = 250;

impl Ftl {
    /// Issues the next reads of recovery, or goes to the next phase.
    pub(super) fn recover_more(&mut self) {
        let Some(mut recovery) = self.recovery.take() else {
            return;
        };
        while self.state == State::Recovering {
            self.issue_reads(&mut recovery);
            if recovery.reads > 0 {
                break;
            }
            let next = self.next_phase(&mut recovery);
            match next {
                Ok(Some(phase)) => recovery.phase = phase,
                Ok(None) => {
                    self.replay(&mut recovery);
                    self.stats.lost_units += recovery.stats.lost_units;
                    self.state = State::Ready;
                    self.check_spare();
                    if self.state == State::ReadOnly {
                        // Nothing will be written: a checkpoint would only cost chunks.
                        self.checkpoint.give_up();
                    }
                }
                Err(error) => self.state = State::Failed(error),
            }
        }
        self.recovery = Some(recovery);
    }

    /// What the last recovery did; nothing when the partition was formatted.
    pub fn recovery(&self) -> Option<RecoveryStats> {
        self.recovery.as_ref().map(|recovery| recovery.stats)
    }

    fn issue_reads(&mut self, recovery: &mut Recovery) {
        let most = 4 * self.layout.width;
        let with_pages = matches!(
            recovery.phase,
            Phase::Roots | Phase::Pages | Phase::Tombstones
        );
        let part = if with_pages { Part::Page } else { Part::Unused };
        while recovery.reads < most && !recovery.again.is_empty() {
            let (unit, tries) = recovery.again[0];
            let tag = self.ios.begin(IoOp::Read, Purpose::Recover);
            self.ios.get_mut(tag).tries = tries;
            self.push_recover_read(tag, unit, part);
            recovery.again.swap_remove(0);
            self.submit_recover_read(recovery, tag);
        }
        while recovery.reads < most && !recovery.work.is_empty() {
            let tag = self.ios.begin(IoOp::Read, Purpose::Recover);
            while let Some((first, end)) = recovery.work.pop_front() {
                let room = MOST_ADDRESSES as u32 - self.ios.get(tag).count;
                let stop = end.min(first + room);
                for unit in first..stop {
                    self.push_recover_read(tag, unit, part);
                }
                if stop < end {
                    recovery.work.push_back((stop, end));
                }
                if self.ios.get(tag).is_full() {
                    break;
                }
            }
            self.submit_recover_read(recovery, tag);
        }
    }

    fn push_recover_read(&mut self, tag: Tag, unit: u32, part: Part) {
        let address = self.layout.address(unit);
        let io = self.ios.get_mut(tag);
        io.push(unit, address, Metadata::default(), part);
    }

    fn submit_recover_read(&mut self, recovery: &mut Recovery, tag: Tag) {
        recovery.reads += 1;
        recovery.stats.read_sectors += u64::from(self.ios.get(tag).count);
        self.out.push_back(Action::Submit(tag));
    }

    /// A page was read, for a vector whose completion is reported next. Only for parts that are
    /// [pages](Part::Page), and not for those that failed.
    pub fn on_page(&mut self, tag: Tag, place: usize, bytes: &[u8]) {
        let Some(mut recovery) = self.recovery.take() else {
            return;
        };
        let io = self
            .ios
            .in_flight(tag)
            .filter(|io| place < io.count as usize);
        let unit = io.map(|io| io.units[place]);
        if let Some(unit) = unit
            && self.take_page(&mut recovery, unit, bytes).is_some()
        {
            match recovery.taken.iter_mut().find(|(one, _)| *one == tag) {
                Some((_, places)) => *places |= 1 << place,
                None => recovery.taken.push((tag, 1 << place)),
            }
        }
        self.recovery = Some(recovery);
    }

    /// Reads are complete. What failed is read again, some times.
    pub(super) fn recover_read_done(&mut self, tag: Tag, failed: u64, metadata: &[Metadata]) {
        let Some(mut recovery) = self.recovery.take() else {
            return;
        };
        let io = self.ios.get(tag);
        let (count, units, tries) = (io.count, io.units, io.tries);
        self.ios.release(tag);
        recovery.reads -= 1;
        let taken = recovery.taken.iter().position(|(one, _)| *one == tag);
        let taken = taken.map_or(0, |place| recovery.taken.swap_remove(place).1);
        let with_pages = matches!(
            recovery.phase,
            Phase::Roots | Phase::Pages | Phase::Tombstones
        );
        for place in 0..count as usize {
            let unit = units[place];
            let read = failed >> place & 1 == 0
                && match with_pages {
                    true => taken >> place & 1 == 1,
                    false => metadata.get(place).is_some(),
                };
            if !read && tries < TRIES {
                recovery.again.push((unit, tries + 1));
            } else if !read {
                self.give_up_unit(&mut recovery, unit);
            } else if !with_pages {
                self.take_stamp(&mut recovery, unit, metadata[place]);
            }
        }
        self.recovery = Some(recovery);
    }

    /// A unit cannot be read.
    fn give_up_unit(&mut self, recovery: &mut Recovery, unit: u32) {
        match recovery.phase {
            Phase::Heads => {
                let (chunk, sector) = (self.layout.chunk_of(unit), self.layout.sector(unit));
                let end = recovery.heads[chunk as usize].readable.min(HEADS);
                if sector + 1 < end {
                    recovery.work.push_back((unit + 1, unit + 2));
                }
            }
            Phase::Checkpoints => recovery.hidden.push(unit),
            Phase::Scan | Phase::Tombstones => recovery.stats.unreadable_sectors += 1,
            // Whether another copy was read is asked when all have been tried.
            Phase::Roots => {}
            Phase::Pages => {
                let page = recovery.page_at(unit);
                recovery.pages.retain(|one| one.2 != unit);
                let copy = recovery
                    .pages
                    .iter()
                    .find(|one| page.is_some_and(|page| page.1 == one.1));
                recovery.work.extend(copy.map(|one| (one.2, one.2 + 1)));
            }
        }
    }

    /// What stands beside a unit.
    fn take_stamp(&mut self, recovery: &mut Recovery, unit: u32, metadata: Metadata) {
        let Some(stamp) = Stamp::decode(self.key, unit, metadata) else {
            let address = self.layout.address(unit);
            self.state = State::Failed(RecoverError::Foreign { address });
            return;
        };
        recovery.most_serial = recovery.most_serial.max(stamp.serial);
        let head = &mut recovery.heads[self.layout.chunk_of(unit) as usize];
        match recovery.phase {
            Phase::Heads => {
                head.serial = stamp.serial;
                head.checkpoint = stamp.kind.is_checkpoint();
            }
            Phase::Checkpoints => {
                head.generation = head.generation.max(stamp.sequence);
                head.last = head.last.max(self.layout.sector(unit));
                recovery.most_generation = recovery.most_generation.max(stamp.sequence);
                match stamp.kind {
                    Kind::Page => recovery.pages.push((stamp.sequence, stamp.logical, unit)),
                    Kind::Root => recovery.roots.push((stamp.sequence, unit)),
                    _ => {}
                }
            }
            Phase::Scan => {
                recovery.stats.scanned_sectors += 1;
                recovery.most_sequence = recovery.most_sequence.max(stamp.sequence);
                match stamp.kind {
                    Kind::Data | Kind::Moved => recovery.found.push(Found {
                        logical: stamp.logical,
                        unit,
                        sequence: stamp.sequence,
                    }),
                    Kind::Tombstones => {
                        head.tombstones = true;
                        recovery.tombstones.push((unit, stamp.sequence));
                    }
                    _ => {}
                }
            }
            Phase::Roots | Phase::Pages | Phase::Tombstones => {}
        }
    }

    /// What is in a page; nothing when it is not sound.
    fn take_page(&mut self, recovery: &mut Recovery, unit: u32, bytes: &[u8]) -> Option<()> {
        match recovery.phase {
            Phase::Roots => {
                let &(generation, _) = recovery.roots.iter().find(|(_, at)| *at == unit)?;
                let mut page = PageReader::open(bytes, self.key, generation, unit)?;
                recovery.root = Some(self.take_root(&mut page, generation)?);
            }
            Phase::Pages => {
                let (page, word) = PageReader::open_any(bytes, self.key, unit)?;
                let applied = recovery.root?.applied_in(word)?;
                let (_, number, _) = recovery.page_at(unit)?;
                self.take_entries(recovery, number, applied, page)?;
            }
            Phase::Tombstones => {
                let found = recovery
                    .tombstones
                    .binary_search_by_key(&unit, |(at, _)| *at);
                let (_, sequence) = recovery.tombstones[found.ok()?];
                let page = PageReader::open(bytes, self.key, sequence, unit)?;
                self.take_records(recovery, page)?;
            }
            Phase::Heads | Phase::Checkpoints | Phase::Scan => return None,
        }
        Some(())
    }

    fn take_root(&mut self, page: &mut PageReader<'_>, generation: u64) -> Option<Root> {
        let version = page.take_u32()?;
        let shape = [page.take_u32()?, page.take_u32()?, page.take_u32()?];
        let here = [
            self.layout.width,
            self.layout.lines,
            self.layout.chunk_units,
        ];
        let root = Root {
            generation,
            logical: page.take_u32()?,
            serial: page.take_u32()?,
            applied: page.take_u64()?,
            sequence: page.take_u64()?,
        };
        if version != VERSION {
            self.state = State::Failed(RecoverError::Version(version));
        } else if shape != here || root.logical > self.layout.units() {
            self.state = State::Failed(RecoverError::Mismatch);
        }
        Some(root)
    }

    fn take_entries(
        &self,
        recovery: &mut Recovery,
        number: u32,
        applied: u64,
        mut page: PageReader<'_>,
    ) -> Option<()> {
        let maps = self.layout.map_pages();
        *recovery.loaded.get_mut(number as usize)? = true;
        if number < maps {
            recovery.applied[number as usize] = applied;
            let first = number * UNITS_PER_PAGE;
            let end = (first + UNITS_PER_PAGE).min(self.layout.logical);
            for entry in &mut recovery.entries[first as usize..end as usize] {
                *entry = page.take_u32()?;
            }
        } else {
            let first = ((number - maps) * LINES_PER_PAGE) as usize;
            let lines = recovery.table.iter_mut().skip(first);
            for line in lines.take(LINES_PER_PAGE as usize) {
                *line = (page.take_u32()?, page.take_u32()?);
            }
        }
        Some(())
    }

    fn take_records(&self, recovery: &mut Recovery, mut page: PageReader<'_>) -> Option<()> {
        let count = page.take_u64()?.min(RECORDS);
        for _ in 0..count {
            let (first, units) = (page.take_u32()?, page.take_u32()?);
            let sequence = page.take_u64()?;
            let fits = first
                .checked_add(units)
                .is_some_and(|end| end <= self.layout.logical);
            recovery.most_sequence = recovery.most_sequence.max(sequence);
            if fits {
                recovery.gone.push(Gone {
                    first,
                    count: units,
                    sequence,
                });
            }
        }
        Some(())
    }

    /// What comes after a phase, with its reads; nothing after the last.
    fn next_phase(&mut self, recovery: &mut Recovery) -> Result<Option<Phase>, RecoverError> {
        let layout = &self.layout;
        Ok(Some(match recovery.phase {
            Phase::Heads => {
                recovery.read_chunks(layout, |_, head| head.checkpoint);
                Phase::Checkpoints
            }
            Phase::Checkpoints => {
                let newest = recovery
                    .roots
                    .iter()
                    .map(|(generation, _)| *generation)
                    .max();
                let newest = newest.ok_or(match recovery.hidden.is_empty() {
                    true => RecoverError::NotFormatted,
                    false => RecoverError::Unreadable,
                })?;
                self.check_hidden(recovery, newest)?;
                let roots = recovery.roots.iter().filter(|(one, _)| *one == newest);
                recovery
                    .work
                    .extend(roots.map(|&(_, unit)| (unit, unit + 1)));
                Phase::Roots
            }
            Phase::Roots => {
                let root = recovery.root.ok_or(RecoverError::Unreadable)?;
                self.layout.logical = root.logical;
                recovery.stats.generation = root.generation;
                recovery.entries = vec![NONE; root.logical as usize];
                recovery.applied = vec![root.applied; self.layout.map_pages() as usize];
                recovery.loaded = vec![false; self.layout.pages() as usize];
                for &(_, unit) in recovery
                    .roots
                    .iter()
                    .filter(|(one, _)| *one == root.generation)
                {
                    recovery.heads[self.layout.chunk_of(unit) as usize].needed = true;
                }
                let newest = |page: &(u64, u32, u32)| page.0 == root.generation;
                recovery.pages.retain(newest);
                recovery.pages.sort_unstable_by_key(|(_, _, unit)| *unit);
                let mut wanted = vec![true; self.layout.pages() as usize];
                for &(_, number, unit) in &recovery.pages {
                    recovery.heads[self.layout.chunk_of(unit) as usize].needed = true;
                    let first = wanted.get_mut(number as usize);
                    if first.is_some_and(core::mem::take) {
                        recovery.work.push_back((unit, unit + 1));
                    }
                }
                Phase::Pages
            }
            Phase::Pages => {
                if recovery.loaded.contains(&false) {
                    return Err(RecoverError::Unreadable);
                }
                let (table, width) = (core::mem::take(&mut recovery.table), layout.width);
                recovery.read_chunks(layout, |chunk, head| {
                    let (serial, flags) = table[(chunk / width) as usize];
                    let settled = head.serial == serial && flags & SETTLED != 0;
                    !head.checkpoint && head.serial != 0 && !settled
                });
                recovery.table = table;
                Phase::Scan
            }
            Phase::Scan => {
                recovery.tombstones.sort_unstable();
                let units = recovery.tombstones.iter();
                recovery
                    .work
                    .extend(units.map(|&(unit, _)| (unit, unit + 1)));
                Phase::Tombstones
            }
            Phase::Tombstones => {
                self.map = Map::new(&self.layout);
                return Ok(None);
            }
        }))
    }

    /// A root has two copies. When as many units that may be newer than the newest root cannot be
    /// read, they may be one. What has a sector of the same chunk behind it is not newer than that.
    fn check_hidden(&self, recovery: &Recovery, newest: u64) -> Result<(), RecoverError> {
        let newer = |unit: &&u32| {
            let head = recovery.heads[self.layout.chunk_of(**unit) as usize];
            head.generation > newest
                || head.generation == newest && self.layout.sector(**unit) > head.last
        };
        match recovery.hidden.iter().filter(newer).count() {
            0 | 1 => Ok(()),
            _ => Err(RecoverError::Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::channel::{self, Device};
    use crate::ftl::Options;
    use crate::ftl::stamp::PageWriter;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;

    const KEY: u64 = 9;

    /// An FTL that recovers, and has read a root of this version and width.
    fn with_root(version: u32, width: Option<u32>) -> Ftl {
        let profile = Profile::named("dct983").expect("it ships");
        let device =
            Device::new(&profile, 1 << 30, 1, channel::Options::default()).expect("it suits");
        let geometry = device.geometry();
        let units: Vec<_> = (0..geometry.groups).map(|group| (group, 0)).collect();
        let mut ftl = Ftl::recover(geometry, &units, device.report(), KEY, Options::default())
            .expect("there are chunks enough");
        let mut bytes = vec![0; crate::UNIT_BYTES as usize];
        let mut page = PageWriter::new(&mut bytes);
        page.put_u32(version);
        page.put_u32(width.unwrap_or(ftl.layout.width));
        page.put_u32(ftl.layout.lines);
        page.put_u32(ftl.layout.chunk_units);
        page.put_u32(ftl.layout.logical);
        page.seal(KEY, 1, 0);
        let mut page = PageReader::open(&bytes, KEY, 1, 0).expect("it was sealed so");
        assert!(ftl.take_root(&mut page, 1).is_some());
        ftl
    }

    #[test]
    fn a_checkpoint_of_another_version_is_refused_by_its_version() {
        assert_eq!(with_root(VERSION, None).state(), State::Recovering);
        for version in [VERSION - 1, VERSION + 1] {
            // Of another version, the shape says nothing.
            for width in [None, Some(1000)] {
                let error = RecoverError::Version(version);
                assert_eq!(with_root(version, width).state(), State::Failed(error));
                let message = format!("{error}");
                assert!(message.contains(&format!("version {version}")), "{message}");
            }
        }
        let other = with_root(VERSION, Some(1000));
        assert_eq!(other.state(), State::Failed(RecoverError::Mismatch));
    }
}
