//! A scrub: everything that the pool holds is read and verified, segment by segment, then page by
//! page of the map. Each read says that it was not good before ([`Io::is_again`](super::Io)), so
//! that a driver whose device has copies reads all of them, and puts right what differs.

use alloc::collections::VecDeque;

use super::io::{Action, IoError, IoOp, Outcome, Purpose, Read, Refused, Request, Tag};
use super::scan::Scan;
use super::scrubber::{PAGE, Scrubbed, Scrubber, is_scrubbed};
use super::segments::Use;
use super::state::{State, Store};
use crate::format::BLOCK_SECTORS;
use crate::format::rows::PageRef;

impl Store {
    /// Reads and verifies everything, one read at a time. When the request is done,
    /// [`scrubbed`](Self::scrubbed) has the result.
    pub fn scrub(&mut self, request: Request) -> Result<(), Refused> {
        if !matches!(self.state, State::Ready) {
            return Err(Refused::NotReady);
        }
        if self.scrubber.is_some() {
            return Err(Refused::Busy);
        }
        self.scrubbed = Scrubbed {
            of: u64::from(self.segments.geometry.segments) + u64::from(self.pages.count()),
            ..Scrubbed::default()
        };
        self.scrubber = Some(Scrubber {
            request,
            segment: None,
            next_segment: 0,
            next_page: 0,
            scan: None,
            runs: VecDeque::new(),
            reading: false,
        });
        self.progress = true;
        Ok(())
    }

    /// Ends a scrub where it is.
    pub fn stop_scrub(&mut self) {
        if let Some(scrubber) = &mut self.scrubber {
            (scrubber.next_segment, scrubber.next_page) = (u32::MAX, u32::MAX);
            scrubber.runs.clear();
            scrubber.scan = None;
        }
    }

    /// Whether a scrub runs.
    pub fn is_scrubbing(&self) -> bool {
        self.scrubber.is_some()
    }

    /// Whether writes wait for segments: that may be for one that a scrub reads.
    pub fn is_starved(&self) -> bool {
        self.lanes.iter().any(|lane| lane.starved)
    }

    /// How far the scrub is that runs, or was the last one.
    pub fn scrubbed(&self) -> Scrubbed {
        self.scrubbed
    }

    pub(super) fn step_scrub(&mut self) {
        let Some(mut scrubber) = self.scrubber.take_if(|it| !it.reading) else {
            return;
        };
        match self.scrub_on(&mut scrubber) {
            true => self.scrubber = Some(scrubber),
            false => {
                self.unpin(&mut scrubber);
                self.answer(scrubber.request, Outcome::Success);
            }
        }
    }

    /// Begins the next read; false if there is none.
    fn scrub_on(&mut self, scrubber: &mut Scrubber) -> bool {
        loop {
            if let Some((block, chunks)) = scrubber.runs.pop_front() {
                let ends = chunks.iter().map(|read| read.first + read.sectors);
                let blocks = ends.max().unwrap_or(0).div_ceil(BLOCK_SECTORS as u32);
                let tag = self.scrub_read(scrubber, block, blocks);
                self.ios.get_mut(tag).chunks.extend(chunks);
                return true;
            }
            match scrubber.scan.as_ref().map(Scan::next) {
                Some(Some((block, blocks))) => {
                    self.scrub_read(scrubber, block, blocks);
                    return true;
                }
                Some(None) => {
                    if let Some(scan) = scrubber.scan.take() {
                        scrubber.add_data(&scan);
                    }
                }
                None => {
                    self.unpin(scrubber);
                    if !self.scrub_segment(scrubber) && !self.scrub_page(scrubber) {
                        return false;
                    }
                }
            }
        }
    }

    fn scrub_read(&mut self, scrubber: &mut Scrubber, block: u64, blocks: u32) -> Tag {
        let purpose = match scrubber.scan {
            Some(_) => Purpose::ScrubList,
            None => Purpose::Scrub,
        };
        let tag = self.ios.begin(IoOp::Read, block, blocks, purpose);
        // All copies, from the beginning.
        self.ios.get_mut(tag).tries = 1;
        self.out.push_back(Action::Submit(tag));
        scrubber.reading = true;
        tag
    }

    pub(super) fn unpin(&mut self, scrubber: &mut Scrubber) {
        if let Some(segment) = scrubber.segment.take() {
            self.segments.get_mut(segment).readers -= 1;
        }
    }

    /// Goes to the next segment with data; false behind the last one.
    fn scrub_segment(&mut self, scrubber: &mut Scrubber) -> bool {
        let geometry = self.segments.geometry;
        while scrubber.next_segment < geometry.segments {
            let number = scrubber.next_segment;
            scrubber.next_segment += 1;
            self.scrubbed.done += 1;
            let segment = self.segments.get_mut(number);
            if !matches!(segment.used, Use::Open | Use::Closed | Use::Victim) {
                continue;
            }
            segment.readers += 1;
            let (generation, end) = (segment.generation, segment.done);
            let scan = Scan::new(number, generation, geometry);
            scrubber.scan = Some(scan.up_to(end));
            scrubber.segment = Some(number);
            return true;
        }
        false
    }

    /// Goes to the next page of the map; false behind the last one.
    fn scrub_page(&mut self, scrubber: &mut Scrubber) -> bool {
        while scrubber.next_page < self.pages.count() {
            let page = self.pages.get(scrubber.next_page);
            scrubber.next_page += 1;
            self.scrubbed.done += 1;
            if page.is_used() {
                scrubber.add_page(page);
                return true;
            }
        }
        false
    }

    /// A part of a list was read.
    pub(super) fn scrub_listed(&mut self, tag: Tag, result: Result<&[u8], IoError>) {
        self.ios.release(tag);
        let secret = self.secret;
        if let Some(scrubber) = &mut self.scrubber {
            scrubber.reading = false;
            if let Some(scan) = &mut scrubber.scan {
                scan.take(secret, result);
            }
        }
    }

    /// Data or a page were read.
    pub(super) fn scrub_ended(&mut self, tag: Tag, result: Result<&[u8], IoError>) {
        let io = self.ios.get(tag);
        let bytes = result.unwrap_or_default();
        let is_lost = |read: &&Read| !read.of(bytes).is_some_and(|part| is_scrubbed(read, part));
        let lost = io.chunks.iter().filter(is_lost).count() as u64;
        let is_page = io.chunks.first().is_some_and(|read| read.lineage == PAGE);
        // A page that has moved meanwhile is nowhere any more.
        let is_there = |page: PageRef| page.block == io.block || page.copy == io.block;
        if !is_page || self.pages.iter().any(|(_, page)| is_there(page)) {
            self.scrubbed.lost += lost;
        }
        self.ios.release(tag);
        if let Some(scrubber) = &mut self.scrubber {
            scrubber.reading = false;
        }
    }

    /// Whether bytes are what the list of the segment that is scrubbed goes on with.
    pub(super) fn is_scrub_list(&self, bytes: &[u8]) -> bool {
        let scan = self.scrubber.as_ref().and_then(|it| it.scan.as_ref());
        scan.is_none_or(|scan| scan.is_good(self.secret, bytes))
    }
}
