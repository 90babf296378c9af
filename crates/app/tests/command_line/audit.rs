//! Who has changed something: over restarts, a kill, and a disk that takes nothing.

use std::fs;
use std::io::Write;
use std::process::Output;

use serde_json::Value;

use crate::rig::{Scratch, Target};

/// The records that `audit` prints, with more words.
fn records(target: &Target, more: &[&str]) -> Vec<Value> {
    let output: Output = target.run(&[&["audit", "--json"], more].concat());
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    lines.map(|line| line.expect("JSON")).collect()
}

fn short(records: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("done").to_owned();
    let line = |one: &Value| format!("{} {}", text(&one["object"]), text(&one["code"]));
    records.iter().map(line).collect()
}

#[test]
fn changes_are_recorded_over_a_kill_and_restarts() {
    let scratch = Scratch::new("audit-killed");
    let target = Target::start(&scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 64MiB",
        "tenant create db --host *",
        "tenant set db --weight 3",
    ] {
        target.json(&line.split(' ').collect::<Vec<_>>());
    }
    target.refused(&["pool", "delete", "none"], "there is no pool");
    let before = records(&target, &[]);
    let objects = [
        "device ram0 done",
        "tenant db done",
        "tenant db done",
        "pool none not_found",
    ];
    assert_eq!(short(&before), objects);
    assert_eq!(before[2]["change"], "{\"weight\":3}");
    let user = before[0]["who"].as_str().expect("a name").to_owned();
    // A kill leaves all that was answered; what it cuts off is left out, and that is said.
    target.kill();
    let path = scratch.join("state").join("audit.log");
    let mut file = fs::OpenOptions::new().append(true).open(path);
    let file = file.as_mut().expect("it is there");
    file.write_all(b"{\"number\":5,\"at\"").expect("it is ours");

    let config = scratch.file("more.toml", "[[tenant]]\nname = \"web\"\nhosts = []\n");
    let config = config.to_str().expect("a plain name");
    let target = Target::start(&scratch, &["--config", config]);
    let after = records(&target, &[]);
    assert_eq!(after[..4], before);
    let numbers: Vec<u64> = after
        .iter()
        .filter_map(|one| one["number"].as_u64())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert!(
        after[4]["detail"]
            .as_str()
            .is_some_and(|it| it.contains("cut off"))
    );
    assert_eq!(
        (&after[5]["by"], &after[5]["from"]),
        (&"target".into(), &"start".into())
    );

    assert_eq!(records(&target, &["--limit", "1"]), after[5..]);
    assert_eq!(records(&target, &["--who", &user]), before);
    assert_eq!(records(&target, &["--since", "1h"]), after);
    assert_eq!(
        records(&target, &["--since", "9999-01-01"]),
        [Value::Null; 0]
    );
    let output = target.run(&["audit"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = format!(
        "socket {user} (api.sock)  pool none: DELETE /pools/{{name}}: refused: there is no pool"
    );
    assert!(text.contains(&line), "{text}");
}

/// Changes go on, and it is told; nothing is lost when there is space again.
#[test]
fn a_disk_that_takes_nothing_is_told_and_holds_up_no_change() {
    let scratch = Scratch::new("audit-no-space");
    fs::create_dir_all(scratch.join("state").join("audit.log")).expect("it is free");
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let health = target.json(&["health"]);
    let problems = health["problems"].as_array().expect("a list");
    let codes: Vec<_> = problems.iter().map(|row| &row["code"]).collect();
    assert_eq!(codes, ["AUDIT_NOT_WRITTEN"]);
    target.refused(
        &["audit"],
        "the audit log in the state directory cannot be read",
    );

    fs::remove_dir(scratch.join("state").join("audit.log")).expect("it is empty");
    assert_eq!(
        target.json(&["health"])["problems"],
        Value::Array(Vec::new())
    );
    target.json(&["tenant", "create", "web", "--host", "*"]);
    assert_eq!(
        short(&records(&target, &[])),
        ["tenant db done", "tenant web done"]
    );
}
