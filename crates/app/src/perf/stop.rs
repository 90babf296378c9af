//! Ctrl-C during a measurement: it ends then, and what was measured until then is kept.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How often it is looked whether somebody wants the end.
const LOOK: Duration = Duration::from_millis(20);
/// A command that a signal ended has this status, and the signal's number added.
const SIGNALLED: i32 = 128;

/// Whether somebody wants the end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    /// The signal; none is 0.
    signal: AtomicI32,
    /// There is something to keep.
    measuring: AtomicBool,
}

impl Stop {
    /// One that signals ask for. While there is nothing to keep, and the second time, a signal ends
    /// the program at once.
    pub(super) fn at_signals() -> io::Result<Arc<Self>> {
        let stop = Arc::new(Self::default());
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let asked = Arc::clone(&stop);
        thread::spawn(move || {
            for signal in signals.forever() {
                if !asked.measuring.load(Ordering::Relaxed) {
                    eprintln!("flashyard: stopped by a signal before anything was measured");
                    process::exit(SIGNALLED + signal);
                }
                if asked.signal.swap(signal, Ordering::Relaxed) != 0 {
                    process::exit(SIGNALLED + signal);
                }
            }
        });
        Ok(stop)
    }

    /// From now on there is something to keep.
    pub(super) fn measuring(&self) {
        self.measuring.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to end.
    pub(super) fn is_asked(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The signal that asked for it.
    pub(super) fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// What `work` gives, on a thread of its own, unless the end comes first.
    pub(super) fn unless_asked<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<thread::Result<T>> {
        let thread = thread::spawn(work);
        while !thread.is_finished() {
            if self.is_asked() {
                return None;
            }
            thread::sleep(LOOK);
        }
        Some(thread.join())
    }
}
