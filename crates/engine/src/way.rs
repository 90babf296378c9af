//! Through a switch to a device, for those who bring an I/O without an NVMe command around it.

use std::rc::Rc;

use flashyard_block::{Io, IoError, SharedDevice, Tag};
use flashyard_runtime::{Buf, Data};
use flashyard_sched::{Ask, IoId, Op};

use crate::switch::{Port, Switch};

/// The way of one volume through a switch to its device: as a command takes it, with its turn, its
/// stamps and its place in the ledger.
#[derive(Clone)]
pub struct Way {
    port: Rc<Port>,
}

impl Way {
    /// A way to `device`, which is or lies on the one behind `switch`, on the core of both.
    pub fn new(switch: &Rc<Switch>, device: SharedDevice) -> Self {
        Self {
            port: Port::new(switch, device),
        }
    }

    /// Reads `buf.len()` bytes from block `lba`, when it is `tag`'s turn.
    pub async fn read(&self, tag: Tag, lba: u64, buf: Buf) -> Result<Data, IoError> {
        let ask = Ask {
            id: IoId::NONE,
            tenant: tag.tenant,
            class: tag.class,
            op: Op::Read,
            bytes: buf.len() as u64,
            lba,
        };
        let permit = self.port.admit(ask, false).await;
        let result = permit.submit(Io::Read { lba, into: buf }).await;
        if let Some(sample) = permit.complete(result.is_ok()) {
            self.port.record(&sample);
        }
        result.map(|done| done.data)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use flashyard_block::{NullDevice, TenantId};
    use flashyard_runtime::sim::{Config, World};
    use flashyard_sched::{Fifo, Window};

    use super::*;

    #[test]
    fn an_io_has_its_turn_and_stands_in_the_ledger_and_what_is_not_there_is_refused() {
        let world = World::new(Config::default());
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let one = Window {
                ios: 1,
                bytes: 1 << 20,
            };
            let switch = Switch::new(rt.clone(), Box::new(Fifo::new(one)));
            let device = Rc::new(NullDevice::new(4096, 1 << 20).expect("a good size"));
            let way = Way::new(&switch, device.clone());
            let tag = Tag {
                tenant: TenantId(3),
                ..Tag::default()
            };
            let order: Rc<RefCell<Vec<u64>>> = Rc::default();
            let tasks: Vec<_> = [0, 255, 256]
                .map(|lba| {
                    let (way, order) = (way.clone(), Rc::clone(&order));
                    rt.spawn(async move {
                        let buf = Buf::take(4096).expect("memory");
                        let result = way.read(tag, lba, buf).await;
                        order.borrow_mut().push(lba);
                        result.map(|data| data.len())
                    })
                })
                .into_iter()
                .collect();
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await);
            }
            assert_eq!(results, [Ok(4096), Ok(4096), Err(IoError::OutOfRange)]);
            assert_eq!(order.borrow().len(), 3);
            let why = switch.why(TenantId(3)).expect("it had I/O here");
            assert_eq!(why.ios, 3);
            assert!(switch.why(TenantId(4)).is_none());
            let account = switch.accounts().of(TenantId(3));
            assert!(Arc::ptr_eq(&account, &switch.accounts().of(TenantId(3))));
            switch.forget(TenantId(3));
            assert!(switch.why(TenantId(3)).is_none());
            let opened = switch.accounts().of(TenantId(3));
            assert!(!Arc::ptr_eq(&account, &opened), "nothing is kept of it");
        });
    }
}
