//! How fast the members of an array are rebuilt at most: each piece begins when those before it
//! have had their time.

use std::cell::Cell;
use std::num::NonZeroU64;

use flashyard_runtime::Rt;
use flashyard_time::{Duration, Time};

/// See the module.
pub(super) struct RateLimit {
    /// Bytes per second.
    rate: Cell<Option<NonZeroU64>>,
    /// When the next piece may begin.
    next: Cell<Time>,
}

impl RateLimit {
    pub(super) fn new(rate: Option<NonZeroU64>) -> Self {
        Self {
            rate: Cell::new(rate),
            next: Cell::new(Time::ZERO),
        }
    }

    pub(super) fn rate(&self) -> Option<NonZeroU64> {
        self.rate.get()
    }

    /// Holds from the next piece on.
    pub(super) fn set(&self, rate: Option<NonZeroU64>) {
        self.rate.set(rate);
    }

    /// Waits until so many bytes may be copied. What was not used before is lost.
    pub(super) async fn take(&self, rt: &Rt, bytes: u64) {
        let Some(rate) = self.rate.get() else {
            return;
        };
        let now = rt.now();
        let begin = self.next.get().max(now);
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let takes = Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX));
        self.next.set(begin + takes);
        rt.sleep(begin - now).await;
    }
}
