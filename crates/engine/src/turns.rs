//! Turns at a switch for what the devices behind it do on their own account: it waits there as the
//! system's I/O, and is booked by what it is.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use flashyard_block::{NullDevice, Step, SystemWork, TenantId, Turn, Turns};
use flashyard_sched::{Ask, IoId};

use crate::switch::{Permit, Port, Switch};

/// Whose such work is.
const SYSTEM: TenantId = TenantId(0);

/// See the module.
struct AtSwitch {
    /// A way for each kind of work.
    ports: [Rc<Port>; SystemWork::ALL.len()],
}

/// The turns of a switch.
pub(crate) fn at(switch: &Rc<Switch>) -> Rc<dyn Turns> {
    // What has its turn does its I/O itself: nothing is behind these ways.
    let nothing = Rc::new(NullDevice::new(4096, 4096).expect("a good size"));
    let port = |work| Port::for_work(switch, nothing.clone(), work);
    Rc::new(AtSwitch {
        ports: SystemWork::ALL.map(port),
    })
}

impl Turns for AtSwitch {
    fn wait(&self, step: Step) -> Pin<Box<dyn Future<Output = Box<dyn Turn>>>> {
        let Step {
            work,
            class,
            op,
            bytes,
            lba,
        } = step;
        let ask = Ask {
            id: IoId::NONE,
            tenant: SYSTEM,
            class,
            op,
            bytes,
            lba,
        };
        let port = self.ports[work as usize].clone();
        Box::pin(async move {
            let turn: Box<dyn Turn> = Box::new(port.admit(ask, false).await);
            turn
        })
    }
}

impl Turn for Permit {
    fn begin(&mut self) {
        self.issue();
    }

    fn end(self: Box<Self>, ok: bool) {
        let _sample = self.complete(ok);
    }
}
