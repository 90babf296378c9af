//! How far a run is: a bar on a terminal, lines elsewhere, both on standard error.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flashyard_lab::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Tells the user.
pub(super) struct Listener {
    bar: ProgressBar,
    lines: bool,
    total: AtomicU64,
    done: AtomicU64,
}

impl Listener {
    /// Where standard error is no terminal and the output is for a program, nobody is told
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
        }
    }

    /// The bar, to be cleared from elsewhere.
    pub(super) fn handle(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Clears the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Listener {
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
