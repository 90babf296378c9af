//! The cost of an I/O on a null device: a target in one process, a host that does as little as it
//! can in another. `bench/costs.sh` runs both; `path` without arguments explains the options.
//! To count instructions by hand, run the target under callgrind with two counts and divide the
//! difference:
//!
//! ```text
//! cargo bench -p flashyard-tcp --bench path --no-run
//! valgrind --tool=callgrind target/release/deps/path-... serve --port 4499 --poll 0 &
//! target/release/deps/path-... load --port 4499 --qd 128 --count 100000
//! ```

mod load;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::NullDevice;
use flashyard_engine::{
    Class, Core, Limits, NamespaceSpec, SubsystemNames, Target, TargetConfig, TenantId, TenantSpec,
};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_sched::{Known, POLICIES, Policy, PolicyKind};
use flashyard_tcp::listen;
use flashyard_time::Duration;

const PREFIX: &str = "nqn.2026-11.dev.flashyard";
const BLOCK: u32 = 4096;
/// How often the target looks whether its host has gone.
const LOOK: Duration = Duration::from_ms(250);

const USAGE: &str =
    "usage: path serve [--port N] [--poll US] [--home CORE] [--policy NAME] [--tenants N]
       path load  [--port N] [--rw read|write] [--qd N] [--count N] [--bytes N] [--tenants N]
                  [--pause US]
  --poll     how long the target polls at most before it sleeps
  --home     two cores: I/O comes to core 1, and the device is at home on this one (0 or 1)
  --policy   fifo (as it is), fair, gimbal or caps: what is in front of the device
  --tenants  so many, each with a namespace; the load has a queue of its own for each of them
  --qd       commands in flight of each queue
  --count    I/Os in all
  --bytes    of one I/O, a multiple of 4096
  --pause    time between an answer and the next commands, in which the target waits";

/// What the command line says.
struct Options {
    port: u16,
    poll: Duration,
    home: Option<usize>,
    policy: String,
    load: load::Load,
}

impl Options {
    fn new(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            port: 4498,
            poll: Config::default().poll,
            home: None,
            policy: "fifo".into(),
            load: load::Load::default(),
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
        let number = || -> Result<usize, String> {
            let number = value.parse();
            number.map_err(|_| format!("{key} {value}: a number is wanted"))
        };
        let load = &mut self.load;
        match key {
            "--port" => {
                self.port = value
                    .parse()
                    .map_err(|_| format!("{key} {value}: not a port"))?;
            }
            "--poll" => self.poll = Duration::from_us(number()? as u64),
            "--home" => self.home = Some(number()?),
            "--policy" => {
                policy(value)?;
                self.policy = value.into();
            }
            "--tenants" => load.tenants = number()?.clamp(1, 1000),
            "--rw" if matches!(value, "read" | "write") => load.write = value == "write",
            "--rw" => return Err(format!("{key} {value}: read or write is wanted")),
            "--qd" => load.depth = number()?.clamp(1, 1024),
            "--count" => load.count = number()?,
            "--bytes" => load.blocks = (number()? as u32 / BLOCK).clamp(1, 256),
            "--pause" => load.pause = std::time::Duration::from_micros(number()? as u64),
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
        (Some("serve"), Ok(options)) => serve(&options),
        (Some("load"), Ok(options)) => options.load.run(options.port),
        // What `cargo bench` runs: small, so that it cannot rot.
        (None, Ok(options)) => {
            println!("{USAGE}");
            let port = options.port;
            let server = std::thread::spawn(move || serve(&options));
            std::thread::sleep(std::time::Duration::from_millis(300));
            load::Load::default().run(port);
            server.join().expect("the target ends with its host");
        }
        (_, options) => {
            let problem = options.err().unwrap_or_else(|| "serve or load?".into());
            eprintln!("path: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// The policies that need no facts of the device.
fn policy(name: &str) -> Result<Box<dyn Policy>, String> {
    let kind = PolicyKind::named(name);
    let policy = kind.and_then(|kind| kind.make(&Known::NOTHING));
    policy.ok_or_else(|| {
        let untold = |kind: &&PolicyKind| !kind.needs_figures();
        let names: Vec<_> = POLICIES
            .iter()
            .filter(untold)
            .map(|kind| kind.name)
            .collect();
        format!("--policy {name}: one of {} is wanted", names.join(", "))
    })
}

/// What a tenant is called.
fn tenant_name(number: usize) -> String {
    format!("bench{number}")
}

fn serve(options: &Options) {
    let cores = if options.home.is_some() { 2 } else { 1 };
    let target = Target::new(TargetConfig {
        nqn_prefix: PREFIX.into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores,
    });
    for number in 0..options.load.tenants {
        let spec = TenantSpec {
            id: TenantId(number as u32 + 1),
            name: tenant_name(number),
            hosts: vec!["*".into()],
            class: Class::Throughput,
            names: SubsystemNames::default(),
        };
        target.set_tenant(spec).expect("a good tenant");
    }
    let threads: Vec<_> = (0..cores)
        .map(|core| {
            let config = Config {
                core,
                processor: (cores == 1).then_some(0),
                poll: options.poll,
                ..Config::default()
            };
            let part = Part {
                target: target.clone(),
                port: (core == 0).then_some(options.port),
                policy: options.policy.clone(),
                tenants: options.load.tenants,
                is_home: options.home.unwrap_or(0) == core,
            };
            std::thread::spawn(move || {
                uring::run(config, move |rt| part.serve(rt, core))
                    .expect("io_uring is allowed here");
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a core ends with its host");
    }
}

/// What one core of the target does.
struct Part {
    target: Arc<Target>,
    /// Where it listens, if it does.
    port: Option<u16>,
    policy: String,
    tenants: usize,
    /// The device is at home here.
    is_home: bool,
}

impl Part {
    async fn serve(self, rt: Rt, index: usize) {
        let core = Core::start(rt.clone(), self.target.clone(), index);
        if self.is_home {
            self.attach(&core);
        }
        if let Some(port) = self.port {
            listen(&core, SocketAddr::from(([127, 0, 0, 1], port))).expect("a free port");
        }
        // Seldom, since it counts like an I/O's work. A host may have come and gone in between.
        while !self.had_hosts() {
            rt.sleep(LOOK).await;
        }
    }

    /// Whether hosts have done I/O and are gone.
    fn had_hosts(&self) -> bool {
        let snapshot = self.target.snapshot();
        let ios = snapshot.tenants.iter().map(|tenant| tenant.counters);
        snapshot.controllers.is_empty() && ios.map(|ios| ios.reads + ios.writes).sum::<u64>() > 0
    }

    /// One device and one switch; a namespace of it for each tenant.
    fn attach(&self, core: &Core) {
        let null = Rc::new(NullDevice::new(BLOCK, 1 << 40).expect("a good size"));
        let switch = core.add_switch(policy(&self.policy).expect("it was checked"));
        for number in 0..self.tenants {
            let device = core.add_device(null.clone(), &switch);
            let namespace = NamespaceSpec::new(1, [number as u8 + 1; 16], device);
            self.target
                .attach(&tenant_name(number), namespace)
                .expect("a free number");
        }
    }
}
