//! `flashyard sim`: whole lives of a target in virtual time, by seed, on all processors. A finding
//! is reported at once, with the command that repeats it; Ctrl-C ends the run and keeps what it
//! has.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flashyard_lab::swarm::{Fault, Life, Plan, examine};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::SimArgs;
use crate::failure::{Failure, Found, System};
use crate::json;
use crate::out::say_line;

/// Seeds of a run for which none are given.
const SEEDS: u64 = 1_000;
/// A run that has found so much ends: the rest is most likely the same.
const ENOUGH: usize = 20;
/// Where no bar is seen, a line comes this often.
const LINE: Duration = Duration::from_secs(10);

/// What all workers share.
struct Run {
    faults: Vec<Fault>,
    next: AtomicU64,
    /// After the last seed.
    end: u64,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
    sum: Mutex<Sum>,
    bar: ProgressBar,
}

/// What came of all lives so far.
#[derive(Default)]
struct Sum {
    lives: u64,
    commands: u64,
    connects: u64,
    troubles: u64,
    findings: Vec<(u64, String)>,
}

/// Runs the command. The error is that something was found.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    let (first, end) = match (args.seed, args.seeds, args.minutes) {
        (Some(seed), ..) => (seed, seed.saturating_add(1)),
        (None, Some(seeds), _) => (seeds.first, seeds.end),
        (None, None, Some(_)) => (0, u64::MAX),
        (None, None, None) => (0, SEEDS),
    };
    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(System::Signals)?;
    }
    let run = Run {
        faults: args.faults.clone().unwrap_or_else(|| Fault::ALL.to_vec()),
        next: AtomicU64::new(first),
        end,
        until: args
            .minutes
            .map(|minutes| begun + Duration::from_secs(60 * minutes)),
        stop,
        sum: Mutex::default(),
        bar: bar(end - first, args.json),
    };
    let jobs = args.jobs.map_or_else(
        || thread::available_parallelism().map_or(1, NonZero::get),
        usize::from,
    );
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| run.work());
        }
        if !args.json && !io::stderr().is_terminal() {
            run.tell_lines(begun);
        }
    });
    run.bar.finish_and_clear();
    let sum = run.sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    match args.json {
        true => json::print("", &sum.json(&run.faults, begun.elapsed())),
        false => sum.say(args.seed, &run.faults, begun.elapsed()),
    }
    match sum.findings.len() {
        0 => Ok(()),
        several => Err(Found::Seeds(several).into()),
    }
}

impl Run {
    /// One life after the other.
    fn work(&self) {
        while !self.is_over() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return;
            }
            let life = lived(seed, self.faults.clone());
            if let Some(finding) = &life.finding {
                let repeat = again(seed, &self.faults);
                self.bar
                    .suspend(|| eprintln!("seed {seed}: {finding}\n    {repeat}"));
            }
            self.sum().add(life);
            self.bar.inc(1);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.until.is_some_and(|until| Instant::now() >= until)
            || self.next.load(Ordering::Relaxed) >= self.end
            || self.sum().findings.len() >= ENOUGH
    }

    /// Says now and then how far the run is.
    fn tell_lines(&self, begun: Instant) {
        let mut reported = Instant::now();
        while !self.is_over() {
            thread::sleep(Duration::from_millis(50));
            if reported.elapsed() >= LINE {
                reported = Instant::now();
                let (lives, seconds) = (self.sum().lives, begun.elapsed().as_secs());
                eprintln!("{lives} lives in {seconds} s");
            }
        }
    }

    fn sum(&self) -> std::sync::MutexGuard<'_, Sum> {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A life on a thread of its own: the buffers of a thread remember the lives before.
fn lived(seed: u64, faults: Vec<Fault>) -> Life {
    let life = thread::Builder::new().spawn(move || examine(seed, &faults));
    life.map(|life| life.join().expect("panics are findings"))
        .expect("a thread can be had")
}

impl Sum {
    fn add(&mut self, life: Life) {
        self.lives += 1;
        self.commands += life.commands;
        self.connects += life.connects;
        self.troubles += life.troubles;
        if let Some(finding) = life.finding {
            self.findings.push((life.seed, finding));
        }
    }

    fn say(&self, seed: Option<u64>, faults: &[Fault], took: Duration) {
        if let Some(seed) = seed {
            say_line!("{}", Plan::draw(seed, faults));
        }
        say_line!(
            "{} lives: {} commands, {} connects, {} troubles, {} findings, in {:.1} s",
            self.lives,
            self.commands,
            self.connects,
            self.troubles,
            self.findings.len(),
            took.as_secs_f64()
        );
    }

    fn json(&self, faults: &[Fault], took: Duration) -> Value {
        let findings = self.findings.iter().map(|(seed, finding)| {
            json!({
                "seed": seed,
                "finding": finding,
                "life": Plan::draw(*seed, faults).to_string(),
                "repeat": again(*seed, faults),
            })
        });
        json!({
            "lives": self.lives,
            "commands": self.commands,
            "connects": self.connects,
            "troubles": self.troubles,
            "seconds": took.as_secs_f64(),
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}

/// The command that repeats a life.
fn again(seed: u64, faults: &[Fault]) -> String {
    let names: Vec<&str> = faults.iter().map(|fault| fault.name()).collect();
    match (faults.len() == Fault::ALL.len(), faults) {
        (true, _) => format!("flashyard sim --seed {seed}"),
        (false, []) => format!("flashyard sim --seed {seed} --faults none"),
        (false, _) => format!("flashyard sim --seed {seed} --faults {}", names.join(",")),
    }
}

fn bar(seeds: u64, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match seeds > u64::from(u32::MAX) {
        true => (
            ProgressBar::no_length(),
            "{pos} lives  {elapsed}  {per_sec}",
        ),
        false => (
            ProgressBar::new(seeds),
            "{bar:30} {pos}/{len} lives  {elapsed}  {per_sec}",
        ),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_repeats_a_life_can_be_typed() {
        assert_eq!(again(7, &Fault::ALL), "flashyard sim --seed 7");
        assert_eq!(again(7, &[]), "flashyard sim --seed 7 --faults none");
        assert_eq!(
            again(7, &[Fault::Disk, Fault::Power]),
            "flashyard sim --seed 7 --faults disk,power"
        );
    }
}
