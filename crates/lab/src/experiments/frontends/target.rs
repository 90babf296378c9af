//! The target of the experiment, on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use flashyard_block::{NullDevice, SharedDevice};
use flashyard_engine::Limits;
use flashyard_nvme::Nqn;
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_testbed::{BLOCK, Bench, subnqn};
use flashyard_time::Duration;
use flashyard_vfio::{Doorbells, FunctionSpec, HostId, offer};

use super::{ended, refused};
use crate::experiment::Refused;

/// Bytes of the null device.
pub(super) const BYTES: u64 = 1 << 40;
/// How often it looks whether it is to stop.
const LOOK: Duration = Duration::from_ms(50);

/// Where it is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) socket: PathBuf,
}

pub(super) struct Target {
    pub(super) place: Place,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<io::Result<()>>,
}

/// Starts it, with its socket in `folder`.
pub(super) fn start(folder: &Path, processor: Option<usize>) -> Result<Target, Refused> {
    let socket = folder.join("function.sock");
    let listener = UnixListener::bind(&socket);
    let listener = listener.map_err(|error| refused("no socket for the function", error))?;
    let (ready, bound) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let thread = thread::spawn(move || {
        let config = Config {
            processor,
            ..Config::default()
        };
        uring::run(config, |rt| serve(rt, listener, ready, asked))?
    });
    match bound.recv() {
        Ok(address) => Ok(Target {
            place: Place { address, socket },
            stop,
            thread,
        }),
        Err(gone) => match thread.join() {
            Ok(Err(error)) => Err(refused("the target does not start", error)),
            _ => Err(ended(gone)),
        },
    }
}

impl Target {
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has served, so there is nothing to be said about its end.
        let _ = self.thread.join();
    }
}

async fn serve(
    rt: Rt,
    listener: UnixListener,
    ready: mpsc::Sender<SocketAddr>,
    stop: Arc<AtomicBool>,
) -> io::Result<()> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let bench = Bench::new(vec![rt.clone()], any, rt.clone(), Limits::default());
    let null = NullDevice::new(BLOCK, BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
    let null: SharedDevice = Rc::new(null);
    bench.attach("a", 1, 0, null);
    let nqn = |text: &str| Nqn::new(text).map_err(|_| io::ErrorKind::InvalidInput);
    let spec = FunctionSpec {
        subnqn: nqn(&subnqn("a"))?,
        host: HostId {
            nqn: nqn("nqn.2026-11.dev.flashyard:function")?,
            id: [1; 16],
        },
        doorbells: Doorbells::Trapped,
        cores: 1,
    };
    let _function = offer(&bench.cores[0], spec, listener)?;
    // Who waits for it may have gone.
    let _ = ready.send(bench.addr);
    while !stop.load(Ordering::Relaxed) {
        rt.sleep(LOOK).await;
    }
    Ok(())
}
