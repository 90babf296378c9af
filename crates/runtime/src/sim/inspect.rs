//! A test's view of a disk or file: reads and changes its content, and injects faults.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use flashyard_time::Duration;

use super::disk::{Access, Fault, State};
use super::world::Shared;
use super::zones::{ZoneConfig, Zones};
use crate::ZoneState;

/// A block device or file of a simulated machine, seen from outside: takes no time, meets no
/// faults.
#[derive(Clone)]
pub struct Disk {
    shared: Rc<Shared>,
    number: usize,
}

impl Disk {
    pub(super) fn new(shared: Rc<Shared>, number: usize) -> Self {
        Self { shared, number }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.with(|state| state.medium.size())
    }

    /// Bytes of storage in use (in pages of 4 KiB).
    pub fn allocated(&self) -> u64 {
        self.with(|state| state.medium.allocated())
    }

    /// What a program would read; beyond the end there are zeroes.
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.with(|state| state.medium.read(range.start, &mut bytes));
        bytes
    }

    /// What would be there if a power cut now lost all that it may lose.
    pub fn read_durable(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.with(|state| state.medium.read_durable(range.start, &mut bytes));
        bytes
    }

    /// Puts bytes on the disk, durably.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.with(|state| state.medium.write(offset, bytes, true));
    }

    /// How many writes a power cut could undo.
    pub fn unflushed(&self) -> usize {
        self.with(|state| state.medium.unflushed())
    }

    /// Bit rot: turns over the bits of `mask` in one byte, for good.
    pub fn flip(&self, offset: u64, mask: u8) {
        self.with(|state| state.medium.flip(offset, mask));
    }

    /// Operations on any byte of `range` fail with `errno` (of Linux), the next `times` times or
    /// always. For [`Access::Sync`] the range does not matter.
    ///
    /// # Panics
    /// When `times` is zero.
    pub fn fail(&self, access: Access, range: Range<u64>, errno: i32, times: Option<u32>) {
        assert!(times != Some(0), "a fault that never strikes");
        self.with(|state| {
            state.faults.push(Fault {
                access,
                range,
                errno,
                times,
            });
        });
    }

    /// Takes all faults back.
    pub fn repair(&self) {
        self.with(|state| state.faults.clear());
    }

    /// Makes every operation that starts from now on take so much longer.
    pub fn slow(&self, by: Duration) {
        self.with(|state| state.delay = by);
    }

    /// Bounds the storage behind it: a write that needs more fails with `ENOSPC`. `None`: as much
    /// as is needed.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.with(|state| state.space = bytes);
    }

    /// Has a zone be in another state from now on, as when a device gives it up.
    ///
    /// # Panics
    /// When there is no such zone.
    pub fn set_zone(&self, zone: u32, state: ZoneState) {
        self.with(|disk| {
            let zones = disk.zones.as_mut().expect("the disk has zones");
            zones.set(zone, state);
        });
    }

    pub(super) fn set_zones(&self, zones: ZoneConfig) {
        self.with(|state| {
            state.zones = Some(Zones::new(zones, u64::from(state.config.sector)));
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(self.shared.simulation().disks.disk(self.number))
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Disk({} bytes, {} writes not synced)",
            self.size(),
            self.unflushed()
        )
    }
}
