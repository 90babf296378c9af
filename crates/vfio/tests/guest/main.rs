//! Functions with guests, on the real machine: a target, a socket, and a driver that has memory of
//! its own.

mod acts;
mod data;
mod descriptors;
mod endings;
mod hostile;
mod killed;
mod lent;
mod polled;
mod queues;
mod replays;

use std::cell::Cell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flashyard_controller::HostId;
use flashyard_engine::{Alive, Limits};
use flashyard_host::vfio::{Guest, GuestError, GuestOptions};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Status};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_testbed::{Bench, Scratch, subnqn};
use flashyard_time::Duration;
use flashyard_vfio::{Doorbells, Function, FunctionSpec, offer};

/// For what was issued to return.
const PATIENCE: Duration = Duration::from_secs(20);

/// A target with functions.
#[derive(Clone)]
struct Site {
    rt: Rt,
    bench: Bench,
    scratch: Rc<Scratch>,
    next: Rc<Cell<u8>>,
}

impl Site {
    fn spec(tenant: &str, number: u8) -> FunctionSpec {
        let nqn = |text: &str| Nqn::new(text).expect("a good name");
        FunctionSpec {
            subnqn: nqn(&subnqn(tenant)),
            host: HostId {
                nqn: nqn(&format!("nqn.2026-11.test:function{number}")),
                id: [number; 16],
            },
            doorbells: Doorbells::default(),
            cores: 1,
        }
    }

    fn path(&self, number: u8) -> PathBuf {
        self.scratch.join(format!("{number}.sock"))
    }

    /// Offers a function of `tenant`; and where.
    fn offer(&self, tenant: &str) -> (Function, PathBuf) {
        self.offer_with(tenant, Doorbells::default())
    }

    /// The same with these doorbells.
    fn offer_with(&self, tenant: &str, doorbells: Doorbells) -> (Function, PathBuf) {
        let number = self.next.get() + 1;
        self.next.set(number);
        let path = self.path(number);
        let listener = UnixListener::bind(&path).expect("a socket");
        let spec = FunctionSpec {
            doorbells,
            ..Self::spec(tenant, number)
        };
        let function = offer(&self.bench.cores[0], spec, listener).expect("it listens");
        (function, path)
    }

    async fn guest(&self, path: &Path, options: GuestOptions) -> Guest {
        let started = Guest::start(&self.rt, path, options).await;
        started.expect("a function that works")
    }

    /// Waits until `done`.
    async fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = self.rt.now() + PATIENCE;
        while !done() {
            assert!(self.rt.now() < deadline, "{what}: not within {PATIENCE:?}");
            self.rt.sleep(Duration::from_ms(1)).await;
        }
    }
}

/// Runs a test on a target whose tenant `a` has a namespace in memory; nothing of its functions may
/// be left in the end.
fn run<F>(test: impl FnOnce(Site) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let ran = uring::run(Config::default(), move |rt| async move {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bench = Bench::new(vec![rt.clone()], any, rt.clone(), Limits::default());
        bench.attach_memory("a", 1);
        let site = Site {
            rt,
            bench,
            scratch: Rc::new(Scratch::new("vfio")),
            next: Rc::default(),
        };
        test(site.clone()).await;
        let target = site.bench.target.clone();
        site.until("nothing is left", || {
            target.snapshot().alive == Alive::default()
        })
        .await;
    });
    ran.expect("this machine has io_uring");
}

/// How often a test that draws by seed does so: `FLASHYARD_ROUNDS` makes it a search.
fn rounds() -> u64 {
    let times = std::env::var("FLASHYARD_ROUNDS").ok();
    times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

fn range(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

/// The status that a command has failed with.
fn failed<T>(result: Result<T, GuestError>) -> Status {
    match result {
        Err(GuestError::Status(status)) => status,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it has succeeded"),
    }
}
