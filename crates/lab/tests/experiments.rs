//! Every experiment in quick mode: it runs, says what it should, and does what it did when its
//! digest was committed.
//!
//! The digests are in `docs/experiments/digests.toml`. A change of behaviour, wanted or not,
//! changes them; this test then prints the file as it has to be. Check the tables in
//! `docs/experiments`, too, before you commit it.

mod pages;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use flashyard_lab::report::{Column, Report, Unit, Value};
use flashyard_lab::{
    Context, Experiment, Progress, Refused, Request, Silent, experiments, find, plot,
};

fn quick(experiment: &dyn Experiment) -> Report {
    run_quickly(experiment, &Silent)
        .unwrap_or_else(|refused| panic!("{}: {refused}", experiment.name()))
}

fn run_quickly(experiment: &dyn Experiment, progress: &dyn Progress) -> Result<Report, Refused> {
    let request = Request {
        quick: true,
        ..Request::default()
    };
    let context = Context::new(experiment, &request, progress).expect("defaults are sound");
    experiment.run(&context)
}

#[test]
fn experiments_do_what_they_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments/digests.toml");
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let mut found = String::from(
        "# Digests of all experiments in quick mode with their defaults. Checked by crates/lab/tests/experiments.rs.\n",
    );
    for experiment in experiments() {
        let report = quick(*experiment);
        assert_sound(&report);
        pages::check(&report, *experiment);
        if experiment.is_measured() {
            assert_eq!(report.digest, 0, "{}", experiment.name());
            continue;
        }
        assert_ne!(report.digest, 0, "{}", experiment.name());
        writeln!(
            found,
            "{} = \"{}\"",
            experiment.name(),
            report.digest_text()
        )
        .expect("a string takes everything");
    }
    assert!(
        committed == found,
        "experiments no longer do what they did. If that is meant, run the changed ones in full, \
         look at what changed in docs/experiments, and commit digests.toml as:\n\n{found}"
    );
}

/// What every report keeps to.
fn assert_sound(report: &Report) {
    let name = report.experiment;
    assert!(!report.rows.is_empty(), "{name} has no rows");
    assert!(
        report
            .rows
            .iter()
            .all(|row| row.len() == report.columns.len()),
        "{name}"
    );
    let columns: BTreeSet<_> = report.columns.iter().map(|column| column.name).collect();
    assert_eq!(
        columns.len(),
        report.columns.len(),
        "{name} has two columns of one name"
    );
    for column in &report.columns {
        assert!(names_its_unit(column), "{name}: {}", column.name);
    }
    let charts: BTreeSet<_> = report.charts.iter().map(|chart| chart.name).collect();
    assert_eq!(
        charts.len(),
        report.charts.len(),
        "{name} has two charts of one name"
    );
    for value in report.rows.iter().flatten() {
        if let Value::Real(real) = value {
            assert!(real.is_finite(), "{name} has a number that is none");
        }
    }
}

/// Whoever reads the JSON sees no heading.
fn names_its_unit(column: &Column) -> bool {
    let end = match column.unit {
        Unit::None | Unit::Ratio | Unit::OfRow => return true,
        Unit::Micros => "us",
        Unit::Iops => "iops",
        Unit::BytesPerSecond => "bytes_per_second",
        Unit::Bytes => "bytes",
        Unit::Percent => "percent",
    };
    let before = column.name.strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with('_'))
}

/// Wants the end when all parts but two are done.
#[derive(Default)]
struct StopsEarly {
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress for StopsEarly {
    fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn step(&self, _what: &str) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        let total = self.total.load(Ordering::Relaxed);
        total > 0 && self.done.load(Ordering::Relaxed) + 2 >= total
    }
}

/// What was measured until the run is stopped is reported, and everything that a report is made
/// into copes with what is missing.
#[test]
fn a_stopped_experiment_reports_what_it_has() {
    for experiment in experiments() {
        let name = experiment.name();
        // Takes long, and its parts have nothing to do with each other.
        if name == "ssd-validate" {
            continue;
        }
        let stops = StopsEarly::default();
        let report = run_quickly(*experiment, &stops);
        // Nothing is compared yet when drives are still measured alone.
        if stops.total.into_inner() < 6 {
            let known = matches!(report, Ok(_) | Err(Refused::Stopped));
            assert!(known, "{name}");
            continue;
        }
        let report = report.unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert!(!report.rows.is_empty(), "{name} keeps nothing");
        let _ = (report.json(*experiment), report.page(*experiment, ""));
        let _ = report.markdown(*experiment, "");
        for chart in &report.charts {
            let _ = plot::svg(chart);
        }
    }
}

#[test]
fn several_seeds_give_intervals() {
    let experiment = find("ssd-interference").expect("it is there");
    let request = Request {
        quick: true,
        seeds: Some(2),
        ..Request::default()
    };
    let context = Context::new(experiment, &request, &Silent).expect("two seeds are sound");
    let report = experiment.run(&context).expect("it runs");
    let intervals = report
        .rows
        .iter()
        .flatten()
        .filter(|value| matches!(value, Value::Interval { .. }));
    assert!(intervals.count() > report.rows.len());
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_what_can() {
    let experiment = find("ssd-latency-curve").expect("it is there");
    let refused = |request: Request| {
        let refused = Context::new(experiment, &request, &Silent).err();
        refused.expect("it is refused").to_string()
    };
    let set = |key: &str, value: &str| Request {
        settings: vec![(key.into(), value.into())],
        ..Request::default()
    };
    for (request, reason) in [
        (
            set("depth", "1"),
            "there is no setting `depth`; there are profile, condition, kind",
        ),
        (
            set("gib", "0"),
            "`gib` cannot be `0`; it is a whole number from 1 to 1024",
        ),
        (
            set("gib", "18446744073709551616"),
            "it is a whole number from 1 to 1024",
        ),
        (
            set("kind", "read-4k,erase"),
            "it is one or more of read-4k, write-4k",
        ),
        (
            set("condition", "fragmented=101%"),
            "it is one or more of empty, clean, fragmented",
        ),
        (set("profile", "dct983,"), "one or more of dct983,"),
        (
            Request {
                seeds: Some(0),
                ..Request::default()
            },
            "a mean is taken over 1 to 100 seeds",
        ),
        (
            Request {
                policies: vec!["fifo".into()],
                ..Request::default()
            },
            "has no switch in it",
        ),
    ] {
        let sentence = refused(request);
        assert!(sentence.contains(reason), "{sentence}");
    }
    assert!(matches!(
        find("nothing"),
        Err(Refused::UnknownExperiment { .. })
    ));
    let missing = set("profile", "missing.toml");
    let context = Context::new(experiment, &missing, &Silent).expect("it might be a file");
    let sentence = experiment
        .run(&context)
        .expect_err("there is no such file")
        .to_string();
    assert!(
        sentence.contains("the profile `missing.toml` cannot be used"),
        "{sentence}"
    );
}
