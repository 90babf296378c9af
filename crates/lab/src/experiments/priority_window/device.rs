//! A device without storage, with the latency of a fast drive for each I/O, at any depth.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::{NullDevice, SharedDevice};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::WorldHandle;
use flashyard_testbed::Paced;
use flashyard_time::{Duration, Rng};

/// Least time of an I/O, and by how much it can be longer: a `dct983` takes 85 us for a read.
const LEAST: Duration = Duration::from_us(60);
const SPREAD_NS: u64 = 40_000;

/// A device of `bytes` bytes; every I/O costs the target's core `work` besides.
pub(super) fn distant(
    block: u32,
    bytes: u64,
    rt: Rt,
    handle: WorldHandle,
    work: Duration,
    seed: u64,
) -> SharedDevice {
    let null = NullDevice::new(block, bytes).expect("a good size");
    let rng = RefCell::new(Rng::new(seed).split(0xD157));
    let pace = move |_, _: &_| {
        handle.spend(work);
        let more = Duration::from_ns(rng.borrow_mut().below(SPREAD_NS));
        let rt = rt.clone();
        async move { rt.sleep(LEAST + more).await }
    };
    Rc::new(Paced::new(Rc::new(null), pace))
}
