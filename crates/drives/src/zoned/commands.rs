//! Executes vector commands: each is a task of its own, and notifies its owner when it is done.

use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_flash::channel::{ChunkState, Metadata, Place};
use flashyard_runtime::{Buf, ReadOp, ZoneState};
use flashyard_time::Duration;

use super::survey::trailer_at;
use super::unit::{BYTES, SECTOR, SECTORS, Trailer};
use super::{Chunk, Piece, Zones};
use crate::backing::{Done, OwnerId};

/// How long to wait when buffers have run out.
const BUFFER_WAIT: Duration = Duration::from_ms(1);
/// From so many sectors of a unit on, they and the trailer are read at once, with whatever lies
/// between them.
const MANY: usize = 8;

/// A write whose data are still to come.
pub(super) struct Staged {
    chunk: usize,
    /// The unit in its chunk.
    unit: u32,
    address: u64,
    metadata: Vec<Metadata>,
    data: Box<[u8]>,
}

impl Staged {
    /// The place of the data of a sector.
    pub fn sector(&mut self, address: u64) -> Option<&mut [u8]> {
        let sector = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.data.get_mut(sector * SECTOR..(sector + 1) * SECTOR)
    }
}

/// Sectors of one unit that are read.
struct Reading {
    chunk: usize,
    unit: u32,
    /// Of each, its place in the command, and its number in the unit.
    sectors: Vec<(usize, usize)>,
    trailer: Option<Rc<Trailer>>,
    /// What is read: the first sector and how many; behind the last sector of a unit is its
    /// trailer.
    runs: Vec<(usize, usize)>,
}

/// What is to be done before a zone is written.
enum Step {
    Write,
    Finish(usize),
    Wait,
}

impl Zones {
    /// Takes a write; false if it is not one unit at the write pointer of a chunk.
    pub(super) fn stage(
        &self,
        owner: OwnerId,
        tag: u32,
        metadata: &[Metadata],
        addresses: &[u64],
    ) -> bool {
        let Some(place) = addresses.first().and_then(|one| self.geometry.place(*one)) else {
            return false;
        };
        let whole = addresses.len() == SECTORS && place.sector.is_multiple_of(SECTORS as u32);
        let in_order = (addresses[0]..).zip(addresses).all(|(at, one)| at == *one);
        let chunk = self.index(&place);
        let mut state = self.state.borrow_mut();
        let zone = &mut state.chunks[chunk];
        let may_write = matches!(zone.state, ChunkState::Free | ChunkState::Open) && !zone.busy;
        if !whole || !in_order || !may_write || zone.written != place.sector {
            return false;
        }
        (zone.state, zone.busy) = (ChunkState::Open, true);
        let staged = Staged {
            chunk,
            unit: place.sector / SECTORS as u32,
            address: addresses[0],
            metadata: metadata.to_vec(),
            data: vec![0; SECTORS * SECTOR].into_boxed_slice(),
        };
        state.staged.insert((owner, tag), staged);
        true
    }

    pub(super) async fn write_vector(self: Rc<Self>, owner: OwnerId, tag: u32) {
        let staged = self.state.borrow_mut().staged.remove(&(owner, tag));
        let written = match staged {
            Some(staged) => self.write_unit(&staged).await,
            None => false,
        };
        let failed = if written { 0 } else { u64::MAX };
        self.tell(owner, tag, failed, Vec::new());
    }

    async fn write_unit(&self, staged: &Staged) -> bool {
        let chunk = staged.chunk;
        self.activate(chunk).await;
        let start = self.state.borrow().chunks[chunk].start;
        let trailer = Trailer::new(&staged.metadata, &staged.data);
        let mut buf = self.buffers(&[BYTES]).await.remove(0);
        let (data, block) = buf.split_at_mut(SECTORS * SECTOR);
        data.copy_from_slice(&staged.data);
        trailer.encode(start, staged.unit, block);
        let offset = start + u64::from(staged.unit) * BYTES as u64;
        let (outcome, buf) = self.file.write_at(buf, offset, true).await;
        drop(buf);
        let written = matches!(outcome, Ok(BYTES));
        match written {
            true => self.write_ended(chunk, staged.unit, trailer),
            false => self.write_failed(chunk).await,
        }
        written
    }

    /// A unit is written; the last one ends its zone.
    fn write_ended(&self, chunk: usize, unit: u32, trailer: Trailer) {
        let mut state = self.state.borrow_mut();
        state.writes += 1;
        let used = state.writes;
        state.trailers.put(chunk, unit, Rc::new(trailer));
        let zone = &mut state.chunks[chunk];
        zone.written += SECTORS as u32;
        (zone.used, zone.busy) = (used, false);
        if zone.written == self.geometry.clba {
            zone.state = ChunkState::Closed;
            zone.busy = zone.room_left;
            zone.active = zone.room_left;
            if let Some(this) = self.this.upgrade().filter(|_| zone.room_left) {
                let finish = async move { this.finish(chunk).await };
                self.rt.spawn(finish).detach();
            }
        }
        drop(state);
        self.calmed.notify_all();
    }

    /// A write failed: its zone is written no more; the device reports how much of it is valid.
    async fn write_failed(&self, chunk: usize) {
        let start = self.change(chunk, |zone| zone.state = ChunkState::Closed);
        let reported = self.file.report_zones(start, 1).await;
        let reported = reported
            .ok()
            .and_then(|zones| zones.first().map(|zone| zone.state));
        match reported {
            Some(ZoneState::Offline) => {
                self.change(chunk, |zone| {
                    (zone.state, zone.written) = (ChunkState::Offline, 0);
                    (zone.active, zone.busy) = (false, false);
                });
                self.calmed.notify_all();
            }
            _ => self.finish(chunk).await,
        }
    }

    /// Waits until one more zone may be partly written, unless this one is.
    async fn activate(&self, chunk: usize) {
        loop {
            match self.next_step(chunk) {
                Step::Write => return,
                Step::Finish(victim) => self.finish(victim).await,
                Step::Wait => self.calmed.notified().await,
            }
        }
    }

    fn next_step(&self, chunk: usize) -> Step {
        let chunks = &mut self.state.borrow_mut().chunks;
        let most = self.facts.active_most as usize;
        let active = || chunks.iter().filter(|zone| zone.active).count();
        if chunks[chunk].active || most == 0 || active() < most {
            chunks[chunk].active = true;
            return Step::Write;
        }
        // Rather than close one early, wait for those that are being finished anyway.
        let ending = |zone: &Chunk| zone.active && zone.busy && zone.state == ChunkState::Closed;
        if chunks.iter().any(ending) {
            return Step::Wait;
        }
        let idle = chunks.iter_mut().enumerate();
        let idle = idle.filter(|(_, zone)| zone.active && !zone.busy);
        match idle.min_by_key(|(_, zone)| zone.used) {
            Some((victim, zone)) => {
                (zone.state, zone.busy) = (ChunkState::Closed, true);
                Step::Finish(victim)
            }
            None => Step::Wait,
        }
    }

    /// Finishes a zone, which is busy. Should that fail it is written no more all the same; that
    /// the device may count it as active shows when it refuses another one.
    async fn finish(&self, chunk: usize) {
        let start = self.change(chunk, |_| {});
        let _finished = self.file.finish_zone(start, self.facts.zone_bytes).await;
        self.change(chunk, |zone| (zone.active, zone.busy) = (false, false));
        self.calmed.notify_all();
    }

    /// Changes the state of a zone; gives its start.
    fn change(&self, chunk: usize, change: impl FnOnce(&mut Chunk)) -> u64 {
        let zone = &mut self.state.borrow_mut().chunks[chunk];
        change(zone);
        zone.start
    }

    pub(super) async fn reset_vector(
        self: Rc<Self>,
        owner: OwnerId,
        tag: u32,
        addresses: Vec<u64>,
    ) {
        let mut failed = 0;
        for (bit, &address) in addresses.iter().enumerate() {
            let place = self.geometry.place(address);
            let reset = match place.filter(|place| place.sector == 0) {
                Some(place) => self.reset(self.index(&place)).await,
                None => false,
            };
            failed |= u64::from(!reset) << bit;
        }
        self.tell(owner, tag, failed, Vec::new());
    }

    async fn reset(&self, chunk: usize) -> bool {
        // One that was filled may still be finished.
        while self.state.borrow().chunks[chunk].busy {
            self.calmed.notified().await;
        }
        match self.state.borrow().chunks[chunk].state {
            ChunkState::Offline => return false,
            ChunkState::Free => return true,
            ChunkState::Open | ChunkState::Closed => {}
        }
        let start = self.change(chunk, |zone| zone.busy = true);
        let reset = self.file.reset_zone(start, self.facts.zone_bytes).await;
        let reset = reset.is_ok();
        self.change(chunk, |zone| {
            zone.state = match reset {
                true => ChunkState::Free,
                false => ChunkState::Offline,
            };
            (zone.written, zone.active, zone.busy) = (0, false, false);
        });
        self.state.borrow_mut().trailers.forget(chunk);
        self.calmed.notify_all();
        reset
    }

    pub(super) async fn read_vector(
        self: Rc<Self>,
        owner: OwnerId,
        tag: u32,
        addresses: Vec<u64>,
        wanted: u64,
    ) {
        let mut readings = self.plan(&addresses, wanted);
        let mut metadata = vec![Metadata::default(); addresses.len()];
        let (mut good, mut pieces) = (0, Vec::new());
        let started = self.start(&readings).await;
        for (reading, runs) in readings.iter_mut().zip(started) {
            let read = finish_runs(runs, &reading.runs).await;
            self.learn(reading, &read);
            good |= judge(reading, &read, wanted, &mut metadata);
            for ((first, count), buf) in read {
                let piece = Piece {
                    address: self.address(reading, first),
                    sectors: count.min(SECTORS - first),
                    buf,
                };
                pieces.push(piece);
            }
        }
        let done = Done {
            tag,
            failed: !good,
            metadata,
        };
        self.tell_done(owner, &done, pieces);
    }

    /// What is to be read for these addresses, unit by unit. Sectors that are not written are left
    /// out.
    fn plan(&self, addresses: &[u64], wanted: u64) -> Vec<Reading> {
        let state = self.state.borrow();
        let mut units: BTreeMap<(usize, u32), Vec<(usize, usize)>> = BTreeMap::new();
        for (bit, &address) in addresses.iter().enumerate() {
            let Some(place) = self.geometry.place(address) else {
                continue;
            };
            let (chunk, sectors) = (self.index(&place), SECTORS as u32);
            if state.chunks[chunk].has(place.sector) {
                let sector = (bit, (place.sector % sectors) as usize);
                let unit = units.entry((chunk, place.sector / sectors)).or_default();
                unit.push(sector);
            }
        }
        let reading = |((chunk, unit), sectors): (_, Vec<_>)| {
            let trailer = state.trailers.get(chunk, unit);
            let runs = runs(&sectors, wanted, trailer.is_some());
            Reading {
                chunk,
                unit,
                sectors,
                trailer,
                runs,
            }
        };
        units.into_iter().map(reading).collect()
    }

    /// Starts all reads at once.
    async fn start(&self, readings: &[Reading]) -> Vec<Vec<ReadOp>> {
        let runs = readings.iter().flat_map(|reading| &reading.runs);
        let lengths: Vec<usize> = runs.map(|(_, count)| count * SECTOR).collect();
        let mut bufs = self.buffers(&lengths).await.into_iter();
        let mut started = Vec::with_capacity(readings.len());
        for reading in readings {
            let start = self.change(reading.chunk, |_| {});
            let unit = start + u64::from(reading.unit) * BYTES as u64;
            debug_assert_eq!(
                trailer_at(start, reading.unit),
                unit + (SECTORS * SECTOR) as u64
            );
            let reads = reading.runs.iter().map(|(first, _)| {
                let buf = bufs.next().expect("there is one for each run");
                self.file.read_at(buf, unit + (first * SECTOR) as u64)
            });
            started.push(reads.collect());
        }
        started
    }

    /// Takes the trailer that was read.
    fn learn(&self, reading: &mut Reading, read: &[((usize, usize), Buf)]) {
        let with_trailer = read
            .iter()
            .find(|((first, count), _)| first + count > SECTORS);
        let Some(((first, _), buf)) = with_trailer else {
            return;
        };
        let start = self.change(reading.chunk, |_| {});
        let block = &buf[(SECTORS - first) * SECTOR..];
        reading.trailer = Trailer::decode(start, reading.unit, block).map(Rc::new);
        let mut state = self.state.borrow_mut();
        // It may have been erased meanwhile, and be written again.
        let written = state.chunks[reading.chunk].written;
        let there = reading.unit * (SECTORS as u32) < written;
        if let Some(trailer) = reading.trailer.clone().filter(|_| there) {
            state.trailers.put(reading.chunk, reading.unit, trailer);
        }
    }

    /// The address of a sector of a unit.
    fn address(&self, reading: &Reading, sector: usize) -> u64 {
        let chunks = self.geometry.chunks;
        let place = Place {
            group: 0,
            pu: reading.chunk as u32 / chunks,
            chunk: reading.chunk as u32 % chunks,
            sector: reading.unit * SECTORS as u32,
        };
        let first = self.geometry.address(place);
        first.expect("it was asked for") + sector as u64
    }

    /// Buffers of these lengths, all of them at once: a command that held some and waited for
    /// others could wait without end.
    async fn buffers(&self, lengths: &[usize]) -> Vec<Buf> {
        loop {
            let bufs: Option<Vec<Buf>> = lengths.iter().map(|len| Buf::take(*len)).collect();
            match bufs {
                Some(bufs) => return bufs,
                None => self.rt.sleep(BUFFER_WAIT).await,
            }
        }
    }

    pub(super) fn tell(&self, owner: OwnerId, tag: u32, failed: u64, metadata: Vec<Metadata>) {
        let done = Done {
            tag,
            failed,
            metadata,
        };
        self.tell_done(owner, &done, Vec::new());
    }

    /// Notifies an owner that a command is complete. Its data can be read until the owner returns.
    fn tell_done(&self, owner: OwnerId, done: &Done, pieces: Vec<Piece>) {
        let mut state = self.state.borrow_mut();
        state.reporting = pieces;
        let registered = &mut state.owners[owner];
        registered.in_flight -= 1;
        let owner = registered.owner.upgrade();
        drop(state);
        if let Some(owner) = owner {
            owner.completed(self.rt.turn_time(), done);
        }
        self.state.borrow_mut().reporting.clear();
    }
}

/// What has to be read for sectors of a unit: their data, if they are wanted, and the trailer, if
/// it is not known.
fn runs(sectors: &[(usize, usize)], wanted: u64, known: bool) -> Vec<(usize, usize)> {
    let wanted = sectors.iter().filter(|(bit, _)| wanted >> bit & 1 == 1);
    let mut numbers: Vec<usize> = wanted.map(|(_, sector)| *sector).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if !known {
        if let Some(first) = numbers.first().filter(|_| numbers.len() >= MANY) {
            return vec![(*first, SECTORS + 1 - first)];
        }
        numbers.push(SECTORS);
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

/// Waits for the reads of a unit: those that went well.
async fn finish_runs(started: Vec<ReadOp>, runs: &[(usize, usize)]) -> Vec<((usize, usize), Buf)> {
    let mut read = Vec::with_capacity(runs.len());
    for (op, run) in started.into_iter().zip(runs) {
        let (outcome, buf) = op.await;
        if outcome.is_ok_and(|bytes| bytes == buf.len()) {
            read.push((*run, buf));
        }
    }
    read
}

/// A bit for each sector of a unit that is what was written; with its metadata.
fn judge(
    reading: &Reading,
    read: &[((usize, usize), Buf)],
    wanted: u64,
    metadata: &mut [Metadata],
) -> u64 {
    let Some(trailer) = &reading.trailer else {
        return 0;
    };
    let data = |sector: usize| {
        read.iter().find_map(|((first, _), buf)| {
            let at = sector.checked_sub(*first)? * SECTOR;
            buf.get(at..at + SECTOR)
        })
    };
    let mut good = 0;
    for &(bit, sector) in &reading.sectors {
        let sound = wanted >> bit & 1 == 0
            || data(sector).is_some_and(|data| trailer.matches(sector, data));
        if sound {
            metadata[bit] = trailer.metadata(sector);
            good |= 1 << bit;
        }
    }
    good
}
