//! What there is, and what stands on what: devices, the partitions that are cut from them, pools,
//! volumes with the namespaces that show them, functions, and the tenants whose they are. A node
//! has a number that is never given twice, so whoever holds one never meets another thing that has
//! got its name since. Names are looked up where a command comes in. Nothing here takes longer than
//! what it is about is large.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use flashyard_engine::DeviceHandle;
use uuid::Uuid;

use crate::control::KindName;
use crate::spec::{DeviceSpec, Eui64, FunctionSpec, Nguid};
use crate::state::{Inventory, Kind, PoolRecord, TenantRecord, VolumeRecord};

/// Which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u64);

/// A device or partition.
#[derive(Clone, Debug)]
pub struct Device {
    /// What it is.
    pub spec: DeviceSpec,
    /// The core that it is open on.
    pub home: Option<usize>,
    /// Whose namespaces end on it.
    tenants: Counted,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// What it is.
    pub record: TenantRecord,
    /// Where its namespaces end.
    devices: Counted,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// What it is.
    pub record: VolumeRecord,
    /// What hosts reach it by.
    pub namespace: Option<DeviceHandle>,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// What it is.
    pub spec: FunctionSpec,
    /// The core that offers it.
    pub home: Option<usize>,
}

/// A thing of each kind.
#[derive(Clone, Debug)]
pub enum Node {
    /// A device or partition. The larger ones are apart: most nodes are volumes.
    Device(Box<Device>),
    /// A pool.
    Pool(PoolRecord),
    /// A tenant.
    Tenant(Tenant),
    /// A volume.
    Volume(Volume),
    /// A function.
    Function(Box<Function>),
}

/// What no two things may have in common. Names are apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// Where a device is.
    Path(String),
    /// Where a function is offered.
    Socket(String),
    /// What a subsystem is called, where that was said.
    Nqn(String),
    /// Of a volume.
    Uuid(Uuid),
    /// Of a volume.
    Nguid(Nguid),
    /// Of a volume.
    Eui64(Eui64),
    /// Of a volume, in the subsystem of its tenant.
    Nsid(NodeId, u32),
}

/// How many of each.
type Counted = BTreeMap<NodeId, usize>;

#[derive(Clone, Debug)]
struct Place {
    node: Node,
    /// What it stands on: a partition or a layer on a device, a pool on devices, a volume on a pool
    /// or device and on its tenant, a function on its tenant.
    on: Vec<NodeId>,
    /// What stands on it.
    carries: BTreeSet<NodeId>,
}

/// All nodes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    next: u64,
    places: BTreeMap<NodeId, Place>,
    /// Of each kind.
    names: [BTreeMap<String, NodeId>; 5],
    identities: BTreeMap<Identity, NodeId>,
    /// Devices that are open on each core, and functions that it offers.
    loads: BTreeMap<usize, usize>,
}

impl From<DeviceSpec> for Node {
    fn from(spec: DeviceSpec) -> Self {
        Self::Device(Box::new(Device {
            spec,
            home: None,
            tenants: Counted::new(),
        }))
    }
}

impl From<TenantRecord> for Node {
    fn from(record: TenantRecord) -> Self {
        Self::Tenant(Tenant {
            record,
            devices: Counted::new(),
        })
    }
}

impl From<VolumeRecord> for Node {
    fn from(record: VolumeRecord) -> Self {
        Self::Volume(Volume {
            record,
            namespace: None,
        })
    }
}

impl From<FunctionSpec> for Node {
    fn from(spec: FunctionSpec) -> Self {
        Self::Function(Box::new(Function { spec, home: None }))
    }
}

impl Node {
    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Device(device) => &device.spec.name,
            Self::Pool(record) => &record.spec.name,
            Self::Tenant(tenant) => &tenant.record.spec.name,
            Self::Volume(volume) => &volume.record.spec.name,
            Self::Function(function) => &function.spec.name,
        }
    }

    /// What it is, for people.
    pub fn kind(&self) -> KindName {
        match self {
            Self::Device(device) if device.spec.partition().is_some() => KindName::Partition,
            Self::Device(_) => KindName::Device,
            Self::Pool(_) => KindName::Pool,
            Self::Tenant(_) => KindName::Tenant,
            Self::Volume(_) => KindName::Volume,
            Self::Function(_) => KindName::Function,
        }
    }

    fn table(&self) -> Kind {
        match self {
            Self::Device(_) => Kind::Device,
            Self::Pool(_) => Kind::Pool,
            Self::Tenant(_) => Kind::Tenant,
            Self::Volume(_) => Kind::Volume,
            Self::Function(_) => Kind::Function,
        }
    }

    /// The core that it is on, if it is open and on one by itself.
    fn home(&self) -> Option<usize> {
        match self {
            Self::Device(device) => device.home,
            Self::Function(function) => function.home,
            Self::Pool(_) | Self::Tenant(_) | Self::Volume(_) => None,
        }
    }

    /// What it says that it stands on.
    fn names_below(&self) -> Vec<(Kind, &str)> {
        match self {
            Self::Device(device) => {
                let below = device.spec.stands_on().into_iter();
                below.map(|name| (Kind::Device, name)).collect()
            }
            Self::Pool(record) => {
                let devices = record.spec.devices.iter();
                devices.map(|name| (Kind::Device, name.as_str())).collect()
            }
            Self::Tenant(_) => Vec::new(),
            Self::Volume(volume) => {
                let spec = &volume.record.spec;
                let pool = spec.pool.as_deref().map(|name| (Kind::Pool, name));
                let place = pool.or_else(|| Some((Kind::Device, spec.device.as_deref()?)));
                let tenant = (Kind::Tenant, spec.tenant.as_str());
                let moving = volume.record.moving.as_ref();
                let left = moving.and_then(|moving| moving.left_device());
                let left = left.map(|name| (Kind::Device, name));
                place.into_iter().chain([tenant]).chain(left).collect()
            }
            Self::Function(function) => vec![(Kind::Tenant, function.spec.tenant.as_str())],
        }
    }

    /// What nothing else may be known by; `tenant` is whose a volume is.
    fn identities(&self, tenant: Option<NodeId>) -> Vec<Identity> {
        let found = match self {
            Self::Device(device) => vec![device.spec.path().cloned().map(Identity::Path)],
            Self::Tenant(tenant) => vec![tenant.record.spec.nqn.clone().map(Identity::Nqn)],
            Self::Pool(_) => Vec::new(),
            Self::Function(function) => vec![function.spec.socket.clone().map(Identity::Socket)],
            Self::Volume(Volume { record, .. }) => vec![
                Some(Identity::Uuid(record.uuid)),
                Some(Identity::Nguid(record.nguid())),
                record.spec.eui64.map(Identity::Eui64),
                tenant.map(|tenant| Identity::Nsid(tenant, record.nsid)),
            ],
        };
        found.into_iter().flatten().collect()
    }
}

impl Graph {
    /// All that a store has, none of it open. What names something that is not there stands on
    /// nothing.
    pub fn new(inventory: Inventory) -> Self {
        let mut graph = Self::default();
        let devices = inventory.devices.into_values().map(Node::from);
        let pools = inventory.pools.into_values().map(Node::Pool);
        let tenants = inventory.tenants.into_values().map(Node::from);
        let volumes = inventory.volumes.into_values().map(Node::from);
        let functions = inventory.functions.into_values().map(Node::from);
        let all = devices.chain(pools).chain(tenants).chain(volumes);
        for node in all.chain(functions) {
            let id = graph.reserve();
            graph.add(id, node);
        }
        // A partition may have come before what it is cut from.
        let partitions: Vec<NodeId> = graph.all(Kind::Device).collect();
        for id in partitions {
            graph.change(id, |_| {});
        }
        graph
    }

    /// A number for a node that is yet to be.
    pub fn reserve(&mut self) -> NodeId {
        self.next += 1;
        NodeId(self.next)
    }

    /// Adds a node under a number that was reserved.
    pub fn add(&mut self, id: NodeId, node: Node) {
        let (on, carries) = (Vec::new(), BTreeSet::new());
        self.put(id, Place { node, on, carries });
    }

    /// Adds a device that is open.
    pub fn add_open(&mut self, id: NodeId, spec: DeviceSpec, home: usize) {
        self.add(id, spec.into());
        self.change_device(id, |device| device.home = Some(home));
    }

    /// Takes a node out. What stands on it has to be asked for before.
    pub fn remove(&mut self, id: NodeId) -> Option<Node> {
        Some(self.take(id)?.node)
    }

    /// Changes a node in place, whatever of it: names, edges and identities follow.
    pub fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(mut place) = self.take(id) {
            change(&mut place.node);
            self.put(id, place);
        }
    }

    /// Changes a device in place.
    pub fn change_device(&mut self, id: NodeId, change: impl FnOnce(&mut Device)) {
        self.change(id, |node| {
            if let Node::Device(device) = node {
                change(device);
            }
        });
    }

    /// Changes a pool in place.
    pub fn change_pool(&mut self, id: NodeId, change: impl FnOnce(&mut PoolRecord)) {
        self.change(id, |node| {
            if let Node::Pool(record) = node {
                change(record);
            }
        });
    }

    /// Changes a volume in place.
    pub fn change_volume(&mut self, id: NodeId, change: impl FnOnce(&mut Volume)) {
        self.change(id, |node| {
            if let Node::Volume(volume) = node {
                change(volume);
            }
        });
    }

    /// Changes a function in place.
    pub fn change_function(&mut self, id: NodeId, change: impl FnOnce(&mut Function)) {
        self.change(id, |node| {
            if let Node::Function(function) = node {
                change(function);
            }
        });
    }

    /// Changes what a tenant is in place; its volumes and functions say what it is called.
    pub fn change_tenant(&mut self, id: NodeId, record: TenantRecord) {
        let name = record.spec.name.clone();
        let own: Vec<NodeId> = match self.name(id) == name {
            true => Vec::new(),
            false => self.carried_by(id).collect(),
        };
        self.change(id, |node| {
            if let Node::Tenant(tenant) = node {
                tenant.record = record;
            }
        });
        for own in own {
            self.change(own, |node| match node {
                Node::Volume(volume) => volume.record.spec.tenant.clone_from(&name),
                Node::Function(function) => function.spec.tenant.clone_from(&name),
                _ => {}
            });
        }
    }

    /// The node of a name.
    pub fn find(&self, kind: Kind, name: &str) -> Option<NodeId> {
        self.names[kind as usize].get(name).copied()
    }

    /// The node that is known by this.
    pub fn known_by(&self, identity: &Identity) -> Option<NodeId> {
        self.identities.get(identity).copied()
    }

    /// A node.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        Some(&self.places.get(&id)?.node)
    }

    /// What a node is called; nothing if it has gone.
    pub fn name(&self, id: NodeId) -> &str {
        self.get(id).map_or("", Node::name)
    }

    /// A device.
    pub fn device(&self, id: NodeId) -> Option<&Device> {
        match self.get(id)? {
            Node::Device(device) => Some(device),
            _ => None,
        }
    }

    /// A pool.
    pub fn pool(&self, id: NodeId) -> Option<&PoolRecord> {
        match self.get(id)? {
            Node::Pool(record) => Some(record),
            _ => None,
        }
    }

    /// A tenant.
    pub fn tenant(&self, id: NodeId) -> Option<&TenantRecord> {
        match self.get(id)? {
            Node::Tenant(tenant) => Some(&tenant.record),
            _ => None,
        }
    }

    /// A volume.
    pub fn volume(&self, id: NodeId) -> Option<&Volume> {
        match self.get(id)? {
            Node::Volume(volume) => Some(volume),
            _ => None,
        }
    }

    /// A function.
    pub fn function(&self, id: NodeId) -> Option<&Function> {
        match self.get(id)? {
            Node::Function(function) => Some(function),
            _ => None,
        }
    }

    /// All of a kind, by name.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = NodeId> {
        self.names[kind as usize].values().copied()
    }

    /// Those of a kind behind a name, by name.
    pub fn all_after(&self, kind: Kind, name: Option<&str>) -> impl Iterator<Item = NodeId> {
        let behind = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = &self.names[kind as usize];
        names
            .range::<str, _>((behind, Bound::Unbounded))
            .map(|(_, id)| *id)
    }

    /// How many there are of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// All devices, by name.
    pub fn devices(&self) -> impl Iterator<Item = (NodeId, &Device)> {
        let all = self.all(Kind::Device);
        all.filter_map(|id| Some((id, self.device(id)?)))
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> impl Iterator<Item = (NodeId, &TenantRecord)> {
        let all = self.all(Kind::Tenant);
        all.filter_map(|id| Some((id, self.tenant(id)?)))
    }

    /// All functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = (NodeId, &Function)> {
        let all = self.all(Kind::Function);
        all.filter_map(|id| Some((id, self.function(id)?)))
    }

    /// The volumes that stand on a node, or are a tenant's, in no order.
    pub fn volumes_on(&self, id: NodeId) -> impl Iterator<Item = (NodeId, &Volume)> {
        self.carried_by(id)
            .filter_map(|id| Some((id, self.volume(id)?)))
    }

    /// The functions of a tenant, in no order.
    pub fn functions_of(&self, tenant: NodeId) -> impl Iterator<Item = (NodeId, &Function)> {
        self.carried_by(tenant)
            .filter_map(|id| Some((id, self.function(id)?)))
    }

    fn carried_by(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let place = self.places.get(&id).into_iter();
        place.flat_map(|place| place.carries.iter().copied())
    }

    /// What stands on a node, and has to go before it: pools first, then volumes, functions and
    /// partitions, and of those the first by name.
    pub fn user_of(&self, id: NodeId) -> Option<&Node> {
        let rank = |node: &Node| match node {
            Node::Pool(_) => 0,
            Node::Volume(_) => 1,
            Node::Tenant(_) => 2,
            Node::Function(_) => 3,
            Node::Device(_) => 4,
        };
        let carries = self.places.get(&id)?.carries.iter();
        let users = carries.filter_map(|user| self.get(*user));
        users.min_by_key(|node| (rank(node), node.name()))
    }

    /// The device that a node ends on: of a device, itself.
    pub fn device_under(&self, id: NodeId) -> Option<NodeId> {
        let place = self.places.get(&id)?;
        match place.node {
            Node::Device(_) => Some(id),
            Node::Tenant(_) | Node::Function(_) => None,
            Node::Pool(_) | Node::Volume(_) => {
                let mut below = place.on.iter();
                below.find_map(|below| self.device_under(*below))
            }
        }
    }

    /// A node and all that it stands on, at any depth, each once.
    pub fn all_under(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(place) = found.get(next).and_then(|id| self.places.get(id)) {
            let new = place.on.iter().filter(|below| !found.contains(below));
            let new: Vec<NodeId> = new.copied().collect();
            found.extend(new);
            next += 1;
        }
        found
    }

    /// The devices that stand on a device.
    pub fn devices_on(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let carries = self.places.get(&id).into_iter();
        let carries = carries.flat_map(|place| &place.carries).copied();
        carries.filter(|id| self.device(*id).is_some())
    }

    /// The devices that a device stands on itself.
    pub fn devices_below(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let on = self.places.get(&id).into_iter().flat_map(|place| &place.on);
        on.copied().filter(|id| self.device(*id).is_some())
    }

    /// What a partition is cut from, or a layer that injects faults stands before.
    pub fn below(&self, device: NodeId) -> Option<NodeId> {
        self.places.get(&device)?.on.first().copied()
    }

    /// Whose a volume is.
    pub fn tenant_of(&self, volume: NodeId) -> Option<NodeId> {
        let below = &self.places.get(&volume)?.on;
        below.iter().copied().find(|id| self.tenant(*id).is_some())
    }

    /// The tenants that have namespaces on a device, by name.
    pub fn tenants_on(&self, device: NodeId) -> Vec<(NodeId, &TenantRecord)> {
        let device = self.device(device).into_iter();
        let tenants = device.flat_map(|device| device.tenants.keys());
        let mut tenants: Vec<_> = tenants
            .filter_map(|id| Some((*id, self.tenant(*id)?)))
            .collect();
        tenants.sort_by_key(|(_, record)| &record.spec.name);
        tenants
    }

    /// The devices that a tenant has namespaces on, by name.
    pub fn devices_of(&self, tenant: NodeId) -> Vec<NodeId> {
        let mut devices: Vec<NodeId> = match self.get(tenant) {
            Some(Node::Tenant(tenant)) => tenant.devices.keys().copied().collect(),
            _ => Vec::new(),
        };
        devices.sort_by_key(|device| self.name(*device));
        devices
    }

    /// Whether a tenant has a namespace on a device.
    pub fn is_on(&self, tenant: NodeId, device: NodeId) -> bool {
        let device = self.device(device);
        device.is_some_and(|device| device.tenants.contains_key(&tenant))
    }

    /// Devices that are open on a core, and functions that it offers.
    pub fn load(&self, core: usize) -> usize {
        self.loads.get(&core).copied().unwrap_or(0)
    }

    /// All nodes, each after what it stands on. This is the order to start in, and backwards the
    /// order to stop in.
    pub fn in_order(&self) -> Vec<NodeId> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for id in self.names.iter().flat_map(BTreeMap::values) {
            self.put_in_order(*id, &mut seen, &mut order);
        }
        order
    }

    fn put_in_order(&self, id: NodeId, seen: &mut BTreeSet<NodeId>, order: &mut Vec<NodeId>) {
        // In a store that says that two things stand on each other, one of them comes first.
        if !seen.insert(id) {
            return;
        }
        let below = self.places.get(&id).into_iter();
        for below in below.flat_map(|place| &place.on) {
            self.put_in_order(*below, seen, order);
        }
        order.push(id);
    }

    fn put(&mut self, id: NodeId, mut place: Place) {
        let below = place.node.names_below().into_iter();
        place.on = below
            .filter_map(|(kind, name)| self.find(kind, name))
            .collect();
        let (table, name) = (place.node.table(), place.node.name().to_owned());
        self.names[table as usize].insert(name, id);
        for below in &place.on {
            if let Some(below) = self.places.get_mut(below) {
                below.carries.insert(id);
            }
        }
        self.places.insert(id, place);
        for identity in self.identities_of(id) {
            self.identities.insert(identity, id);
        }
        if let Some(core) = self.get(id).and_then(Node::home) {
            *self.loads.entry(core).or_default() += 1;
        }
        self.count_namespace(id, |counted, id| *counted.entry(id).or_default() += 1);
    }

    fn take(&mut self, id: NodeId) -> Option<Place> {
        self.count_namespace(id, |counted, id| match counted.get_mut(&id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counted.remove(&id)),
        });
        for identity in self.identities_of(id) {
            if self.known_by(&identity) == Some(id) {
                self.identities.remove(&identity);
            }
        }
        let place = self.places.remove(&id)?;
        let home = place.node.home();
        if let Some(load) = home.and_then(|core| self.loads.get_mut(&core)) {
            *load -= 1;
        }
        for below in &place.on {
            if let Some(below) = self.places.get_mut(below) {
                below.carries.remove(&id);
            }
        }
        self.names[place.node.table() as usize].remove(place.node.name());
        Some(place)
    }

    fn identities_of(&self, id: NodeId) -> Vec<Identity> {
        let node = self.get(id);
        node.map_or_else(Vec::new, |node| node.identities(self.tenant_of(id)))
    }

    /// Counts the namespace of a volume, if it has one, for its tenant and its device.
    fn count_namespace(&mut self, id: NodeId, count: impl Fn(&mut Counted, NodeId)) {
        let served = self.volume(id).is_some_and(|it| it.namespace.is_some());
        let (Some(tenant), Some(device)) = (self.tenant_of(id), self.device_under(id)) else {
            return;
        };
        if !served {
            return;
        }
        if let Some(Node::Tenant(tenant)) = self.node_mut(tenant) {
            count(&mut tenant.devices, device);
        }
        if let Some(Node::Device(device)) = self.node_mut(device) {
            count(&mut device.tenants, tenant);
        }
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        Some(&mut self.places.get_mut(&id)?.node)
    }
}

#[cfg(test)]
mod tests;
