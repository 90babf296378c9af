//! `flashyard demo`: the main job on one machine. A target with a memory and a file device, three tenants that
//! connect over real NVMe/TCP on loopback, each measured alone and then all together.

use std::fs;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use clap::Parser;
use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_runtime::uring;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::DemoArgs;
use crate::commands::print_json;
use crate::control::{Answer, Request};
use crate::cores::Cores;
use crate::perf::{self, PerfArgs, Report};
use crate::service::Service;
use crate::spec::{Config, TargetSpec};
use crate::state::State;
use crate::table::Table;
use crate::units;

/// A tenant of the demonstration and what it does.
struct Player {
    tenant: &'static str,
    class: &'static str,
    does: &'static str,
    load: &'static [&'static str],
}

const PLAYERS: [Player; 3] = [
    Player {
        tenant: "db",
        class: "latency",
        does: "4 KiB reads, one at a time (memory)",
        load: &[
            "--rw", "randread", "--bs", "4KiB", "--qd", "1", "--class", "latency",
        ],
    },
    Player {
        tenant: "analytics",
        class: "throughput",
        does: "128 KiB reads, 32 in flight (memory)",
        load: &[
            "--rw",
            "read",
            "--bs",
            "128KiB",
            "--qd",
            "32",
            "--class",
            "throughput",
        ],
    },
    Player {
        tenant: "backup",
        class: "background",
        does: "64 KiB writes, 16 in flight (file)",
        load: &[
            "--rw",
            "write",
            "--bs",
            "64KiB",
            "--qd",
            "16",
            "--class",
            "background",
        ],
    },
];

/// One measurement alone for each player, then one together.
const PHASES: u64 = PLAYERS.len() as u64 + 1;

/// Runs the demonstration; unless told to exit, goes on serving until a signal comes.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    let scratch = Scratch::new()?;
    let mut service = start(&scratch)?;
    let address = match service.listen(&[SocketAddr::from(([127, 0, 0, 1], 0))]) {
        Ok(addresses) => addresses[0],
        Err(fault) => {
            service.stop();
            return Err(fault);
        }
    };
    let outcome = perform(args, address);
    // A pipe or a script has nobody to press Ctrl-C.
    if outcome.is_ok() && !args.exit && std::io::stdout().is_terminal() {
        eprintln!("{}", invitation(address));
        signals.forever().next();
    }
    service.stop();
    outcome
}

fn perform(args: &DemoArgs, address: SocketAddr) -> Result<(), String> {
    let seconds = args.seconds as f64 / PHASES as f64;
    let tell = |text: &str| {
        if !args.json {
            eprintln!("{text}");
        }
    };
    tell(&format!(
        "target on {address} (nvme-tcp), devices served first in, first out"
    ));
    let mut alone = Vec::new();
    for player in &PLAYERS {
        tell(&format!(
            "{} alone: {}, {seconds:.1} s",
            player.tenant, player.does
        ));
        alone.push(perf::measure(&player.measurement(address, seconds)?)?);
    }
    tell(&format!("all together, {seconds:.1} s"));
    let together = measure_together(address, seconds)?;
    if args.json {
        print_json(&as_json(args, address, &alone, &together));
    } else {
        print!("\n{}", as_table(&alone, &together).render());
    }
    Ok(())
}

fn measure_together(address: SocketAddr, seconds: f64) -> Result<Vec<Report>, String> {
    let mut running = Vec::new();
    for player in &PLAYERS {
        let args = player.measurement(address, seconds)?;
        running.push(thread::spawn(move || perf::measure(&args)));
    }
    // All are joined before the first error is told.
    let reports: Vec<_> = running
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a tenant's thread panicked".into()))
        })
        .collect();
    reports.into_iter().collect()
}

#[derive(Parser)]
struct PerfLine {
    #[command(flatten)]
    args: PerfArgs,
}

impl Player {
    /// The same as typing `flashyard perf` with these options.
    fn measurement(&self, address: SocketAddr, seconds: f64) -> Result<PerfArgs, String> {
        let subnqn = format!("{}:{}", TargetSpec::default().nqn_prefix, self.tenant);
        let (address, seconds) = (address.to_string(), seconds.to_string());
        let fixed = [
            "perf",
            "--json",
            "--connect",
            &address,
            "--subnqn",
            &subnqn,
            "--seconds",
            &seconds,
        ];
        let warmup = ["--warmup", "0.2"];
        let line = PerfLine::try_parse_from(fixed.iter().chain(&warmup).chain(self.load));
        line.map(|line| line.args)
            .map_err(|error| error.to_string())
    }
}

fn as_table(alone: &[Report], together: &[Report]) -> Table {
    let mut table = Table::new(&[
        "tenant",
        "class",
        "does",
        "alone",
        "p99 us",
        "together",
        "p99 us",
        "share kept",
    ]);
    for ((player, alone), together) in PLAYERS.iter().zip(alone).zip(together) {
        table.row(vec![
            player.tenant.to_owned(),
            player.class.to_owned(),
            player.does.to_owned(),
            units::bandwidth(alone.bytes_per_second),
            format!("{:.0}", alone.latency_us.p99),
            units::bandwidth(together.bytes_per_second),
            format!("{:.0}", together.latency_us.p99),
            format!("{:.0} %", 100.0 * together.iops / alone.iops.max(1.0)),
        ]);
    }
    table
}

fn as_json(args: &DemoArgs, address: SocketAddr, alone: &[Report], together: &[Report]) -> Value {
    let tenants: Vec<Value> = PLAYERS
        .iter()
        .zip(alone)
        .zip(together)
        .map(|((player, alone), together)| {
            json!({
                "tenant": player.tenant,
                "class": player.class,
                "load": player.load.join(" "),
                "alone": alone,
                "together": together,
            })
        })
        .collect();
    json!({ "address": address, "seconds": args.seconds, "policy": "fifo", "tenants": tenants })
}

fn invitation(address: SocketAddr) -> String {
    format!(
        "\nstill serving until Ctrl-C; try\n  \
         flashyard discover --connect {address}\n  \
         nvme connect -t tcp -a {} -s {} -n {}:db",
        address.ip(),
        address.port(),
        TargetSpec::default().nqn_prefix,
    )
}

fn start(scratch: &Scratch) -> Result<Service, String> {
    let spec = TargetSpec::default();
    let state = State::in_memory().map_err(|error| error.to_string())?;
    let target = Target::new(TargetConfig {
        nqn_prefix: spec.nqn_prefix,
        target_uuid: state.target_uuid().into_bytes(),
        limits: Limits::default(),
        cores: spec.cores,
    });
    let cores = Cores::start(&target, vec![uring::Config::default()])
        .map_err(|error| format!("cannot start a core: {error}"))?;
    let mut service = Service::start(state, cores, target)?;
    match service.handle(Request::Apply {
        config: scratch.config()?,
        plan: false,
    }) {
        Answer::Ok(_) => Ok(service),
        Answer::Error(fault) => {
            service.stop();
            Err(fault)
        }
    }
}

/// A directory for the file device, gone with the demonstration.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("flashyard-demo-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| {
            format!(
                "cannot create {}: {error}; set TMPDIR to another place",
                path.display()
            )
        })?;
        Ok(Self(path))
    }

    fn config(&self) -> Result<Config, String> {
        let mut config = Config::parse(CONFIG)?;
        for device in &mut config.devices {
            if let Some(path) = &mut device.path {
                *path = self.0.join(&*path).to_string_lossy().into_owned();
            }
        }
        Ok(config)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that stays behind in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = r#"
[[device]]
name = "ram0"
kind = "memory"
size = "1GiB"

[[device]]
name = "file0"
kind = "file"
path = "file0.img"
size = "1GiB"

[[pool]]
name = "fast"
devices = ["ram0"]

[[pool]]
name = "disk"
devices = ["file0"]

[[tenant]]
name = "db"
hosts = ["*"]
class = "latency"

[[tenant]]
name = "analytics"
hosts = ["*"]
class = "throughput"

[[tenant]]
name = "backup"
hosts = ["*"]
class = "background"

[[volume]]
name = "orders"
pool = "fast"
size = "256MiB"
tenant = "db"

[[volume]]
name = "events"
pool = "fast"
size = "512MiB"
tenant = "analytics"

[[volume]]
name = "archive"
pool = "disk"
size = "512MiB"
tenant = "backup"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demonstration_asks_for_what_exists() {
        Config::parse(CONFIG).expect("the demonstration's configuration is right");
        for player in &PLAYERS {
            player
                .measurement(SocketAddr::from(([127, 0, 0, 1], 4420)), 1.0)
                .expect("its options are right");
        }
    }
}
