//! What is wrong with a target, as people, monitors and Prometheus see it.

use std::process::Output;

use serde_json::Value;

use crate::rig::{Scratch, Target, expect_failure, path};

/// Codes of what is wrong, with how many things it is wrong with.
fn problems(health: &Value) -> Vec<(String, u64)> {
    let rows = health["problems"].as_array().expect("a list").iter();
    rows.map(|row| {
        let code = row["code"].as_str().expect("a code").to_owned();
        (code, row["count"].as_u64().expect("a number"))
    })
    .collect()
}

fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("it prints text")
}

#[test]
fn a_monitor_sees_what_is_wrong_and_what_is_muted_does_not_count() {
    let scratch = Scratch::new("health");
    let target = Target::start(&scratch, &[]);
    let check = || target.run(&["status", "--check"]);
    assert_eq!(
        (check().status.code(), text(&check())),
        (Some(0), "healthy\n")
    );
    let image = scratch.join("d.img");
    let file = ["--kind", "file", "--size", "256MiB", "--path", path(&image)];
    target.json(&[&["device", "create", "disk0"][..], &file].concat());
    target.json(&["pool", "create", "fast", "--device", "disk0"]);
    target.json(&[
        "tenant",
        "create",
        "db",
        "--host",
        "*",
        "--guarantee",
        "read_iops=10",
    ]);
    target.json(&[
        "volume", "create", "v", "--pool", "fast", "--size", "64MiB", "--tenant", "db",
    ]);
    let warned = check();
    assert_eq!(warned.status.code(), Some(3));
    assert_eq!(text(&warned), "degraded: GUARANTEE_UNVERIFIED (1)\n");
    let shown = target.run(&["health"]);
    for said in ["degraded\n", "tenant db", "to do: measure the device with"] {
        assert!(text(&shown).contains(said), "{}", text(&shown));
    }

    let mute = ["health", "mute", "GUARANTEE_UNVERIFIED", "--for"];
    expect_failure(&target.run(&[&mute[..], &["soon"]].concat()), 2, "8h");
    expect_failure(
        &target.run(&["health", "mute", "GUARANTEE_FINE"]),
        2,
        "GUARANTEE_MISSED",
    );
    target.json(&[&mute[..], &["8h"]].concat());
    assert_eq!(check().status.code(), Some(0));
    let health = target.json(&["health"]);
    assert_eq!(health["health"], "healthy");
    assert!(health["problems"][0]["muted_until"].is_string(), "{health}");
    target.kill();

    // What is lost does not hide behind what is muted.
    std::fs::write(&image, "no pool").expect("it is ours");
    let target = Target::start(&scratch, &[]);
    let failed = target.run(&["status", "--check"]);
    assert_eq!(failed.status.code(), Some(4), "{}", text(&failed));
    assert!(!text(&failed).contains("UNVERIFIED"), "{}", text(&failed));
    let status = target.json(&["status"]);
    assert_eq!(status["health"], "failed");
    let codes = problems(&status);
    assert!(
        codes.iter().any(|(code, _)| code == "UNAVAILABLE"),
        "{codes:?}"
    );
    target.json(&["health", "unmute", "GUARANTEE_UNVERIFIED"]);
    let health = target.json(&["health"]);
    let rows = health["problems"].as_array().expect("a list");
    assert!(
        rows.iter().all(|row| row["muted_until"].is_null()),
        "{health}"
    );
}

#[test]
fn prometheus_gets_figures_in_its_own_form() {
    let scratch = Scratch::new("metrics");
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "256MiB",
    ]);
    target.json(&["pool", "create", "fast", "--device", "ram0"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = [
        "volume", "create", "v", "--pool", "fast", "--size", "64MiB", "--tenant",
    ];
    target.json(&[&volume[..], &["db"]].concat());
    let figures = target.run(&["metrics"]);
    let figures = text(&figures);
    for said in [
        "# TYPE flashyard_io_operations counter\n",
        "flashyard_io_operations_total{tenant=\"db\",op=\"read\"} 0\n",
        "flashyard_pool_bytes{pool=\"fast\",kind=\"used\"} 67108864",
        "flashyard_volume_size_bytes{volume=\"v\",tenant=\"db\",place=\"fast\"} 67108864",
        "flashyard_healthy 1",
        "# EOF\n",
    ] {
        assert!(figures.contains(said), "{said} in {figures}");
    }
    let mut names: Vec<&str> = figures
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "each name is there once");
}
