//! What programs read: one object with its version, whether a command succeeded or not.

use std::process::Command;

use serde_json::{Value, json};

use crate::rig::{PROGRAM, Scratch, Target};

fn printed(target: &Target, line: &str) -> (Option<i32>, Value) {
    let mut command = Command::new(PROGRAM);
    command.args(line.split(' '));
    if !line.starts_with("lab") && !line.starts_with("check") && !line.starts_with("discover") {
        command.arg("--state").arg(&target.state);
    }
    let output = command.arg("--json").output().expect("the program starts");
    let printed = serde_json::from_slice(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code(),
        printed.unwrap_or_else(|error| panic!("{line}: {error}: {told}")),
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
            (Some(0), &json!(1)),
            "{answer}"
        );
    }
    for (line, status, kind, message) in FAILURES {
        let (ended, answer) = printed(&target, line);
        assert_eq!(ended, Some(status), "{line}: {answer}");
        assert_eq!(answer["schema_version"], 1, "{line}");
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
        "pool create fast --device ram0",
        "tenant create db --host * --limit read_iops=20k --latency-target 500us",
        "tenant create lab --host *",
        "volume create v --pool fast --size 1MiB --tenant db",
        "volume create w --device ram1 --tenant lab",
    ] {
        assert_eq!(printed(&target, line).0, Some(0), "{line}");
    }
    for (kind, rows) in [("device", 4), ("pool", 1), ("tenant", 2), ("volume", 2)] {
        let (_, list) = printed(&target, &format!("{kind} list"));
        assert_eq!(list["schema_version"], 1);
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
            assert_eq!(shown.remove("schema_version"), Some(json!(1)));
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
    assert_eq!(none, json!({"schema_version": 1, "partitions": []}));
    let (_, deleted) = printed(&target, "volume delete w --yes");
    assert_eq!(deleted, json!({"schema_version": 1}));
    for line in [
        "status",
        "target show",
        "why db",
        "lab list",
        "lab show ssd-validate",
    ] {
        assert_eq!(printed(&target, line).1["schema_version"], 1, "{line}");
    }
}
