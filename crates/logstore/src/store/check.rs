//! The check: trees, segment table and accounting say the same, at the last cut.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::io::{Outcome, Refused, Request};
use super::segments::Geometry;
use super::segments::Use;
use super::state::{State, Store, Tally};
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::page;
use crate::format::{BLOCK_SECTORS, Block};

/// Leaves that are read ahead.
const AHEAD: u64 = 16;

/// Something that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A leaf cannot be read: its chunks are lost.
    LostLeaf(Lineage, u64),
    /// A chunk is said to be inherited from a layer that does not have it.
    NotInherited(Lineage, u64),
    /// A chunk is said to be where no data of this use of the segment can be, or where another is.
    Misplaced(Lineage, u64),
    /// A segment has so many live sectors; its row says otherwise.
    Segment {
        /// Which.
        segment: u32,
        /// Found in leaves.
        counted: u32,
        /// In the segment table.
        recorded: u32,
    },
    /// A volume has so much stored; the catalogue says otherwise.
    Volume {
        /// Which.
        lineage: Lineage,
        /// Found in leaves.
        counted: Tally,
        /// In the catalogue.
        recorded: Tally,
    },
    /// A volume inherits so many chunks; the catalogue says otherwise.
    Shared {
        /// Which.
        lineage: Lineage,
        /// Found in leaves.
        counted: u64,
        /// In the catalogue.
        recorded: u64,
    },
    /// Pages that no tree refers to, or that two do.
    Pages {
        /// Found in trees.
        counted: u64,
        /// In the page table.
        recorded: u64,
    },
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Leaves that were read.
    pub leaves: u64,
    /// Chunks with data.
    pub chunks: u64,
    /// Chunks that the medium has lost.
    pub lost: u64,
    /// What does not fit.
    pub problems: Vec<Problem>,
}

#[derive(Debug)]
pub(super) struct Checker {
    request: Request,
    /// The volume and the leaf that come next.
    at: (Lineage, u64),
    counted: Tally,
    shared: u64,
    /// A leaf whose inherited entries are looked up, from this place on.
    inherited: Option<(Box<Block>, usize)>,
    pages: u64,
    live: Vec<u32>,
    /// A bit for each block that holds data, or for each sector where some are packed.
    taken: Vec<u64>,
    /// Sectors of a bit.
    unit: u64,
    report: Report,
}

impl Checker {
    pub fn request(&self) -> Request {
        self.request
    }
}

impl Checker {
    /// Whether some of the data were taken already; now all of them are.
    fn take(&mut self, geometry: Geometry, entry: Entry) -> bool {
        let first = geometry.first_block * BLOCK_SECTORS;
        let bits = (entry.address() - first) / self.unit..(entry.end() - first).div_ceil(self.unit);
        bits.fold(false, |twice, bit| {
            let taken = &mut self.taken[bit as usize / 64];
            let before = *taken >> (bit % 64) & 1 == 1;
            *taken |= 1 << (bit % 64);
            twice || before
        })
    }
}

impl Store {
    /// Counts everything again, as of the last checkpoint. No checkpoint begins meanwhile. When the
    /// request is done, [`take_report`](Self::take_report) has the result.
    pub fn check(&mut self, request: Request) -> Result<(), Refused> {
        if !matches!(self.state, State::Ready) {
            return Err(Refused::NotReady);
        }
        if self.checker.is_some() {
            return Err(Refused::Busy);
        }
        let segments = self.segments.geometry.segments;
        let blocks = u64::from(segments) * u64::from(self.segments.geometry.segment_blocks);
        let packed = self.volumes.values().any(|volume| volume.tally.packed > 0);
        let unit = if packed { 1 } else { BLOCK_SECTORS };
        self.checker = Some(Checker {
            request,
            at: (Lineage(0), 0),
            counted: Tally::default(),
            shared: 0,
            inherited: None,
            pages: 0,
            live: vec![0; segments as usize],
            taken: vec![0; (blocks * BLOCK_SECTORS).div_ceil(64 * unit) as usize],
            unit,
            report: Report::default(),
        });
        Ok(())
    }

    /// What the last check found, once.
    pub fn take_report(&mut self) -> Option<Report> {
        self.report.take()
    }

    pub(super) fn step_check(&mut self) {
        if self.checkpoint.is_busy() {
            return;
        }
        let Some(mut checker) = self.checker.take() else {
            return;
        };
        while self.check_leaf(&mut checker) {}
        if checker.at.0 > Lineage::LAST {
            self.end_check(&mut checker);
            self.answer(checker.request, Outcome::Success);
            self.report = Some(checker.report);
            self.progress = true;
            return;
        }
        self.checker = Some(checker);
    }

    /// Counts the next leaf; false when it has to be read, or there is none.
    fn check_leaf(&mut self, checker: &mut Checker) -> bool {
        let (from, leaf) = checker.at;
        let Some((&lineage, volume)) = self.volumes.range(from..).next() else {
            checker.at.0 = Lineage(Lineage::LAST.0 + 1);
            return false;
        };
        let (recorded, shared) = (volume.tally, volume.shared);
        // What inherits from a layer that is being deleted is counted, not what that inherits.
        let deleting = volume.deleting;
        let leaf = if lineage == from { leaf } else { 0 };
        let Some(next) = self.next_source(lineage, leaf) else {
            end_volume(checker, lineage, recorded, shared, deleting);
            checker.at = (Lineage(lineage.0 + 1), 0);
            return true;
        };
        let mut ahead = next;
        for _ in 0..AHEAD {
            self.load(self.source(lineage, ahead).0);
            match self.next_source(lineage, ahead + 1) {
                Some(leaf) => ahead = leaf,
                None => break,
            }
        }
        checker.at = (lineage, next);
        let (page, layer) = self.source(lineage, next);
        if self.loading.contains(&page) {
            return false;
        }
        if checker.inherited.is_none() {
            if layer == lineage {
                self.count_leaf(checker, lineage, next, page);
            } else if let Some(bytes) = self.cache.get(page) {
                let places = 0..LEAF_CHUNKS as usize;
                let entries = places.map(|place| page::leaf_entry(bytes, place));
                let shared = entries.filter(|entry| entry.is_stored() || entry.is_inherited());
                checker.shared += shared.count() as u64;
            }
        }
        if !self.check_inherited(checker, lineage, next) {
            return false;
        }
        checker.at = (lineage, next + 1);
        true
    }

    /// The next leaf in which a layer, or one below it, has anything.
    fn next_source(&self, layer: Lineage, from: u64) -> Option<u64> {
        let mut at = self.volumes.get(&layer);
        let mut next = None;
        while let Some(volume) = at {
            let leaf = volume.tree.next_leaf(from).map(|(leaf, _)| leaf);
            next = next.into_iter().chain(leaf).min();
            let parent = volume
                .parent
                .filter(|_| !volume.deleting || volume.lineage != layer);
            at = parent.and_then(|parent| self.volumes.get(&parent));
        }
        next
    }

    /// Looks whether layers have what a leaf inherits; false when another leaf has to be read.
    fn check_inherited(&mut self, checker: &mut Checker, lineage: Lineage, leaf: u64) -> bool {
        let Some((bytes, from)) = checker.inherited.take() else {
            return true;
        };
        for place in from..LEAF_CHUNKS as usize {
            let Some((data, epoch)) = page::leaf_entry(&bytes, place).origin() else {
                continue;
            };
            let chunk = leaf * LEAF_CHUNKS + place as u64;
            let page = self.page_of(self.holder(data, epoch, leaf), leaf);
            let good = match self.entry_of(page, chunk) {
                _ if page == 0 => false,
                Ok(entry) => entry.is_stored() || entry.is_lost(),
                Err(page) => {
                    self.load(page);
                    checker.inherited = Some((bytes, place));
                    return false;
                }
            };
            if !good {
                let problem = Problem::NotInherited(lineage, chunk);
                checker.report.problems.push(problem);
            }
        }
        true
    }

    fn count_leaf(&mut self, checker: &mut Checker, lineage: Lineage, leaf: u64, page: u32) {
        checker.pages += 1;
        checker.report.leaves += 1;
        let Some(bytes) = self.cache.get(page) else {
            checker
                .report
                .problems
                .push(Problem::LostLeaf(lineage, leaf));
            return;
        };
        checker.inherited = Some((Box::new(*bytes), 0));
        for place in 0..LEAF_CHUNKS as usize {
            let entry = page::leaf_entry(bytes, place);
            checker.shared += u64::from(entry.is_inherited());
            checker.report.lost += u64::from(entry.is_lost());
            if !entry.is_stored() {
                continue;
            }
            checker.counted.add(entry);
            checker.report.chunks += 1;
            let geometry = self.segments.geometry;
            let from = geometry.segment_of(entry.address());
            let found = geometry.locate((entry.end() - 1) / BLOCK_SECTORS);
            let good = found.is_some_and(|(number, within)| {
                let segment = self.segments.get(number);
                let used = matches!(
                    segment.used,
                    Use::Open | Use::Closed | Use::Victim | Use::Drained | Use::Freeing
                );
                checker.live[number as usize] += entry.sectors();
                let twice = from != Some(number) || checker.take(geometry, entry);
                let generation = segment.generation & 0xfff;
                used && !twice
                    && within < segment.done
                    && u32::from(entry.generation()) == generation
            });
            if !good {
                let chunk = leaf * LEAF_CHUNKS + place as u64;
                checker
                    .report
                    .problems
                    .push(Problem::Misplaced(lineage, chunk));
            }
        }
    }

    fn end_check(&mut self, checker: &mut Checker) {
        for (segment, state) in self.segments.iter() {
            let counted = checker.live[segment as usize];
            let recorded = if state.used == Use::Map {
                0
            } else {
                state.live
            };
            if counted != recorded {
                checker.report.problems.push(Problem::Segment {
                    segment,
                    counted,
                    recorded,
                });
            }
        }
        let inner: usize = self
            .volumes
            .values_mut()
            .map(|volume| volume.tree.inner_mut().count())
            .sum();
        let counted = checker.pages + inner as u64;
        let numbered = self
            .pages
            .iter()
            .filter(|(page, _)| !self.pages.system.has(*page));
        let recorded = numbered.filter(|(_, page)| page.is_used()).count() as u64;
        if counted != recorded {
            checker
                .report
                .problems
                .push(Problem::Pages { counted, recorded });
        }
    }
}

/// Holds what was counted of a volume against its row.
fn end_volume(
    checker: &mut Checker,
    lineage: Lineage,
    recorded: Tally,
    shared: u64,
    deleting: bool,
) {
    let counted = core::mem::take(&mut checker.counted);
    if counted != recorded {
        checker.report.problems.push(Problem::Volume {
            lineage,
            counted,
            recorded,
        });
    }
    let (counted, recorded) = (core::mem::take(&mut checker.shared), shared);
    if counted != recorded && !deleting {
        checker.report.problems.push(Problem::Shared {
            lineage,
            counted,
            recorded,
        });
    }
}
