//! The zones of a simulated disk: where each may be written next, and what a power cut leaves of
//! that.
//!
//! The rules are those that Linux and the devices keep: a write begins at the write pointer of a
//! zone and ends within its capacity, no more zones are partly written than may be, and what is
//! behind the pointer reads as zeroes. A power cut takes a pointer back, though not behind what was
//! written durably; resets and finishes that have ended stay.

use std::ops::Range;

use flashyard_time::Rng;

use crate::zone::{Zone, ZoneAction, ZoneKind, ZoneModel, ZoneState, Zoned};

/// The zones of a new disk. All are written in order; the disk is as large as they are together.
#[derive(Clone, Copy, Debug)]
pub struct ZoneConfig {
    /// Bytes from the start of a zone to that of the next one.
    pub zone_bytes: u64,
    /// Bytes of them that can be written.
    pub capacity: u64,
    /// Zones.
    pub zones: u32,
    /// Zones that may be partly written at a time; 0 for any number.
    pub active_most: u32,
    /// Whether it insists on what is said here; else it only says so, and is no disk to rely on.
    pub model: ZoneModel,
}

/// All zones.
#[derive(Debug)]
pub(super) struct Zones {
    config: ZoneConfig,
    sector: u64,
    progress: Vec<Progress>,
}

/// How far a zone is. Bytes are counted from its start.
#[derive(Clone, Copy, Debug)]
struct Progress {
    state: ZoneState,
    pointer: u64,
    durable: u64,
}

impl Zones {
    pub(super) fn new(config: ZoneConfig, sector: u64) -> Self {
        let empty = Progress {
            state: ZoneState::Empty,
            pointer: 0,
            durable: 0,
        };
        Self {
            config,
            sector,
            progress: vec![empty; config.zones as usize],
        }
    }

    pub(super) fn facts(&self) -> Zoned {
        Zoned {
            model: self.config.model,
            zone_bytes: self.config.zone_bytes,
            zones: self.config.zones,
            active_most: self.config.active_most,
            transfer_most: 1 << 20,
        }
    }

    pub(super) fn report(&self, start: u64, count: u32) -> Vec<Zone> {
        let first = start / self.config.zone_bytes;
        let numbers = first..(first + u64::from(count)).min(u64::from(self.config.zones));
        numbers.map(|number| self.zone(number)).collect()
    }

    /// Has a zone be in another state from now on, as when a device gives it up.
    pub(super) fn set(&mut self, number: u32, state: ZoneState) {
        self.progress[number as usize].state = state;
    }

    /// Takes a write; the error if it is against the rules.
    pub(super) fn write(&mut self, range: Range<u64>, durable: bool) -> Result<(), i32> {
        let number = (range.start / self.config.zone_bytes) as usize;
        let active = self.active();
        let first = number as u64 * self.config.zone_bytes;
        let (capacity, most) = (self.config.capacity, self.config.active_most);
        let zone = self.progress.get_mut(number).ok_or(libc::EIO)?;
        let (start, end) = (range.start - first, range.end - first);
        let fits = start == zone.pointer && end <= capacity;
        match zone.state {
            ZoneState::Empty if most > 0 && active >= most => return Err(libc::EOVERFLOW),
            ZoneState::Empty | ZoneState::Active if fits => {}
            _ => return Err(libc::EIO),
        }
        zone.pointer = end;
        if durable {
            zone.durable = end;
        }
        zone.state = match end == capacity {
            true => ZoneState::Full,
            false => ZoneState::Active,
        };
        Ok(())
    }

    /// Resets or finishes a zone: the bytes that read as zeroes from now on. The error if it cannot
    /// be.
    pub(super) fn manage(&mut self, action: ZoneAction) -> Result<Range<u64>, i32> {
        let (start, len, reset) = match action {
            ZoneAction::Reset { start, len } => (start, len, true),
            ZoneAction::Finish { start, len } => (start, len, false),
            ZoneAction::Report { start, .. } => return Ok(start..start),
        };
        if !start.is_multiple_of(self.config.zone_bytes) || len != self.config.zone_bytes {
            return Err(libc::EINVAL);
        }
        let number = (start / self.config.zone_bytes) as usize;
        let zone = self.progress.get_mut(number).ok_or(libc::EINVAL)?;
        if matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(libc::EIO);
        }
        if !reset {
            // What is in it when it is finished is durable, as with a device: it cannot be taken
            // back.
            (zone.state, zone.durable) = (ZoneState::Full, zone.pointer);
            return Ok(start..start);
        }
        *zone = Progress {
            state: ZoneState::Empty,
            pointer: 0,
            durable: 0,
        };
        Ok(start..start + len)
    }

    /// Everything written so far is durable.
    pub(super) fn sync(&mut self) {
        for zone in &mut self.progress {
            zone.durable = zone.pointer;
        }
    }

    /// Takes pointers back by seed: the bytes that are lost.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        let (sector, zone_bytes, capacity) =
            (self.sector, self.config.zone_bytes, self.config.capacity);
        for (number, zone) in (0..).zip(&mut self.progress) {
            let sectors = (zone.pointer - zone.durable) / sector;
            if sectors == 0 {
                continue;
            }
            let first = number * zone_bytes;
            let kept = zone.durable + rng.below(sectors + 1) * sector;
            lost.push(first + kept..first + zone.pointer);
            (zone.pointer, zone.durable) = (kept, kept);
            zone.state = match zone.state {
                ZoneState::Active | ZoneState::Full if kept == 0 => ZoneState::Empty,
                ZoneState::Full if kept < capacity => ZoneState::Active,
                state => state,
            };
        }
        lost
    }

    fn active(&self) -> u32 {
        let active = |zone: &&Progress| zone.state == ZoneState::Active;
        self.progress.iter().filter(active).count() as u32
    }

    fn zone(&self, number: u64) -> Zone {
        let Progress { state, pointer, .. } = self.progress[number as usize];
        let start = number * self.config.zone_bytes;
        // Where there is no pointer a device says what it likes.
        let known = matches!(state, ZoneState::Empty | ZoneState::Active);
        Zone {
            start,
            capacity: self.config.capacity,
            pointer: if known { start + pointer } else { u64::MAX },
            kind: ZoneKind::Sequential,
            state,
        }
    }
}
