//! `flashyard demo`: the main job on one machine. A target with an emulated, worn SSD, and three
//! tenants that connect over real NVMe/TCP on loopback: what each gets alone, what the writes of
//! one do to the reads of another, and all together, first in, first out and behind the fair
//! switch.

mod live;
mod machine;
mod outcome;
mod players;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_runtime::uring;
use flashyard_time::Duration;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;
use signal_hook::iterator::Signals;

use crate::cli::DemoArgs;
use crate::control::Request;
use crate::cores::Cores;
use crate::failure::{Failure, System, Unavailable};
use crate::json;
use crate::out::say;
use crate::perf::{self, PerfArgs};
use crate::service::Service;
use crate::spec::{Document, TargetSettings};
use crate::state::State;
use live::Live;
use machine::Machine;
use outcome::{Measured, Outcome, Phase};
use players::PLAYERS;

/// How long the target stays awake after it did something: as long as an I/O of a slow phase may
/// take. Virtual machines can be late by milliseconds when they wake, which would be reported as
/// the drive's latency.
const POLL: Duration = Duration::from_ms(5);

/// Seconds of each measurement that the machine is judged by.
const JUDGED: f64 = 0.8;

/// The emulated drive.
const DEVICE: &str = "ssd0";

const CONFIG: &str = r#"
[[device]]
name = "ssd0"
kind = "flash"
profile = "dct983"
condition = "fragmented"
size = "4GiB"
dilation = DILATION

[[pool]]
name = "fast"
devices = ["ssd0"]

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
size = "256MiB"
tenant = "analytics"

# Nearly all of the drive: writes to a small part of it would be cheaper from second to second.
[[volume]]
name = "archive"
pool = "fast"
size = "3500MiB"
tenant = "backup"
"#;

/// Runs the demonstration; unless asked to exit, the tenants go on until a signal comes, and the
/// dashboard shows them.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    // Everything is in memory: until the tenants are shown, there is nothing to end in good
    // order.
    let measuring = Arc::new(AtomicBool::new(true));
    for (signal, status) in [(SIGINT, 130), (SIGTERM, 143)] {
        register_conditional_shutdown(signal, status, measuring.clone())
            .map_err(System::Signals)?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(System::Signals)?;
    let service = Arc::new(start(args)?);
    let shown = service
        .listen(&[SocketAddr::from(([127, 0, 0, 1], 0)).into()])
        .map_err(Failure::from)
        .and_then(|addresses| {
            show(args, &service, addresses[0])?;
            Ok(addresses[0])
        });
    measuring.store(false, Ordering::Relaxed);
    // A pipe or a script has nobody to press Ctrl-C.
    let goes_on = !args.exit && std::io::stdout().is_terminal();
    let live = match shown {
        Ok(address) if goes_on => Live::start(&service, address, args.dilation).map(Some),
        shown => shown.map(|_| None),
    };
    if let Ok(Some(live)) = &live {
        eprintln!("{live}");
        signals.forever().next();
    }
    service.stop();
    live.map(drop)
}

fn show(args: &DemoArgs, service: &Service, address: SocketAddr) -> Result<(), Failure> {
    let tell = |text: &str| {
        if !args.json {
            eprintln!("{text}");
        }
    };
    tell(&format!(
        "target on {address} (nvme-tcp); {DEVICE}: dct983, 4 GiB, fragmented, {}x slower",
        args.dilation
    ));
    let machine = judge(args, service, address)?;
    if let Some(machine) = machine {
        tell(&machine.to_string());
    }
    let phases = Phase::all();
    let seconds = args.seconds as f64 / phases.len() as f64;
    let mut measured = Vec::new();
    for (number, phase) in phases.into_iter().enumerate() {
        tell(&format!("{}, {seconds:.1} s", phase.describe()));
        measured.push(measure(service, address, phase, seconds, number)?);
    }
    let outcome = Outcome {
        address,
        seconds: args.seconds,
        dilation: args.dilation,
        machine,
        phases: measured,
    };
    if args.json {
        json::print("", &outcome.to_json());
    } else {
        say!("\n{outcome}");
    }
    Ok(())
}

/// Whether the machine keeps the drive's time, before anything is shown.
fn judge(
    args: &DemoArgs,
    service: &Service,
    address: SocketAddr,
) -> Result<Option<Machine>, Failure> {
    // Other seeds than those of the phases: what was written once is cheap to write again.
    let seeds = Phase::all().len()..;
    let measured = Phase::judged()
        .into_iter()
        .zip(seeds)
        .map(|(phase, seed)| measure(service, address, phase, JUDGED, seed));
    let measured: Vec<_> = measured.collect::<Result<_, _>>()?;
    Ok(Machine::judge(&measured, args.dilation))
}

/// What the tenants of a phase get at the same time, and what the drive says of it.
fn measure(
    service: &Service,
    address: SocketAddr,
    phase: Phase,
    seconds: f64,
    seed: usize,
) -> Result<Measured, Failure> {
    let chosen = Request::SetDevice {
        name: DEVICE.to_owned(),
        policy: phase.policy,
    };
    service.handle(chosen)?;
    let players = phase.players.iter().map(|&player| &PLAYERS[player]);
    let runs = players.map(|it| it.measurement(address, seconds, phase.warm_up(), seed));
    let runs: Vec<PerfArgs> = runs.collect::<Result<_, _>>()?;
    let drive_is_gone = || Unavailable::Drive(DEVICE);
    service.clear_drive_timing(DEVICE);
    let before = service.drive_stats(DEVICE).ok_or_else(drive_is_gone)?;
    let reports = perf::measure_together(&runs)?;
    let after = service.drive_stats(DEVICE).ok_or_else(drive_is_gone)?;
    Ok(Measured {
        phase,
        reports,
        counted: after.drive.since(&before.drive),
        timing: after,
    })
}

fn start(args: &DemoArgs) -> Result<Service, Failure> {
    let state = State::in_memory()?;
    let target = Target::new(TargetConfig {
        nqn_prefix: TargetSettings::default().prefix().to_owned(),
        target_uuid: state.target_uuid().into_bytes(),
        limits: Limits::default(),
        cores: 1,
    });
    let core = uring::Config {
        poll: POLL,
        ..uring::Config::default()
    };
    let cores = Cores::start(&target, vec![core]).map_err(System::Core)?;
    let service = Service::start(
        state,
        cores,
        target,
        Arc::default(),
        flashyard_time::Duration::ZERO,
    )?;
    let file = CONFIG.replace("DILATION", &args.dilation.to_string());
    let file = Document::parse(&file, Path::new("/"))?;
    if let Err(fault) = service.apply_at_start(&file) {
        service.stop();
        return Err(fault.into());
    }
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demonstration_asks_for_what_exists() {
        let config = CONFIG.replace("DILATION", "1");
        Document::parse(&config, Path::new("/"))
            .expect("the demonstration's configuration is right");
        for player in &PLAYERS {
            player
                .measurement(SocketAddr::from(([127, 0, 0, 1], 4420)), 1.0, 0.2, 0)
                .expect("its options are right");
        }
    }
}
