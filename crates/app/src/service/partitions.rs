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
use flashyard_runtime::Rt;
use uuid::Uuid;

use super::devices::Found;
use super::fault::{DriveFault, InUse, Invalid, NotFound, Refused, Unavailable};
use super::work::Work;
use super::{Fault, Stack, Subject, flash, no_such};
use crate::control::{
    Condition, Health, KindName, PartitionFlash, PartitionRow, PartitionView, View,
};
use crate::cores::CoreState;
use crate::graph::NodeId;
use crate::nodes::Node;
use crate::published::{Channels, Report};
use crate::spec::{
    ChannelsSpec, DeviceKind, DeviceSpec, Medium, PartitionSpec, Store, parse_units, show_units,
};
use crate::state::Kind;

/// The flash of an open-channel device when nobody says.
const PROFILE: &str = "cnex";

impl Work<'_> {
    /// Cuts a partition from its device.
    pub(super) fn create_partition(
        &mut self,
        id: NodeId,
        mut spec: DeviceSpec,
    ) -> Result<View, Fault> {
        let name = spec.name.clone();
        let cut = cut_of(&spec)?;
        let (parent, _) = self.parent(cut)?;
        if self.has_partition(parent, &cut.device, &name)? {
            // Not ours, and refused. Nor is it noted: what is noted and cut off is removed at the
            // next start.
            return self.open_partition(id, &spec).map(|_| View::Done);
        }
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.imported = false;
            cut.unfinished = true;
        }
        self.store(|state| state.add_devices(std::slice::from_ref(&spec)))?;
        let home = match self.open_partition(id, &spec) {
            Ok(home) => home,
            Err(fault) => {
                self.forget_partition(id, &name)?;
                return Err(fault);
            }
        };
        let given = self.given_to(&spec);
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.given = given;
        }
        if let Err(fault) = self.note(&mut spec, false) {
            self.remove_partition(id, &spec)?;
            self.forget_partition(id, &name)?;
            return Err(fault);
        }
        self.edit(|stack| stack.graph.add_open(id, spec, home));
        self.view_one(KindName::Partition, &name)
    }

    /// Cuts a partition, the same units again if the target has been started anew and nothing of it
    /// was kept. Where it was, it is taken up. Gives its home core.
    pub(super) fn open_partition(&self, id: NodeId, spec: &DeviceSpec) -> Result<usize, Fault> {
        let cut = cut_of(spec)?.clone();
        let (parent, core) = self.parent(&cut)?;
        let over_provisioning = cut.over_provisioning()?;
        let mut wanted = Vec::new();
        for units in &cut.given {
            wanted.push(Wanted::Units(parse_units(units)?));
        }
        if wanted.is_empty() {
            wanted.push(cut.wanted()?);
        }
        let name = spec.name.clone();
        let kept = self.graph.get(id).is_some() && !self.forgets(parent);
        let opened = self.cores.call(core, move |state| async move {
            let device = open_channel(&state, parent, &cut.device)?;
            if kept {
                if let Some(fault) = device.fault(&name) {
                    return Err(fault.into());
                }
                let found = device.partition(&name);
                let lost = || Unavailable::LostPartition(name.clone(), cut.device.clone());
                let found = found.ok_or_else(lost)?;
                state.nodes.add(id, Node::Blocks(found));
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
            state.nodes.add(id, Node::Blocks(partition));
            Ok::<(), Fault>(())
        });
        opened.map_err(|fault| self.name_unknown(fault, parent))?;
        Ok(core)
    }

    /// Units of a partition that the target does not know: it is to be imported, not deleted.
    fn name_unknown(&self, fault: Fault, parent: NodeId) -> Fault {
        match fault {
            Fault::InUse(InUse::Partition(PartitionError::Layout(LayoutError::Overlap(
                unit,
                owner,
            )))) if self.device(&owner).is_err() => {
                let device = self.graph.name(parent).to_owned();
                InUse::ForeignUnits(device, show_units(&[unit]), owner).into()
            }
            fault => fault,
        }
    }

    /// Gives a partition more units while it is used.
    pub(super) fn grow_partition(
        &mut self,
        name: &str,
        more: &PartitionSpec,
    ) -> Result<View, Fault> {
        let (id, mut spec) = self.partition(name)?;
        let (parent, _) = self.parent(cut_of(&spec)?)?;
        let core = self.home_of(id)?;
        let (device, wanted) = (cut_of(&spec)?.device.clone(), more.wanted()?);
        let partition = name.to_owned();
        let grown = self.cores.call(core, move |state| async move {
            let device = open_channel(&state, parent, &device)?;
            Ok::<(), Fault>(device.grow(&partition, &wanted).await?)
        });
        grown.map_err(|fault| self.name_unknown(fault, parent))?;
        // The partition has them for good: hosts are notified whatever becomes of our own note.
        for place in [id].into_iter().chain(self.graph.devices_on(id)) {
            for (_, volume) in self.graph.volumes_on(place) {
                self.tell_size(volume);
            }
            self.extend_pool(place)?;
        }
        let given = self.given_to(&spec);
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.given = given;
        }
        self.edit(|stack| {
            let noted = spec.clone();
            stack.graph.change_device(id, |device| device.spec = noted);
        });
        self.store(|state| state.put_device(&spec))?;
        self.view_one(KindName::Partition, name)
    }

    /// Gives the units of a partition that nothing uses back: of the one that the target knows by
    /// this name, unless that is on another device than the one that is named.
    pub(super) fn delete_partition(
        &mut self,
        name: &str,
        device: Option<&str>,
    ) -> Result<View, Fault> {
        let known = self.partition(name).ok().filter(|(_, spec)| {
            let of = spec.partition().map(|cut| cut.device.as_str());
            device.is_none() || device == of
        });
        let Some((id, mut spec)) = known else {
            self.delete_unknown(name, device)?;
            return Ok(View::Done);
        };
        if let Some(user) = self.user_text(id) {
            return Err(InUse::Below(KindName::Partition, name.to_owned(), user).into());
        }
        self.note(&mut spec, true)?;
        if let Err(fault) = self.remove_partition(id, &spec) {
            // It is there, and may be used again.
            self.note(&mut spec, false)?;
            return Err(fault);
        }
        self.forget_partition(id, name)?;
        Ok(View::Done)
    }

    /// Writes down whether a partition is being created or deleted.
    fn note(&mut self, spec: &mut DeviceSpec, unfinished: bool) -> Result<(), Fault> {
        if let Medium::Partition(cut) = &mut spec.medium {
            cut.unfinished = unfinished;
        }
        self.store(|state| state.put_device(spec))
    }

    /// Forgets a partition, wherever it is.
    pub(super) fn forget_partition(&mut self, id: NodeId, name: &str) -> Result<(), Fault> {
        self.commit(|state, _| {
            state.remove(Kind::Device, name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })
    }

    /// Removes what is left of a partition whose creation or deletion was cut off.
    pub(super) fn clear_away(&mut self, id: NodeId, spec: &DeviceSpec) -> Result<(), Fault> {
        let cut = cut_of(spec)?;
        let (parent, _) = self.parent(cut)?;
        self.delete_on(parent, &cut.device, &spec.name)?;
        self.forget_partition(id, &spec.name)
    }

    /// Whether pools and volumes can stand on a device.
    pub(super) fn check_blocks(&self, id: NodeId) -> Result<(), Fault> {
        let Some(device) = self.graph.device(id) else {
            return Ok(());
        };
        let name = || device.spec.name.clone();
        match &device.spec.medium {
            Medium::OpenChannel(_) | Medium::Zoned { .. } => {
                Err(Invalid::OnlyForPartitions(name()).into())
            }
            Medium::Partition(_) | Medium::Fault(_) | Medium::Crypt(_) if self.is_spent(id) => {
                Err(Refused::Spent(name()).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a partition cannot be written any more, or taken up: what is in it cannot be erased.
    /// It is no place for anything new, and gone when its units are given up.
    pub(super) fn is_spent(&self, id: NodeId) -> bool {
        let Some(spec) = self.graph.device(id).map(|device| &device.spec) else {
            return false;
        };
        if spec.layer_on().is_some() {
            let below = self.graph.below(id);
            return below.is_some_and(|below| self.is_spent(below));
        }
        let parent = spec.partition().map(|cut| self.parent(cut));
        let Some(Ok((parent, core))) = parent else {
            return false;
        };
        let name = spec.name.clone();
        self.cores.call(core, move |state| async move {
            let Some(parent) = state.nodes.channels(parent) else {
                return false;
            };
            let mut listed = parent.list().into_iter();
            match listed.find(|info| info.name == name) {
                Some(info) => info.read_only,
                None => parent.fault(&name).is_some(),
            }
        })
    }

    /// What is reported of a partition; nothing of another device.
    pub(super) fn view_partition(&self, id: NodeId) -> Option<PartitionView> {
        let spec = &self.graph.device(id)?.spec;
        let cut = spec.partition()?;
        let report = self.parent(cut).ok();
        let report = report.and_then(|(parent, core)| self.report(core, parent));
        let channels = match report.as_deref() {
            Some(Report::Channels(channels)) => Some(channels),
            _ => None,
        };
        let info = channels.and_then(|channels| channels.partitions.get(&spec.name));
        let trouble = channels.and_then(|channels| trouble_of(&cut.device, channels));
        let health = match trouble {
            Some(health) => health,
            None if info.is_some_and(|info| info.read_only) => Health {
                state: Condition::ReadOnly,
                fault: Some(
                    "too much of its flash has failed, so it takes no more writes: copy what is in it to another partition, \
                     then delete its volumes, its pool and the partition"
                        .to_owned(),
                ),
            },
            None => self.health(Subject::Node(id)),
        };
        Some(PartitionView {
            name: spec.name.clone(),
            device: cut.device.clone(),
            op: cut.op.clone(),
            flash: info.map(PartitionFlash::from),
            policy: spec.policy,
            used_by: self.user_text(id),
            health,
        })
    }

    /// What the target at a glance tells of partitions.
    pub(super) fn view_partitions(&self) -> Vec<PartitionRow> {
        let devices = self.graph.all(Kind::Device);
        let views = devices.filter_map(|id| self.view_partition(id));
        views.map(PartitionRow::from).collect()
    }

    /// Deletes a partition that is on a device and not in our store: another target made it. Only
    /// where the device is named: others may have one of this name as well.
    fn delete_unknown(&self, name: &str, device: Option<&str>) -> Result<(), Fault> {
        let Some(on) = device else {
            let mut have = Vec::new();
            for device in self.cut_devices() {
                let on = self.graph.name(device);
                if self.home_of(device).is_ok() && self.has_partition(device, on, name)? {
                    have.push(on.to_owned());
                }
            }
            return Err(match have.is_empty() {
                true => no_such(KindName::Partition, name),
                false => Invalid::OnWhichDevice(name.to_owned(), have).into(),
            });
        };
        let (device, _) = self.device(on)?;
        if !self.has_partition(device, on, name)? {
            let (on, name) = (on.to_owned(), Some(name.to_owned()));
            return Err(NotFound::PartitionToImport(on, name).into());
        }
        self.delete_on(device, on, name)
    }

    /// Whether a device has a partition of a name, sound or not.
    fn has_partition(&self, device: NodeId, on: &str, name: &str) -> Result<bool, Fault> {
        let core = self.home_of(device)?;
        let (on, name) = (on.to_owned(), name.to_owned());
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, device, &on)?;
            Ok(device.partition(&name).is_some() || device.fault(&name).is_some())
        })
    }

    /// Deletes a partition of a device, if it is there: a try before may have come so far.
    fn delete_on(&self, device: NodeId, on: &str, name: &str) -> Result<(), Fault> {
        let core = self.home_of(device)?;
        let (on, name) = (on.to_owned(), name.to_owned());
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, device, &on)?;
            if device.partition(&name).is_some() || device.fault(&name).is_some() {
                device.delete(&name).await?;
            }
            Ok(())
        })
    }

    /// The units that a partition has been given, each time that it was created or grew.
    fn given_to(&self, spec: &DeviceSpec) -> Vec<String> {
        let parent = spec.partition().map(|cut| self.parent(cut));
        let Some(Ok((parent, core))) = parent else {
            return Vec::new();
        };
        let name = spec.name.clone();
        self.cores.call(core, move |state| async move {
            let device = state.nodes.channels(parent);
            let recorded = device.map(|device| device.recorded()).unwrap_or_default();
            let found = recorded.into_iter().find(|it| it.name == name);
            let spans = found.map(|it| it.spans).unwrap_or_default();
            spans.iter().map(|units| show_units(units)).collect()
        })
    }

    fn remove_partition(&self, id: NodeId, spec: &DeviceSpec) -> Result<(), Fault> {
        let cut = cut_of(spec)?;
        let known = self.graph.device(id);
        let is_closed = known.is_some_and(|device| device.home.is_none());
        let (parent, core) = match self.parent(cut) {
            // Its device is not there: it stays on that, which is all that can be done.
            Err(_) if is_closed => return Ok(()),
            parent => parent?,
        };
        self.delete_on(parent, &cut.device, &spec.name)?;
        let cores = self.cores;
        cores.call(
            core,
            move |state| async move { drop(state.nodes.remove(id)) },
        );
        Ok(())
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
            spare_bytes: info.spare,
            lateness_p99_us: info.late_p99_ns as f64 / 1e3,
            read_only: info.read_only,
        }
    }
}

impl Stack {
    fn partition(&self, name: &str) -> Result<(NodeId, DeviceSpec), Fault> {
        let found = self.device(name).ok();
        let cut = found.filter(|(_, device)| device.spec.partition().is_some());
        let cut = cut.map(|(id, device)| (id, device.spec.clone()));
        cut.ok_or_else(|| no_such(KindName::Partition, name))
    }

    /// The devices that partitions are cut from.
    fn cut_devices(&self) -> Vec<NodeId> {
        let devices = self.graph.devices();
        let cut = devices.filter(|(_, device)| {
            let medium = &device.spec.medium;
            matches!(medium, Medium::OpenChannel(_) | Medium::Zoned { .. })
        });
        cut.map(|(id, _)| id).collect()
    }

    /// What a partition is cut from, and its home core.
    pub(super) fn parent(&self, cut: &PartitionSpec) -> Result<(NodeId, usize), Fault> {
        let (parent, _) = self.device(&cut.device)?;
        Ok((parent, self.home_of(parent)?))
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
    rt: &Rt,
    spec: &DeviceSpec,
    channels: &ChannelsSpec,
    model: channel::Device,
    found: Found,
) -> Result<Node, Fault> {
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
            let file = FileDevice::open(rt, Path::new(path), options).await?;
            let medium = FlashMedium::in_file(rt, model, file, make).await;
            medium.map_err(failed)?
        }
        _ => FlashMedium::new(model),
    };
    let dilation = channels.dilation.unwrap_or(1);
    let opened = OpenChannel::open(rt, medium, uuid, dilation).await;
    let device = opened.map_err(failed)?;
    Ok(Node::Channels(Rc::new(device)))
}

/// Takes up a zoned device on this core.
pub(super) async fn run_zoned(
    rt: &Rt,
    name: &str,
    path: &Path,
    units: Option<u32>,
) -> Result<Node, Fault> {
    let uuid = Uuid::new_v4().into_bytes();
    let opened = OpenChannel::open_zoned(rt, path, units, uuid).await;
    let device = opened.map_err(|error| of_device(name, error))?;
    Ok(Node::Channels(Rc::new(device)))
}

/// The fault of a device for partitions, with its name.
fn of_device(name: &str, error: PartitionError) -> Fault {
    let name = Some(name.to_owned());
    match error.is_in_use() {
        true => InUse::Store(name, error).into(),
        false => Unavailable::Partition(name, error).into(),
    }
}

/// The state of an open-channel device that has failed, or cannot be written, and why.
pub(super) fn trouble_of(device: &str, report: &Channels) -> Option<Health> {
    let (state, fault) = match report.failure {
        Some(error) => (
            Condition::Unavailable,
            format!(
                "the file that device `{device}` is in has failed ({error:?}): repair its disk, or free space on it, and \
                 start the target again"
            ),
        ),
        None if report.is_full => (
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

pub(super) fn open_channel(
    state: &CoreState,
    id: NodeId,
    name: &str,
) -> Result<Rc<OpenChannel>, Fault> {
    let found = state.nodes.channels(id);
    found.ok_or_else(|| Invalid::NotForPartitions(name.to_owned()).into())
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

pub(super) fn cut_of(spec: &DeviceSpec) -> Result<&PartitionSpec, Fault> {
    let cut = spec.partition();
    cut.ok_or_else(|| no_such(KindName::Partition, &spec.name))
}
