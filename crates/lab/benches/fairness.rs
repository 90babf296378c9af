//! The Gimbal study's scenes of readers beside writers, in real time: an emulated drive behind a
//! switch, every tenant by an association of its own over NVMe/TCP on loopback. The drive is slowed
//! down, so that what this machine's two processors cost is small beside it; rates are those of the
//! drive at its own speed.
//!
//! ```text
//! cargo bench -p flashyard-lab --bench fairness -- [MILLISECONDS] [DILATION] [PAIRS]
//! ```

mod rig;

use std::rc::Rc;

use flashyard_block::SharedDevice;
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions};
use flashyard_engine::Class;
use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_runtime::Rt;
use flashyard_runtime::uring;
use flashyard_sched::gimbal::{Flaws, Tuning};
use flashyard_sched::{Fair, Fifo, Gimbal, Policy, Window};
use flashyard_time::Duration;

use rig::{BLOCK, Load, Rig};

const PORT: u16 = 4495;
const BYTES: u64 = 1 << 30;
const POLICIES: [&str; 3] = ["fifo", "gimbal", "fair"];

/// A scene: its name, condition of the drive, blocks of an I/O, and the depth of each tenant.
const SCENES: [(&str, Condition, u32, u32); 2] = [
    ("fragmented, 4 KiB", Condition::Fragmented(100), 1, 16),
    ("clean, 128 KiB", Condition::Clean, 32, 4),
];

fn main() {
    let args: Vec<u64> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    let span = Duration::from_ms(args.first().copied().unwrap_or(300));
    let dilation = args.get(1).copied().unwrap_or(4) as u32;
    let pairs = args.get(2).copied().unwrap_or(4) as usize;
    println!(
        "| scene | policy | reader f-Util | writer f-Util | least | sum of shares | reader mean us | reader p99 us | writer mean us | writer p99 us |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (port, (policy, scene)) in (PORT - 8..).zip(
        SCENES
            .iter()
            .flat_map(|scene| POLICIES.map(|policy| (policy, scene))),
    ) {
        perform(port, policy, *scene, span, dilation, pairs);
    }
}

fn perform(
    port: u16,
    policy: &'static str,
    (scene, condition, blocks, depth): (&'static str, Condition, u32, u32),
    span: Duration,
    dilation: u32,
    pairs: usize,
) {
    let loads: Vec<Load> = (0..2 * pairs)
        .map(|n| Load {
            tenant: format!("t{n}"),
            depth,
            blocks,
            write: n >= pairs,
            window: None,
            bytes: 256 << 20,
        })
        .collect();
    let tenants: Vec<_> = loads
        .iter()
        .map(|load| (load.tenant.clone(), Class::Throughput))
        .collect();
    let rig = Rig::start(port, &tenants, move |rt| {
        (drive(rt, condition, dilation), named(policy))
    });
    uring::run(rig::on(1), move |rt| async move {
        let deep = |load: &Load| Load {
            depth: 128,
            ..load.clone()
        };
        let mut alone = Vec::new();
        for load in [&loads[0], &loads[pairs]] {
            alone.extend(rig::run(&rt, port, &[deep(load)], span).await);
        }
        let got = rig::run(&rt, port, &loads, span.scale(3, 1)).await;
        let share = |n: usize| {
            let alone = alone[usize::from(n >= pairs)].iops;
            got[n].iops / alone * (2 * pairs) as f64
        };
        let mean = |from: usize| (from..from + pairs).map(share).sum::<f64>() / pairs as f64;
        let least = (0..2 * pairs).map(share).fold(f64::MAX, f64::min);
        let worst = |from: usize, of: fn(&rig::Got) -> f64| {
            let worst = got[from..from + pairs].iter().map(of);
            worst.fold(0.0, f64::max) / f64::from(dilation)
        };
        println!(
            "| {scene}, {pairs} + {pairs} | {policy} | {:.2} | {:.2} | {least:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} |",
            mean(0),
            mean(pairs),
            f64::midpoint(mean(0), mean(pairs)),
            worst(0, |got| got.mean),
            worst(0, |got| got.p99),
            worst(pairs, |got| got.mean),
            worst(pairs, |got| got.p99),
        );
    })
    .expect("io_uring is allowed here");
    rig.join();
}

fn drive(rt: &Rt, condition: Condition, dilation: u32) -> SharedDevice {
    let profile = Profile::named("dct983").expect("it ships");
    let model = Device::in_condition(&profile, BYTES, 1, condition).expect("it fits");
    let options = FlashOptions {
        block_size: BLOCK,
        store: Store::Pattern,
        dilation,
    };
    Rc::new(FlashDevice::new(rt, model, options).expect("a good size"))
}

fn named(policy: &str) -> Box<dyn Policy> {
    match policy {
        "fifo" => Box::new(Fifo::new(Window::UNLIMITED)),
        "gimbal" => Box::new(Gimbal::new(Tuning::default(), Flaws::default())),
        _ => Box::new(Fair::new()),
    }
}
