//! The devices of a target and the policies before them.

use std::rc::Rc;

use flashyard_block::{FileDevice, FileOptions, MemoryDevice, NullDevice, SharedDevice};
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions};
use flashyard_flash::{Profile, ssd};
use flashyard_runtime::Rt;
use flashyard_sched::{Fair, Fifo, Policy, Window};
use flashyard_testbed::Paced;

use super::super::plan::{DevicePlan, Medium};
use super::{Gate, path};
use crate::policies;

pub(super) async fn open_device(rt: Rt, plan: DevicePlan, index: usize, seed: u64) -> SharedDevice {
    let (path, block_size) = (path(index), plan.block_size);
    match plan.medium {
        Medium::Memory => Rc::new(MemoryDevice::new(block_size, plan.bytes).expect("a good size")),
        Medium::Null => Rc::new(NullDevice::new(block_size, plan.bytes).expect("a good size")),
        Medium::File => {
            let options = FileOptions {
                block_size,
                size: Some(plan.bytes),
                read_only: false,
            };
            let device = FileDevice::open(&rt, &path, options).await;
            Rc::new(device.expect("a good file"))
        }
        Medium::Block => {
            let device = FileDevice::open_block(&rt, &path, block_size, false);
            Rc::new(device.expect("a good disk"))
        }
        Medium::Flash => {
            let profile = Profile::named("ideal").expect("it ships");
            let model = ssd::Device::new(&profile, plan.bytes, seed).expect("a good size");
            let options = FlashOptions {
                block_size,
                store: Store::Memory,
                dilation: 1,
            };
            Rc::new(FlashDevice::new(&rt, model, options).expect("a good drive"))
        }
    }
}

pub(super) fn paced(device: SharedDevice, gate: &Rc<Gate>) -> SharedDevice {
    let gate = gate.clone();
    Rc::new(Paced::new(device, move |_, _: &_| {
        let gate = gate.clone();
        async move {
            while gate.shut.get() {
                gate.opened.notified().await;
            }
        }
    }))
}

pub(super) fn policy(number: u64) -> Box<dyn Policy> {
    let few = Window {
        ios: 1 + (number >> 8) as u32 % 4,
        bytes: 1 << 30,
    };
    match number % 6 {
        0 => Box::new(Fifo::new(few)),
        1 => policies::named("gimbal").unwrap_or_else(policies::fifo),
        2 => policies::named("caps").unwrap_or_else(policies::fifo),
        3 => policies::fifo(),
        _ => Box::new(Fair::new()),
    }
}
