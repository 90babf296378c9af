//! The CPU time of a thread.

use std::fs;
use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds that this thread has run, as Linux counts them: other programs do not count.
/// Nanoseconds of the wall clock where there is no such count. It moves in steps of up to 4 ms.
pub(super) fn thread_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let counted = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = counted.split(' ').next().and_then(|ns| ns.parse().ok());
    ran.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}
