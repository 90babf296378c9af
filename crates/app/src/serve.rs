//! `flashyard serve`: the target in the foreground, until a signal ends it.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_runtime::uring;
use flashyard_time::Duration;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::api::{self, Api};
use crate::audit::{self, Outcome};
use crate::cli::ServeArgs;
use crate::commands;
use crate::control::{AppliedView, HasKind, ObjectChange};
use crate::cores::Cores;
use crate::failure::{Failure, Invalid, System};
use crate::json;
use crate::listening::{self, Listening};
use crate::log::{Log, LogForm};
use crate::notify::{Condition, Manager};
use crate::out;
use crate::preflight::Preflight;
use crate::service::{self, Service};
use crate::spec::Document;
use crate::state::{IfDamaged, State, StateError};
use crate::takeover::{Predecessor, Waiting};

/// How long the lock of a target that was taken over from is tried, and how often.
const LOCK_PATIENCE: StdDuration = StdDuration::from_secs(10);
const LOCK_RETRY: StdDuration = StdDuration::from_millis(10);

/// Runs the target until SIGINT or SIGTERM.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let given = listening::given_by_manager();
    if args.log == LogForm::Json {
        out::write_notes_as_json();
    }
    // Signals are caught before anything is open, so that none is missed.
    let Caught {
        end,
        ended,
        reloads,
    } = catch_signals()?;
    let manager = Arc::new(Manager::found());
    let listening = Arc::new(Listening::new(Arc::clone(&manager), given));
    allow_many_files();
    let file = args.config.as_deref().map(Document::read);
    let file = file.transpose().map_err(Invalid::File)?;
    if buffers(args) < Limits::LEAST_BUFFERS {
        return Err(Invalid::Buffers.into());
    }
    let directory = args.state.clone().unwrap_or_else(commands::default_state);
    let address = match args.check || args.take_over {
        false => api_address(args, &listening)?,
        true => {
            let preflight = Preflight::new(file.as_ref(), args, &directory)?;
            if args.check {
                preflight.tell(args.json);
                return Ok(());
            }
            take_over(&preflight, args, &directory, &listening)?
        }
    };
    let service = start(file.as_ref(), args, &directory, &listening)?;
    if let Some(file) = &file {
        apply(file, args, &service)?;
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
        let (followed, log) = (Arc::clone(&service), Log::new(args.log, args.log_level));
        thread::spawn(move || followed.follow_events(&log));
    }
    let api_at = address.as_ref().and_then(|address| address.local().ok());
    let scheme = address.as_ref().map_or("http", api::Tcp::scheme);
    let renewal = address.as_ref().map(api::Tcp::renewal);
    let api = start_api(&directory, address, &service)?;
    let milliseconds = started.elapsed().as_millis();
    listening.serve();
    let listens: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let listens = format!("listening on {}", listens.join(", "));
    manager.tell(Condition::Ready(&listens));
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
                out::report(format_args!("dashboard: {scheme}://{address}/"));
            }
        }
    }
    let _waiting = Waiting::start(&directory, &listening, end).inspect_err(|error| {
        out::note(format_args!(
            "no other process can take over from this one (`serve --take-over`): {error}"
        ));
    });
    let (running, stopped) = mpsc::channel();
    let counting = Arc::clone(&service);
    thread::spawn(move || service::keep_counting(service::KEEP_EVERY, &stopped, &counting));
    let (watching, unwatched) = mpsc::channel();
    let watched = Arc::clone(&service);
    thread::spawn(move || watched.keep_watching(service::WATCH_EVERY, &unwatched));
    let reloading = Reloading {
        file: args.config.clone(),
        renewal,
        service: Arc::clone(&service),
        manager: Arc::clone(&manager),
        listens,
    };
    thread::spawn(move || reloads.iter().for_each(|()| reloading.reload()));
    // Its sender lives as long as the program.
    let _ = ended.recv();
    manager.tell(Condition::Stopping);
    drop((running, watching));
    stop(
        &service,
        StdDuration::from_nanos(args.stop_within.0.as_ns()),
    );
    // Behind it: whoever has a request at work is answered, and who comes meanwhile as well.
    drop(api);
    Ok(())
}

/// Ends serving. What takes too long is left: then this process ends at once, as with a second
/// signal.
fn stop(service: &Arc<Service>, most: StdDuration) {
    if let Err(left) = service.stop_within(most) {
        out::note(format_args!(
            "not finished after {} s, and ended: {left}. Hosts repeat what was not acknowledged; this counts as an unsafe \
             shutdown",
            most.as_secs_f64()
        ));
        process::exit(1);
    }
}

/// What signals ask for, served once the target has started.
struct Caught {
    /// For whoever else may end it.
    end: mpsc::Sender<()>,
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
    let by_signal = end.clone();
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
                    let _ = by_signal.send(());
                }
            }
        }
    });
    Ok(Caught {
        end,
        ended,
        reloads,
    })
}

/// What it takes to read the files again that the target was started with.
struct Reloading {
    file: Option<PathBuf>,
    /// Of the API over TCP: tokens and certificates.
    renewal: Option<api::Renewal>,
    service: Arc<Service>,
    manager: Arc<Manager>,
    /// Where the target listens, for the manager.
    listens: String,
}

impl Reloading {
    /// Reads them. What cannot be used changes nothing.
    fn reload(&self) {
        if self.file.is_none() && self.renewal.is_none() {
            out::note(format_args!(
                "SIGHUP, and there is no configuration file to apply: `flashyard serve` was given no --config, and no --api whose files are read again"
            ));
            return;
        }
        self.manager.tell(Condition::Reloading);
        let access = self.renewal.as_ref().map_or("", |it| self.renew(it));
        let file = self.file.as_ref().map_or("", |file| self.apply(file));
        let status = format!("{}{access}{file}", self.listens);
        self.manager.tell(Condition::Ready(&status));
    }

    /// What the manager is told of the files of the API.
    fn renew(&self, renewal: &api::Renewal) -> &'static str {
        match renewal.renew() {
            Ok(()) => {
                out::note(format_args!("the files of the API are read anew"));
                self.record("tokens and certificates of the API", None);
                ""
            }
            Err(why) => {
                out::note(format_args!(
                    "the files of the API are not taken, and those before stay: {why}"
                ));
                self.record("tokens and certificates of the API", Some(&why));
                "; tokens and certificates of the API are the old ones, see the log"
            }
        }
    }

    /// What the manager is told of the configuration file. Why it cannot be applied stands in
    /// health.
    fn apply(&self, file: &Path) -> &'static str {
        let failed = match self.service.apply_again(file) {
            Ok(applied) => {
                say_applied(&applied);
                out::note(format_args!("{} is applied", file.display()));
                self.record(&file.display().to_string(), None);
                return "";
            }
            Err(fault) => fault,
        };
        out::note(format_args!("{} is not applied: {failed}", file.display()));
        self.record(&file.display().to_string(), Some(&failed));
        self.service.note_file(failed);
        "; the configuration file is not applied, see `flashyard health`"
    }

    fn record(&self, what: &str, failed: Option<&dyn HasKind>) {
        record(&self.service, "SIGHUP", what, failed);
    }
}

/// Keeps in the audit log what the target does without being asked.
fn record(service: &Service, from: &str, what: &str, failed: Option<&dyn HasKind>) {
    let mut record = audit::of_target(from, "apply", String::new());
    what.clone_into(&mut record.object);
    record.code = failed.map(HasKind::kind);
    record.detail = failed.map_or_else(String::new, ToString::to_string);
    service.audit().record(record, Outcome::CarriedOut);
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
fn apply(file: &Document, args: &ServeArgs, service: &Service) -> Result<(), Failure> {
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let outcome = service.apply_at_start(file);
    let failed = outcome.as_ref().err().map(|fault| fault as &dyn HasKind);
    record(service, "start", &path.display().to_string(), failed);
    match outcome {
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
fn start(
    file: Option<&Document>,
    args: &ServeArgs,
    directory: &Path,
    listening: &Arc<Listening>,
) -> Result<Service, Failure> {
    let state = open_state(args, directory)?;
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
    let slow_io = args.slow_io.0;
    let listening = Arc::clone(listening);
    Ok(Service::start(state, cores, target, listening, slow_io)?)
}

/// Opens the state store. That of a target whose process has just ended may be locked a moment
/// longer.
fn open_state(args: &ServeArgs, directory: &Path) -> Result<State, StateError> {
    let if_damaged = match args.restore_state {
        true => IfDamaged::Restore,
        false => IfDamaged::Refuse,
    };
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match State::open(directory, if_damaged) {
            Err(StateError::Locked(_)) if args.take_over && Instant::now() < deadline => {
                thread::sleep(LOCK_RETRY);
            }
            opened => return opened,
        }
    }
}

/// Has the target that uses the state end, once nothing that can be known keeps this process from
/// taking its place. Its sockets stay open: hosts that connect meanwhile wait.
fn take_over(
    preflight: &Preflight,
    args: &ServeArgs,
    directory: &Path,
    listening: &Listening,
) -> Result<Option<api::Tcp>, Failure> {
    let found = Predecessor::find(directory)?;
    let predecessor = found.map(|(predecessor, sockets)| {
        listening.give(sockets.into_iter().map(TcpListener::from).collect());
        predecessor
    });
    preflight.reserve(listening)?;
    let api = api_address(args, listening)?;
    match predecessor {
        Some(predecessor) => predecessor.end()?,
        None => out::note(format_args!(
            "no target uses the state in {}: there is nothing to take over",
            directory.display()
        )),
    }
    Ok(api)
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
fn api_address(args: &ServeArgs, listening: &Listening) -> Result<Option<api::Tcp>, Invalid> {
    let opened = api_files(args).map(|(at, files)| api::Tcp::open(at, files, listening));
    opened.transpose().map_err(Invalid::Api)
}

/// Where that is, and whom it lets in.
pub fn api_files(args: &ServeArgs) -> Option<(SocketAddr, api::AccessFiles)> {
    let (address, tokens) = args.api.zip(args.api_tokens.clone())?;
    let both = args.api_cert.clone().zip(args.api_key.clone());
    let tls = both.map(|(cert, key)| api::TlsFiles {
        cert,
        key,
        client_ca: args.api_client_ca.clone(),
    });
    Some((address, api::AccessFiles { tokens, tls }))
}

fn start_api(
    directory: &Path,
    address: Option<api::Tcp>,
    service: &Arc<Service>,
) -> Result<Api, System> {
    let shared = Arc::clone(service);
    let audit = Arc::clone(service.audit());
    Api::start(directory, address, audit, move |request, asker| {
        shared.handle_for(request, asker)
    })
    .map_err(|error| System::Api(directory.to_owned(), error))
}
