//! The disks and files of all simulated machines: how long operations take, what goes wrong with
//! them, and who has them open. What they hold and what survives a power cut is in `medium`.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flashyard_time::{Duration, Time};

use super::config::DiskConfig;
use super::context::{Event, Ready, SimContext, Waiter};
use super::medium::{Mark as SyncMark, Medium};
use super::pipe::draw;
use super::trace::Mark;
use super::zones::Zones;
use crate::handle::{FileId, FileInfo, FileKind, OpenOptions};
use crate::op::Outcome;
use crate::zone::{Zone, ZoneAction, Zoned};

/// Offsets end here, as on the real machine.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// All disks.
#[derive(Default)]
pub(super) struct Disks {
    states: Vec<State>,
    files: BTreeMap<FileId, Opened>,
    next_file: u32,
    next_operation: u64,
}

/// One block device or regular file of one machine; it survives the machine's crashes.
pub(super) struct State {
    machine: usize,
    path: PathBuf,
    kind: FileKind,
    pub(super) config: DiskConfig,
    pub(super) medium: Medium,
    /// Of a zoned block device.
    pub(super) zones: Option<Zones>,
    pub(super) faults: Vec<Fault>,
    /// Added to every operation.
    pub(super) delay: Duration,
    /// Storage there is; `None` for as much as the size says.
    pub(super) space: Option<u64>,
    in_flight: BTreeMap<u64, InFlight>,
    /// When the last transfer so far will have passed the bus.
    bus_free: Time,
}

/// Operations on a range that fail.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) access: Access,
    pub(super) range: Range<u64>,
    pub(super) errno: i32,
    /// How many more times; `None`: always.
    pub(super) times: Option<u32>,
}

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes, zeroing and freeing.
    Write,
    /// Syncs, of whatever range.
    Sync,
    /// Resets and finishes of zones.
    Zone,
}

/// What an open file may do.
struct Opened {
    disk: usize,
    write: bool,
    exclusive: bool,
    alignment: u32,
}

struct InFlight {
    waiter: Waiter,
    action: Action,
}

/// What an operation does when its time has come.
pub(super) enum Action {
    Read {
        offset: u64,
        len: usize,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
        durable: bool,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    /// Makes durable what was there at the mark.
    Sync(SyncMark),
    /// Does something with zones.
    Zone(ZoneAction),
}

/// An operation of a disk has run its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskEvent {
    disk: usize,
    operation: u64,
}

impl Disks {
    pub(super) fn add(
        &mut self,
        machine: usize,
        path: &Path,
        kind: FileKind,
        size: u64,
        config: DiskConfig,
    ) -> usize {
        let medium = Medium::new(size, u64::from(config.sector), config.cache_bytes);
        let (faults, in_flight) = (Vec::new(), BTreeMap::new());
        let path = path.to_path_buf();
        let (delay, space, bus_free) = (Duration::ZERO, None, Time::ZERO);
        self.states.push(State {
            machine,
            path,
            kind,
            config,
            medium,
            zones: None,
            faults,
            delay,
            space,
            in_flight,
            bus_free,
        });
        self.states.len() - 1
    }

    pub(super) fn find(&self, machine: usize, path: &Path) -> Option<usize> {
        self.states
            .iter()
            .position(|disk| disk.machine == machine && disk.path == path)
    }

    pub(super) fn disk(&mut self, disk: usize) -> &mut State {
        &mut self.states[disk]
    }

    pub(super) fn open(
        &mut self,
        machine: usize,
        path: &Path,
        options: OpenOptions,
        config: &DiskConfig,
    ) -> io::Result<(FileId, FileInfo)> {
        let disk = match self.find(machine, path) {
            Some(disk) => disk,
            None if options.create => self.add(machine, path, FileKind::File, 0, config.clone()),
            None => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        let kind = self.states[disk].kind;
        let mut held = self
            .files
            .values()
            .filter(|file| file.disk == disk && file.exclusive);
        if options.exclusive && held.next().is_some() {
            let errno = if kind == FileKind::Block {
                libc::EBUSY
            } else {
                libc::EWOULDBLOCK
            };
            return Err(io::Error::from_raw_os_error(errno));
        }
        let aligned = options.direct || kind == FileKind::Block;
        let alignment = if aligned {
            self.states[disk].config.sector
        } else {
            1
        };
        let file = FileId(self.next_file);
        self.next_file += 1;
        let (write, exclusive) = (options.write, options.exclusive);
        self.files.insert(
            file,
            Opened {
                disk,
                write,
                exclusive,
                alignment,
            },
        );
        let size = self.states[disk].medium.size();
        Ok((
            file,
            FileInfo {
                kind,
                size,
                direct: options.direct,
                alignment,
            },
        ))
    }

    pub(super) fn close(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    pub(super) fn size(&self, file: FileId) -> io::Result<u64> {
        let opened = self.files.get(&file).ok_or_else(bad_file)?;
        Ok(self.states[opened.disk].medium.size())
    }

    pub(super) fn set_size(&mut self, file: FileId, size: u64) -> io::Result<()> {
        let opened = self.files.get(&file).ok_or_else(bad_file)?;
        let disk = &mut self.states[opened.disk];
        if !opened.write || disk.kind == FileKind::Block || size > MAX_OFFSET {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        disk.medium.set_size(size);
        Ok(())
    }

    /// What a file is as a zoned block device.
    pub(super) fn zoned(&self, file: FileId) -> io::Result<Option<Zoned>> {
        let opened = self.files.get(&file).ok_or_else(bad_file)?;
        Ok(self.states[opened.disk].zones.as_ref().map(Zones::facts))
    }

    /// Starts an operation.
    pub(super) fn start(
        &mut self,
        sim: &mut SimContext,
        file: FileId,
        waiter: Waiter,
        action: Action,
    ) {
        let Some(opened) = self.files.get(&file) else {
            return sim.fail(waiter, libc::EBADF);
        };
        if let Err(errno) = opened.check(&action) {
            return sim.fail(waiter, errno);
        }
        let operation = self.next_operation;
        self.next_operation += 1;
        let index = opened.disk;
        let disk = &mut self.states[index];
        let bytes = action.transferred();
        sim.trace.note(sim.now, Mark::DiskStart, operation, bytes);
        let transfer = Duration::from_ns(bytes).scale(1_000_000_000, disk.config.bandwidth);
        disk.bus_free = disk.bus_free.max(sim.now) + transfer;
        let ends = disk.bus_free + draw(disk.config.latency, &mut sim.disk_rng) + disk.delay;
        disk.in_flight
            .insert(operation, InFlight { waiter, action });
        sim.events.push(
            ends,
            Event::Disk(DiskEvent {
                disk: index,
                operation,
            }),
        );
    }

    /// Starts a sync of all that has been written so far.
    pub(super) fn start_sync(&mut self, sim: &mut SimContext, file: FileId, waiter: Waiter) {
        match self.files.get(&file).map(|opened| opened.disk) {
            Some(disk) => {
                let mark = self.states[disk].medium.mark();
                self.start(sim, file, waiter, Action::Sync(mark));
            }
            None => sim.fail(waiter, libc::EBADF),
        }
    }

    /// Performs an operation whose time has come.
    pub(super) fn handle(&mut self, sim: &mut SimContext, event: DiskEvent) {
        let disk = &mut self.states[event.disk];
        let Some(InFlight { waiter, action }) = disk.in_flight.remove(&event.operation) else {
            return;
        };
        let result = disk.perform(action);
        let size = result.as_ref().map_or(0, |done| done.bytes as u64);
        sim.trace
            .note(sim.now, Mark::DiskEnd, event.operation, size);
        let ready = match result {
            Ok(Performed {
                read: Some(offset),
                bytes,
                ..
            }) => Ready::Read {
                disk: event.disk,
                offset,
                len: bytes,
            },
            Ok(Performed {
                zones: Some(zones), ..
            }) => Ready::Done(Ok(Outcome::Zones(zones))),
            Ok(Performed { bytes, .. }) => Ready::Done(Ok(Outcome::Bytes(bytes))),
            Err(errno) => Ready::Done(Err(io::Error::from_raw_os_error(errno))),
        };
        sim.end(waiter, ready);
    }

    /// The programs of a machine have ended; by seed, what they had in flight still reaches the
    /// disk or not.
    pub(super) fn crash(&mut self, sim: &mut SimContext, machine: usize) {
        let disks = &self.states;
        self.files
            .retain(|_, file| disks[file.disk].machine != machine);
        for disk in self
            .states
            .iter_mut()
            .filter(|disk| disk.machine == machine)
        {
            let mut in_flight: Vec<InFlight> =
                std::mem::take(&mut disk.in_flight).into_values().collect();
            sim.disk_rng.shuffle(&mut in_flight);
            for InFlight { action, .. } in in_flight {
                if action.changes() && sim.disk_rng.chance(1, 2) {
                    // A failure here would not have been reported.
                    let _ = disk.perform(action.without_promise());
                }
            }
        }
    }

    /// The power of a machine is cut, after [`Disks::crash`].
    pub(super) fn power_cut(&mut self, sim: &mut SimContext, machine: usize) {
        for (index, disk) in self.states.iter_mut().enumerate() {
            if disk.machine == machine {
                let unflushed = disk.medium.unflushed() as u64;
                sim.trace
                    .note(sim.now, Mark::PowerCut, index as u64, unflushed);
                disk.medium.power_cut(&mut sim.disk_rng);
                if let Some(zones) = &mut disk.zones {
                    for lost in zones.power_cut(&mut sim.disk_rng) {
                        disk.medium.erase(lost);
                    }
                }
                disk.bus_free = sim.now;
            }
        }
    }
}

/// What an operation did.
struct Performed {
    /// Where the data has to be read from.
    read: Option<u64>,
    zones: Option<Vec<Zone>>,
    bytes: usize,
}

impl State {
    fn perform(&mut self, action: Action) -> Result<Performed, i32> {
        self.strike(&action)?;
        let size = self.medium.size();
        let (mut read, mut zones, mut bytes) = (None, None, 0);
        match action {
            Action::Read { offset, len } => {
                read = Some(offset);
                bytes = size.saturating_sub(offset).min(len as u64) as usize;
            }
            Action::Write {
                offset,
                bytes: data,
                durable,
            } => {
                bytes = self.writable(offset, data.len())?;
                let mut durable = durable;
                if let Some(zones) = &mut self.zones {
                    zones.write(offset..offset + bytes as u64, durable)?;
                    // What of it survives a power cut the zone's pointer says.
                    durable = true;
                }
                self.medium.write(offset, &data[..bytes], durable);
            }
            Action::Zero { .. } if self.zones.is_some() => return Err(libc::EOPNOTSUPP),
            Action::Zero { offset, len } => {
                self.medium.zero(offset.min(size)..(offset + len).min(size));
            }
            Action::Sync(mark) => {
                self.medium.sync(mark);
                self.zones.iter_mut().for_each(Zones::sync);
            }
            Action::Zone(action) => zones = Some(self.manage(action)?),
        }
        Ok(Performed { read, zones, bytes })
    }

    /// Does something with zones; what a report tells.
    fn manage(&mut self, action: ZoneAction) -> Result<Vec<Zone>, i32> {
        let zones = self.zones.as_mut().ok_or(libc::ENOTTY)?;
        if let ZoneAction::Report { start, count } = action {
            return Ok(zones.report(start, count));
        }
        let erased = zones.manage(action)?;
        if !erased.is_empty() {
            self.medium.erase(erased);
        }
        Ok(Vec::new())
    }

    /// How much of a write there is room for.
    fn writable(&self, offset: u64, len: usize) -> Result<usize, i32> {
        let mut fits = len;
        if self.kind == FileKind::Block {
            fits = self.medium.size().saturating_sub(offset).min(len as u64) as usize;
        }
        let more = self.medium.missing(offset..offset + fits as u64);
        let full = self
            .space
            .is_some_and(|space| self.medium.allocated() + more > space);
        if full || (fits == 0 && len > 0) {
            Err(libc::ENOSPC)
        } else {
            Ok(fits)
        }
    }

    /// The error that an injected fault answers with, if one applies.
    fn strike(&mut self, action: &Action) -> Result<(), i32> {
        let (access, range) = action.touches();
        let hit = self.faults.iter().position(|fault| {
            let overlap = fault.range.start < range.end && range.start < fault.range.end;
            fault.access == access && (overlap || access == Access::Sync)
        });
        let Some(index) = hit else { return Ok(()) };
        let fault = &mut self.faults[index];
        let errno = fault.errno;
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                self.faults.remove(index);
            }
        }
        Err(errno)
    }
}

impl Opened {
    fn check(&self, action: &Action) -> Result<(), i32> {
        let (access, range) = action.touches();
        let alignment = u64::from(self.alignment);
        if matches!(access, Access::Write | Access::Zone) && !self.write {
            return Err(libc::EBADF);
        }
        let zeroing = matches!(action, Action::Zero { .. });
        if range.end > MAX_OFFSET || (zeroing && range.is_empty()) {
            return Err(libc::EINVAL);
        }
        let aligned = range.start.is_multiple_of(alignment) && range.end.is_multiple_of(alignment);
        if aligned || access == Access::Sync {
            Ok(())
        } else {
            Err(libc::EINVAL)
        }
    }
}

impl Action {
    fn touches(&self) -> (Access, Range<u64>) {
        match self {
            Self::Read { offset, len } => (Access::Read, span(*offset, *len as u64)),
            Self::Write { offset, bytes, .. } => (Access::Write, span(*offset, bytes.len() as u64)),
            Self::Zero { offset, len } => (Access::Write, span(*offset, *len)),
            Self::Sync(_) => (Access::Sync, 0..0),
            Self::Zone(ZoneAction::Reset { start, len } | ZoneAction::Finish { start, len }) => {
                (Access::Zone, span(*start, *len))
            }
            Self::Zone(ZoneAction::Report { .. }) => (Access::Read, 0..0),
        }
    }

    /// Bytes that pass the bus.
    fn transferred(&self) -> u64 {
        match self {
            Self::Read { len, .. } => *len as u64,
            Self::Write { bytes, .. } => bytes.len() as u64,
            Self::Zero { .. } | Self::Sync(_) | Self::Zone(_) => 0,
        }
    }

    fn changes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. } | Self::Zone(_))
    }

    /// The same, but without the promise that it is durable.
    fn without_promise(self) -> Self {
        match self {
            Self::Write { offset, bytes, .. } => Self::Write {
                offset,
                bytes,
                durable: false,
            },
            other => other,
        }
    }
}

fn span(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

fn bad_file() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}
