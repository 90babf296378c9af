//! A device behind its switch as a device: whoever submits I/O here waits for its turn there, and
//! on whichever core that is. For I/O that no host has asked for, and for composites of devices
//! behind different switches.

use std::rc::Rc;

use flashyard_block::{Device, Health, Info, Io, IoFuture, Tag};
use flashyard_sched::{Ask, IoId};

use crate::DeviceHandle;
use crate::forwarding::{Ended, Forwarding, Route};

/// See the module.
pub(crate) struct Way {
    handle: DeviceHandle,
    route: Route,
    forwarding: Rc<Forwarding>,
}

impl Way {
    /// The way over `route` to the device of `handle`.
    pub(crate) fn new(handle: &DeviceHandle, route: Route, forwarding: &Rc<Forwarding>) -> Self {
        Self {
            handle: handle.clone(),
            route,
            forwarding: forwarding.clone(),
        }
    }
}

impl Device for Way {
    /// As its home core has seen it last.
    fn info(&self) -> Info {
        self.handle.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let info = self.info();
        let blocks = match io.blocks(info.block_size) {
            Ok(blocks) => blocks,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let ask = Ask {
            id: IoId::NONE,
            tenant: tag.tenant,
            class: tag.class,
            op: io.op(),
            bytes: blocks * u64::from(info.block_size),
            lba: io.lba(),
        };
        let (route, forwarding) = (self.route.clone(), self.forwarding.clone());
        IoFuture::boxed(async move {
            let (outcome, _sample): Ended = route.submit(&forwarding, ask, io).await;
            outcome
        })
    }

    fn health(&self) -> Health {
        self.handle.health()
    }
}
