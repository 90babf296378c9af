//! Reads of hosts: found, read and verified.

use super::io::{Action, IoError, IoOp, Outcome, Purpose, Sum, Tag};
use super::reads::{Found, Stalled, verify};
use super::state::{State, Store};
use crate::entry::Entry;
use crate::format::BLOCK_SECTORS;

impl Store {
    pub(super) fn begin_read(&mut self, read: Stalled) {
        let mut entries = core::mem::take(&mut self.reads.scratch);
        entries.clear();
        let (mut ready, mut lost) = (true, false);
        for chunk in read.chunk..read.chunk + u64::from(read.count) {
            match self.find(read.lineage, chunk) {
                Found::At(entry) => {
                    // What a failed device did not take is nowhere.
                    let written = self.is_written(entry);
                    lost |= entry.is_lost() || !written && self.state == State::ReadOnly;
                    ready &= written;
                    entries.push(entry);
                }
                Found::In(page) => {
                    ready = false;
                    self.load(page);
                }
            }
        }
        match ready {
            _ if lost => self.answer(read.request, Outcome::MediaError),
            false => self.reads.stalled.push(read),
            true => self.submit_read(read, &entries),
        }
        self.reads.scratch = entries;
    }

    /// Whether the batch that has the data is complete.
    fn is_written(&self, entry: Entry) -> bool {
        let block = entry.address() / BLOCK_SECTORS;
        let found = self.segments.geometry.locate(block);
        let done = found.map(|(segment, within)| within < self.segments.get(segment).done);
        !entry.is_stored() || done == Some(true)
    }

    /// One I/O for each run of chunks that lie side by side.
    fn submit_read(&mut self, read: Stalled, entries: &[Entry]) {
        let slot = self.reads.begin(read.request);
        let mut first = 0;
        while first < entries.len() {
            let follows = |at: usize| match entries[first].is_stored() {
                false => !entries[at].is_stored(),
                true => {
                    let ahead = (at - first) as u64 * BLOCK_SECTORS;
                    entries[at].is_stored()
                        && entries[at].address() == entries[first].address() + ahead
                }
            };
            let end = (first + 1..entries.len()).find(|&at| !follows(at));
            let run = first..end.unwrap_or(entries.len());
            let (at, chunks) = (first as u32, run.len() as u32);
            first = run.end;
            let Some(segment) = self
                .segments
                .geometry
                .segment_of(entries[run.start].address())
            else {
                self.out.push_back(Action::Zeroes {
                    request: read.request,
                    first: at,
                    chunks,
                });
                continue;
            };
            self.segments.get_mut(segment).readers += 1;
            let block = entries[run.start].address() / BLOCK_SECTORS;
            let purpose = Purpose::Host(slot);
            let tag = self.ios.begin(IoOp::Read, block, chunks, purpose);
            let io = self.ios.get_mut(tag);
            io.host = Some((read.request, at));
            for place in run {
                io.sums.push(Sum {
                    lineage: read.lineage,
                    chunk: read.chunk + place as u64,
                    crc: entries[place].crc,
                });
            }
            self.reads.begun[slot as usize].parts += 1;
            self.out.push_back(Action::Submit(tag));
        }
        if self.reads.begun[slot as usize].parts == 0 {
            self.reads.free.push(slot);
            self.answer(read.request, Outcome::Success);
        }
    }

    /// A part of a host's read has ended.
    pub(super) fn host_read(&mut self, tag: Tag, slot: u32, result: Result<&[u8], IoError>) {
        let io = self.ios.get(tag);
        let good = result.is_ok_and(|bytes| verify(&io.sums, bytes).all(|good| good));
        if !good && io.tries == 0 {
            self.stats.bad_reads += 1;
            self.ios.again(tag);
            self.out.push_back(Action::Submit(tag));
            return;
        }
        if let Some((segment, _)) = self.segments.geometry.locate(io.block) {
            self.segments.get_mut(segment).readers -= 1;
        }
        self.ios.release(tag);
        let read = &mut self.reads.begun[slot as usize];
        read.parts -= 1;
        read.failed |= !good;
        if read.parts == 0 {
            let outcome = match read.failed {
                true => Outcome::MediaError,
                false => Outcome::Success,
            };
            let request = read.request;
            self.reads.free.push(slot);
            self.answer(request, outcome);
        }
    }

    /// Tries again what waits for a leaf or a write.
    pub(super) fn retry_reads(&mut self) {
        if core::mem::take(&mut self.reads.poke) {
            for read in core::mem::take(&mut self.reads.stalled) {
                self.begin_read(read);
            }
        }
    }
}
