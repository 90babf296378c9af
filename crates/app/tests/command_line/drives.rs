//! Emulated drives, and devices that a volume has whole.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, path, target_perf, terminate};

#[test]
fn an_emulated_drive_is_a_device() {
    let scratch = Scratch::new("drive");
    let target = Target::start(&scratch, &[]);
    let image = scratch.join("kept.img");
    let create = |name, more: &[&'static str]| {
        let fixed = ["device", "create", name, "--kind", "flash"];
        [&fixed, more].concat()
    };
    let fragmented = [
        "--size",
        "256MiB",
        "--profile",
        "dct983",
        "--condition",
        "fragmented",
    ];
    let made = target.json(&create("ssd0", &fragmented));
    assert_eq!(made["condition"], "fragmented");
    assert_eq!(made["store"], "memory");
    assert_eq!(made["volatile_cache"], false);
    for (more, why) in [
        (
            &["--size", "256MiB", "--profile", "dct9"][..],
            "use one of dct983",
        ),
        (&["--size", "256MiB"], "needs `profile`"),
        (
            &["--size", "256MiB", "--profile", "./none.toml"],
            "cannot read profile",
        ),
        (&["--size", "1MiB", "--profile", "dct983"], "from "),
        (&["--size", "9TiB", "--profile", "ideal"], "size is 9 TiB"),
    ] {
        target.refused(&create("bad", more), why);
    }
    // A profile of one's own, and content in a file.
    let mine = scratch.file(
        "mine.toml",
        &include_str!("../../../flash/profiles/dct983.toml")
            .replace("suspends = 3", "suspends = 0"),
    );
    let kept = [
        "device",
        "create",
        "kept",
        "--kind",
        "flash",
        "--size",
        "256MiB",
        "--profile",
        path(&mine),
        "--store",
        "file",
        "--path",
        path(&image),
    ];
    assert_eq!(target.json(&kept)["volatile_cache"], true);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    for (pool, device) in [("fast", "ssd0"), ("slow", "kept")] {
        target.json(&["pool", "create", pool, "--device", device]);
        let volume = [
            "volume", "create", pool, "--pool", pool, "--size", "64MiB", "--tenant", "db",
        ];
        target.json(&volume);
    }
    for nsid in ["1", "2"] {
        let load = ["--nsid", nsid, "--rw", "randrw", "--verify"];
        let report = target_perf(&target, &load);
        assert_eq!(report["errors"], 0);
        assert!(
            report["latency_us"]["p50"].as_f64() > Some(14.0),
            "it takes its time"
        );
    }
    let drives = &target.json(&["status"])["drives"];
    assert_eq!(drives[1]["device"], "ssd0");
    assert_eq!(drives[1]["profile"], "dct983");
    assert!(drives[1]["write_amplification"].as_f64() >= Some(1.0));
    assert!(drives[1]["lateness_p99_us"].is_number());
    target.kill();

    // What was in memory is gone, and its pool is made anew, as on a memory device; the file is as
    // it was.
    let target = Target::start(&scratch, &[]);
    for pool in ["fast", "slow"] {
        assert_eq!(target.json(&["pool", "show", pool])["state"], "online");
    }
    assert_eq!(target.json(&["volume", "show", "slow"])["state"], "online");
    fs::remove_file(&mine).expect("it is there");
    target.kill();
    let target = Target::start(&scratch, &[]);
    let gone = target.json(&["device", "show", "kept"]);
    assert_eq!(gone["state"], "unavailable");
    let fault = gone["fault"].as_str().unwrap_or_default();
    assert!(fault.contains("cannot read profile"), "{fault}");
}

#[test]
fn the_demonstration_shows_what_writes_do_to_reads() {
    let output = Command::new(PROGRAM)
        .args(["demo", "--seconds", "2", "--exit", "--json"])
        .output()
        .expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let reader = &shown["tenants"][0];
    assert_eq!(reader["tenant"], "db");
    assert!(shown["machine"]["keeps_time"].is_boolean(), "{shown}");
    for phase in ["alone", "beside_writer", "together", "together_fair"] {
        assert_eq!(reader[phase]["errors"], 0);
        // Not even a machine that is too slow makes a read of the drive faster than the drive is.
        assert!(reader[phase]["latency_us"]["p50"].as_f64() > Some(790.0));
    }
    let beside_writes = &shown["drive"][3];
    assert!(beside_writes["write_amplification"].as_f64() > Some(1.0));
    assert!(beside_writes["void"].is_boolean());
    let void = shown["drive"].as_array().is_some_and(|phases| {
        [0, 3, 4, 5]
            .iter()
            .any(|&place| phases[place]["void"] == true)
    });
    assert_eq!(shown["drive"][5]["policy"], "fair");
    let finding = shown["finding"].as_str().unwrap_or_default();
    assert_eq!(finding.contains("a read of db takes"), !void, "{finding}");
}

#[test]
fn the_demonstration_ends_at_a_signal_while_it_measures() {
    let mut demo = Command::new(PROGRAM)
        .args(["demo", "--seconds", "3600"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let messages = demo.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(messages).lines().map_while(Result::ok);
    let judged = lines.nth(1).expect("the machine is judged first");
    assert!(judged.starts_with("This machine "), "{judged}");
    assert!(lines.any(|line| line.contains("db alone")), "it measures");
    assert_eq!(terminate(&mut demo), 143);
}

/// The files of a target that was killed are its own for a moment longer.
#[test]
fn a_device_that_is_in_use_is_waited_for_at_start() {
    let scratch = Scratch::new("inuse");
    let image = scratch.file("ssd0.img", "");
    let target = Target::start(&scratch, &[]);
    let create = [
        "device", "create", "ssd0", "--kind", "file", "--size", "8MiB", "--path",
    ];
    target.json(&[&create[..], &[path(&image)]].concat());
    target.kill();
    let other = fs::File::open(&image).expect("it is there");
    other.lock().expect("nobody else has it");
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(other);
    });
    let target = Target::start(&scratch, &[]);
    leaves.join().expect("it sleeps");
    assert_eq!(target.json(&["device", "show", "ssd0"])["state"], "online");
    target.kill();
    let other = fs::File::open(&image).expect("it is there");
    other.lock().expect("nobody else has it");
    let target = Target::start(&scratch, &[]);
    let shown = target.json(&["device", "show", "ssd0"]);
    let fault = shown["fault"].as_str().unwrap_or_default();
    assert!(fault.contains("in use by another process"), "{shown}");
}

#[test]
fn a_whole_device_is_erased_with_its_volume() {
    let scratch = Scratch::new("erase");
    let image = scratch.file("ssd0.img", "");
    let target = Target::start(&scratch, &[]);
    let create = [
        "device", "create", "ssd0", "--kind", "file", "--size", "8MiB", "--path",
    ];
    target.json(&[&create[..], &[path(&image)]].concat());
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "v", "--device", "ssd0", "--tenant", "db",
    ]);
    assert_eq!(
        target_perf(&target, &["--rw", "write", "--verify"])["errors"],
        0
    );
    let used = |byte: &u8| *byte != 0;
    assert!(fs::read(&image).expect("it is ours").iter().any(used));
    target.json(&["volume", "delete", "v", "--yes"]);
    assert!(!fs::read(&image).expect("it is ours").iter().any(used));
}
