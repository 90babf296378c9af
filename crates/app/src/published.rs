//! What each core has reported of its devices, pools and functions, for readers on other threads. A
//! core reports when it is asked, and then of all that was asked for; who asks waits for it a
//! little, and finds what the core reported before if it does not answer. So nothing is counted,
//! compared or locked on the path of an I/O, figures are fresh however long the core was idle, and
//! a core that does not turn holds up no reader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_block::array::Status;
use flashyard_block::fault::{FaultCounts, FaultRule};
use flashyard_block::pool::{PoolInfo, TenantSpace};
use flashyard_block::{Info, IoError};
use flashyard_drives::FlashStats;
use flashyard_drives::open_channel::PartitionInfo;
use flashyard_vfio::FunctionReport;

use crate::graph::NodeId;

/// What a core reports of a node.
#[derive(Debug)]
pub enum Report {
    /// Of a device that stores blocks; what it has done as well if it is an emulated drive.
    Device(Info, Option<Box<FlashStats>>),
    /// Of a device that injects faults.
    Faulty(Info, Faults),
    /// Of a device that is made of several others.
    Array(Info, Box<Status>),
    /// Of a device that is cut into partitions.
    Channels(Channels),
    /// Of a pool, and what tenants have of it.
    Pool(PoolInfo, Vec<TenantSpace>),
    /// Of a function.
    Function(FunctionReport),
}

/// What a device that injects faults reports.
#[derive(Debug)]
pub struct Faults {
    /// Each fault with what it has done.
    pub counts: Vec<(FaultRule, FaultCounts)>,
    /// Bytes that a flush has lied about.
    pub unflushed_bytes: u64,
}

/// What a device that is cut into partitions reports.
#[derive(Debug)]
pub struct Channels {
    /// What its file has failed with.
    pub failure: Option<IoError>,
    /// No space is left for its file.
    pub is_full: bool,
    /// Those that can be used, by name.
    pub partitions: BTreeMap<String, PartitionInfo>,
}

/// What a core has reported last. The lock is held to read or replace a pointer.
#[derive(Clone, Debug, Default)]
pub struct Published(Arc<Mutex<BTreeMap<NodeId, Arc<Report>>>>);

impl Published {
    /// What was reported of a node last.
    pub fn get(&self, id: NodeId) -> Option<Arc<Report>> {
        self.lock().get(&id).cloned()
    }

    /// Puts what a node reports now in the place of what it reported before.
    pub fn put(&self, id: NodeId, report: Report) {
        self.lock().insert(id, Arc::new(report));
    }

    /// Forgets a node that has gone.
    pub fn forget(&self, id: NodeId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Report>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
