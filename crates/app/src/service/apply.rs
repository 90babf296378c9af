//! Making the inventory have everything that a configuration names. Nothing is deleted or shrunk:
//! what the file does not name stays. The plan is made first and whole, so a file that contradicts
//! itself or what is there, or promises more of a device than it can give, changes nothing. What is
//! promised less goes before what is promised more, so a file can move a guarantee from one tenant
//! to another. A step can fail nevertheless (no space, a device that is away): the steps before it
//! stay, and the same file applied again goes on from there.

use super::fault::{NotFound, Refused};
use super::promises;
use super::settings::By;
use super::turns::{Object, Wants};
use super::wants::{wants_of_device, wants_of_pool, wants_of_volume};
use super::work::Work;
use super::{Checked, Fault};
use crate::control::{AppliedView, KindName, View, VolumeChange};
use crate::graph::Volume;
use crate::spec::{
    Config, DeviceSpec, Medium, PartitionSpec, PolicyName, PoolSpec, TargetSettings, TenantSpec,
    VolumeSpec,
};

enum Step {
    Settings(TargetSettings),
    Device(DeviceSpec),
    Policy(String, PolicyName),
    Pool(PoolSpec),
    Tenant(TenantSpec),
    SetTenant(TenantSpec),
    Volume(VolumeSpec),
    SetVolume(String, VolumeChange),
}

impl Step {
    fn describe(&self) -> String {
        match self {
            Self::Settings(change) => change.describe(),
            Self::Device(spec) => format!("create device {}", spec.name),
            Self::Policy(name, policy) => format!("give device {name} policy {}", policy.name()),
            Self::Pool(spec) => format!("create pool {}", spec.name),
            Self::Tenant(spec) => format!("create tenant {}", spec.name),
            Self::SetTenant(spec) => format!("change tenant {}", spec.name),
            Self::Volume(spec) => format!("create volume {}", spec.name),
            Self::SetVolume(name, VolumeChange::Size(size)) => {
                format!("grow volume {name} to {}", crate::units::size(size.0))
            }
            Self::SetVolume(name, VolumeChange::ReadOnly(true)) => {
                format!("make volume {name} read-only")
            }
            Self::SetVolume(name, VolumeChange::ReadOnly(false)) => {
                format!("make volume {name} writable")
            }
        }
    }
}

impl Work<'_> {
    /// Carries the plan out, or only shows it.
    pub(super) fn apply(&mut self, mut config: Config, plan_only: bool) -> Result<View, Fault> {
        config.check()?;
        // What the steps change has its turn, and nothing else that the file names: a device that
        // does not answer and stays as it is holds nobody up.
        let mut found = self.plan_checked(&mut config)?;
        let mut turn = None;
        while !plan_only && turn.is_none() {
            let wants = wants_of(&found);
            let mine = self.service.turns.take(wants.clone())?;
            self.look();
            found = self.plan_checked(&mut config)?;
            turn = Some(mine).filter(|_| wants_of(&found) == wants);
        }
        self.bring_about(found, plan_only, Checked::Now)
    }

    /// Carries the plan of the file that the target is started with out.
    pub(super) fn apply_at_start(&mut self, mut config: Config) -> Result<(), Fault> {
        config.check()?;
        self.check_references(&config)?;
        promises::oversold(self, &mut config)?;
        let plan = self.plan(config)?;
        self.bring_about(plan, false, Checked::Never).map(drop)
    }

    /// The plan of a file that fits to itself, to what is there, and to what devices can give.
    fn plan_checked(&mut self, config: &mut Config) -> Result<Vec<Step>, Fault> {
        self.check_references(config)?;
        if let Some(why) = promises::oversold(self, config)?.into_iter().next() {
            return Err(why.into());
        }
        self.plan(config.clone())
    }

    /// The promises have been checked as they will be in the end, and no step on the way promises
    /// more; nor may what others have been promised since.
    fn bring_about(
        &mut self,
        plan: Vec<Step>,
        plan_only: bool,
        checked: Checked,
    ) -> Result<View, Fault> {
        let steps: Vec<String> = plan.iter().map(Step::describe).collect();
        if !plan_only {
            for step in plan {
                let what = step.describe();
                self.carry_out(step, checked)
                    .map_err(|fault| Fault::Step(what, Box::new(fault)))?;
            }
        }
        Ok(View::Applied(AppliedView {
            steps,
            done: !plan_only,
        }))
    }

    fn plan(&self, config: Config) -> Result<Vec<Step>, Fault> {
        let mut plan = Vec::new();
        let settings = self.settings_to_change(&config.target.settings());
        plan.extend(settings.map(Step::Settings));
        for spec in config.devices {
            match self.device(&spec.name) {
                Err(_) => plan.push(Step::Device(spec)),
                Ok((_, present)) => {
                    let present = &present.spec;
                    // What was measured stays unless the file says something else, and a policy can
                    // change.
                    let policy = spec.policy;
                    let capability = spec.capability.or(present.capability);
                    let curve = match spec.curve.is_empty() {
                        true => present.curve.clone(),
                        false => spec.curve.clone(),
                    };
                    // What a partition was given stays with it.
                    let medium = match (spec.medium, &present.medium) {
                        (Medium::Partition(cut), Medium::Partition(present)) => {
                            let given = present.given.clone();
                            Medium::Partition(PartitionSpec { given, ..cut })
                        }
                        (medium, _) => medium,
                    };
                    let same = DeviceSpec {
                        medium,
                        policy: present.policy,
                        capability,
                        curve,
                        disposable: present.disposable,
                        ..spec
                    };
                    if same != *present {
                        return Err(differs(KindName::Device, &same.name));
                    }
                    if policy != present.policy {
                        plan.push(Step::Policy(same.name, policy));
                    }
                }
            }
        }
        for spec in config.pools {
            match self.pool(&spec.name) {
                Err(_) => plan.push(Step::Pool(spec)),
                Ok((_, present)) if present.spec == spec => {}
                Ok(_) => return Err(differs(KindName::Pool, &spec.name)),
            }
        }
        let mut later = Vec::new();
        for spec in config.tenants {
            match self.tenant(&spec.name) {
                Err(_) => {
                    self.check_nqn(&spec)?;
                    later.push(Step::Tenant(spec));
                }
                Ok((_, present)) => {
                    let spec = self.with_identity(spec, &present.spec)?;
                    if spec == present.spec {
                        continue;
                    }
                    let change = promises::stages(&present.spec, spec);
                    plan.extend(change.first.map(Step::SetTenant));
                    later.extend(change.then.map(Step::SetTenant));
                }
            }
        }
        plan.append(&mut later);
        for spec in config.volumes {
            self.plan_volume(spec, &mut plan)?;
        }
        Ok(plan)
    }

    /// Whether all that is named is in the file or there already.
    fn check_references(&self, config: &Config) -> Result<(), Fault> {
        let has_device = |name: &String| {
            self.device(name).is_ok() || config.devices.iter().any(|spec| spec.name == *name)
        };
        let has_pool = |name: &String| {
            self.pool(name).is_ok() || config.pools.iter().any(|spec| spec.name == *name)
        };
        let has_tenant = |name: &String| {
            self.tenant(name).is_ok() || config.tenants.iter().any(|spec| spec.name == *name)
        };
        for pool in &config.pools {
            if let Some(device) = pool.devices.iter().find(|device| !has_device(device)) {
                return Err(missing(
                    KindName::Pool,
                    &pool.name,
                    KindName::Device,
                    device,
                ));
            }
        }
        for volume in &config.volumes {
            let name = &volume.name;
            if let Some(pool) = volume.pool.as_ref().filter(|pool| !has_pool(pool)) {
                return Err(missing(KindName::Volume, name, KindName::Pool, pool));
            }
            if let Some(device) = volume.device.as_ref().filter(|device| !has_device(device)) {
                return Err(missing(KindName::Volume, name, KindName::Device, device));
            }
            if !has_tenant(&volume.tenant) {
                return Err(missing(
                    KindName::Volume,
                    name,
                    KindName::Tenant,
                    &volume.tenant,
                ));
            }
        }
        Ok(())
    }

    fn plan_volume(&self, spec: VolumeSpec, plan: &mut Vec<Step>) -> Result<(), Fault> {
        let Ok((_, Volume { record, .. })) = self.volume(&spec.name) else {
            plan.push(Step::Volume(spec));
            return Ok(());
        };
        let (name, now) = (spec.name.clone(), &record.spec);
        if spec.tenant != now.tenant {
            return Err(Refused::OtherTenants(name, now.tenant.clone(), spec.tenant).into());
        }
        record.check_same_identity(&spec)?;
        if (&spec.pool, &spec.device) != (&now.pool, &now.device) {
            return Err(differs(KindName::Volume, &name));
        }
        // A size that the pool rounded up, or that was grown by hand since, is met already.
        if let Some(wanted) = spec
            .size
            .filter(|wanted| now.size.is_some_and(|now| *wanted > now))
        {
            plan.push(Step::SetVolume(name.clone(), VolumeChange::Size(wanted)));
        }
        // What the file says nothing of stays as it was set by hand.
        let is_read_only = now.read_only == Some(true);
        if let Some(wanted) = spec.read_only.filter(|wanted| *wanted != is_read_only) {
            plan.push(Step::SetVolume(name, VolumeChange::ReadOnly(wanted)));
        }
        Ok(())
    }

    fn carry_out(&mut self, step: Step, checked: Checked) -> Result<View, Fault> {
        match step {
            Step::Settings(change) => self.set_target(change, By::File),
            Step::Device(spec) => self.create_device(spec),
            Step::Policy(name, policy) => self.set_device(&name, policy),
            Step::Pool(spec) => self.create_pool(spec, false),
            Step::Tenant(spec) | Step::SetTenant(spec) => self.put_tenant(spec, checked),
            Step::Volume(spec) => self.add_volume(spec, checked),
            Step::SetVolume(name, change) => self.set_volume(&name, change),
        }
    }
}

/// What the steps of a plan change.
fn wants_of(plan: &[Step]) -> Wants {
    let wants = plan.iter().map(|step| match step {
        Step::Settings(_) => Wants::change(Object::Target),
        Step::Device(spec) => wants_of_device(spec),
        Step::Policy(name, _) => Wants::change(Object::Device(name.clone())),
        Step::Pool(spec) => wants_of_pool(spec),
        Step::Tenant(spec) | Step::SetTenant(spec) => {
            Wants::change(Object::Tenant(spec.name.clone()))
        }
        Step::Volume(spec) => wants_of_volume(spec),
        Step::SetVolume(name, _) => Wants::change(Object::Volume(name.clone())),
    });
    wants.fold(Wants::default(), Wants::and_all)
}

fn missing(kind: KindName, name: &str, wanted: KindName, missing: &str) -> Fault {
    let (name, missing) = (name.to_owned(), missing.to_owned());
    NotFound::Reference {
        kind,
        name,
        wanted,
        missing,
    }
    .into()
}

fn differs(kind: KindName, name: &str) -> Fault {
    Refused::Differs(kind, name.to_owned()).into()
}
