//! The emulated drive compared with theory and public figures.

use std::fs;

use flashyard_time::Duration;

use super::columns::column;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{Column, Report, Unit, Value};
use crate::validate::{self, Extent, Row, TESTS};
use crate::{bench, parallel};

/// See [`Experiment::claim`].
pub(super) struct Validate;

const CLAIM: &str = "The emulated drive does what theory and public figures say it should. Twenty tests measure \
latencies, bounds, queueing, write amplification, pacing, published figures of three drives, determinism and power cuts, \
each against an oracle that is a closed form of the drive's own numbers or was published by others; none is fitted. Where a measured \
value is not within its tolerance, the note says what physics makes of it.";

const SETTINGS: [Setting; 1] = [Setting {
    key: "test",
    default: "0",
    domain: Domain::Number(0, TESTS.len() as u64),
    meaning: "the only test to do, by number; 0 for all",
}];

const COLUMNS: [Column; 7] = [
    column("number", "number", Unit::None),
    column("test", "test", Unit::None),
    column("oracle", "oracle", Unit::OfRow),
    column("measured", "measured", Unit::OfRow),
    column("tolerance", "tolerance", Unit::None),
    column("pass", "pass", Unit::None),
    column("note", "note", Unit::None),
];

/// The test of the model's own speed: it needs the machine for itself, and no two runs of it are
/// the same.
const SPEED_TEST: u8 = 20;

impl Experiment for Validate {
    fn name(&self) -> &'static str {
        "ssd-validate"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let only = context.number("test");
        let wanted = |number: &u8| only == 0 || u64::from(*number) == only;
        let numbers: Vec<u8> = (1..=TESTS.len() as u8).filter(wanted).collect();
        context.progress.begin(numbers.len() as u64);
        let extent = if context.quick {
            Extent::Quick
        } else {
            Extent::Full
        };
        let (last, others): (Vec<u8>, Vec<u8>) =
            numbers.iter().partition(|&&number| number == SPEED_TEST);
        let test = |number: &u8| {
            let rows =
                validate::run_test(*number, extent, clock().as_ref().map(|clock| clock as _));
            context.progress.step(TESTS[usize::from(*number) - 1]);
            rows
        };
        let mut rows = parallel::first(context.progress, &others, test).concat();
        let digest = rows
            .iter()
            .map(|row| row.measured.to_bits())
            .fold(0, bench::fold);
        let last = last.iter().filter(|_| !context.progress.is_stopped());
        rows.extend(last.flat_map(test));
        Ok(Report {
            rows: rows.iter().map(values).collect(),
            notes: vec![summary(&rows)],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

fn values(row: &Row) -> Vec<Value> {
    vec![
        Value::Count(u64::from(row.number)),
        Value::Text(row.test.clone()),
        Value::Real(row.oracle),
        Value::Real(row.measured),
        Value::Text(tolerance(row.tolerance)),
        Value::Flag(row.pass()),
        Value::Text(row.note.into()),
    ]
}

/// How much less and how much more than the oracle passes.
fn tolerance((less, more): (f64, f64)) -> String {
    let percent = |part: f64| format!("{}", (part * 1e3).round() / 10.0);
    match (less, more) {
        (0.0, 0.0) => "exact".into(),
        (0.0, f64::INFINITY) => "at least".into(),
        (less, more) if less.to_bits() == more.to_bits() => format!("\u{b1}{} %", percent(less)),
        (less, more) => format!("-{} to +{} %", percent(less), percent(more)),
    }
}

fn summary(rows: &[Row]) -> String {
    let missed: Vec<_> = rows.iter().filter(|row| !row.pass()).collect();
    if missed.is_empty() {
        return format!("All {} rows are within their tolerance.", rows.len());
    }
    let explained = missed.iter().filter(|row| row.explained).count();
    format!(
        "{} of {} rows are within their tolerance; of the others {explained} are explained by physics and {} are not.",
        rows.len() - missed.len(),
        rows.len(),
        missed.len() - explained
    )
}

/// CPU time of this thread; nothing where the kernel does not tell.
fn clock() -> Option<impl Fn() -> Duration> {
    spent().map(|_| || spent().unwrap_or(Duration::ZERO))
}

fn spent() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_shown_as_they_are() {
        for (part, text) in [
            ((0.0, 0.0), "exact"),
            ((0.01, 0.01), "\u{b1}1 %"),
            ((0.05, 0.01), "-5 to +1 %"),
            ((0.125, 0.0), "-12.5 to +0 %"),
            ((0.0, f64::INFINITY), "at least"),
        ] {
            assert_eq!(tolerance(part), text);
        }
    }
}
