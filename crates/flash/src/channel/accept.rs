//! Checks commands when they are submitted, in the order of submission, and decides which parts are
//! accepted.

use alloc::vec;
use alloc::vec::Vec;

use super::{Action, Active, ChunkState, Command, Device, MOST_ADDRESSES, Metadata, Op, Status};
use crate::die::Lane;

/// No sector: the address names none.
const NOWHERE: u32 = u32::MAX;

impl Device {
    /// Takes a command into the firmware. A bit for each address that was accepted.
    pub(super) fn accept(&mut self, command: Command<'_>) -> u64 {
        let action = match command.op {
            Op::Read => Action::Read,
            Op::Write { .. } => Action::Write,
            Op::Reset => Action::Reset,
            Op::Copy { .. } => Action::Copy,
        };
        let index = self.begin(command.tag, action, command.addresses);
        match command.op {
            Op::Read => self.accept_reads(index),
            Op::Write { metadata } => {
                self.accept_writes(index);
                self.store_metadata(index, metadata);
            }
            Op::Reset => self.accept_resets(index),
            Op::Copy { to } => {
                for (place, &address) in to.iter().enumerate() {
                    let unit = self.unit(address).unwrap_or(NOWHERE);
                    self.commands[index as usize].targets[place] = unit;
                }
                self.accept_writes(index);
            }
        }
        let units = command.addresses.len() as u32;
        self.firmware_free = self.firmware_free.max(self.clock) + self.front.firmware(units);
        let arrival = self.firmware_free + self.front.entry;
        self.dies.events.push(Lane::Arrive, arrival, index);
        self.commands[index as usize].accepted
    }

    /// A command of which nothing has been accepted yet.
    fn begin(&mut self, tag: u64, action: Action, addresses: &[u64]) -> u32 {
        let index = self.unused.pop().unwrap_or_else(|| {
            self.commands.push(Active::new());
            self.commands.len() as u32 - 1
        });
        self.serial += 1;
        let mut units = [NOWHERE; MOST_ADDRESSES];
        for (unit, &address) in units.iter_mut().zip(addresses) {
            *unit = self.unit(address).unwrap_or(NOWHERE);
        }
        let command = &mut self.commands[index as usize];
        (command.tag, command.serial) = (tag, self.serial);
        (command.action, command.count) = (action, addresses.len() as u8);
        (command.status, command.failed) = (Status::Success, 0);
        (command.accepted, command.parts, command.programs) = (0, 0, 0);
        command.complete = false;
        command.units = units;
        command.metadata.clear();
        index
    }

    fn accept_reads(&mut self, index: u32) {
        for place in 0..self.commands[index as usize].count {
            let unit = self.commands[index as usize].units[place as usize];
            match self.may_read(unit) {
                Ok(chunk) => {
                    self.chunks[chunk].readers += 1;
                    self.commands[index as usize].accepted |= 1 << place;
                }
                Err(status) => self.commands[index as usize].fail(1 << place, status),
            }
        }
        let command = &mut self.commands[index as usize];
        command
            .metadata
            .resize(command.count as usize, Metadata::default());
    }

    /// The chunk of a sector that may be read.
    fn may_read(&self, unit: u32) -> Result<usize, Status> {
        if unit == NOWHERE {
            return Err(Status::OutOfRange);
        }
        let (chunk, sector) = self.split(unit);
        self.chunks[chunk].may_read(sector, &self.geometry)?;
        Ok(chunk)
    }

    /// Accepts the write units of a write or a copy, each as a whole.
    fn accept_writes(&mut self, index: u32) {
        let (count, size) = (
            u32::from(self.commands[index as usize].count),
            self.geometry.ws_min,
        );
        if !count.is_multiple_of(size) {
            let all = bits(0, count);
            return self.commands[index as usize].fail(all, Status::InvalidField);
        }
        for first in (0..count).step_by(size as usize) {
            match self.accept_write_unit(index, first) {
                Ok(()) => self.commands[index as usize].accepted |= bits(first, size),
                Err(status) => self.commands[index as usize].fail(bits(first, size), status),
            }
        }
    }

    fn accept_write_unit(&mut self, index: u32, first: u32) -> Result<(), Status> {
        let size = self.geometry.ws_min as usize;
        let command = &self.commands[index as usize];
        let range = first as usize..first as usize + size;
        let targets = &command.targets()[range.clone()];
        if targets.contains(&NOWHERE) {
            return Err(Status::OutOfRange);
        }
        let (chunk, sector) = self.split(targets[0]);
        if !targets
            .iter()
            .copied()
            .eq(targets[0]..targets[0] + size as u32)
            || !sector.is_multiple_of(size as u32)
        {
            return Err(Status::OutOfOrder);
        }
        self.chunks[chunk].may_write(sector)?;
        let die = self.die_of(chunk) as usize;
        let most = self.geometry.open_chunks_per_pu;
        let opens = self.chunks[chunk].state == ChunkState::Free;
        if opens && most > 0 && self.open[die] >= most {
            return Err(Status::TooManyOpen);
        }
        if command.action == Action::Copy {
            self.accept_sources(index, range)?;
        }
        self.open[die] += u32::from(opens);
        let chunk = &mut self.chunks[chunk];
        chunk.state = ChunkState::Open;
        chunk.next += size as u32;
        chunk.writers += 1;
        Ok(())
    }

    /// Accepts the reads of one write unit of a copy.
    fn accept_sources(&mut self, index: u32, range: core::ops::Range<usize>) -> Result<(), Status> {
        let units = self.commands[index as usize].units;
        for &unit in &units[range.clone()] {
            self.may_read(unit)?;
        }
        for &unit in &units[range] {
            let (chunk, _) = self.split(unit);
            self.chunks[chunk].readers += 1;
        }
        Ok(())
    }

    fn accept_resets(&mut self, index: u32) {
        for place in 0..self.commands[index as usize].count {
            let unit = self.commands[index as usize].units[place as usize];
            match self.may_reset(unit) {
                Ok(chunk) => {
                    self.chunks[chunk].resetting = true;
                    self.commands[index as usize].accepted |= 1 << place;
                }
                Err(status) => self.commands[index as usize].fail(1 << place, status),
            }
        }
    }

    /// The chunk that begins with `unit` and may be reset.
    fn may_reset(&self, unit: u32) -> Result<usize, Status> {
        if unit == NOWHERE {
            return Err(Status::OutOfRange);
        }
        let (chunk, sector) = self.split(unit);
        if sector != 0 {
            return Err(Status::InvalidField);
        }
        self.chunks[chunk].may_reset(&self.geometry)?;
        Ok(chunk)
    }

    /// Stores what goes with the accepted sectors of a write. Until they are programmed they cannot
    /// be read.
    fn store_metadata(&mut self, index: u32, metadata: &[Metadata]) {
        let command = &self.commands[index as usize];
        let (accepted, count, units) = (command.accepted, command.count, command.units);
        for place in (0..count as usize).filter(|place| accepted >> place & 1 == 1) {
            let given = metadata.get(place).copied();
            self.put_metadata(units[place], given.unwrap_or_default());
        }
    }

    pub(super) fn put_metadata(&mut self, unit: u32, metadata: Metadata) {
        let (chunk, sector) = self.split(unit);
        let kept = &mut self.metadata[chunk];
        if kept.is_none() && metadata == Metadata::default() {
            return;
        }
        let sectors = self.geometry.clba as usize;
        let kept =
            kept.get_or_insert_with(|| vec![Metadata::default(); sectors].into_boxed_slice());
        kept[sector as usize] = metadata;
    }

    pub(super) fn metadata_of(&self, unit: u32) -> Metadata {
        let (chunk, sector) = self.split(unit);
        let kept = self.metadata[chunk].as_ref();
        kept.map_or(Metadata::default(), |kept| kept[sector as usize])
    }
}

impl Active {
    fn new() -> Self {
        Self {
            tag: 0,
            serial: 0,
            action: Action::Read,
            count: 0,
            status: Status::Success,
            failed: 0,
            accepted: 0,
            parts: 0,
            programs: 0,
            complete: true,
            units: [NOWHERE; MOST_ADDRESSES],
            targets: [NOWHERE; MOST_ADDRESSES],
            metadata: Vec::new(),
        }
    }

    /// Where a write or a copy goes.
    pub(super) fn targets(&self) -> &[u32; MOST_ADDRESSES] {
        match self.action {
            Action::Copy => &self.targets,
            _ => &self.units,
        }
    }

    /// Has addresses fail. The status of the command is that of the lowest one.
    pub(super) fn fail(&mut self, addresses: u64, status: Status) {
        if self.failed == 0 || addresses.trailing_zeros() < self.failed.trailing_zeros() {
            self.status = status;
        }
        self.failed |= addresses;
    }
}

/// The bits of `count` addresses from `first` on.
pub(super) fn bits(first: u32, count: u32) -> u64 {
    (u64::MAX >> (64 - count)) << first
}
