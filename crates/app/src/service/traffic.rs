//! What came to volumes, as their cores have counted it: asked for together, by core, and copied
//! there a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flashyard_block::TenantId;
use flashyard_engine::{DeviceHandle, Timed, Traffic};
use flashyard_time::Duration;

use super::policies::PolicyPlan;
use super::work::Work;
use crate::control::{Page, TimesView, TrafficRow, TrafficView, View};
use crate::cores::{self, CoreState};
use crate::graph::NodeId;
use crate::state::Kind;

/// After so many volumes a core does something else: to copy what is counted of one takes a
/// microsecond or two.
const AT_ONCE: usize = 32;
/// For so long.
const PAUSE: Duration = Duration::from_us(50);

/// What came to a volume, or to those of a tenant on a device that have gone.
pub(super) struct Counted {
    pub(super) tenant: NodeId,
    pub(super) device: NodeId,
    pub(super) volume: Option<NodeId>,
    pub(super) traffic: Traffic,
}

/// Where something was counted.
#[derive(Clone)]
enum Place {
    Volume(NodeId, DeviceHandle),
    Gone(TenantId, PolicyPlan),
}

type Asked = (NodeId, NodeId, Place);

impl Work<'_> {
    /// What came to volumes of these tenants, and the cores that do not answer.
    pub(super) fn ask_traffic(
        &self,
        is_asked: impl Fn(NodeId) -> bool,
    ) -> (Vec<Counted>, Vec<usize>) {
        let until = cores::patience();
        let send = |(core, asked): (usize, Vec<Asked>)| {
            let reply = self.cores.send(
                core,
                move |state| async move { counted(state, asked).await },
            );
            (core, reply)
        };
        let replies: Vec<_> = self.metered(is_asked).into_iter().map(send).collect();
        let (mut all, mut silent) = (Vec::new(), Vec::new());
        for (core, reply) in replies {
            match reply.wait_until(until) {
                Some(counted) => all.extend(counted),
                None => silent.push(core),
            }
        }
        (all, silent)
    }

    /// What is to be asked of each core.
    fn metered(&self, is_asked: impl Fn(NodeId) -> bool) -> BTreeMap<usize, Vec<Asked>> {
        let mut by_core: BTreeMap<usize, Vec<Asked>> = BTreeMap::new();
        for id in self.graph.all(Kind::Volume) {
            let place = self.namespace(id).cloned();
            let tenant = self.graph.tenant_of(id).filter(|it| is_asked(*it));
            let stands = tenant.zip(self.graph.device_under(id));
            if let (Some(handle), Some((tenant, device))) = (place, stands) {
                let asked = by_core.entry(handle.core()).or_default();
                asked.push((tenant, device, Place::Volume(id, handle)));
            }
        }
        let tenants = self.graph.tenants().filter(|(id, _)| is_asked(*id));
        for (tenant, record) in tenants {
            for device in self.graph.devices_of(tenant) {
                if let Ok(core) = self.home_of(device) {
                    let place = Place::Gone(TenantId(record.id), self.policy_of(device));
                    by_core
                        .entry(core)
                        .or_default()
                        .push((tenant, device, place));
                }
            }
        }
        by_core
    }

    /// What came to the volumes of a part of the tenants, for programs.
    pub(super) fn view_traffic(&self, page: &Page) -> View {
        let run_seconds = self.service.run.this().as_secs_f64();
        let tenants = self.graph.all_after(Kind::Tenant, page.after.as_deref());
        let part = page.take(tenants.map(|id| (self.graph.name(id).to_owned(), id)));
        let tenants: BTreeSet<NodeId> = part.rows.into_iter().collect();
        let (all, silent_cores) = self.ask_traffic(|tenant| tenants.contains(&tenant));
        let row = |counted: Counted| TrafficRow {
            tenant: self.graph.name(counted.tenant).to_owned(),
            device: self.graph.name(counted.device).to_owned(),
            volume: counted.volume.map(|id| self.graph.name(id).to_owned()),
            in_flight: counted.traffic.in_flight,
            read: TimesView::from(&counted.traffic.reads),
            write: TimesView::from(&counted.traffic.writes),
        };
        View::Traffic(Box::new(TrafficView {
            starts: self.service.run.life().starts,
            run_seconds,
            bounds_us: Traffic::bounds_ns().map(|bound| bound.map(us)).collect(),
            volumes: all.into_iter().map(row).collect(),
            silent_cores,
            next: part.next,
        }))
    }
}

/// What a core has counted. A volume that has gone meanwhile is left out.
async fn counted(state: Rc<CoreState>, asked: Vec<Asked>) -> Vec<Counted> {
    let mut all = Vec::new();
    for (number, (tenant, device, place)) in asked.into_iter().enumerate() {
        let (volume, traffic) = match place {
            Place::Volume(id, handle) => (Some(id), state.engine.traffic(&handle)),
            Place::Gone(tenant, policy) => {
                let switch = state.switch(device, &policy);
                (None, switch.and_then(|switch| switch.gone_traffic(tenant)))
            }
        };
        all.extend(traffic.map(|traffic| Counted {
            tenant,
            device,
            volume,
            traffic,
        }));
        if number % AT_ONCE == AT_ONCE - 1 {
            state.rt.sleep(PAUSE).await;
        }
    }
    all
}

impl From<&Timed> for TimesView {
    fn from(timed: &Timed) -> Self {
        let short = |counts: &[u64]| {
            let end = counts.iter().rposition(|count| *count > 0);
            counts[..end.map_or(0, |last| last + 1)].to_vec()
        };
        Self {
            ios: timed.ios(),
            bytes: timed.bytes,
            waited_us: us(timed.waited_ns),
            served_us: us(timed.served_ns),
            waited: short(&timed.waited),
            served: short(&timed.served),
            took: short(&timed.took),
        }
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
