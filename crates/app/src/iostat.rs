//! `flashyard iostat`: what came to tenants, volumes or devices, and how long it took, interval by
//! interval. The first line is since the target started.

mod figures;
mod print;

use std::time::{Duration, Instant};

use crate::cli::IostatArgs;
use crate::commands::place;
use crate::control::{Page, Request, TrafficView};
use crate::failure::Failure;
use crate::live::{Said, Watched};
pub use figures::{By, Direction, Figures, Interval, Part, percentile};
use print::Print;

/// Prints lines until there are as many as are wanted, or a signal comes.
pub fn run(args: &IostatArgs) -> Result<(), Failure> {
    let place = place(&args.reach)?;
    let mut target = Watched::new(place)?;
    let mut print = Print::new(args);
    let most = match (args.interval, args.count) {
        (None, _) => Some(1),
        (Some(_), count) => count,
    };
    let every = Duration::from_secs_f64(args.interval.unwrap_or_default());
    let (mut before, mut due, mut lines) = (None, Instant::now(), 0);
    while most.is_none_or(|most| lines < most) {
        if lines > 0 && target.pause_until(due) {
            break;
        }
        let Said::Answer(now) = target.ask::<TrafficView>(&Request::Traffic(Page::default()))?
        else {
            break;
        };
        print.line(&Interval::between(before.as_ref(), &now, args.by));
        (before, lines) = (Some(now), lines + 1);
        // After a wait for the target no lines are made up for.
        due = (due + every).max(Instant::now());
    }
    Ok(())
}
