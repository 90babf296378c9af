//! What stands on a core: a node for each open device and each open pool, with the switch in front
//! of it, and for each function that is offered. A node has what its kind has, and whatever is
//! asked of it goes by that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_block::array::Array;
use flashyard_block::fault::FaultDevice;
use flashyard_block::migration::Migration;
use flashyard_block::pool::Pool;
use flashyard_block::{Device, SharedDevice};
use flashyard_drives::FlashDevice;
use flashyard_drives::open_channel::OpenChannel;
use flashyard_engine::Switch;
use flashyard_vfio::Function;

use crate::graph::NodeId;
use crate::published::{Channels, Faults, Published, Report};

/// An open device or pool, or a function that is offered.
#[derive(Clone)]
pub enum Node {
    /// Stores blocks.
    Blocks(SharedDevice),
    /// An emulated drive: stores blocks, and tells what it has done.
    Drive(Rc<FlashDevice>),
    /// Stands before another one and injects faults.
    Faulty(Rc<FaultDevice>),
    /// Is made of several others.
    Array(Rc<Array>),
    /// Is cut into partitions, each of which is a node that stores blocks.
    Channels(Rc<OpenChannel>),
    /// Is divided into volumes.
    Pool(Pool),
    /// Is offered to a virtual machine.
    Function(Rc<Function>),
}

impl Node {
    fn report(&self) -> Report {
        match self {
            Self::Blocks(device) => Report::Device(device.info(), None),
            Self::Drive(drive) => Report::Device(drive.info(), Some(Box::new(drive.stats()))),
            Self::Faulty(layer) => Report::Faulty(
                layer.info(),
                Faults {
                    counts: layer.counts(),
                    unflushed_bytes: layer.unflushed_bytes(),
                },
            ),
            Self::Array(array) => Report::Array(array.info(), Box::new(array.status())),
            Self::Channels(device) => Report::Channels(Channels {
                failure: device.failure(),
                is_full: device.is_full(),
                partitions: {
                    let listed = device.list().into_iter();
                    listed.map(|info| (info.name.clone(), info)).collect()
                },
            }),
            Self::Pool(pool) => Report::Pool(pool.info(), pool.tenants()),
            Self::Function(function) => Report::Function(function.report()),
        }
    }
}

struct Place {
    node: Node,
    /// In front of a device, however many volumes lie on it; made when first needed.
    switch: Option<Rc<Switch>>,
}

/// All nodes of a core, by what they are in the graph.
pub struct Nodes {
    places: RefCell<BTreeMap<NodeId, Place>>,
    /// Volumes that go elsewhere.
    migrations: RefCell<BTreeMap<NodeId, Migration>>,
    published: Published,
}

impl Nodes {
    /// None yet; what they tell goes to `published`.
    pub fn new(published: Published) -> Self {
        Self {
            places: RefCell::default(),
            migrations: RefCell::default(),
            published,
        }
    }

    /// Tells of a node, or of all.
    pub fn publish(&self, only: Option<NodeId>) {
        for (id, place) in self.places.borrow().iter() {
            if only.is_none_or(|only| only == *id) {
                self.published.put(*id, place.node.report());
            }
        }
    }

    /// Adds what was opened.
    pub fn add(&self, id: NodeId, node: Node) {
        let place = Place { node, switch: None };
        self.places.borrow_mut().insert(id, place);
    }

    /// Takes a node away, with its switch.
    pub fn remove(&self, id: NodeId) -> Option<Node> {
        let place = self.places.borrow_mut().remove(&id)?;
        self.published.forget(id);
        Some(place.node)
    }

    /// A device that stores blocks.
    pub fn device(&self, id: NodeId) -> Option<SharedDevice> {
        match self.get(id)? {
            Node::Blocks(device) => Some(device),
            Node::Drive(drive) => Some(drive),
            Node::Faulty(layer) => Some(layer),
            Node::Array(array) => Some(array),
            Node::Channels(_) | Node::Pool(_) | Node::Function(_) => None,
        }
    }

    /// A device that is made of several others.
    pub fn array(&self, id: NodeId) -> Option<Rc<Array>> {
        match self.get(id)? {
            Node::Array(array) => Some(array),
            _ => None,
        }
    }

    /// A device that injects faults.
    pub fn faulty(&self, id: NodeId) -> Option<Rc<FaultDevice>> {
        match self.get(id)? {
            Node::Faulty(layer) => Some(layer),
            _ => None,
        }
    }

    /// All devices that inject faults.
    pub fn all_faulty(&self) -> Vec<Rc<FaultDevice>> {
        let nodes = self.places.borrow();
        let layers = nodes.values().filter_map(|place| match &place.node {
            Node::Faulty(layer) => Some(Rc::clone(layer)),
            _ => None,
        });
        layers.collect()
    }

    /// A device that is an emulated drive.
    pub fn drive(&self, id: NodeId) -> Option<Rc<FlashDevice>> {
        match self.get(id)? {
            Node::Drive(drive) => Some(drive),
            _ => None,
        }
    }

    /// A device that is cut into partitions.
    pub fn channels(&self, id: NodeId) -> Option<Rc<OpenChannel>> {
        match self.get(id)? {
            Node::Channels(device) => Some(device),
            _ => None,
        }
    }

    /// A pool.
    pub fn pool(&self, id: NodeId) -> Option<Pool> {
        match self.get(id)? {
            Node::Pool(pool) => Some(pool),
            _ => None,
        }
    }

    /// From now on a volume goes elsewhere.
    pub fn add_migration(&self, volume: NodeId, migration: Migration) {
        self.migrations.borrow_mut().insert(volume, migration);
    }

    /// A volume that goes elsewhere.
    pub fn migration(&self, volume: NodeId) -> Option<Migration> {
        self.migrations.borrow().get(&volume).cloned()
    }

    /// A volume goes nowhere any more.
    pub fn remove_migration(&self, volume: NodeId) {
        self.migrations.borrow_mut().remove(&volume);
    }

    /// The switch in front of a device; what `make` gives when there is none yet. None in front of
    /// a device that is not here.
    pub fn switch(&self, device: NodeId, make: impl FnOnce() -> Rc<Switch>) -> Option<Rc<Switch>> {
        let mut nodes = self.places.borrow_mut();
        let place = nodes.get_mut(&device)?;
        Some(Rc::clone(place.switch.get_or_insert_with(make)))
    }

    /// The switch before a device, if there is one.
    pub fn known_switch(&self, device: NodeId) -> Option<Rc<Switch>> {
        self.places.borrow().get(&device)?.switch.clone()
    }

    fn get(&self, id: NodeId) -> Option<Node> {
        Some(self.places.borrow().get(&id)?.node.clone())
    }
}
