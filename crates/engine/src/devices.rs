//! The devices at home on one core.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::DeviceHandle;
use crate::handle::Report;
use crate::switch::Port;

/// Devices that are looked at each time: many take little of the core's time, and a while to be
/// looked at.
const LOOKED_AT: usize = 32;

/// The devices of a core, each with the way to it.
#[derive(Default)]
pub(crate) struct Devices {
    list: RefCell<BTreeMap<u32, (DeviceHandle, Rc<Port>)>>,
    /// The device that is to be looked at next.
    next: Cell<u32>,
}

impl Devices {
    /// From now on `port` is the way to this device.
    pub(crate) fn add(&self, handle: DeviceHandle, port: Rc<Port>) {
        self.list.borrow_mut().insert(handle.id(), (handle, port));
    }

    /// The device has gone; whether it was here until now.
    pub(crate) fn remove(&self, device: u32) -> bool {
        self.list.borrow_mut().remove(&device).is_some()
    }

    /// The way to a device, also while it is being removed.
    pub(crate) fn port(&self, device: u32) -> Option<Rc<Port>> {
        let list = self.list.borrow();
        list.get(&device).map(|(_, port)| port.clone())
    }

    /// The way to a device, unless that is being removed.
    pub(crate) fn open_port(&self, device: u32) -> Option<Rc<Port>> {
        self.port(device).filter(|port| !port.is_closed())
    }

    /// Looks at some devices, each time at others: gives those that have changed, because they have
    /// grown or worn out, to `changed`.
    pub(crate) fn look(&self, mut changed: impl FnMut(&DeviceHandle, Report)) {
        let list = self.list.borrow();
        let next = self.next.get();
        let some = list.range(next..).chain(list.range(..next));
        for (id, (handle, port)) in some.take(LOOKED_AT) {
            let report = Report::by(&*port.device());
            if report != handle.report() {
                changed(handle, report);
            }
            self.next.set(id.wrapping_add(1));
        }
    }
}
