//! How far a scrub is, and what it reads next.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::io::{Read, Request};
use super::scan::Scan;
use crate::entry::Lineage;
use crate::format::batch::RecordKind;
use crate::format::rows::PageRef;
use crate::format::{BLOCK_SECTORS, Block, block_sum};

/// Blocks that are read together.
const RUN: u64 = 32;

/// How far a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scrubbed {
    /// Segments and pages of the map that were read.
    pub done: u64,
    /// All of them.
    pub of: u64,
    /// Blocks that could not be read, or were not what they have to be.
    pub lost: u64,
}

#[derive(Debug)]
pub(super) struct Scrubber {
    pub request: Request,
    /// The segment that is being read, which is not freed meanwhile.
    pub segment: Option<u32>,
    pub next_segment: u32,
    pub next_page: u32,
    pub scan: Option<Scan>,
    pub runs: VecDeque<(u64, Vec<Read>)>,
    pub reading: bool,
}

/// Whether data or a page are what they have to be.
pub(super) fn is_scrubbed(read: &Read, bytes: &[u8]) -> bool {
    match read.lineage {
        PAGE => <&Block>::try_from(bytes).is_ok_and(|bytes| block_sum(bytes) == read.crc),
        _ => read.is_stored_as(bytes),
    }
}

/// A page of the map: volumes have numbers from 1 on.
pub(super) const PAGE: Lineage = Lineage(0);

impl Scrubber {
    /// All data of a segment are to be read.
    pub fn add_data(&mut self, scan: &Scan) {
        let records = scan.batches.iter().flat_map(|batch| &batch.records);
        let data = records.filter(|one| one.sectors > 0 && one.kind != RecordKind::Void);
        let (mut begin, mut run) = (0, Vec::new());
        for record in data {
            let block = record.address / BLOCK_SECTORS;
            if run.is_empty() || block < begin || block >= begin + RUN {
                self.runs.push_back((begin, core::mem::take(&mut run)));
                begin = block;
            }
            let entry = record.entry(0);
            run.push(Read::new(record.lineage, record.chunk, entry, begin));
        }
        self.runs.push_back((begin, run));
        self.runs.retain(|(_, chunks)| !chunks.is_empty());
    }

    /// A page of the map is to be read, in both places.
    pub fn add_page(&mut self, page: PageRef) {
        let places = [page.block, page.copy].into_iter();
        for block in places.filter(|block| *block != 0) {
            let read = Read {
                lineage: PAGE,
                chunk: 0,
                first: 0,
                sectors: BLOCK_SECTORS as u32,
                codec: 0,
                crc: page.crc,
            };
            self.runs.push_back((block, Vec::from([read])));
        }
    }
}
