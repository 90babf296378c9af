//! What waits to be imported: a start does not fail because a device has already what the file of
//! the target names and the state, which may have been lost, does not know. Nothing is made over
//! it; everything else is served, `status` says how it is imported, and what the file says to stand
//! on it follows when it is.
//!
//! Its names are kept with the file, so that they outlive a start without one.

use std::collections::BTreeSet;
use std::sync::Arc;

use flashyard_block::array::ArrayError;
use flashyard_block::pool::PoolError;

use super::fault::{InUse, NotFound, Refused, ToImport, Unavailable};
use super::plan::Step;
use super::turns::Wants;
use super::wants::{wants_of_device, wants_of_pool, wants_of_volume};
use super::work::Work;
use super::{Checked, Fault, Stack};
use crate::control::KindName;
use crate::spec::{Config, DeviceSpec, PoolSpec, Section, VolumeSpec};
use crate::state::{Applied, Kind};

/// What is to be imported with something, each after what it stands on.
#[derive(Debug, Default)]
pub(super) struct Followers {
    devices: Vec<DeviceSpec>,
    pools: Vec<PoolSpec>,
    volumes: Vec<VolumeSpec>,
}

impl Work<'_> {
    /// A step of the file of a start: what a device has already goes to `to_import`, with all that
    /// stands on it.
    pub(super) fn carry_out_at_start(
        &mut self,
        step: Step,
        to_import: &mut Vec<(Section, String)>,
    ) -> Result<(), Fault> {
        let waits = |to_import: &[(Section, String)], section, name: Option<&str>| {
            name.is_some_and(|name| to_import.iter().any(|it| it.0 == section && it.1 == name))
        };
        let (section, name) = match &step {
            Step::CreateDevice(spec) => {
                let name = (Section::Device, spec.name.clone());
                let mut below = spec.stands_on().into_iter();
                if below.any(|it| waits(to_import, Section::Device, Some(it))) {
                    to_import.push(name);
                    return Ok(());
                }
                name
            }
            Step::CreatePool(spec) => {
                let name = (Section::Pool, spec.name.clone());
                let mut devices = spec.devices.iter();
                if devices.any(|it| waits(to_import, Section::Device, Some(it))) {
                    to_import.push(name);
                    return Ok(());
                }
                name
            }
            Step::CreateVolumes(specs) => {
                let (later, now) = specs.iter().cloned().partition::<Vec<_>, _>(|spec| {
                    waits(to_import, Section::Pool, spec.pool.as_deref())
                        || waits(to_import, Section::Device, spec.device.as_deref())
                        || self.erases_what_may_be_data(spec)
                });
                to_import.extend(later.into_iter().map(|spec| (Section::Volume, spec.name)));
                return self.create_volumes_at_start(now, to_import);
            }
            _ => return self.carry_out(step, Checked::Never),
        };
        match self.carry_out(step, Checked::Never) {
            Err(fault) if fault.is_found_on_device() => to_import.push((section, name)),
            outcome => return outcome,
        }
        Ok(())
    }

    /// All at once; one by one if one of them is there already.
    fn create_volumes_at_start(
        &mut self,
        specs: Vec<VolumeSpec>,
        to_import: &mut Vec<(Section, String)>,
    ) -> Result<(), Fault> {
        match self.create_volumes(specs.clone(), Checked::Never) {
            Err(fault) if fault.is_found_on_device() => {}
            outcome => return outcome,
        }
        for spec in specs {
            let name = spec.name.clone();
            match self.create_volumes(vec![spec], Checked::Never) {
                Err(fault) if fault.is_found_on_device() => {
                    to_import.push((Section::Volume, name));
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Imports what the file says to stand on pools and partitions that were imported. What cannot
    /// be waits on; says what was done, and what not.
    pub(super) fn import_followers(&mut self, followers: Followers) -> Vec<String> {
        let mut notes = Vec::new();
        for device in followers.devices {
            let what = format!("device {}", device.name);
            let done = self.carry_out_importing(Step::CreateDevice(device), Checked::Never);
            notes.extend(notes_of(&what, done));
        }
        for pool in followers.pools {
            let what = format!("pool {}", pool.name);
            let done = self.carry_out_importing(Step::CreatePool(pool), Checked::Never);
            notes.extend(notes_of(&what, done));
        }
        let (all, missing) = self.present_in_pools(followers.volumes);
        notes.extend(missing);
        if all.is_empty() {
            return notes;
        }
        let step = Step::CreateVolumes(all.clone());
        match self.carry_out_importing(step, Checked::Never) {
            Ok(done) => notes.extend(done),
            Err(_) => {
                for spec in all {
                    let what = format!("volume {}", spec.name);
                    let step = Step::CreateVolumes(vec![spec]);
                    notes.extend(notes_of(
                        &what,
                        self.carry_out_importing(step, Checked::Never),
                    ));
                }
            }
        }
        notes
    }

    /// Those that their pool has, and what to do about the others: an empty volume under the old
    /// identity would pass for the data.
    fn present_in_pools(&self, volumes: Vec<VolumeSpec>) -> (Vec<VolumeSpec>, Vec<String>) {
        let mut missing = Vec::new();
        let mut present = volumes;
        present.retain(|spec| {
            let found =
                spec.pool.is_none() || !matches!(self.find_in_pool(&mut spec.clone()), Ok(false));
            if !found {
                let pool = spec.pool.as_deref().unwrap_or_default();
                let why = NotFound::ToImport(spec.name.clone(), pool.to_owned());
                missing.push(still_waits(&format!("volume {}", spec.name), &why.into()));
            }
            found
        });
        (present, missing)
    }

    /// Hosts of tenants that do not have all their volumes yet are asked to come again: where some
    /// wait to be imported, and where a file is making them, if it says so now or has said it.
    pub(super) fn hold_hosts_back(&mut self, new: Option<BTreeSet<String>>) {
        let mut making = self.service.new_tenants();
        if let Some(new) = new {
            *making = new;
        }
        self.look();
        let waiting = self.waiting().volumes.into_iter();
        let waiting = waiting.map(|volume| volume.tenant);
        self.target
            .hold_back(waiting.chain(making.iter().cloned()).collect());
    }

    /// Forgets that what is there now was to be imported.
    pub(super) fn forget_imported_names(&mut self) -> Result<(), Fault> {
        if self.to_import().count() == self.applied.to_import.len() {
            return Ok(());
        }
        self.commit(|state, stack| {
            let left: Vec<_> = stack.to_import().cloned().collect();
            state.put_to_import(&left)?;
            let applied = Applied {
                to_import: left,
                ..Applied::clone(&stack.applied)
            };
            Ok(move |stack: &mut Stack| stack.applied = Arc::new(applied))
        })
    }
}

/// What an import of something that follows another one has done, or why it could not be.
fn notes_of(what: &str, done: Result<Vec<String>, Fault>) -> Vec<String> {
    done.unwrap_or_else(|fault| vec![still_waits(what, &fault)])
}

fn still_waits(what: &str, fault: &Fault) -> String {
    format!("{what} still waits to be imported: {fault}")
}

impl Stack {
    /// What is to be imported.
    pub(super) fn to_import(&self) -> impl Iterator<Item = &(Section, String)> {
        let there = |section: &Section, name: &str| {
            let kind = match section {
                Section::Target => return true,
                Section::Device => Kind::Device,
                Section::Pool => Kind::Pool,
                Section::Tenant => Kind::Tenant,
                Section::Volume => Kind::Volume,
                Section::Function => Kind::Function,
            };
            self.graph.find(kind, name).is_some()
        };
        let all = self.applied.to_import.iter();
        all.filter(move |(section, name)| !there(section, name))
    }

    /// What is to be imported, and how.
    pub(super) fn faults_to_import(&self) -> Vec<(KindName, String, Fault)> {
        let Waiting {
            devices,
            pools,
            volumes,
        } = self.waiting();
        let mut faults = Vec::new();
        let mut add = |kind, name: &str, why: ToImport| {
            faults.push((kind, name.to_owned(), Unavailable::ToImport(why).into()));
        };
        let on_waiting = |device: &str| {
            let spec = devices.iter().find(|it| it.name == device);
            spec.map(|spec| ToImport::On(kind_of(spec), spec.name.clone()))
        };
        for spec in &devices {
            let below = spec.stands_on();
            let found = || match spec.array() {
                Some(array) => ToImport::Array(spec.name.clone(), array.devices.join(",")),
                None => {
                    let below = below.first().copied().unwrap_or_default();
                    ToImport::Partition(spec.name.clone(), below.to_owned())
                }
            };
            let why = below.iter().find_map(|it| on_waiting(it));
            let why = why.unwrap_or_else(found);
            add(kind_of(spec), &spec.name, why);
        }
        for spec in &pools {
            let found = || ToImport::Pool(spec.name.clone(), spec.device().to_owned());
            let why = spec.devices.iter().find_map(|it| on_waiting(it));
            add(KindName::Pool, &spec.name, why.unwrap_or_else(found));
        }
        let mut held_back: Vec<_> = volumes.iter().map(|it| &it.tenant).collect();
        held_back.sort_unstable();
        held_back.dedup();
        for tenant in held_back {
            add(KindName::Tenant, tenant, ToImport::Hosts);
        }
        for spec in &volumes {
            let own = Box::new(spec.clone());
            let why = match (spec.pool.clone(), spec.device.clone()) {
                (Some(pool), _) if pools.iter().any(|it| it.name == pool) => {
                    ToImport::On(KindName::Pool, pool)
                }
                (Some(pool), _) => ToImport::Volume(own, pool),
                (None, device) => {
                    let device = device.unwrap_or_default();
                    on_waiting(&device).unwrap_or(ToImport::Whole(own, device))
                }
            };
            add(KindName::Volume, &spec.name, why);
        }
        faults
    }

    /// What the file says to stand on these pools and partitions, and waits to be imported.
    pub(super) fn followers(&self, pools: &[String], partitions: &[String]) -> Followers {
        let mut waiting = self.waiting();
        let mut follow = Followers::default();
        let mut known = partitions.to_vec();
        // A layer may stand on another one.
        while let Some(place) = waiting.devices.iter().position(|spec| {
            let below = spec.stands_on();
            spec.partition().is_none() && below.iter().any(|it| known.iter().any(|at| at == it))
        }) {
            let layer = waiting.devices.remove(place);
            known.push(layer.name.clone());
            follow.devices.push(layer);
        }
        let on = |device: Option<&String>| device.is_some_and(|it| known.contains(it));
        follow.pools.extend(waiting.pools);
        follow
            .pools
            .retain(|spec| spec.devices.iter().any(|it| on(Some(it))));
        let of =
            |pool: &String| pools.contains(pool) || follow.pools.iter().any(|it| it.name == *pool);
        let volumes = waiting.volumes.into_iter();
        let volumes =
            volumes.filter(|it| it.pool.as_ref().is_some_and(of) || on(it.device.as_ref()));
        follow.volumes = volumes.collect();
        follow
    }

    /// The partition of this name that waits to be imported, as the file has it.
    pub(super) fn waiting_partition(&self, name: &str) -> Option<DeviceSpec> {
        let mut devices = self.waiting().devices.into_iter();
        devices.find(|spec| spec.name == name && spec.partition().is_some())
    }

    /// Refuses to let a tenant go of whom the file names volumes that wait to be imported.
    pub(super) fn check_none_waits(&self, tenant: &str) -> Result<(), Fault> {
        let mut volumes = self.waiting().volumes.into_iter();
        match volumes.find(|it| it.tenant == tenant) {
            Some(volume) => Err(InUse::Waiting(tenant.to_owned(), volume.name).into()),
            None => Ok(()),
        }
    }

    /// The names of the partitions of a device that wait to be imported.
    pub(super) fn waiting_partitions(&self, device: &str) -> Vec<String> {
        let devices = self.waiting().devices.into_iter();
        let of = devices.filter(|it| it.partition().is_some_and(|cut| cut.device == device));
        of.map(|spec| spec.name).collect()
    }

    fn waiting(&self) -> Waiting {
        if self.to_import().next().is_none() {
            return Waiting::default();
        }
        let Ok(Config {
            mut devices,
            mut pools,
            mut volumes,
            ..
        }) = self.applied.file.to_config()
        else {
            return Waiting::default();
        };
        let waits =
            |section, name: &str| self.to_import().any(|it| it.0 == section && it.1 == name);
        devices.retain(|it| waits(Section::Device, &it.name));
        pools.retain(|it| waits(Section::Pool, &it.name));
        volumes.retain(|it| waits(Section::Volume, &it.name));
        Waiting {
            devices,
            pools,
            volumes,
        }
    }
}

fn kind_of(device: &DeviceSpec) -> KindName {
    match device.partition() {
        Some(_) => KindName::Partition,
        None => KindName::Device,
    }
}

/// What waits to be imported, as the file has it.
#[derive(Default)]
struct Waiting {
    devices: Vec<DeviceSpec>,
    pools: Vec<PoolSpec>,
    volumes: Vec<VolumeSpec>,
}

impl Followers {
    /// What importing them wants.
    pub(super) fn wants(&self) -> Wants {
        let devices = self.devices.iter().map(wants_of_device);
        let pools = self.pools.iter().map(wants_of_pool);
        let volumes = self.volumes.iter().map(wants_of_volume);
        devices
            .chain(pools)
            .chain(volumes)
            .fold(Wants::default(), Wants::and_all)
    }
}

impl Fault {
    /// Whether something cannot be made because a device has it, or may have it, already.
    fn is_found_on_device(&self) -> bool {
        matches!(
            self,
            Self::Refused(
                Refused::HoldsPool(..)
                    | Refused::Content(..)
                    | Refused::NeedsUuid(..)
                    | Refused::Array(ArrayError::Occupied(..))
            ) | Self::InUse(
                InUse::ForeignPartition(..)
                    | InUse::UnknownVolume(..)
                    | InUse::Pool(PoolError::Exists(_))
            )
        )
    }
}
