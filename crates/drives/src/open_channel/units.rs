//! A handle to some parallel units of a device. No other unit can be reached through it.
//!
//! Ownership is enforced here, below everything that decides: a command with an address of another
//! owner is not submitted.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use flashyard_block::IoError;
use flashyard_flash::channel::{ChunkInfo, ChunkState, Geometry, Op, Place};
use flashyard_time::{Histogram, Time};

use super::layout::Unit;
use super::medium::chunk_address;
use crate::backing::{Backing, Owner, OwnerId, Vector};

/// The chunk that the copies of the layout are in.
const LAYOUT_CHUNK: u32 = 0;

/// The units whose first chunk is not for partitions: it has a copy of the layout. On different
/// channels if there are several.
pub(super) fn layout_units(geometry: &Geometry) -> [Unit; 2] {
    [(0, 0), (geometry.groups - 1, geometry.pus - 1)]
}

/// What a handle may address.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    /// Parallel units, but not the copies of the layout on them.
    Units(Vec<Unit>),
    /// The copies of the layout.
    Layout,
}

/// See the module. Commands to the device in order, so many in flight.
pub(super) struct OwnUnits {
    drive: Rc<dyn Backing>,
    id: OwnerId,
    scope: Scope,
    /// Of each parallel unit, channel after channel: whether it is its own.
    own: Vec<bool>,
}

/// An address that does not belong to the owner, or a device without power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The address belongs to another owner.
    Foreign(u64),
    /// Off, or more than the device takes.
    Device,
}

impl OwnUnits {
    /// A handle to what `scope` says, for `owner`.
    pub fn new(drive: &Rc<dyn Backing>, scope: Scope, owner: Weak<dyn Owner>) -> Self {
        let geometry = drive.geometry();
        let mut own = vec![false; geometry.total_pus() as usize];
        if let Scope::Units(units) = &scope {
            for &(group, pu) in units {
                own[number(geometry, group, pu)] = true;
            }
        }
        Self {
            drive: drive.clone(),
            id: drive.register(owner),
            scope,
            own,
        }
    }

    pub fn drive(&self) -> &dyn Backing {
        &*self.drive
    }

    /// Submits a command. Which addresses were accepted: a bit each.
    pub fn submit(&self, at: Time, tag: u32, vector: Vector<'_>) -> Result<u64, Denied> {
        let targets = match vector.op {
            Op::Copy { to } => to,
            _ => &[],
        };
        if let Some(&foreign) = vector
            .addresses
            .iter()
            .chain(targets)
            .find(|one| !self.owns(**one))
        {
            return Err(Denied::Foreign(foreign));
        }
        let submitted = self.drive.submit(at, self.id, tag, vector);
        submitted.ok_or(Denied::Device)?.map_err(|_| Denied::Device)
    }

    /// Sectors of its units, without the copies of the layout.
    pub fn sectors(&self) -> u64 {
        let geometry = self.drive.geometry();
        let own = |&&(group, pu): &&Unit| self.own[number(geometry, group, pu)];
        let units = self.own.iter().filter(|own| **own).count() as u64;
        let layouts = layout_units(geometry).iter().filter(own).count() as u64;
        let chunks = units * u64::from(geometry.chunks) - layouts;
        chunks * u64::from(geometry.clba)
    }

    /// How much later than due its completions were reported, in nanoseconds of the machine's
    /// clock.
    pub fn lateness(&self) -> Histogram {
        self.drive.lateness(self.id)
    }

    /// Notifies the owner at an instant.
    pub fn set_alarm(&self, alarm: Option<Time>) {
        self.drive.set_alarm(self.id, alarm);
    }

    /// Gives a sector of its own, of the read whose completion is being reported; false when that
    /// is lost.
    pub fn read(&self, address: u64, target: &mut [u8]) -> bool {
        self.owns(address) && self.drive.read(address, target)
    }

    /// Stores data of a sector of a write that was accepted by [`OwnUnits::submit`]. Nothing when
    /// the power is off.
    pub fn store(&self, tag: u32, address: u64, data: &[u8]) -> Option<Result<(), IoError>> {
        self.drive.store(self.id, tag, address, data)
    }

    /// A chunk whose reset was accepted, and has ended, holds nothing any more.
    pub fn forget(&self, address: u64) {
        self.drive.forget(address);
    }

    /// One of its chunks.
    pub fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        self.drive.chunk(address).filter(|_| self.owns(address))
    }

    /// Chunks of its units. The copies of the layout are shown as out of use to all who have the
    /// rest of the unit.
    pub fn report(&self) -> Vec<ChunkInfo> {
        let geometry = self.drive.geometry();
        let reserved =
            layout_units(geometry).map(|unit| chunk_address(geometry, unit, LAYOUT_CHUNK));
        let mut chunks = self.drive.report();
        let place = |address| geometry.place(address);
        chunks.retain(|chunk| place(chunk.address).is_some_and(|place| self.has_unit(&place)));
        for chunk in &mut chunks {
            if reserved.contains(&chunk.address) {
                chunk.state = ChunkState::Offline;
            }
        }
        chunks
    }

    fn owns(&self, address: u64) -> bool {
        let geometry = self.drive.geometry();
        let Some(place) = geometry.place(address) else {
            return false;
        };
        let in_copy = is_copy(geometry, &place);
        match &self.scope {
            Scope::Units(_) => self.has_unit(&place) && !in_copy,
            Scope::Layout => in_copy,
        }
    }

    fn has_unit(&self, place: &Place) -> bool {
        self.own[number(self.drive.geometry(), place.group, place.pu)]
    }
}

fn number(geometry: &Geometry, group: u32, pu: u32) -> usize {
    (group * geometry.pus + pu) as usize
}

fn is_copy(geometry: &Geometry, place: &Place) -> bool {
    place.chunk == LAYOUT_CHUNK && layout_units(geometry).contains(&(place.group, place.pu))
}

/// The first addresses of the two copies of the layout.
pub(super) fn copies(geometry: &Geometry) -> [u64; 2] {
    layout_units(geometry).map(|unit| chunk_address(geometry, unit, LAYOUT_CHUNK))
}

/// Tags of queued commands, so that no owner has more in flight than its bound.
#[derive(Debug, Default)]
pub(super) struct Turns {
    in_flight: usize,
    waiting: VecDeque<u32>,
}

impl Turns {
    /// Vector commands of one owner with the device.
    const MOST: usize = 512;

    pub fn push(&mut self, tag: u32) {
        self.waiting.push_back(tag);
    }

    /// The next that may be submitted.
    pub fn next(&mut self) -> Option<u32> {
        if self.in_flight >= Self::MOST {
            return None;
        }
        let tag = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(tag)
    }

    /// Nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// A command has ended.
    pub fn ended(&mut self) {
        self.in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use flashyard_flash::Profile;
    use flashyard_flash::channel::{self, Options};
    use flashyard_runtime::sim::{Config, World};

    use super::super::drive::Drive;
    use super::super::medium::Medium;
    use super::*;
    use crate::backing::Done;

    struct Silent;

    impl Owner for Silent {
        fn completed(&self, _at: Time, _done: &Done) {}
        fn alarm(&self, _at: Time) {}
    }

    #[test]
    fn nothing_of_others_can_be_addressed() {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let profile = Profile::named("cnex").expect("it ships");
            let device = channel::Device::new(&profile, 1 << 30, 1, Options::default());
            let medium = Medium::new(device.expect("the capacity fits"));
            let drive: Rc<dyn Backing> = Drive::start(&rt, medium, 1);
            let owner: Rc<dyn Owner> = Rc::new(Silent);
            let scope = Scope::Units(vec![(0, 0), (3, 2)]);
            let units = OwnUnits::new(&drive, scope, Rc::downgrade(&owner));
            let geometry = drive.geometry().clone();
            let chunk = |unit, chunk| chunk_address(&geometry, unit, chunk);
            let [layout, _] = copies(&geometry);
            let submit = |op: Op<'_>, addresses: &[u64]| {
                let vector = Vector {
                    op,
                    addresses,
                    wanted: 0,
                };
                units.submit(drive.catch_up(), 0, vector)
            };
            for foreign in [chunk((0, 1), 1), chunk((3, 3), 1), layout, u64::MAX] {
                let own = chunk((3, 2), 1);
                let read = submit(Op::Read, &[own, foreign]);
                assert_eq!(read, Err(Denied::Foreign(foreign)));
                let copy = Op::Copy { to: &[foreign] };
                let copied = submit(copy, &[own]);
                assert_eq!(copied, Err(Denied::Foreign(foreign)));
                assert_eq!(units.chunk(foreign), None);
                assert!(!units.read(foreign, &mut [0; 4096]));
            }
            let own = [chunk((0, 0), 1), chunk((3, 2), 0)];
            let submitted = submit(Op::Read, &own);
            assert!(submitted.is_ok(), "{submitted:?}");
            let report = units.report();
            assert_eq!(report.len() as u32, 2 * geometry.chunks);
            let offline = report
                .iter()
                .filter(|chunk| chunk.state == ChunkState::Offline);
            assert_eq!(
                offline.map(|chunk| chunk.address).collect::<Vec<_>>(),
                [layout]
            );
        });
    }
}
