//! What programs read: one object with its version, whether a command succeeded or not.

use std::process::Command;

use serde_json::{Value, json};

use crate::rig::{PROGRAM, Scratch, Target, path};

fn printed(target: &Target, line: &str) -> (Option<i32>, Value) {
    let mut command = Command::new(PROGRAM);
    command.args(line.split(' '));
    if !line.starts_with("lab") && !line.starts_with("check") && !line.starts_with("discover") {
        command.arg("--state").arg(&target.state);
    }
    let output = command.arg("--json").output().expect("the program starts");
    let printed = serde_json::from_slice(&output.stdout);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code(),
        printed.unwrap_or_else(|error| panic!("{line}: {error}: {message}")),
    )
}

/// What is typed, the status, the kind of the error, and what the message has.
const FAILURES: [(&str, i32, &str, &str); 10] = [
    ("volume show nobody", 1, "not_found", "nobody"),
    ("volume create v", 2, "usage", "required arguments"),
    (
        "tenant set db --weight -1",
        2,
        "usage",
        "give a whole number, 1 to 10000",
    ),
    (
        "tenant set db --weight 0",
        1,
        "invalid",
        "weight 0 is out of range",
    ),
    ("tenant create db --host *", 1, "in_use", "db"),
    (
        "volume create v --pool fast --tenant db --size 1",
        1,
        "invalid",
        "at least 1 MiB",
    ),
    ("volume delete v", 1, "invalid", "say --yes"),
    ("apply no-such-file.toml", 1, "invalid", "cannot read"),
    (
        "lab run no-such-experiment",
        2,
        "usage",
        "there is no experiment",
    ),
    (
        "discover --connect 127.0.0.1:1",
        1,
        "unavailable",
        "cannot ask 127.0.0.1:1",
    ),
];

#[test]
fn an_error_is_an_object_that_says_who_has_to_act() {
    let scratch = Scratch::new("json-errors");
    let target = Target::start(&scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 64MiB",
        "pool create fast --device ram0",
        "tenant create db --host *",
    ] {
        let (status, answer) = printed(&target, line);
        assert_eq!(
            (status, &answer["schema_version"]),
            (Some(0), &json!(2)),
            "{answer}"
        );
    }
    for (line, status, kind, message) in FAILURES {
        let (ended, answer) = printed(&target, line);
        assert_eq!(ended, Some(status), "{line}: {answer}");
        assert_eq!(answer["schema_version"], 2, "{line}");
        let error = answer["error"].as_object().expect("an object");
        assert_eq!(error["kind"], kind, "{line}: {answer}");
        let text = error["message"].as_str().expect("text");
        assert!(
            text.contains(message) && !text.contains('\n'),
            "{line}: {text}"
        );
        assert!(
            error["hint"].is_string() || error["hint"].is_null(),
            "{line}"
        );
    }
    let gone = target.state.clone();
    target.kill();
    let output = Command::new(PROGRAM)
        .args(["status", "--json", "--state"])
        .arg(gone)
        .output()
        .expect("the program starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(answer["error"]["kind"], "unavailable", "{answer}");
}

/// The same of commands that need no target: what is typed, the kind of the error, and what the
/// message has. SCRATCH is a folder of the test.
const WITHOUT_TARGET: [(&str, &str, &str); 26] = [
    ("check SCRATCH/nothing", "invalid", "cannot read"),
    ("check SCRATCH", "invalid", "Is a directory"),
    ("check SCRATCH/short", "invalid", "short: size is 4 bytes"),
    ("check SCRATCH/blank --block-size 3", "invalid", "block"),
    (
        "restore SCRATCH/nothing --state SCRATCH/s",
        "invalid",
        "nothing as a backup",
    ),
    (
        "restore SCRATCH --state SCRATCH/s",
        "invalid",
        "no regular file",
    ),
    (
        "restore SCRATCH/short --state SCRATCH/s",
        "invalid",
        "is no sound backup",
    ),
    (
        "restore SCRATCH/short --state SCRATCH/short/s",
        "invalid",
        "another --state",
    ),
    (
        "lab run oracle --quick --plot SCRATCH/short/x",
        "invalid",
        "cannot write plots",
    ),
    (
        "lab run oracle --quick --markdown SCRATCH/x/y",
        "invalid",
        "cannot write",
    ),
    (
        "lab run oracle --set depth=1",
        "usage",
        "there is no setting",
    ),
    ("lab show nothing", "usage", "there is no experiment"),
    ("sim --seeds 5..1", "usage", "5..1"),
    ("demo --dilation 0", "usage", "give a whole number"),
    (
        "discover --connect no-such-host.invalid:1",
        "unavailable",
        "cannot look up",
    ),
    (
        "discover --connect 127.0.0.1:1 --hostnqn x",
        "invalid",
        "--hostnqn x",
    ),
    (
        "perf --connect 127.0.0.1:1 --subnqn nqn.2026-11.x:y --rw read",
        "unavailable",
        "cannot connect",
    ),
    (
        "perf --connect 127.0.0.1:1 --rw read",
        "invalid",
        "--subnqn is missing",
    ),
    (
        "perf --connect vfio-user:SCRATCH/none.sock --rw read",
        "unavailable",
        "cannot connect to the function",
    ),
    (
        "perf --connect vfio-user:SCRATCH/none.sock --rw read --credits",
        "invalid",
        "--credits is of NVMe/TCP",
    ),
    (
        "perf --connect 127.0.0.1:1 --subnqn nqn.2026-11.x:y --rw read --processor 9999",
        "invalid",
        "9999",
    ),
    (
        "serve --config SCRATCH/nothing --state SCRATCH/s",
        "invalid",
        "cannot read",
    ),
    (
        "serve --state SCRATCH/short/s",
        "invalid",
        "another --state",
    ),
    (
        "serve --listen 127.0.0.1:0 --processor 9999 --state SCRATCH/s",
        "invalid",
        "9999",
    ),
    (
        "serve --listen 192.0.2.1:1 --state SCRATCH/s",
        "unavailable",
        "no such address",
    ),
    (
        "serve --buffers 1MiB --state SCRATCH/s",
        "invalid",
        "at least 4 MiB",
    ),
];

/// What somebody has typed wrong is never called a failure of the program.
#[test]
fn an_error_of_a_command_without_a_target_says_who_has_to_act() {
    let scratch = Scratch::new("json-alone");
    scratch.file("short", "text");
    scratch.file("blank", &"\0".repeat(1 << 20));
    let long = format!(
        "serve --listen 127.0.0.1:0 --state SCRATCH/{}",
        "s".repeat(110)
    );
    let long = (long.as_str(), "invalid", "choose a shorter --state");
    for (line, kind, message) in WITHOUT_TARGET.into_iter().chain([long]) {
        let typed = line.replace("SCRATCH", path(&scratch.join("")).trim_end_matches('/'));
        let error = failed(&typed);
        assert_eq!(error["kind"], kind, "{line}: {error}");
        let text = error["message"].as_str().expect("text");
        assert!(text.contains(message), "{line}: {text}");
    }
}

/// Runs something that has to fail by itself, and gives its error.
fn failed(line: &str) -> Value {
    let output = Command::new(PROGRAM)
        .args(line.split(' '))
        .arg("--json")
        .output();
    let output = output.expect("the program starts");
    assert!(!output.status.success(), "{line}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    answer["error"].clone()
}

/// The same of commands beside a target that runs.
#[test]
fn an_error_beside_a_running_target_says_who_has_to_act() {
    let scratch = Scratch::new("json-beside");
    let target = Target::start(&scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 64MiB",
        "tenant create db --host *",
        "volume create v --device ram0 --tenant db",
    ] {
        assert_eq!(printed(&target, line).0, Some(0), "{line}");
    }
    let (state, address) = (path(&target.state).to_owned(), &target.address);
    let sound = path(&scratch.join("sound.db")).to_owned();
    assert_eq!(printed(&target, &format!("backup {sound}")).0, Some(0));
    let perf = format!("perf --connect {address} --rw read --subnqn nqn.2026-11.dev.flashyard:");
    for (line, kind, message) in [
        (
            format!("backup {sound} --state {state}"),
            "in_use",
            "give another name",
        ),
        (
            format!("backup /proc/none/x --state {state}"),
            "invalid",
            "as a backup",
        ),
        (
            format!("restore {sound} --yes --state {state}"),
            "in_use",
            "another flashyard",
        ),
        (
            format!("serve --state {state}"),
            "in_use",
            "another flashyard",
        ),
        (
            format!("serve --listen {address} --state {state}-other"),
            "in_use",
            "another program uses the port",
        ),
        (format!("{perf}nobody"), "not_found", "no such subsystem"),
        (format!("{perf}db --nsid 7"), "not_found", "no namespace 7"),
        (format!("{perf}db --bs 512"), "invalid", "not a multiple"),
    ] {
        let error = failed(&line);
        assert_eq!(error["kind"], kind, "{line}: {error}");
        let text = error["message"].as_str().expect("text");
        assert!(text.contains(message), "{line}: {text}");
    }
    target.kill();
    let error = failed(&format!("restore {sound} --state {state}"));
    assert_eq!(error["kind"], "refused", "{error}");
}

/// Whoever reads a list finds in each row what there is in any.
#[test]
fn what_has_nothing_to_tell_is_null_and_there() {
    let scratch = Scratch::new("json-keys");
    let target = Target::start(&scratch, &[]);
    for line in [
        "device create null0 --kind null --size 8MiB",
        "device create ram0 --kind memory --size 64MiB",
        "device create ram1 --kind memory --size 8MiB",
        "device create nand0 --kind flash --size 64MiB --profile ideal --seed 7",
        "device create bad0 --kind fault --device null0 --fault poison",
        "pool create fast --device ram0",
        "tenant create db --host * --limit read_iops=20k --latency-target 500us",
        "tenant create lab --host *",
        "volume create v --pool fast --size 1MiB --tenant db",
        "volume create w --device ram1 --tenant lab",
    ] {
        assert_eq!(printed(&target, line).0, Some(0), "{line}");
    }
    for (kind, rows) in [("device", 5), ("pool", 1), ("tenant", 2), ("volume", 2)] {
        let (_, list) = printed(&target, &format!("{kind} list"));
        assert_eq!(list["schema_version"], 2);
        let list = list[format!("{kind}s")].as_array().expect("a list").clone();
        assert_eq!(list.len(), rows);
        let keys = |row: &Value| {
            let mut keys: Vec<String> = row.as_object().expect("a row").keys().cloned().collect();
            keys.sort_unstable();
            keys
        };
        for row in &list {
            assert_eq!(keys(row), keys(&list[0]), "{row}");
            let name = row["name"].as_str().expect("a name");
            let (_, mut shown) = printed(&target, &format!("{kind} show {name}"));
            let shown = shown.as_object_mut().expect("an object");
            assert_eq!(shown.remove("schema_version"), Some(json!(2)));
            assert_eq!(keys(&Value::Object(shown.clone())), keys(row), "{name}");
        }
    }
    let (_, tenants) = printed(&target, "tenant list");
    let rates = &tenants["tenants"][0]["limit"];
    assert_eq!(
        (&rates["read_iops"], &rates["bandwidth"]),
        (&json!(20_000), &Value::Null)
    );
    let (_, none) = printed(&target, "partition list");
    assert_eq!(none, json!({"schema_version": 2, "partitions": []}));
    let (_, deleted) = printed(&target, "volume delete w --yes");
    assert_eq!(deleted, json!({"schema_version": 2}));
    for line in [
        "status",
        "target show",
        "why db",
        "lab list",
        "lab show ssd-validate",
    ] {
        assert_eq!(printed(&target, line).1["schema_version"], 2, "{line}");
    }
}
