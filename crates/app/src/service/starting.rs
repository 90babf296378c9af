//! Opening what there is, at the start; later, what could not be opened then, such as an encrypted
//! pool without its key or a disk that was away; and a pool takes up what its device has grown by.

use std::sync::Arc;

use super::fault::{Invalid, Unavailable};
use super::work::Work;
use super::{Fault, Subject};
use crate::control::{KindName, View};
use crate::graph::{Device, Node, NodeId};
use crate::state::StateError;

impl Work<'_> {
    /// Opens all there is, each after what it stands on.
    pub(super) fn open_everything(&mut self, unwritten: Option<StateError>) -> Result<(), Fault> {
        for id in self.graph.in_order() {
            if let Err(fault) = self.open_node(id) {
                self.note_fault(Subject::Node(id), fault);
            }
        }
        self.resume_counters(unwritten)?;
        self.renew_copy();
        Ok(())
    }

    /// Opens what stands under a number.
    fn open_node(&mut self, id: NodeId) -> Result<(), Fault> {
        match self.graph.get(id).cloned() {
            Some(Node::Device(device)) => self.open_or_clear(id, &device.spec),
            Some(Node::Pool(record)) => {
                let opened = self.open_pool(id, &record);
                opened.and_then(|()| self.remake_forgotten(id))
            }
            Some(Node::Tenant(tenant)) => {
                let added = self.target.set_tenant((&tenant.record).into());
                added.map_err(Fault::from)
            }
            Some(Node::Volume(volume)) => self.open_volume(id, &volume.record),
            // A function is offered when all else is there; a partition whose creation was cut
            // off is cleared away.
            Some(Node::Function(_)) | None => Ok(()),
        }
    }

    /// Opens a device that could not be opened, with what stands on it.
    pub(super) fn start_device(&mut self, name: &str) -> Result<View, Fault> {
        let (id, _) = self.device(name)?;
        self.start_node(id, false)?;
        self.view_one(KindName::Device, name)
    }

    /// Opens a node that could not be opened, and what stands on it. `degraded` is for an array: no
    /// device that is missing was used without those that are there.
    pub(super) fn start_node(&mut self, id: NodeId, degraded: bool) -> Result<(), Fault> {
        let closed = self.closed_on(id);
        if closed.is_empty() {
            let name = self.graph.name(id).to_owned();
            return Err(Invalid::IsStarted(name).into());
        }
        for node in closed {
            match self.start_one(node, degraded) {
                Ok(()) => self.edit(|stack| drop(stack.faults.remove(&Subject::Node(node)))),
                Err(fault) => self.note_fault(Subject::Node(node), fault),
            }
        }
        self.resume_migrations();
        let Some(why) = self.faults.get(&Subject::Node(id)).map(Arc::clone) else {
            return Ok(());
        };
        let kind = match self.graph.get(id) {
            Some(Node::Pool(_)) => KindName::Pool,
            _ => KindName::Device,
        };
        Err(Unavailable::Thing(kind, self.graph.name(id).to_owned(), why).into())
    }

    /// A node and what stands on it, as far as it is not open, each after what it stands on.
    fn closed_on(&self, id: NodeId) -> Vec<NodeId> {
        let all = self.graph.in_order().into_iter();
        let closed = all.filter(|node| self.faults.contains_key(&Subject::Node(*node)));
        closed
            .filter(|node| self.graph.all_under(*node).contains(&id))
            .collect()
    }

    fn start_one(&mut self, node: NodeId, degraded: bool) -> Result<(), Fault> {
        let device = self.graph.device(node).map(|device| device.spec.clone());
        let Some(array) = device.filter(|spec| spec.array().is_some()) else {
            return self.open_node(node);
        };
        let home = self.open_array(node, &array, degraded)?;
        self.edit(|stack| {
            let open = |device: &mut Device| device.home = Some(home);
            stack.graph.change_device(node, open);
        });
        Ok(())
    }

    /// Has a pool use what its device has grown by.
    pub(super) fn grow_pool(&mut self, name: &str) -> Result<View, Fault> {
        let (id, core) = self.pool_home(name)?;
        let grown = self.cores.call(core, move |state| async move {
            match state.nodes.pool(id) {
                Some(pool) => pool.extend().await,
                None => Ok(()),
            }
        });
        grown?;
        self.ask_all();
        self.view_one(KindName::Pool, name)
    }
}
