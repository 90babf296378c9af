//! The switches in front of the devices: which policy, what each tenant is owed, and why a tenant's
//! I/O is slow.

use flashyard_block::{SystemWork, TenantId};
use flashyard_engine::{Cause, Why};
use flashyard_sched::Gauge;

use super::fault::NotFound;
use super::policies::PolicyPlan;
use super::work::Work;
use super::{Checked, Fault, Stack, calibrate};
use crate::control::{CauseView, KindName, Sampled, View, WhyDevice, WhyView};
use crate::graph::NodeId;
use crate::spec::{DeviceSpec, PolicyName};

impl Work<'_> {
    /// Replaces the policy of a device; no I/O fails, what is queued is queued there.
    pub(super) fn set_device(&mut self, name: &str, policy: PolicyName) -> Result<View, Fault> {
        let (id, device) = self.device(name)?;
        let mut wanted = device.spec.clone();
        wanted.policy = policy;
        calibrate::find_figures(&mut wanted, Checked::Now)?;
        self.change_spec(id, |spec| {
            // What else was noted of it since stays.
            spec.policy = policy;
            if spec.capability.is_none() {
                (spec.capability, spec.curve) = (wanted.capability, wanted.curve);
                spec.calibration = wanted.calibration;
            }
        })?;
        self.renew_policy(id);
        self.view_one(KindName::Device, name)
    }

    /// Has of a device what a file can change.
    pub(super) fn change_device(
        &mut self,
        mut wanted: DeviceSpec,
        checked: Checked,
    ) -> Result<(), Fault> {
        calibrate::find_figures(&mut wanted, checked)?;
        if let Some(layer) = wanted.fault_layer() {
            self.check_reach(layer)?;
        }
        let (id, _) = self.device(&wanted.name)?;
        self.change_spec(id, |spec| {
            spec.set_faults(wanted.faults().to_vec());
            if let Some(wanted) = wanted.array() {
                spec.set_array(|array| {
                    array.rebuild_priority = wanted.rebuild_priority;
                    array.rebuild_limit = wanted.rebuild_limit;
                });
            }
            spec.policy = wanted.policy;
            // What was said by hand was not measured.
            if spec.capability == wanted.capability || spec.calibration != wanted.calibration {
                spec.calibration = wanted.calibration;
            } else {
                spec.calibration = None;
            }
            spec.capability = wanted.capability;
            spec.curve = wanted.curve;
        })?;
        self.renew_policy(id);
        self.renew_faults(id);
        self.renew_rebuild(id);
        Ok(())
    }

    /// Puts a new policy in front of a device, as it is configured; what is queued is queued there.
    pub(super) fn renew_policy(&self, device: NodeId) {
        self.send_in_order(|stack| {
            let core = stack.home_of(device).ok()?;
            let policy = stack.policy_of(device);
            let tenants = stack.graph.tenants_on(device);
            let shares: Vec<_> = tenants
                .into_iter()
                .map(|(_, tenant)| {
                    (
                        TenantId(tenant.id),
                        tenant.spec.share(),
                        self.service.slow_after(&tenant.spec),
                    )
                })
                .collect();
            Some(self.cores.send(core, move |state| async move {
                let Some(switch) = state.switch(device, &policy) else {
                    return;
                };
                switch.set_policy(policy.make());
                for (tenant, share, slow_after) in shares {
                    switch.set_share(tenant, &share);
                    switch.watch_slow(tenant, slow_after);
                }
            }))
        });
    }

    /// Tells the switches of all devices that a tenant has volumes on what it is owed.
    pub(super) fn tell_share(&self, tenant: NodeId) {
        for device in self.graph.devices_of(tenant) {
            self.tell_share_to(device, tenant);
        }
    }

    /// Tells the switch of a device what a tenant is owed.
    pub(super) fn tell_share_to(&self, device: NodeId, tenant: NodeId) {
        self.send_in_order(|stack| {
            let record = stack.graph.tenant(tenant)?;
            let core = stack.home_of(device).ok()?;
            let (id, share) = (TenantId(record.id), record.spec.share());
            let policy = stack.policy_of(device);
            let slow_after = self.service.slow_after(&record.spec);
            Some(self.cores.send(core, move |state| async move {
                if let Some(switch) = state.switch(device, &policy) {
                    switch.set_share(id, &share);
                    switch.watch_slow(id, slow_after);
                }
            }))
        });
    }

    /// A tenant has lost a volume on a device: if it was its last there, the switch forgets it.
    pub(super) fn forget_share(&self, device: NodeId, tenant: NodeId) {
        self.send_in_order(|stack| {
            let record = stack.graph.tenant(tenant)?;
            let core = stack.home_of(device).ok()?;
            if stack.graph.is_on(tenant, device) {
                return None;
            }
            let id = TenantId(record.id);
            let policy = stack.policy_of(device);
            Some(self.cores.send(core, move |state| async move {
                if let Some(switch) = state.switch(device, &policy) {
                    switch.forget(id);
                }
            }))
        });
    }

    /// Where the latency of a tenant comes from, on each device that it has volumes on.
    pub(super) fn why(&self, tenant: &str) -> Result<View, Fault> {
        let (owner, record) = self.tenant(tenant)?;
        let id = TenantId(record.id);
        let observed = self.ask_observed([owner]).answers();
        let promises = self.view_promises(owner, record, &observed);
        let mut devices = Vec::new();
        for device in self.graph.devices_of(owner) {
            let Ok(core) = self.home_of(device) else {
                continue;
            };
            let policy = self.policy_of(device);
            let chosen = policy.name();
            let answer = self.cores.call_soon(core, move |state| async move {
                let switch = state.switch(device, &policy)?;
                let mut gauges = Vec::new();
                switch.watch(&mut |gauge| gauges.push(gauge));
                Some((switch.why(id), gauges))
            });
            // Of a device whose core does not answer only its name is reported.
            let answer = answer.unwrap_or(Some((None, Vec::new())));
            let name = self.graph.name(device).to_owned();
            let here = promises.iter().filter(|promise| promise.device == name);
            let here: Vec<_> = here.cloned().collect();
            devices.extend(answer.map(|answer| WhyDevice {
                promises: here,
                ..self.view_why(name, chosen, answer)
            }));
        }
        if devices.is_empty() {
            return Err(NotFound::NoVolume(tenant.to_owned()).into());
        }
        Ok(View::Why(WhyView {
            tenant: tenant.to_owned(),
            devices,
        }))
    }

    fn view_why(
        &self,
        device: String,
        policy: PolicyName,
        (why, gauges): (Option<Why>, Vec<Gauge>),
    ) -> WhyDevice {
        let own = why.as_ref().map(|why| why.tenant);
        let gauges = gauges
            .into_iter()
            .filter(|gauge| gauge.tenant.is_none() || gauge.tenant == own);
        WhyDevice {
            device,
            policy,
            sampled: why.map(|why| self.view_sampled(&why)),
            promises: Vec::new(),
            gauges: gauges.map(|gauge| (gauge.name, gauge.value)).collect(),
        }
    }

    fn view_sampled(&self, why: &Why) -> Sampled {
        let us = |ns: u64| ns as f64 / 1e3;
        let each = |ns: u64| us(ns) / why.ios.max(1) as f64;
        let latency = |parts| us(why.latency.percentile(parts));
        let all: u64 = why.causes.iter().map(|(_, ns)| ns).sum();
        let causes = why.causes.iter().map(|&(cause, ns)| {
            view_cause(cause, (ns, all, why.ios), |tenant| self.tenant_name(tenant))
        });
        Sampled {
            ios: why.ios,
            mean_us: us(why.latency.mean()),
            p50_us: latency(500_000),
            p99_us: latency(990_000),
            p999_us: latency(999_000),
            max_us: us(why.latency.max()),
            receive_us: each(why.stages.receive),
            intake_us: each(why.stages.intake),
            turn_us: each(why.stages.turn),
            device_us: each(why.stages.device),
            send_us: each(why.stages.send),
            causes: causes.collect(),
        }
    }

    pub(super) fn tenant_name(&self, tenant: TenantId) -> String {
        let mut tenants = self.graph.tenants();
        let found = tenants.find(|(_, record)| record.id == tenant.0);
        found.map_or_else(
            || format!("number {}", tenant.0),
            |(_, record)| record.spec.name.clone(),
        )
    }
}

impl Stack {
    /// The policy that is configured for a device.
    pub(super) fn policy_of(&self, device: NodeId) -> PolicyPlan {
        let device = self.graph.device(device);
        device.map_or_else(PolicyPlan::default, |it| PolicyPlan::of(&it.spec))
    }
}

/// A cause that took so many of all these nanoseconds of so many I/Os.
pub(super) fn view_cause(
    cause: Cause,
    (ns, all, ios): (u64, u64, u64),
    name: impl Fn(TenantId) -> String,
) -> CauseView {
    let (kind, by) = kind_of(cause);
    let tenant = by.map(name);
    CauseView {
        kind: kind.to_owned(),
        cause: describe(cause, tenant.as_deref().unwrap_or_default()),
        tenant,
        share: ns as f64 / all.max(1) as f64,
        us: ns as f64 / 1e3 / ios.max(1) as f64,
    }
}

/// A cause in a word, and the tenant that it comes from.
fn kind_of(cause: Cause) -> (&'static str, Option<TenantId>) {
    match cause {
        Cause::OwnQueue => ("own_queue", None),
        Cause::Turn(tenant) => ("turn", Some(tenant)),
        Cause::Others => ("others", None),
        Cause::Held => ("held", None),
        Cause::Receive => ("receive", None),
        Cause::Intake => ("intake", None),
        Cause::Send => ("send", None),
        Cause::OwnReads => ("own_reads", None),
        Cause::OwnWrites => ("own_writes", None),
        Cause::Reads(tenant) => ("reads", Some(tenant)),
        Cause::Writes(tenant) => ("writes", Some(tenant)),
        Cause::OwnUpkeep => ("own_upkeep", None),
        Cause::Upkeep(tenant) => ("upkeep", Some(tenant)),
        Cause::SystemTurn(SystemWork::Rebuild) => ("rebuild_turn", None),
        Cause::SystemTurn(SystemWork::Resync) => ("resync_turn", None),
        Cause::SystemTurn(SystemWork::Scrub) => ("scrub_turn", None),
        Cause::SystemTurn(SystemWork::Move) => ("move_turn", None),
        Cause::System(work) => (work.name(), None),
        Cause::Housekeeping => ("housekeeping", None),
        Cause::Device => ("device", None),
    }
}

/// A cause in a sentence.
fn describe(cause: Cause, tenant: &str) -> String {
    match cause {
        Cause::OwnQueue => "waited for its turn behind its own I/O".into(),
        Cause::Turn(_) => format!("waited for its turn while tenant {tenant} was served"),
        Cause::Others => "waited while other tenants were served, each of them with little".into(),
        Cause::Held => "held back while no tenant was served (its own limit, or a slow device)".into(),
        Cause::Receive => "receive: waited for the rest of a command, or for its data".into(),
        Cause::Intake => "waited for intake: for memory, for room (its host takes completions slowly), or because other commands are latency-sensitive".into(),
        Cause::Send => "send: its answers were held to go together, or its host or the network to it took them slowly".into(),
        Cause::OwnReads => "device busy with other reads of its own".into(),
        Cause::OwnWrites => "device busy with writes of its own".into(),
        Cause::Reads(_) => format!("device busy with reads of tenant {tenant}"),
        Cause::Writes(_) => format!("device busy with writes of tenant {tenant}"),
        Cause::OwnUpkeep => "pool busy with garbage collection and metadata that its own writes have caused".into(),
        Cause::Upkeep(_) => format!("pool busy with garbage collection and metadata that writes of tenant {tenant} have caused"),
        Cause::SystemTurn(work) => format!("waited for its turn while {} was served", at_work(work)),
        Cause::System(work) => format!("device busy with {}", at_work(work)),
        Cause::Housekeeping => "device busy with garbage collection".into(),
        Cause::Device => "device slow by itself".into(),
    }
}

/// Work of the system in a few words.
pub(super) fn at_work(work: SystemWork) -> &'static str {
    match work {
        SystemWork::Rebuild => "the rebuild of a member",
        SystemWork::Resync => "making copies equal after a crash",
        SystemWork::Scrub => "a scrub",
        SystemWork::Move => "copying a volume that moves",
    }
}
