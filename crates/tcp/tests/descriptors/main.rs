//! Descriptors and memory of a target on the real machine: connections that have ended leave
//! nothing behind, however they ended, and a target that runs out of descriptors goes on when there
//! are some. What belongs to the whole process is counted here, so the tests of this program run
//! one at a time.

use std::cell::RefCell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flashyard_engine::{Alive, DeviceHandle, Limits, Snapshot};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::tcp::ICReq;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_testbed::{
    BLOCK, Bench, Client, Identity, Incoming, NO_DIGESTS, PATIENCE, subnqn, tenant,
};
use flashyard_time::Duration;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections with each ending.
const MANY: usize = if cfg!(debug_assertions) {
    2_000
} else {
    10_000
};
/// Hosts that come at a time.
const AT_ONCE: usize = 50;
/// Bytes that it may look like: what is kept of each connection is twice as much.
const NOISE: usize = MANY << 10;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a host and its connections end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It says nothing and closes.
    Silent,
    /// It closes after ICReq.
    Initialized,
    /// Its Connect is refused.
    Refused,
    /// It has a discovery controller.
    Discovery,
    /// It has a controller.
    Admin,
    /// It has an I/O queue as well, and has read.
    Io,
    /// It closes with commands in flight and answers that it has not read.
    InFlight,
    /// It breaks the rules on its I/O queue.
    Violation,
    /// Its tenant is removed.
    TenantRemoved,
    /// It takes too long to say anything.
    Deadline,
}

const ENDINGS: [(Ending, usize); 10] = [
    (Ending::Silent, MANY),
    (Ending::Initialized, MANY),
    (Ending::Refused, MANY),
    (Ending::Discovery, MANY),
    (Ending::Admin, MANY),
    (Ending::Io, MANY),
    (Ending::InFlight, MANY),
    (Ending::Violation, MANY),
    (Ending::TenantRemoved, MANY),
    (Ending::Deadline, 10 * AT_ONCE),
];

#[derive(Clone)]
struct Site {
    rt: Rt,
    bench: Bench,
    device: Rc<RefCell<DeviceHandle>>,
}

impl Site {
    fn new(rt: Rt, limits: Limits) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bench = Bench::new(vec![rt.clone()], any, rt.clone(), limits);
        let device = bench.attach_memory("a", 1);
        Self {
            rt,
            bench,
            device: Rc::new(RefCell::new(device)),
        }
    }

    async fn connected(&self, host: u8) -> (Client, Client) {
        self.bench.connect_with("a", host, NO_DIGESTS, 32).await
    }

    async fn asks_for(&self, host: u8, subnqn: &str) -> Client {
        let mut client = Client::initialized(&self.rt, self.bench.addr, NO_DIGESTS).await;
        let connect = Connect {
            sqsize: 31,
            ..Connect::default()
        };
        let host = Identity::number(host.into());
        client
            .connect(connect, ConnectData::DYNAMIC, subnqn, &host)
            .await;
        client
    }

    /// A host's life.
    async fn host(self, ending: Ending, number: u8) {
        match ending {
            Ending::Silent => drop(Client::silent(&self.rt, self.bench.addr).await),
            Ending::Initialized => {
                drop(Client::initialized(&self.rt, self.bench.addr, NO_DIGESTS).await);
            }
            Ending::Refused => drop(self.asks_for(number, &subnqn("none")).await),
            Ending::Discovery => {
                drop(self.asks_for(number, &Nqn::DISCOVERY.to_string()).await);
            }
            Ending::Admin => drop(self.bench.admin("a", number).await),
            Ending::Io => {
                let (_admin, mut io) = self.connected(number).await;
                assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
            }
            Ending::InFlight => {
                let (_admin, mut io) = self.connected(number).await;
                let range = LbaRange {
                    slba: 0,
                    blocks: 32,
                };
                let sgl = Sgl::Transport { length: 32 * BLOCK };
                for _ in 0..4 {
                    io.submit(SubmissionQueueEntry::read(1, range, sgl), &[])
                        .await;
                    io.submit(SubmissionQueueEntry::write(1, range, sgl), &[])
                        .await;
                }
            }
            Ending::Violation => {
                let (_admin, mut io) = self.connected(number).await;
                io.send_bytes(&ICReq::default().encode()).await;
                assert!(matches!(io.next().await, Incoming::TermReq(_)));
            }
            Ending::TenantRemoved => {
                let (mut admin, mut io) = self.connected(number).await;
                admin.closed().await;
                io.closed().await;
            }
            Ending::Deadline => {
                let mut client = Client::silent(&self.rt, self.bench.addr).await;
                client.closed().await;
            }
        }
    }

    /// Some hosts at a time.
    async fn hosts(&self, ending: Ending, round: usize) {
        let hosts = (1..=AT_ONCE as u8).map(|number| self.clone().host(ending, number));
        let hosts: Vec<_> = hosts.map(|host| self.rt.spawn(host)).collect();
        if let Ending::TenantRemoved = ending {
            self.until(|now| now.alive.queues == 2 * AT_ONCE).await;
            let target = &self.bench.target;
            target.remove_tenant("a").expect("it is there");
            let again = target.set_tenant(tenant(3 + round as u32, "a", &["*"]));
            again.expect("a good tenant");
            let former = self.device.replace(self.bench.attach_memory("a", 1));
            self.bench.cores[0].remove_device(&former).await;
        }
        for host in hosts {
            host.await;
        }
        self.nothing_left().await;
    }

    async fn nothing_left(&self) {
        self.until(|now| now.alive == Alive::default()).await;
    }

    /// Waits, for as long as any machine may take.
    async fn until(&self, is_so: impl Fn(&Snapshot) -> bool) {
        let begun = self.rt.now();
        loop {
            let snapshot = self.bench.target.snapshot();
            if is_so(&snapshot) {
                return;
            }
            let waited = self.rt.now().since(begun);
            assert!(waited < PATIENCE / 10, "{snapshot:?}");
            self.rt.sleep(Duration::from_ms(1)).await;
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("a Linux").count()
}

/// Bytes of memory that the process has.
fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = status.split(' ').nth(1).expect("its second number");
    pages.parse::<usize>().expect("a number") * rustix::param::page_size()
}

fn run<F: Future + 'static>(main: impl FnOnce(Rt) -> F) -> F::Output {
    uring::run(Config::default(), main).expect("this machine has io_uring")
}

#[test]
fn connections_leave_nothing_behind() {
    let _alone = alone();
    run(|rt| async move {
        let limits = Limits {
            initialize_deadline: Duration::from_ms(100),
            ..Limits::default()
        };
        let site = Site::new(rt, limits);
        for (ending, count) in ENDINGS {
            // What is kept for the next is there after the first ones.
            for round in 0..10 {
                site.hosts(ending, round).await;
            }
            let before = (descriptors(), memory());
            for round in 0..count / AT_ONCE {
                site.hosts(ending, 10 + round).await;
            }
            let after = (descriptors(), memory());
            assert_eq!(after.0, before.0, "descriptors, {ending:?}");
            let more = after.1.saturating_sub(before.1);
            assert!(more < NOISE, "{more} bytes more, {ending:?}");
        }
    });
}

/// Hosts that come while the system has no descriptor left are served when it has, and whoever runs
/// the target can see what is the matter.
#[test]
fn a_target_without_descriptors_goes_on_when_there_are_some() {
    let _alone = alone();
    run(|rt| async move {
        let site = Site::new(rt.clone(), Limits::default());
        let (_admin, mut io) = site.connected(1).await;
        // The system takes them, before the target has.
        let waiting: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(site.bench.addr))
            .collect();
        assert!(waiting.iter().all(Result::is_ok));
        let limit = getrlimit(Resource::Nofile);
        let lowest = Rlimit {
            current: Some(descriptors() as u64 - 1),
            ..limit
        };
        setrlimit(Resource::Nofile, lowest).expect("less is always allowed");
        site.until(|now| now.accept_error.is_some()).await;
        assert!(
            io.read(1, 0, 1, BLOCK).await.is_ok(),
            "who is there is served"
        );
        assert!(site.bench.target.snapshot().unconnected < waiting.len());
        setrlimit(Resource::Nofile, limit).expect("as it was");
        site.until(|now| now.unconnected == waiting.len()).await;
        drop(site.connected(2).await);
        assert!(site.bench.target.snapshot().accept_error.is_none());
    });
}

/// A core that is shut down closes all it has.
#[test]
fn a_core_that_ends_leaves_no_descriptor() {
    let _alone = alone();
    run(|rt| async move {
        let before = descriptors();
        for _ in 0..20 {
            let site = Site::new(rt.clone(), Limits::default());
            let mut hosts = Vec::new();
            for number in 1..=20 {
                hosts.push(site.connected(number).await);
                hosts.push((
                    Client::silent(&rt, site.bench.addr).await,
                    Client::initialized(&rt, site.bench.addr, NO_DIGESTS).await,
                ));
            }
            site.bench.cores[0].shutdown().await;
            for (admin, io) in &mut hosts {
                admin.closed().await;
                io.closed().await;
            }
            drop(hosts);
            site.nothing_left().await;
            assert_eq!(descriptors(), before);
        }
    });
}

/// Nor does one whose runtime just ends.
#[test]
fn a_runtime_that_ends_leaves_no_descriptor() {
    let _alone = alone();
    // What a thread has from its first runtime on.
    run(|_| async {});
    let before = descriptors();
    run(|rt| async move {
        let site = Site::new(rt, Limits::default());
        let (_admin, mut io) = site.connected(1).await;
        assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
    });
    assert_eq!(descriptors(), before);
}
