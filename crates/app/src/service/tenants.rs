//! Makes, changes and deletes tenants, in the store, in the engine and in the stack.

use std::sync::Arc;

use flashyard_block::{Class, TenantId};
use flashyard_engine::{ConfigError, SubsystemNames, TenantSpec as EngineTenant};

use super::fault::{Fault, InUse};
use super::work::Work;
use super::{Checked, Stack};
use crate::control::{KindName, TenantChange, View};
use crate::graph::NodeId;
use crate::spec::{ClassName, TenantSpec};
use crate::state::{Kind, TenantRecord};

impl Work<'_> {
    pub(super) fn create_tenant(
        &mut self,
        spec: TenantSpec,
        checked: Checked,
    ) -> Result<View, Fault> {
        spec.check()?;
        if self.graph.find(Kind::Tenant, &spec.name).is_some() {
            return Err(InUse::Tenant(spec.name).into());
        }
        self.measure_devices_of(&spec, None)?;
        self.check_nqn(&spec)?;
        let name = spec.name.clone();
        self.put_tenants(vec![spec], checked)?;
        self.view_one(KindName::Tenant, &name)
    }

    pub(super) fn set_tenant(
        &mut self,
        name: &str,
        change: TenantChange,
        checked: Checked,
    ) -> Result<View, Fault> {
        let (_, record) = self.tenant(name)?;
        let mut spec = record.spec.clone();
        spec.hosts = change.hosts.unwrap_or(spec.hosts);
        spec.class = change.class.unwrap_or(spec.class);
        spec.weight = change.weight.unwrap_or(spec.weight);
        spec.guarantee = change.guarantee.or(spec.guarantee);
        spec.limit = change.limit.or(spec.limit);
        spec.latency_target = change.latency_target.or(spec.latency_target);
        spec.quota.extend(change.quota);
        let spec = spec.without_empty();
        spec.check()?;
        self.measure_devices_of(&spec, None)?;
        self.put_tenants(vec![spec], checked)?;
        self.view_one(KindName::Tenant, name)
    }

    /// Makes or changes tenants, all of them or none. With a command what is promised is checked as
    /// it is then; a file that the target is started with is served whatever it promises.
    pub(super) fn put_tenants(
        &mut self,
        specs: Vec<TenantSpec>,
        checked: Checked,
    ) -> Result<(), Fault> {
        let target = Arc::clone(self.target);
        let specs: Vec<TenantSpec> = specs.into_iter().map(|spec| self.with_nqn(spec)).collect();
        if checked == Checked::Now {
            specs.iter().try_for_each(|spec| self.check_quotas(spec))?;
        }
        let ids = self.commit(|state, stack| {
            if checked == Checked::Now {
                stack.check_promises(&specs, &[])?;
            }
            let mut stored = Vec::new();
            let done = state.put_tenants(&specs, |records| {
                for record in records {
                    target.set_tenant(record.into())?;
                }
                stored = records.to_vec();
                Ok(())
            });
            done.inspect_err(|_: &Fault| {
                // As the engine had them; one that it has not got yet it does not miss.
                for spec in &specs {
                    let _ = match stack.tenant(&spec.name) {
                        Ok((_, before)) => target.set_tenant(before.into()),
                        Err(_) => target.remove_tenant(&spec.name),
                    };
                }
            })?;
            Ok(move |stack: &mut Stack| {
                let put = |record| stack.put_tenant(record);
                stored.into_iter().map(put).collect::<Vec<NodeId>>()
            })
        })?;
        for id in ids {
            self.tell_share(id);
            self.tell_quotas(id);
        }
        Ok(())
    }

    pub(super) fn delete_tenant(&mut self, name: &str) -> Result<View, Fault> {
        self.commit(|state, stack| {
            let (id, _) = stack.tenant(name)?;
            stack.check_unused(id)?;
            stack.check_none_waits(name)?;
            state.remove(Kind::Tenant, name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })?;
        match self.target.remove_tenant(name) {
            // One that the engine refused at the start is not there.
            Ok(()) | Err(ConfigError::NoSuchTenant) => Ok(View::Done),
            Err(error) => Err(error.into()),
        }
    }
}

impl Stack {
    pub(super) fn put_tenant(&mut self, record: TenantRecord) -> NodeId {
        match self.graph.find(Kind::Tenant, &record.spec.name) {
            Some(id) => {
                self.graph.change_tenant(id, record);
                id
            }
            None => {
                let id = self.graph.reserve();
                self.graph.add(id, record.into());
                id
            }
        }
    }
}

impl From<&TenantRecord> for EngineTenant {
    fn from(record: &TenantRecord) -> Self {
        Self {
            id: TenantId(record.id),
            name: record.spec.name.clone(),
            hosts: record.spec.hosts.clone(),
            class: match record.spec.class {
                ClassName::Latency => Class::Latency,
                ClassName::Throughput => Class::Throughput,
                ClassName::Background => Class::Background,
            },
            names: SubsystemNames {
                nqn: record.spec.nqn.clone(),
                serial: record.spec.serial.clone(),
                model: record.spec.model.clone(),
            },
        }
    }
}
