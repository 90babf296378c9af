//! What hosts ask: writes, trims, reads, flushes; and volumes that come and go.

use core::ops::Range;

use super::flusher::FlushWait;
use super::io::{MOST_TRIM, Outcome, Part, Refused, Request};
use super::lane::{Ask, Parked, Waiter, Waiting};
use super::state::{State, Store, Volume};
use crate::chunk::{Form, Stored};
use crate::entry::{CHUNK_BITS, Entry, LEAF_CHUNKS, Lineage};
use crate::format::BLOCK_SECTORS;
use crate::format::batch::{Lane, Record, RecordKind};
use crate::format::rows::LABEL;

/// Whether something can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admit {
    Now,
    Later,
    /// When there is space, or this leaf says that it takes none. Others go on.
    Parked(Option<u32>),
    Never(Outcome),
}

impl Store {
    /// Makes a volume of so many blocks of 4 KiB, each stored as it is.
    pub fn create_volume(
        &mut self,
        request: Request,
        chunks: u64,
        label: [u8; LABEL],
    ) -> Result<Lineage, Refused> {
        self.create_formed(request, chunks, Form::default(), label)
    }

    /// The number of the next volume.
    pub fn next_lineage(&self) -> Lineage {
        Lineage(self.next_lineage)
    }

    /// Makes a volume of so many chunks; done when it is durable. It takes requests at once.
    pub fn create_formed(
        &mut self,
        request: Request,
        chunks: u64,
        form: Form,
        label: [u8; LABEL],
    ) -> Result<Lineage, Refused> {
        self.may_change()?;
        self.may_add(1)?;
        if !form.is_valid() {
            return Err(Refused::Form);
        }
        if chunks == 0 || chunks > 1 << CHUNK_BITS {
            return Err(Refused::Range);
        }
        let lineage = self.next_number();
        let volume = Volume {
            form,
            ..Volume::new(lineage, chunks, label)
        };
        self.volumes.insert(lineage, volume);
        self.checkpoint.wait(request);
        Ok(lineage)
    }

    /// Makes a volume larger and changes its label, or that of a snapshot; done when that is
    /// durable.
    pub fn change_volume(
        &mut self,
        request: Request,
        lineage: Lineage,
        chunks: u64,
        label: [u8; LABEL],
    ) -> Result<(), Refused> {
        self.may_change()?;
        let volume = self.volumes.get_mut(&lineage);
        let volume = volume.filter(|volume| !volume.deleting);
        let volume = volume.ok_or(Refused::NoVolume)?;
        let smaller = chunks < volume.chunks || volume.is_snapshot() && chunks > volume.chunks;
        if smaller || chunks > 1 << CHUNK_BITS {
            return Err(Refused::Range);
        }
        (volume.chunks, volume.label) = (chunks, label);
        self.checkpoint.wait(request);
        Ok(())
    }

    /// Deletes a volume without snapshots, or a snapshot without clones; done when that is durable.
    /// Its space comes back by and by.
    pub fn delete_volume(&mut self, request: Request, lineage: Lineage) -> Result<(), Refused> {
        self.may_change()?;
        self.may_delete(lineage)?;
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            volume.deleting = true;
            volume.reserved = 0;
            if !volume.is_snapshot() {
                self.accounts.change(lineage, |family| family.reserved = 0);
            }
        }
        self.checkpoint.wait(request);
        Ok(())
    }

    /// Writes everything to where the next opening finds it without a log; done when it is durable.
    pub fn checkpoint(&mut self, request: Request) -> Result<(), Refused> {
        self.may_change()?;
        self.checkpoint.wait(request);
        Ok(())
    }

    /// Begins no checkpoint any more, and is done when none is on its way: all superblocks say the
    /// same then. For the end of a pool in good order.
    pub fn quiesce(&mut self, request: Request) -> Result<(), Refused> {
        self.may_change()?;
        self.checkpoint.end(request);
        Ok(())
    }

    /// Which lane a volume's writes go to. It must have nothing that is not durable.
    pub fn set_lane(&mut self, lineage: Lineage, lane: Lane) -> Result<(), Refused> {
        let volume = self.volumes.get(&lineage).ok_or(Refused::NoVolume)?;
        let durable = |lane: Lane| self.lanes[lane as usize].durable.0;
        let busy = Lane::ALL
            .iter()
            .any(|&one| volume.last[one as usize] > durable(one));
        let waits = |state: &super::lane::LaneState| {
            let open = state.open.iter().flat_map(|batch| &batch.waiters);
            let waiting = state.waiting.iter().map(|waiting| &waiting.waiter);
            open.chain(waiting).any(|waiter| waiter.lineage == lineage)
        };
        let parked = self.parked.iter().any(|one| one.lineage() == lineage);
        if busy || parked || self.lanes.iter().any(waits) || lane == Lane::Collector {
            return Err(Refused::Busy);
        }
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            volume.lane = lane;
        }
        Ok(())
    }

    /// Writes chunks from `chunk` on, one for each of `stored`. The driver keeps their stored
    /// bytes, one after another, until the request is done.
    pub fn write(
        &mut self,
        request: Request,
        lineage: Lineage,
        chunk: u64,
        stored: &[Stored],
        durable: bool,
    ) -> Result<(), Refused> {
        let count = stored.len() as u64;
        let (lane, form) = self.check_data(lineage, chunk, count)?;
        self.may_write(lineage)?;
        let mut stored_chunks = stored.iter().filter(|stored| stored.sectors > 0);
        if !stored_chunks.all(|stored| form.takes(stored.sectors.into(), stored.codec)) {
            return Err(Refused::Form);
        }
        let waiter = Waiter {
            request,
            lineage,
            durable,
        };
        let admit = match self.lanes[lane as usize].waiting.is_empty() {
            true => self.try_write(lane, waiter, chunk, stored),
            false => Admit::Later,
        };
        let waiting = || Waiting {
            waiter,
            chunk,
            ask: Ask::Write(stored.to_vec()),
        };
        match admit {
            Admit::Now => {}
            Admit::Never(outcome) => self.answer(request, outcome),
            Admit::Later => self.lanes[lane as usize].waiting.push_back(waiting()),
            Admit::Parked(page) => {
                let waiting = waiting();
                self.parked.push(Parked { waiting, page });
            }
        }
        Ok(())
    }

    /// Makes chunks unmapped: they read as zeroes.
    pub fn trim(
        &mut self,
        request: Request,
        lineage: Lineage,
        chunks: Range<u64>,
    ) -> Result<(), Refused> {
        let count = chunks.end.saturating_sub(chunks.start);
        let (lane, _) = self.check_range(lineage, chunks.start, count, MOST_TRIM)?;
        self.may_write(lineage)?;
        let waiter = Waiter {
            request,
            lineage,
            durable: false,
        };
        let chunk = chunks.start;
        let ask = Ask::Trim(chunks);
        let waiting = Waiting { waiter, chunk, ask };
        self.lanes[lane as usize].waiting.push_back(waiting);
        self.admit(lane);
        Ok(())
    }

    /// Reads `count` chunks into the driver's buffer for the request.
    pub fn read(
        &mut self,
        request: Request,
        lineage: Lineage,
        chunk: u64,
        count: u32,
    ) -> Result<(), Refused> {
        self.check_data(lineage, chunk, count.into())?;
        self.begin_read(super::reads::Stalled {
            request,
            lineage,
            chunk,
            count,
        });
        Ok(())
    }

    /// Done when all that was answered of this volume before survives a power cut.
    pub fn flush(&mut self, request: Request, lineage: Lineage) -> Result<(), Refused> {
        let volume = self.volumes.get(&lineage).ok_or(Refused::NoVolume)?;
        let numbers = volume.last;
        self.may_change()?;
        let wait = FlushWait { request, numbers };
        self.flusher.waiting.push(wait);
        Ok(())
    }

    /// Makes all that was answered durable, if anything is not. For a driver with a clock, to bound
    /// what recovery has to verify.
    pub fn prove(&mut self) {
        if self.flusher.unproved > 0 && self.state == State::Ready {
            self.flusher.want();
        }
    }

    fn may_write(&self, lineage: Lineage) -> Result<(), Refused> {
        match self.volumes.get(&lineage) {
            Some(volume) if volume.is_snapshot() => Err(Refused::Snapshot),
            _ => self.may_change(),
        }
    }

    pub(super) fn may_change(&self) -> Result<(), Refused> {
        match self.state {
            State::Ready => Ok(()),
            State::ReadOnly(_) => Err(Refused::ReadOnly),
            State::Opening | State::Failed(_) => Err(Refused::NotReady),
        }
    }

    /// The same, of a read or a write.
    fn check_data(
        &self,
        lineage: Lineage,
        chunk: u64,
        count: u64,
    ) -> Result<(Lane, Form), Refused> {
        let form = self.volumes.get(&lineage).map(|volume| volume.form);
        let most = form.unwrap_or_default().most_chunks();
        self.check_range(lineage, chunk, count, most.into())
    }

    /// The lane and the form of a volume, if it has these chunks.
    fn check_range(
        &self,
        lineage: Lineage,
        chunk: u64,
        count: u64,
        most: u64,
    ) -> Result<(Lane, Form), Refused> {
        if !matches!(self.state, State::Ready | State::ReadOnly(_)) {
            return Err(Refused::NotReady);
        }
        let volume = self.volumes.get(&lineage);
        let volume = volume.filter(|volume| !volume.deleting);
        let volume = volume.ok_or(Refused::NoVolume)?;
        let end = chunk.checked_add(count);
        let fits = end.is_some_and(|end| end <= volume.chunks) && (1..=most).contains(&count);
        let found = (volume.lane, volume.form);
        fits.then_some(found).ok_or(Refused::Range)
    }

    /// Begins what waits in a lane, in order, as far as it can.
    pub(super) fn admit(&mut self, lane: Lane) {
        // What waits now may wait for a cut: only the lack of a segment is one.
        self.lanes[lane as usize].starved = false;
        while let Some(waiting) = self.lanes[lane as usize].waiting.pop_front() {
            let admit = match &waiting.ask {
                Ask::Write(stored) => self.try_write(lane, waiting.waiter, waiting.chunk, stored),
                Ask::Trim(chunks) => self.try_trim(lane, waiting.waiter, chunks.clone()),
            };
            match admit {
                Admit::Now => self.progress = true,
                Admit::Never(outcome) => self.answer(waiting.waiter.request, outcome),
                Admit::Parked(page) => self.parked.push(Parked { waiting, page }),
                Admit::Later => {
                    self.lanes[lane as usize].waiting.push_front(waiting);
                    return;
                }
            }
        }
    }

    fn try_write(&mut self, lane: Lane, waiter: Waiter, chunk: u64, stored: &[Stored]) -> Admit {
        if self.state != State::Ready {
            return Admit::Never(Outcome::ReadOnly);
        }
        let count = stored.len() as u32;
        if self.is_behind(waiter.lineage, &(chunk..chunk + u64::from(count))) {
            return Admit::Parked(None);
        }
        if self.active.room() < count as usize {
            self.checkpoint.wanted = true;
            return Admit::Later;
        }
        let added = match self.added(waiter.lineage, chunk, stored) {
            Ok(added) => added,
            Err(admit) => return admit,
        };
        let data = stored.iter().filter(|stored| stored.sectors > 0);
        let data = data.map(|stored| (stored.sectors.into(), stored.codec));
        if !self.make_room(lane, count, data) {
            return Admit::Later;
        }
        self.accounts.change(waiter.lineage, |family| {
            family.pending[0] += added.blocks;
            family.freed[0] |= added.frees;
        });
        self.append_write(lane, waiter, chunk, stored);
        Admit::Now
    }

    /// Records a write that there is room for.
    fn append_write(&mut self, lane: Lane, waiter: Waiter, chunk: u64, stored: &[Stored]) {
        let lineage = waiter.lineage;
        let number = self.lanes[lane as usize].issued + 1;
        let mut epoch = 0;
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            volume.last[lane as usize] = number;
            epoch = volume.epoch;
        }
        let (address, generation) = self.first_address(lane);
        let Some(batch) = &mut self.lanes[lane as usize].open else {
            return;
        };
        let mut first = 0;
        for (chunk, stored) in (chunk..).zip(stored) {
            let sectors = u32::from(stored.sectors);
            let mut record = Record {
                kind: RecordKind::Trim,
                lineage,
                epoch,
                chunk,
                count: 1,
                address: 0,
                sectors,
                codec: stored.codec,
                crc: stored.crc,
            };
            let mut entry = Entry::UNMAPPED;
            if sectors > 0 {
                record.kind = RecordKind::Write;
                record.address = address + u64::from(batch.take(sectors, stored.codec));
                entry = record.entry(generation);
                let request = waiter.request;
                batch.push(Part::Host {
                    request,
                    first,
                    sectors,
                });
                first += sectors;
            }
            batch.records.push(record);
            batch.layers.push(lineage);
            let put = self.active.put(lineage, chunk, entry, epoch);
            debug_assert!(put.is_ok(), "there was room");
        }
        batch.waiters.push(waiter);
        self.stats.host_blocks += u64::from(first).div_ceil(BLOCK_SECTORS);
    }

    fn try_trim(&mut self, lane: Lane, waiter: Waiter, chunks: Range<u64>) -> Admit {
        if self.state != State::Ready {
            return Admit::Never(Outcome::ReadOnly);
        }
        if self.is_behind(waiter.lineage, &chunks) {
            return Admit::Parked(None);
        }
        if !self.may_be_mapped(waiter.lineage, &chunks) {
            return Admit::Never(Outcome::Success);
        }
        let leaves = (chunks.end - 1) / LEAF_CHUNKS - chunks.start / LEAF_CHUNKS + 1;
        if !self.active.takes_trims() || (self.active.room() as u64) < leaves {
            self.checkpoint.wanted = true;
            return Admit::Later;
        }
        if !self.make_room(lane, 1, core::iter::empty()) {
            return Admit::Later;
        }
        let lineage = waiter.lineage;
        let number = self.lanes[lane as usize].issued + 1;
        let mut epoch = 0;
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            volume.last[lane as usize] = number;
            epoch = volume.epoch;
        }
        if let Some(batch) = &mut self.lanes[lane as usize].open {
            batch.records.push(Record {
                kind: RecordKind::Trim,
                lineage,
                epoch,
                chunk: chunks.start,
                count: chunks.end - chunks.start,
                address: 0,
                sectors: 0,
                codec: 0,
                crc: 0,
            });
            batch.layers.push(lineage);
            batch.waiters.push(waiter);
        }
        self.accounts
            .change(lineage, |family| family.freed[0] = true);
        let trimmed = self.active.trim(lineage, chunks, epoch);
        debug_assert!(trimmed.is_ok(), "there was room");
        Admit::Now
    }

    /// Whether a leaf of these chunks is there, or something is known of one that leaves do not
    /// know. Where that is not so there is nothing to trim.
    fn may_be_mapped(&self, lineage: Lineage, chunks: &Range<u64>) -> bool {
        let (first, last) = (chunks.start / LEAF_CHUNKS, (chunks.end - 1) / LEAF_CHUNKS);
        let has_page = |leaf| self.source(lineage, leaf).0 != 0;
        (first..=last).any(|leaf| {
            has_page(leaf)
                || self.active.has_leaf(lineage, leaf)
                || self.frozen.has_leaf(lineage, leaf)
        })
    }
}
