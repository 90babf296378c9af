//! Zones of block devices. The kernel has no request of the ring for them, only calls that wait for
//! the device: a thread of its own makes those, one after the other, and the core is woken when one
//! has ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handle::FileId;
use crate::op::{Completion, Outcome};
use crate::ticket::Ticket;
use crate::wake::Remote;
use crate::zone::{Zone, ZoneAction, ZoneKind, ZoneModel, ZoneState, Zoned};

/// Bytes that the kernel counts by.
const SECTOR: u64 = 512;
/// Zones asked for at once.
const MOST_ZONES: u32 = 4096;

// Of linux/blkzoned.h; the libc crate has none of it.
const BLKREPORTZONE: libc::Ioctl = 0xC010_1282_u32 as libc::Ioctl;
const BLKRESETZONE: libc::Ioctl = 0x4010_1283;
const BLKGETZONESZ: libc::Ioctl = 0x8004_1284_u32 as libc::Ioctl;
const BLKGETNRZONES: libc::Ioctl = 0x8004_1285_u32 as libc::Ioctl;
const BLKFINISHZONE: libc::Ioctl = 0x4010_1288;
/// In the flags of a report: capacities are given.
const REPORT_CAPACITY: u32 = 1;

/// `struct blk_zone`, in sectors.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelZone {
    start: u64,
    len: u64,
    pointer: u64,
    kind: u8,
    condition: u8,
    advice: [u8; 2],
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// `struct blk_zone_report`, without the zones that follow it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelReport {
    sector: u64,
    count: u32,
    flags: u32,
}

/// `struct blk_zone_range`.
#[repr(C)]
struct KernelRange {
    sector: u64,
    count: u64,
}

/// Calls to be made.
struct Job {
    ticket: Ticket,
    fd: RawFd,
    action: ZoneAction,
}

/// What calls brought that the core has not taken yet; of a report the zones.
type Ended = Arc<Mutex<Vec<(Ticket, io::Result<Option<Vec<Zone>>>)>>>;

/// The thread that makes the calls, once there is one.
pub(super) struct Zones {
    remote: &'static Remote,
    ended: Ended,
    jobs: Option<mpsc::Sender<Job>>,
    in_flight: usize,
}

impl Zones {
    pub(super) fn new(remote: &'static Remote) -> Self {
        Self {
            remote,
            ended: Ended::default(),
            jobs: None,
            in_flight: 0,
        }
    }

    /// Has a call made on `file`, which its operation keeps open until the end was taken.
    pub(super) fn start(
        &mut self,
        ticket: Ticket,
        file: FileId,
        action: ZoneAction,
    ) -> io::Result<()> {
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => self.jobs.insert(spawn(self.remote, self.ended.clone())?),
        };
        let job = Job {
            ticket,
            fd: file.fd(),
            action,
        };
        jobs.send(job)
            .map_err(|_| io::Error::other("the thread for zones has ended"))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Takes what has ended. Most cores have no zones, and ask in every turn.
    #[inline]
    pub(super) fn reap(&mut self, done: &mut Vec<Completion>) {
        if self.in_flight > 0 {
            let mut ended = lock(&self.ended);
            self.in_flight -= ended.len();
            done.extend(ended.drain(..).map(|(ticket, result)| Completion {
                ticket,
                result: result.map(|zones| zones.map_or(Outcome::Done, Outcome::Zones)),
            }));
        }
    }
}

/// Starts the thread; it ends when its sender is gone.
fn spawn(remote: &'static Remote, ended: Ended) -> io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let work = move || {
        for Job { ticket, fd, action } in jobs {
            // SAFETY: the operation keeps the file open until its end was taken, which is reported
            // below.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let result = perform(fd, action);
            lock(&ended).push((ticket, result));
            remote.nudge();
        }
    };
    std::thread::Builder::new()
        .name("zones".to_owned())
        .spawn(work)?;
    Ok(sender)
}

fn perform(fd: BorrowedFd<'_>, action: ZoneAction) -> io::Result<Option<Vec<Zone>>> {
    match action {
        ZoneAction::Report { start, count } => report(fd, start, count).map(Some),
        ZoneAction::Reset { start, len } => manage(fd, BLKRESETZONE, start, len).map(|()| None),
        ZoneAction::Finish { start, len } => manage(fd, BLKFINISHZONE, start, len).map(|()| None),
    }
}

fn manage(fd: BorrowedFd<'_>, request: libc::Ioctl, start: u64, len: u64) -> io::Result<()> {
    let range = KernelRange {
        sector: start / SECTOR,
        count: len / SECTOR,
    };
    // SAFETY: these calls read a range, and `range` is one.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const range) })
}

fn report(fd: BorrowedFd<'_>, start: u64, count: u32) -> io::Result<Vec<Zone>> {
    const HEAD: usize = size_of::<KernelReport>();
    const EACH: usize = size_of::<KernelZone>();
    const _: () = assert!(HEAD == 16 && EACH == 64);
    let count = count.min(MOST_ZONES);
    // Words, so that both structures are aligned in it.
    let mut words = vec![0_u64; (HEAD + count as usize * EACH) / size_of::<u64>()];
    let head = words.as_mut_ptr().cast::<KernelReport>();
    // SAFETY: `words` has room for the head and for `count` zones behind it, as the call is given;
    // both are plain numbers, for which all bits are valid.
    let (head, zones) = unsafe {
        head.write(KernelReport {
            sector: start / SECTOR,
            count,
            flags: 0,
        });
        checked(libc::ioctl(fd.as_raw_fd(), BLKREPORTZONE, head))?;
        let reported = (*head).count.min(count) as usize;
        let first = head.add(1).cast::<KernelZone>();
        (*head, std::slice::from_raw_parts(first, reported))
    };
    let with_capacity = head.flags & REPORT_CAPACITY != 0;
    Ok(zones
        .iter()
        .map(|zone| translate(zone, with_capacity))
        .collect())
}

fn translate(zone: &KernelZone, with_capacity: bool) -> Zone {
    let capacity = if with_capacity {
        zone.capacity
    } else {
        zone.len
    };
    Zone {
        start: zone.start.saturating_mul(SECTOR),
        capacity: capacity.min(zone.len).saturating_mul(SECTOR),
        pointer: zone.pointer.saturating_mul(SECTOR),
        kind: match zone.kind {
            2 | 3 => ZoneKind::Sequential,
            _ => ZoneKind::Conventional,
        },
        state: match zone.condition {
            0 => ZoneState::Conventional,
            1 => ZoneState::Empty,
            2..=4 => ZoneState::Active,
            0xE => ZoneState::Full,
            0xD => ZoneState::ReadOnly,
            // An unknown condition cannot be relied on.
            _ => ZoneState::Offline,
        },
    }
}

/// What a file is as a zoned device; nothing when it is none.
pub(super) fn facts(file: FileId) -> io::Result<Option<Zoned>> {
    // SAFETY: the caller has the file open.
    let fd = unsafe { BorrowedFd::borrow_raw(file.fd()) };
    let Some(zones) = number(fd, BLKGETNRZONES).filter(|zones| *zones > 0) else {
        return Ok(None);
    };
    let Some(sectors) = number(fd, BLKGETZONESZ).filter(|sectors| *sectors > 0) else {
        return Ok(None);
    };
    let queue = queue_folder(fd)?;
    let read = |name: &str| std::fs::read_to_string(queue.join(name));
    let count = |name: &str| {
        let text = read(name).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let model = match read("zoned")?.trim() {
        "host-managed" => ZoneModel::HostManaged,
        "host-aware" => ZoneModel::HostAware,
        _ => return Ok(None),
    };
    let limits = [count("max_active_zones"), count("max_open_zones")];
    Ok(Some(Zoned {
        model,
        zone_bytes: u64::from(sectors) * SECTOR,
        zones,
        active_most: least_limit(limits),
        transfer_most: count("max_sectors_kb") * 1024,
    }))
}

/// The smaller limit; 0 is none. Zones that may be open bound those that may be written, whatever
/// may be active.
fn least_limit(limits: [u64; 2]) -> u32 {
    let least = limits.into_iter().filter(|limit| *limit > 0).min();
    least.map_or(0, |least| u32::try_from(least).unwrap_or(u32::MAX))
}

/// Where the kernel tells of the queue of a whole block device.
fn queue_folder(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let device = File::from(fd.try_clone_to_owned()?).metadata()?.rdev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    Ok(PathBuf::from(format!(
        "/sys/dev/block/{major}:{minor}/queue"
    )))
}

fn number(fd: BorrowedFd<'_>, request: libc::Ioctl) -> Option<u32> {
    let mut number = 0_u32;
    // SAFETY: these calls write one number of 32 bits, to where `number` is.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut number) };
    (result == 0).then_some(number)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the lock guards is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_zone_is_understood() {
        let zone = KernelZone {
            start: 2048,
            len: 2048,
            pointer: 2056,
            kind: 2,
            condition: 4,
            capacity: 1000,
            ..KernelZone::default()
        };
        let expected = Zone {
            start: 1 << 20,
            capacity: 512_000,
            pointer: (1 << 20) + 4096,
            kind: ZoneKind::Sequential,
            state: ZoneState::Active,
        };
        assert_eq!(translate(&zone, true), expected);
        assert_eq!(translate(&zone, false).capacity, 1 << 20);
        let state = |condition| translate(&KernelZone { condition, ..zone }, true).state;
        let states = [0, 1, 2, 3, 4, 0xD, 0xE, 0xF, 5].map(state);
        use ZoneState::{Active, Conventional, Empty, Full, Offline, ReadOnly};
        let expected = [
            Conventional,
            Empty,
            Active,
            Active,
            Active,
            ReadOnly,
            Full,
            Offline,
            Offline,
        ];
        assert_eq!(states, expected);
    }

    #[test]
    fn the_smaller_limit_counts_and_none_is_none() {
        let cases = [([0, 0], 0), ([14, 0], 14), ([14, 12], 12), ([0, 12], 12)];
        for (limits, least) in cases {
            assert_eq!(least_limit(limits), least);
        }
    }
}
