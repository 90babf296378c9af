//! Saves a drive as bytes, and restores it from them.
//!
//! Little-endian: magic and version, a fingerprint of profile and capacity, the clock, the map from
//! logical to physical units (32 bits each), then what is needed of superblocks and write points,
//! and a digest over all. The rest follows from these. About 1 MiB per GiB.

use alloc::vec::Vec;
use core::fmt;

use flashyard_time::Time;

use super::map::{NONE, Use, WritePoint, Writer};
use super::{BuildError, Device};
use crate::Profile;

const MAGIC: u64 = u64::from_le_bytes(*b"flashssd");
const VERSION: u64 = 3;

/// Instants of a snapshot lie before this: half of what events reach.
const LATEST: u64 = 1 << 59;

/// Why a snapshot cannot be taken or restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// Something is in flight; only an idle drive can be saved.
    Busy,
    /// The drive could not be built, whatever the snapshot says.
    Build(BuildError),
    /// Not a snapshot, or of a version that is not known.
    NotASnapshot,
    /// Of another profile or capacity.
    OtherDrive,
    /// Cut short or altered.
    Corrupt,
}

impl Device {
    /// Saves the drive, when nothing is in flight.
    pub fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        if self.next_event().is_some() {
            return Err(SnapshotError::Busy);
        }
        let mut bytes =
            Vec::with_capacity(self.map.physical_of.len() * 4 + self.map.uses.len() * 12 + 4096);
        for word in [
            MAGIC,
            VERSION,
            self.fingerprint(),
            self.clock,
            self.seed,
            self.digest,
        ] {
            put(&mut bytes, word);
        }
        for &unit in &self.map.physical_of {
            bytes.extend_from_slice(&unit.to_le_bytes());
        }
        for (&state, &erases) in self.map.uses.iter().zip(&self.map.erases) {
            put(&mut bytes, u64::from(erases) << 8 | state as u64);
        }
        for &opened in &self.map.opened {
            put(&mut bytes, opened);
        }
        put(&mut bytes, self.map.free.len() as u64);
        for &superblock in &self.map.free {
            put(&mut bytes, u64::from(superblock));
        }
        for point in Writer::ALL.map(|writer| self.map.points[writer as usize]) {
            put(
                &mut bytes,
                u64::from(point.next) << 32 | u64::from(point.left),
            );
        }
        let (victim, unit) = self.scan().unwrap_or((NONE, NONE));
        put(&mut bytes, u64::from(victim) << 32 | u64::from(unit));
        for word in [
            self.collector.unit_ns,
            self.collector.next_admission,
            self.collector.erased,
            self.collector.pinned.len() as u64,
        ] {
            put(&mut bytes, word);
        }
        for &(mark, superblock) in &self.collector.pinned {
            let waits = Writer::ALL.map(|writer| self.unsettled.holds_up(writer, mark));
            let bits = (0..).zip(waits).map(|(bit, waits)| u64::from(waits) << bit);
            put(&mut bytes, u64::from(superblock) << 8 | bits.sum::<u64>());
        }
        for writer in Writer::ALL {
            for replaced in self.unsettled.all_replaced(writer) {
                bytes.extend_from_slice(&replaced.to_le_bytes());
            }
        }
        let digest = digest(&bytes);
        put(&mut bytes, digest);
        Ok(bytes)
    }

    /// Restores the drive, with counters at zero. Profile and capacity must be what
    /// they were.
    pub fn restore(profile: &Profile, capacity: u64, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut device = Self::new(profile, capacity, 0).map_err(SnapshotError::Build)?;
        let mut input = Input(bytes);
        if input.word() != Ok(MAGIC) || input.word() != Ok(VERSION) {
            return Err(SnapshotError::NotASnapshot);
        }
        if input.word()? != device.fingerprint() {
            return Err(SnapshotError::OtherDrive);
        }
        let body = bytes.len().checked_sub(8).ok_or(SnapshotError::Corrupt)?;
        if Input(&bytes[body..]).word()? != digest(&bytes[..body]) {
            return Err(SnapshotError::Corrupt);
        }
        input.0 = &input.0[..input.0.len() - 8];
        device.clock = input.word()?;
        if device.clock > LATEST {
            return Err(SnapshotError::Corrupt);
        }
        device.seed = input.word()?;
        device.digest = input.word()?;
        device.read_map(&mut input)?;
        device.read_points(&mut input)?;
        device.read_collector(&mut input)?;
        if !input.0.is_empty() {
            return Err(SnapshotError::Corrupt);
        }
        device.check().map_err(|_| SnapshotError::Corrupt)?;
        Ok(device)
    }

    /// The instant up to which everything has happened.
    pub fn now(&self) -> Time {
        Time::from_ns(self.clock)
    }

    fn read_map(&mut self, input: &mut Input<'_>) -> Result<(), SnapshotError> {
        for logical in 0..self.map.physical_of.len() {
            let unit = input.half()?;
            if unit == NONE {
                continue;
            }
            let owner = self
                .map
                .logical_of
                .get_mut(unit as usize)
                .ok_or(SnapshotError::Corrupt)?;
            if core::mem::replace(owner, logical as u32) != NONE {
                return Err(SnapshotError::Corrupt);
            }
            self.map.place(logical as u32, unit);
        }
        for superblock in 0..self.map.uses.len() {
            let word = input.word()?;
            self.map.uses[superblock] = use_of(word & 0xFF)?;
            self.map.erases[superblock] = (word >> 8).min(u64::from(u32::MAX / 2)) as u32;
        }
        for opened in &mut self.map.opened {
            // Half of the numbers leave the other half for openings to come.
            *opened = input.word()?.min(u64::MAX / 2);
            self.map.openings = self.map.openings.max(*opened);
        }
        let free = input.word()?;
        if free > self.map.uses.len() as u64 {
            return Err(SnapshotError::Corrupt);
        }
        self.map.free.clear();
        for _ in 0..free {
            let superblock = input.word()?;
            if superblock >= self.map.uses.len() as u64
                || self.map.free.contains(&(superblock as u32))
            {
                return Err(SnapshotError::Corrupt);
            }
            self.map.free.push_back(superblock as u32);
        }
        Ok(())
    }

    /// Reads the write points; from these follows what is programmed, since nothing is on its way
    /// to a die.
    fn read_points(&mut self, input: &mut Input<'_>) -> Result<(), SnapshotError> {
        let units = self.layout.superblock_units;
        let mut open = Vec::new();
        for writer in Writer::ALL {
            let word = input.word()?;
            let (next, left) = ((word >> 32) as u32, word as u32);
            if left > 0 {
                let superblock = next / units;
                if left > units
                    || next % units != units - left
                    || self.map.uses.get(superblock as usize) != Some(&Use::Open)
                    || open.contains(&superblock)
                {
                    return Err(SnapshotError::Corrupt);
                }
                open.push(superblock);
                self.set_programmed(superblock * units..next);
            }
            self.map.points[writer as usize] = WritePoint { next, left };
        }
        for superblock in 0..self.layout.superblocks {
            if matches!(
                self.map.uses[superblock as usize],
                Use::Closed | Use::Victim
            ) {
                self.set_programmed(superblock * units..(superblock + 1) * units);
            }
        }
        Ok(())
    }

    /// Says that all programs that `units`, from the first of a superblock on, complete are in
    /// the flash.
    fn set_programmed(&mut self, units: core::ops::Range<u32>) {
        let mut cell = units.start + self.layout.cell_units;
        while cell <= units.end {
            if let Some(program) = self.layout.completed_by(cell) {
                self.map.set_programmed(program);
            }
            cell += self.layout.cell_units;
        }
    }

    fn read_collector(&mut self, input: &mut Input<'_>) -> Result<(), SnapshotError> {
        let word = input.word()?;
        let (victim, unit) = ((word >> 32) as u32, word as u32);
        let scan = (victim != NONE).then_some((victim, unit));
        if let Some((victim, unit)) = scan {
            let sound = self.map.uses.get(victim as usize) == Some(&Use::Victim)
                && unit / self.layout.superblock_units == victim
                && unit % self.layout.cell_units == 0
                && !self.map.is_valid_before(unit);
            if !sound {
                return Err(SnapshotError::Corrupt);
            }
        }
        self.reset_collector(scan);
        self.collector.unit_ns = input.word()?.min(1_000_000_000);
        self.collector.next_admission = input.word()?.min(self.clock.saturating_add(1_000_000_000));
        self.collector.erased = input.word()?.min(u64::MAX / 2);
        let pinned = input.word()?;
        let victims = self.map.uses.iter().filter(|used| **used == Use::Victim);
        if pinned != victims.count() as u64 - u64::from(scan.is_some()) {
            return Err(SnapshotError::Corrupt);
        }
        let pinned = (0..pinned)
            .map(|_| input.word())
            .collect::<Result<Vec<_>, _>>()?;
        for writer in Writer::ALL {
            self.read_unsettled(writer, input)?;
        }
        pinned.into_iter().try_for_each(|word| self.pin(word))
    }

    /// Reads what the units of a write point that are not settled have replaced. Since nothing is
    /// on its way to a die, these are the ones of the group of rows that is being filled.
    fn read_unsettled(
        &mut self,
        writer: Writer,
        input: &mut Input<'_>,
    ) -> Result<(), SnapshotError> {
        let point = self.map.points[writer as usize];
        if point.left == 0 || self.layout.ends_group(point.next) {
            return Ok(());
        }
        let mut buffered = 0;
        for unit in self.layout.group_start(point.next)..point.next {
            let replaced = input.half()?;
            if replaced != NONE && replaced >= self.layout.physical() {
                return Err(SnapshotError::Corrupt);
            }
            self.begin_row(writer, unit);
            self.unsettled.replaced(writer).push_back(replaced);
            buffered += 1;
            if let Some(program) = self.layout.completed_by(unit + 1) {
                self.unsettled
                    .programmed(program / self.layout.dies, self.layout.row_units());
                buffered -= self.layout.program_units;
            }
        }
        match writer {
            Writer::Collector => self.collector.buffered = buffered,
            _ => self.buffer_used += buffered,
        }
        Ok(())
    }

    /// Keeps a superblock until what the word says is settled.
    fn pin(&mut self, word: u64) -> Result<(), SnapshotError> {
        let superblock = (word >> 8) as usize;
        let scanned = self.scan().map(|(victim, _)| victim as usize);
        let waits = |writer: Writer| {
            let bit = Writer::ALL.iter().position(|&other| other == writer);
            bit.is_some_and(|bit| word >> bit & 1 == 1)
        };
        let mark = self.unsettled.mark_of(waits);
        let known = self
            .collector
            .pinned
            .iter()
            .any(|&(_, known)| known as usize == superblock);
        let sound = self.map.uses.get(superblock) == Some(&Use::Victim)
            && self.map.valid[superblock] == 0
            && scanned != Some(superblock)
            && !known
            && !self.unsettled.is_settled(mark);
        if !sound {
            return Err(SnapshotError::Corrupt);
        }
        self.collector.pinned.push_back((mark, superblock as u32));
        Ok(())
    }

    /// Depends on everything that gives the bytes their meaning.
    fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        for value in self.profile.values() {
            put(&mut bytes, value);
        }
        put(&mut bytes, self.profile.gc_victim as u64);
        put(&mut bytes, u64::from(self.layout.logical));
        digest(&bytes)
    }
}

/// What has not been read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn word(&mut self) -> Result<u64, SnapshotError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Corrupt)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn half(&mut self) -> Result<u32, SnapshotError> {
        let (half, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Corrupt)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*half))
    }
}

fn put(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

/// A drive at rest is not erasing.
fn use_of(number: u64) -> Result<Use, SnapshotError> {
    [Use::Free, Use::Open, Use::Closed, Use::Victim]
        .into_iter()
        .find(|state| *state as u64 == number)
        .ok_or(SnapshotError::Corrupt)
}

/// Depends on every byte and its place. It finds accidents, not forgers.
fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 29
    })
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the drive is not at rest"),
            Self::Build(error) => error.fmt(f),
            Self::NotASnapshot => f.write_str("not a snapshot that this version reads"),
            Self::OtherDrive => f.write_str("the snapshot is of another profile or capacity"),
            Self::Corrupt => f.write_str("the snapshot is damaged"),
        }
    }
}

impl core::error::Error for SnapshotError {}
