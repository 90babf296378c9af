//! What goes on at this moment: each core is asked once, and looks at its tenants a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flashyard_block::TenantId;
use flashyard_engine::{Cause, ControllerSnapshot, Recent};
use flashyard_time::Duration;
use rustix::time::{ClockId, clock_gettime};

use super::observed::{Observed, worst};
use super::policies::PolicyPlan;
use super::switches::view_cause;
use super::work::Work;
use crate::control::{
    ActivityView, ConnectionActivity, CoreActivity, DeviceActivity, Page, TenantActivity,
    TenantOnDevice, View,
};
use crate::cores::{self, CoreState};
use crate::graph::NodeId;
use crate::state::TenantRecord;

/// After so many tenants a core does something else: to add up what is known of one takes a
/// microsecond or two.
const AT_ONCE: usize = 32;
/// For so long.
const PAUSE: Duration = Duration::from_us(50);
/// So many causes of a tenant's waits on a device are shown; the ledger keeps 128.
const CAUSES_MOST: usize = 3;

/// A device with the tenants that have volumes on it.
pub(super) type Asked = (NodeId, PolicyPlan, Vec<TenantId>);

/// What a core tells.
struct Told {
    observed: Observed,
    queued: BTreeMap<(NodeId, TenantId), usize>,
    processor_seconds: f64,
}

impl Work<'_> {
    /// What goes on, of a part of the tenants, for programs. All are looked at for that: what is
    /// wrong is a matter of all.
    pub(super) fn view_activity(&mut self, page: &Page) -> View {
        let until = cores::patience();
        let send = |(core, asked): (usize, Vec<Asked>)| {
            let reply = self
                .cores
                .send(core, move |state| async move { look(state, asked).await });
            (core, reply)
        };
        let replies: Vec<_> = self.devices_by_core().into_iter().map(send).collect();
        let mut silent_cores = self.ask_all();
        let (mut observed, mut queued) = (Observed::default(), BTreeMap::new());
        let mut processor_seconds = BTreeMap::new();
        for (core, reply) in replies {
            match reply.wait_until(until) {
                Some(told) => {
                    observed.0.extend(told.observed.0);
                    queued.extend(told.queued);
                    processor_seconds.insert(core, told.processor_seconds);
                }
                None if silent_cores.contains(&core) => {}
                None => silent_cores.push(core),
            }
        }
        let (names, snapshot) = (self.tenant_names(), self.target.snapshot());
        let errors = snapshot.tenants.iter();
        let errors: BTreeMap<TenantId, u64> =
            errors.map(|it| (it.id, it.counters.errors)).collect();
        let tenants = self.graph.tenants();
        let tenants: Vec<_> = tenants
            .map(|(id, record)| TenantActivity {
                errors: errors
                    .get(&TenantId(record.id))
                    .copied()
                    .unwrap_or_default(),
                ..self.view_tenant_activity(id, record, &observed, &queued, &names)
            })
            .collect();
        let promises: Vec<_> = tenants
            .iter()
            .flat_map(|it| it.promises.iter().cloned())
            .collect();
        let health = self.view_health(&silent_cores, &promises);
        let counting = health.problems.iter().filter(|it| it.muted_until.is_none());
        let cores = snapshot.connections_per_core.iter().enumerate();
        let whole = ActivityView {
            starts: self.service.run.life().starts,
            run_seconds: self.service.run.this().as_secs_f64(),
            health: health.health,
            problems: counting.count(),
            tenants,
            devices: self.view_device_activities(),
            cores: cores
                .map(|(core, &connections)| CoreActivity {
                    core,
                    connections,
                    processor_seconds: processor_seconds.get(&core).copied(),
                })
                .collect(),
            connections: snapshot
                .controllers
                .into_iter()
                .map(ConnectionActivity::from)
                .collect(),
            silent_cores,
            next: None,
        };
        View::Activity(Box::new(part_of(whole, page)))
    }

    /// What each core is asked; one without devices too, for its time.
    pub(super) fn devices_by_core(&self) -> BTreeMap<usize, Vec<Asked>> {
        let mut by_core: BTreeMap<usize, Vec<Asked>> = (0..self.cores.count())
            .map(|core| (core, Vec::new()))
            .collect();
        for (device, _) in self.graph.devices() {
            let tenants = self.graph.tenants_on(device).into_iter();
            let tenants: Vec<_> = tenants.map(|(_, record)| TenantId(record.id)).collect();
            let Ok(core) = self.home_of(device) else {
                continue;
            };
            if !tenants.is_empty() {
                let asked = by_core.entry(core).or_default();
                asked.push((device, self.policy_of(device), tenants));
            }
        }
        by_core
    }

    /// The names of all tenants: to look for each that is in the way of another among all of them
    /// takes the square of their number.
    fn tenant_names(&self) -> BTreeMap<TenantId, String> {
        let all = self.graph.tenants();
        all.map(|(_, record)| (TenantId(record.id), record.spec.name.clone()))
            .collect()
    }

    fn view_tenant_activity(
        &self,
        id: NodeId,
        record: &TenantRecord,
        observed: &Observed,
        queued: &BTreeMap<(NodeId, TenantId), usize>,
        names: &BTreeMap<TenantId, String>,
    ) -> TenantActivity {
        let (spec, own) = (&record.spec, TenantId(record.id));
        let promises = self.view_promises(id, record, observed);
        let devices = self.graph.devices_of(id).into_iter().map(|device| {
            let recent = observed.0.get(&device).and_then(|all| all.get(&own));
            let name = self.graph.name(device).to_owned();
            let queued = queued.get(&(device, own)).copied().unwrap_or_default();
            on_device(name, queued, recent, names)
        });
        TenantActivity {
            devices: devices.collect(),
            tenant: spec.name.clone(),
            class: spec.class,
            weight: spec.weight,
            guarantee: spec.guarantee,
            limit: spec.limit,
            latency_target: spec.latency_target,
            errors: 0,
            promise_state: worst(&promises),
            promises,
        }
    }

    fn view_device_activities(&self) -> Vec<DeviceActivity> {
        let all = self.graph.devices().filter_map(|(id, device)| {
            let tenants = self.graph.tenants_on(id).len();
            (tenants > 0).then(|| DeviceActivity {
                device: device.spec.name.clone(),
                policy: device.spec.policy,
                core: device.home,
                tenants,
            })
        });
        all.collect()
    }
}

/// A part of the tenants, with the devices that they have volumes on and their connections; those
/// without a tenant are in the first part.
fn part_of(mut activity: ActivityView, page: &Page) -> ActivityView {
    if *page == Page::default() {
        return activity;
    }
    let after = page.after.as_deref();
    let mut tenants = activity.tenants;
    tenants.retain(|it| after.is_none_or(|after| *it.tenant > *after));
    tenants.sort_by(|one, other| one.tenant.cmp(&other.tenant));
    let part = page.take(tenants.into_iter().map(|it| (it.tenant.clone(), it)));
    (activity.tenants, activity.next) = (part.rows, part.next);
    let shown: BTreeSet<&str> = activity.tenants.iter().map(|it| &*it.tenant).collect();
    let devices = activity.tenants.iter().flat_map(|it| &it.devices);
    let devices: BTreeSet<&str> = devices.map(|it| &*it.device).collect();
    let is_shown = |connection: &ConnectionActivity| match &connection.tenant {
        Some(tenant) => shown.contains(&**tenant),
        None => after.is_none(),
    };
    activity.devices.retain(|it| devices.contains(&*it.device));
    activity.connections.retain(is_shown);
    activity
}

/// Looks at devices of a core, and at the time that it has taken.
async fn look(state: Rc<CoreState>, asked: Vec<Asked>) -> Told {
    let mut told = Told {
        observed: Observed::default(),
        queued: BTreeMap::new(),
        processor_seconds: 0.0,
    };
    let mut looked_at = 0;
    for (device, policy, tenants) in asked {
        let Some(switch) = state.switch(device, &policy) else {
            continue;
        };
        let waiting = switch.waiting().into_iter();
        told.queued
            .extend(waiting.map(|(tenant, ios)| ((device, tenant), ios)));
        let of_device = told.observed.0.entry(device).or_default();
        for some in tenants.chunks(AT_ONCE) {
            let recent = switch.recent_of(some).into_iter();
            of_device.extend(recent.map(|it| (it.tenant, it)));
            looked_at += some.len();
            if looked_at >= AT_ONCE {
                state.rt.sleep(PAUSE).await;
                looked_at = 0;
            }
        }
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    told.processor_seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    told
}

/// What happened to a tenant on a device.
fn on_device(
    device: String,
    queued: usize,
    recent: Option<&Recent>,
    names: &BTreeMap<TenantId, String>,
) -> TenantOnDevice {
    let Some(recent) = recent else {
        return TenantOnDevice {
            device,
            queued,
            ..TenantOnDevice::default()
        };
    };
    let ios = recent.reads.ios + recent.writes.ios;
    let all: u64 = recent.causes.iter().map(|(_, ns)| ns).sum();
    let name = |tenant: TenantId| {
        let known = names.get(&tenant).cloned();
        known.unwrap_or_else(|| format!("number {}", tenant.0))
    };
    let causes = recent.causes.iter().take(CAUSES_MOST);
    let causes = causes.map(|&(cause, ns): &(Cause, u64)| view_cause(cause, (ns, all, ios), name));
    let seconds = recent.span.as_secs_f64();
    TenantOnDevice {
        device,
        queued,
        seconds,
        busy_part: recent.busy.as_secs_f64() / seconds.max(f64::MIN_POSITIVE),
        ios,
        excess_us: all as f64 / 1e3 / ios.max(1) as f64,
        causes: causes.collect(),
    }
}

impl From<ControllerSnapshot> for ConnectionActivity {
    fn from(it: ControllerSnapshot) -> Self {
        Self {
            controller: it.cntlid,
            tenant: it.tenant,
            hostnqn: it.hostnqn,
            peer: it.peer,
            io_queues: it.io_queues,
            cores: it.cores,
            reads: it.counters.reads,
            writes: it.counters.writes,
            bytes_read: it.counters.bytes_read,
            bytes_written: it.counters.bytes_written,
            errors: it.counters.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_engine::Moved;

    use super::*;

    #[test]
    fn the_most_of_what_was_in_the_way_is_named() {
        let names: BTreeMap<TenantId, String> = [(TenantId(2), "batch".to_owned())].into();
        let moved = |ios| Moved {
            ios,
            bytes: ios * 4096,
            ns: ios,
        };
        let recent = Recent {
            tenant: TenantId(1),
            span: Duration::from_secs(4),
            busy: Duration::from_secs(3),
            reads: moved(60),
            writes: moved(40),
            p99: None,
            causes: vec![
                (Cause::Turn(TenantId(2)), 500_000),
                (Cause::Writes(TenantId(9)), 300_000),
                (Cause::OwnQueue, 150_000),
                (Cause::Device, 50_000),
            ],
            queued: 0,
        };
        let shown = on_device("ssd0".into(), 7, Some(&recent), &names);
        assert_eq!((shown.queued, shown.ios), (7, 100));
        assert!((shown.seconds - 4.0).abs() < 1e-9 && (shown.busy_part - 0.75).abs() < 1e-9);
        // 1 ms of 100 I/Os, the small part that is not named among it.
        assert!((shown.excess_us - 10.0).abs() < 1e-9);
        let causes = shown.causes.iter();
        let causes: Vec<_> = causes
            .map(|it| {
                (
                    &*it.kind,
                    it.tenant.as_deref(),
                    (it.us * 10.0).round() as u64,
                )
            })
            .collect();
        assert_eq!(
            causes,
            [
                ("turn", Some("batch"), 50),
                ("writes", Some("number 9"), 30),
                ("own_queue", None, 15),
            ]
        );
        let none = on_device("ssd0".into(), 2, None, &names);
        assert_eq!((none.queued, none.ios, none.causes.len()), (2, 0, 0));
    }
}
