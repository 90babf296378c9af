//! Counters of the dies.

/// What was done by a die, or by several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieCounts {
    /// Pages of all planes read.
    pub reads: u64,
    /// Programs ended.
    pub programs: u64,
    /// Erases ended.
    pub erases: u64,
    /// Programs and erases suspended.
    pub suspends: u64,
    /// Where the time went.
    pub time: DieTime,
}

/// Nanoseconds of dies, each counted when its span ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieTime {
    /// Sensing, waiting for the channel and moving, of the host and of garbage collection.
    pub reading: u64,
    /// Waiting for the channel and taking the data of a program.
    pub loading: u64,
    /// Programming.
    pub programming: u64,
    /// Erasing.
    pub erasing: u64,
    /// Suspending and resuming.
    pub switching: u64,
}

impl DieCounts {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            programs: self.programs + other.programs,
            erases: self.erases + other.erases,
            suspends: self.suspends + other.suspends,
            time: self.time.plus(&other.time),
        }
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            programs: self.programs - earlier.programs,
            erases: self.erases - earlier.erases,
            suspends: self.suspends - earlier.suspends,
            time: self.time.since(&earlier.time),
        }
    }
}

impl DieTime {
    /// All spans.
    pub fn busy(&self) -> u64 {
        self.reading + self.loading + self.programming + self.erasing + self.switching
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            reading: self.reading + other.reading,
            loading: self.loading + other.loading,
            programming: self.programming + other.programming,
            erasing: self.erasing + other.erasing,
            switching: self.switching + other.switching,
        }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            reading: self.reading - earlier.reading,
            loading: self.loading - earlier.loading,
            programming: self.programming - earlier.programming,
            erasing: self.erasing - earlier.erasing,
            switching: self.switching - earlier.switching,
        }
    }
}
