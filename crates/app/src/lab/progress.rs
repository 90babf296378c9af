//! How far a run is: a bar on a terminal, lines elsewhere, both on standard error.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use flashyard_lab::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Tells the user.
pub(super) struct Listener {
    bar: ProgressBar,
    lines: bool,
    total: AtomicU64,
    done: AtomicU64,
    /// The signal that somebody has sent who wants the end; none is 0.
    signal: Arc<AtomicI32>,
}

impl Listener {
    /// Where standard error is no terminal and the output is for a program, nothing is reported
    /// anything.
    pub(super) fn new(quiet: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = match terminal {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        bar.set_style(
            ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed}, {eta} left  {wide_msg}")
                .expect("the template is a constant"),
        );
        if terminal {
            // The clock goes on while a part takes long.
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self {
            bar,
            lines: !terminal && !quiet,
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            signal: Arc::default(),
        }
    }

    /// Ends the run at a signal: the parts that are begun are finished, and the report has what
    /// there is. The second signal ends the program at once.
    pub(super) fn end_at_a_signal(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (bar, asked) = (self.bar.clone(), Arc::clone(&self.signal));
        thread::spawn(move || {
            for signal in signals.forever() {
                if asked.swap(signal, Ordering::Relaxed) != 0 {
                    bar.finish_and_clear();
                    eprintln!("flashyard: stopped by a signal");
                    process::exit(128 + signal);
                }
                let message =
                    "ending: what is being measured is finished first; again to end at once";
                bar.suspend(|| eprintln!("flashyard: {message}"));
            }
        });
        Ok(())
    }

    /// The signal that ended the run before all parts were done.
    pub(super) fn stopped_early(&self) -> Option<i32> {
        let all = self.done.load(Ordering::Relaxed) >= self.total.load(Ordering::Relaxed);
        let signal = self.signal.load(Ordering::Relaxed);
        (signal != 0 && !all).then_some(signal)
    }

    /// Clears the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Listener {
    fn is_stopped(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    fn begin(&self, total: u64) {
        self.bar.set_length(total);
        self.total.store(total, Ordering::Relaxed);
    }

    fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.lines {
            eprintln!("{done}/{} {what}", self.total.load(Ordering::Relaxed));
        }
    }
}
