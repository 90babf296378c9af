//! A drive as bytes, to begin again from where it was.
//!
//! Little-endian: magic and version, a fingerprint of profile and capacity, the clock, the map from logical to
//! physical units (32 bits each), then what is needed of superblocks and write points, and a digest over all. The
//! rest follows from these. About 1 MiB per GiB.

use alloc::vec::Vec;
use core::fmt;

use flashyard_time::Time;

use super::map::{NONE, Use, WritePoint, Writer};
use super::{BuildError, Device};
use crate::Profile;

const MAGIC: u64 = u64::from_le_bytes(*b"flashssd");
const VERSION: u64 = 2;

/// Why a snapshot cannot be taken or restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// Something is under way; only a drive at rest can be written down.
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
    /// Writes the drive down, when nothing is under way.
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
        for &word in &self.map.programmed {
            put(&mut bytes, word);
        }
        for point in self.map.points {
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
        ] {
            put(&mut bytes, word);
        }
        let digest = digest(&bytes);
        put(&mut bytes, digest);
        Ok(bytes)
    }

    /// The drive that was written down, with counters at zero. Profile and capacity must be what they were.
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
        device.seed = input.word()?;
        device.digest = input.word()?;
        device.read_map(&mut input)?;
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
            self.map.erases[superblock] =
                u32::try_from(word >> 8).map_err(|_| SnapshotError::Corrupt)?;
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
        for word in &mut self.map.programmed {
            *word = input.word()?;
        }
        self.map.count_programmed().ok_or(SnapshotError::Corrupt)
    }

    fn read_collector(&mut self, input: &mut Input<'_>) -> Result<(), SnapshotError> {
        let units = self.layout.superblock_units;
        let mut buffered = [0; 3];
        for (place, buffered) in buffered.iter_mut().enumerate() {
            let word = input.word()?;
            let (next, left) = ((word >> 32) as u32, word as u32);
            let open = left > 0;
            if open {
                let superblock = (next / units) as usize;
                if left > units
                    || next % units != units - left
                    || self.map.uses.get(superblock) != Some(&Use::Open)
                {
                    return Err(SnapshotError::Corrupt);
                }
                *buffered = self.unprogrammed(next).ok_or(SnapshotError::Corrupt)?;
            }
            self.map.points[place] = WritePoint { next, left };
        }
        let word = input.word()?;
        let (victim, unit) = ((word >> 32) as u32, word as u32);
        let victims = self
            .map
            .uses
            .iter()
            .filter(|state| **state == Use::Victim)
            .count();
        let scan = (victim != NONE).then_some((victim, unit));
        if let Some((victim, unit)) = scan {
            let sound = self.map.uses.get(victim as usize) == Some(&Use::Victim)
                && unit / units == victim
                && unit % self.layout.cell_units == 0;
            if !sound || victims != 1 {
                return Err(SnapshotError::Corrupt);
            }
        } else if victims != 0 {
            return Err(SnapshotError::Corrupt);
        }
        self.reset_collector(scan);
        let host = [Writer::Host, Writer::HostCold].map(|writer| writer as usize);
        self.collector.buffered = buffered[Writer::Collector as usize];
        self.buffer_used = host.iter().map(|&place| buffered[place]).sum();
        for place in host.into_iter().filter(|&place| buffered[place] > 0) {
            let row = self.map.points[place].next / self.layout.row_units();
            let left = self.layout.dies - self.programmed_in_row(row);
            self.rows.push_back((row, left));
            self.rows_begun += 1;
        }
        self.collector.unit_ns = input.word()?.min(1_000_000_000);
        self.collector.next_admission = input.word()?.min(self.clock.saturating_add(1_000_000_000));
        self.collector.erased = input.word()?;
        Ok(())
    }

    /// Units of the row before `next` that are in the buffer; nothing when more are programmed than written.
    fn unprogrammed(&self, next: u32) -> Option<u32> {
        let written = next % self.layout.row_units();
        if written == 0 {
            return Some(0);
        }
        let programmed = self.programmed_in_row(next / self.layout.row_units());
        written.checked_sub(programmed * self.layout.program_units)
    }

    fn programmed_in_row(&self, row: u32) -> u32 {
        let programs = row * self.layout.dies..(row + 1) * self.layout.dies;
        programs
            .filter(|&program| self.map.is_programmed(program))
            .count() as u32
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
