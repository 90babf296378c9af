//! `flashyard perf`: loads a volume over NVMe/TCP, or by an NVMe function, and tells what it gave.
//! The load generator is in `load`, what it is connected to in `peer`, what it writes and expects
//! to read in `verify`, the limit to compare with in `baseline`, the outcome in `report`.

mod baseline;
pub mod error;
mod load;
mod peer;
mod processor;
mod report;
mod stop;
mod verify;

use std::io::{IsTerminal, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration as StdDuration;

use clap::{Args, ValueEnum};
use flashyard_host::Options;
use flashyard_host::vfio::PolledOptions;
use flashyard_nvme::Nqn;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_time::Duration;
use uuid::Uuid;

use crate::failure::{Failure, Found, System};
use crate::json;
use crate::options::{self, whole, within};
use crate::out::say_line;
use crate::spec::Span;
use error::PerfError;
use load::{Outcome, Plan, Shared};
use peer::{Peer, Way};
pub use report::Report;
use stop::Stop;

/// Who we are if nothing else is said.
const HOST_NQN: &str = "nqn.2026-11.dev.flashyard:perf";
/// Data of writes up to this size go in the capsule, as far as the bare sockets are concerned.
const IN_CAPSULE: usize = 8192;
/// The processor of the target, by agreement of those who measure.
const TARGET_PROCESSOR: usize = 0;

/// What to measure.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  flashyard perf --connect localhost:4420 --subnqn nqn.2026-11.dev.flashyard:db --rw randread --qd 32\n  flashyard perf --connect localhost:4420 --subnqn nqn.2026-11.dev.flashyard:db --rw randrw --mix 70 --rate 20k --json\n  flashyard perf --connect localhost:4420 --subnqn nqn.2026-11.dev.flashyard:db --rw write --bs 128KiB --baseline\n  flashyard perf --connect vfio-user:/run/flashyard/vm1.sock --rw randread --qd 1\n\nCtrl-C ends it early: what was measured until then is printed, and the exit status is 130."
)]
pub struct PerfArgs {
    /// Address of the target, HOST:PORT; or vfio-user:PATH, the socket of a function
    #[arg(long, help_heading = "Target", value_name = "TARGET")]
    pub connect: Peer,
    /// The tenant's subsystem; a function belongs to one
    #[arg(long, help_heading = "Target", value_name = "NQN", value_parser = options::nqn)]
    pub subnqn: Option<Nqn>,
    /// Namespace of the volume
    #[arg(long, help_heading = "Target", value_name = "N", default_value_t = 1, value_parser = whole::<u32>("volume", "nsid"))]
    pub nsid: u32,
    /// What to do
    #[arg(long, help_heading = "Load", value_enum)]
    pub rw: Pattern,
    /// Reads in a hundred, with --rw randrw
    #[arg(long, help_heading = "Load", value_name = "PERCENT", default_value_t = 50, value_parser = within::<u32>(0, 100))]
    pub mix: u32,
    /// Bytes of each read or write
    #[arg(long, help_heading = "Load", value_name = "SIZE", default_value = "4KiB", value_parser = options::block)]
    pub bs: u32,
    /// Reads and writes in flight, over all queues of a job
    #[arg(long, help_heading = "Load", value_name = "N", default_value_t = 32, value_parser = within::<u32>(1, 65_536))]
    pub qd: u32,
    /// I/O queues (connections) of a job
    #[arg(long, help_heading = "Load", value_name = "N", default_value_t = 1, value_parser = within::<u16>(1, 1024))]
    pub queues: u16,
    /// Threads, each with an association of its own
    #[arg(long, help_heading = "Load", value_name = "N", default_value_t = 1, value_parser = within::<u16>(1, 256))]
    pub jobs: u16,
    /// Tell the target with every command how it wants to be treated
    #[arg(long, help_heading = "Load", value_enum)]
    pub class: Option<ClassHint>,
    /// Completions that a target of ours may hold and tell at once, 1 to 128, or `adaptive`;
    /// without it the target decides, and answers each command by itself
    #[arg(long, help_heading = "Flow control", value_name = "N", value_parser = options::window)]
    pub window: Option<u8>,
    /// Ask a target of ours what may be outstanding, and keep what exceeds it here
    #[arg(long, help_heading = "Flow control")]
    pub credits: bool,
    /// Keep here what would make latency exceed this, such as 500us, as Parda's hosts do; any
    /// target will do
    #[arg(
        long,
        help_heading = "Flow control",
        value_name = "LATENCY",
        conflicts_with = "credits"
    )]
    pub parda: Option<Span>,
    /// Start this many per second, whatever the target does; latency counts from the intended start
    #[arg(long, help_heading = "Load", value_name = "IOPS", value_parser = options::rate)]
    pub rate: Option<u64>,
    /// Write a pattern and check what is read; fails if anything is not what was written
    #[arg(long, help_heading = "Measurement")]
    pub verify: bool,
    /// Measure bare sockets with the same traffic before and after, and give the ratio
    #[arg(long, help_heading = "Measurement")]
    pub baseline: bool,
    /// How long to measure
    #[arg(long, help_heading = "Measurement", value_name = "SECONDS", default_value_t = 5.0, value_parser = options::seconds)]
    pub seconds: f64,
    /// How long to run before measuring
    #[arg(long, help_heading = "Measurement", value_name = "SECONDS", default_value_t = 1.0, value_parser = options::seconds)]
    pub warmup: f64,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Name of this host
    #[arg(long, help_heading = "Target", value_name = "NQN", default_value = HOST_NQN, value_parser = options::nqn)]
    pub hostnqn: Nqn,
    /// Protect headers by digests
    #[arg(long, help_heading = "Target")]
    pub hdgst: bool,
    /// Protect data by digests
    #[arg(long, help_heading = "Target")]
    pub ddgst: bool,
    /// Run on this processor (job 0; the others on those that follow)
    #[arg(long, help_heading = "Measurement", value_name = "N")]
    pub processor: Option<usize>,
    /// Decides which blocks are chosen, and the pattern of --verify
    #[arg(long, help_heading = "Load", value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Order and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Reads anywhere
    Randread,
    /// Writes anywhere
    Randwrite,
    /// Reads and writes anywhere
    Randrw,
    /// Reads one after the other
    Read,
    /// Writes one after the other
    Write,
}

/// What a command asks for in its access latency field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassHint {
    /// As soon as possible
    Latency,
    /// Typical
    Throughput,
    /// Whenever it suits
    Background,
}

/// `flashyard perf`: measures, prints, and fails if a read or write did.
pub fn run(args: PerfArgs) -> Result<(), Failure> {
    let stop = Stop::at_signals().map_err(System::Signals)?;
    let report = measure(&args, &stop)?;
    if args.json {
        json::print("", &report);
    } else {
        say_line!("{report}");
    }
    match stop.signal() {
        Some(signal) => Err(Failure::Stopped(signal)),
        None if report.failed() => Err(Found::Perf.into()),
        None => Ok(()),
    }
}

/// Measures. An error is one line that says what to do; failed reads and writes are in the report.
fn measure(args: &PerfArgs, stop: &Arc<Stop>) -> Result<Report, PerfError> {
    let way = args.way()?;
    let mut limits = Vec::new();
    if args.baseline {
        // Somebody who mistyped the address need not wait for bare sockets first.
        if let Way::Tcp(address, _) = &way {
            TcpStream::connect_timeout(address, StdDuration::from_secs(10))
                .map_err(|error| PerfError::Unreachable(args.connect.clone(), error))?;
        }
        limits.push(run_baseline(args)?);
    }
    let outcomes = run_jobs(args, &way, stop)?;
    if args.baseline {
        let again = args.clone();
        let again = stop.unless_asked(move || run_baseline(&again));
        let panicked = |_| Err(PerfError::Panicked("the measurement of bare sockets"));
        let again = again.map(|limit| limit.unwrap_or_else(panicked));
        limits.extend(again.transpose()?);
    }
    let mut report = Report::new(args, outcomes, &limits);
    report.stopped = stop.is_asked();
    Ok(report)
}

/// Measures several at the same time, all on one thread that does nothing else: so many tenants
/// take one processor. The measurements begin together, and each is one job.
pub fn measure_together(runs: &[PerfArgs]) -> Result<Vec<Report>, PerfError> {
    let plan = |args: &PerfArgs| Ok(args.plan(0, args.way()?));
    let plans = runs.iter().map(plan).collect::<Result<_, _>>()?;
    let outcomes = thread::spawn(move || load::run_together(plans))
        .join()
        .unwrap_or(Err(PerfError::Panicked("the measurement")))?;
    let reports = runs
        .iter()
        .zip(outcomes)
        .map(|(args, outcome)| Report::new(args, vec![outcome], &[]));
    Ok(reports.collect())
}

/// Bare sockets, for half of the time: once before and once after the target.
fn run_baseline(args: &PerfArgs) -> Result<baseline::Limit, PerfError> {
    if std::io::stderr().is_terminal() {
        eprintln!("bare sockets, {:.1} s", args.seconds / 2.0);
    }
    let jobs = usize::from(args.jobs);
    let traffic = baseline::Traffic {
        block: args.bs as usize,
        depth: args.qd as usize * jobs,
        queues: usize::from(args.queues) * jobs,
        read_percent: args.read_percent(),
        in_capsule: IN_CAPSULE,
    };
    let seconds = StdDuration::from_secs_f64(args.seconds / 2.0);
    baseline::run(
        traffic,
        seconds,
        args.processor.map(|_| TARGET_PROCESSOR),
        args.processor,
    )
    .map_err(PerfError::Baseline)
}

fn run_jobs(args: &PerfArgs, way: &Way, stop: &Arc<Stop>) -> Result<Vec<Outcome>, PerfError> {
    let shared = Arc::new(Shared::new(args.jobs, Arc::clone(stop)));
    let threads: Vec<_> = (0..args.jobs)
        .map(|job| {
            let plan = args.plan(job, way.clone());
            let shared = Arc::clone(&shared);
            let name = format!("perf-{job}");
            thread::Builder::new()
                .name(name)
                .spawn(move || load::run(plan, shared))
        })
        .collect::<Result<_, _>>()
        .map_err(PerfError::Thread)?;
    show_progress(args, &shared, || {
        threads.iter().all(thread::JoinHandle::is_finished)
    });
    let outcomes = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or(Err(PerfError::Panicked("a job"))));
    // All are joined before the first error is reported.
    let outcomes: Vec<_> = outcomes.collect();
    outcomes.into_iter().collect()
}

/// One line on a terminal that shows that something happens, and how long it still will.
fn show_progress(args: &PerfArgs, shared: &Shared, finished: impl Fn() -> bool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut before = 0;
    let mut shown = false;
    for tick in 1_u32.. {
        thread::sleep(StdDuration::from_millis(100));
        if finished() {
            break;
        }
        if tick % 10 == 0 {
            let now = shared.operations.load(Ordering::Relaxed);
            let seconds = f64::from(tick / 10);
            eprint!(
                "\r{seconds:>5} s  {:>12} IOPS  {:>5.0} s left ",
                report::thousands((now - before) as f64),
                (args.warmup + args.seconds - seconds).max(0.0)
            );
            let _ = std::io::stderr().flush();
            before = now;
            shown = true;
        }
    }
    if shown {
        eprint!("\r{:40}\r", "");
    }
}

impl PerfArgs {
    /// The way to what is to be loaded.
    fn way(&self) -> Result<Way, PerfError> {
        let address = match &self.connect {
            Peer::Function(path) => {
                return match self.only_of_tcp() {
                    Some(option) => Err(PerfError::NotOfFunction(option)),
                    None => Ok(Way::Function(path.clone(), self.polled())),
                };
            }
            Peer::Target(address) => address,
        };
        let subnqn = self.subnqn.ok_or(PerfError::NoSubsystem)?;
        let found = address.reachable();
        let found = found.map_err(|error| PerfError::Unknown(address.clone(), error))?;
        Ok(Way::Tcp(found, Box::new(self.association(subnqn))))
    }

    /// An option that was given and is none for a function.
    fn only_of_tcp(&self) -> Option<&'static str> {
        let given = [
            ("--subnqn", self.subnqn.is_some()),
            ("--jobs", self.jobs > 1),
            ("--window", self.window.is_some()),
            ("--credits", self.credits),
            ("--parda", self.parda.is_some()),
            ("--baseline", self.baseline),
            ("--hdgst", self.hdgst),
            ("--ddgst", self.ddgst),
        ];
        let first = given.into_iter().find(|(_, given)| *given);
        first.map(|(option, _)| option)
    }

    /// A queue has as much room as its share of the depth needs.
    fn queue_depth(&self) -> u16 {
        self.qd.div_ceil(u32::from(self.queues)).min(4_095) as u16
    }

    fn polled(&self) -> PolledOptions {
        PolledOptions {
            queues: self.queues,
            depth: self.queue_depth(),
            transfer: self.bs,
            shadow: true,
            mapped: false,
        }
    }

    fn association(&self, subnqn: Nqn) -> Options {
        let hostid = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.hostnqn.as_str().as_bytes());
        Options {
            header_digest: self.hdgst,
            data_digest: self.ddgst,
            queues: self.queues,
            depth: self.queue_depth(),
            credits: self.credits,
            parda: self.parda.map(|Span(latency)| latency),
            // One for each packet is what a target does that has no windows.
            coalescing: self.window.map(|window| CompletionCoalescing {
                window,
                packed: window != 1,
            }),
            ..Options::new(subnqn, self.hostnqn, hostid.into_bytes())
        }
    }

    fn read_percent(&self) -> u32 {
        match self.rw {
            Pattern::Randread | Pattern::Read => 100,
            Pattern::Randwrite | Pattern::Write => 0,
            Pattern::Randrw => self.mix,
        }
    }

    fn plan(&self, job: u16, way: Way) -> Plan {
        Plan {
            way,
            job,
            jobs: self.jobs,
            nsid: self.nsid,
            block: self.bs,
            depth: self.qd,
            read_percent: self.read_percent(),
            sequential: matches!(self.rw, Pattern::Read | Pattern::Write),
            access_latency: match self.class {
                None => 0,
                Some(ClassHint::Background) => 1,
                Some(ClassHint::Throughput) => 2,
                Some(ClassHint::Latency) => 3,
            },
            rate: self.rate.map(|rate| (rate / u64::from(self.jobs)).max(1)),
            verify: self.verify,
            warmup: duration(self.warmup),
            seconds: duration(self.seconds),
            processor: self.processor.map(|first| first + usize::from(job)),
            seed: self.seed,
        }
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::from_ns((seconds * 1e9) as u64)
}
