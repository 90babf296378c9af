//! Whether what a read gave is what it has to be, part by part: for a driver that has other copies
//! of what was not good.
//!
//! A read that was not good is asked for once more, and says so ([`Io::is_again`]). A driver whose
//! device has copies reads them one by one then, until each part is good, and may write the good
//! one over the others: while a read is in flight nothing else is written where it reads.

use alloc::vec::Vec;
use core::ops::Range;

use super::io::{Io, IoError, Purpose, Read, Tag};
use super::recovery::Job;
use super::scrubber::is_scrubbed;
use super::state::Store;
use crate::format::fields::{get_u32, get_u64};
use crate::format::page::{self, PageKind};
use crate::format::{BLOCK_SECTORS, Block, SECTOR, block_sum};

impl Io {
    /// What was read before was not what it has to be.
    pub fn is_again(&self) -> bool {
        self.tries > 0
    }

    /// A scrub reads it: others go before.
    pub fn is_scrub(&self) -> bool {
        matches!(self.purpose, Purpose::Scrub | Purpose::ScrubList)
    }
}

impl Store {
    /// The parts of a read, in sectors of what is read: each is good or not by itself.
    pub fn parts(&self, tag: Tag) -> Vec<Range<u32>> {
        let io = self.ios.get(tag);
        let whole = 0..io.blocks * BLOCK_SECTORS as u32;
        let payload = |job| match self
            .recovery
            .as_ref()
            .and_then(|it| it.job(job).zip(Some(it)))
        {
            Some((Job::Payload(batch), recovery)) => Some(recovery.replay.data(batch, io.block)),
            _ => None,
        };
        let parts = |reads: &mut dyn Iterator<Item = Read>| {
            reads
                .map(|read| read.first..read.first + read.sectors)
                .collect()
        };
        match io.purpose {
            Purpose::Host(_) | Purpose::Collect | Purpose::Scrub => {
                parts(&mut io.chunks.iter().copied())
            }
            Purpose::Recover(job) => match payload(job) {
                Some(mut data) => parts(&mut data),
                None => Vec::from([whole]),
            },
            _ => Vec::from([whole]),
        }
    }

    /// Whether what was read of a part is what it has to be.
    pub fn is_good(&self, tag: Tag, part: &Range<u32>, bytes: &[u8]) -> bool {
        let io = self.ios.get(tag);
        match io.purpose {
            Purpose::Host(_) | Purpose::Collect => {
                let mut chunks = io.chunks.iter();
                let chunk = chunks.find(|chunk| chunk.first == part.start);
                chunk.is_some_and(|chunk| chunk.is_stored_as(bytes))
            }
            Purpose::Scrub => {
                let mut chunks = io.chunks.iter();
                let chunk = chunks.find(|chunk| chunk.first == part.start);
                chunk.is_some_and(|chunk| is_scrubbed(chunk, bytes))
            }
            Purpose::ScrubList => self.is_scrub_list(bytes),
            Purpose::Leaf(page) => self.is_leaf(page, bytes),
            Purpose::List(victim) => self.is_list(victim, bytes),
            Purpose::Recover(job) => self.is_recovered(io, job, part, bytes),
            _ => true,
        }
    }

    /// What a leaf has to be.
    pub(super) fn is_leaf(&self, page: u32, bytes: &[u8]) -> bool {
        let Ok(bytes) = <&Block>::try_from(bytes) else {
            return false;
        };
        block_sum(bytes) == self.pages.get(page).crc
            && bytes[4] == PageKind::Leaf as u8
            && get_u64(bytes, 24) == u64::from(page)
            && get_u32(bytes, 0) != 0
            && page::check_leaf(bytes).is_ok()
    }

    fn is_recovered(&self, io: &Io, job: u32, part: &Range<u32>, bytes: &[u8]) -> bool {
        let Some(recovery) = &self.recovery else {
            return true;
        };
        match recovery.job(job) {
            Some(Job::Scan(scan)) => recovery.replay.is_list(scan, self.secret, bytes),
            Some(Job::Payload(batch)) => {
                let mut data = recovery.replay.data(batch, io.block);
                let read = data.find(|read| read.first == part.start);
                read.is_none_or(|read| read.is_stored_as(bytes))
            }
            Some(page) => {
                let bytes = <&Block>::try_from(bytes);
                bytes.is_ok_and(|bytes| block_sum(bytes) == self.place_of(page).crc)
            }
            None => true,
        }
    }

    /// Asks once more for what is verified in one place only: lists, and what recovery reads.
    pub(super) fn asks_again(&mut self, tag: Tag, result: Result<&[u8], IoError>) -> bool {
        let io = self.ios.get(tag);
        let is_of_these = matches!(io.purpose, Purpose::List(_) | Purpose::Recover(_));
        if !is_of_these || io.is_again() || self.is_whole(tag, result) {
            return false;
        }
        self.ask_again(tag);
        true
    }

    fn is_whole(&self, tag: Tag, result: Result<&[u8], IoError>) -> bool {
        let Ok(bytes) = result else {
            return false;
        };
        self.parts(tag).iter().all(|part| {
            let at = part.start as usize * SECTOR..part.end as usize * SECTOR;
            bytes
                .get(at)
                .is_some_and(|bytes| self.is_good(tag, part, bytes))
        })
    }
}
