//! The laboratory as a user runs it: what is printed where, what is written, and what is refused.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use flashyard_testbed::Scratch;
use serde_json::Value;

/// An experiment that has settings, charts and no policies.
const CURVE: &str = "ssd-latency-curve";
/// Makes it a matter of a second.
const SMALL: [&str; 5] = [
    "--quick",
    "--set",
    "condition=clean",
    "--set",
    "kind=read-4k",
];

fn path(scratch: &Scratch, name: &str) -> String {
    let path = scratch.join(name);
    path.to_str().expect("plain names").to_owned()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashyard"));
    command.arg("lab").args(args);
    command
}

fn lab(args: &[&str]) -> Output {
    command(args).output().expect("the program starts")
}

/// Runs something that must succeed, and returns what it prints.
fn printed(args: &[&str]) -> String {
    let output = lab(args);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {messages}");
    String::from_utf8(output.stdout).expect("text is printed")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).expect("JSON and nothing else is printed")
}

/// Runs something that must end with this status, print nothing, and say `why`.
fn refused(args: &[&str], status: i32, why: &str) {
    let output = lab(args);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {messages}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(messages.contains(why), "{args:?}: {messages}");
}

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["run", CURVE], &SMALL[..], more].concat()
}

#[test]
fn experiments_are_listed_and_shown() {
    let list = json(&["list", "--json"]);
    let names: Vec<_> = list["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["name"])
        .collect();
    for name in [CURVE, "ssd-interference"] {
        assert!(
            names.iter().any(|known| *known == name),
            "{name} is not in {list}"
        );
        assert!(printed(&["list"]).contains(name));
        let shown = json(&["show", name, "--json"]);
        assert!(
            shown["claim"]
                .as_str()
                .is_some_and(|claim| claim.ends_with('.')),
            "{shown}"
        );
        assert!(printed(&["show", name]).starts_with(name));
    }
    let setting = &json(&["show", CURVE, "--json"])["settings"][0];
    for part in ["key", "default", "allowed", "meaning"] {
        assert!(setting[part].is_string(), "{setting}");
    }
}

#[test]
fn a_run_prints_json_by_contract_and_the_same_for_the_same_seed() {
    let first = json(&run(&["--json", "--seed", "7"]));
    assert_eq!(first["experiment"], CURVE);
    assert_eq!(first["seed"], 7);
    assert_eq!(first["settings"]["kind"], "read-4k");
    let digest = first["digest"].as_str().expect("text");
    assert!(
        u64::from_str_radix(digest, 16).is_ok() && digest.len() == 16,
        "{digest}"
    );
    for row in first["rows"].as_array().expect("a list") {
        for column in ["iops", "mean_us", "p50_us", "p99_us"] {
            assert!(row[column].is_number(), "{column}: {row}");
        }
    }
    assert_eq!(first, json(&run(&["--json", "--seed", "7"])));
    let other = json(&run(&["--json", "--seed", "8"]));
    assert_ne!(first["digest"], other["digest"]);
}

#[test]
fn a_run_prints_a_table_and_tells_its_progress_elsewhere() {
    let output = lab(&run(&[]));
    let table = String::from_utf8(output.stdout).expect("text");
    let messages = String::from_utf8(output.stderr).expect("text");
    assert!(
        table.contains("P99, us") && table.contains("read-4k"),
        "{table}"
    );
    assert!(!table.contains("1/"), "{table}");
    assert!(table.contains("Quick run: "), "{table}");
    let parts = messages
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("1/"));
    assert!(parts.is_some(), "{messages}");
    let quiet = lab(&run(&["--json"]));
    assert!(quiet.stderr.is_empty(), "no lines for a program");
}

#[test]
fn several_seeds_give_intervals() {
    let report = json(&run(&["--json", "--seeds", "2"]));
    let mean = &report["rows"][0]["mean_us"];
    assert!(
        mean["mean"].is_number() && mean["half_width_95"].is_number(),
        "{report}"
    );
}

#[test]
fn plots_and_markdown_are_written_whole() {
    let scratch = Scratch::new("plots");
    let (plots, markdown) = (path(&scratch, "new/plots"), path(&scratch, "table.md"));
    let report = json(&run(&["--json", "--plot", &plots, "--markdown", &markdown]));
    let digest = report["digest"].as_str().expect("text");
    let page = fs::read_to_string(Path::new(&plots).join(format!("{CURVE}.html")));
    let page = page.expect("a page is written");
    assert!(page.contains("<svg") && page.contains(digest), "{page}");
    let table = fs::read_to_string(&markdown).expect("a table is written");
    assert!(
        table.contains("| ---: |") && table.contains(digest),
        "{table}"
    );
    assert!(
        table.contains("flashyard lab run ssd-latency-curve --set condition=clean"),
        "{table}"
    );
    let files: Vec<String> = fs::read_dir(&plots)
        .expect("it is there")
        .map(|entry| {
            entry
                .expect("it is readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let chart = format!("{CURVE}-reads.svg");
    assert!(files.contains(&chart), "{files:?}");
    assert!(
        !files.iter().any(|name| name.contains("partial")),
        "{files:?}"
    );
}

#[test]
fn what_there_is_not_is_refused_and_what_there_is_named() {
    refused(&["run", "ssd-flight"], 2, CURVE);
    refused(&["show", "ssd-flight"], 2, CURVE);
    refused(&run(&["--set", "wings=2"]), 2, "condition");
    refused(&run(&["--set", "kind=swim"]), 2, "read-4k");
    refused(&run(&["--set", "kind"]), 2, "KEY=VALUE");
    refused(&run(&["--set", "=read-4k"]), 2, "profile=970pro");
    refused(&run(&["--policy", "fifo"]), 2, "no switch");
    refused(&run(&["--seeds", "0"]), 2, "1 to");
    refused(&run(&["--seed=-1"]), 2, "--seed");
}

#[test]
fn what_cannot_be_written_is_refused_before_the_run() {
    let scratch = Scratch::new("unwritable");
    fs::write(path(&scratch, "file"), "").expect("the scratch directory is writable");
    let below_a_file = path(&scratch, "file/plots");
    refused(
        &run(&["--plot", &below_a_file]),
        1,
        "cannot write plots into",
    );
    refused(
        &run(&["--markdown", &path(&scratch, "missing/table.md")]),
        1,
        "table.md",
    );
    refused(
        &run(&["--markdown", &path(&scratch, "")]),
        1,
        "cannot write",
    );
    // Had the run begun, its progress would have been shown.
    let output = lab(&run(&["--plot", &below_a_file]));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

#[test]
fn a_reader_who_has_enough_is_no_failure() {
    let mut child = command(&run(&["--json"]))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it was ours").code(), Some(0));
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("kill exists").success());
}

fn wait_for(messages: &mut impl BufRead, what: &str) {
    let mut lines = messages.lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains(what)),
        "nothing says `{what}`"
    );
}

/// The parts that were done when somebody pressed Ctrl-C, and those that were at work, are printed.
#[test]
fn a_run_that_is_stopped_keeps_what_it_has() {
    let settings = [
        "--set",
        "condition=clean",
        "--set",
        "kind=read-4k",
        "--set",
        "ms=50",
    ];
    for (written, more) in [(false, &[][..]), (true, &["--markdown"])] {
        let scratch = Scratch::new("stopped");
        let file = path(&scratch, "curve.md");
        let mut args = [&["run", CURVE][..], &settings, more].concat();
        if written {
            args.push(&file);
        }
        let mut child = command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut messages = BufReader::new(child.stderr.take().expect("it is piped"));
        wait_for(&mut messages, "3/15 ");
        interrupt(&child);
        let mut rest = String::new();
        messages.read_to_string(&mut rest).expect("it says more");
        let output = child.wait_with_output().expect("it was ours");
        assert_eq!(output.status.code(), Some(130), "{rest}");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            table.contains("Stopped early") && table.contains("digest none"),
            "{table}"
        );
        let rows = table
            .lines()
            .filter(|line| line.contains("read-4k"))
            .count();
        assert!((2..14).contains(&rows), "{table}");
        if written {
            let page = fs::read_to_string(&file).expect("it is written");
            assert!(page.contains("Stopped early"), "{page}");
        }
    }
}

/// Drives are measured alone first, which gives no rows.
#[test]
fn a_run_that_is_stopped_before_anything_is_complete_prints_an_empty_report() {
    let small = ["--set", "gib=1", "--set", "ms=20", "--set", "step_ms=5000"];
    let mut child = command(&[&["run", "gimbal-dynamic"][..], &small].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut messages = BufReader::new(child.stderr.take().expect("it is piped"));
    wait_for(&mut messages, "1/11 ");
    interrupt(&child);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).expect("it says more");
    let output = child.wait_with_output().expect("it was ours");
    assert_eq!(output.status.code(), Some(130), "{rest}");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        report.starts_with("gimbal-dynamic   seed 1   digest none")
            && report.contains("Stopped early"),
        "{report}"
    );
}

#[test]
fn a_signal_ends_a_run_in_order() {
    let scratch = Scratch::new("signal");
    let plots = path(&scratch, "plots");
    let run = ["run", CURVE, "--set", "ms=3600000", "--plot", &plots];
    let mut child = command(&run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Signals are caught before the directory is made, and the run takes hours.
    while !Path::new(&plots).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The first asks for the end of what is at work, which takes hours; the second ends it.
    interrupt(&child);
    let mut messages = BufReader::new(child.stderr.take().expect("it is piped"));
    wait_for(&mut messages, "again to end at once");
    interrupt(&child);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).expect("it says more");
    let output = child.wait_with_output().expect("it was ours");
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(rest.contains("stopped by a signal"), "{rest}");
    assert!(!Path::new(&plots).join(format!("{CURVE}.html")).exists());
}
