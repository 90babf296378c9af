//! What operators watch while it goes on: times of I/O.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, path, target_perf, target_perf_output};

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

/// What `iostat` has printed until now, line by line, while it goes on.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: BufReader<ChildStderr>,
    /// What it has said on standard error, as far as that was read.
    said: String,
}

impl Watching {
    fn start(target: &Target, args: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(args.split(' '))
            .arg("--state")
            .arg(&target.state)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = child.stdout.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        Self {
            child,
            lines: BufReader::new(output).lines(),
            errors: BufReader::new(errors),
            said: String::new(),
        }
    }

    /// Waits until it has said this on standard error.
    fn until_said(&mut self, word: &str) {
        while !self.said.contains(word) {
            let read = self.errors.read_line(&mut self.said);
            assert!(read.expect("text") > 0, "{}", self.said);
        }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it goes on").expect("text")
    }

    /// Sends a signal; gives the status and what was said on standard error.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill exists").success());
        let rest = self.errors.read_to_string(&mut self.said);
        rest.expect("text");
        let status = self.child.wait().expect("it ends");
        (status.code(), self.said)
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn iostat_shows_what_came_in_tables_for_scripts_and_as_json() {
    let scratch = Scratch::new("iostat");
    let target = with_volume(&scratch);
    let iostat = |args: &str| target.run(&args.split(' ').collect::<Vec<_>>());
    target_perf(&target, &["--rw", "randrw", "--nsid", "2"]);
    let table = text(&iostat("iostat --by volume --latency --histogram"));
    let header: Vec<&str> = table
        .lines()
        .next()
        .expect("a header")
        .split("  ")
        .collect();
    for column in ["VOLUME", "READS/S", "READ P99", "WRITE WAITED"] {
        assert!(header.iter().any(|it| it.trim() == column), "{table}");
    }
    assert!(
        table.contains("w UNDER") && table.contains("v: no reads and no writes"),
        "{table}"
    );

    let script = text(&iostat("iostat -H --by device 0.1 3"));
    let rows: Vec<Vec<&str>> = script
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(rows.len(), 3, "{script}");
    assert!(
        rows.iter().all(|row| row.len() == 10 && row[0] == "ram0"),
        "{script}"
    );
    assert!(
        rows[0][1].parse::<f64>().expect("a number") > 0.0,
        "{script}"
    );
    assert_eq!(
        rows[1][1..],
        ["0.0", "0.0", "0", "0", "0", "-", "-", "-", "-"],
        "{script}"
    );

    let lines = text(&iostat("iostat --json --histogram --by volume 0.1 2"));
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .collect();
    assert_eq!(lines.len(), 2);
    let first = &lines[0];
    assert_eq!(
        (&first["since_start"], &lines[1]["since_start"]),
        (&Value::from(true), &Value::from(false))
    );
    assert_eq!(first["rows"][0]["name"], "v");
    assert_eq!(first["rows"][0]["read_p99_us"], Value::Null);
    let busy = &first["rows"][1];
    let number = |key: &str| busy[key].as_f64().expect("a number");
    assert!(
        number("read_iops") > 0.0 && number("write_bytes_per_second") > 0.0,
        "{busy}"
    );
    let parts = number("read_waited_mean_us") + number("read_served_mean_us");
    assert!((number("read_mean_us") - parts).abs() < 0.01, "{busy}");
    let took = |key: &str| {
        let buckets = busy[key].as_array().expect("a list").iter();
        buckets
            .map(|bucket| bucket["took"].as_u64().expect("a number"))
            .sum::<u64>()
    };
    let figures = metrics(&target);
    for (key, op) in [("read_buckets", "read"), ("write_buckets", "write")] {
        let row = format!("flashyard_io_operations_total{{tenant=\"db\",op=\"{op}\"}}");
        let counted = figure(&figures, &row) as u64;
        assert_eq!(took(key), counted, "{busy}");
    }
    expect_failure(&iostat("iostat 0"), 2, "0.1 to 86400");
    expect_failure(&iostat("iostat -H --json"), 2, "cannot be used with");
}

#[test]
fn iostat_waits_for_a_target_that_is_started_again_and_for_no_other() {
    let scratch = Scratch::new("iostat-restart");
    let target = with_volume(&scratch);
    let mut watching = Watching::start(&target, "iostat --json 0.1");
    let seen: Value = serde_json::from_str(&watching.line()).expect("an object");
    assert_eq!(seen["since_start"], true);
    target.kill();
    // It may otherwise be back before somebody looks.
    watching.until_said("the target is away, and waited for");
    let target = Target::start(&scratch, &[]);
    let anew = |line: String| {
        let line: Value = serde_json::from_str(&line).expect("an object");
        line["since_start"] == true
    };
    while !anew(watching.line()) {}
    let (status, said) = watching.end("-INT");
    assert_eq!(status, Some(0), "{said}");
    for word in ["the target is away, and waited for", "the target is back"] {
        assert_eq!(said.matches(word).count(), 1, "{said}");
    }
    target.kill();
    let state = path(&scratch.join("state")).to_owned();
    let none = Command::new(PROGRAM)
        .args(["iostat", "1", "--state", &state])
        .output();
    expect_failure(&none.expect("the program starts"), 1, "no target runs on");
}

fn event(line: &str) -> Value {
    serde_json::from_str(line).expect("each line is an event")
}

#[test]
fn events_tell_who_came_what_changed_and_what_was_missed() {
    let scratch = Scratch::new("events");
    let target = with_volume(&scratch);
    let mut following = Watching::start(&target, "events --follow --json");
    let mut until = |kind: &str, said: &str| {
        loop {
            let event = event(&following.line());
            let detail = event["detail"].as_str().expect("text");
            if event["kind"] == kind && detail.contains(said) {
                return event;
            }
        }
    };
    let started = until("started", "start number 1");
    assert_eq!(
        (&started["id"], &started["missed"]),
        (&Value::from("1-1"), &Value::Null)
    );
    assert_eq!(
        until("changed", "created for tenant db")["what"],
        "volume v"
    );
    target_perf(&target, &["--rw", "randread"]);
    let connected = until("connected", "of db");
    assert_eq!(connected["what"], "tenant db");
    until("disconnected", "left");
    target.json(&[
        "tenant",
        "set",
        "db",
        "--host",
        "nqn.2026-11.dev.flashyard:nobody",
    ]);
    until("changed", "changed");
    let perf = target_perf_output(&target, &["--rw", "randread"]);
    assert!(!perf.status.success());
    until("refused", "it is not among the hosts");
    // Refused requests and those that only look change nothing.
    target.refused(
        &["tenant", "set", "nobody", "--weight", "2"],
        "there is no tenant",
    );
    target.json(&["volume", "list"]);
    target.json(&["health", "mute", "POOL_FULL", "--for", "90s"]);
    let muted = until("changed", "does not count for 90 s");
    let lines = text(&target.run(&["events"]));
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.contains("  changed  "))
            .count(),
        7,
        "{lines}"
    );
    let after = muted["id"].as_str().expect("text").to_owned();
    let none = text(&target.run(&["events", "--after", &after]));
    assert_eq!(none, "");

    target.kill();
    let target = Target::start(&scratch, &[]);
    let missed = until("missed", "of another run");
    assert_eq!(missed["missed"], Value::Null);
    assert_eq!(until("started", "start number 2")["id"], "2-1");
    let (status, said) = following.end("-INT");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the target is back"), "{said}");

    // A target that ends does not wait for those who follow.
    let following = Watching::start(&target, "events --follow");
    assert_eq!(target.terminate(), 0);
    following.end("-TERM");
}

#[test]
fn a_problem_that_appears_is_an_event() {
    let scratch = Scratch::new("events-health");
    let target = with_volume(&scratch);
    let mut following = Watching::start(&target, "events --follow --json");
    let bad = "device create bad0 --kind fault --device null0 --fault poison,every=9";
    target.json(&[
        "device", "create", "null0", "--kind", "null", "--size", "8MiB",
    ]);
    target.json(&bad.split(' ').collect::<Vec<_>>());
    loop {
        let event = event(&following.line());
        if event["kind"] == "problem" {
            assert_eq!(event["what"], "FAULTS_INJECTED");
            break;
        }
    }
}

/// As a page in a browser follows events: it names the last one that it has got in a header.
#[test]
fn a_stream_of_events_goes_on_where_its_client_was() {
    let scratch = Scratch::new("events-stream");
    let target = with_volume(&scratch);
    let mut socket = UnixStream::connect(target.state.join("api.sock")).expect("it listens");
    let request = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: 1-3\r\n\r\n";
    socket.write_all(request.as_bytes()).expect("it is taken");
    let lines = BufReader::new(socket).lines().map_while(Result::ok);
    let ids: Vec<String> = lines
        .filter(|line| line.starts_with("id: "))
        .take(3)
        .collect();
    assert_eq!(ids, ["id: 1-4", "id: 1-5", "id: 1-6"]);
}
