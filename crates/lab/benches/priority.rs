//! Two tenants on one target, one of them latency-sensitive: how much a queue of 128 slows a queue
//! of one, and the other way round. A target on processor 0 with a memory device, one initiator
//! thread on processor 1, 4 KiB random reads, real NVMe/TCP on loopback. Each is measured alone and
//! then both together, several times in turn, since the machine's other work comes and goes; the
//! median is reported. All of that for several windows of completions.
//!
//! ```text
//! cargo bench -p flashyard-lab --bench priority -- [ROUNDS] [MILLISECONDS]
//! ```

mod rig;

use std::rc::Rc;

use flashyard_block::MemoryDevice;
use flashyard_engine::Class;
use flashyard_runtime::Rt;
use flashyard_runtime::uring;
use flashyard_sched::{Fifo, Window};
use flashyard_time::Duration;

use rig::{BLOCK, Got, Load, Rig};

const PORT: u16 = 4496;
const BYTES: u64 = 256 << 20;
const SENSITIVE: (&str, Class, u32) = ("sensitive", Class::Latency, 1);
const BULK: (&str, Class, u32) = ("bulk", Class::Throughput, 128);
/// Windows asked for: none, so many, and 0 for adaptive.
const WINDOWS: [Option<u8>; 9] = [
    None,
    Some(1),
    Some(2),
    Some(4),
    Some(8),
    Some(16),
    Some(32),
    Some(64),
    Some(0),
];

fn main() {
    let args: Vec<u64> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    let rounds = args.first().copied().unwrap_or(3);
    let span = Duration::from_ms(args.get(1).copied().unwrap_or(300));
    let tenants = [SENSITIVE, BULK].map(|(name, class, _)| (name.to_owned(), class));
    let rig = Rig::start(PORT, &tenants, |_| {
        let memory = MemoryDevice::new(BLOCK, BYTES).expect("a good size");
        (Rc::new(memory), Box::new(Fifo::new(Window::UNLIMITED)))
    });
    uring::run(rig::on(1), |rt| async move {
        println!(
            "| window | tenant | alone, IOPS | mean us | p99 us | together, IOPS | mean us | p99 us |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for window in WINDOWS {
            measure(&rt, window, rounds, span).await;
        }
    })
    .expect("io_uring is allowed here");
    rig.join();
}

async fn measure(rt: &Rt, window: Option<u8>, rounds: u64, span: Duration) {
    let loads = [SENSITIVE, BULK].map(|(tenant, _, depth)| Load {
        tenant: tenant.into(),
        depth,
        blocks: 1,
        write: false,
        window,
        bytes: BYTES,
    });
    let mut alone = [Vec::new(), Vec::new()];
    let mut together = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (load, got) in loads.iter().zip(&mut alone) {
            got.extend(rig::run(rt, PORT, std::slice::from_ref(load), span).await);
        }
        let both = rig::run(rt, PORT, &loads, span).await;
        for (got, all) in both.into_iter().zip(&mut together) {
            all.push(got);
        }
    }
    let name = match window {
        None => "none asked for".into(),
        Some(0) => "adaptive, packed".into(),
        Some(1) => "1".into(),
        Some(window) => format!("{window}, packed"),
    };
    for ((load, alone), together) in loads.iter().zip(alone).zip(together) {
        let (alone, together) = (median(&alone), median(&together));
        println!(
            "| {name} | {} QD{} | {:.0} | {:.1} | {:.1} | {:.0} ({:.2}) | {:.1} ({:.2}) | {:.1} ({:.2}) |",
            load.tenant,
            load.depth,
            alone.iops,
            alone.mean,
            alone.p99,
            together.iops,
            together.iops / alone.iops,
            together.mean,
            together.mean / alone.mean,
            together.p99,
            together.p99 / alone.p99,
        );
    }
}

fn median(got: &[Got]) -> Got {
    let of = |value: fn(&Got) -> f64| {
        let mut values: Vec<f64> = got.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Got {
        iops: of(|got| got.iops),
        mean: of(|got| got.mean),
        p99: of(|got| got.p99),
    }
}
