//! Commands of all sizes on several cores, most of them for devices of another core, so that
//! buffers of one core end on another: hosts that abort, leave with everything in flight and come
//! again. Each command is answered, each Connect is accepted in the end, and nothing is left: in
//! the simulated world by seed, and on two real cores.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use flashyard_block::{MemoryDevice, SharedDevice};
use flashyard_engine::{Core, Limits, NamespaceSpec, Target};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData, ConnectResponse};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::channel;
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Buf, Rt, uring};
use flashyard_sched::{Fifo, Window};
use flashyard_tcp::listen;
use flashyard_testbed::{
    BLOCK, Client, Identity, Incoming, NO_DIGESTS, Site, memory, subnqn, target, tenant, tenants,
};
use flashyard_time::{Duration, Rng};

use crate::devices::Held;

/// Optimised builds look further.
const SEEDS: u64 = if cfg!(debug_assertions) { 6 } else { 200 };
const SECTOR: u32 = 512;
const DEVICE: u64 = 8 << 20;
/// Forced unit access, in Command Dword 12.
const FUA: u32 = 1 << 30;
const LARGEST: u64 = 1 << 20;
/// Commands of one association.
const VISIT: u64 = 60;
/// Commands in flight.
const DEPTH: usize = 16;

/// So little memory that commands wait for it, in pools of no more than what is promised to them.
/// Nobody waits too long: who is interrupted was refused memory.
const LIMITS: fn() -> Limits = || Limits {
    core_bytes: 8 << 20,
    tenant_bytes: 4 << 20,
    capsule_bytes: 128 << 10,
    tenant_capsule_bytes: 64 << 10,
    receive_bytes: 1 << 20,
    wait_deadline: Duration::from_secs(3_600),
    ..Limits::default()
};
const POOL: usize = (8 << 20) + (128 << 10) + (1 << 20);

/// A host with one queue.
#[derive(Clone)]
struct Guest {
    rt: Rt,
    addr: SocketAddr,
    tenant: &'static str,
    number: u8,
    /// How many devices its tenant has.
    devices: u64,
}

/// What is outstanding: the length of its data, and whether it was aborted.
type Open = BTreeMap<u16, (usize, bool)>;

impl Guest {
    /// Has `commands` answered or leaves without their answers; gives how many were refused for
    /// want of memory.
    async fn work(self, seed: u64, commands: u64) -> u64 {
        let mut rng = Rng::new(seed * 16 + u64::from(self.number));
        let (mut left, mut interrupted) = (commands, 0);
        while left > 0 {
            let (mut admin, io, mut open) = self.come().await;
            let some = left.min(1 + rng.below(VISIT));
            left -= some;
            let mut visit = Visit {
                io,
                open: &mut open,
                rng: &mut rng,
                interrupted: &mut interrupted,
            };
            for _ in 0..some {
                visit.submit(self.devices).await;
                visit.abort_some(&mut admin).await;
                while visit.open.len() >= DEPTH {
                    visit.take().await;
                }
            }
            let leaves = visit.rng.below(2) == 0;
            while !visit.open.is_empty() && !leaves {
                visit.take().await;
                visit.abort_some(&mut admin).await;
            }
        }
        interrupted
    }

    /// Connects both queues.
    async fn come(&self) -> (Client, Client, Open) {
        let (mut admin, answer) = self.connect(0, ConnectData::DYNAMIC).await;
        admin.enable().await;
        let cntlid = ConnectResponse::from_dw0(answer.dw0()).cntlid;
        let (io, _) = self.connect(1, cntlid).await;
        (admin, io, Open::new())
    }

    /// Connects a queue; as often as the answer is that the controller is busy with its last visit.
    async fn connect(&self, qid: u16, cntlid: u16) -> (Client, CompletionQueueEntry) {
        let (name, host) = (subnqn(self.tenant), Identity::number(self.number.into()));
        for _ in 0..100 {
            let connect = Connect {
                qid,
                sqsize: 31,
                ..Connect::default()
            };
            let mut client = Client::initialized(&self.rt, self.addr, NO_DIGESTS).await;
            let answer = client.connect(connect, cntlid, &name, &host).await;
            if answer.status().is_success() {
                return (client, answer);
            }
            let busy = answer.status().is(Status::CONNECT_CONTROLLER_BUSY);
            assert!(busy, "{answer:?}");
            self.rt.sleep(Duration::from_ms(100)).await;
        }
        panic!("host {} is refused for good", self.number);
    }
}

/// One association at work.
struct Visit<'a> {
    io: Client,
    open: &'a mut Open,
    rng: &'a mut Rng,
    interrupted: &'a mut u64,
}

impl Visit<'_> {
    /// Sends a command of any kind and size.
    async fn submit(&mut self, devices: u64) {
        let sectors = 1 << self.rng.below(12);
        let blocks = 1 + self.rng.below(sectors) as u32;
        let most = DEVICE / u64::from(SECTOR) - u64::from(blocks);
        let range = LbaRange {
            slba: self.rng.below(most + 1),
            blocks,
        };
        let (nsid, length) = (1 + self.rng.below(devices) as u32, blocks * SECTOR);
        let (here, there) = (
            Sgl::InCapsule { offset: 0, length },
            Sgl::Transport { length },
        );
        let fits = length <= 8 << 10;
        let sgl = if fits && self.rng.below(2) == 0 {
            here
        } else {
            there
        };
        let entry = match self.rng.below(8) {
            0..=2 => SubmissionQueueEntry::read(nsid, range, there),
            3..=5 => SubmissionQueueEntry::write(nsid, range, sgl),
            6 => SubmissionQueueEntry::compare(nsid, range, sgl),
            _ => SubmissionQueueEntry::read(nsid, range, there).with_cdw(12, (blocks - 1) | FUA),
        };
        let carries = matches!(entry.sgl(), Sgl::InCapsule { .. });
        let data = vec![0x5a; if carries { length as usize } else { 0 }];
        let cid = self.io.submit(entry, &data).await;
        self.open.insert(cid, (length as usize, false));
    }

    /// Takes the next answer or invitation.
    async fn take(&mut self) {
        match self.io.next().await {
            Incoming::Data { .. } => {}
            Incoming::R2t(r2t) => {
                let (length, aborted) = self.open[&r2t.cccid];
                if aborted && self.rng.below(2) == 0 {
                    return;
                }
                let data = vec![0xa5; length];
                let piece = 1 + self.rng.below(LARGEST) as usize;
                self.io.send_requested(&r2t, &data, piece.max(4096)).await;
            }
            Incoming::Response(answer) => {
                assert!(self.open.remove(&answer.cid()).is_some(), "{answer:?}");
                let status = answer.status();
                *self.interrupted += u64::from(status.is(Status::COMMAND_INTERRUPTED));
                let expected = [
                    Status::COMMAND_INTERRUPTED,
                    Status::ABORT_REQUESTED,
                    Status::COMPARE_FAILURE,
                ];
                let expected = expected.into_iter().any(|expected| status.is(expected));
                assert!(status.is_success() || expected, "{answer:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Aborts something now and then.
    async fn abort_some(&mut self, admin: &mut Client) {
        let some = self.open.keys().copied().nth(self.rng.below(64) as usize);
        if let Some(cid) = some {
            let answer = admin
                .command(SubmissionQueueEntry::abort(1, cid), &[])
                .await;
            assert!(answer.status().is_success(), "{answer:?}");
            self.open
                .entry(cid)
                .and_modify(|open| open.1 = answer.dw0() & 1 == 0);
        }
    }
}

/// Two hosts of each of two tenants.
fn guests(rt: &Rt, addr: SocketAddr, devices: u64) -> Vec<Guest> {
    let guests = [("a", 1), ("a", 2), ("b", 3), ("b", 4)].into_iter();
    let guests = guests.map(|(tenant, number)| Guest {
        rt: rt.clone(),
        addr,
        tenant,
        number,
        devices,
    });
    guests.collect()
}

fn device() -> SharedDevice {
    Rc::new(MemoryDevice::new(SECTOR, DEVICE).expect("a good size"))
}

#[test]
fn sizes_are_mixed_and_buffers_end_on_other_cores() {
    for seed in 0..SEEDS {
        let before = Buf::balance();
        let cores = 2 + (seed % 3) as usize;
        let config = Config {
            buffer_bytes: POOL,
            ..Config::stormy(seed)
        };
        let site = Site::with_limits(config, cores, LIMITS());
        site.run(move |bench| async move {
            for core in 0..cores {
                for tenant in ["a", "b"] {
                    bench.attach(tenant, core as u32 + 1, core, device());
                }
            }
            let rt = bench.host_rt.clone();
            let all = guests(&rt, bench.addr, cores as u64);
            let work = |guest: Guest| rt.spawn(guest.work(seed, 150));
            let tasks: Vec<_> = all.clone().into_iter().map(work).collect();
            for task in tasks {
                assert_eq!(task.await, 0, "seed {seed}: what is promised is there");
            }
            for guest in all {
                guest.come().await;
            }
            let late = rt.now() + Duration::from_secs(1);
            for core in &bench.cores {
                let ended = rt.timeout_at(late, core.shutdown()).await;
                assert!(ended.is_some(), "seed {seed}: something is left");
            }
            assert!(bench.target.snapshot().controllers.is_empty());
        });
        drop(site);
        assert_eq!(Buf::balance(), before, "seed {seed}");
    }
}

/// A Compare needs two buffers, and both are promised: many tenants that have as many in flight as
/// they may are within a pool that has no more than what is promised.
#[test]
fn a_compare_counts_for_two() {
    let limits = Limits {
        core_bytes: 4 << 20,
        capsule_bytes: 64 << 10,
        tenant_capsule_bytes: 64 << 10,
        receive_bytes: 0,
        ..Limits::default()
    };
    let config = Config {
        buffer_bytes: limits.promised_bytes(),
        ..Config::calm(1)
    };
    let site = Site::with_limits(config, 1, limits);
    site.run(|bench| async move {
        let (device, gate) = Held::around(memory(DEVICE));
        let handle = bench.attach("a", 1, 0, device);
        gate.shut();
        let mut hosts = Vec::new();
        for (number, name) in (3..).zip(["c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]) {
            let added = bench.target.set_tenant(tenant(number, name, &["*"]));
            added.expect("a good tenant");
            bench.attach_handle(name, 1, &handle);
            let (rt, bench) = (bench.host_rt.clone(), bench.clone());
            hosts.push(rt.spawn(async move {
                let (_admin, mut io) = bench.connect(name, number as u8).await;
                compare_some(&mut io).await;
            }));
        }
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        assert!(gate.issued.borrow().len() > 10, "many are in flight");
        gate.open();
        for host in hosts {
            host.await;
        }
    });
}

/// Eight Compares at a time, all of which succeed.
async fn compare_some(io: &mut Client) {
    const LENGTH: u32 = 32 * BLOCK;
    for n in 0..8 {
        let range = LbaRange {
            slba: 32 * n,
            blocks: 32,
        };
        let sgl = Sgl::Transport { length: LENGTH };
        let compare = SubmissionQueueEntry::compare(1, range, sgl);
        io.submit(compare, &[]).await;
    }
    let (mut answered, zeroes) = (0, vec![0; LENGTH as usize]);
    while answered < 8 {
        match io.next().await {
            Incoming::R2t(r2t) => io.send_requested(&r2t, &zeroes, 1 << 20).await,
            Incoming::Response(answer) => {
                assert!(answer.status().is_success(), "{answer:?}");
                answered += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What a thread with a core of the target does; gives its balance in the end.
async fn core(
    rt: Rt,
    target: Arc<Target>,
    listening: std::sync::mpsc::Sender<SocketAddr>,
    end: channel::Receiver<()>,
) -> isize {
    let core = Core::start(rt.clone(), target.clone(), rt.core());
    let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
    for name in ["a", "b"] {
        let nsid = rt.core() as u32 + 1;
        let device = core.add_device(device(), &switch);
        let spec = NamespaceSpec::new(nsid, [nsid as u8; 16], device);
        target.attach(name, spec).expect("a free number");
    }
    let any = listen(&core, "127.0.0.1:0".parse().expect("an address"));
    listening
        .send(any.expect("a free port"))
        .expect("the test waits");
    end.recv().await;
    core.shutdown().await;
    Buf::balance()
}

/// The same on two real cores.
#[test]
fn sizes_are_mixed_on_real_cores() {
    let target = target(2, LIMITS(), tenants());
    let config = |core| uring::Config {
        core,
        buffer_bytes: POOL,
        ..uring::Config::default()
    };
    let cores = [0, 1].map(|number| {
        let (stop, end) = channel::channel();
        let (listening, addr) = std::sync::mpsc::channel();
        let (config, target) = (config(number), target.clone());
        let main = move |rt: Rt| core(rt, target, listening, end);
        let thread = thread::spawn(move || uring::run(config, main).expect("io_uring works"));
        (thread, stop, addr.recv().expect("it listens"))
    });
    let addr = cores[0].2;
    let hosts = uring::run(config(2), move |rt| async move {
        let work = |guest: Guest| rt.spawn(guest.work(1, 500));
        let tasks: Vec<_> = guests(&rt, addr, 2).into_iter().map(work).collect();
        for task in tasks {
            assert_eq!(task.await, 0, "what is promised is there");
        }
        for guest in guests(&rt, addr, 2) {
            guest.come().await;
        }
    });
    hosts.expect("io_uring works");
    let balances = cores.map(|(thread, stop, _)| {
        assert!(stop.send(()).is_ok(), "the core runs");
        thread
    });
    let balances = balances.map(|thread| thread.join().expect("the core ends"));
    assert_eq!(balances.iter().sum::<isize>(), 0, "{balances:?}");
}
