//! The virtual machine: workers, a network, switches and drives in one event loop, in virtual time.
//!
//! An I/O is issued by a worker, may be held by its host, crosses the network, waits in the switch
//! until the policy picks it, is done by the drive, and goes back. Everything follows from the
//! setup and its seed; one run is one thread, and nothing is allocated for an I/O once as many were
//! in flight as ever will be.

mod host;
mod machine;
mod path;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;

use flashyard_flash::ssd::Device;
use flashyard_sched::Policy;
use flashyard_time::{Duration, Time};

use crate::load::{Unfit, Worker};
use crate::measure::Tally;

pub use host::HostPolicy;
pub(crate) use machine::fold;
pub use path::{Path, Stall};

/// The setup of a bench.
pub struct Setup {
    /// The drives, each with its switch.
    pub drives: Vec<Drive>,
    /// The workers that issue I/O.
    pub workers: Vec<Worker>,
    /// What hosts do with I/O before they send it; nothing when they send everything at once.
    pub host: Option<Box<dyn HostPolicy>>,
    /// How long a command is on its way to the target, and its answer on the way back.
    pub network: Duration,
    /// What lies between each switch and its drive, from these spans after the beginning on;
    /// nothing when there are none.
    pub paths: Vec<(Duration, Path)>,
    /// How long nothing is measured.
    pub warm_up: Duration,
    /// How long is measured after that.
    pub span: Duration,
    /// Also what was done in every such part of the span; not when zero.
    pub window: Duration,
    /// The seed of the workers.
    pub seed: u64,
}

/// A drive and its switch.
pub struct Drive {
    /// The drive, idle.
    pub device: Device,
    /// The policy. It has not seen any I/O.
    pub policy: Box<dyn Policy>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The results of each worker, in the order of the setup.
    pub workers: Vec<Tally>,
    /// Depends on instant, worker and address of every completion, measured or not, and on each
    /// drive's own digest.
    pub digest: u64,
    /// I/Os completed, measured or not.
    pub completed: u64,
}

/// Why nothing can run on a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// A worker cannot work: which, and why.
    Worker(String, Unfit),
    /// Drives refuse more I/Os than [`MOST_IN_FLIGHT`]; so many may be in flight.
    TooMany(u64),
    /// The span is divided into more than [`MOST_WINDOWS`] windows.
    Windows,
    /// The drives were used before, and not from the same instant on.
    Clocks,
    /// The run ends after [`LATEST`].
    Span,
}

/// The most I/Os that may be in flight.
pub const MOST_IN_FLIGHT: u64 = 65_536;
/// The most parts a span may be divided into.
pub const MOST_WINDOWS: u64 = 100_000;
/// When a run has to be over, by the clock of its drives: these count 36 years and have to have
/// some left.
pub const LATEST: Time = Time::from_ns(1 << 59);

impl Setup {
    /// One drive and its workers, without hosts and network, from seed 1; nothing is measured yet.
    pub fn new(device: Device, policy: Box<dyn Policy>, workers: Vec<Worker>) -> Self {
        Self {
            drives: vec![Drive { device, policy }],
            workers,
            host: None,
            network: Duration::ZERO,
            paths: Vec::new(),
            warm_up: Duration::ZERO,
            span: Duration::ZERO,
            window: Duration::ZERO,
            seed: 1,
        }
    }

    /// The same, measured for `span` after `warm_up`.
    pub fn measured(self, warm_up: Duration, span: Duration) -> Self {
        Self {
            warm_up,
            span,
            ..self
        }
    }

    /// The same, from another seed.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same, with something between each switch and its drive.
    pub fn over(self, paths: Vec<(Duration, Path)>) -> Self {
        Self { paths, ..self }
    }

    /// Runs it. Drives and policies are used up: the next run begins with fresh ones.
    pub fn run(self) -> Result<Results, SetupError> {
        self.check()?;
        let mut machine = machine::Machine::new(self);
        machine.run();
        Ok(machine.results())
    }

    fn check(&self) -> Result<(), SetupError> {
        for worker in &self.workers {
            let drive = self.drives.get(worker.drive).ok_or(Unfit::NoDrive);
            drive
                .and_then(|drive| worker.check(drive.device.capacity()))
                .map_err(|why| SetupError::Worker(worker.label.clone(), why))?;
        }
        let in_flight = self
            .workers
            .iter()
            .map(|worker| u64::from(worker.most_in_flight()))
            .sum();
        if in_flight > MOST_IN_FLIGHT {
            return Err(SetupError::TooMany(in_flight));
        }
        let windows = self
            .span
            .as_ns()
            .checked_div(self.window.as_ns())
            .unwrap_or(0);
        if windows > MOST_WINDOWS {
            return Err(SetupError::Windows);
        }
        let clock = self.drives.first().map(|drive| drive.device.now());
        if clock.unwrap_or(Time::ZERO) + self.warm_up + self.span > LATEST {
            return Err(SetupError::Span);
        }
        let same = |drive: &Drive| Some(drive.device.now()) == clock;
        self.drives
            .iter()
            .all(same)
            .then_some(())
            .ok_or(SetupError::Clocks)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("drives", &self.drives.len())
            .field("workers", &self.workers)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(label, why) => write!(f, "the worker `{label}` cannot work: {why}"),
            Self::TooMany(in_flight) => write!(
                f,
                "{in_flight} I/Os could be in flight; lower the depths to {MOST_IN_FLIGHT} in sum"
            ),
            Self::Windows => write!(
                f,
                "the span has more than {MOST_WINDOWS} windows; widen them"
            ),
            Self::Clocks => f.write_str("the drives do not begin at the same instant"),
            Self::Span => f.write_str("the run takes more than 18 years of its own time"),
        }
    }
}

impl std::error::Error for SetupError {}
