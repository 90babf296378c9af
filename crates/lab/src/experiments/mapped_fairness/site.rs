//! A mapped pool behind a switch, and tenants who use volumes of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::array::{Array, Layout, NewMember, Options};
use flashyard_block::fault::FaultDevice;
use flashyard_block::pool::{Kind, MappedPool, Pool};
use flashyard_block::{Class, Device, Health, Info, Io, IoFuture, SharedDevice, Tag, TenantId};
use flashyard_engine::{Core, Port, Switch};
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Ask, Fair, IoId, Op, Policy};
use flashyard_time::{Duration, Rng};

use super::super::redundancy::{BLOCK, Drives, Stack, target};
use super::Size;
use super::noting::{Costs, Noting};
use crate::policies;

/// I/Os of a tenant in flight.
const DEPTH: u64 = 32;
/// Blocks of a write while volumes are filled.
const FILL: u64 = 32;
/// What tenants write together before they are measured, in volumes.
const SETTLE: u64 = 3;
/// How long a tenant that writes nothing does what it does before it is measured.
const CALM: Duration = Duration::from_ms(20);

/// What a tenant does to its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    ByChance,
    InOrder,
    Reads,
}

pub(super) const WORKERS: [Worker; 3] = [Worker::ByChance, Worker::InOrder, Worker::Reads];

impl Worker {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::ByChance => "writes by chance",
            Self::InOrder => "writes in order",
            Self::Reads => "reads by chance",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ByChance => "chance",
            Self::InOrder => "order",
            Self::Reads => "reads",
        }
    }

    fn tenant(self) -> TenantId {
        TenantId(1 + self as u32)
    }
}

/// What came of one phase.
pub(super) struct Phase {
    /// Bytes per second of each of [`WORKERS`].
    pub(super) rates: [f64; WORKERS.len()],
    /// Bytes per second that the drives have written for each, or read for a reader.
    pub(super) work: [f64; WORKERS.len()],
    /// Blocks of data that the log wrote for each that a host did.
    pub(super) amplification: f64,
}

/// See the module.
pub(super) struct Site {
    rt: Rt,
    pool: MappedPool,
    switch: Rc<Switch>,
    ports: Vec<Rc<Port>>,
    /// Blocks of each volume.
    blocks: u64,
    array: Option<Rc<Array>>,
    costs: Costs,
}

impl Site {
    /// Volumes that are full, on a new pool.
    pub(super) async fn new(rt: &Rt, (stack, drives): (Stack, &Drives), size: Size) -> Self {
        let bytes = (size.mib << 20) / (stack.drives - stack.parity) as u64;
        let members = (0..stack.drives as u64).map(|number| {
            let drive = drives.another(rt, number);
            Rc::new(First { drive, bytes }) as SharedDevice
        });
        let (below, array) = assemble(rt, stack, members.collect()).await;
        let pool = Pool::create_kind(rt, below, [2; 16], Kind::Mapped, false).await;
        let Pool::Mapped(pool) = pool.expect("the drives work") else {
            unreachable!("it was made so");
        };
        let core = Core::start(rt.clone(), target(), 0);
        let switch = core.add_switch(policies::fifo());
        let blocks = pool.info().bytes / BLOCK as u64 * size.fill / 100 / WORKERS.len() as u64;
        let all = Pool::Mapped(pool.clone());
        let mut ports = Vec::new();
        for worker in WORKERS {
            let uuid = [3 + worker as u8; 16];
            let volume = all
                .create_volume(worker.name(), uuid, blocks * BLOCK as u64)
                .await;
            ports.push(Port::new(&switch, volume.expect("there is room")));
        }
        let site = Self {
            rt: rt.clone(),
            pool,
            switch,
            ports,
            blocks,
            array,
            costs: Costs::default(),
        };
        site.fill().await;
        site
    }

    async fn fill(&self) {
        for worker in WORKERS {
            for lba in (0..self.blocks).step_by(FILL as usize) {
                let blocks = FILL.min(self.blocks - lba);
                self.one(worker, Op::Write, (lba, blocks)).await;
            }
        }
    }

    /// Each tenant alone, then all of them under each policy.
    pub(super) async fn measure(self, policies: &[&str], size: Size) -> Vec<Phase> {
        let mut found = Vec::new();
        for worker in WORKERS {
            self.set_policy(policies::fifo(), true);
            found.push(self.phase(&[worker], size.span).await);
        }
        for name in policies {
            let policy = policies::named(name).unwrap_or_else(policies::fifo);
            self.set_policy(policy, true);
            found.push(self.phase(&WORKERS, size.span).await);
        }
        self.set_policy(Box::new(Fair::new()), false);
        found.push(self.phase(&WORKERS, size.span).await);
        let Self { pool, array, .. } = self;
        pool.close().await;
        if let Some(array) = array {
            array.close().await;
        }
        found
    }

    fn set_policy(&self, policy: Box<dyn Policy>, tells: bool) {
        let costs = self.costs.clone();
        self.switch.set_policy(Box::new(Noting {
            policy,
            costs,
            tells,
        }));
    }

    async fn phase(&self, workers: &[Worker], span: Duration) -> Phase {
        let work = Rc::new(Work::default());
        let tasks = workers.iter().flat_map(|&worker| {
            let ports = &self.ports;
            (0..DEPTH).map(move |task| (worker, task, ports[worker as usize].clone()))
        });
        let tasks: Vec<_> = tasks
            .map(|(worker, task, port)| {
                let (work, blocks) = (work.clone(), self.blocks);
                self.rt.spawn(run(port, worker, task, blocks, work))
            })
            .collect();
        self.settle(workers).await;
        let host = self.pool.stats();
        *work.done.borrow_mut() = [0; WORKERS.len()];
        self.costs.take();
        self.rt.sleep(span).await;
        let (done, costs, now) = (work.done.take(), self.costs.take(), self.pool.stats());
        work.stops.set(true);
        for task in tasks {
            task.await;
        }
        let host_blocks = now.host_blocks - host.host_blocks;
        let moved = now.moved_blocks - host.moved_blocks;
        let moved_for = |worker: usize| match WORKERS[worker] {
            Worker::Reads => costs[worker].read,
            Worker::ByChance | Worker::InOrder => costs[worker].written,
        };
        let rate = |bytes: u64| bytes as f64 / span.as_secs_f64();
        Phase {
            rates: done.map(rate),
            work: std::array::from_fn(|worker| rate(moved_for(worker))),
            amplification: (host_blocks + moved) as f64 / host_blocks.max(1) as f64,
        }
    }

    /// Waits until garbage collection is as it will be.
    async fn settle(&self, workers: &[Worker]) {
        self.rt.sleep(CALM).await;
        if workers == [Worker::Reads] {
            return;
        }
        let until = self.pool.stats().host_blocks + SETTLE * self.blocks;
        while self.pool.stats().host_blocks < until {
            self.rt.sleep(CALM).await;
        }
    }

    async fn one(&self, worker: Worker, op: Op, range: (u64, u64)) {
        one(&self.ports[worker as usize], worker, op, range).await;
    }
}

/// What tenants have done, in bytes, and whether they are to stop.
#[derive(Default)]
struct Work {
    done: RefCell<[u64; WORKERS.len()]>,
    /// The next block that is written in order.
    next: Cell<u64>,
    stops: Cell<bool>,
}

async fn run(port: Rc<Port>, worker: Worker, task: u64, blocks: u64, work: Rc<Work>) {
    let mut rng = Rng::new(worker as u64 * DEPTH + task);
    while !work.stops.get() {
        let (op, lba) = match worker {
            Worker::ByChance => (Op::Write, rng.below(blocks)),
            Worker::InOrder => (Op::Write, work.next.replace(work.next.get() + 1) % blocks),
            Worker::Reads => (Op::Read, rng.below(blocks)),
        };
        one(&port, worker, op, (lba, 1)).await;
        work.done.borrow_mut()[worker as usize] += BLOCK as u64;
    }
}

/// An I/O, as a command does it.
async fn one(port: &Rc<Port>, worker: Worker, op: Op, (lba, blocks): (u64, u64)) {
    let bytes = blocks * BLOCK as u64;
    let ask = Ask {
        id: IoId::NONE,
        tenant: worker.tenant(),
        class: Class::Throughput,
        op,
        bytes,
        lba,
    };
    let permit = port.admit(ask, false).await;
    let mut buf = Buf::take(bytes as usize).expect("memory for what is in flight");
    let io = match op {
        Op::Read => Io::Read { lba, into: buf },
        _ => {
            // No block holds zeroes.
            buf.fill(1 + lba as u8 / 2);
            let (data, fua) = (buf.into(), false);
            Io::Write { lba, data, fua }
        }
    };
    let ended = permit.submit(io).await;
    assert!(ended.is_ok(), "there is room, and the drives work");
    if let Some(sample) = permit.complete(true) {
        port.record(&sample);
    }
}

async fn assemble(
    rt: &Rt,
    stack: Stack,
    members: Vec<SharedDevice>,
) -> (SharedDevice, Option<Rc<Array>>) {
    if let [one] = &members[..] {
        return (one.clone(), None);
    }
    let members = members.into_iter().enumerate();
    let members = members.map(|(number, device)| NewMember {
        name: format!("ssd{number}"),
        device,
    });
    let layout = Layout {
        copies: stack.drives,
        parity: stack.parity,
        safe_read: false,
    };
    let (members, options) = (members.collect(), Options::default());
    let made = Array::create(rt, members, [1; 16], layout, options, true).await;
    let array = Rc::new(made.expect("the drives work"));
    (array.clone(), Some(array))
}

/// The first bytes of a drive: a pool of less than a drive is full sooner.
struct First {
    drive: Rc<FaultDevice>,
    bytes: u64,
}

impl Device for First {
    fn info(&self) -> Info {
        let info = self.drive.info();
        Info {
            blocks: info.blocks.min(self.bytes / u64::from(info.block_size)),
            ..info
        }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        self.drive.submit(tag, io)
    }

    fn health(&self) -> Health {
        self.drive.health()
    }

    fn is_blank(&self) -> bool {
        self.drive.is_blank()
    }
}
