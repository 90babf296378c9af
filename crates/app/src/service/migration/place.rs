//! Where a volume is that goes: in a pool, or a whole device.

use flashyard_block::SharedDevice;

use crate::control::KindName;
use crate::graph::NodeId;
use crate::nodes::Nodes;
use crate::service::work::Work;
use crate::service::{Fault, Stack, no_such};
use crate::state::{MoveRecord, VolumeRecord};

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Nothing for a whole device.
    pub(super) pool: Option<NodeId>,
    /// The device under it.
    pub(super) device: NodeId,
    /// Its home.
    pub(super) core: usize,
    uuid: [u8; 16],
}

impl Place {
    /// The volume, on its core.
    pub(super) fn find(&self, nodes: &Nodes) -> Option<SharedDevice> {
        match self.pool {
            Some(pool) => nodes.pool(pool)?.find(self.uuid).map(|(_, volume)| volume),
            None => nodes.device(self.device),
        }
    }
}

impl Stack {
    /// Where a volume is, which is open.
    pub(super) fn place_of(&self, record: &VolumeRecord) -> Result<Place, Fault> {
        let uuid = record.uuid.into_bytes();
        let Some(pool) = &record.spec.pool else {
            let (device, _) = self.device(record.place())?;
            let core = self.home_of(device)?;
            return Ok(Place {
                pool: None,
                device,
                core,
                uuid,
            });
        };
        let (id, core) = self.pool_home(pool)?;
        let device = self.graph.device_under(id);
        Ok(Place {
            pool: Some(id),
            device: device.ok_or_else(|| no_such(KindName::Device, pool))?,
            core,
            uuid,
        })
    }

    /// The device that a volume has left, or that is under the pool that it has left.
    pub(super) fn device_left(&self, moving: &MoveRecord) -> Option<NodeId> {
        match moving.left_device() {
            Some(name) => self.device(name).ok().map(|(id, _)| id),
            None => self.graph.device_under(self.pool(&moving.pool).ok()?.0),
        }
    }
}

impl Work<'_> {
    /// Cleans a device that a volume has left, as for the next owner of it.
    pub(super) fn clear_left(&mut self, name: &str) -> Result<(), Fault> {
        let (device, _) = self.device(name)?;
        if self.is_spent(device) {
            return Ok(());
        }
        self.erase(device, 0)?;
        self.note_disposable(device)
    }
}
