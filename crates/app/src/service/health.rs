//! What is wrong with the target, gathered from what `list` and `status` show of each thing, so
//! that all of them say the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::events::Seen;
use super::work::Work;
use super::{Fault, Stack, Subject};
use crate::control::{
    Condition, GuaranteeState, Health, HealthAsk, HealthCode, HealthState, HealthView, KindName,
    ProblemRow, PromiseState, PromiseView, View,
};
use crate::graph::Node;
use crate::state::Kind;
use crate::state::muted::Muted;
use crate::units;

/// Names of things that are shown of a problem.
const NAMED: usize = 5;

/// What is wrong, by code: what it is wrong with, and how.
#[derive(Default)]
struct Found(BTreeMap<HealthCode, Vec<(String, String)>>);

impl Found {
    fn add(&mut self, code: HealthCode, what: impl Into<String>, detail: impl Into<String>) {
        let all = self.0.entry(code).or_default();
        all.push((what.into(), detail.into()));
    }

    /// What the condition of something says, of what has it by itself.
    fn add_condition(&mut self, kind: KindName, name: &str, health: &Health) {
        let code = match health.state {
            Condition::Full => HealthCode::DeviceFull,
            Condition::ReadOnly => HealthCode::ReadOnly,
            Condition::Degraded => HealthCode::RedundancyLost,
            Condition::InjectsFaults => HealthCode::FaultsInjected,
            // What is unavailable is found with the reason.
            Condition::Online | Condition::Creating | Condition::Unavailable => return,
        };
        let detail = health.fault.clone().unwrap_or_default();
        self.add(code, format!("{} {name}", kind.name()), detail);
    }

    fn rows(self, muted: &Muted) -> Vec<ProblemRow> {
        let now = now();
        let rows = self.0.into_iter().map(|(code, all)| {
            let until = muted.until(code, now);
            ProblemRow {
                code,
                severity: code.severity(),
                count: all.len(),
                what: all
                    .iter()
                    .take(NAMED)
                    .map(|(what, _)| what.clone())
                    .collect(),
                detail: all
                    .into_iter()
                    .map(|(_, detail)| detail)
                    .next()
                    .unwrap_or_default(),
                remedy: code.remedy().to_owned(),
                muted_until: until.map(units::utc),
            }
        });
        let mut rows: Vec<ProblemRow> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.severity));
        rows
    }
}

impl Work<'_> {
    /// How the target is. `silent` are the cores that do not answer, `promises` all there are.
    pub(super) fn view_health(&self, silent: &[usize], promises: &[PromiseView]) -> HealthView {
        let mut found = Found::default();
        self.find_unavailable(&mut found);
        self.find_in_devices(&mut found);
        self.find_in_pools(&mut found);
        self.find_in_tenants(promises, &mut found);
        for core in silent {
            let detail = "it does not answer";
            found.add(HealthCode::CoreSilent, format!("core {core}"), detail);
        }
        if let Some(why) = self.service.audit.trouble() {
            found.add(HealthCode::AuditNotWritten, "audit.log", why);
        }
        if let Some(error) = self.target.snapshot().accept_error {
            found.add(HealthCode::ConnectionsRefused, "listener", error);
        }
        let problems = found.rows(&self.muted);
        let counting = problems.iter().filter(|row| row.muted_until.is_none());
        HealthView {
            health: counting
                .map(|row| row.severity)
                .max()
                .unwrap_or(HealthState::Healthy),
            problems,
        }
    }

    fn find_unavailable(&self, found: &mut Found) {
        for fault in self.named_faults() {
            let code = match fault.what {
                Some(Subject::Counters | Subject::Copy) => HealthCode::StateNotKept,
                Some(Subject::File) => HealthCode::ConfigurationNotApplied,
                Some(Subject::Node(_)) | None => HealthCode::Unavailable,
            };
            found.add(code, fault.name, fault.why.to_string());
        }
    }

    fn find_in_devices(&self, found: &mut Found) {
        for id in self.graph.all(Kind::Device) {
            if let Some(detail) = self.slow_detail(id) {
                let name = self.graph.name(id);
                found.add(HealthCode::DeviceSlow, format!("device {name}"), detail);
            }
            if let Some(partition) = self.view_partition(id) {
                found.add_condition(KindName::Partition, &partition.name, &partition.health);
                continue;
            }
            let Some(Node::Device(device)) = self.graph.get(id) else {
                continue;
            };
            let View::Device(view) = self.view_device(id, device) else {
                continue;
            };
            let name = &view.spec.name;
            let own = match view.health.state {
                Condition::Degraded => view.array.is_some(),
                Condition::InjectsFaults => view.injected.is_some(),
                _ => true,
            };
            if own {
                found.add_condition(KindName::Device, name, &view.health);
            }
            if view
                .array
                .as_ref()
                .is_some_and(|array| array.unresolved > 0)
            {
                let detail = "a scrub or a read found copies that disagree";
                found.add(HealthCode::CopiesDisagree, format!("device {name}"), detail);
            }
            if view
                .drive
                .as_ref()
                .is_some_and(|drive| drive.kept_time == "no")
            {
                let detail = "its completions come later than its model says";
                found.add(HealthCode::EmulationLate, format!("device {name}"), detail);
            }
        }
    }

    fn find_in_pools(&self, found: &mut Found) {
        for id in self.graph.all(Kind::Pool) {
            let Some(View::Pool(view)) = self.graph.pool(id).map(|it| self.view_pool(id, it))
            else {
                continue;
            };
            if view.health.state == Condition::ReadOnly {
                found.add_condition(KindName::Pool, &view.name, &view.health);
            }
            let Some(space) = view.space.filter(|space| space.space_hint.is_some()) else {
                continue;
            };
            let left = space.free_bytes.saturating_sub(space.reserved_bytes);
            let code = match left < space.size / 20 {
                true => HealthCode::PoolFull,
                false => HealthCode::PoolNearlyFull,
            };
            let detail = space.space_hint.unwrap_or_default();
            found.add(code, format!("pool {}", view.name), detail);
        }
    }

    fn find_in_tenants(&self, promises: &[PromiseView], found: &mut Found) {
        for (_, record) in self.graph.tenants() {
            let name = format!("tenant {}", record.spec.name);
            let (state, hint) = self.view_guarantee(&record.spec);
            let code = match state {
                Some(GuaranteeState::Oversold) => Some(HealthCode::GuaranteeOversold),
                Some(GuaranteeState::Unverified) => Some(HealthCode::GuaranteeUnverified),
                Some(GuaranteeState::Ignored) => Some(HealthCode::GuaranteeIgnored),
                Some(GuaranteeState::Verified) | None => None,
            };
            if let Some(code) = code {
                found.add(code, &name, hint.unwrap_or_default());
            }
            let mut quotas = self.view_quotas(&record.spec).into_iter();
            if let Some(hint) = quotas.find_map(|quota| quota.space_hint) {
                found.add(HealthCode::QuotaNearlyUsed, &name, hint);
            }
        }
        let missed = |promise: &&PromiseView| promise.state == Some(PromiseState::Missed);
        for promise in promises.iter().filter(missed) {
            let code = match &*promise.promise {
                "latency_target" => HealthCode::LatencyTargetMissed,
                _ => HealthCode::GuaranteeMissed,
            };
            let why = promise.reason.as_deref().unwrap_or_default();
            let detail = format!("{} on device {}: {why}", promise.promise, promise.device);
            found.add(code, format!("tenant {}", promise.tenant), detail);
        }
    }

    pub(super) fn ask_health(&mut self, ask: HealthAsk) -> Result<View, Fault> {
        match ask {
            HealthAsk::Show => {
                let observed = self.ask_observed(self.graph.tenants().map(|(id, _)| id));
                let silent = self.ask_all();
                let promises = self.all_promises(&observed.answers());
                Ok(View::Health(self.view_health(&silent, &promises)))
            }
            HealthAsk::Mute(code, seconds) => self.mute(code, Some(seconds)),
            HealthAsk::Unmute(code) => self.mute(code, None),
        }
    }

    /// Has what has changed since `seen` become events.
    pub(super) fn look_for_events(&mut self, seen: &mut Seen) {
        if let Ok(View::Health(health)) = self.ask_health(HealthAsk::Show) {
            seen.problems(&health.problems, &self.service.events);
        }
        let devices = self.graph.all(Kind::Device).filter_map(|id| {
            self.view_array(id)?.rebuild_percent?;
            Some(self.graph.name(id).to_owned())
        });
        seen.rebuilds(devices.collect(), &self.service.events);
    }

    /// What is wrong in this way counts again, or not for so many seconds.
    fn mute(&mut self, code: HealthCode, seconds: Option<u64>) -> Result<View, Fault> {
        self.commit(|state, stack| {
            let now = now();
            let until = seconds.map(|seconds| now.saturating_add(seconds));
            let muted = stack.muted.with(code, until, now);
            state.put_muted(&muted)?;
            Ok(|stack: &mut Stack| stack.muted = muted)
        })?;
        Ok(View::Done)
    }
}

/// Something that is not available.
pub(super) struct NamedFault {
    /// What it is; nothing of what waits to be imported.
    pub(super) what: Option<Subject>,
    pub(super) name: String,
    pub(super) why: Arc<Fault>,
}

impl Stack {
    /// What is not available, and why: devices, pools, the store, tenants, volumes, each by name.
    pub(super) fn named_faults(&self) -> Vec<NamedFault> {
        let rank = |kind| match kind {
            KindName::Device | KindName::Partition => 0,
            KindName::Pool => 1,
            KindName::Tenant => 4,
            KindName::Volume => 5,
            KindName::Function => 6,
        };
        let to_import = self.faults_to_import().into_iter();
        let to_import = to_import.map(|(kind, name, fault)| {
            let text = format!("{} {name}", kind.name());
            ((rank(kind), name), None, text, Arc::new(fault))
        });
        let own = self.faults.iter().map(|(what, why)| {
            let (rank, kind, name) = match what {
                Subject::Counters => (2, "state store:", "counters of the SMART logs"),
                Subject::Copy => (3, "state store:", "its copy"),
                Subject::File => (7, "the configuration", "file"),
                Subject::Node(id) => {
                    let kind = self.graph.get(*id).map_or(KindName::Device, Node::kind);
                    (rank(kind), kind.name(), self.graph.name(*id))
                }
            };
            let text = format!("{kind} {name}");
            ((rank, name.to_owned()), Some(*what), text, Arc::clone(why))
        });
        let mut faults: Vec<_> = own.chain(to_import).collect();
        faults.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let named = faults
            .into_iter()
            .map(|(_, what, name, why)| NamedFault { what, name, why });
        named.collect()
    }
}

/// Seconds since the beginning of 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
