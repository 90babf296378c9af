//! A pool whose program is killed in the middle of a change: what the next program finds, it builds
//! upon, so that must not go with a power cut any more.

use std::path::Path;
use std::rc::Rc;

use flashyard_block::pool::{Pool, PoolError};
use flashyard_block::{FileDevice, SharedDevice};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_time::Duration;

const MIB: u64 = 1 << 20;

async fn open(rt: &Rt) -> Result<Pool, PoolError> {
    Pool::open(rt, device(rt)).await
}

fn device(rt: &Rt) -> SharedDevice {
    let device = FileDevice::open_block(rt, Path::new("/disk"), 4096, false);
    Rc::new(device.expect("it is there"))
}

/// The names of the volumes that a program finds which is started now.
fn found(world: &World, machine: &Machine) -> Vec<String> {
    world.run(machine, |rt: Rt| async move {
        let pool = open(&rt).await.expect("it opens");
        pool.list().into_iter().map(|volume| volume.name).collect()
    })
}

#[test]
fn what_was_found_after_a_kill_survives_a_power_cut() {
    let mut half_way = 0;
    for seed in 0..300 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        machine.add_disk("/disk", 8 * MIB);
        world.run(&machine, |rt: Rt| async move {
            let pool = Pool::create(&rt, device(&rt), [1; 16], false).await;
            drop(pool.expect("an empty disk"));
        });
        let rt = machine.rt(0);
        let change = rt.clone();
        rt.spawn(async move {
            let pool = open(&change).await.expect("it opens");
            drop(pool.create_volume("new", [2; 16], MIB).await);
        })
        .detach();
        world.run_for(Duration::from_us(300 + 5 * seed));
        machine.crash();
        machine.restart();
        let after_kill = found(&world, &machine);
        machine.power_cut();
        machine.restart();
        assert_eq!(found(&world, &machine), after_kill, "seed {seed}");
        half_way += usize::from(after_kill.is_empty());
    }
    assert!(
        half_way > 20 && half_way < 280,
        "{half_way} of 300 kills came too early"
    );
}
