//! Batches: filled, issued, complete in order; and written again when one fails.

use alloc::vec::Vec;

use super::io::{Action, IoOp, Outcome, Part, Purpose, Tag};
use super::lane::{Batch, End, Fate, kept};
use super::payers::Parts;
use super::segments::Use;
use super::state::{ReadOnly, State, Store};
use crate::chunk::begin;
use crate::entry::Entry;
use crate::format::batch::{Header, Lane, MOST_BATCH_RECORDS, Place, Record, RecordKind};
use crate::format::footer::{self, Item, Trailer, footer_blocks};
use crate::format::{BLOCK, BLOCK_SECTORS};

/// Batches of a lane in flight at most.
const MOST_IN_FLIGHT: usize = 64;
/// Batches that fail one after another before the device counts as failed.
const MOST_FAILURES: u32 = 4;

impl Store {
    /// Makes the open batch of a lane one that takes so many records and these data (sectors and
    /// codec of each); false when it has to wait.
    pub(super) fn make_room(
        &mut self,
        lane: Lane,
        records: u32,
        data: impl Iterator<Item = (u32, u8)> + Clone,
    ) -> bool {
        let state = &self.lanes[lane as usize];
        if state.failing || state.in_flight.len() >= MOST_IN_FLIGHT {
            return false;
        }
        let behind = |from: u32| {
            let place = |at: u32, (sectors, codec)| begin(at.into(), codec) as u32 + sectors;
            data.clone().fold(from, place)
        };
        if let Some(open) = &state.open {
            let end = behind(open.data);
            let full = open.records.len() + records as usize > MOST_BATCH_RECORDS
                || end > self.segments.geometry.most_batch() * BLOCK_SECTORS as u32;
            if !full && self.fits(lane, records, end) {
                return true;
            }
            self.issue(lane);
        }
        let room = self.fits(lane, records, behind(0)) || self.next_segment(lane, kept(lane));
        self.lanes[lane as usize].starved = !room;
        if room {
            let batch = self.spare.pop().unwrap_or_default();
            self.open_batch(lane, batch);
        }
        room
    }

    /// Whether the segment has room for the open batch with so many records more and so many
    /// sectors of data in all, and its footer.
    fn fits(&self, lane: Lane, records: u32, data: u32) -> bool {
        let state = &self.lanes[lane as usize];
        let open = state.open.as_ref();
        let open_records = open.map_or(0, |open| open.records.len() as u32);
        let items = (state.items.len() / 32) as u32 + 1 + open_records + records;
        let data = data.div_ceil(BLOCK_SECTORS as u32);
        let geometry = self.segments.geometry;
        let blocks = geometry.whole(1 + data) + geometry.whole(footer_blocks(items as usize));
        let most = geometry.segment_blocks;
        state
            .segment
            .is_some_and(|place| place.block + blocks <= most)
    }

    fn open_batch(&mut self, lane: Lane, mut batch: Batch) {
        let state = &mut self.lanes[lane as usize];
        if let Some(place) = state.segment {
            (batch.segment, batch.block) = (place.segment, place.block);
        }
        state.open = Some(batch);
    }

    /// Where the data of the open batch begin, and the generation of the segment.
    pub(super) fn first_address(&self, lane: Lane) -> (u64, u32) {
        let state = &self.lanes[lane as usize];
        let (Some(batch), Some(place)) = (&state.open, state.segment) else {
            return (0, 0);
        };
        let block = self.segments.geometry.block(place.segment);
        let block = block + u64::from(batch.block + 1);
        (block * BLOCK_SECTORS, place.generation)
    }

    /// Closes the segment of a lane and takes another, if that leaves `kept`.
    fn next_segment(&mut self, lane: Lane, kept: u32) -> bool {
        if self.segments.listed() <= kept {
            return false;
        }
        self.close_segment(lane);
        // In the order of the superblock: so recovery knows how far segments were taken.
        let mut log = self.superblock.log.iter().map(|entry| entry.segment);
        let is_listed = |&number: &u32| self.segments.get(number).used == Use::Listed;
        let Some(number) = log.find(is_listed) else {
            return false;
        };
        self.segments.set_use(number, Use::Open);
        let segment = self.segments.get_mut(number);
        (segment.live, segment.suspect, segment.stuck) = (0, false, false);
        (segment.done, segment.last, segment.log_from) = (0, 0, Some(0));
        segment.lane = lane;
        let place = Place {
            segment: number,
            generation: segment.generation,
            block: 0,
        };
        let state = &mut self.lanes[lane as usize];
        state.before_segment = state.checksum;
        state.segment = Some(place);
        true
    }

    /// Writes the footer of a lane's segment: nothing more goes there.
    pub(super) fn close_segment(&mut self, lane: Lane) {
        let state = &mut self.lanes[lane as usize];
        let Some(place) = state.segment.take() else {
            return;
        };
        let last = self.segments.geometry.segment_blocks - 1;
        let trailer = Place {
            block: last,
            ..place
        };
        let footer = Trailer::new(
            lane,
            self.incarnation,
            state.durable.1,
            state.before_segment,
        );
        let bytes = footer.encode(self.secret, trailer, &state.items);
        state.items.clear();
        let used = (bytes.len() / BLOCK) as u32;
        let blocks = self.segments.geometry.whole(used);
        let block = self.segments.geometry.block(place.segment) + u64::from(last + 1 - blocks);
        let purpose = Purpose::Footer(place.segment);
        let tag = self.ios.begin(IoOp::Write, block, blocks, purpose);
        let io = self.ios.get_mut(tag);
        io.own = bytes;
        if blocks > used {
            io.parts
                .push(Part::Gap((blocks - used) * BLOCK_SECTORS as u32));
        }
        io.parts.push(Part::Own);
        self.out.push_back(Action::Submit(tag));
        self.stats.header_blocks += u64::from(blocks);
        self.segments.set_use(place.segment, Use::Closed);
        let segment = self.segments.get_mut(place.segment);
        segment.age = self.sequence;
        segment.writers += 1;
        self.segments.touch(place.segment);
    }

    /// Issues the open batch of a lane.
    pub(super) fn issue(&mut self, lane: Lane) {
        let Some(mut batch) = self.lanes[lane as usize].open.take() else {
            return;
        };
        if lane == Lane::Collector {
            self.void_superseded(&mut batch);
        }
        let void = |record: &crate::format::batch::Record| record.kind == RecordKind::Void;
        if batch.records.iter().all(void) && batch.waiters.is_empty() {
            self.release_copies(&batch.parts);
            batch.clear();
            self.spare.push(batch);
            return;
        }
        self.lanes[lane as usize].issued += 1;
        batch.number = self.lanes[lane as usize].issued;
        self.submit_batch(lane, batch);
    }

    /// Writes a batch at the end of its lane.
    fn submit_batch(&mut self, lane: Lane, mut batch: Batch) {
        self.sequence += 1;
        let geometry = self.segments.geometry;
        let blocks = batch.blocks(geometry);
        let state = &mut self.lanes[lane as usize];
        let Some(place) = &mut state.segment else {
            return;
        };
        let header = Header {
            lane,
            incarnation: self.incarnation,
            sequence: self.sequence,
            place: *place,
            blocks,
            row: geometry.row,
            before: state.checksum,
            watermark: state.durable.1,
        };
        let block = geometry.block(place.segment) + u64::from(place.block);
        let purpose = Purpose::Batch(lane, batch.number);
        let tag = self.ios.begin(IoOp::Write, block, blocks, purpose);
        let io = self.ios.get_mut(tag);
        io.own.resize(BLOCK, 0);
        let bytes = io.own.as_mut_slice().try_into().expect("a block was made");
        batch.checksum = header.encode(self.secret, &batch.records, bytes);
        if lane != Lane::Collector {
            of_records(&batch.records, &mut io.payers);
        }
        io.parts.push(Part::Own);
        io.parts.extend_from_slice(&batch.parts);
        let filled = (blocks - 1) * BLOCK_SECTORS as u32;
        if filled > batch.data {
            io.parts.push(Part::Gap(filled - batch.data));
        }
        (batch.sequence, batch.tag, batch.fate) = (self.sequence, Some(tag), Fate::InFlight);
        batch.items_before = state.items.len();
        let item = Item::Batch(footer::Batch {
            block: place.block,
            blocks,
            records: batch.records.len() as u32,
            sequence: batch.sequence,
            checksum: batch.checksum,
        });
        state.items.extend_from_slice(&item.encode());
        for record in &batch.records {
            state.items.extend_from_slice(&record.encode());
        }
        let segment = self.segments.get_mut(place.segment);
        segment.writers += 1;
        segment.last = batch.number;
        place.block += blocks;
        state.checksum = batch.checksum;
        self.stats.header_blocks += 1;
        self.flusher.unproved += u64::from(blocks);
        self.checkpoint.log_blocks += u64::from(blocks);
        state.in_flight.push_back(batch);
        self.out.push_back(Action::Submit(tag));
    }

    /// A batch has ended.
    pub(super) fn batch_ended(&mut self, tag: Tag, lane: Lane, number: u64, good: bool) {
        self.ios.release(tag);
        let state = &mut self.lanes[lane as usize];
        let first = state.in_flight.front().map_or(number, |batch| batch.number);
        let place = number.checked_sub(first).map(|place| place as usize);
        let Some(batch) = place.and_then(|place| state.in_flight.get_mut(place)) else {
            return;
        };
        batch.fate = if good { Fate::Done } else { Fate::Failed };
        state.failing |= !good;
        let segment = batch.segment;
        self.segments.get_mut(segment).writers -= 1;
        while let Some(batch) = self.take_complete(lane) {
            self.batch_complete(lane, batch);
        }
        self.redo_when_ended(lane);
    }

    fn redo_when_ended(&mut self, lane: Lane) {
        let state = &self.lanes[lane as usize];
        let ended = |batch: &Batch| batch.fate != Fate::InFlight;
        if state.failing && state.redo.is_empty() && state.in_flight.iter().all(ended) {
            self.begin_redo(lane);
        }
    }

    fn take_complete(&mut self, lane: Lane) -> Option<Batch> {
        let in_flight = &mut self.lanes[lane as usize].in_flight;
        let done = in_flight
            .front()
            .is_some_and(|batch| batch.fate == Fate::Done);
        if done { in_flight.pop_front() } else { None }
    }

    /// A batch and all before it in its lane are written: answers.
    fn batch_complete(&mut self, lane: Lane, mut batch: Batch) {
        let end = End {
            number: batch.number,
            sequence: batch.sequence,
            checksum: batch.checksum,
            segment: batch.segment,
            block: batch.block + batch.blocks(self.segments.geometry),
        };
        let state = &mut self.lanes[lane as usize];
        state.complete = end;
        if state.redo.is_empty() && !state.failing {
            state.failures = 0;
        }
        self.checkpoint.completed(lane, end);
        self.segments.get_mut(end.segment).done = end.block;
        self.segments.touch(end.segment);
        for waiter in &batch.waiters {
            if waiter.durable {
                let mut numbers = [0; 3];
                numbers[lane as usize] = batch.number;
                let request = waiter.request;
                self.flusher
                    .waiting
                    .push(super::flusher::FlushWait { request, numbers });
            } else {
                self.answer(waiter.request, Outcome::Success);
            }
        }
        self.release_copies(&batch.parts);
        batch.clear();
        self.spare.push(batch);
        self.reads.poke = true;
    }

    /// All in flight have ended and one has failed: it and all behind it go to another segment.
    fn begin_redo(&mut self, lane: Lane) {
        let state = &mut self.lanes[lane as usize];
        state.failures += 1;
        if state.failures > MOST_FAILURES {
            return self.go_read_only();
        }
        state.checksum = state.complete.checksum;
        // Batches of an earlier segment are in its footer already: the chain that goes on without
        // them says that they failed.
        let open = state.segment.map(|place| place.segment);
        let mut in_flight = state.in_flight.iter();
        if let Some(batch) = in_flight.find(|batch| Some(batch.segment) == open) {
            state.items.truncate(batch.items_before);
        }
        if let Some(batch) = state.in_flight.front() {
            self.segments.get_mut(batch.segment).last = state.complete.number;
        }
        state.redo.extend(state.in_flight.drain(..));
        if let Some(mut open) = state.open.take() {
            // It was not issued: it gets its number now.
            state.issued += 1;
            open.number = state.issued;
            state.redo.push_back(open);
        }
        self.close_segment(lane);
    }

    /// Writes again what failed, as far as there are segments.
    pub(super) fn redo(&mut self, lane: Lane) {
        if self.lanes[lane as usize].redo.is_empty() {
            return;
        }
        while let Some(batch) = self.lanes[lane as usize].redo.front() {
            let (records, data) = (batch.records.len() as u32, batch.data);
            if !self.fits(lane, records, data) && !self.next_segment(lane, 0) {
                // A cut waits for these batches, and none begins before them: if none has begun,
                // no segments come free.
                let none_comes = !self.checkpoint.is_busy() && !self.can_list();
                if self.checkpoint.is_freezing() || none_comes {
                    return self.go_read_only();
                }
                self.checkpoint.list_wanted = true;
                return;
            }
            if let Some(batch) = self.lanes[lane as usize].redo.pop_front() {
                self.stats.reissued += 1;
                self.replace(lane, batch);
            }
        }
        // Some may have failed again while others waited for a segment.
        let state = &mut self.lanes[lane as usize];
        let failed = |batch: &Batch| batch.fate == Fate::Failed;
        state.failing = state.in_flight.iter().any(failed);
        self.redo_when_ended(lane);
    }

    /// Gives a batch a new place, and tells the memory tables.
    fn replace(&mut self, lane: Lane, mut batch: Batch) {
        let Some(place) = self.lanes[lane as usize].segment else {
            return;
        };
        let was = self.segments.get(batch.segment).generation;
        if lane == Lane::Collector {
            self.void_superseded(&mut batch);
        }
        (batch.segment, batch.block) = (place.segment, place.block);
        let first = self.segments.geometry.block(place.segment) + u64::from(place.block + 1);
        let mut address = first * BLOCK_SECTORS;
        let records = batch.records.iter_mut().zip(&batch.layers);
        for (record, &layer) in records.filter(|(record, _)| record.sectors > 0) {
            address = begin(address, record.codec);
            let from = record.entry(was);
            record.address = address;
            let to = record.entry(place.generation);
            if !self.active.relocate(layer, record.chunk, from, to) {
                self.frozen.relocate(layer, record.chunk, from, to);
            }
            address += u64::from(record.sectors);
        }
        self.submit_batch(lane, batch);
    }

    /// Moves of chunks that have a newer record say nothing.
    fn void_superseded(&mut self, batch: &mut Batch) {
        let generation = self.segments.get(batch.segment).generation;
        let mut layers = core::mem::take(&mut batch.layers).into_iter();
        let mut kept = Vec::with_capacity(batch.records.len());
        batch.records.retain_mut(|record| {
            let Some(layer) = layers.next() else {
                return false;
            };
            let known = self.active.get(layer, record.chunk);
            let known = known.or_else(|| self.frozen.get(layer, record.chunk));
            let known = known.map(|known| known.entry);
            let entry = record.entry(generation);
            match record.kind {
                RecordKind::Lost if !known.is_some_and(Entry::is_lost) => return false,
                RecordKind::Move if known != Some(entry) => record.kind = RecordKind::Void,
                _ => {}
            }
            kept.push(layer);
            true
        });
        batch.layers = kept;
    }

    /// Moves do not need what was read any more.
    pub(super) fn release_copies(&mut self, parts: &[Part]) {
        for part in parts {
            if let Part::Copy { read, sectors, .. } = *part {
                self.release_copy(read, sectors);
            }
        }
    }

    pub(super) fn release_copy(&mut self, read: Tag, sectors: u32) {
        let io = self.ios.get_mut(read);
        io.copies -= sectors;
        if io.copies == 0 {
            self.ios.release(read);
            self.out.push_back(Action::Forget(read));
        }
    }

    /// The device fails writes: all that waits is answered, and nothing is written any more.
    pub(super) fn go_read_only(&mut self) {
        if matches!(self.state, State::ReadOnly(_)) {
            return;
        }
        self.state = match self.state {
            State::Opening => State::Failed(super::recovery::OpenError::CannotWrite),
            _ => State::ReadOnly(ReadOnly::Device),
        };
        for lane in Lane::ALL {
            let state = &mut self.lanes[lane as usize];
            let batches = state.in_flight.iter().chain(&state.open).chain(&state.redo);
            let begun = batches.flat_map(|batch| &batch.waiters);
            let waiting = state.waiting.iter().map(|waiting| &waiting.waiter);
            for waiter in begun.chain(waiting) {
                self.out.push_back(Action::Done {
                    request: waiter.request,
                    outcome: Outcome::ReadOnly,
                });
            }
            state.in_flight.clear();
            state.redo.clear();
            state.waiting.clear();
            state.open = None;
        }
        for parked in core::mem::take(&mut self.parked) {
            self.answer(parked.waiting.waiter.request, Outcome::ReadOnly);
        }
        for wait in core::mem::take(&mut self.flusher.waiting) {
            self.answer(wait.request, Outcome::ReadOnly);
        }
        if let Some(checker) = self.checker.take() {
            self.answer(checker.request(), Outcome::ReadOnly);
        }
        if let Some(differ) = self.differ.take() {
            self.answer(differ.request, Outcome::ReadOnly);
        }
        if let Some(mut scrubber) = self.scrubber.take() {
            self.unpin(&mut scrubber);
            self.answer(scrubber.request, Outcome::ReadOnly);
        }
        // Reads that wait for a write get to know that it does not come.
        (self.reads.poke, self.progress) = (true, true);
        for request in self.checkpoint.give_up() {
            self.answer(request, Outcome::ReadOnly);
        }
    }

    /// A footer was written, or not: without it the headers of the segment say the same.
    pub(super) fn footer_ended(&mut self, tag: Tag, segment: u32) {
        self.segments.get_mut(segment).writers -= 1;
        self.ios.release(tag);
    }
}

/// Whose a batch is: data count by their length, and each record for itself.
fn of_records(records: &[Record], parts: &mut Parts) {
    for record in records {
        let part = u64::from(record.sectors) + 1;
        match parts.last_mut() {
            Some((lineage, sum)) if *lineage == record.lineage => *sum += part,
            _ => parts.push((record.lineage, part)),
        }
    }
}
