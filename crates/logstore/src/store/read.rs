//! Reads of hosts: found, read and verified.

use super::io::{Action, IoError, IoOp, Outcome, Purpose, Read, Tag};
use super::reads::{Found, Stalled};
use super::state::{State, Store};
use crate::chunk::begin;
use crate::entry::{Entry, Lineage};
use crate::format::BLOCK_SECTORS;

impl Store {
    pub(super) fn begin_read(&mut self, read: Stalled) {
        let mut entries = core::mem::take(&mut self.reads.scratch);
        entries.clear();
        let Some(form) = self.volumes.get(&read.lineage).map(|volume| volume.form) else {
            return self.answer(read.request, Outcome::MediaError);
        };
        let (mut ready, mut lost) = (true, false);
        for chunk in read.chunk..read.chunk + u64::from(read.count) {
            match self.find(read.lineage, chunk) {
                Found::At(entry, data) => {
                    // What a failed device did not take is nowhere.
                    let written = self.is_written(entry);
                    let failed = matches!(self.state, State::ReadOnly(_));
                    lost |= entry.is_lost() || !written && failed;
                    // A sound pool has no other entries.
                    lost |= entry.is_stored() && !form.takes(entry.sectors(), entry.codec());
                    ready &= written;
                    entries.push((entry, data));
                }
                Found::In(page) => {
                    ready = false;
                    self.load_for_host(page, read.lineage);
                }
            }
        }
        match ready {
            _ if lost => self.answer(read.request, Outcome::MediaError),
            false => self.reads.stalled.push(read),
            true => self.submit_read(read, form.chunk_blocks(), &entries),
        }
        self.reads.scratch = entries;
    }

    /// Whether the batch that has the data is complete.
    fn is_written(&self, entry: Entry) -> bool {
        if !entry.is_stored() {
            return true;
        }
        let last = (entry.end() - 1) / BLOCK_SECTORS;
        let found = self.segments.geometry.locate(last);
        found.is_some_and(|(segment, within)| within < self.segments.get(segment).done)
    }

    /// One I/O for each run of chunks that lie side by side.
    fn submit_read(&mut self, read: Stalled, chunk_blocks: u32, entries: &[(Entry, Lineage)]) {
        let slot = self.reads.begin(read.request);
        let mut next = 0;
        while let Some(&(first, _)) = entries.get(next) {
            let pairs = entries[next..].windows(2);
            let run = 1 + pairs
                .take_while(|pair| follows(pair[0].0, pair[1].0))
                .count();
            let (run, at) = (&entries[next..next + run], next);
            next += run.len();
            let place = at as u32 * chunk_blocks;
            let Some(segment) = self.segments.geometry.segment_of(first.address()) else {
                self.out.push_back(Action::Zeroes {
                    request: read.request,
                    first: place,
                    blocks: run.len() as u32 * chunk_blocks,
                });
                continue;
            };
            self.segments.get_mut(segment).readers += 1;
            let block = first.address() / BLOCK_SECTORS;
            let end = run.last().map_or(0, |(last, _)| last.end());
            let blocks = (end.div_ceil(BLOCK_SECTORS) - block) as u32;
            let purpose = Purpose::Host(slot);
            let tag = self.ios.begin(IoOp::Read, block, blocks, purpose);
            let io = self.ios.get_mut(tag);
            io.host = Some((read.request, place));
            let chunks = read.chunk + at as u64..;
            let chunks = chunks.zip(run);
            let chunks =
                chunks.map(|(chunk, (entry, data))| Read::new(*data, chunk, *entry, block));
            io.chunks.extend(chunks);
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
        let good = result.is_ok_and(|bytes| io.chunks.iter().all(|chunk| chunk.is_good(bytes)));
        if !good && io.tries == 0 {
            self.stats.bad_reads += 1;
            self.ask_again(tag);
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

/// Whether one read gives both: both are zeroes, or one lies right behind the other.
fn follows(one: Entry, other: Entry) -> bool {
    match one.is_stored() && other.is_stored() {
        true => other.address() == begin(one.end(), other.codec()),
        false => !one.is_stored() && !other.is_stored(),
    }
}
