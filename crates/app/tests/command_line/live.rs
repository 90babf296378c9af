//! What operators watch while it goes on: times of I/O.

use crate::rig::{Scratch, Target, target_perf};

/// A target with a volume for tenant `db`.
fn with_volume(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 256MiB",
        "pool create fast --device ram0",
        "tenant create db --host *",
        "volume create v --pool fast --size 64MiB --tenant db",
        "volume create w --pool fast --size 64MiB --tenant db",
    ] {
        target.json(&line.split(' ').collect::<Vec<_>>());
    }
    target
}

fn metrics(target: &Target) -> String {
    String::from_utf8(target.run(&["metrics"]).stdout).expect("it prints text")
}

/// The value of a row of figures.
fn figure(figures: &str, row: &str) -> f64 {
    let mut lines = figures.lines();
    let value = lines.find_map(|line| line.strip_prefix(row)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {row} in {figures}"))
}

#[test]
fn times_of_io_are_histograms_that_no_deletion_takes_back() {
    let scratch = Scratch::new("times");
    let target = with_volume(&scratch);
    let done = target_perf(&target, &["--rw", "randrw", "--nsid", "1"]);
    assert!(done["reads"].as_u64() > Some(0), "{done}");
    let figures = metrics(&target);
    for said in [
        "# TYPE flashyard_io_duration_seconds histogram\n",
        "# UNIT flashyard_io_waited_seconds seconds\n",
        "flashyard_io_served_seconds_bucket{le=\"0.00002048\",tenant=\"db\",device=\"ram0\",op=\"read\"} ",
    ] {
        assert!(figures.contains(said), "{said} in {figures}");
    }
    let own = "{tenant=\"db\",device=\"ram0\",op=\"read\"}";
    let row =
        |of: &str, what: &str| figure(&figures, &format!("flashyard_io_{of}_seconds_{what}{own}"));
    let reads = figure(
        &figures,
        "flashyard_io_operations_total{tenant=\"db\",op=\"read\"}",
    );
    for of in ["duration", "waited", "served"] {
        assert!((row(of, "count") - reads).abs() < 0.5, "{of}: {figures}");
        let inf = format!(
            "flashyard_io_{of}_seconds_bucket{{le=\"+Inf\",tenant=\"db\",device=\"ram0\",op=\"read\"}}"
        );
        assert!((figure(&figures, &inf) - reads).abs() < 0.5, "{of}");
    }
    let parts = row("waited", "sum") + row("served", "sum");
    assert!((row("duration", "sum") - parts).abs() < 1e-6, "{figures}");

    let rows = |target: &Target| target.json(&["volume", "list"]);
    target.json(&["volume", "delete", "v", "--yes"]);
    assert_eq!(rows(&target).as_array().map(Vec::len), Some(1));
    let after = metrics(&target);
    let count = format!("flashyard_io_duration_seconds_count{own}");
    assert!((figure(&after, &count) - reads).abs() < 0.5, "{after}");
}
