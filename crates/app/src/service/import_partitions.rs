//! Partitions that are on a device while the state does not know them: its directory was lost, or
//! another target made them. The device has recorded their names, UUIDs, units and how much flash
//! they keep back. What hosts know a volume by that was a whole partition is not there: whoever
//! gives it back says.
//!
//! An imported partition is one change of the store. Forgetting it leaves it on its device.

use std::rc::Rc;

use flashyard_block::SharedDevice;
use flashyard_block::pool::{Pool, PoolError};
use flashyard_drives::open_channel::{Partition, Recorded};
use flashyard_runtime::Rt;
use uuid::Uuid;

use super::fault::{InUse, NotFound, Refused, Unavailable};
use super::partitions::{cut_of, open_channel};
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{FoundPartition, FoundPartitionsView, Holds, KindName, View};
use crate::graph::NodeId;
use crate::nodes::Node;
use crate::spec::{
    ContentName, DeviceSpec, Medium, PartitionSpec, PolicyName, Section, Unlike, VolumeSpec,
};

/// A partition on a device, and what is in it if nothing uses it.
type Found = (Recorded, Option<Holds>);

impl Work<'_> {
    /// The partitions that a device has. Changes nothing.
    pub(super) fn view_found_partitions(&self, device: &str) -> Result<View, Fault> {
        self.show_found(device, Vec::new())
    }

    fn show_found(&self, device: &str, notes: Vec<String>) -> Result<View, Fault> {
        let found = self.partitions_on(device)?;
        let shown = |(it, holds): Found| self.shown_partition(device, it, holds);
        Ok(View::FoundPartitions(FoundPartitionsView {
            device: device.to_owned(),
            partitions: found.into_iter().map(shown).collect(),
            notes,
        }))
    }

    /// Makes partitions of a device known, the one that is named or all: all of them, or none.
    pub(super) fn import_partitions(
        &mut self,
        device: &str,
        name: Option<&str>,
        policy: Option<PolicyName>,
    ) -> Result<View, Fault> {
        let mut found = self.partitions_on(device)?;
        match name {
            Some(name) => found.retain(|(it, _)| it.name == name),
            None => found.retain(|(it, _)| !self.knows_partition(device, &it.name)),
        }
        if found.is_empty() {
            let (device, name) = (device.to_owned(), name.map(str::to_owned));
            return Err(NotFound::PartitionToImport(device, name).into());
        }
        let mut specs = Vec::new();
        for (recorded, _) in found {
            let cut = PartitionSpec::found(device, recorded.over_provisioning, &recorded.spans);
            let name = recorded.name.clone();
            let spec = match self.waiting_partition(&name) {
                Some(spec) if policy.is_some_and(|policy| policy != spec.policy) => {
                    return Err(Refused::PolicyInFile(name, spec.policy).into());
                }
                Some(spec) => as_file_has_it(&spec, cut)?,
                None => DeviceSpec::of_partition(name, cut, policy.unwrap_or_default()),
            };
            specs.push(self.sound_partition(spec, recorded)?);
        }
        let names: Vec<_> = specs.iter().map(|spec| spec.name.clone()).collect();
        let follow = self.followers(&[], &names);
        self.take_partitions(specs)?;
        let notes = self.import_followers(follow);
        self.show_found(device, notes)
    }

    /// Takes over a partition that a file names, if its device has it; false if it has not.
    pub(super) fn take_partition(&mut self, spec: &DeviceSpec) -> Result<bool, Fault> {
        let cut = cut_of(spec)?;
        let mut found = self.partitions_on(&cut.device)?.into_iter();
        let Some((recorded, _)) = found.find(|(it, _)| it.name == spec.name) else {
            return Ok(false);
        };
        let there = PartitionSpec::found(&cut.device, recorded.over_provisioning, &recorded.spans);
        let spec = as_file_has_it(spec, there)?;
        let spec = self.sound_partition(spec, recorded)?;
        self.take_partitions(vec![spec])?;
        Ok(true)
    }

    /// Forgets a partition, and leaves it on its device.
    pub(super) fn forget_imported(&mut self, name: &str) -> Result<(), Fault> {
        let (id, device) = self.device(name)?;
        if let Some(user) = self.user_text(id) {
            return Err(InUse::Below(KindName::Partition, name.to_owned(), user).into());
        }
        if let Some(core) = device.home {
            let cores = self.cores;
            cores.call(
                core,
                move |state| async move { drop(state.nodes.remove(id)) },
            );
        }
        self.forget_partition(id, name)
    }

    /// Refuses to give content that the target did not see written to a tenant whose hosts would
    /// take it for another disk than before.
    pub(super) fn check_identity_of_kept(
        &self,
        spec: &VolumeSpec,
        device: NodeId,
    ) -> Result<(), Fault> {
        if spec.content != Some(ContentName::Keep) || spec.uuid.is_some() {
            return Ok(());
        }
        match self.imported_under(device) {
            Some(partition) => {
                let partition = self.graph.name(partition).to_owned();
                Err(Refused::NeedsUuid(spec.name.clone(), partition).into())
            }
            None => Ok(()),
        }
    }

    /// Refuses a new pool where it would destroy what an imported partition holds.
    pub(super) fn check_nothing_imported(&self, device: NodeId) -> Result<(), Fault> {
        let Some(partition) = self.imported_under(device) else {
            return Ok(());
        };
        match self.pool_on(device) {
            Err(Fault::Unavailable(Unavailable::NotImported(_, PoolError::NotAPool))) => {
                let [device, partition] =
                    [device, partition].map(|id| self.graph.name(id).to_owned());
                Err(Refused::HoldsData(device, partition).into())
            }
            // Who makes pools says that.
            _ => Ok(()),
        }
    }

    /// The partition with what another state knew of that a device is, or stands on by whatever is
    /// between. What was given away since holds nothing of that.
    fn imported_under(&self, device: NodeId) -> Option<NodeId> {
        let spec = &self.graph.device(device)?.spec;
        if spec.disposable {
            return None;
        }
        if spec.partition().is_some_and(|cut| cut.imported) {
            return Some(device);
        }
        let mut below = self.graph.devices_below(device);
        below.find_map(|below| self.imported_under(below))
    }

    /// What the record of a partition says that can be taken up, under a name that is free. For a
    /// policy without figures of the device `fair` stands in, as at a start: finding them out would
    /// destroy what is imported.
    fn sound_partition(&self, spec: DeviceSpec, recorded: Recorded) -> Result<DeviceSpec, Fault> {
        let device = cut_of(&spec)?.device.clone();
        if self.knows_partition(&device, &spec.name) {
            return Err(InUse::KnownPartition(spec.name, device).into());
        }
        if let Ok((_, other)) = self.device(&spec.name) {
            let other = other.spec.partition().map(|cut| cut.device.clone());
            return Err(InUse::NameOfFound(spec.name, device, other).into());
        }
        if let Err(error) = recorded.state {
            return Err(Unavailable::Partition(Some(device), error).into());
        }
        spec.check()?;
        Ok(spec)
    }

    /// Makes partitions that can be taken up known, in one change.
    fn take_partitions(&mut self, mut specs: Vec<DeviceSpec>) -> Result<(), Fault> {
        let mut taken = Vec::new();
        for spec in &mut specs {
            let id = self.reserve();
            match self.open_found(id, spec) {
                Ok((home, is_empty)) => {
                    taken.push((id, home));
                    spec.disposable = is_empty;
                }
                Err(fault) => {
                    self.close_found(&taken);
                    return Err(fault);
                }
            }
        }
        let noted = self.commit(|state, _| {
            state.add_devices(&specs)?;
            let places: Vec<_> = taken.iter().copied().zip(specs).collect();
            Ok(move |stack: &mut Stack| {
                for ((id, home), spec) in places {
                    stack.graph.add_open(id, spec, home);
                }
            })
        });
        noted.inspect_err(|_| self.close_found(&taken))
    }

    /// Puts a partition that its device has taken up on its core. Gives the core, and whether
    /// nothing is in it.
    fn open_found(&self, id: NodeId, spec: &DeviceSpec) -> Result<(usize, bool), Fault> {
        let (parent, core) = self.parent(cut_of(spec)?)?;
        let (name, device) = (spec.name.clone(), cut_of(spec)?.device.clone());
        self.cores.call(core, move |state| async move {
            let found = open_channel(&state, parent, &device)?.partition(&name);
            let found = found.ok_or(Unavailable::LostPartition(name, device))?;
            let is_empty = found.is_empty();
            state.nodes.add(id, Node::Blocks(found));
            Ok((core, is_empty))
        })
    }

    fn close_found(&self, taken: &[(NodeId, usize)]) {
        for &(id, core) in taken {
            let cores = self.cores;
            cores.call(
                core,
                move |state| async move { drop(state.nodes.remove(id)) },
            );
        }
    }

    /// What a device has recorded, and what is in what nothing uses.
    fn partitions_on(&self, device: &str) -> Result<Vec<Found>, Fault> {
        let (parent, _) = self.device(device)?;
        let core = self.home_of(parent)?;
        let users = self.graph.devices().filter(|(id, it)| {
            let cut = it.spec.partition();
            cut.is_some_and(|cut| cut.device == device) && self.graph.user_of(*id).is_some()
        });
        let used: Vec<String> = users.map(|(_, it)| it.spec.name.clone()).collect();
        let name = device.to_owned();
        self.cores.call(core, move |state| async move {
            let device = open_channel(&state, parent, &name)?;
            let mut found = Vec::new();
            for recorded in device.recorded() {
                let free = !used.contains(&recorded.name);
                let held = match device.partition(&recorded.name).filter(|_| free) {
                    Some(partition) => Some(holds(&state.rt, partition).await),
                    None => None,
                };
                found.push((recorded, held));
            }
            Ok(found)
        })
    }

    fn knows_partition(&self, device: &str, name: &str) -> bool {
        let known = self.device(name).ok();
        let cut = known.and_then(|(_, known)| known.spec.partition());
        cut.is_some_and(|cut| cut.device == device)
    }

    fn shown_partition(
        &self,
        device: &str,
        recorded: Recorded,
        holds: Option<Holds>,
    ) -> FoundPartition {
        let cut = PartitionSpec::found(device, recorded.over_provisioning, &recorded.spans);
        let info = recorded.state.as_ref().ok();
        FoundPartition {
            imported: self.knows_partition(device, &recorded.name),
            uuid: Uuid::from_bytes(recorded.uuid).to_string(),
            size: info.map(|info| info.bytes),
            read_only: info.is_some_and(|info| info.read_only),
            fault: recorded.state.as_ref().err().map(ToString::to_string),
            name: recorded.name,
            op: cut.op,
            given: cut.given,
            holds,
        }
    }
}

/// A partition that a file names, with the units that it was given.
fn as_file_has_it(spec: &DeviceSpec, there: PartitionSpec) -> Result<DeviceSpec, Fault> {
    let cut = cut_of(spec)?;
    if let Err(Unlike(key, is, said)) = cut.asks_for(&there) {
        let (name, key) = (spec.name.clone(), key.to_owned());
        return Err(Refused::Differs(Section::Device, name, key, is, said).into());
    }
    Ok(DeviceSpec {
        medium: Medium::Partition(PartitionSpec {
            given: there.given,
            imported: true,
            unfinished: false,
            ..cut.clone()
        }),
        ..spec.clone()
    })
}

/// What is on a partition that nothing uses.
async fn holds(rt: &Rt, partition: Rc<Partition>) -> Holds {
    match Pool::look(rt, Rc::clone(&partition) as SharedDevice).await {
        Err(PoolError::NotAPool) if partition.is_empty() => Holds::Nothing,
        Err(PoolError::NotAPool) => Holds::Data,
        Ok(_) | Err(_) => Holds::Pool,
    }
}
