//! What is wrong with the target, gathered from what `list` and `status` show of each thing, so
//! that all of them say the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::observed::Observed;
use super::work::Work;
use super::{Fault, Stack, Subject};
use crate::control::{
    Condition, GuaranteeState, Health, HealthAsk, HealthCode, HealthState, HealthView, KindName,
    ProblemRow, PromiseState, View,
};
use crate::graph::Node;
use crate::state::Kind;
use crate::state::muted::Muted;

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
            Condition::Unavailable => HealthCode::Unavailable,
            Condition::Full => HealthCode::DeviceFull,
            Condition::ReadOnly => HealthCode::ReadOnly,
            Condition::Degraded => HealthCode::RedundancyLost,
            Condition::InjectsFaults => HealthCode::FaultsInjected,
            Condition::Online | Condition::Creating => return,
        };
        let detail = health.fault.clone().unwrap_or_default();
        self.add(code, format!("{} {name}", kind.name()), detail);
    }

    fn rows(self, muted: &Muted) -> Vec<ProblemRow> {
        let now = now();
        let rows = self.0.into_iter().map(|(code, all)| {
            let until = muted.0.get(&code).filter(|until| **until > now);
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
                muted_until: until.map(|until| crate::units::utc(*until)),
            }
        });
        let mut rows: Vec<ProblemRow> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.severity));
        rows
    }
}

impl Work<'_> {
    /// How the target is. `silent` are the cores that do not answer.
    pub(super) fn view_health(&self, silent: &[usize], observed: &Observed) -> HealthView {
        let mut found = Found::default();
        self.find_in_devices(&mut found);
        self.find_in_pools(&mut found);
        self.find_in_tenants(observed, &mut found);
        self.find_elsewhere(silent, &mut found);
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

    fn find_in_devices(&self, found: &mut Found) {
        for id in self.graph.all(Kind::Device) {
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
            if matches!(
                view.health.state,
                Condition::Unavailable | Condition::ReadOnly
            ) {
                found.add_condition(KindName::Pool, &view.name, &view.health);
            }
            let Some(space) = view.space.filter(|space| space.space_hint.is_some()) else {
                continue;
            };
            let code = match space.free_bytes < space.size / 20 {
                true => HealthCode::PoolFull,
                false => HealthCode::PoolNearlyFull,
            };
            let detail = space.space_hint.unwrap_or_default();
            found.add(code, format!("pool {}", view.name), detail);
        }
        for id in self.graph.all(Kind::Volume) {
            let health = self.health(Subject::Node(id));
            if health.state == Condition::Unavailable {
                found.add_condition(KindName::Volume, self.graph.name(id), &health);
            }
        }
    }

    fn find_in_tenants(&self, observed: &Observed, found: &mut Found) {
        for (id, record) in self.graph.tenants() {
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
            let promises = self.view_promises(id, record, observed);
            let missed = promises
                .into_iter()
                .find(|promise| promise.state == Some(PromiseState::Missed));
            if let Some(promise) = missed {
                let code = match promise.promise {
                    "latency_target" => HealthCode::LatencyTargetMissed,
                    _ => HealthCode::GuaranteeMissed,
                };
                let why = promise.reason.unwrap_or_default();
                let detail = format!("{} on device {}: {why}", promise.promise, promise.device);
                found.add(code, &name, detail);
            }
        }
    }

    /// Problems of the target as a whole, and of what has no condition of its own.
    fn find_elsewhere(&self, silent: &[usize], found: &mut Found) {
        for core in silent {
            found.add(
                HealthCode::CoreSilent,
                format!("core {core}"),
                "it does not answer",
            );
        }
        if let Some(error) = self.target.snapshot().accept_error {
            found.add(HealthCode::ConnectionsRefused, "listener", error);
        }
        for (what, why) in &self.faults {
            let (code, what) = match what {
                Subject::Counters => (HealthCode::StateNotKept, "counters".to_owned()),
                Subject::Copy => (HealthCode::StateNotKept, "copy of the state".to_owned()),
                Subject::File => (HealthCode::ConfigurationNotApplied, "file".to_owned()),
                Subject::Node(id) => match self.graph.get(*id) {
                    Some(Node::Tenant(_) | Node::Function(_)) => {
                        (HealthCode::Unavailable, self.graph.name(*id).to_owned())
                    }
                    // Found with the others of their kind.
                    _ => continue,
                },
            };
            found.add(code, what, why.to_string());
        }
    }

    pub(super) fn ask_health(&mut self, ask: HealthAsk) -> Result<View, Fault> {
        match ask {
            HealthAsk::Show => {
                let observed = self.ask_observed(self.graph.tenants().map(|(id, _)| id));
                let silent = self.ask_all();
                let view = self.view_health(&silent, &observed.answers());
                Ok(View::Health(view))
            }
            HealthAsk::Mute(code, seconds) => self.mute(code, seconds),
            HealthAsk::Unmute(code) => self.unmute(code),
        }
    }

    /// What is wrong in this way does not count for some time.
    fn mute(&mut self, code: HealthCode, seconds: u64) -> Result<View, Fault> {
        self.change_muted(|muted| {
            muted.0.insert(code, now().saturating_add(seconds));
        })
    }

    /// What is wrong in this way counts again.
    fn unmute(&mut self, code: HealthCode) -> Result<View, Fault> {
        self.change_muted(|muted| {
            muted.0.remove(&code);
        })
    }

    fn change_muted(&mut self, change: impl FnOnce(&mut Muted)) -> Result<View, Fault> {
        self.commit(|state, stack| {
            let mut muted = stack.muted.clone();
            let now = now();
            muted.0.retain(|_, until| *until > now);
            change(&mut muted);
            state.put_muted(&muted)?;
            Ok(|stack: &mut Stack| stack.muted = muted)
        })?;
        Ok(View::Done)
    }
}

impl Stack {
    /// What is not available, and why: devices, pools, the store, tenants, volumes, each by name.
    pub(super) fn named_faults(&self) -> Vec<(String, Arc<Fault>)> {
        let to_import = self.faults_to_import().into_iter();
        let to_import = to_import.map(|(kind, name, fault)| {
            let rank = match kind {
                KindName::Device | KindName::Partition => 0,
                KindName::Pool => 1,
                KindName::Tenant => 4,
                KindName::Volume => 5,
                KindName::Function => 6,
            };
            let what = format!("{} {name}", kind.name());
            ((rank, name), what, Arc::new(fault))
        });
        let mut faults: Vec<_> = self
            .faults
            .iter()
            .map(|(what, why)| {
                let (rank, kind, name) = match what {
                    Subject::Counters => (2, "state store:", "counters of the SMART logs"),
                    Subject::Copy => (3, "state store:", "its copy"),
                    Subject::File => (7, "the configuration", "file"),
                    Subject::Node(id) => {
                        let name = self.graph.name(*id);
                        match self.graph.get(*id) {
                            Some(Node::Pool(_)) => (1, "pool", name),
                            Some(Node::Tenant(_)) => (4, "tenant", name),
                            Some(Node::Volume(_)) => (5, "volume", name),
                            Some(Node::Function(_)) => (6, "function", name),
                            Some(Node::Device(_)) | None => (0, "device", name),
                        }
                    }
                };
                let named = (rank, name.to_owned());
                (named, format!("{kind} {name}"), Arc::clone(why))
            })
            .chain(to_import)
            .collect();
        faults.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        faults
            .into_iter()
            .map(|(_, what, why)| (what, why))
            .collect()
    }
}

/// Seconds since the beginning of 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
