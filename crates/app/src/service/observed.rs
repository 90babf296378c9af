//! What tenants got in the last seconds, asked of the cores, and how that is shown beside what they
//! are promised. The rule is in `reality.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use flashyard_block::TenantId;
use flashyard_engine::Recent;

use super::reality::{Limiter, Verdict, judge_latency, judge_rate};
use super::switches::at_work;
use super::work::Work;
use crate::control::{PromiseState, PromiseView};
use crate::cores::{self, Reply};
use crate::graph::NodeId;
use crate::spec::TenantSpec;
use crate::state::TenantRecord;
use crate::units;

/// What the tenants of each device got; of devices that are not open, and of cores that do not
/// answer, there is nothing.
#[derive(Default)]
pub(super) struct Observed(pub(super) BTreeMap<NodeId, BTreeMap<TenantId, Recent>>);

/// Cores that were asked what tenants got.
pub(super) struct Asked {
    replies: Vec<Reply<Observed>>,
    until: Instant,
}

impl Asked {
    /// What they answer in time.
    pub(super) fn answers(self) -> Observed {
        let until = self.until;
        let replies = self.replies.into_iter();
        let answered = replies.filter_map(|reply| reply.wait_until(until));
        Observed(answered.flat_map(|observed| observed.0).collect())
    }
}

impl Work<'_> {
    /// Asks, once for each core, what tenants got of the devices on which they are promised
    /// something.
    pub(super) fn ask_observed(&self, tenants: impl IntoIterator<Item = NodeId>) -> Asked {
        let mut devices = BTreeSet::new();
        for tenant in tenants {
            if self
                .graph
                .tenant(tenant)
                .is_some_and(|it| is_promised_any(&it.spec))
            {
                devices.extend(self.graph.devices_of(tenant));
            }
        }
        let mut by_core: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for device in devices {
            if let Ok(core) = self.home_of(device) {
                by_core
                    .entry(core)
                    .or_default()
                    .push((device, self.policy_of(device)));
            }
        }
        let ask = |(core, devices): (usize, Vec<(NodeId, _)>)| {
            self.cores.send(core, move |state| async move {
                let switches = devices.iter().filter_map(|(device, policy)| {
                    let recent = state.switch(*device, policy)?.recent().into_iter();
                    Some((*device, recent.map(|it| (it.tenant, it)).collect()))
                });
                Observed(switches.collect())
            })
        };
        Asked {
            replies: by_core.into_iter().map(ask).collect(),
            until: cores::patience(),
        }
    }

    /// Each promise to a tenant beside what it got, device by device; the worst first.
    pub(super) fn view_promises(
        &self,
        id: NodeId,
        record: &TenantRecord,
        observed: &Observed,
    ) -> Vec<PromiseView> {
        if !is_promised_any(&record.spec) {
            return Vec::new();
        }
        let mut views = Vec::new();
        for device in self.graph.devices_of(id) {
            let tenants = observed.0.get(&device);
            let recent = tenants.and_then(|tenants| tenants.get(&TenantId(record.id)));
            let name = self.graph.name(device);
            views.extend(
                judge_all(&record.spec, tenants.is_some(), recent)
                    .into_iter()
                    .map(|(promise, unit, promised, verdict)| {
                        let view = PromiseView {
                            tenant: record.spec.name.clone(),
                            device: name.to_owned(),
                            promise: promise.into(),
                            unit: unit.into(),
                            promised,
                            got: verdict.as_ref().and_then(|verdict| verdict.got),
                            state: verdict.as_ref().map(|verdict| verdict.state),
                            limited_by: None,
                            neighbour: None,
                            reason: None,
                        };
                        match verdict.and_then(|verdict| verdict.limit) {
                            Some(limiter) => self.with_limiter(view, limiter),
                            None => view,
                        }
                    }),
            );
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.state));
        views
    }

    /// The same of all tenants.
    pub(super) fn all_promises(&self, observed: &Observed) -> Vec<PromiseView> {
        let tenants = self.graph.tenants();
        let promises = tenants.flat_map(|(id, record)| self.view_promises(id, record, observed));
        promises.collect()
    }

    fn with_limiter(&self, view: PromiseView, limiter: Limiter) -> PromiseView {
        let neighbour = match limiter {
            Limiter::Neighbour(tenant) => tenant.map(|tenant| self.tenant_name(tenant)),
            _ => None,
        };
        PromiseView {
            limited_by: Some(limiter.name()),
            reason: Some(describe(limiter, &view.unit, neighbour.as_deref())),
            neighbour,
            ..view
        }
    }
}

/// The worst of a tenant's promises.
pub(super) fn worst(promises: &[PromiseView]) -> Option<PromiseState> {
    promises.iter().filter_map(|promise| promise.state).max()
}

fn is_promised_any(spec: &TenantSpec) -> bool {
    spec.guarantee.is_some() || spec.latency_target.is_some()
}

/// Each promise with its unit and how much it is, and how it stands if its device has reported.
fn judge_all(
    spec: &TenantSpec,
    has_reported: bool,
    recent: Option<&Recent>,
) -> Vec<(&'static str, &'static str, u64, Option<Verdict>)> {
    let limit = spec.limit.unwrap_or_default();
    let rates = spec.guarantee.unwrap_or_default().all();
    let rates = rates
        .into_iter()
        .enumerate()
        .filter_map(|(rate, (key, promised))| {
            let (promised, is_bytes) = (promised?, key.ends_with("bandwidth"));
            let unit = if is_bytes {
                "bytes_per_second"
            } else {
                "per_second"
            };
            let verdict = has_reported.then(|| judge_rate(rate, promised, recent, limit));
            Some((key, unit, promised, verdict))
        });
    let target = spec.latency_target.map(|target| {
        let verdict = has_reported.then(|| judge_latency(target.0, recent, limit));
        ("latency_target", "us", target.0.as_us(), verdict)
    });
    rates.chain(target).collect()
}

/// What limits a tenant, in a few words.
fn describe(limiter: Limiter, unit: &str, neighbour: Option<&str>) -> String {
    match limiter {
        Limiter::Idle if unit == "us" => "no latency-sensitive I/O in the last seconds".into(),
        Limiter::Idle => "no such I/O in the last seconds".into(),
        Limiter::Demand => "its hosts asked for no more".into(),
        Limiter::QueueDepth(depth, alone) => {
            let alone = match unit {
                "bytes_per_second" => units::bandwidth(alone as f64),
                _ => alone.to_string(),
            };
            format!("at queue depth {depth:.0} this device gives it about {alone}")
        }
        Limiter::OwnQueue => "it waits behind I/O of its own: a shorter queue is faster".into(),
        Limiter::OwnLimit => "its own limit holds it".into(),
        Limiter::Device if unit == "us" => {
            "the device takes that long, whoever else is there".into()
        }
        Limiter::Device => "the device gives it no more, whoever else is there".into(),
        Limiter::Neighbour(_) => match neighbour {
            Some(tenant) => format!("its I/O waits while tenant {tenant} is served"),
            None => "its I/O waits while other tenants are served".into(),
        },
        Limiter::System(work) => format!("its I/O waits for {}", at_work(work)),
        Limiter::Network => {
            "its hosts, or the network to them, take data and answers slowly".into()
        }
    }
}
