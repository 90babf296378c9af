//! The cost of an I/O through a function: a target in one process, a guest without a machine in
//! another. The target serves the same device over NVMe/TCP as well, so that both can be measured
//! side by side: `flashyard perf --connect vfio-user:SOCKET` and `--connect 127.0.0.1:PORT`.
//! `path` without arguments explains the options. To count instructions, run the target under
//! callgrind with two counts and divide the difference:
//!
//! ```text
//! cargo bench -p flashyard-vfio --bench path --no-run
//! valgrind --tool=callgrind target/release/deps/path-... serve --socket /tmp/f.sock --once yes &
//! target/release/deps/path-... load --socket /tmp/f.sock --qd 128 --count 100000
//! ```

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use flashyard_block::{NullDevice, SharedDevice};
use flashyard_controller::HostId;
use flashyard_engine::Limits;
use flashyard_host::vfio::{PolledFunction, PolledOptions, PolledQueue};
use flashyard_host::{Payload, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Data;
use flashyard_runtime::uring::{self, Config};
use flashyard_testbed::{BLOCK, Bench, subnqn};
use flashyard_time::{Duration, Rng};
use flashyard_vfio::{Doorbells, FunctionSpec, offer};

const USAGE: &str = "usage: path serve [--socket PATH] [--port N] [--poll US] [--once yes|no]
       path load  [--socket PATH] [--rw read|write] [--qd N] [--queues N] [--count N] [--bytes N]
                  [--shadow yes|no]
       both        [--doorbells trapped|mapped]
  --poll       how long the target polls at most before it sleeps
  --once       the target ends when its first guest has left
  --qd         commands in flight of each queue
  --count      I/Os in all
  --bytes      of one I/O, a multiple of 4096";

/// How often the target looks whether its guest has gone.
const LOOK: Duration = Duration::from_ms(250);

/// What the command line says.
#[derive(Clone)]
struct Options {
    socket: PathBuf,
    port: u16,
    poll: Duration,
    once: bool,
    write: bool,
    depth: u16,
    queues: u16,
    count: u64,
    bytes: u32,
    shadow: bool,
    doorbells: Doorbells,
}

impl Options {
    fn new(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            socket: std::env::temp_dir().join(format!("path-{}.sock", std::process::id())),
            port: 0,
            poll: Config::default().poll,
            once: false,
            write: false,
            depth: 32,
            queues: 1,
            count: 20_000,
            bytes: 4096,
            shadow: true,
            doorbells: Doorbells::Trapped,
        };
        for pair in words.chunks(2) {
            let [key, value] = pair else {
                return Err(format!("{} needs a value", pair[0]));
            };
            options.set(key, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || -> Result<u64, String> {
            let number = value.parse();
            number.map_err(|_| format!("{key} {value}: a number is wanted"))
        };
        match key {
            "--socket" => self.socket = value.into(),
            "--port" => self.port = number()? as u16,
            "--poll" => self.poll = Duration::from_us(number()?),
            "--once" => self.once = value == "yes",
            "--rw" => self.write = value == "write",
            "--qd" => self.depth = number()?.clamp(1, 1023) as u16,
            "--queues" => self.queues = number()?.clamp(1, 64) as u16,
            "--count" => self.count = number()?,
            "--bytes" => self.bytes = (number()? as u32 / BLOCK).clamp(1, 256) * BLOCK,
            "--shadow" => self.shadow = value == "yes",
            "--doorbells" => {
                self.doorbells = match value {
                    "trapped" => Doorbells::Trapped,
                    "mapped" => Doorbells::Mapped,
                    _ => return Err(format!("{key} {value}: trapped or mapped is wanted")),
                }
            }
            _ => return Err(format!("there is no option {key}")),
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let options = Options::new(words.get(1..).unwrap_or_default());
    match (words.first().map(String::as_str), options) {
        (Some("serve"), Ok(options)) => serve(options),
        (Some("load"), Ok(options)) => load(options),
        // What `cargo bench` runs: small, so that it cannot rot.
        (None, Ok(mut options)) => {
            println!("{USAGE}");
            options.once = true;
            let target = options.clone();
            let server = std::thread::spawn(move || serve(target));
            while !options.socket.exists() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            load(options);
            server.join().expect("the target ends with its guest");
        }
        (_, options) => {
            let problem = options.err().unwrap_or_else(|| "serve or load?".into());
            eprintln!("path: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn nqn(text: &str) -> Nqn {
    Nqn::new(text).expect("a good name")
}

fn serve(options: Options) {
    let config = Config {
        processor: Some(0),
        poll: options.poll,
        ..Config::default()
    };
    let served = uring::run(config, |rt| async move {
        let address = SocketAddr::from(([127, 0, 0, 1], options.port));
        let bench = Bench::new(vec![rt.clone()], address, rt.clone(), Limits::default());
        let null: SharedDevice = Rc::new(NullDevice::new(BLOCK, 1 << 40).expect("a good size"));
        bench.attach("a", 1, 0, null);
        let spec = FunctionSpec {
            subnqn: nqn(&subnqn("a")),
            host: HostId {
                nqn: nqn("nqn.2026-11.test:function"),
                id: [1; 16],
            },
            doorbells: options.doorbells,
            cores: 1,
        };
        let listener = UnixListener::bind(&options.socket).expect("a path that is free");
        let function = offer(&bench.cores[0], spec, listener).expect("a socket");
        println!("listens at {}", bench.addr);
        let had_guest = || {
            let snapshot = bench.target.snapshot();
            let ios = snapshot.tenants.iter().map(|tenant| tenant.counters);
            snapshot.controllers.is_empty()
                && ios.map(|ios| ios.reads + ios.writes).sum::<u64>() > 0
        };
        // Seldom, since it counts like an I/O's work.
        while !(options.once && had_guest()) {
            rt.sleep(LOOK).await;
        }
        drop(function);
        fs::remove_file(&options.socket).expect("it is ours");
    });
    served.expect("io_uring is allowed here");
}

fn load(options: Options) {
    let config = Config {
        poll: Duration::MAX,
        ..Config::default()
    };
    let loaded = uring::run(config, |rt| async move {
        let how = PolledOptions {
            queues: options.queues,
            depth: options.depth,
            transfer: options.bytes,
            shadow: options.shadow,
            mapped: options.doorbells == Doorbells::Mapped,
        };
        let started = PolledFunction::start(&rt, &options.socket, how, 1).await;
        let function = started.expect("a function that works");
        let began = rt.now();
        let workers = u64::from(options.depth) * u64::from(options.queues);
        let tasks: Vec<_> = (0..workers)
            .map(|number| {
                let lanes = function.queues();
                let lane = lanes[number as usize % lanes.len()].clone();
                let count = options.count / workers + u64::from(number < options.count % workers);
                rt.spawn(work(lane, options.clone(), count, number))
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let seconds = rt.now().since(began).as_ns() as f64 / 1e9;
        println!("{:.0} I/Os per second", options.count as f64 / seconds);
        function.close().await;
    });
    loaded.expect("io_uring is allowed here");
}

async fn work(lane: PolledQueue, options: Options, count: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let blocks = options.bytes / BLOCK;
    let nothing = Sgl::Transport { length: 0 };
    for _ in 0..count {
        let slba = rng.below(1 << 24);
        let range = LbaRange { slba, blocks };
        let bytes = options.bytes as usize;
        let (entry, payload) = match options.write {
            true => (
                SubmissionQueueEntry::write(1, range, nothing),
                Payload::Out(Data::Zeroes(bytes)),
            ),
            false => (
                SubmissionQueueEntry::read(1, range, nothing),
                Payload::In(ReadInto::Discard(bytes)),
            ),
        };
        lane.command(entry, payload).await.expect("it succeeds");
    }
}
