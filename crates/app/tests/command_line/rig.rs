//! A target of its own for each test, and commands typed at it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) use flashyard_testbed::Scratch;
use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_flashyard");

/// A running target; killed when dropped.
pub(crate) struct Target {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) state: PathBuf,
}

impl Target {
    pub(crate) fn start(scratch: &Scratch, more: &[&str]) -> Self {
        Self::of(scratch, &mut serve(scratch, more))
    }

    /// One that `serve` makes, started in another way.
    pub(crate) fn of(scratch: &Scratch, command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let output = child.stdout.take().expect("it is piped");
        let line = BufReader::new(output)
            .lines()
            .next()
            .and_then(Result::ok)
            .unwrap_or_default();
        let address = line
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(' ').next());
        let Some(address) = address.map(str::to_owned) else {
            let output = child.wait_with_output().expect("it ended");
            panic!(
                "no target: `{line}` {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        Self {
            child,
            address,
            state: scratch.join("state"),
        }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(args)
            .arg("--state")
            .arg(&self.state)
            .output()
            .expect("the program starts")
    }

    /// Runs a command that must succeed, and reads its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        answer(&output)
    }

    /// Runs a command that must fail with status 1 and one line that contains `why`.
    pub(crate) fn refused(&self, args: &[&str], why: &str) {
        expect_failure(&self.run(args), 1, why);
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }

    pub(crate) fn terminate(mut self) -> i32 {
        terminate(&mut self.child)
    }
}

/// What a command has printed for programs, without the version, and without the name of a list.
pub(crate) fn answer(output: &Output) -> Value {
    let mut answer: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let keys = answer.as_object_mut().expect("it is an object");
    assert_eq!(keys.remove("schema_version"), Some(Value::from(2)));
    let only = keys.values_mut().next().map(Value::take);
    match only {
        None => Value::Null,
        Some(list @ Value::Array(_)) if keys.len() == 1 => list,
        Some(first) => {
            *keys.values_mut().next().expect("it was there") = first;
            answer
        }
    }
}

/// Asks a program to end, and gives its status.
pub(crate) fn terminate(child: &mut Child) -> i32 {
    let id = child.id().to_string();
    let asked = Command::new("kill").args(["-TERM", &id]).status();
    assert!(asked.expect("kill exists").success());
    child.wait().expect("it was ours").code().unwrap_or(-1)
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(scratch: &Scratch, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("serve")
        .arg("--state")
        .arg(scratch.join("state"))
        .args(more);
    if !more.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A start that must fail with status 1 and one line that contains `why`. One that serves is ended,
/// and fails the test.
pub(crate) fn refuses_to_start(scratch: &Scratch, more: &[&str], why: &str) {
    let mut child = serve(scratch, more).spawn().expect("the program starts");
    let said = BufReader::new(child.stdout.take().expect("it is piped"))
        .lines()
        .next();
    if said.is_some() {
        child.kill().expect("it is ours");
    }
    let output = child.wait_with_output().expect("it ended");
    assert!(said.is_none(), "it serves: {said:?}");
    expect_failure(&output, 1, why);
}

pub(crate) fn expect_failure(output: &Output, status: i32, why: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.contains(why), "`{why}` is not in: {error}");
    assert!(
        status == 2 || error.trim_end().lines().count() == 1,
        "one line, not: {error}"
    );
}

pub(crate) fn names(rows: &Value) -> Vec<&str> {
    rows.as_array()
        .expect("a list")
        .iter()
        .map(|row| row["name"].as_str().expect("a name"))
        .collect()
}

/// What `apply` has changed, or would: kind, name and key.
pub(crate) fn changed(applied: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let changes = applied["changes"].as_array().expect("a list").iter();
    let keys = changes.flat_map(|change| {
        let of = [text(&change["kind"]), text(&change["name"])].join(" ");
        let keys = change["keys"].as_array().expect("a list").iter();
        let keys = keys.map(move |key| format!("{} {}", of.trim(), text(&key["key"])));
        keys.collect::<Vec<_>>()
    });
    keys.collect()
}

pub(crate) fn target_perf(target: &Target, more: &[&str]) -> Value {
    let output = target_perf_output(target, more);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// The same, whatever comes of it.
pub(crate) fn target_perf_output(target: &Target, more: &[&str]) -> Output {
    let base = [
        "perf",
        "--connect",
        &target.address,
        "--subnqn",
        "nqn.2026-11.dev.flashyard:db",
        "--bs",
        "16KiB",
    ];
    let load = ["--qd", "8", "--queues", "2", "--seconds", "1", "--json"];
    Command::new(PROGRAM)
        .args(base)
        .args(load)
        .args(more)
        .output()
        .expect("the program starts")
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("plain names")
}
