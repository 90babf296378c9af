//! I/Os per second of a core that only passes them through the engine's switch to a null device.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_block::{Class, Io, NullDevice, TenantId};
use flashyard_engine::{Core, Limits, Port, Target, TargetConfig};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Ask, IoId, Op, Policy};
use flashyard_testbed::Paced;
use flashyard_time::Duration;

use super::Load;
use super::clock::thread_ns;

const BLOCK: u32 = 4096;
const BYTES: u64 = 1 << 30;
/// Virtual time of an I/O, as if the drive did 400,000 a second.
const SERVICE: Duration = Duration::from_ns(2_500);

/// I/Os per second of thread time.
pub(super) fn run(policy: Box<dyn Policy>, load: Load, ios: u32) -> f64 {
    let turn = SERVICE.scale(u64::from(load.in_flight()), 1);
    let world = World::new(Config {
        turn: (turn, turn),
        ..Config::calm(1)
    });
    let machine = world.machine(1);
    world.run(&machine, move |rt| measure(rt, policy, load, ios))
}

async fn measure(rt: Rt, policy: Box<dyn Policy>, load: Load, ios: u32) -> f64 {
    let target = Target::new(TargetConfig {
        nqn_prefix: "nqn.2026-11.dev.flashyard".into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores: 1,
    });
    let core = Core::start(rt.clone(), target, 0);
    let switch = core.add_switch(policy);
    // Its I/Os end in the next turn, so that as many are in flight as there are tasks.
    let null = NullDevice::new(BLOCK, BYTES).expect("a good size");
    let clock = rt.clone();
    let turns = move |_, _: &_| {
        let rt = clock.clone();
        async move { rt.turn_end().await }
    };
    let device = Rc::new(Paced::new(Rc::new(null), turns));
    let port = Port::new(&switch, device);
    let left = Rc::new(Cell::new(i64::from(ios)));
    let begun = thread_ns();
    let tasks: Vec<_> = (0..load.in_flight())
        .map(|place| {
            let ask = Ask {
                id: IoId::NONE,
                tenant: TenantId(1 + place / load.depth),
                class: Class::Throughput,
                op: Op::Read,
                bytes: u64::from(BLOCK),
                lba: 0,
            };
            rt.spawn(read(port.clone(), ask, Rc::clone(&left)))
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let ran = (thread_ns() - begun).max(1);
    f64::from(ios) * 1e9 / ran as f64
}

/// As a command does it: with its turn, its stamps and its place in the ledger.
async fn read(port: Rc<Port>, ask: Ask, left: Rc<Cell<i64>>) {
    while left.replace(left.get() - 1) > 0 {
        let lba = left.get().unsigned_abs() % (BYTES / u64::from(BLOCK));
        let permit = port.admit(Ask { lba, ..ask }, false).await;
        let into = Buf::take(BLOCK as usize).expect("memory for as many as are in flight");
        let read = permit.submit(Io::Read { lba, into }).await;
        read.as_ref().expect("a null device reads everything");
        if let Some(sample) = permit.complete(read.is_ok()) {
            port.record(&sample);
        }
    }
}
