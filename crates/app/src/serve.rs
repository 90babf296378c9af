//! `flashyard serve`: the target in the foreground, until a signal ends it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_runtime::uring;
use flashyard_time::Duration;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::api::{self, Api};
use crate::cli::ServeArgs;
use crate::commands;
use crate::control::{AppliedView, ObjectChange};
use crate::cores::Cores;
use crate::failure::{Failure, Invalid, System};
use crate::json;
use crate::log::{Log, LogForm};
use crate::notify::{Condition, Manager};
use crate::out;
use crate::service::{self, Service};
use crate::spec::Document;
use crate::state::{IfDamaged, State};

/// Runs the target until SIGINT or SIGTERM.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let started = Instant::now();
    if args.log == LogForm::Json {
        out::write_notes_as_json();
    }
    // Signals are caught before anything is open, so that none is missed.
    let Caught { ended, reloads } = catch_signals()?;
    let manager = Arc::new(Manager::found());
    allow_many_files();
    let file = args.config.as_deref().map(Document::read);
    let file = file.transpose().map_err(Invalid::File)?;
    if buffers(args) < Limits::LEAST_BUFFERS {
        return Err(Invalid::Buffers.into());
    }
    let directory = args.state.clone().unwrap_or_else(commands::default_state);
    let address = api_address(args)?;
    let service = start(file.as_ref(), args, &directory)?;
    if let Some(file) = &file {
        apply(file, &service)?;
    }
    service.inject_faults()?;
    let addresses = match service.listen(&args.listen) {
        Ok(addresses) => addresses,
        Err(fault) => {
            service.stop();
            return Err(fault.into());
        }
    };
    for (what, why) in service.injecting() {
        out::note(format_args!("{what}: {why}"));
    }
    for (what, why) in service.faults() {
        out::note(format_args!("{what} is not available: {why}"));
    }
    for (tenant, why) in service.doubtful_guarantees()? {
        out::note(format_args!(
            "the guarantee of tenant {tenant} is not known to hold: {why}"
        ));
    }
    let service = Arc::new(service);
    service.follow_migrations();
    if args.log != LogForm::Off {
        let (followed, log) = (Arc::clone(&service), Log::new(args.log));
        thread::spawn(move || followed.follow_events(&log));
    }
    let api_at = address.as_ref().and_then(|address| address.local().ok());
    let api = start_api(&directory, address, &service)?;
    let milliseconds = started.elapsed().as_millis();
    let listening: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let listening = format!("listening on {}", listening.join(", "));
    manager.tell(Condition::Ready(&listening));
    match args.json {
        true => {
            let ready = Ready::new(&addresses, api_at, milliseconds);
            out::report(format_args!("{}", json::text("", &ready)));
        }
        false => {
            for address in addresses {
                out::report(format_args!(
                    "listening on {address} (nvme-tcp) after {milliseconds} ms"
                ));
            }
            if let Some(address) = api_at {
                out::report(format_args!("listening on {address} (API)"));
                out::report(format_args!("dashboard: http://{address}/"));
            }
        }
    }
    let (running, stopped) = mpsc::channel();
    let counting = Arc::clone(&service);
    thread::spawn(move || service::keep_counting(service::KEEP_EVERY, &stopped, &counting));
    let (watching, unwatched) = mpsc::channel();
    let watched = Arc::clone(&service);
    thread::spawn(move || watched.keep_watching(service::WATCH_EVERY, &unwatched));
    let reloading = Reloading {
        file: args.config.clone(),
        service: Arc::clone(&service),
        manager: Arc::clone(&manager),
        listening,
    };
    thread::spawn(move || reloads.iter().for_each(|()| reloading.reload()));
    // Its sender lives as long as the program.
    let _ = ended.recv();
    manager.tell(Condition::Stopping);
    drop((running, watching));
    service.stop();
    // Behind it: whoever has a request at work is answered, and who comes meanwhile as well.
    drop(api);
    Ok(())
}

/// What signals ask for, served once the target has started.
struct Caught {
    /// To end.
    ended: mpsc::Receiver<()>,
    /// To apply the configuration file again.
    reloads: mpsc::Receiver<()>,
}

/// Waits for signals. The first that is to end the program is given on; the second ends it,
/// whatever it waits for.
fn catch_signals() -> Result<Caught, System> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(System::Signals)?;
    let (end, ended) = mpsc::channel();
    let (reload, reloads) = mpsc::channel();
    thread::spawn(move || {
        let mut ends = false;
        // A program that did not start hears nothing that is sent.
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    let _ = reload.send(());
                }
                _ if ends => process::exit(1),
                _ => {
                    ends = true;
                    out::note(format_args!(
                        "finishing what is in flight; a second signal ends it at once"
                    ));
                    let _ = end.send(());
                }
            }
        }
    });
    Ok(Caught { ended, reloads })
}

/// What it takes to apply the configuration file again.
struct Reloading {
    file: Option<PathBuf>,
    service: Arc<Service>,
    manager: Arc<Manager>,
    /// Where the target listens, for the manager.
    listening: String,
}

impl Reloading {
    /// Applies the file. What cannot be applied changes nothing, and stands in health.
    fn reload(&self) {
        let Some(file) = &self.file else {
            out::note(format_args!(
                "SIGHUP, and there is no configuration file to apply: `flashyard serve` was given no --config"
            ));
            return;
        };
        self.manager.tell(Condition::Reloading);
        let failed = match self.service.apply_again(file) {
            Ok(applied) => {
                say_applied(&applied);
                out::note(format_args!("{} is applied", file.display()));
                ""
            }
            Err(fault) => {
                out::note(format_args!("{} is not applied: {fault}", file.display()));
                self.service.note_file(fault);
                "; the configuration file is not applied, see `flashyard health`"
            }
        };
        let status = format!("{}{failed}", self.listening);
        self.manager.tell(Condition::Ready(&status));
    }
}

/// What programs read of a target that has started.
#[derive(Serialize)]
struct Ready {
    addresses: Vec<String>,
    /// Where the API is, beside its socket.
    api: Option<String>,
    started_after_ms: u128,
}

impl Ready {
    fn new(addresses: &[SocketAddr], api: Option<SocketAddr>, started_after_ms: u128) -> Self {
        Self {
            api: api.map(|address| address.to_string()),
            addresses: addresses.iter().map(SocketAddr::to_string).collect(),
            started_after_ms,
        }
    }
}

/// Applies the file that the target is started with. Where that fails the target serves what it
/// had, for its hosts wait, and says so; one that has nothing to serve ends.
fn apply(file: &Document, service: &Service) -> Result<(), Failure> {
    match service.apply_at_start(file) {
        Ok(applied) => {
            say_applied(&applied);
            Ok(())
        }
        Err(fault) if service.is_empty() => {
            service.stop();
            Err(fault.into())
        }
        Err(fault) => {
            service.note_file(fault);
            Ok(())
        }
    }
}

/// What somebody may want to know of a file that was applied.
fn say_applied(applied: &AppliedView) {
    let by_hand =
        |change: &&ObjectChange| change.by_hand || change.keys.iter().any(|key| key.by_hand);
    for change in applied.changes.iter().filter(by_hand) {
        out::note(format_args!("the configuration file rules: {change}"));
    }
    for note in &applied.notes {
        out::note(format_args!("{note}"));
    }
}

/// Every connection is an open file, and the usual bound of 1024 is for programs that use
/// select(2).
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    // Without it the target serves fewer connections.
    let _ = setrlimit(Resource::Nofile, most);
}

/// Starts the cores and opens the inventory.
fn start(file: Option<&Document>, args: &ServeArgs, directory: &Path) -> Result<Service, Failure> {
    let if_damaged = match args.restore_state {
        true => IfDamaged::Restore,
        false => IfDamaged::Refuse,
    };
    let state = State::open(directory, if_damaged)?;
    if state.was_restored() {
        out::note(format_args!(
            "the state store was damaged: its copy has taken its place, the damaged file is state.db.damaged"
        ));
    }
    let settings = match file {
        Some(file) => Service::settings_at_start(&state, file)?,
        None => state.settings()?,
    };
    let settings = settings.effective();
    let cores = args.cores.map(usize::from).or(settings.cores).unwrap_or(1);
    let target = Target::new(TargetConfig {
        nqn_prefix: settings.prefix().to_owned(),
        target_uuid: state.target_uuid().into_bytes(),
        limits: Limits::for_buffers(buffers(args)),
        cores,
    });
    let configs = (0..cores).map(|core| core_config(core, args)).collect();
    let cores = Cores::start(&target, configs).map_err(System::Core)?;
    Ok(Service::start(state, cores, target)?)
}

fn core_config(core: usize, args: &ServeArgs) -> uring::Config {
    uring::Config {
        core,
        processor: args.processor.map(|first| first + core),
        poll: Duration::from_us(args.poll_us),
        buffer_bytes: buffers(args),
        ..uring::Config::default()
    }
}

fn buffers(args: &ServeArgs) -> usize {
    usize::try_from(args.buffers.0).unwrap_or(usize::MAX)
}

/// Where the API listens beside its socket.
fn api_address(args: &ServeArgs) -> Result<Option<api::Tcp>, Invalid> {
    let both = args.api.zip(args.api_tokens.as_ref());
    let opened = both.map(|(address, tokens)| api::Tcp::open(address, tokens));
    opened.transpose().map_err(Invalid::Api)
}

fn start_api(
    directory: &Path,
    address: Option<api::Tcp>,
    service: &Arc<Service>,
) -> Result<Api, System> {
    let shared = Arc::clone(service);
    Api::start(directory, address, move |request, asker| {
        shared.handle_for(request, asker)
    })
    .map_err(|error| System::Api(directory.to_owned(), error))
}
