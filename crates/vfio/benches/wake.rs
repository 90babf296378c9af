//! From idle: how long a function that sleeps takes for an I/O, and what of that is the machine's.
//! In turns within one run, each sample after a pause in which both processors are idle:
//!
//! - a thread that sleeps in a read of an event counter, from the write that wakes it to its first
//!   instruction, and to the end of its answer, for which the first one sleeps: no target, no ring;
//! - a function whose guest polls: from its doorbell to the first instruction of the core's turn,
//!   and from there to the completion, which is the target's alone;
//! - a function whose guest sleeps until the interrupt: all of it.
//!
//! `cargo bench -p flashyard-vfio --bench wake -- [samples of each]`; on a busy machine under
//! `chrt -f 10`, or what is measured is the wait for a processor.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use flashyard_block::{Device, Info, Io, IoFuture, LentIo, NullDevice, SharedDevice, Tag};
use flashyard_controller::HostId;
use flashyard_engine::Limits;
use flashyard_host::vfio::{Guest, GuestOptions, PolledFunction, PolledOptions};
use flashyard_host::{Payload, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_testbed::{BLOCK, Bench, Scratch, subnqn};
use flashyard_time::{Duration, Time};
use flashyard_vfio::{Doorbells, Function, FunctionSpec, offer};
use rustix::event::{EventfdFlags, eventfd};

/// Before each sample.
const PAUSE: Duration = Duration::from_ms(2);
/// Samples of one kind before those of the next.
const ROUND: usize = 50;

/// Nanoseconds.
#[derive(Default)]
struct Samples {
    bare_wake: Vec<u64>,
    bare_round: Vec<u64>,
    wake: Vec<u64>,
    target: Vec<u64>,
    whole: Vec<u64>,
}

fn main() {
    let wanted = std::env::args().find_map(|arg| arg.parse().ok());
    let rounds = wanted.unwrap_or(2 * ROUND).div_ceil(ROUND);
    let scratch = Scratch::new("wake");
    let path = |name| scratch.file(name, "").with_extension("sock");
    let sockets = ["polled", "sleeping"].map(path);
    let turn = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let target = {
        let (sockets, turn, done) = (sockets.clone(), turn.clone(), done.clone());
        thread::spawn(move || on(0, Duration::ZERO, |rt| serve(rt, sockets, turn, done)))
    };
    while !sockets.iter().all(|socket| socket.exists()) {
        thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut samples = Samples::default();
    for _ in 0..rounds {
        bare(&mut samples);
        samples = polled(samples, sockets[0].clone(), turn.clone());
        samples = sleeping(samples, sockets[1].clone());
    }
    done.store(true, Ordering::Relaxed);
    target.join().expect("it ends");
    samples.print();
}

/// Runs on a processor of its own, polling for so long.
fn on<F: Future + 'static>(
    processor: usize,
    poll: Duration,
    main: impl FnOnce(Rt) -> F,
) -> F::Output {
    let config = Config {
        processor: Some(processor),
        poll,
        ..Config::default()
    };
    uring::run(config, main).expect("io_uring is allowed here")
}

impl Samples {
    fn print(mut self) {
        println!("from idle, us                                   p25      p50      p75");
        let rows = [
            (
                "a bare thread, to its first instruction",
                &mut self.bare_wake,
            ),
            ("a bare thread, there and back", &mut self.bare_round),
            ("function, to the first instruction", &mut self.wake),
            ("function, from there to the completion", &mut self.target),
            ("function, to the guest that sleeps", &mut self.whole),
        ];
        let mut medians = Vec::new();
        for (what, times) in rows {
            times.sort_unstable();
            let [p25, p50, p75] = [1, 2, 3].map(|part| times[times.len() * part / 4] as f64 / 1e3);
            println!("{what:42} {p25:8.1} {p50:8.1} {p75:8.1}");
            medians.push(p50);
        }
        println!(
            "wake-up, to that of a bare thread: {:.2}",
            medians[2] / medians[0]
        );
        println!(
            "all of it, to a bare thread, there and back: {:.2}",
            medians[4] / medians[1]
        );
    }
}

/// A null device that says at which time the turn began in which it got its last I/O.
struct Stamping {
    null: NullDevice,
    rt: Rt,
    turn: Arc<AtomicU64>,
}

impl Device for Stamping {
    fn info(&self) -> Info {
        self.null.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        self.null.submit(tag, io)
    }

    fn takes_lent(&self) -> Option<u32> {
        self.null.takes_lent()
    }

    fn submit_lent(&self, tag: Tag, io: LentIo) -> IoFuture {
        let began = self.rt.turn_time().since(Time::ZERO);
        self.turn.store(began.as_ns(), Ordering::Relaxed);
        self.null.submit_lent(tag, io)
    }
}

async fn serve(rt: Rt, sockets: [PathBuf; 2], turn: Arc<AtomicU64>, done: Arc<AtomicBool>) {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let bench = Bench::new(vec![rt.clone()], address, rt.clone(), Limits::default());
    let null = NullDevice::new(BLOCK, 1 << 40).expect("a good size");
    let device = Stamping {
        null,
        rt: rt.clone(),
        turn,
    };
    let device: SharedDevice = Rc::new(device);
    bench.attach("a", 1, 0, device);
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let functions: Vec<Function> = sockets
        .iter()
        .zip(1..)
        .map(|(socket, number)| {
            let spec = FunctionSpec {
                subnqn: nqn(&subnqn("a")),
                host: HostId {
                    nqn: nqn(&format!("nqn.2026-11.test:function{number}")),
                    id: [number; 16],
                },
                doorbells: Doorbells::Trapped,
                cores: 1,
            };
            let listener = UnixListener::bind(socket).expect("a path that is free");
            offer(&bench.cores[0], spec, listener).expect("a socket")
        })
        .collect();
    while !done.load(Ordering::Relaxed) {
        rt.sleep(Duration::from_ms(100)).await;
    }
    drop(functions);
}

/// The machine by itself.
fn bare(samples: &mut Samples) {
    let counter = || Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("a counter"));
    let (there, back) = (counter(), counter());
    let stamp = Arc::new(AtomicU64::new(0));
    let partner = {
        let (there, back, stamp) = (there.clone(), back.clone(), stamp.clone());
        let answer = move |rt: Rt| async move {
            for _ in 0..ROUND {
                take(&there).expect("a counter");
                stamp.store(rt.now().since(Time::ZERO).as_ns(), Ordering::Release);
                add(&back).expect("a counter");
            }
        };
        thread::spawn(move || on(0, Duration::ZERO, answer))
    };
    let ask = move |rt: Rt| async move {
        let mut times = Vec::new();
        for _ in 0..ROUND {
            rt.sleep(PAUSE).await;
            let began = rt.now();
            add(&there).expect("a counter");
            take(&back).expect("a counter");
            let ended = rt.now().since(began).as_ns();
            let there = stamp.load(Ordering::Acquire) - began.since(Time::ZERO).as_ns();
            times.push((there, ended));
        }
        times
    };
    for (there, back) in on(1, Duration::ZERO, ask) {
        samples.bare_wake.push(there);
        samples.bare_round.push(back);
    }
    partner.join().expect("it ends");
}

fn add(counter: &impl std::os::fd::AsFd) -> io::Result<usize> {
    Ok(rustix::io::write(counter, &1u64.to_ne_bytes())?)
}

fn take(counter: &impl std::os::fd::AsFd) -> io::Result<usize> {
    let mut value = [0; 8];
    Ok(rustix::io::read(counter, &mut value)?)
}

fn range() -> LbaRange {
    LbaRange { slba: 0, blocks: 1 }
}

fn polled(mut samples: Samples, socket: PathBuf, turn: Arc<AtomicU64>) -> Samples {
    on(1, Duration::MAX, move |rt| async move {
        let how = PolledOptions {
            queues: 1,
            depth: 4,
            transfer: BLOCK,
            shadow: true,
            mapped: false,
        };
        let function = PolledFunction::start(&rt, &socket, how, 1).await;
        let function = function.expect("a function that works");
        let queue = function.queues().remove(0);
        for _ in 0..ROUND {
            rt.sleep_until_precise(rt.now() + PAUSE).await;
            let read = SubmissionQueueEntry::read(1, range(), Sgl::Transport { length: 0 });
            let into = Payload::In(ReadInto::Discard(BLOCK as usize));
            let began = rt.now();
            queue.command(read, into).await.expect("it succeeds");
            let ended = rt.now();
            let turn = Time::from_ns(turn.load(Ordering::Relaxed));
            samples.wake.push(turn.since(began).as_ns());
            samples.target.push(ended.since(turn).as_ns());
        }
        function.close().await;
        samples
    })
}

fn sleeping(mut samples: Samples, socket: PathBuf) -> Samples {
    on(1, Duration::ZERO, move |rt| async move {
        let mut guest = start(&rt, &socket).await;
        let mut into = [0; BLOCK as usize];
        for _ in 0..ROUND {
            rt.sleep(PAUSE).await;
            let began = rt.now();
            let read = guest.read((1, 1), range(), (0, &mut into));
            read.await.expect("it succeeds");
            samples.whole.push(rt.now().since(began).as_ns());
        }
        guest.disable().await.expect("it works");
        samples
    })
}

async fn start(rt: &Rt, socket: &Path) -> Guest {
    let options = GuestOptions {
        queues: 1,
        shadow: true,
        posted: true,
        ..GuestOptions::SMALL
    };
    let started = Guest::start(rt, socket, options).await;
    started.expect("a function that works")
}
