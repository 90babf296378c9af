//! An emulated open-channel device, cut into partitions of exclusive parallel units.
//!
//! A partition is a device: a translation layer of its own ([`flashyard_flash::ftl`]) over units
//! that no other partition can address, with its own queues, write buffer and bounds. Its
//! neighbours do not disturb it, in flash or in software, except on shared channels. That is why
//! whole channels are given out unless the user wants otherwise.
//!
//! Which units belong to whom is stored on the device, twice, in chunks that no partition can
//! reach.
//!
//! Time and content are apart, as with emulated drives (`crate::flash`). Content is in memory,
//! which is forgotten when the program ends, or in a file, out of which the device is opened again
//! whenever and however the program ended.
//!
//! Map: `layout` decides who gets which units, pure; `codec` and `copies` are its bytes and its
//! places; `drive` is the device in real time, `model` who waits for what in it, `units` the only
//! way to it; `span` runs a translation layer, `partition` is what users see. Of a device in a
//! file, `image` is the bytes, `file_store` reads and writes them, `jobs` says when, `reopen` what
//! is found. `check` tells what is wrong with flash that stands `still`.

mod check;
mod codec;
mod copies;
mod drive;
mod error;
mod file_store;
mod image;
mod jobs;
mod layout;
mod medium;
mod model;
mod partition;
mod reopen;
mod span;
mod still;
mod units;
mod zoned;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_block::IoError;
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::Geometry;
use flashyard_flash::ftl::State;
use flashyard_runtime::Rt;
use flashyard_runtime::sync::Semaphore;
use flashyard_time::Histogram;

pub use check::{PartitionReport, Report, check, check_zoned, describe_layout, is_image, is_zoned};
pub use error::PartitionError;
pub use layout::{LayoutError, Unit, Wanted};
pub use medium::Medium;
pub use partition::Partition;

use crate::backing::Backing;

use copies::Copies;
use drive::Drive;
use layout::{Layout, Record};
use span::{Begin, Span};

/// An open-channel device with its partitions. Lives on its home core.
pub struct OpenChannel {
    backing: Rc<dyn Backing>,
    /// The backing, when it is emulated.
    model: Option<Rc<Drive>>,
    copies: Rc<Copies>,
    /// Held by the change that is in flight.
    changing: Semaphore,
    state: RefCell<Contents>,
}

struct Contents {
    layout: Layout,
    /// The copy of the layout that counts.
    newest: usize,
    partitions: BTreeMap<String, Rc<Partition>>,
    /// Partitions that could not be opened, and why.
    faults: BTreeMap<String, PartitionError>,
}

/// Facts about a partition. Bytes per second are what its units can do, not what they did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Unique on its device.
    pub name: String,
    /// Given when it was created, never changes.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub bytes: u64,
    /// Flash beyond that, in thousandths of it.
    pub over_provisioning: u32,
    /// Channel and number there of all its units, in the order of the stripe.
    pub units: Vec<Unit>,
    /// No other partition has units on its channels.
    pub own_channels: bool,
    /// Bytes per second that its units can program, if their channels are free.
    pub programs_per_second: u64,
    /// Bytes written by hosts, and written to flash in all.
    pub written: (u64, u64),
    /// Flash that may still fail before it is read-only, in bytes.
    pub spare: u64,
    /// Least and most erases of a line.
    pub erases: (u32, u32),
    /// It takes no more writes: too much of its flash has failed.
    pub read_only: bool,
    /// How much later than due 99 of 100 completions of the device were reported, in nanoseconds of
    /// the machine's clock.
    pub late_p99_ns: u64,
}

/// A partition as the device has recorded it, whether it can be used or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Unique on its device.
    pub name: String,
    /// Given when it was created, never changes.
    pub uuid: [u8; 16],
    /// Flash beyond its size, in thousandths of the size.
    pub over_provisioning: u32,
    /// The units that it was given, each time that it was created or grew.
    pub spans: Vec<Vec<Unit>>,
    /// Its state, or why it could not be opened.
    pub state: Result<PartitionInfo, PartitionError>,
}

impl OpenChannel {
    /// Runs `medium` from now on, `dilation` times slower than it is; 0 counts as 1. Partitions on
    /// it are opened. `uuid` is given to a device that has none.
    pub async fn open(
        rt: &Rt,
        medium: Medium,
        uuid: [u8; 16],
        dilation: u32,
    ) -> Result<Self, PartitionError> {
        let drive = Drive::start(rt, medium, dilation);
        Self::open_on(Rc::clone(&drive) as _, Some(drive), uuid).await
    }

    async fn open_on(
        backing: Rc<dyn Backing>,
        model: Option<Rc<Drive>>,
        uuid: [u8; 16],
    ) -> Result<Self, PartitionError> {
        let copies = Copies::new(&backing)?;
        let Geometry { groups, pus, .. } = *backing.geometry();
        let found = copies.find().await?;
        let (layout, newest) = match found {
            Some(found) => {
                copies.repair(&found).await?;
                (found.content, found.place)
            }
            None => {
                let layout = Layout::new(uuid, groups, pus);
                let newest = copies.commit(&layout, 1).await?;
                (layout, newest)
            }
        };
        if (layout.groups, layout.pus) != (groups, pus) {
            return Err(PartitionError::Geometry(format!(
                "the partitions were made on {} channels with {} units each: give the device its geometry back",
                layout.groups, layout.pus
            )));
        }
        let this = Self {
            backing,
            model,
            copies,
            changing: Semaphore::new(1),
            state: RefCell::new(Contents {
                layout,
                newest,
                partitions: BTreeMap::new(),
                faults: BTreeMap::new(),
            }),
        };
        this.take_up().await?;
        this.backing.wait_for_space(true);
        Ok(this)
    }

    /// Creates a partition; what was on its units is erased. `over_provisioning` is flash beyond
    /// the capacity, in thousandths of it.
    pub async fn create(
        &self,
        name: &str,
        uuid: [u8; 16],
        wanted: &Wanted,
        over_provisioning: u32,
    ) -> Result<Rc<Partition>, PartitionError> {
        self.begin_change().await?;
        let created = self
            .create_alone(name, uuid, wanted, over_provisioning)
            .await;
        self.end_change(created)
    }

    /// Gives a partition more units, while it is used; they hold its last blocks.
    pub async fn grow(&self, name: &str, wanted: &Wanted) -> Result<(), PartitionError> {
        self.begin_change().await?;
        let grown = self.grow_alone(name, wanted).await;
        self.end_change(grown)
    }

    /// Deletes a partition, used or not: its later I/O gets [`IoError::NotReady`], what was
    /// issued is waited for.
    pub async fn delete(&self, name: &str) -> Result<(), PartitionError> {
        self.begin_change().await?;
        let deleted = self.delete_alone(name).await;
        self.end_change(deleted)
    }

    /// The partition called `name`. All callers get the same one.
    pub fn partition(&self, name: &str) -> Option<Rc<Partition>> {
        self.state.borrow().partitions.get(name).cloned()
    }

    /// Why a partition on the device could not be opened. It can be deleted; its neighbours are not
    /// affected.
    pub fn fault(&self, name: &str) -> Option<PartitionError> {
        self.state.borrow().faults.get(name).cloned()
    }

    /// The partitions that can be used, in the order of their names.
    pub fn list(&self) -> Vec<PartitionInfo> {
        let state = self.state.borrow();
        let info = |(name, partition): (&String, &Rc<Partition>)| {
            let record = state.layout.find(name).ok()?;
            Some(self.info(&state.layout, record, partition))
        };
        state.partitions.iter().filter_map(info).collect()
    }

    /// All partitions that the device has recorded, in the order in which they were created.
    pub fn recorded(&self) -> Vec<Recorded> {
        let state = self.state.borrow();
        let recorded = |record: &Record| {
            let info = match (
                state.partitions.get(&record.name),
                state.faults.get(&record.name),
            ) {
                (Some(partition), _) => Ok(self.info(&state.layout, record, partition)),
                (None, Some(fault)) => Err(fault.clone()),
                // It is being deleted.
                (None, None) => return None,
            };
            Some(Recorded {
                name: record.name.clone(),
                uuid: record.uuid,
                over_provisioning: record.over_provisioning,
                spans: record.spans.iter().map(|span| span.units.clone()).collect(),
                state: info,
            })
        };
        state
            .layout
            .partitions
            .iter()
            .filter_map(recorded)
            .collect()
    }

    /// Free units.
    pub fn free(&self) -> Vec<Unit> {
        self.state.borrow().layout.free().into_iter().collect()
    }

    /// The geometry of the device.
    pub fn geometry(&self) -> &Geometry {
        self.backing.geometry()
    }

    /// How much later than due completions were reported, in nanoseconds of the machine's clock.
    pub fn lateness(&self) -> Histogram {
        let model = self.model.as_ref();
        model.map_or_else(Histogram::new, |model| model.lateness_of_all())
    }

    /// Bytes of memory that the content of the flash takes now.
    pub fn allocated(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| model.allocated())
    }

    /// Whether partitions and their data survive the end of the program.
    pub fn is_kept(&self) -> bool {
        self.backing.is_kept()
    }

    /// Why the device has failed, if it has: it is unusable until it is opened again.
    pub fn failure(&self) -> Option<IoError> {
        self.backing.failure()
    }

    /// Whether the store of the device has no space left: writes wait until there is some, and then
    /// go on.
    pub fn is_full(&self) -> bool {
        self.backing.is_full()
    }

    /// Makes everything in all partitions durable, with a checkpoint of each, so that the next
    /// recovery reads little. The first error, if there is one; the others are stopped all the
    /// same.
    pub async fn stop(&self) -> Result<(), IoError> {
        let partitions: Vec<_> = self.state.borrow().partitions.values().cloned().collect();
        let stops = partitions.into_iter().map(|partition| {
            let stop = async move { partition.stop().await };
            self.backing.rt().spawn(stop)
        });
        let mut outcome = Ok(());
        for stop in stops.collect::<Vec<_>>() {
            outcome = outcome.and(stop.await);
        }
        outcome
    }

    /// Ends the device: what is in flight is never completed. Finishes when a file that it is in is
    /// not used any more.
    pub async fn close(&self) {
        let Some(model) = &self.model else {
            return;
        };
        let medium = model.cut();
        model.idle().await;
        if let Some(medium) = medium {
            medium.settle(model.rt()).await;
        }
    }

    /// Cuts the power, and gives the remaining state of the flash. Nothing in flight is ever
    /// completed.
    pub fn power_cut(&self) -> Option<Medium> {
        self.model.as_ref()?.cut()
    }

    /// Waits for the change before. Without space a change fails, and the device with it: what was
    /// half done would be in the way of the next.
    async fn begin_change(&self) -> Result<(), PartitionError> {
        self.changing.acquire(1).await;
        if self.backing.is_full() {
            self.changing.release(1);
            return Err(PartitionError::Full);
        }
        self.backing.wait_for_space(false);
        Ok(())
    }

    fn end_change<T>(&self, outcome: Result<T, PartitionError>) -> Result<T, PartitionError> {
        self.backing.wait_for_space(true);
        self.changing.release(1);
        outcome.map_err(|error| match (error, self.failure()) {
            (PartitionError::Off, Some(why)) => PartitionError::Failed(why),
            (error, _) => error,
        })
    }

    async fn create_alone(
        &self,
        name: &str,
        uuid: [u8; 16],
        wanted: &Wanted,
        over_provisioning: u32,
    ) -> Result<Rc<Partition>, PartitionError> {
        let mut layout = self.state.borrow().layout.clone();
        let record = layout.add(name, uuid, wanted, over_provisioning)?.clone();
        self.check_units(&layout)?;
        // Formatted before the layout names it: a power cut leaves units without an owner.
        let span = self.format(&record, 0).await?;
        self.commit(layout).await?;
        let partition = Partition::new(self.backing.rt(), vec![span], self.stripe(&record));
        let mut state = self.state.borrow_mut();
        state.partitions.insert(name.to_owned(), partition.clone());
        Ok(partition)
    }

    async fn grow_alone(&self, name: &str, wanted: &Wanted) -> Result<(), PartitionError> {
        if let Some(fault) = self.fault(name) {
            return Err(fault);
        }
        let mut layout = self.state.borrow().layout.clone();
        let record = layout.grow(name, wanted)?.clone();
        self.check_units(&layout)?;
        let span = self.format(&record, record.spans.len() - 1).await?;
        self.commit(layout).await?;
        if let Some(partition) = self.partition(name) {
            partition.grown(span);
        }
        Ok(())
    }

    async fn delete_alone(&self, name: &str) -> Result<(), PartitionError> {
        let mut layout = self.state.borrow().layout.clone();
        layout.remove(name)?;
        let partition = self.state.borrow_mut().partitions.remove(name);
        if let Some(partition) = partition {
            partition.close().await;
        }
        self.commit(layout).await?;
        self.state.borrow_mut().faults.remove(name);
        Ok(())
    }

    async fn format(&self, record: &Record, place: usize) -> Result<Rc<Span>, PartitionError> {
        let begun = Span::begin(
            &self.backing,
            &record.spans[place],
            record.over_provisioning,
            Begin::Format,
        )?;
        begun.ready(&record.name).await?;
        Ok(begun)
    }

    /// Opens all partitions of the layout, at the same time. One that cannot be opened gets an
    /// error.
    async fn take_up(&self) -> Result<(), PartitionError> {
        let records = self.state.borrow().layout.partitions.clone();
        let mut begun = Vec::with_capacity(records.len());
        for record in &records {
            let begin = |span| {
                Span::begin(
                    &self.backing,
                    span,
                    record.over_provisioning,
                    Begin::Recover,
                )
            };
            let spans = record.spans.iter().map(begin);
            begun.push(spans.collect::<Result<Vec<_>, _>>()?);
        }
        for (record, spans) in records.iter().zip(begun) {
            let ready = all_ready(&spans, &record.name).await;
            let mut state = self.state.borrow_mut();
            match ready {
                Ok(()) => {
                    let partition = Partition::new(self.backing.rt(), spans, self.stripe(record));
                    state.partitions.insert(record.name.clone(), partition);
                }
                Err(fault @ PartitionError::Recover(..)) => {
                    state.faults.insert(record.name.clone(), fault);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes `layout` the state of the device.
    async fn commit(&self, mut layout: Layout) -> Result<(), PartitionError> {
        let exhausted = || PartitionError::Geometry("the layout cannot be changed any more".into());
        layout.generation = layout.generation.checked_add(1).ok_or_else(exhausted)?;
        let newest = self.state.borrow().newest;
        let newest = self.copies.commit(&layout, newest).await?;
        let mut state = self.state.borrow_mut();
        state.layout = layout;
        state.newest = newest;
        Ok(())
    }

    /// Sectors of a write to all units of the first span.
    fn stripe(&self, record: &Record) -> u32 {
        record.spans[0].units.len() as u32 * self.geometry().ws_opt
    }

    fn info(&self, layout: &Layout, record: &Record, partition: &Partition) -> PartitionInfo {
        let geometry = self.geometry();
        let units: Vec<Unit> = record.units().collect();
        let program = u64::from(geometry.ws_min) * UNIT_BYTES * 1_000_000_000;
        let per_unit = program.checked_div(geometry.write_ns.0).unwrap_or(0);
        let mut info = PartitionInfo {
            name: record.name.clone(),
            uuid: record.uuid,
            bytes: 0,
            over_provisioning: record.over_provisioning,
            own_channels: self.has_own_channels(layout, record),
            programs_per_second: per_unit * units.len() as u64,
            units,
            written: (0, 0),
            spare: 0,
            erases: (u32::MAX, 0),
            read_only: false,
            late_p99_ns: 0,
        };
        let mut lateness = Histogram::new();
        for span in partition.spans() {
            lateness.merge(&span.lateness());
            let (stats, space) = span.stats();
            info.bytes += span.capacity() * UNIT_BYTES;
            info.written.0 += stats.host_units * UNIT_BYTES;
            info.written.1 += stats.written_units * UNIT_BYTES;
            info.spare += space.spare * UNIT_BYTES;
            info.erases.0 = info.erases.0.min(space.erases.0);
            info.erases.1 = info.erases.1.max(space.erases.1);
            info.read_only |= span.state() == State::ReadOnly;
        }
        info.late_p99_ns = lateness.percentile(990_000);
        info
    }
}

async fn all_ready(spans: &[Rc<Span>], name: &str) -> Result<(), PartitionError> {
    for span in spans {
        span.ready(name).await?;
    }
    Ok(())
}
