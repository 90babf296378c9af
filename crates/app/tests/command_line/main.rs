//! The program as a user runs it: commands typed at a real target, on loopback, with a state
//! directory of its own.

mod api;
mod arrays;
mod audit;
mod calibration;
#[path = "../../src/api/tests/certificates.rs"]
mod certificates;
mod content;
mod drives;
mod encrypted_pools;
mod encryption;
mod examples;
mod faults;
mod function_cores;
mod function_scale;
mod functions;
mod generate;
mod grammar;
mod health;
mod host_stats;
mod identity;
mod images;
mod import;
mod import_partitions;
mod json;
mod killed;
mod live;
mod lost_state;
mod mapped;
mod migration;
mod parity;
mod partitions;
mod promises;
mod reality;
mod refusals;
mod rig;
mod service;
mod settings;
mod slow_device;
mod snapshots;
mod space;
mod stopping;
mod takeover;
mod tls;
mod top;
mod turns;
mod units;
mod upgrade;
mod worn_out;
mod zoned;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;

use serde_json::Value;

use crate::rig::{
    PROGRAM, Scratch, Target, expect_failure, names, path, refuses_to_start, target_perf,
};

#[test]
fn things_are_made_listed_changed_and_deleted() {
    let scratch = Scratch::new("life");
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "64MiB",
    ]);
    target.json(&["pool", "create", "fast", "--device", "ram0"]);
    let tenant = target.json(&[
        "tenant", "create", "db", "--host", "*", "--class", "latency",
    ]);
    assert_eq!(tenant["subnqn"], "nqn.2026-11.dev.flashyard:db");
    let volume = target.json(&[
        "volume", "create", "orders", "--pool", "fast", "--size", "8MiB", "--tenant", "db",
    ]);
    assert_eq!(
        (&volume["nsid"], &volume["size"]),
        (&Value::from(1), &Value::from(8 << 20))
    );
    assert_eq!(names(&target.json(&["volume", "list"])), ["orders"]);

    let grown = target.json(&["volume", "set", "orders", "--size", "16MiB"]);
    assert_eq!(grown["size"], 16 << 20);
    target.refused(
        &["volume", "set", "orders", "--size", "8MiB"],
        "cannot shrink",
    );
    target.refused(&["volume", "set", "orders", "--size", "1TiB"], "");
    target.refused(
        &[
            "volume", "create", "orders", "--pool", "fast", "--size", "1MiB", "--tenant", "db",
        ],
        "already",
    );
    target.refused(
        &[
            "volume", "create", "x", "--pool", "slow", "--size", "1MiB", "--tenant", "db",
        ],
        "no pool `slow`",
    );
    target.refused(
        &[
            "volume", "create", "x", "--pool", "fast", "--size", "1MiB", "--tenant", "eve",
        ],
        "no tenant `eve`",
    );
    target.refused(
        &[
            "volume", "create", "x", "--pool", "fast", "--size", "1GiB", "--tenant", "db",
        ],
        "",
    );
    assert_eq!(
        names(&target.json(&["volume", "list"])),
        ["orders"],
        "what was refused left nothing behind"
    );
    target.refused(&["device", "delete", "ram0"], "used by pool `fast`");
    target.refused(&["pool", "delete", "fast"], "delete its volumes first");
    target.refused(&["tenant", "delete", "db"], "delete its volumes first");
    target.refused(&["volume", "delete", "orders"], "--yes");

    target.json(&["volume", "delete", "orders", "--yes"]);
    target.json(&["pool", "delete", "fast"]);
    target.json(&["pool", "create", "again", "--device", "ram0"]);
    target.json(&["pool", "delete", "again"]);
    target.json(&["device", "delete", "ram0"]);
    target.json(&["tenant", "delete", "db"]);
    assert_eq!(names(&target.json(&["volume", "list"])), Vec::<&str>::new());
    assert_eq!(target.terminate(), 0);
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let scratch = Scratch::new("kill");
    let image = scratch.join("ssd0.img");
    let target = Target::start(&scratch, &[]);
    let path = image.to_str().expect("plain names");
    target.json(&[
        "device", "create", "ssd0", "--kind", "file", "--path", path, "--size", "64MiB",
    ]);
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "a", "--pool", "fast", "--size", "4MiB", "--tenant", "db",
    ]);
    target.json(&[
        "volume", "create", "b", "--pool", "fast", "--size", "4MiB", "--tenant", "db",
    ]);
    target.json(&["volume", "set", "b", "--size", "8MiB"]);
    target.json(&["volume", "delete", "a", "--yes"]);
    let before = target.json(&["volume", "list"]);
    target.kill();

    let target = Target::start(&scratch, &[]);
    assert_eq!(target.json(&["volume", "list"]), before);
    assert_eq!(before[0]["nsid"], 2, "numbers stay");
    target.kill();
    let check = Command::new(PROGRAM)
        .arg("check")
        .arg(&image)
        .arg("--json")
        .output()
        .expect("the program starts");
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
}

/// What hosts did, and how the target ended, are counted over restarts: a clean end keeps all of
/// it.
#[test]
fn counters_go_on_after_a_restart() {
    let scratch = Scratch::new("counters");
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let device = ["device", "create", "ram0", "--kind", "memory"];
    target.json(&[&device[..], &["--size", "16MiB"]].concat());
    target.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "db",
    ]);
    target_perf(&target, &["--rw", "randwrite"]);
    let of = |target: &Target| {
        let status = target.json(&["status"]);
        let written = status["tenants"][0]["bytes_written"].as_u64();
        let (of_target, number) = (&status["target"], |value: &Value| value.as_u64());
        let ends = [&of_target["starts"], &of_target["ended_unsafely"]].map(number);
        (written.expect("a number"), ends)
    };
    let (written, ends) = of(&target);
    assert!(written > 0);
    assert_eq!(ends, [Some(1), Some(0)]);
    assert_eq!(target.terminate(), 0);

    let target = Target::start(&scratch, &[]);
    assert_eq!(of(&target), (written, [Some(2), Some(0)]));
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(of(&target), (written, [Some(3), Some(1)]));
    target.json(&["volume", "delete", "v", "--yes"]);
    target.json(&["tenant", "delete", "db"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    assert_eq!(
        of(&target).0,
        0,
        "another tenant of the same name begins anew"
    );
}

/// A damaged state store is refused, with what to do; its copy has every change that was
/// acknowledged.
#[test]
fn a_damaged_state_store_is_refused_and_its_copy_serves() {
    let scratch = Scratch::new("damaged");
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&["tenant", "set", "db", "--weight", "5"]);
    let before = target.json(&["tenant", "show", "db"]);
    target.kill();
    let store = scratch.join("state").join("state.db");
    let mut bytes = fs::read(&store).expect("it is there");
    let at = |bytes: &[u8]| {
        bytes
            .windows(10)
            .rposition(|found| found == b"\"weight\":5")
    };
    let place = at(&bytes).expect("the record");
    bytes[place + 9] = b'6';
    fs::write(&store, &bytes).expect("it is ours");

    refuses_to_start(&scratch, &[], "--restore-state");
    assert_eq!(fs::read(&store).expect("it is there"), bytes, "untouched");
    let target = Target::start(&scratch, &["--restore-state"]);
    assert_eq!(target.json(&["tenant", "show", "db"]), before);
    let kept = fs::read(scratch.join("state").join("state.db.damaged"));
    assert_eq!(kept.expect("it is kept"), bytes);
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_volume_that_was_lost_is_told_and_not_made_again() {
    let scratch = Scratch::new("lost");
    let (image, older) = (scratch.join("ssd0.img"), scratch.join("older.img"));
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device",
        "create",
        "ssd0",
        "--kind",
        "file",
        "--path",
        path(&image),
        "--size",
        "16MiB",
    ]);
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.kill();
    fs::copy(&image, &older).expect("there is room");

    let target = Target::start(&scratch, &[]);
    target.json(&[
        "volume", "create", "a", "--pool", "fast", "--size", "4MiB", "--tenant", "db",
    ]);
    target.kill();
    fs::rename(&older, &image).expect("both are ours");

    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "a"]);
    assert_eq!(volume["state"], "unavailable", "{volume}");
    let fault = volume["fault"].as_str().expect("a reason");
    assert!(fault.contains("not in fast any more"), "{fault}");
    target.json(&["volume", "delete", "a", "--yes"]);
}

#[test]
fn a_file_is_applied_and_what_is_missing_is_told() {
    let scratch = Scratch::new("file");
    let config = scratch.file(
        "flashyard.toml",
        "[[device]]\nname = \"ssd0\"\nkind = \"file\"\npath = \"ssd0.img\"\nsize = \"32MiB\"\n\
         [[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"32MiB\"\n\
         [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\n\
         [[volume]]\nname = \"far\"\ndevice = \"ssd0\"\ntenant = \"db\"\n\
         [[volume]]\nname = \"near\"\ndevice = \"ram0\"\ntenant = \"db\"\n",
    );
    let config = config.to_str().expect("plain names");
    let target = Target::start(&scratch, &["--config", config]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["far", "near"]);
    let plan = target.json(&["apply", config, "--plan"]);
    assert_eq!(
        plan["changes"],
        Value::Array(Vec::new()),
        "everything is there already"
    );
    target.kill();

    fs::remove_file(scratch.join("ssd0.img")).expect("the device was a file");
    let target = Target::start(&scratch, &[]);
    let volumes = target.json(&["volume", "list"]);
    assert_eq!(
        (&volumes[0]["state"], &volumes[1]["state"]),
        (&"unavailable".into(), &"online".into())
    );
    let fault = target.json(&["device", "show", "ssd0"])["fault"]
        .as_str()
        .expect("a reason")
        .to_owned();
    assert!(fault.contains("ssd0.img"), "{fault}");
}

#[test]
fn bad_usage_is_status_2_and_failure_status_1() {
    let usage: [&[&str]; 6] = [
        &["fly"],
        &["serve", "--listen", "somewhere"],
        &["volume", "set", "a", "--size", "big"],
        &["demo", "--seconds", "0"],
        &["volume", "create", "a", "--tenant", "t"],
        &["device", "create", "a", "--kind", "tape"],
    ];
    for args in usage {
        let output = Command::new(PROGRAM)
            .args(args)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let scratch = Scratch::new("usage");
    let nobody = Command::new(PROGRAM)
        .args(["status", "--state"])
        .arg(scratch.join("state"))
        .output()
        .expect("it starts");
    expect_failure(&nobody, 1, "flashyard serve");
}

#[test]
fn a_target_that_cannot_start_says_why() {
    let scratch = Scratch::new("start");
    let fails = |more: &[&str], why: &str| refuses_to_start(&scratch, more, why);
    let busy = TcpListener::bind("127.0.0.1:0").expect("loopback works");
    let address = busy.local_addr().expect("it has one").to_string();
    fails(&["--listen", &address], "another program uses the port");
    fails(
        &["--config", "/nonexistent/flashyard.toml"],
        "cannot read /nonexistent/flashyard.toml",
    );
    let bad = scratch.file(
        "bad.toml",
        "[target]\nlisten = [\"127.0.0.1:0\"]\nspeed = \"fast\"\n",
    );
    fails(&["--config", path(&bad)], "unknown field `speed`");
    let lost = scratch.file(
        "lost.toml",
        "[[volume]]\nname = \"a\"\ndevice = \"gone\"\ntenant = \"db\"\n",
    );
    fails(
        &["--config", path(&lost)],
        "volume `a`: there is no device `gone`",
    );

    let target = Target::start(&scratch, &[]);
    fails(&[], "another flashyard uses the state");
    assert_eq!(target.terminate(), 0);
    assert!(
        !scratch.join("state").join("api.sock").exists(),
        "a clean end leaves no socket"
    );
}

#[test]
fn volumes_are_measured_and_verified_through_the_wire() {
    let scratch = Scratch::new("perf");
    let target = Target::start(&scratch, &["--cores", "2"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    for block_size in ["512", "4096"] {
        let device = format!("ram{block_size}");
        target.json(&[
            "device",
            "create",
            &device,
            "--kind",
            "memory",
            "--size",
            "16MiB",
            "--block-size",
            block_size,
        ]);
        let volume = target.json(&[
            "volume", "create", &device, "--device", &device, "--tenant", "db",
        ]);
        let nsid = volume["nsid"].to_string();
        let report = target_perf(&target, &["--nsid", &nsid, "--rw", "randrw", "--verify"]);
        assert_eq!(report["errors"], 0);
        assert!(report["iops"].as_f64().expect("a rate") > 0.0);
    }
    let found = Command::new(PROGRAM)
        .args(["discover", "--json", "--connect", &target.address])
        .output();
    let found: Value =
        serde_json::from_slice(&found.expect("it starts").stdout).expect("it prints JSON");
    assert!(
        found.to_string().contains("nqn.2026-11.dev.flashyard:db"),
        "{found}"
    );
}

#[test]
fn status_tells_who_broke_the_rules() {
    let scratch = Scratch::new("status");
    let target = Target::start(&scratch, &[]);
    let mut stranger = TcpStream::connect(&target.address).expect("it listens");
    stranger.write_all(&[0xff; 128]).expect("loopback takes it");
    // Its C2HTermReq and then the end: all has been seen to.
    let mut farewell = Vec::new();
    stranger.shutdown(Shutdown::Write).expect("it is connected");
    stranger
        .read_to_end(&mut farewell)
        .expect("the target ends it in order");
    assert_eq!(farewell.first(), Some(&3), "a C2HTermReq: {farewell:?}");
    let status = target.json(&["status"]);
    assert_eq!(status["events"][0]["number"], 1, "{status}");
    let peer = stranger.local_addr().expect("it has one").to_string();
    let event = status["events"][0]["event"].as_str().unwrap_or_default();
    assert!(event.contains(&peer), "{event}");
}

#[test]
fn a_target_stands_in_front_of_another() {
    let (far, near) = (Scratch::new("far"), Scratch::new("near"));
    let back = Target::start(&far, &[]);
    back.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "16MiB",
    ]);
    back.json(&["tenant", "create", "front", "--host", "*"]);
    back.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "front",
    ]);

    let front = Target::start(&near, &[]);
    let subnqn = "nqn.2026-11.dev.flashyard:front";
    let remote = [
        "device",
        "create",
        "far0",
        "--kind",
        "nvme-tcp",
        "--address",
        &back.address,
        "--subnqn",
    ];
    front.refused(
        &[&remote[..], &["nqn.2026-11.dev.flashyard:nobody"]].concat(),
        "nobody",
    );
    let device = front.json(&[&remote[..], &[subnqn]].concat());
    assert_eq!(device["size"], 16 << 20);
    front.json(&["pool", "create", "p", "--device", "far0"]);
    front.json(&["tenant", "create", "db", "--host", "*"]);
    front.json(&[
        "volume", "create", "v", "--pool", "p", "--size", "8MiB", "--tenant", "db",
    ]);
    assert_eq!(
        target_perf(&front, &["--rw", "randrw", "--verify"])["errors"],
        0
    );
}
