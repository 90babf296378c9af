//! A test rig: a target on processor 0 and hosts in one thread on processor 1, over real NVMe/TCP
//! on loopback.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use flashyard_block::SharedDevice;
use flashyard_engine::{Class, Core, Limits, NamespaceSpec, Target, TenantSpec};
use flashyard_host::{Association, Options, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Data, Rt};
use flashyard_sched::Policy;
use flashyard_tcp::listen;
use flashyard_testbed::{target, tenant};
use flashyard_time::{Duration, Histogram, Rng};

const WARM_UP: Duration = Duration::from_ms(100);

/// Bytes of a block.
pub const BLOCK: u32 = 4096;

/// What a tenant does, and how.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name.
    pub tenant: String,
    /// Commands in flight.
    pub depth: u32,
    /// Blocks of each.
    pub blocks: u32,
    /// Whether it writes.
    pub write: bool,
    /// Window of completions asked for; 0 is adaptive.
    pub window: Option<u8>,
    /// Bytes that it uses, from the start of its device on.
    pub bytes: u64,
}

/// What a tenant got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Got {
    pub iops: f64,
    pub mean: f64,
    pub p99: f64,
}

/// A device behind a switch, and the tenants that have the whole of it.
pub type Served = (SharedDevice, Box<dyn Policy>, Vec<String>);

/// A running target.
pub struct Rig {
    target: Arc<Target>,
    server: JoinHandle<()>,
}

impl Rig {
    /// Starts a target on which every tenant has the whole of the device that `make` gives, behind
    /// one switch. It ends when the last host has gone.
    pub fn start(
        port: u16,
        tenants: &[(String, Class)],
        make: impl FnOnce(&Rt) -> (SharedDevice, Box<dyn Policy>) + Send + 'static,
    ) -> Self {
        let names = tenants.iter().map(|(name, _)| name.clone()).collect();
        Self::start_on(port, tenants, |rt| async move {
            let (device, policy) = make(&rt);
            vec![(device, policy, names)]
        })
    }

    /// The same on the devices that `make` gives, each behind a switch of its own.
    pub fn start_on<F: Future<Output = Vec<Served>> + 'static>(
        port: u16,
        tenants: &[(String, Class)],
        make: impl FnOnce(Rt) -> F + Send + 'static,
    ) -> Self {
        let specs = (1..).zip(tenants).map(|(id, (name, class))| TenantSpec {
            class: *class,
            ..tenant(id, name, &["*"])
        });
        let target = target(1, Limits::default(), specs);
        let server = {
            let target = Arc::clone(&target);
            thread::spawn(move || {
                uring::run(on(0), move |rt| serve(rt, target, port, make))
                    .expect("io_uring is allowed here");
            })
        };
        Self { target, server }
    }

    /// Waits for its end.
    pub fn join(self) {
        drop(self.target);
        self.server.join().expect("the target ends with its hosts");
    }
}

/// A core that polls, on a processor of its own.
pub fn on(processor: usize) -> Config {
    Config {
        processor: Some(processor),
        poll: Duration::from_ms(5),
        ..Config::default()
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn serve<F: Future<Output = Vec<Served>>>(
    rt: Rt,
    target: Arc<Target>,
    port: u16,
    make: impl FnOnce(Rt) -> F,
) {
    let core = Core::start(rt.clone(), Arc::clone(&target), 0);
    let mut number = 0;
    for (device, policy, names) in make(rt.clone()).await {
        let switch = core.add_switch(policy);
        for name in names {
            number += 1;
            let namespace = NamespaceSpec::new(
                1,
                [number; 16],
                core.add_device(Rc::clone(&device), &switch),
            );
            target.attach(&name, namespace).expect("a free number");
        }
    }
    listen(&core, address(port)).expect("a free port");
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

/// Puts all loads on the target at once, each by an association of its own, and tells what each got
/// in `span`.
pub async fn run(rt: &Rt, port: u16, loads: &[Load], span: Duration) -> Vec<Got> {
    let mut associations = Vec::new();
    for load in loads {
        associations.push(connect(rt, port, load).await);
    }
    let from = rt.now() + WARM_UP;
    let running: Vec<_> = loads
        .iter()
        .zip(&associations)
        .map(|(load, association)| start(rt, load, association, (from, span)))
        .collect();
    let mut got = Vec::new();
    for (workers, latency) in running {
        for worker in workers {
            worker.await;
        }
        let latency = latency.take();
        got.push(Got {
            iops: latency.count() as f64 / span.as_secs_f64(),
            mean: latency.mean() as f64 / 1e3,
            p99: latency.percentile(990_000) as f64 / 1e3,
        });
    }
    for association in associations {
        association.close().await;
    }
    got
}

async fn connect(rt: &Rt, port: u16, load: &Load) -> Association {
    let options = Options {
        depth: 128,
        disable_sq_flow_control: true,
        coalescing: load.window.map(|window| CompletionCoalescing {
            window,
            packed: window != 1,
        }),
        ..flashyard_testbed::options(&load.tenant, 9)
    };
    loop {
        match Association::connect(rt, address(port), options.clone()).await {
            Ok(association) => return association,
            // The target's thread is still starting.
            Err(_) => rt.sleep(Duration::from_ms(20)).await,
        }
    }
}

type Running = (Vec<flashyard_runtime::Task<()>>, Rc<RefCell<Histogram>>);

fn start(
    rt: &Rt,
    load: &Load,
    association: &Association,
    (from, span): (flashyard_time::Time, Duration),
) -> Running {
    let latency = Rc::new(RefCell::new(Histogram::new()));
    let until = from + span;
    let places = load.bytes / u64::from(BLOCK * load.blocks);
    let workers = (0..load.depth).map(|worker| {
        let (rt, latency, load) = (rt.clone(), Rc::clone(&latency), load.clone());
        let queue = association.queue(0);
        rt.clone().spawn(async move {
            let mut rng = Rng::new(u64::from(worker));
            let bytes = (load.blocks * BLOCK) as usize;
            loop {
                let begun = rt.now();
                if begun >= until {
                    return;
                }
                let range = LbaRange {
                    slba: rng.below(places) * u64::from(load.blocks),
                    blocks: load.blocks,
                };
                if load.write {
                    let data = Data::Zeroes(bytes);
                    queue.write(1, range, data, false).await.expect("written");
                } else {
                    let into = ReadInto::Discard(bytes);
                    queue.read(1, range, into).await.expect("read");
                }
                if begun >= from {
                    latency.borrow_mut().record(rt.now().since(begun).as_ns());
                }
            }
        })
    });
    (workers.collect(), latency)
}
