//! Shares that make no sense are refused where they are said, by command and by file, and nothing
//! changes.

use std::process::Command;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path, serve};

/// Nobody ever writes to the pipe: reading it would wait for ever.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let scratch = Scratch::new("pipe");
    let pipe = scratch.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it is everywhere").success());
    let check = Command::new(PROGRAM).arg("check").arg(&pipe).output();
    let why = "neither a regular file nor a block device";
    expect_failure(&check.expect("the program starts"), 1, why);
    let target = Target::start(&scratch, &[]);
    let drive = [
        "device",
        "create",
        "nand0",
        "--kind",
        "flash",
        "--size",
        "1GiB",
        "--profile",
        path(&pipe),
    ];
    target.refused(&drive, "is no regular file");
    assert_eq!(names(&target.json(&["device", "list"])), Vec::<&str>::new());
}

#[test]
fn shares_that_make_no_sense_change_nothing() {
    let scratch = Scratch::new("shares");
    let target = Target::start(&scratch, &[]);
    let before = target.json(&[
        "tenant",
        "create",
        "db",
        "--host",
        "*",
        "--weight",
        "3",
        "--limit",
        "iops=3000",
    ]);
    for (wrong, why) in [
        (["--weight", "0"], "weight 0 is out of range: 1 to 10000"),
        (["--weight", "10001"], "weight 10001 is out of range"),
        (["--limit", "iops=0"], "limit iops is 0"),
        (["--guarantee", "iops=3001"], "above its limit of iops 3000"),
        (
            ["--guarantee", "read_iops=3001"],
            "above its limit of iops 3000",
        ),
        (["--latency-target", "1us"], "give 10us to 10s"),
    ] {
        target.refused(&[&["tenant", "set", "db"], &wrong[..]].concat(), why);
        if !wrong.contains(&"--guarantee") {
            let create = ["tenant", "create", "other", "--host", "*"];
            target.refused(&[&create[..], &wrong[..]].concat(), why);
        }
    }
    // What cannot even be read is refused before the target is asked.
    for (wrong, why) in [
        (["--class", "urgent"], "latency, throughput, background"),
        (["--weight", "1.5"], "give a whole number, 1 to 10000"),
        (["--weight", "many"], "give a whole number, 1 to 10000"),
        (["--guarantee", "speed=3"], "speed"),
        (["--limit", "iops"], "iops"),
    ] {
        let set = target.run(&[&["tenant", "set", "db"], &wrong[..]].concat());
        expect_failure(&set, 2, why);
    }
    assert_eq!(target.json(&["tenant", "show", "db"]), before);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db"]);
    for (tenant, why) in [
        ("name = \"x\"\nweight = 0\n", "weight 0 is out of range"),
        (
            "name = \"x\"\nclass = \"urgent\"\n",
            "unknown variant `urgent`",
        ),
        (
            "name = \"x\"\nguarantee = { iops = 9 }\nlimit = { iops = 8 }\n",
            "above its limit of iops 8",
        ),
    ] {
        let file = scratch.file(
            "wrong.toml",
            &format!("[[tenant]]\nhosts = [\"*\"]\n{tenant}"),
        );
        let applied = target.run(&["apply", path(&file)]);
        assert!(!applied.status.success());
        let message = String::from_utf8_lossy(&applied.stderr);
        assert!(message.contains(why), "`{why}` is not in: {message}");
        let other = Scratch::new("shares-start");
        let started = serve(&other, &["--config", path(&file)]).output();
        let started = started.expect("the program starts");
        assert!(!started.status.success());
        assert!(String::from_utf8_lossy(&started.stderr).contains(why));
    }
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db"]);
    assert_eq!(target.terminate(), 0);
}

/// Less memory than two of the largest commands need would keep them waiting for ever.
#[test]
fn too_little_memory_for_buffers_is_refused() {
    let scratch = Scratch::new("buffers");
    let output = serve(&scratch, &["--buffers", "3MiB"]).output();
    let output = output.expect("the program starts");
    expect_failure(&output, 1, "must be at least 4 MiB");
}
