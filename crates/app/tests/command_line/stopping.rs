//! Ctrl-C during a measurement: what was measured until then is kept and printed.

use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target};

const SUBNQN: &str = "nqn.2026-11.dev.flashyard:db";

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.expect("kill exists").success());
}

/// A target with a volume, and a measurement that takes an hour.
fn measuring(scratch: &Scratch, more: &[&str]) -> (Target, Child) {
    let target = Target::start(scratch, &[]);
    let device = [
        "device", "create", "null0", "--kind", "null", "--size", "1GiB",
    ];
    target.json(&device);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "v", "--device", "null0", "--tenant", "db",
    ]);
    let perf = Command::new(PROGRAM)
        .args(["perf", "--connect", &target.address, "--subnqn", SUBNQN])
        .args(["--rw", "randread", "--seconds", "3600", "--warmup", "0"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let read = || target.json(&["status"])["tenants"][0]["reads"].as_u64();
    while read().unwrap_or(0) == 0 {
        thread::sleep(Duration::from_millis(20));
    }
    (target, perf)
}

fn ended(perf: Child, status: i32) -> Output {
    let output = perf.wait_with_output().expect("it was ours");
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("stopped by a signal"), "{message}");
    output
}

#[test]
fn what_was_measured_until_ctrl_c_is_printed() {
    for (name, more) in [("stop-int", &[][..]), ("stop-rate", &["--rate", "1"])] {
        let scratch = Scratch::new(name);
        let (_target, perf) = measuring(&scratch, &[more, &["--json"]].concat());
        signal(&perf, "-INT");
        let output = ended(perf, 130);
        let report: Value = serde_json::from_slice(&output.stdout).expect("one report");
        assert_eq!(report["stopped"], true, "{report}");
        assert!(
            report["seconds"].as_f64().is_some_and(|it| it < 3600.0),
            "{report}"
        );
        assert!(
            report["reads"].as_u64() > Some(0) || name == "stop-rate",
            "{report}"
        );
        assert_eq!(report["errors"], 0, "{report}");
    }
    let scratch = Scratch::new("stop-term");
    let (_target, perf) = measuring(&scratch, &[]);
    signal(&perf, "-TERM");
    let output = ended(perf, 143);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        table.contains("stopped  by a signal; the figures are of"),
        "{table}"
    );
}

/// What is in flight to a target that does not answer any more is not waited for without end.
#[test]
fn a_target_that_does_not_answer_holds_up_no_end() {
    let scratch = Scratch::new("stop-stuck");
    let (target, perf) = measuring(&scratch, &["--json"]);
    signal(&target.child, "-STOP");
    signal(&perf, "-INT");
    let output = ended(perf, 130);
    signal(&target.child, "-CONT");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one report");
    assert_eq!(report["stopped"], true, "{report}");
}
