//! Load: which worker issues which I/O, and when.
//!
//! A [`Worker`] is a description; [`source`] makes I/O of it, one at a time, from a seeded stream
//! of its own, so that other workers do not change what a worker does.

pub mod blktrace;
pub(crate) mod source;
pub mod trace;
mod zipf;

use std::ops::Range;
use std::sync::Arc;

use flashyard_flash::UNIT_BYTES;
use flashyard_sched::{Class, TenantId};
use flashyard_time::{Duration, Time};

pub use trace::{Record, Trace, TraceError};

/// A worker issues I/O to one drive.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What it is called in results.
    pub label: String,
    /// Its tenant; several workers may share one.
    pub tenant: TenantId,
    /// The class of its I/O.
    pub class: Class,
    /// The place of its drive on the bench.
    pub drive: usize,
    /// What it does.
    pub work: Work,
    /// When it begins.
    pub start: Time,
    /// When it issues nothing more.
    pub stop: Time,
    /// Spans of work and of rest that follow each other from the start on; nothing when it never
    /// rests.
    pub phases: Option<Phases>,
}

/// Work and rest by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// How long it works.
    pub on: Duration,
    /// How long it rests.
    pub off: Duration,
}

/// What a worker does.
#[derive(Clone, Debug)]
pub enum Work {
    /// I/O drawn from a pattern.
    Drawn {
        /// When.
        pace: Pace,
        /// What.
        pattern: Pattern,
    },
    /// I/O that was recorded.
    Replay {
        /// The record.
        trace: Arc<Trace>,
        /// When.
        pace: ReplayPace,
    },
}

/// When I/O is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many are always in flight.
    Closed {
        /// How many.
        depth: u32,
    },
    /// They come whether or not others are done.
    Open {
        /// From one to the next, in the mean.
        gap: Duration,
        /// Whether they know of each other.
        arrivals: Arrivals,
        /// One that comes while so many are in flight is lost, and counted as that.
        most: u32,
    },
}

/// How the gaps of an open loop are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// All gaps are the same.
    Constant,
    /// Exponentially: a Poisson process.
    Poisson,
}

/// When recorded I/O is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayPace {
    /// At the recorded instants, with gaps divided by a factor.
    Recorded {
        /// The factor in hundredths, at least 1: 200 is twice as fast.
        speed_percent: u32,
        /// As in [`Pace::Open`].
        most: u32,
    },
    /// So many are always in flight; instants mean nothing.
    Closed {
        /// How many.
        depth: u32,
    },
}

/// Which I/O is issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// How many of a thousand read; the others write.
    pub reads_per_mille: u32,
    /// Lengths in bytes, each with the weight of its share among them.
    pub sizes: Vec<(u64, u32)>,
    /// Where.
    pub access: Access,
    /// Where at all, in bytes; nothing for the whole drive.
    pub region: Option<Range<u64>>,
}

/// In which order addresses are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One after another, from the beginning of the region, and again; reads and writes each at a
    /// position of their own, so that a mixture still writes in order.
    Sequential,
    /// Each multiple of the length equally likely.
    Random,
    /// Some more often: the `r`-th most popular with a probability in proportion to `r^-theta`.
    /// Which is popular is scattered over the region.
    Zipf {
        /// The exponent in thousandths, up to 2000.
        theta_per_mille: u32,
    },
}

/// Why a worker cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is for a drive that is not there.
    NoDrive,
    /// A length is zero, no multiple of [`UNIT_BYTES`], too long, or there is none.
    Size,
    /// The region does not lie on the drive, does not begin and end at multiples of [`UNIT_BYTES`],
    /// or has no room for one I/O.
    Region,
    /// A depth, gap, share, speed, exponent or phase has no meaning: zero, or too large.
    Number,
    /// The trace reaches beyond the drive.
    Trace,
}

/// The longest I/O.
const MOST_BYTES: u64 = 64 << 20;
/// The greatest exponent of a Zipf distribution, in thousandths.
const MOST_THETA: u32 = 2000;

impl Worker {
    /// One of tenant `tenant` on the first drive that works from beginning to end.
    pub fn new(label: impl Into<String>, tenant: u32, pace: Pace, pattern: Pattern) -> Self {
        Self::doing(label, tenant, Work::Drawn { pace, pattern })
    }

    /// One that repeats what was recorded.
    pub fn replaying(
        label: impl Into<String>,
        tenant: u32,
        trace: Arc<Trace>,
        pace: ReplayPace,
    ) -> Self {
        Self::doing(label, tenant, Work::Replay { trace, pace })
    }

    /// The same, on another drive.
    pub fn on(self, drive: usize) -> Self {
        Self { drive, ..self }
    }

    /// The same, in another class.
    pub fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The same, for a part of the time.
    pub fn between(self, start: Time, stop: Time) -> Self {
        Self {
            start,
            stop,
            ..self
        }
    }

    /// The same, with rests.
    pub fn in_phases(self, on: Duration, off: Duration) -> Self {
        let phases = Some(Phases { on, off });
        Self { phases, ..self }
    }

    /// The most I/Os it has in flight.
    pub fn most_in_flight(&self) -> u32 {
        match self.work {
            Work::Drawn {
                pace: Pace::Closed { depth },
                ..
            }
            | Work::Replay {
                pace: ReplayPace::Closed { depth },
                ..
            } => depth,
            Work::Drawn {
                pace: Pace::Open { most, .. },
                ..
            }
            | Work::Replay {
                pace: ReplayPace::Recorded { most, .. },
                ..
            } => most,
        }
    }

    /// Whether it can work on a drive of `capacity` bytes.
    pub fn check(&self, capacity: u64) -> Result<(), Unfit> {
        let rests = |phases: Phases| phases.on > Duration::ZERO && phases.off > Duration::ZERO;
        if self.most_in_flight() == 0 || !self.phases.is_none_or(rests) {
            return Err(Unfit::Number);
        }
        match &self.work {
            Work::Drawn { pace, pattern } => {
                if let Pace::Open {
                    gap: Duration::ZERO,
                    ..
                } = pace
                {
                    return Err(Unfit::Number);
                }
                pattern.check(capacity)
            }
            Work::Replay { trace, pace } => {
                if let ReplayPace::Recorded {
                    speed_percent: 0, ..
                } = pace
                {
                    return Err(Unfit::Number);
                }
                let fits = trace.end() <= capacity;
                fits.then_some(()).ok_or(Unfit::Trace)
            }
        }
    }

    fn doing(label: impl Into<String>, tenant: u32, work: Work) -> Self {
        Self {
            label: label.into(),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            drive: 0,
            work,
            start: Time::ZERO,
            stop: Time::MAX,
            phases: None,
        }
    }
}

impl Pace {
    /// So many Poisson arrivals a second, of which a few thousand may be in flight.
    pub fn poisson(per_second: u64) -> Self {
        Self::Open {
            gap: Duration::from_ns(1_000_000_000 / per_second.max(1)),
            arrivals: Arrivals::Poisson,
            most: 16_384,
        }
    }
}

impl Pattern {
    /// Reads and writes of `bytes` each at random.
    pub fn random(reads_percent: u32, bytes: u64) -> Self {
        Self {
            reads_per_mille: reads_percent * 10,
            sizes: vec![(bytes, 1)],
            access: Access::Random,
            region: None,
        }
    }

    /// Reads or writes of `bytes` each, one after another.
    pub fn sequential(reads_percent: u32, bytes: u64) -> Self {
        Self {
            access: Access::Sequential,
            ..Self::random(reads_percent, bytes)
        }
    }

    /// The same, in a part of the drive.
    pub fn within(self, region: Range<u64>) -> Self {
        Self {
            region: Some(region),
            ..self
        }
    }

    /// The same, in the `place`-th of `count` equal parts of a drive of `capacity` bytes.
    ///
    /// # Panics
    /// When `count` is zero.
    pub fn within_part(self, place: u64, count: u64, capacity: u64) -> Self {
        let part = capacity / count / UNIT_BYTES * UNIT_BYTES;
        self.within(part * place..part * (place + 1))
    }

    fn check(&self, capacity: u64) -> Result<(), Unfit> {
        let sound = |size: u64| size > 0 && size <= MOST_BYTES && size.is_multiple_of(UNIT_BYTES);
        if self.sizes.is_empty() || !self.sizes.iter().all(|&(size, _)| sound(size)) {
            return Err(Unfit::Size);
        }
        let theta = match self.access {
            Access::Zipf { theta_per_mille } => theta_per_mille,
            Access::Sequential | Access::Random => 0,
        };
        let weights: u64 = self
            .sizes
            .iter()
            .map(|&(_, weight)| u64::from(weight))
            .sum();
        if self.reads_per_mille > 1000 || theta > MOST_THETA || weights == 0 {
            return Err(Unfit::Number);
        }
        let Range { start, end } = self.region(capacity);
        let aligned = start.is_multiple_of(UNIT_BYTES) && end.is_multiple_of(UNIT_BYTES);
        if !aligned || end > capacity || start >= end || end - start < self.longest() {
            return Err(Unfit::Region);
        }
        Ok(())
    }

    fn region(&self, capacity: u64) -> Range<u64> {
        self.region.clone().unwrap_or(0..capacity)
    }

    fn longest(&self) -> u64 {
        let sizes = self.sizes.iter().map(|&(size, _)| size);
        sizes.max().unwrap_or(0)
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoDrive => "it is for a drive that is not on the bench",
            Self::Size => "an I/O is a multiple of 4 KiB long, at most 64 MiB",
            Self::Region => "its region does not lie on the drive, or has no room for an I/O",
            Self::Number => "a depth, gap, share, speed, exponent or phase is zero or too large",
            Self::Trace => "its trace reaches beyond the end of the drive",
        })
    }
}

impl std::error::Error for Unfit {}
