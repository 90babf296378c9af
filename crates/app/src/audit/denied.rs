//! How many denied requests are recorded. That is decided before anything waits for a disk: a disk
//! that stands still holds up a few of those who ask, and keeps no thread from the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::file::Series;
use crate::log::Bounded;

/// Records that are on their way to the disk at a time.
const AT_WORK: usize = 16;

/// Who was denied something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Somebody with a role, which does not suffice.
    Known,
    /// Anybody else.
    Unknown,
}

/// What was recorded of late. Known callers and unknown ones have a bound each, so that none of
/// these hides the others.
#[derive(Default)]
pub(super) struct Denials {
    known: Arc<Mutex<Limit>>,
    unknown: Arc<Mutex<Limit>>,
}

#[derive(Default)]
struct Limit {
    bounded: Bounded,
    at_work: usize,
    /// Not recorded, and not told of yet.
    left_out: u64,
}

/// Leave to record a denied request.
pub struct Admission {
    caller: Caller,
    limit: Arc<Mutex<Limit>>,
    /// So many before it were not recorded.
    pub(super) left_out: u64,
}

impl Denials {
    /// Leave to record one, unless there are too many.
    pub(super) fn admit(&self, caller: Caller, now: Instant) -> Option<Admission> {
        let limit = match caller {
            Caller::Known => &self.known,
            Caller::Unknown => &self.unknown,
        };
        let mut of = lock(limit);
        let (is_within, left_out) = of.bounded.admit(now);
        of.left_out += left_out;
        if is_within && of.at_work >= AT_WORK {
            of.left_out += 1;
        }
        if !is_within || of.at_work >= AT_WORK {
            return None;
        }
        of.at_work += 1;
        Some(Admission {
            caller,
            limit: Arc::clone(limit),
            left_out: std::mem::take(&mut of.left_out),
        })
    }
}

impl Admission {
    pub(super) fn series(&self) -> Series {
        match self.caller {
            Caller::Known => Series::Denied,
            Caller::Unknown => Series::Unknown,
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.limit).at_work -= 1;
    }
}

fn lock(limit: &Mutex<Limit>) -> MutexGuard<'_, Limit> {
    limit.lock().unwrap_or_else(PoisonError::into_inner)
}
