//! Carrying out what a configuration file changes (`plan.rs`): all of it, or nothing.
//!
//! What is about to change is noted in the store first, as it was. When a step fails, what the
//! steps before it have changed is taken back; when the target is killed, the next start does that.
//! When all is done the file counts as applied, in one change of the store. Growing and deleting
//! cannot be taken back, and come after that; the next start goes on with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fault::{Refused, Rest};
use super::plan::{Plan, Present, Step, plan};
use super::promises;
use super::turns::{Object, Wants};
use super::wants::{wants_of_device, wants_of_functions, wants_of_pool, wants_of_volume};
use super::work::Work;
use super::{Checked, Fault, Over, Service, Stack, Subject, checked};
use crate::control::{AppliedView, How, KindName, Request, VolumeChange};
use crate::graph::NodeId;
use crate::out::note;
use crate::spec::{Document, Section, Size};
use crate::state::{Applied, Before, Kind, Phase};

impl Work<'_> {
    /// Carries the plan of a file out, or only shows it.
    pub(super) fn apply(&mut self, file: &Document, how: How) -> Result<AppliedView, Fault> {
        // What the steps change has its turn, and nothing else that the file names: a device that
        // does not answer and stays as it is delays nothing else.
        let mut found = self.plan_checked(file, how)?;
        if how.plan {
            return Ok(found.shown(false));
        }
        let mut turn = None;
        while turn.is_none() {
            let wants = self.wants_of_plan(&found);
            let mine = self.service.turns.take(wants.clone())?;
            self.look();
            found = self.plan_checked(file, how)?;
            turn = Some(mine).filter(|_| self.wants_of_plan(&found) == wants);
        }
        if !how.yes && !found.risks.is_empty() {
            return Err(Refused::Risks(found.risks).into());
        }
        // Data come back whatever is promised, and for policies without figures `fair` stands in.
        let (way, checked) = match found.import {
            true => (Way::Import, Checked::Never),
            false => (Way::Make, checked(how.force)),
        };
        // A host that comes to a new tenant finds all its volumes.
        let new = found.before.iter().filter_map(|before| match before {
            Before::Tenant(name, None) => Some(name.clone()),
            _ => None,
        });
        let new = new.collect();
        self.hold_hosts_back(Some(new));
        let outcome = self.bring_about(found, checked, way);
        self.hold_hosts_back(Some(BTreeSet::new()));
        let mut shown = outcome?;
        if way == Way::Import {
            shown.notes.extend(self.notes_of_promises());
        }
        Ok(shown)
    }

    /// What is to be said of guarantees that were not checked.
    fn notes_of_promises(&self) -> Vec<String> {
        let doubtful = self.doubtful_guarantees().into_iter();
        let note =
            |(tenant, why)| format!("the guarantee of tenant {tenant} is not known to hold: {why}");
        doubtful.map(note).collect()
    }

    /// Applies the file that the target is started with. What it promises too much of is served
    /// nevertheless, and what may be on a device already waits to be imported.
    pub(super) fn apply_at_start(&mut self, file: &Document) -> Result<AppliedView, Fault> {
        let found = self.plan(file, false)?;
        if !found.risks.is_empty() {
            return Err(Refused::Risks(found.risks).into());
        }
        self.bring_about(found, Checked::Never, Way::Start)
    }

    /// The plan of a file that fits to itself, to what is there, and to what devices can give.
    fn plan_checked(&self, file: &Document, how: How) -> Result<Plan, Fault> {
        let mut found = self.plan(file, how.prune)?;
        if how.import {
            found.import = true;
            for before in &mut found.before {
                if let Before::Pool(name) = before {
                    *before = Before::FoundPool(std::mem::take(name));
                }
            }
        }
        if !how.force && !how.import {
            promises::check_file(self, &found.config)?;
        }
        Ok(found)
    }

    fn plan(&self, file: &Document, prune: bool) -> Result<Plan, Fault> {
        plan(file, &self.applied, &self.present(), prune)
    }

    /// What a file is held against.
    pub(super) fn present(&self) -> Present<'_> {
        let graph = &self.graph;
        let pools = graph.all(Kind::Pool).filter_map(|id| graph.pool(id));
        let volumes = graph.all(Kind::Volume).filter_map(|id| graph.volume(id));
        let volumes = volumes.map(|volume| &volume.record);
        Present {
            target: &self.settings,
            devices: by_name(graph.devices().map(|(_, it)| &it.spec), |it| &it.name),
            pools: by_name(pools.map(|it| &it.spec), |it| &it.name),
            tenants: by_name(graph.tenants().map(|(_, it)| &it.spec), |it| &it.name),
            volumes: by_name(volumes, |it| &it.spec.name),
            functions: by_name(graph.functions().map(|(_, it)| &it.spec), |it| &it.name),
            names: Box::new(|spec| self.names_of(spec)),
        }
    }

    /// First what can be taken back, then the file counts as applied, then what a start goes on
    /// with if it is cut off: volumes grow, and things go.
    fn bring_about(
        &mut self,
        mut plan: Plan,
        checked: Checked,
        way: Way,
    ) -> Result<AppliedView, Fault> {
        let mut shown = plan.shown(true);
        // The store keeps one list of what is to be taken back.
        if self.service.has_unfinished()? {
            return Err(Refused::Unfinished.into());
        }
        if !plan.before.is_empty() {
            self.store(|state| state.put_unfinished(&plan.before))?;
        }
        for step in plan.steps {
            let what = step.describe();
            let done = match way {
                Way::Import => self.carry_out_importing(step, checked),
                Way::Make => self.carry_out(step, checked).map(|()| Vec::new()),
                Way::Start => {
                    let to_import = &mut plan.applied.to_import;
                    self.carry_out_at_start(step, to_import)
                        .map(|()| Vec::new())
                }
            };
            match done {
                Ok(notes) => shown.notes.extend(notes),
                Err(fault) => {
                    let kept = self.take_back(&plan.before);
                    return Err(Fault::Step(what, Box::new(fault), Rest::TakenBack(kept)));
                }
            }
        }
        let grown = self.growths(&plan.grow);
        let noted = grown.and_then(|grown| {
            self.note_applied(plan.applied, &grown)?;
            Ok(grown)
        });
        let grown = match noted {
            Ok(grown) => grown,
            Err(fault) => {
                let kept = self.take_back(&plan.before);
                let what = "note that the file is applied".to_owned();
                return Err(Fault::Step(what, Box::new(fault), Rest::TakenBack(kept)));
            }
        };
        let mut failed = None;
        for Growth { id, before, size } in grown {
            if let Err(fault) = self.finish_growth(id, before, size) {
                let what = format!("grow volume {}", self.graph.name(id));
                failed.get_or_insert(Fault::Step(what, Box::new(fault), Rest::Done));
            }
        }
        self.finish_deletions()?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        // Whatever a file before this one could not.
        self.edit(|stack| drop(stack.faults.remove(&Subject::File)));
        Ok(shown)
    }

    /// The volumes that are to grow, if there is room for them.
    fn growths(&self, wanted: &[(String, Size)]) -> Result<Vec<Growth>, Fault> {
        let found = wanted.iter().map(|(name, size)| {
            let (id, volume) = self.volume(name)?;
            let before = volume.record.spec.size.unwrap_or(*size);
            Ok(Growth {
                id,
                before,
                size: *size,
            })
        });
        let found = found.collect::<Result<Vec<_>, Fault>>()?;
        let sizes: Vec<_> = found.iter().map(|it| (it.id, it.size)).collect();
        self.check_room(&sizes)?;
        Ok(found)
    }

    /// The file counts as applied from here on.
    fn note_applied(&mut self, applied: Applied, grown: &[Growth]) -> Result<(), Fault> {
        if *self.applied == applied && grown.is_empty() && !self.service.has_unfinished()? {
            return Ok(());
        }
        let applied = Arc::new(applied);
        self.commit(|state, stack| {
            let sized = grown.iter().map(|it| {
                let mut record = stack.record(it.id)?;
                record.spec.size = Some(it.size);
                Ok((it.id, record))
            });
            let sized = sized.collect::<Result<Vec<_>, Fault>>()?;
            state.put_applied(&applied, sized.iter().map(|(_, record)| record))?;
            Ok(|stack: &mut Stack| {
                for (id, record) in sized {
                    stack.set_record(id, record);
                }
                stack.applied = applied;
            })
        })
    }

    /// Deletes what a file that is applied has deleted.
    fn finish_deletions(&mut self) -> Result<(), Fault> {
        let mut applied = Applied::clone(&self.applied);
        for (section, name) in std::mem::take(&mut applied.deleting) {
            match self.delete(section, &name) {
                Ok(()) | Err(Fault::NotFound(_)) => {}
                Err(fault) => {
                    let what = format!("delete {} {name}", section.name());
                    return Err(Fault::Step(what, Box::new(fault), Rest::Done));
                }
            }
        }
        self.note_applied(applied, &[])
    }

    pub(super) fn carry_out(&mut self, step: Step, checked: Checked) -> Result<(), Fault> {
        match step {
            Step::Target(settings) => self.put_target_of_file(settings),
            Step::CreateDevice(spec) => self.create_device(spec, checked, Over::Nothing).map(drop),
            Step::SetDevice(spec) => self.change_device(spec, checked),
            Step::CreatePool(spec) => self.create_pool(spec, false).map(drop),
            Step::SetPool(spec) => self.change_pool(spec),
            Step::PutTenants(specs) => self.put_tenants(specs, checked),
            Step::CreateVolumes(specs) => self.create_volumes(specs, checked),
            Step::SetVolume(name, change) => self.set_volume(&name, change).map(drop),
            Step::CreateFunctions(specs) => self.add_functions(specs),
            Step::SetFunction(spec) => self.change_function(spec),
        }
    }

    fn delete(&mut self, section: Section, name: &str) -> Result<(), Fault> {
        match kind_of(section) {
            Some(KindName::Device) => self.delete_device(name).map(drop),
            Some(kind) => self
                .change(Request::Delete(kind, name.to_owned()))
                .map(drop),
            None => Ok(()),
        }
    }

    /// Ends what a start has found half done: takes it back, or goes on with it if the file was
    /// applied.
    pub(super) fn end_unfinished(&mut self) -> Result<(), Fault> {
        let unfinished = self.service.store().unfinished()?;
        if let Some(before) = unfinished {
            for why in self.take_back(&before) {
                note(format_args!(
                    "what a file was changing could not all be taken back: {why}"
                ));
            }
        }
        if !self.applied.deleting.is_empty()
            && let Err(fault) = self.finish_deletions()
        {
            self.note_fault(Subject::File, fault);
        }
        Ok(())
    }

    /// Makes everything as it was `before`. What cannot be is tried again at the next start; says
    /// what that is.
    fn take_back(&mut self, before: &[Before]) -> Vec<String> {
        let (mut kept, mut left) = (Vec::new(), Vec::new());
        for was in before.iter().rev() {
            if let Err(fault) = self.take_back_one(was) {
                kept.push(fault.to_string());
                left.push(was.clone());
            }
        }
        // What is as it was may be changed by hand from now on.
        left.reverse();
        if let Err(fault) = self.store(|state| state.put_unfinished(&left)) {
            kept.push(fault.to_string());
        }
        kept
    }

    fn take_back_one(&mut self, was: &Before) -> Result<(), Fault> {
        match was {
            Before::Target(settings) => self.put_target_of_file(settings.clone()),
            Before::Device(name, Some(spec)) => match self.device(name) {
                Ok((_, device)) if device.spec == *spec => Ok(()),
                _ => self.change_device(spec.clone(), Checked::Never),
            },
            Before::Device(name, None) => match self.device(name) {
                // It was on its device before the file was applied.
                Ok((_, device)) if device.spec.partition().is_some_and(|cut| cut.imported) => {
                    self.forget_imported(name)
                }
                _ => self.unmake(Section::Device, name),
            },
            Before::Pool(name) => self.unmake(Section::Pool, name),
            Before::ChangedPool(spec) => self.change_pool(spec.clone()),
            Before::FoundPool(name) => match self.forget_pool(name) {
                Err(Fault::NotFound(_)) => Ok(()),
                outcome => outcome,
            },
            Before::Tenant(_, Some(spec)) => self.put_tenants(vec![spec.clone()], Checked::Never),
            Before::Tenant(name, None) => self.unmake(Section::Tenant, name),
            Before::Volume(name, None) => match self.volume(name) {
                // A whole device keeps what it holds.
                Ok((id, _)) => {
                    self.set_phases(&[id], Phase::Creating)?;
                    self.finish_deleting(id, Phase::Creating)
                }
                Err(_) => Ok(()),
            },
            Before::Function(name, None) => self.unmake(Section::Function, name),
            Before::Function(_, Some(spec)) => self.change_function(spec.clone()),
            Before::Volume(name, Some(spec)) => {
                if self.volume(name)?.1.record.spec.reserve != spec.reserve {
                    let was = VolumeChange::Reserve(spec.reserve.unwrap_or(Size(0)));
                    self.set_volume(name, was)?;
                }
                let was = spec.read_only == Some(true);
                match self.volume(name)?.1.record.spec.read_only == Some(true) {
                    now if now == was => Ok(()),
                    _ => self.set_volume(name, VolumeChange::ReadOnly(was)).map(drop),
                }
            }
        }
    }

    /// What was made a moment ago goes.
    fn unmake(&mut self, section: Section, name: &str) -> Result<(), Fault> {
        match self.delete(section, name) {
            Err(Fault::NotFound(_)) => Ok(()),
            outcome => outcome,
        }
    }
}

/// What becomes of what a file names and a device may have already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The file is refused.
    Make,
    /// It is imported.
    Import,
    /// It waits to be imported.
    Start,
}

/// A volume that is to grow, and how large it is before.
struct Growth {
    id: NodeId,
    before: Size,
    size: Size,
}

impl Service {
    fn has_unfinished(&self) -> Result<bool, Fault> {
        Ok(self.store().unfinished()?.is_some())
    }
}

impl Plan {
    fn shown(&self, done: bool) -> AppliedView {
        AppliedView {
            changes: self.changes.clone(),
            notes: self.notes.clone(),
            risks: self.risks.iter().map(ToString::to_string).collect(),
            done,
        }
    }
}

impl Step {
    fn describe(&self) -> String {
        let many = |kind: KindName, names: Vec<&String>| match names.as_slice() {
            [one] => format!("{} {one}", kind.name()),
            names => format!("{} {}s", names.len(), kind.name()),
        };
        match self {
            Self::Target(_) => "change the target's settings".to_owned(),
            Self::CreateDevice(spec) => format!("create device {}", spec.name),
            Self::SetDevice(spec) => format!("change device {}", spec.name),
            Self::CreatePool(spec) => format!("create pool {}", spec.name),
            Self::SetPool(spec) => format!("change pool {}", spec.name),
            Self::PutTenants(specs) => {
                let names = specs.iter().map(|spec| &spec.name).collect();
                format!("create or change {}", many(KindName::Tenant, names))
            }
            Self::CreateVolumes(specs) => {
                let names = specs.iter().map(|spec| &spec.name).collect();
                format!("create {}", many(KindName::Volume, names))
            }
            Self::SetVolume(name, _) => format!("change volume {name}"),
            Self::CreateFunctions(specs) => {
                let names = specs.iter().map(|spec| &spec.name).collect();
                format!("create {}", many(KindName::Function, names))
            }
            Self::SetFunction(spec) => format!("change function {}", spec.name),
        }
    }
}

impl Stack {
    /// What the steps of a plan change.
    fn wants_of_plan(&self, plan: &Plan) -> Wants {
        let steps = all(&plan.steps, |step| match step {
            Step::Target(_) => Wants::change(Object::Target),
            Step::CreateDevice(spec) | Step::SetDevice(spec) => wants_of_device(spec),
            Step::CreatePool(spec) | Step::SetPool(spec) => wants_of_pool(spec),
            Step::PutTenants(specs) => all(specs, |spec| {
                Wants::change(Object::Tenant(spec.name.clone()))
            }),
            Step::CreateVolumes(specs) => all(specs, wants_of_volume),
            Step::SetVolume(name, _) => Wants::change(Object::Volume(name.clone())),
            Step::CreateFunctions(specs) => wants_of_functions(specs),
            Step::SetFunction(spec) => wants_of_functions(std::slice::from_ref(spec)),
        });
        let grown = all(&plan.grow, |(name, _)| {
            Wants::change(Object::Volume(name.clone()))
        });
        let gone = all(&plan.applied.deleting, |(section, name)| {
            let kind = kind_of(*section);
            kind.map_or_else(Wants::default, |kind| {
                self.wants_of(&Request::Delete(kind, name.clone()))
            })
        });
        let file = Wants::change(Object::File);
        file.and_all(steps).and_all(grown).and_all(gone)
    }
}

fn kind_of(section: Section) -> Option<KindName> {
    match section {
        Section::Target => None,
        Section::Device => Some(KindName::Device),
        Section::Pool => Some(KindName::Pool),
        Section::Tenant => Some(KindName::Tenant),
        Section::Volume => Some(KindName::Volume),
        Section::Function => Some(KindName::Function),
    }
}

fn by_name<'a, T: 'a>(
    all: impl Iterator<Item = &'a T>,
    name: impl Fn(&'a T) -> &'a String,
) -> BTreeMap<&'a str, &'a T> {
    all.map(|one| (name(one).as_str(), one)).collect()
}

fn all<T>(of: &[T], wants: impl Fn(&T) -> Wants) -> Wants {
    of.iter().map(wants).fold(Wants::default(), Wants::and_all)
}
