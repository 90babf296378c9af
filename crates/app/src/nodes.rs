//! What stands on a core: a node for each open device and each open pool, with the switch in front
//! of it. A node has what its kind has, and whatever is asked of it goes by that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_block::SharedDevice;
use flashyard_block::pool::Pool;
use flashyard_drives::FlashDevice;
use flashyard_drives::open_channel::OpenChannel;
use flashyard_engine::Switch;

/// Which node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeId {
    Device(String),
    Pool(String),
}

/// An open device or pool.
#[derive(Clone)]
pub enum Node {
    /// Stores blocks.
    Blocks(SharedDevice),
    /// An emulated drive: stores blocks, and tells what it has done.
    Drive(Rc<FlashDevice>),
    /// Is cut into partitions, each of which is a node that stores blocks.
    Channels(Rc<OpenChannel>),
    /// Is divided into volumes.
    Pool(Pool),
}

struct Place {
    node: Node,
    /// In front of a device, however many volumes lie on it; made when first needed.
    switch: Option<Rc<Switch>>,
}

/// All nodes of a core.
#[derive(Default)]
pub struct Nodes(RefCell<BTreeMap<NodeId, Place>>);

impl Nodes {
    /// Adds an open device.
    pub fn add_device(&self, name: &str, node: Node) {
        self.add(NodeId::Device(name.to_owned()), node);
    }

    /// Adds an open pool.
    pub fn add_pool(&self, name: &str, pool: Pool) {
        self.add(NodeId::Pool(name.to_owned()), Node::Pool(pool));
    }

    /// Takes a device away, with its switch.
    pub fn remove_device(&self, name: &str) -> Option<Node> {
        self.remove(&NodeId::Device(name.to_owned()))
    }

    /// Takes a pool away.
    pub fn remove_pool(&self, name: &str) -> Option<Node> {
        self.remove(&NodeId::Pool(name.to_owned()))
    }

    /// A device that stores blocks.
    pub fn device(&self, name: &str) -> Option<SharedDevice> {
        match self.get(&NodeId::Device(name.to_owned()))? {
            Node::Blocks(device) => Some(device),
            Node::Drive(drive) => Some(drive),
            Node::Channels(_) | Node::Pool(_) => None,
        }
    }

    /// A device that is an emulated drive.
    pub fn drive(&self, name: &str) -> Option<Rc<FlashDevice>> {
        match self.get(&NodeId::Device(name.to_owned()))? {
            Node::Drive(drive) => Some(drive),
            _ => None,
        }
    }

    /// A device that is cut into partitions.
    pub fn channels(&self, name: &str) -> Option<Rc<OpenChannel>> {
        match self.get(&NodeId::Device(name.to_owned()))? {
            Node::Channels(device) => Some(device),
            _ => None,
        }
    }

    /// All devices that are cut into partitions, with their names.
    pub fn all_channels(&self) -> Vec<(String, Rc<OpenChannel>)> {
        let nodes = self.0.borrow();
        let channels = nodes
            .iter()
            .filter_map(|(id, place)| match (id, &place.node) {
                (NodeId::Device(name), Node::Channels(device)) => {
                    Some((name.clone(), Rc::clone(device)))
                }
                _ => None,
            });
        channels.collect()
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Option<Pool> {
        match self.get(&NodeId::Pool(name.to_owned()))? {
            Node::Pool(pool) => Some(pool),
            _ => None,
        }
    }

    /// The switch in front of a device; what `make` gives when there is none yet. None in front of
    /// a device that is not here.
    pub fn switch(&self, device: &str, make: impl FnOnce() -> Rc<Switch>) -> Option<Rc<Switch>> {
        let mut nodes = self.0.borrow_mut();
        let place = nodes.get_mut(&NodeId::Device(device.to_owned()))?;
        Some(Rc::clone(place.switch.get_or_insert_with(make)))
    }

    fn add(&self, id: NodeId, node: Node) {
        let place = Place { node, switch: None };
        self.0.borrow_mut().insert(id, place);
    }

    fn get(&self, id: &NodeId) -> Option<Node> {
        Some(self.0.borrow().get(id)?.node.clone())
    }

    fn remove(&self, id: &NodeId) -> Option<Node> {
        Some(self.0.borrow_mut().remove(id)?.node)
    }
}
