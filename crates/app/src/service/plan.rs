//! What a configuration file changes, found out before anything is changed. Three things are held
//! against each other, key by key: the file, the file that was applied last, and what is there. A
//! key in the file holds; one that no file ever had stays as it is; one that the file no longer has
//! returns to its default. Nothing is deleted unless that is asked for.
//!
//! Pure: it sees records and gives a [`Plan`]; `apply.rs` carries it out.

mod tables;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Fault;
use super::fault::{InUse, NotFound, Refused};
use super::names::TenantNames;
use crate::control::{KeyChange, KindName, ObjectChange, Risk, Verb, VolumeChange};
use crate::spec::{
    CompressionName, Config, DeviceSpec, Document, FunctionSpec, Keys, PoolSpec, Section, Size,
    TargetSettings, TenantSpec, VolumeKind, VolumeSpec, differences, merge, name_of, names_below,
};
use crate::state::{Applied, Before, VolumeRecord};
use crate::units;
pub(super) use tables::keys;
use tables::{check_fixed, in_same_words, merged, normal, typed};

/// What is there, by name.
pub(super) struct Present<'a> {
    pub(super) target: &'a TargetSettings,
    pub(super) devices: BTreeMap<&'a str, &'a DeviceSpec>,
    pub(super) pools: BTreeMap<&'a str, &'a PoolSpec>,
    pub(super) tenants: BTreeMap<&'a str, &'a TenantSpec>,
    pub(super) volumes: BTreeMap<&'a str, &'a VolumeRecord>,
    pub(super) functions: BTreeMap<&'a str, &'a FunctionSpec>,
    /// What hosts know a tenant's subsystem by.
    pub(super) names: Box<dyn Fn(&TenantSpec) -> TenantNames + 'a>,
}

/// One thing to do, or many of one kind that are done at once.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Target(TargetSettings),
    CreateDevice(DeviceSpec),
    SetDevice(DeviceSpec),
    CreatePool(PoolSpec),
    SetPool(PoolSpec),
    PutTenants(Vec<TenantSpec>),
    CreateVolumes(Vec<VolumeSpec>),
    SetVolume(String, VolumeChange),
    CreateFunctions(Vec<FunctionSpec>),
    SetFunction(FunctionSpec),
}

/// What a file changes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In the order in which they are done. Each can be taken back.
    pub(super) steps: Vec<Step>,
    /// Volumes that grow.
    pub(super) grow: Vec<(String, Size)>,
    /// The same for people.
    pub(super) changes: Vec<ObjectChange>,
    /// What stays although the file says otherwise, or says it no longer.
    pub(super) notes: Vec<String>,
    pub(super) risks: Vec<Risk>,
    /// What is on devices already is taken over.
    pub(super) import: bool,
    /// What is changed, as it is now.
    pub(super) before: Vec<Before>,
    /// What is held against the next file, and what goes.
    pub(super) applied: Applied,
    /// All that the file names, as it will be.
    pub(super) config: Config,
}

/// The plan of a file.
pub(super) fn plan(
    file: &Document,
    applied: &Applied,
    present: &Present<'_>,
    prune: bool,
) -> Result<Plan, Fault> {
    // What is wrong with the file itself comes first.
    file.to_config()?;
    let mut planner = Planner {
        file,
        applied,
        present,
        plan: Plan {
            applied: Applied {
                file: file.clone(),
                renamed: applied.renamed.clone(),
                ..Applied::default()
            },
            ..Plan::default()
        },
    };
    planner.target()?;
    planner.devices()?;
    planner.pools()?;
    planner.tenants()?;
    planner.volumes()?;
    planner.functions()?;
    planner.left_out(prune);
    planner.plan.forget_old_names(file);
    planner.plan.config.check()?;
    check_references(&planner.plan.config, present)?;
    Ok(planner.plan)
}

/// What the settings of the target are to be.
pub(super) fn target_settings(
    now: &TargetSettings,
    applied: &Applied,
    file: &Document,
) -> Result<TargetSettings, Fault> {
    let table = |of: &Document| {
        of.tables(Section::Target)
            .first()
            .cloned()
            .unwrap_or_default()
    };
    let merged = merge(&keys(now), &table(&applied.file), &table(file));
    typed(Section::Target, "", merged)
}

struct Planner<'a> {
    file: &'a Document,
    applied: &'a Applied,
    present: &'a Present<'a>,
    plan: Plan,
}

impl Planner<'_> {
    fn target(&mut self) -> Result<(), Fault> {
        let none = Keys::new();
        let applied = self
            .applied
            .file
            .tables(Section::Target)
            .first()
            .unwrap_or(&none);
        let now = self.present.target;
        let wanted = target_settings(now, self.applied, self.file)?;
        let old = keys(&now.effective());
        let new = keys(&wanted.effective());
        self.show(Section::Target, "", &old, &new, applied);
        if now.prefix() != wanted.prefix() && !self.present.tenants.is_empty() {
            self.plan.notes.push(format!(
                "nqn_prefix {} is for tenants made from now on: the {} that there are keep their NQNs",
                wanted.prefix(),
                self.present.tenants.len()
            ));
        }
        if now.effective().cores != wanted.effective().cores {
            self.plan
                .notes
                .push("cores holds from the next start on".to_owned());
        }
        if wanted != *now {
            self.plan.before.push(Before::Target(now.clone()));
            self.plan.steps.push(Step::Target(wanted.clone()));
        }
        self.plan.config.target = wanted;
        Ok(())
    }

    fn devices(&mut self) -> Result<(), Fault> {
        let applied = self.applied.file.by_name(Section::Device);
        for table in in_order(self.file.tables(Section::Device)) {
            let name = name_of(table);
            let said = applied.get(name).copied();
            let Some(&now) = self.present.devices.get(name) else {
                let spec: DeviceSpec = self.create(Section::Device, table, said)?;
                self.plan.before.push(Before::Device(name.into(), None));
                self.plan.steps.push(Step::CreateDevice(spec.clone()));
                self.plan.config.devices.push(spec);
                continue;
            };
            let table = in_same_words(now, table);
            let wanted: DeviceSpec = merged(Section::Device, now, said, &table)?;
            check_fixed(Section::Device, name, &keys(now), &keys(&wanted))?;
            self.show(
                Section::Device,
                name,
                &keys(now),
                &keys(&wanted),
                said.unwrap_or(&Keys::new()),
            );
            if wanted != *now {
                self.plan
                    .before
                    .push(Before::Device(name.into(), Some(now.clone())));
                self.plan.steps.push(Step::SetDevice(wanted.clone()));
            }
            self.plan.config.devices.push(wanted);
        }
        Ok(())
    }

    fn pools(&mut self) -> Result<(), Fault> {
        let applied = self.applied.file.by_name(Section::Pool);
        for table in self.file.tables(Section::Pool) {
            let name = name_of(table);
            let said = applied.get(name).copied();
            let Some(&now) = self.present.pools.get(name) else {
                let spec: PoolSpec = self.create(Section::Pool, table, said)?;
                self.plan.before.push(Before::Pool(name.into()));
                self.plan.steps.push(Step::CreatePool(spec.clone()));
                self.plan.config.pools.push(spec);
                continue;
            };
            let wanted = merged::<PoolSpec>(Section::Pool, now, said, table)?.normal();
            check_fixed(Section::Pool, name, &keys(now), &keys(&wanted))?;
            self.show(
                Section::Pool,
                name,
                &keys(now),
                &keys(&wanted),
                said.unwrap_or(&Keys::new()),
            );
            if wanted != *now {
                self.plan.before.push(Before::ChangedPool(now.clone()));
                self.plan.steps.push(Step::SetPool(wanted.clone()));
            }
            self.plan.config.pools.push(wanted);
        }
        Ok(())
    }

    /// What is promised less goes before what is promised more, so that a file can move a guarantee
    /// from one tenant to another.
    fn tenants(&mut self) -> Result<(), Fault> {
        let applied = self.applied.file.by_name(Section::Tenant);
        let (mut first, mut then) = (Vec::new(), Vec::new());
        let present = self.present.tenants.values();
        let nqns = present.map(|spec| ((self.present.names)(spec).nqn, spec.name.clone()));
        let mut nqns: BTreeMap<String, String> = nqns.collect();
        for table in self.file.tables(Section::Tenant) {
            let name = name_of(table);
            let said = applied.get(name).copied();
            let Some(&now) = self.present.tenants.get(name) else {
                let spec: TenantSpec = self.create(Section::Tenant, table, said)?;
                let spec = spec.without_empty();
                let nqn = (self.present.names)(&spec).nqn;
                if let Some(other) = nqns.insert(nqn.clone(), name.to_owned()) {
                    return Err(InUse::Nqn(name.to_owned(), other, nqn).into());
                }
                self.plan.before.push(Before::Tenant(name.into(), None));
                self.plan.config.tenants.push(spec.clone());
                then.push(spec);
                continue;
            };
            let wanted: TenantSpec = merged(Section::Tenant, now, said, table)?;
            let names = (self.present.names)(now);
            let wanted = names.keep_identity(wanted.without_empty(), now)?;
            check_fixed(Section::Tenant, name, &keys(now), &keys(&wanted))?;
            self.show(
                Section::Tenant,
                name,
                &keys(now),
                &keys(&wanted),
                said.unwrap_or(&Keys::new()),
            );
            self.plan.config.tenants.push(wanted.clone());
            if wanted == *now {
                continue;
            }
            if wanted.hosts.is_empty() && !now.hosts.is_empty() {
                self.plan.risks.push(Risk::NoHosts(name.to_owned()));
            }
            self.plan
                .before
                .push(Before::Tenant(name.into(), Some(now.clone())));
            let change = now.stages(wanted);
            first.extend(change.first);
            then.extend(change.then);
        }
        let stages = [first, then].into_iter().filter(|stage| !stage.is_empty());
        self.plan.steps.extend(stages.map(Step::PutTenants));
        Ok(())
    }

    fn volumes(&mut self) -> Result<(), Fault> {
        let applied = self.applied.file.by_name(Section::Volume);
        let (mut new, mut changes) = (Vec::new(), Vec::new());
        for table in self.file.tables(Section::Volume) {
            let name = name_of(table);
            let said = applied.get(name).copied();
            let Some(&record) = self.present.volumes.get(name) else {
                let spec: VolumeSpec = self.create(Section::Volume, table, said)?;
                self.plan.before.push(Before::Volume(name.into(), None));
                self.plan.config.volumes.push(spec.clone());
                new.push(spec);
                continue;
            };
            let wanted = self.changed_volume(record, said, table)?;
            // A whole device is as large as it is.
            if let (Some(size), true) = (wanted.size, record.spec.pool.is_some())
                && wanted.size > record.spec.size
            {
                self.plan.grow.push((name.to_owned(), size));
            }
            if wanted.reserve != record.spec.reserve {
                let reserve = wanted.reserve.unwrap_or(Size(0));
                let step = Step::SetVolume(name.to_owned(), VolumeChange::Reserve(reserve));
                // What is given up is there for others.
                match wanted.reserve < record.spec.reserve {
                    true => changes.insert(0, step),
                    false => changes.push(step),
                }
            }
            let read_only = wanted.read_only == Some(true);
            if read_only != (record.spec.read_only == Some(true)) {
                let change = VolumeChange::ReadOnly(read_only);
                changes.push(Step::SetVolume(name.to_owned(), change));
            }
            // How large a whole device is is not for files.
            let size = wanted.size.filter(|_| wanted.pool.is_some());
            self.plan.config.volumes.push(VolumeSpec { size, ..wanted });
        }
        if !new.is_empty() {
            self.plan.steps.push(Step::CreateVolumes(new));
        }
        self.plan.steps.append(&mut changes);
        Ok(())
    }

    fn changed_volume(
        &mut self,
        record: &VolumeRecord,
        said: Option<&Keys>,
        table: &Keys,
    ) -> Result<VolumeSpec, Fault> {
        let (now, name) = (&record.spec, &record.spec.name);
        let mut wanted: VolumeSpec = merged(Section::Volume, now, said, table)?;
        if wanted.tenant != now.tenant {
            let (now, wanted) = (now.tenant.clone(), wanted.tenant);
            return Err(Refused::OtherTenants(name.clone(), now, wanted).into());
        }
        record.check_same_identity(&wanted)?;
        // What a volume has been given for ever is in its record, and what became of old content is
        // past.
        wanted = VolumeSpec {
            uuid: now.uuid,
            nguid: now.nguid,
            eui64: now.eui64,
            nsid: now.nsid,
            content: now.content,
            kind: VolumeKind::normal(wanted.kind.or(now.kind)),
            compression: CompressionName::normal(wanted.compression.or(now.compression)),
            chunk: VolumeSpec::normal_chunk(wanted.chunk.or(now.chunk)),
            reserve: wanted.reserve.filter(|size| size.0 > 0),
            ..wanted
        };
        if wanted.size < now.size {
            self.plan.notes.push(format!(
                "volume {name} stays at {}: volumes do not shrink",
                units::size(now.size.unwrap_or(Size(0)).0)
            ));
            wanted.size = now.size;
        }
        check_fixed(Section::Volume, name, &keys(now), &keys(&wanted))?;
        self.show(
            Section::Volume,
            name,
            &keys(now),
            &keys(&wanted),
            said.unwrap_or(&Keys::new()),
        );
        if wanted != *now {
            let before = Before::Volume(name.clone(), Some(now.clone()));
            self.plan.before.push(before);
        }
        Ok(wanted)
    }

    fn functions(&mut self) -> Result<(), Fault> {
        let applied = self.applied.file.by_name(Section::Function);
        let (mut new, mut changes) = (Vec::new(), Vec::new());
        for table in self.file.tables(Section::Function) {
            let name = name_of(table);
            let said = applied.get(name).copied();
            let Some(&now) = self.present.functions.get(name) else {
                let spec: FunctionSpec = self.create(Section::Function, table, said)?;
                self.plan.before.push(Before::Function(name.into(), None));
                self.plan.config.functions.push(spec.clone());
                new.push(spec);
                continue;
            };
            let wanted: FunctionSpec = merged(Section::Function, now, said, table)?;
            check_fixed(Section::Function, name, &keys(now), &keys(&wanted))?;
            self.show(
                Section::Function,
                name,
                &keys(now),
                &keys(&wanted),
                said.unwrap_or(&Keys::new()),
            );
            if wanted != *now {
                let before = Before::Function(name.into(), Some(now.clone()));
                self.plan.before.push(before);
                changes.push(Step::SetFunction(wanted.clone()));
            }
            self.plan.config.functions.push(wanted);
        }
        if !new.is_empty() {
            self.plan.steps.push(Step::CreateFunctions(new));
        }
        self.plan.steps.append(&mut changes);
        Ok(())
    }

    /// What a table makes that is not there.
    fn create<T: DeserializeOwned + Serialize>(
        &mut self,
        section: Section,
        table: &Keys,
        said: Option<&Keys>,
    ) -> Result<T, Fault> {
        let name = name_of(table);
        if let Some(new) = self.applied.renamed(section, name)
            && self.present.has(section, new)
        {
            let (name, new) = (name.to_owned(), new.to_owned());
            return Err(Refused::Renamed(section, name, new).into());
        }
        let change = KeyChange::all_of(table);
        self.plan.changes.push(ObjectChange {
            kind: section,
            name: name.to_owned(),
            verb: Verb::Create,
            // What is to be imported was not deleted.
            by_hand: said.is_some() && !self.applied.is_to_import(section, name),
            keys: change,
        });
        typed(section, name, table.clone())
    }

    /// Shows where what is to be differs from what is there.
    fn show(&mut self, section: Section, name: &str, now: &Keys, wanted: &Keys, said: &Keys) {
        let found = differences(now, wanted);
        if found.is_empty() {
            return;
        }
        let said = normal(section, said);
        let keys = found.into_iter().map(|it| {
            // What the last file said, and is otherwise now, was changed by hand.
            let last = at(&said, &it.key);
            let by_hand = last.is_some() && last != it.old.as_ref();
            KeyChange {
                key: it.key,
                old: it.old,
                new: it.new,
                by_hand,
            }
        });
        self.plan.changes.push(ObjectChange {
            kind: section,
            name: name.to_owned(),
            verb: Verb::Change,
            by_hand: false,
            keys: keys.collect(),
        });
    }

    /// What the last file had and this one has no longer.
    fn left_out(&mut self, prune: bool) {
        for section in Section::ALL.into_iter().rev() {
            let file = self.file.by_name(section);
            // What stands on another device goes before it.
            let tables = in_order(self.applied.file.tables(section));
            let gone = tables
                .into_iter()
                .rev()
                .filter(|keys| section != Section::Target && !file.contains_key(name_of(keys)));
            for table in gone {
                let name = name_of(table).to_owned();
                if !self.present.has(section, &name) {
                    continue;
                }
                let kind = section.name();
                if !prune {
                    self.plan.applied.file.push(section, table.clone());
                    self.plan.notes.push(format!(
                        "{kind} {name} is no longer in the file and stays as it is: --prune deletes it"
                    ));
                    continue;
                }
                self.plan.changes.push(ObjectChange {
                    kind: section,
                    name: name.clone(),
                    verb: Verb::Delete,
                    by_hand: false,
                    keys: Vec::new(),
                });
                self.plan.risks.push(Risk::Delete(section, name.clone()));
                self.plan.applied.deleting.push((section, name));
            }
        }
    }
}

impl Plan {
    /// Old names that are neither in the file nor of anything that is there mean nothing any more.
    fn forget_old_names(&mut self, file: &Document) {
        let names: Vec<_> = Section::ALL
            .map(|section| (section, file.by_name(section)))
            .into();
        self.applied.renamed.retain(|renamed| {
            let mut sections = names.iter();
            let now = sections.find(|(section, _)| *section == renamed.section);
            now.is_some_and(|(_, names)| !names.contains_key(renamed.new.as_str()))
        });
    }
}

impl Present<'_> {
    fn has(&self, section: Section, name: &str) -> bool {
        match section {
            Section::Target => true,
            Section::Device => self.devices.contains_key(name),
            Section::Pool => self.pools.contains_key(name),
            Section::Tenant => self.tenants.contains_key(name),
            Section::Volume => self.volumes.contains_key(name),
            Section::Function => self.functions.contains_key(name),
        }
    }
}

/// The tables of a kind in the order in which what they name is made: a layer after the device that
/// it stands before, and an array after its devices, wherever they stand in the file.
fn in_order(tables: &[Keys]) -> Vec<&Keys> {
    let below: BTreeMap<&str, Vec<&str>> = tables
        .iter()
        .map(|keys| (name_of(keys), names_below(keys)))
        .collect();
    fn depth(below: &BTreeMap<&str, Vec<&str>>, name: &str, most: usize) -> usize {
        let next = below.get(name).filter(|_| most > 0);
        let depths = next
            .into_iter()
            .flatten()
            .map(|it| 1 + depth(below, it, most - 1));
        depths.max().unwrap_or(0)
    }
    let mut ordered: Vec<&Keys> = tables.iter().collect();
    // Volumes name devices, too, and keep their order.
    if tables.iter().any(|keys| keys.contains_key("kind")) {
        // Where layers go in a circle there is an end, too.
        ordered.sort_by_cached_key(|keys| depth(&below, name_of(keys), tables.len().min(8)));
    }
    ordered
}

/// Whether all that is named is in the file or there already.
fn check_references(config: &Config, present: &Present<'_>) -> Result<(), Fault> {
    let devices: BTreeSet<&str> = config
        .devices
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    let pools: BTreeSet<&str> = config.pools.iter().map(|spec| spec.name.as_str()).collect();
    let tenants: BTreeSet<&str> = config
        .tenants
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    let device = |name: &str| devices.contains(name) || present.devices.contains_key(name);
    let pool = |name: &str| pools.contains(name) || present.pools.contains_key(name);
    let tenant = |name: &str| tenants.contains(name) || present.tenants.contains_key(name);
    for spec in &config.devices {
        if let Some(missing) = spec.stands_on().into_iter().find(|name| !device(name)) {
            return Err(unknown(
                KindName::Device,
                &spec.name,
                KindName::Device,
                missing,
            ));
        }
    }
    for spec in &config.pools {
        if let Some(missing) = spec.devices.iter().find(|name| !device(name)) {
            return Err(unknown(
                KindName::Pool,
                &spec.name,
                KindName::Device,
                missing,
            ));
        }
    }
    for spec in &config.volumes {
        let name = &spec.name;
        if let Some(missing) = spec.pool.as_ref().filter(|name| !pool(name)) {
            return Err(unknown(KindName::Volume, name, KindName::Pool, missing));
        }
        if let Some(missing) = spec.device.as_ref().filter(|name| !device(name)) {
            return Err(unknown(KindName::Volume, name, KindName::Device, missing));
        }
        if !tenant(&spec.tenant) {
            return Err(unknown(
                KindName::Volume,
                name,
                KindName::Tenant,
                &spec.tenant,
            ));
        }
    }
    match config.functions.iter().find(|it| !tenant(&it.tenant)) {
        Some(spec) => {
            let (name, missing) = (&spec.name, &spec.tenant);
            Err(unknown(KindName::Function, name, KindName::Tenant, missing))
        }
        None => Ok(()),
    }
}

fn unknown(kind: KindName, name: &str, wanted: KindName, missing: &str) -> Fault {
    let (name, missing) = (name.to_owned(), missing.to_owned());
    NotFound::Reference {
        kind,
        name,
        wanted,
        missing,
    }
    .into()
}

/// The value of a key with the tables that it is in.
fn at<'a>(keys: &'a Keys, path: &str) -> Option<&'a Value> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    match (keys.get(first)?, rest) {
        (Value::Object(table), Some(rest)) => at(table, rest),
        (value, None) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
