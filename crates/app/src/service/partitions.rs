//! Open-channel and zoned devices and their partitions. A partition is a device like others to
//! pools, volumes and switches; its home is that of the device it was cut from.

use std::path::Path;
use std::rc::Rc;

use flashyard_block::{FileDevice, FileOptions};
use flashyard_drives::open_channel::{
    LayoutError, Medium as FlashMedium, OpenChannel, PartitionError, PartitionInfo, Wanted,
};
use flashyard_flash::channel::{self, Options};
use flashyard_flash::ssd::BuildError;
use uuid::Uuid;

use super::devices::Found;
use super::fault::{DriveFault, InUse, Invalid, Refused, Unavailable};
use super::work::Work;
use super::{Fault, Stack, Subject, flash, no_such};
use crate::control::{
    Condition, Health, KindName, PartitionFlash, PartitionRow, PartitionView, View,
};
use crate::cores::CoreState;
use crate::nodes::Node;
use crate::spec::{
    ChannelsSpec, DeviceKind, DeviceSpec, Medium, PartitionSpec, Store, parse_units, show_units,
};
use crate::state::Kind;

/// The flash of an open-channel device when nobody says.
const PROFILE: &str = "cnex";

impl Work<'_> {
    /// Cuts a partition from its device.
    pub(super) fn create_partition(&mut self, mut spec: DeviceSpec) -> Result<View, Fault> {
        let name = spec.name.clone();
        if self.is_on_device(&spec)? {
            // Not ours, and refused. Nor is it noted: what is noted and cut off is removed at the
            // next start.
            return self.open_partition(&spec).map(|()| View::Done);
        }
        self.note(&mut spec, true)?;
        if let Err(fault) = self.open_partition(&spec) {
            self.forget(&name)?;
            return Err(fault);
        }
        let given = self.partition(&name).map(|info| show_units(&info.units));
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.given = given.into_iter().collect();
        }
        if let Err(fault) = self.note(&mut spec, false) {
            self.remove_partition(&spec)?;
            self.forget(&name)?;
            return Err(fault);
        }
        self.edit(|stack| stack.inventory.devices.insert(name.clone(), spec));
        self.view_one(KindName::Partition, &name)
    }

    /// Cuts a partition, the same units again if the target has been started anew and nothing of it
    /// was kept. Where it was, it is taken up.
    pub(super) fn open_partition(&mut self, spec: &DeviceSpec) -> Result<(), Fault> {
        let cut = cut_of(spec)?.clone();
        let core = self.home_of(&cut.device)?;
        let over_provisioning = cut.over_provisioning()?;
        let mut wanted = Vec::new();
        for units in &cut.given {
            wanted.push(Wanted::Units(parse_units(units)?));
        }
        if wanted.is_empty() {
            wanted.push(cut.wanted()?);
        }
        let name = spec.name.clone();
        let kept = self.inventory.devices.contains_key(&name) && !self.forgets(&cut.device);
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, &cut.device)?;
            if kept {
                if let Some(fault) = device.fault(&name) {
                    return Err(fault.into());
                }
                let found = device.partition(&name);
                let lost = || Unavailable::LostPartition(name.clone(), cut.device.clone());
                let found = found.ok_or_else(lost)?;
                state.nodes.add_device(&name, Node::Blocks(found));
                return Ok(());
            }
            let uuid = Uuid::new_v4().into_bytes();
            let mut wanted = wanted.iter();
            let first = wanted.next().expect("there is at least one");
            let created = device.create(&name, uuid, first, over_provisioning).await;
            let partition = created.map_err(|error| refused(error, &cut.device))?;
            for more in wanted {
                device.grow(&name, more).await?;
            }
            state.nodes.add_device(&name, Node::Blocks(partition));
            Ok::<(), Fault>(())
        })?;
        self.edit(|stack| stack.homes.insert(spec.name.clone(), core));
        Ok(())
    }

    /// Gives a partition more units while it is used.
    pub(super) fn grow_partition(
        &mut self,
        name: &str,
        more: &PartitionSpec,
    ) -> Result<View, Fault> {
        let mut spec = self.partition_spec(name)?.clone();
        let device = cut_of(&spec)?.device.clone();
        let before = self.partition(name).map_or(0, |info| info.units.len());
        let core = self.home_of(name)?;
        let (wanted, partition) = (more.wanted()?, name.to_owned());
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, &device)?;
            Ok::<(), Fault>(device.grow(&partition, &wanted).await?)
        })?;
        // The partition has them for good: hosts are told whatever becomes of our own note.
        for volume in self.inventory.volumes.values() {
            let whole = volume.spec.device.as_deref() == Some(name);
            if let Some(handle) = self.served.get(&volume.spec.name).filter(|_| whole) {
                self.target.resized(handle);
            }
        }
        let units = self.partition(name).map(|info| info.units);
        let added = units.as_ref().and_then(|units| units.get(before..));
        if let (Medium::Partition(cut), Some(added)) = (&mut spec.medium, added) {
            cut.given.push(show_units(added));
        }
        self.edit(|stack| {
            stack
                .inventory
                .devices
                .insert(name.to_owned(), spec.clone())
        });
        self.commit(|state, _| Ok(state.put_device(&spec)?))?;
        self.view_one(KindName::Partition, name)
    }

    /// Gives the units of a partition that nothing uses back.
    pub(super) fn delete_partition(&mut self, name: &str) -> Result<View, Fault> {
        if !self.inventory.devices.contains_key(name) && self.delete_unknown(name)? {
            return Ok(View::Done);
        }
        let mut spec = self.partition_spec(name)?.clone();
        if let Some(user) = self.device_user(name) {
            return Err(InUse::Below(KindName::Partition, name.to_owned(), user).into());
        }
        self.note(&mut spec, true)?;
        if let Err(fault) = self.remove_partition(&spec) {
            // It is there, and may be used again.
            self.note(&mut spec, false)?;
            return Err(fault);
        }
        self.forget(name)?;
        Ok(View::Done)
    }

    /// Writes down whether a partition is being created or deleted.
    fn note(&mut self, spec: &mut DeviceSpec, unfinished: bool) -> Result<(), Fault> {
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.unfinished = unfinished;
        }
        self.commit(|state, _| Ok(state.put_device(spec)?))
    }

    /// Forgets a partition that is on no device.
    fn forget(&mut self, name: &str) -> Result<(), Fault> {
        self.commit(|state, stack| {
            state.remove(Kind::Device, name)?;
            stack.inventory.devices.remove(name);
            stack.faults.remove(&Subject::Device(name.to_owned()));
            Ok(())
        })
    }

    /// Removes what is left of a partition whose creation or deletion was cut off.
    pub(super) fn clear_away(&mut self, spec: &DeviceSpec) -> Result<(), Fault> {
        if self.is_on_device(spec)? {
            let (name, device) = (spec.name.clone(), cut_of(spec)?.device.clone());
            let core = self.home_of(&device)?;
            self.cores.call(core, move |state| async move {
                Ok::<(), Fault>(open_channel(&state, &device)?.delete(&name).await?)
            })?;
        }
        self.forget(&spec.name)
    }

    /// Whether its device has a partition of this name, sound or not.
    fn is_on_device(&self, spec: &DeviceSpec) -> Result<bool, Fault> {
        let (name, device) = (spec.name.clone(), cut_of(spec)?.device.clone());
        let core = self.home_of(&device)?;
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, &device)?;
            Ok::<bool, Fault>(device.partition(&name).is_some() || device.fault(&name).is_some())
        })
    }

    /// Whether pools and volumes can stand on a device.
    pub(super) fn check_blocks(&self, device: &str) -> Result<(), Fault> {
        match self.inventory.devices.get(device) {
            Some(DeviceSpec {
                medium: Medium::OpenChannel(_) | Medium::Zoned { .. },
                ..
            }) => Err(Invalid::OnlyForPartitions(device.to_owned()).into()),
            Some(spec) if spec.partition().is_some() && self.is_spent(device) => {
                Err(Refused::Spent(device.to_owned()).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a partition cannot be written any more, or taken up: what is in it cannot be erased.
    /// It is no place for anything new, and gone when its units are given up.
    pub(super) fn is_spent(&self, device: &str) -> bool {
        if let Some(info) = self.partition(device) {
            return info.read_only;
        }
        let spec = self.inventory.devices.get(device);
        let Some(parent) = spec.and_then(DeviceSpec::partition) else {
            return false;
        };
        let Some(&core) = self.homes.get(&parent.device) else {
            return false;
        };
        let (parent, name) = (parent.device.clone(), device.to_owned());
        self.cores.call(core, move |state| async move {
            let parent = state.nodes.channels(&parent);
            parent.is_some_and(|parent| parent.fault(&name).is_some())
        })
    }

    /// What is told of a partition; nothing of another device.
    pub(super) fn view_partition(&self, spec: &DeviceSpec) -> Option<PartitionView> {
        let cut = spec.partition()?;
        let info = self.partition(&spec.name);
        let health = match self.trouble_of(&cut.device) {
            Some(health) => health,
            None if info.as_ref().is_some_and(|info| info.read_only) => Health {
                state: Condition::ReadOnly,
                fault: Some(
                    "too much of its flash has failed, so it takes no more writes: copy what is in it to another partition, \
                     then delete its volumes, its pool and the partition"
                        .to_owned(),
                ),
            },
            None => self.health(&Subject::Device(spec.name.clone())),
        };
        Some(PartitionView {
            name: spec.name.clone(),
            device: cut.device.clone(),
            op: cut.op.clone(),
            flash: info.as_ref().map(PartitionFlash::from),
            policy: spec.policy,
            used_by: self.device_user(&spec.name),
            health,
        })
    }

    /// What the target at a glance tells of partitions.
    pub(super) fn view_partitions(&self) -> Vec<PartitionRow> {
        let partitions = self.inventory.devices.values();
        let views = partitions.filter_map(|spec| self.view_partition(spec));
        views.map(PartitionRow::from).collect()
    }

    /// The state of an open-channel device that has failed, or cannot be written, and why.
    pub(super) fn trouble_of(&self, device: &str) -> Option<Health> {
        let core = *self.homes.get(device)?;
        let name = device.to_owned();
        let (failure, full) = self.cores.call(core, move |state| async move {
            let found = state.nodes.channels(&name);
            found.map_or((None, false), |one| (one.failure(), one.is_full()))
        });
        let (state, fault) = match failure {
            Some(error) => (
                Condition::Unavailable,
                format!(
                    "the file that device `{device}` is in has failed ({error:?}): repair its disk, or free space on it, and \
                     start the target again"
                ),
            ),
            None if full => (
                Condition::Full,
                format!(
                    "no space is left for the file that device `{device}` is in: it is read, and written again when there is \
                     space"
                ),
            ),
            None => return None,
        };
        let fault = Some(fault);
        Some(Health { state, fault })
    }

    /// Deletes a partition that is on a device and not in our store: its creation was cut off, or
    /// another target made it.
    fn delete_unknown(&self, name: &str) -> Result<bool, Fault> {
        for core in 0..self.cores.count() {
            let name = name.to_owned();
            let deleted = self.cores.call(core, move |state| async move {
                for (_, device) in state.nodes.all_channels() {
                    if device.partition(&name).is_some() || device.fault(&name).is_some() {
                        return device.delete(&name).await.map(|()| true);
                    }
                }
                Ok(false)
            });
            if deleted? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Facts about a partition, from its home core.
    fn partition(&self, name: &str) -> Option<PartitionInfo> {
        let core = *self.homes.get(name)?;
        let name = name.to_owned();
        self.cores.call(core, move |state| async move {
            let devices = state.nodes.all_channels();
            let mut all = devices.iter().flat_map(|(_, device)| device.list());
            all.find(|info| info.name == name)
        })
    }

    fn remove_partition(&mut self, spec: &DeviceSpec) -> Result<(), Fault> {
        let (name, device) = (spec.name.clone(), cut_of(spec)?.device.clone());
        let Some(core) = self.edit(|stack| stack.homes.remove(&name)) else {
            // It could not be taken up, or its device is not there.
            return self.delete_unknown(&name).map(drop);
        };
        self.cores.call(core, move |state| async move {
            state.nodes.remove_device(&name);
            let device = open_channel(&state, &device)?;
            Ok(device.delete(&name).await?)
        })
    }
}

impl From<&PartitionInfo> for PartitionFlash {
    fn from(info: &PartitionInfo) -> Self {
        let (host, flash) = info.written;
        Self {
            size: info.bytes,
            units: show_units(&info.units),
            placement: match info.own_channels {
                true => "own channels",
                false => "shared channels",
            },
            write_bytes_per_second: info.programs_per_second,
            bytes_written: host,
            write_amplification: (host > 0).then(|| flash as f64 / host as f64),
            wear: format!("{}-{}", info.erases.0, info.erases.1),
            spare: info.spare,
            lateness_p99_us: info.late_p99_ns as f64 / 1e3,
            read_only: info.read_only,
        }
    }
}

impl Stack {
    /// The partition that was cut from an open-channel device.
    pub(super) fn partition_of(&self, device: &str) -> Option<&str> {
        let on_it = |spec: &&DeviceSpec| {
            let cut = spec.partition();
            cut.is_some_and(|cut| cut.device == device)
        };
        let found = self.inventory.devices.values().find(on_it);
        found.map(|spec| spec.name.as_str())
    }

    fn partition_spec(&self, name: &str) -> Result<&DeviceSpec, Fault> {
        let found = self.inventory.devices.get(name);
        let cut = found.filter(|spec| spec.partition().is_some());
        cut.ok_or_else(|| no_such(KindName::Partition, name))
    }
}

/// Makes the flash of an open-channel device, as it comes from the factory.
pub(super) fn model(name: &str, spec: &ChannelsSpec) -> Result<channel::Device, Fault> {
    let wrong = |fault| Invalid::Drive(name.to_owned(), fault);
    let profile = flash::profile(spec.profile.as_deref().unwrap_or(PROFILE))
        .map_err(|fault| wrong(DriveFault::Profile(fault)))?;
    let (size, seed) = (spec.size.0, spec.seed.unwrap_or(1));
    let device = channel::Device::new(&profile, size, seed, Options::default());
    Ok(device.map_err(|error| match error {
        BuildError::Profile(error) => Invalid::DriveProfile(profile.name.clone(), error),
        BuildError::Capacity { least, most } => wrong(DriveFault::Size {
            kind: DeviceKind::OpenChannel,
            profile: profile.name.clone(),
            size,
            least,
            most,
        }),
    })?)
}

/// Runs an open-channel device on this core, out of its file if it has one.
pub(super) async fn run(
    state: &CoreState,
    spec: &DeviceSpec,
    channels: &ChannelsSpec,
    model: channel::Device,
    found: Found,
) -> Result<(), Fault> {
    let failed = |error| of_device(&spec.name, error);
    let uuid = Uuid::new_v4().into_bytes();
    let medium = match &channels.store {
        Some(Store::File(path)) => {
            let make = (found == Found::MayBeMade).then_some(uuid);
            let options = FileOptions {
                block_size: spec.block_size,
                size: make.map(|_| FlashMedium::file_bytes(&model)),
                read_only: false,
            };
            let file = FileDevice::open(&state.rt, Path::new(path), options).await?;
            let medium = FlashMedium::in_file(&state.rt, model, file, make).await;
            medium.map_err(failed)?
        }
        _ => FlashMedium::new(model),
    };
    let dilation = channels.dilation.unwrap_or(1);
    let opened = OpenChannel::open(&state.rt, medium, uuid, dilation).await;
    let device = opened.map_err(failed)?;
    let node = Node::Channels(Rc::new(device));
    state.nodes.add_device(&spec.name, node);
    Ok(())
}

/// Takes up a zoned device on this core.
pub(super) async fn run_zoned(
    state: &CoreState,
    name: &str,
    path: &Path,
    units: Option<u32>,
) -> Result<(), Fault> {
    let uuid = Uuid::new_v4().into_bytes();
    let opened = OpenChannel::open_zoned(&state.rt, path, units, uuid).await;
    let device = opened.map_err(|error| of_device(name, error))?;
    let node = Node::Channels(Rc::new(device));
    state.nodes.add_device(name, node);
    Ok(())
}

/// The fault of a device for partitions, with its name.
fn of_device(name: &str, error: PartitionError) -> Fault {
    let name = Some(name.to_owned());
    match error.is_in_use() {
        true => InUse::Store(name, error).into(),
        false => Unavailable::Partition(name, error).into(),
    }
}

fn open_channel(state: &CoreState, device: &str) -> Result<Rc<OpenChannel>, Fault> {
    let found = state.nodes.channels(device);
    found.ok_or_else(|| Invalid::NotForPartitions(device.to_owned()).into())
}

/// Why a partition was not made.
fn refused(error: PartitionError, device: &str) -> Fault {
    match error {
        PartitionError::Layout(LayoutError::Exists(name)) => {
            InUse::ForeignPartition(device.to_owned(), name).into()
        }
        error => error.into(),
    }
}

fn cut_of(spec: &DeviceSpec) -> Result<&PartitionSpec, Fault> {
    let cut = spec.partition();
    cut.ok_or_else(|| no_such(KindName::Partition, &spec.name))
}
