//! What each core has told of its devices and pools, for readers on other threads. A core tells
//! when it is asked, and then of all that was asked for; who asks waits for it a little, and finds
//! what the core told before if it does not answer. So nothing is counted, compared or locked on
//! the path of an I/O, figures are fresh however long the core was idle, and a core that does not
//! turn stops nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_block::fault::{FaultCounts, FaultRule};
use flashyard_block::pool::PoolInfo;
use flashyard_block::{Info, IoError};
use flashyard_drives::FlashStats;
use flashyard_drives::open_channel::PartitionInfo;

use crate::graph::NodeId;

/// What a core tells of a node.
#[derive(Debug)]
pub enum Told {
    /// Of a device that stores blocks; what it has done as well if it is an emulated drive.
    Device(Info, Option<Box<FlashStats>>),
    /// Of a device that injects faults.
    Faulty(Info, Faults),
    /// Of a device that is cut into partitions.
    Channels(Channels),
    /// Of a pool.
    Pool(PoolInfo),
}

/// What a device that injects faults tells.
#[derive(Debug)]
pub struct Faults {
    /// Each fault with what it has done.
    pub counts: Vec<(FaultRule, FaultCounts)>,
    /// Bytes that a flush has lied about.
    pub unflushed_bytes: u64,
}

/// What a device that is cut into partitions tells.
#[derive(Debug)]
pub struct Channels {
    /// What its file has failed with.
    pub failure: Option<IoError>,
    /// No space is left for its file.
    pub is_full: bool,
    /// Those that can be used, by name.
    pub partitions: BTreeMap<String, PartitionInfo>,
}

/// What a core has told last. The lock is held to read or replace a pointer.
#[derive(Clone, Debug, Default)]
pub struct Published(Arc<Mutex<BTreeMap<NodeId, Arc<Told>>>>);

impl Published {
    /// What was told of a node last.
    pub fn get(&self, id: NodeId) -> Option<Arc<Told>> {
        self.lock().get(&id).cloned()
    }

    /// Puts what a node tells now in the place of what it told before.
    pub fn put(&self, id: NodeId, told: Told) {
        self.lock().insert(id, Arc::new(told));
    }

    /// Forgets a node that has gone.
    pub fn forget(&self, id: NodeId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
