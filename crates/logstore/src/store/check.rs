//! The check: trees, segment table and accounting say the same, at the last cut.

use alloc::vec;
use alloc::vec::Vec;

use super::io::{Outcome, Refused, Request};
use super::segments::Use;
use super::state::{State, Store};
use crate::entry::{LEAF_CHUNKS, Lineage};
use crate::format::BLOCK_SECTORS;
use crate::format::page;

/// Leaves that are read ahead.
const AHEAD: u64 = 16;

/// Something that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A leaf cannot be read: its chunks are lost.
    LostLeaf(Lineage, u64),
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
    /// A volume has so many mapped chunks; the catalogue says otherwise.
    Volume {
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
    counted: u64,
    pages: u64,
    live: Vec<u32>,
    /// A bit for each block that holds data.
    taken: Vec<u64>,
    report: Report,
    done: bool,
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
        self.checker = Some(Checker {
            request,
            at: (Lineage(0), 0),
            counted: 0,
            pages: 0,
            live: vec![0; segments as usize],
            taken: vec![0; blocks.div_ceil(64) as usize],
            report: Report::default(),
            done: false,
        });
        Ok(())
    }

    /// What the last check found, once.
    pub fn take_report(&mut self) -> Option<Report> {
        let checker = self.checker.take_if(|checker| checker.done)?;
        self.progress = true;
        Some(checker.report)
    }

    pub(super) fn step_check(&mut self) {
        if self.checkpoint.is_busy() || self.checker.as_ref().is_none_or(|one| one.done) {
            return;
        }
        let Some(mut checker) = self.checker.take() else {
            return;
        };
        while self.check_leaf(&mut checker) {}
        if checker.at.0 > Lineage::LAST {
            self.end_check(&mut checker);
            checker.done = true;
            self.answer(checker.request, Outcome::Success);
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
        let leaf = if lineage == from { leaf } else { 0 };
        let Some((leaf, page)) = volume.tree.next_leaf(leaf) else {
            let recorded = volume.mapped;
            let counted = core::mem::take(&mut checker.counted);
            if counted != recorded {
                checker.report.problems.push(Problem::Volume {
                    lineage,
                    counted,
                    recorded,
                });
            }
            checker.at = (Lineage(lineage.0 + 1), 0);
            return true;
        };
        let mut ahead = leaf;
        let mut wanted = Vec::new();
        for _ in 0..AHEAD {
            let Some((leaf, page)) = volume.tree.next_leaf(ahead) else {
                break;
            };
            wanted.push(page);
            ahead = leaf + 1;
        }
        for page in wanted {
            self.load(page);
        }
        if self.loading.contains(&page) {
            checker.at = (lineage, leaf);
            return false;
        }
        self.count_leaf(checker, lineage, leaf, page);
        checker.at = (lineage, leaf + 1);
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
        for place in 0..LEAF_CHUNKS as usize {
            let entry = page::leaf_entry(bytes, place);
            checker.report.lost += u64::from(entry.is_lost());
            if !entry.is_stored() {
                continue;
            }
            checker.counted += 1;
            checker.report.chunks += 1;
            let block = entry.address() / BLOCK_SECTORS;
            let found = self.segments.geometry.locate(block);
            let good = found.is_some_and(|(number, within)| {
                let segment = self.segments.get(number);
                let used = matches!(
                    segment.used,
                    Use::Open | Use::Closed | Use::Victim | Use::Drained | Use::Freeing
                );
                checker.live[number as usize] += entry.sectors();
                let bit = block - self.segments.geometry.first_block;
                let taken = &mut checker.taken[bit as usize / 64];
                let twice = *taken >> (bit % 64) & 1 == 1;
                *taken |= 1 << (bit % 64);
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
        let system = self.system_pages();
        let inner: usize = self
            .volumes
            .values_mut()
            .map(|volume| volume.tree.inner_mut().count())
            .sum();
        let counted = checker.pages + inner as u64;
        let numbered = self.pages.iter().filter(|(page, _)| *page >= system);
        let recorded = numbered.filter(|(_, page)| page.is_used()).count() as u64;
        if counted != recorded {
            checker
                .report
                .problems
                .push(Problem::Pages { counted, recorded });
        }
    }
}
