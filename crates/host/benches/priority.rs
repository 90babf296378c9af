//! Two tenants on one target, one of them in a hurry: how much a queue of 128 slows a queue of one, and the other way
//! round. A target on processor 0 with a memory device, one initiator thread on processor 1, 4 KiB random reads, real
//! NVMe/TCP on loopback. Each is measured alone and then both together, several times in turn, for the machine's
//! other work comes and goes; what is told is the median.
//!
//! ```text
//! cargo bench -p flashyard-host --bench priority -- [ROUNDS] [MILLISECONDS]
//! ```

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use flashyard_block::MemoryDevice;
use flashyard_engine::{
    Class, Core, Limits, NamespaceSpec, Target, TargetConfig, TenantId, TenantSpec,
};
use flashyard_host::{Association, Options, ReadInto};
use flashyard_nvme::Nqn;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_sched::{Fifo, Window};
use flashyard_time::{Duration, Histogram, Rng};

const PREFIX: &str = "nqn.2026-11.dev.flashyard";
const PORT: u16 = 4496;
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 64 << 10;
const WARM_UP: Duration = Duration::from_ms(100);

/// A tenant: its name, class and commands in flight.
type Tenant = (&'static str, Class, u32);

const HURRIED: Tenant = ("hurried", Class::Latency, 1);
const BULK: Tenant = ("bulk", Class::Throughput, 128);

fn main() {
    let args: Vec<u64> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    let rounds = args.first().copied().unwrap_or(3);
    let span = Duration::from_ms(args.get(1).copied().unwrap_or(300));
    let target = new_target();
    let server = {
        let target = Arc::clone(&target);
        thread::spawn(move || uring::run(on(0), |rt| serve(rt, target)))
    };
    let windows = [None, Some(1), Some(8), Some(32), Some(0)];
    uring::run(on(1), |rt| async move {
        println!("| window | tenant | alone, IOPS | mean us | p99 us | together, IOPS | mean us | p99 us |");
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for window in windows {
            measure(&rt, window, rounds, span).await;
        }
    })
    .expect("io_uring is allowed here");
    server
        .join()
        .expect("the target ends with its host")
        .expect("io_uring is allowed here");
}

fn on(processor: usize) -> Config {
    Config {
        processor: Some(processor),
        poll: Duration::from_ms(5),
        ..Config::default()
    }
}

fn new_target() -> Arc<Target> {
    let target = Target::new(TargetConfig {
        nqn_prefix: PREFIX.into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores: 1,
    });
    for (id, (name, class, _)) in (1..).zip([HURRIED, BULK]) {
        let spec = TenantSpec {
            id: TenantId(id),
            name: name.into(),
            hosts: vec!["*".into()],
            class,
        };
        target.set_tenant(spec).expect("a good tenant");
    }
    target
}

async fn serve(rt: Rt, target: Arc<Target>) {
    let core = Core::start(rt.clone(), Arc::clone(&target), 0);
    let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
    for (name, ..) in [HURRIED, BULK] {
        let memory = MemoryDevice::new(BLOCK, BLOCKS * u64::from(BLOCK)).expect("a good size");
        let device = core.add_device(Rc::new(memory), &switch);
        let namespace = NamespaceSpec {
            nsid: 1,
            uuid: [name.len() as u8; 16],
            device,
            read_only: false,
        };
        target.attach(name, namespace).expect("a free number");
    }
    core.listen(address()).expect("a free port");
    let mut seen = false;
    loop {
        rt.sleep(Duration::from_ms(500)).await;
        let empty = target.snapshot().controllers.is_empty();
        if seen && empty {
            return;
        }
        seen |= !empty;
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], PORT))
}

/// What a tenant got.
#[derive(Clone, Copy, Default)]
struct Got {
    iops: f64,
    mean: f64,
    p99: f64,
}

async fn measure(rt: &Rt, window: Option<u8>, rounds: u64, span: Duration) {
    let mut alone = [Vec::new(), Vec::new()];
    let mut together = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (tenant, got) in [HURRIED, BULK].into_iter().zip(&mut alone) {
            got.push(run(rt, tenant, window, span).await);
        }
        let hurried = rt.spawn({
            let rt = rt.clone();
            async move { run(&rt, HURRIED, window, span).await }
        });
        together[1].push(run(rt, BULK, window, span).await);
        together[0].push(hurried.await);
    }
    let name = match window {
        None => "of the host's choice: none".into(),
        Some(0) => "adaptive, packed".into(),
        Some(1) => "1".into(),
        Some(window) => format!("{window}, packed"),
    };
    for ((tenant, alone), together) in [HURRIED, BULK].iter().zip(alone).zip(together) {
        let (alone, together) = (median(alone), median(together));
        println!(
            "| {name} | {} QD{} | {:.0} | {:.1} | {:.1} | {:.0} ({:.2}) | {:.1} ({:.2}) | {:.1} ({:.2}) |",
            tenant.0,
            tenant.2,
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

fn median(got: Vec<Got>) -> Got {
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

/// Reads at random for a while, by an association of its own.
async fn run(rt: &Rt, (name, _, depth): Tenant, window: Option<u8>, span: Duration) -> Got {
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let options = Options {
        depth: 128,
        disable_sq_flow_control: true,
        coalescing: window.map(|window| CompletionCoalescing {
            window,
            packed: window != 1,
        }),
        ..Options::new(
            nqn(&format!("{PREFIX}:{name}")),
            nqn("nqn.2026-11.test:host"),
            [9; 16],
        )
    };
    let association = loop {
        match Association::connect(rt, address(), options.clone()).await {
            Ok(association) => break association,
            // The target's thread is still starting.
            Err(_) => rt.sleep(Duration::from_ms(20)).await,
        }
    };
    let from = rt.now() + WARM_UP;
    let until = from + span;
    let taken = Rc::new(RefCell::new(Histogram::new()));
    let workers: Vec<_> = (0..depth)
        .map(|worker| {
            let (rt, taken, queue) = (rt.clone(), Rc::clone(&taken), association.queue(0));
            rt.clone().spawn(async move {
                let mut rng = Rng::new(u64::from(worker));
                loop {
                    let begun = rt.now();
                    if begun >= until {
                        return;
                    }
                    let range = LbaRange {
                        slba: rng.below(BLOCKS),
                        blocks: 1,
                    };
                    let into = ReadInto::Discard(BLOCK as usize);
                    queue.read(1, range, into).await.expect("it is read");
                    if begun >= from {
                        let latency = rt.now().since(begun);
                        taken.borrow_mut().record(latency.as_ns());
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await;
    }
    association.close().await;
    let latency = taken.take();
    Got {
        iops: latency.count() as f64 / span.as_secs_f64(),
        mean: latency.mean() as f64 / 1e3,
        p99: latency.percentile(990_000) as f64 / 1e3,
    }
}
