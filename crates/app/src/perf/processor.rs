//! Which processor a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread to `processor`, if one is given.
pub(super) fn pin(processor: Option<usize>) -> io::Result<()> {
    let Some(processor) = processor else {
        return Ok(());
    };
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no processor {processor}"),
        ));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(|error| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("cannot run on processor {processor}: {error}"),
        )
    })
}
