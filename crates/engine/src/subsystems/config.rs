//! Changes of configuration: tenants, their hosts and namespaces, and the sizes of devices. Each is
//! applied whole or refused; hosts that see it are notified.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use flashyard_block::Info;
use flashyard_nvme::Nqn;

use super::{State, Target, Tenant};
use crate::association::TenantShared;
use crate::handle::Report;
use crate::message::Message;
use crate::{ConfigError, Counters, DeviceHandle, Life, NamespaceSpec, TenantSpec};
use flashyard_controller::discovery::Change;
use flashyard_controller::subsystem::printable;
use flashyard_controller::{
    ControllerLimits, HostList, NamespaceFeatures, NamespaceInfo, Subsystem,
};

impl Target {
    /// Adds a tenant, or changes one: hosts that are not allowed any more lose their associations.
    pub fn set_tenant(&self, spec: TenantSpec) -> Result<(), ConfigError> {
        let new = self.new_tenant(&spec)?;
        let nqn = new.subsystem.nqn;
        let mut state = self.lock();
        let taken = state
            .tenants
            .values()
            .any(|tenant| (tenant.spec.id == spec.id) != (tenant.spec.name == spec.name));
        if taken {
            return Err(ConfigError::TenantExists);
        }
        let others = state.tenants.values();
        if others
            .filter(|tenant| tenant.spec.id != spec.id)
            .any(|tenant| tenant.subsystem.nqn == nqn)
        {
            return Err(ConfigError::NqnTaken);
        }
        match state.tenants.get_mut(&spec.name) {
            Some(tenant) if !tenant.subsystem.is_called_as(&new.subsystem) => {
                return Err(ConfigError::FixedNames);
            }
            Some(tenant) => {
                tenant.change(|subsystem| subsystem.hosts = hosts(&spec));
                tenant.spec = spec.clone();
            }
            None => {
                state.tenants.insert(spec.name.clone(), new);
            }
        }
        state.expel(self, &spec);
        let change = state.discovery.set_subsystem(nqn, hosts(&spec));
        state.on_discovery_change(self, &change);
        Ok(())
    }

    /// Hosts of these tenants, which may be made later, are asked to come again (Controller Busy)
    /// from now on, those of all others no longer. Hosts that are connected stay. For tenants that
    /// do not have all their namespaces yet: a host that reconnects and misses a disk gives it up.
    pub fn hold_back(&self, tenants: BTreeSet<String>) {
        self.lock().held_back = tenants;
    }

    /// Tells the target of its life before, for the SMART logs.
    pub fn set_life(&self, life: Life) {
        self.lock().life = life;
    }

    /// Adds to the counters of a tenant what its hosts did in runs before.
    pub fn add_past(&self, tenant: &str, past: Counters) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state.tenants.get_mut(tenant);
        tenant.ok_or(ConfigError::NoSuchTenant)?.past += past;
        Ok(())
    }

    /// Removes a tenant: its hosts lose their associations, its namespaces are gone.
    pub fn remove_tenant(&self, name: &str) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state
            .tenants
            .remove(name)
            .ok_or(ConfigError::NoSuchTenant)?;
        tenant.shared.touch();
        let admins = state
            .associations
            .values()
            .filter(|entry| entry.association.is_of(&tenant.shared));
        self.close_all(admins.map(|entry| entry.admin));
        let change = state.discovery.remove_subsystem(&tenant.subsystem.nqn);
        state.on_discovery_change(self, &change);
        Ok(())
    }

    /// Calls a tenant otherwise. Its subsystem keeps the names it has, so hosts notice nothing.
    pub fn rename_tenant(&self, name: &str, new: &str) -> Result<(), ConfigError> {
        let mut state = self.lock();
        if state.tenants.contains_key(new) {
            return Err(ConfigError::TenantExists);
        }
        let mut tenant = state
            .tenants
            .remove(name)
            .ok_or(ConfigError::NoSuchTenant)?;
        tenant.shared.rename(new);
        new.clone_into(&mut tenant.spec.name);
        state.tenants.insert(new.to_owned(), tenant);
        Ok(())
    }

    /// Gives a tenant a namespace; connected hosts are notified.
    pub fn attach(&self, tenant: &str, spec: NamespaceSpec) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state
            .tenants
            .get_mut(tenant)
            .ok_or(ConfigError::NoSuchTenant)?;
        if !tenant.subsystem.is_valid_nsid(spec.nsid) {
            return Err(ConfigError::NamespaceNumber);
        }
        if tenant.subsystem.namespaces.contains_key(&spec.nsid) {
            return Err(ConfigError::NamespaceExists);
        }
        let device = spec.device.info();
        let info = namespace_info(&spec, &device);
        tenant.devices.insert(spec.nsid, spec.device);
        tenant.change(|subsystem| {
            subsystem.namespaces.insert(spec.nsid, info);
        });
        let shared = tenant.shared.clone();
        state.on_namespace_change(self, &shared, spec.nsid);
        Ok(())
    }

    /// Gives a namespace another device with the same content, which has to be as large and to have
    /// blocks of the same size. Its hosts are notified only if they see the difference. I/O that is
    /// on its way to the former device still reaches that.
    pub fn exchange(
        &self,
        tenant: &str,
        nsid: u32,
        device: DeviceHandle,
    ) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state
            .tenants
            .get_mut(tenant)
            .ok_or(ConfigError::NoSuchTenant)?;
        let info = device.info();
        let place = tenant.devices.get_mut(&nsid);
        *place.ok_or(ConfigError::NoSuchNamespace)? = device;
        let mut differs = false;
        tenant.change(|subsystem| {
            if let Some(namespace) = subsystem.namespaces.get_mut(&nsid) {
                let before = *namespace;
                *namespace = on_device(before, &info);
                differs = *namespace != before;
            }
        });
        let shared = tenant.shared.clone();
        if differs {
            state.on_namespace_change(self, &shared, nsid);
        }
        Ok(())
    }

    /// Takes a namespace away: I/O in flight finishes, later I/O is refused; connected hosts are
    /// notified.
    pub fn detach(&self, tenant: &str, nsid: u32) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state
            .tenants
            .get_mut(tenant)
            .ok_or(ConfigError::NoSuchTenant)?;
        if tenant.devices.remove(&nsid).is_none() {
            return Err(ConfigError::NoSuchNamespace);
        }
        tenant.features.forget(nsid);
        tenant.change(|subsystem| {
            subsystem.namespaces.remove(&nsid);
        });
        let shared = tenant.shared.clone();
        state.on_namespace_change(self, &shared, nsid);
        Ok(())
    }

    /// Write-protects a namespace, or takes that back; connected hosts are notified. Writes that
    /// were accepted before finish, later ones are answered Namespace is Write Protected. Hosts
    /// cannot change it (NWPC is 0): it is not theirs.
    pub fn set_read_only(&self, tenant: &str, nsid: u32, on: bool) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let tenant = state
            .tenants
            .get_mut(tenant)
            .ok_or(ConfigError::NoSuchTenant)?;
        let device = tenant
            .devices
            .get(&nsid)
            .ok_or(ConfigError::NoSuchNamespace)?;
        let worn_out = device.info().read_only;
        tenant.change(|subsystem| {
            if let Some(namespace) = subsystem.namespaces.get_mut(&nsid) {
                namespace.write_protected = on;
                namespace.read_only = on || worn_out;
            }
        });
        let shared = tenant.shared.clone();
        state.on_namespace_change(self, &shared, nsid);
        Ok(())
    }

    /// A device may have grown: its home core looks, and hosts that see it are notified. One that
    /// nobody sees has its new size when it is attached.
    pub fn resized(&self, device: &DeviceHandle) {
        self.tell(device.core(), Message::DeviceResized(device.clone()));
    }

    /// What controllers tell their hosts from now on, and hold them to. Those that are there keep
    /// what was reported to them. Nothing may be above [`crate::Limits`], but for the number and
    /// depth of queues and what capsules carry.
    pub fn set_controller_limits(&self, limits: ControllerLimits) {
        self.lock().controller_limits = limits;
    }

    /// What a controller that is made now tells its host.
    pub fn controller_limits(&self) -> ControllerLimits {
        self.lock().controller_limits
    }

    /// The addresses that the discovery log shows.
    pub fn set_listeners(&self, addrs: Vec<SocketAddr>) {
        let mut state = self.lock();
        state.listeners.clone_from(&addrs);
        let change = state.discovery.set_listeners(addrs);
        state.on_discovery_change(self, &change);
    }

    /// Makes every queue look at its namespaces again (a device has gone).
    pub(crate) fn touch_tenants(&self) {
        for tenant in self.lock().tenants.values() {
            tenant.shared.touch();
        }
    }

    fn new_tenant(&self, spec: &TenantSpec) -> Result<Tenant, ConfigError> {
        let names = &spec.names;
        let nqn = match &names.nqn {
            Some(nqn) => Nqn::new(nqn),
            None => Nqn::new(&format!("{}:{}", self.config.nqn_prefix, spec.name)),
        };
        let nqn = nqn
            .ok()
            .filter(|nqn| !nqn.is_discovery())
            .ok_or(ConfigError::InvalidName)?;
        let most = self.config.limits.namespaces_per_tenant;
        let mut subsystem = Subsystem::new(nqn, &self.config.target_uuid, hosts(spec), most);
        if let Some(serial) = &names.serial {
            subsystem.serial = printable(serial).ok_or(ConfigError::InvalidNumber)?;
        }
        if let Some(model) = &names.model {
            subsystem.model = printable(model).ok_or(ConfigError::InvalidNumber)?;
        }
        Ok(Tenant {
            shared: TenantShared::new(spec.id, &spec.name),
            spec: spec.clone(),
            subsystem: Arc::new(subsystem),
            devices: std::collections::BTreeMap::new(),
            features: NamespaceFeatures::default(),
            past: Counters::default(),
        })
    }
}

fn hosts(spec: &TenantSpec) -> HostList {
    HostList::of(spec.hosts.iter().map(String::as_str))
}

impl Tenant {
    /// Replaces the subsystem by a changed copy: controllers keep the one they read until they look
    /// again.
    fn change(&mut self, change: impl FnOnce(&mut Subsystem)) {
        let mut changed = Subsystem::clone(&self.subsystem);
        change(&mut changed);
        changed.generation += 1;
        self.subsystem = Arc::new(changed);
        self.shared.touch();
    }
}

impl State {
    /// Ends the associations of hosts that may not stay.
    fn expel(&self, target: &Target, spec: &TenantSpec) {
        let Some(tenant) = self.tenants.get(&spec.name) else {
            return;
        };
        let unwelcome = self.associations.values().filter(|entry| {
            entry.association.is_of(&tenant.shared)
                && !entry.of_function
                && !tenant.subsystem.hosts.allows(&entry.association.host.nqn)
        });
        target.close_all(unwelcome.map(|entry| entry.admin));
    }

    fn on_namespace_change(&self, target: &Target, tenant: &Arc<TenantShared>, nsid: u32) {
        for entry in self
            .associations
            .values()
            .filter(|entry| entry.association.is_of(tenant))
        {
            let serial = entry.admin.serial;
            target.tell(entry.admin.core, Message::NamespaceChanged { serial, nsid });
        }
    }

    fn on_discovery_change(&self, target: &Target, change: &Change) {
        let discovering = self
            .associations
            .values()
            .filter(|entry| entry.association.tenant.is_none());
        for entry in discovering.filter(|entry| change.concerns(&entry.association.host.nqn)) {
            let serial = entry.admin.serial;
            target.tell(entry.admin.core, Message::DiscoveryChanged { serial });
        }
    }

    pub(super) fn set_device_report(
        &mut self,
        target: &Target,
        device: &DeviceHandle,
        report: Report,
    ) {
        let info = report.info;
        if device.replace(report).info == info {
            return;
        }
        let mut changed = Vec::new();
        for tenant in self.tenants.values_mut() {
            let of_device = tenant
                .devices
                .iter()
                .filter(|(_, handle)| *handle == device);
            let nsids: Vec<u32> = of_device.map(|(nsid, _)| *nsid).collect();
            for nsid in nsids {
                tenant.change(|subsystem| {
                    if let Some(namespace) = subsystem.namespaces.get_mut(&nsid) {
                        namespace.blocks = info.blocks;
                        namespace.used = info.blocks;
                        namespace.read_only = namespace.write_protected || info.read_only;
                    }
                });
                changed.push((tenant.shared.clone(), nsid));
            }
        }
        for (tenant, nsid) in changed {
            self.on_namespace_change(target, &tenant, nsid);
        }
    }
}

/// A namespace as its hosts see it: what its device is, with the names and the protection that it
/// was given.
fn namespace_info(spec: &NamespaceSpec, device: &Info) -> NamespaceInfo {
    let named = NamespaceInfo {
        nsid: spec.nsid,
        block_size: device.block_size,
        blocks: device.blocks,
        used: device.blocks,
        uuid: spec.uuid,
        nguid: spec.nguid,
        eui64: spec.eui64,
        read_only: spec.read_only,
        write_protected: spec.read_only,
        volatile_cache: device.volatile_cache,
        deallocate: device.deallocate,
        write_granularity: 0,
        optimal_write: 0,
        atomic_write: 1,
        deallocate_granularity: 0,
    };
    on_device(named, device)
}

/// The same namespace on this device.
fn on_device(namespace: NamespaceInfo, device: &Info) -> NamespaceInfo {
    NamespaceInfo {
        block_size: device.block_size,
        blocks: device.blocks,
        used: device.blocks,
        read_only: namespace.write_protected || device.read_only,
        volatile_cache: device.volatile_cache,
        deallocate: device.deallocate,
        write_granularity: device.limits.write_granularity,
        optimal_write: device.limits.optimal_write,
        atomic_write: device.limits.atomic_write.max(1),
        deallocate_granularity: device.limits.deallocate_granularity,
        ..namespace
    }
}
