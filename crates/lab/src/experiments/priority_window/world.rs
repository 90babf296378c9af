//! A target and two hosts in a simulated world: the real engine and host library, over a network
//! and processors whose costs are parameters.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_engine::{
    Class, Core, Limits, NamespaceSpec, SubsystemNames, Target, TargetConfig, TenantId, TenantSpec,
};
use flashyard_host::{Association, Options, Queue, ReadInto};
use flashyard_nvme::Nqn;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::sim::{Config, Machine, Toll, World, WorldHandle};
use flashyard_runtime::{Data, Rt};
use flashyard_sched::{Fifo, Op, Window};
use flashyard_tcp::listen;
use flashyard_time::{Duration, Rng, Time};

use super::device::distant;
use crate::bench::fold;
use crate::measure::{Sample, Tally};

const PREFIX: &str = "nqn.2026-11.dev.flashyard";
const BLOCK: u32 = 4096;
const BYTES: u64 = 1 << 30;
/// Entries of a queue: a quarter of them is the most that the target holds, and the largest window
/// is 64.
const ENTRIES: u16 = 256;

/// One thread a side that only sends and receives such messages of 4 KiB did 1.8 M a second, or
/// 0.55 us each; a target and a host of ours at a depth of 128 did 0.96 M, 1.04 us each, of which
/// the send and the receive that many share are a tenth (docs/performance.md).
const WORK: Duration = Duration::from_ns(900);
/// A send of its own for each answer cost 3 to 4 us over loopback, where the call runs the
/// receiver's half of the stack as well: these three are 3.5 us in sum.
const SEND: Duration = Duration::from_ns(2_000);
const PIECE: Duration = Duration::from_ns(1_000);
const RECEIVE: Duration = Duration::from_ns(500);
/// Payload of a packet of 1,500 bytes, with time stamps in the header of TCP.
const PAYLOAD: usize = 1_448;
/// Preamble, Ethernet header, check sequence and gap (38), IP (20), TCP (32).
const OVERHEAD: usize = 90;

/// One encounter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    /// Bits per second of each machine's line.
    pub(super) line: u64,
    /// Whether the tenants write instead of reading.
    pub(super) write: bool,
    /// What the hosts ask for.
    pub(super) asked: Option<CompletionCoalescing>,
    pub(super) seed: u64,
    pub(super) warm_up: Duration,
    pub(super) span: Duration,
}

/// A tenant: its name, its class, how much it has in flight.
struct Tenant(&'static str, Class, u32);

const TENANTS: [Tenant; 2] = [
    Tenant("bulk", Class::Throughput, 128),
    Tenant("latency", Class::Latency, 1),
];

/// What came of it.
pub(super) struct Measured {
    pub(super) bulk: Tally,
    pub(super) sensitive: Tally,
    /// Sends of all machines per I/O.
    pub(super) sends: f64,
    pub(super) digest: u64,
}

/// What the tasks of a tenant write down.
struct Book {
    tally: RefCell<Tally>,
    digest: Cell<u64>,
}

impl Scenario {
    /// Lets it happen.
    pub(super) fn measure_all(self) -> Measured {
        let world = World::new(self.config());
        let server = world.machine(1);
        let hosts = TENANTS.map(|_| world.machine(1));
        let (_core, addr) = serve(&server, world.handle(), self.seed);
        let handle = world.handle();
        let rts = hosts.each_ref().map(|host| host.rt(0));
        world.run(&hosts[0], move |_| self.meet(rts, addr, handle))
    }

    fn config(self) -> Config {
        Config {
            bandwidth: self.line / 8,
            toll: Toll {
                send: SEND,
                receive: RECEIVE,
                piece: PIECE,
                payload: PAYLOAD,
                overhead: OVERHEAD,
                shared: true,
            },
            ..Config::calm(self.seed)
        }
    }

    async fn meet(self, rts: [Rt; 2], addr: SocketAddr, handle: WorldHandle) -> Measured {
        let mut associations = Vec::new();
        for (rt, tenant) in rts.iter().zip(&TENANTS) {
            let task = rt.spawn(self.connect(rt.clone(), addr, tenant.0));
            associations.push(task.await);
        }
        let rt = &rts[0];
        let from = rt.now() + self.warm_up;
        let books = TENANTS.map(|_| {
            Rc::new(Book {
                tally: RefCell::new(Tally::new(from, self.span, Duration::ZERO)),
                digest: Cell::new(0),
            })
        });
        let until = from + self.span;
        let mut workers = Vec::new();
        for (((rt, tenant), association), book) in
            rts.iter().zip(&TENANTS).zip(&associations).zip(&books)
        {
            for worker in 0..tenant.2 {
                let worker = Worker {
                    rt: rt.clone(),
                    queue: association.queue(0),
                    book: Rc::clone(book),
                    handle: handle.clone(),
                    rng: Rng::new(self.seed).split(u64::from(worker)),
                };
                workers.push(rt.spawn(worker.work(self.write, until)));
            }
        }
        rt.sleep_until(from).await;
        let sends = handle.sends();
        rt.sleep(self.span).await;
        let sends = (handle.sends() - sends) as f64;
        for worker in workers {
            worker.await;
        }
        let [bulk, sensitive] = books.each_ref().map(|book| book.tally.borrow().clone());
        let ios = (bulk.iops() + sensitive.iops()) * self.span.as_secs_f64();
        Measured {
            bulk,
            sensitive,
            sends: sends / ios.max(1.0),
            digest: books
                .iter()
                .fold(0, |digest, book| fold(digest, book.digest.get())),
        }
    }

    async fn connect(self, rt: Rt, addr: SocketAddr, tenant: &str) -> Association {
        let nqn = |text: &str| Nqn::new(text).expect("a good name");
        let options = Options {
            depth: ENTRIES - 1,
            disable_sq_flow_control: true,
            coalescing: self.asked,
            ..Options::new(
                nqn(&format!("{PREFIX}:{tenant}")),
                nqn("nqn.2026-11.test:host"),
                [9; 16],
            )
        };
        let connected = Association::connect(&rt, addr, options).await;
        connected.expect("a calm world, and a target that is there")
    }
}

/// One that does I/O for a tenant.
struct Worker {
    rt: Rt,
    queue: Queue,
    book: Rc<Book>,
    handle: WorldHandle,
    rng: Rng,
}

impl Worker {
    /// One I/O after another until `until`.
    async fn work(mut self, write: bool, until: Time) {
        let op = if write { Op::Write } else { Op::Read };
        loop {
            let begun = self.rt.now();
            if begun >= until {
                return;
            }
            let range = LbaRange {
                slba: self.rng.below(BYTES / u64::from(BLOCK)),
                blocks: 1,
            };
            let done = if write {
                let data = Data::Zeroes(BLOCK as usize);
                self.queue.write(1, range, data, false).await
            } else {
                let into = ReadInto::Discard(BLOCK as usize);
                self.queue.read(1, range, into).await.map(drop)
            };
            done.expect("nothing fails in a calm world");
            self.handle.spend(WORK);
            let at = self.rt.now();
            if at <= until {
                self.book.record(at, begun, op);
            }
        }
    }
}

impl Book {
    fn record(&self, at: Time, begun: Time, op: Op) {
        let total = at.since(begun);
        self.tally.borrow_mut().record(&Sample {
            at,
            op,
            bytes: BLOCK.into(),
            total,
            flight: total,
            held: Duration::ZERO,
            device: Duration::ZERO,
        });
        self.digest
            .set(fold(fold(self.digest.get(), at.as_ns()), total.as_ns()));
    }
}

/// A target of one core whose tenants share a device.
fn serve(server: &Machine, handle: WorldHandle, seed: u64) -> (Rc<Core>, SocketAddr) {
    let target = Target::new(TargetConfig {
        nqn_prefix: PREFIX.into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores: 1,
    });
    let rt = server.rt(0);
    let core = Core::start(rt.clone(), target.clone(), 0);
    let device = distant(BLOCK, BYTES, rt, handle, WORK, seed);
    let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
    for (number, Tenant(name, class, _)) in (1..).zip(&TENANTS) {
        let tenant = TenantSpec {
            id: TenantId(u32::from(number)),
            name: (*name).into(),
            hosts: vec!["*".into()],
            class: *class,
            names: SubsystemNames::default(),
        };
        target.set_tenant(tenant).expect("a good tenant");
        let namespace =
            NamespaceSpec::new(1, [number; 16], core.add_device(device.clone(), &switch));
        target.attach(name, namespace).expect("a free number");
    }
    let addr = SocketAddr::new(server.ip(), 4420);
    listen(&core, addr).expect("a free port");
    (core, addr)
}
