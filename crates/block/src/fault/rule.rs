//! What a fault is: which one, how often, and for which I/O.

use std::num::NonZeroU64;
use std::ops::Range;

use flashyard_sched::Op;
use flashyard_time::Duration;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// One bit of a block is flipped: on the medium for a write, on the way for a read.
    Poison,
    /// Only some of the 512-byte sectors of a write reach the medium; it is acknowledged.
    Torn,
    /// A write is acknowledged and never done.
    Lost,
    /// An I/O is done elsewhere within the range, and acknowledged. What a write should have
    /// replaced stays.
    Misdirected,
    /// A read gives what blocks held before they were written last.
    Stale,
    /// A promise that data are on the medium is not kept: they stay in the memory of the layer, and
    /// are lost when it is closed or the program ends.
    LyingFlush,
    /// An I/O fails: [`crate::IoError::Read`] or [`crate::IoError::Write`].
    Error,
    /// The device is not there: [`crate::IoError::NotReady`].
    Gone,
    /// An I/O does not end until the fault is taken away or the layer is closed.
    Hang,
    /// An I/O begins later.
    Latency {
        /// So much at least.
        fixed: Duration,
        /// And up to so much more, each span equally likely.
        spread: Duration,
    },
}

/// How often it happens, of what it can happen to: blocks for poison, I/Os for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// By chance: so many of a billion.
    Rate(u32),
    /// The n-th, the 2n-th and so on.
    Every(NonZeroU64),
}

impl Frequency {
    /// Always.
    pub const ALWAYS: Self = Self::Rate(PARTS);
    /// One of a thousand.
    pub const SELDOM: Self = Self::Rate(PARTS / 1000);
}

/// Parts of a [`Frequency::Rate`].
pub const PARTS: u32 = 1_000_000_000;

/// Which I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Reads.
    Reads,
    /// Writes, and what else changes blocks.
    Writes,
    /// All, flushes too.
    All,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// What goes wrong.
    pub kind: FaultKind,
    /// How often.
    pub frequency: Frequency,
    /// For which I/Os.
    pub on: FaultOn,
    /// Only for I/Os that touch these blocks; for all if not given. Of poison only these blocks,
    /// and a misdirected I/O stays within them.
    pub range: Option<Range<u64>>,
}

impl FaultRule {
    /// A fault with the frequency and the I/Os that are usual for its kind, everywhere.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            frequency: kind.usual_frequency(),
            on: kind.possible_on()[0],
            range: None,
        }
    }

    /// The same at every chance.
    #[must_use]
    pub fn always(self) -> Self {
        self.at(Frequency::ALWAYS)
    }

    /// The same with this frequency.
    #[must_use]
    pub fn at(self, frequency: Frequency) -> Self {
        Self { frequency, ..self }
    }

    /// The same for these I/Os.
    #[must_use]
    pub fn on(self, on: FaultOn) -> Self {
        Self { on, ..self }
    }

    /// The same for these blocks.
    #[must_use]
    pub fn within(self, blocks: Range<u64>) -> Self {
        let range = Some(blocks);
        Self { range, ..self }
    }

    /// Blocks of an I/O that the fault can happen to; none if it is not for this I/O. A flush has
    /// one that stands for it. `promises`: its end says that data are on the medium.
    pub(super) fn touched(&self, op: Op, blocks: Range<u64>, promises: bool) -> Range<u64> {
        const NONE: Range<u64> = 0..0;
        if !self.is_for(op, promises) {
            return NONE;
        }
        match &self.range {
            Some(_) if op == Op::Flush => NONE,
            None if op == Op::Flush => 0..1,
            None => blocks,
            Some(range) => range.start.max(blocks.start)..range.end.min(blocks.end),
        }
    }

    fn is_for(&self, op: Op, promises: bool) -> bool {
        match self.kind {
            FaultKind::LyingFlush => promises,
            FaultKind::Torn | FaultKind::Lost => op == Op::Write,
            FaultKind::Stale => op == Op::Read,
            FaultKind::Poison | FaultKind::Misdirected => match self.on {
                FaultOn::Reads => op == Op::Read,
                FaultOn::Writes => op == Op::Write,
                FaultOn::All => matches!(op, Op::Read | Op::Write),
            },
            FaultKind::Error | FaultKind::Gone | FaultKind::Hang | FaultKind::Latency { .. } => {
                match self.on {
                    FaultOn::Reads => op == Op::Read,
                    FaultOn::Writes => !matches!(op, Op::Read | Op::Flush),
                    FaultOn::All => true,
                }
            }
        }
    }
}

impl FaultKind {
    /// How often it happens if not given: silent faults seldom, what a host notices always.
    pub fn usual_frequency(self) -> Frequency {
        match self {
            Self::Poison | Self::Torn | Self::Lost | Self::Misdirected | Self::Stale => {
                Frequency::SELDOM
            }
            Self::LyingFlush | Self::Error | Self::Gone | Self::Hang | Self::Latency { .. } => {
                Frequency::ALWAYS
            }
        }
    }

    /// Which I/Os it can be for; the first if not given.
    pub fn possible_on(self) -> &'static [FaultOn] {
        use FaultOn::{All, Reads, Writes};
        match self {
            Self::Poison | Self::Misdirected => &[Writes, Reads, All],
            Self::Torn | Self::Lost => &[Writes],
            Self::Stale => &[Reads],
            Self::LyingFlush => &[All],
            Self::Error | Self::Gone | Self::Hang | Self::Latency { .. } => &[All, Reads, Writes],
        }
    }

    /// Whether it can be for some blocks only: a flush is for all.
    pub fn has_range(self) -> bool {
        self != Self::LyingFlush
    }
}
