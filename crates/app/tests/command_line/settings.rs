//! Settings of the target itself, changed while it runs.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, changed, expect_failure, path, target_perf};

fn addresses(shown: &Value) -> Vec<String> {
    let listed = shown["listen"].as_array().expect("a list");
    let text = listed
        .iter()
        .map(|address| address.as_str().expect("an address").to_owned());
    text.collect()
}

/// Whether nobody listens there, at last: the kernel may need a moment.
fn is_refused(address: &str) -> bool {
    (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        TcpStream::connect(address).is_err()
    })
}

fn discovered(address: &str) -> String {
    let found = Command::new(PROGRAM)
        .args(["discover", "--json", "--connect", address])
        .output();
    String::from_utf8(found.expect("the program starts").stdout).expect("it prints text")
}

#[test]
fn the_target_listens_elsewhere_while_it_runs() {
    let scratch = Scratch::new("listen");
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let first = target.address.clone();
    let set = |list: &str| target.json(&["target", "set", "--listen", list]);
    // What `serve --listen` gave is gone with the first command that says something else.
    let both = addresses(&set("127.0.0.2:0,[::1]:0"));
    assert_eq!(both.len(), 2);
    assert!(is_refused(&first), "{first}");
    for address in &both {
        TcpStream::connect(address).expect("it listens when the answer has come");
    }
    let log = discovered(&both[0]);
    let port = both[0].rsplit(':').next().expect("a port");
    assert!(log.contains(port), "{log}");

    let busy = TcpListener::bind("127.0.0.1:0").expect("loopback works");
    let taken = busy.local_addr().expect("it has one").to_string();
    target.refused(
        &["target", "set", "--listen", &format!("127.0.0.3:0,{taken}")],
        "another program uses the port",
    );
    target.refused(
        &["target", "set", "--listen", "203.0.113.1:0"],
        "no such address",
    );
    assert_eq!(
        addresses(&target.json(&["target", "show"])),
        both,
        "nothing has changed"
    );
    expect_failure(&target.run(&["target", "set"]), 2, "--listen");
    drop(busy);
    let only = addresses(&set(&taken));
    assert_eq!(only, [&*taken]);
    assert!(is_refused(&both[0]) && is_refused(&both[1]));
    assert_eq!(addresses(&target.json(&["status"])["target"]), only);
    // Its own port by another address.
    let any = format!("0.0.0.0:{}", taken.rsplit(':').next().expect("a port"));
    target.refused(
        &["target", "set", "--listen", &any],
        "while the target listens on",
    );
    target.kill();

    // Kept, for a start that says nothing else.
    let mut command = Command::new(PROGRAM);
    command
        .arg("serve")
        .arg("--state")
        .arg(scratch.join("state"));
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let served = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        TcpStream::connect(&taken).is_ok()
    });
    child.kill().expect("it runs");
    child.wait().expect("it was ours");
    assert!(served, "{taken}");
}

/// Hosts are shown the limit, and one that would move more with one command learns why it cannot.
fn is_held_to_64_kib(target: &Target) {
    let place = [
        "perf",
        "--connect",
        &target.address,
        "--subnqn",
        "nqn.2026-11.dev.flashyard:db",
    ];
    let run = |size: &str| {
        let load = ["--rw", "randread", "--bs", size, "--seconds", "1", "--json"];
        let output = Command::new(PROGRAM).args(place).args(load).output();
        output.expect("the program starts")
    };
    let fits = run("64KiB");
    assert!(
        fits.status.success(),
        "{}",
        String::from_utf8_lossy(&fits.stderr)
    );
    expect_failure(
        &run("128KiB"),
        1,
        "more than the target takes at once (65536 bytes)",
    );
}

#[test]
fn limits_are_set_kept_and_overridden_by_a_file() {
    let scratch = Scratch::new("limits");
    let target = Target::start(&scratch, &[]);
    let limits = |shown: &Value| {
        ["max_transfer", "io_queues", "queue_depth", "in_capsule"]
            .map(|key| shown[key].as_u64().expect("a number"))
    };
    assert_eq!(
        limits(&target.json(&["target", "show"])),
        [1 << 20, 128, 1024, 8192]
    );
    let set = [
        "target",
        "set",
        "--max-transfer",
        "64KiB",
        "--io-queues",
        "4",
        "--in-capsule",
        "0",
    ];
    assert_eq!(limits(&target.json(&set)), [64 << 10, 4, 1024, 0]);
    for (key, value, why) in [
        (
            "--max-transfer",
            "100KiB",
            "a power of two from 8 KiB to 1 MiB",
        ),
        ("--io-queues", "0", "1 to 1024"),
        ("--queue-depth", "1", "2 to 1024"),
        ("--in-capsule", "100", "a multiple of 16 bytes up to 64 KiB"),
    ] {
        target.refused(&["target", "set", key, value], why);
    }
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "16MiB",
    ]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "db",
    ]);
    let report = target_perf(&target, &["--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0);
    is_held_to_64_kib(&target);
    target.kill();

    let target = Target::start(&scratch, &[]);
    is_held_to_64_kib(&target);
    let kept = [64 << 10, 4, 1024, 0];
    assert_eq!(limits(&target.json(&["target", "show"])), kept);
    assert_eq!(limits(&target.json(&["status"])["target"]), kept);
    let file = scratch.file(
        "flashyard.toml",
        "[target]\nqueue_depth = 64\nin_capsule = \"16KiB\"\n",
    );
    let applied = target.json(&["apply", path(&file)]);
    assert_eq!(
        changed(&applied),
        ["target in_capsule", "target queue_depth"]
    );
    assert_eq!(
        limits(&target.json(&["target", "show"])),
        [64 << 10, 4, 64, 16 << 10]
    );
    let again = target.json(&["apply", path(&file)]);
    assert_eq!(changed(&again), Vec::<String>::new());
    assert_eq!(
        target_perf(&target, &["--rw", "randrw", "--verify"])["errors"],
        0
    );
    let wrong = scratch.file("wrong.toml", "[target]\nmax_transfer = \"3MiB\"\n");
    target.refused(&["apply", path(&wrong)], "max_transfer is 3 MiB");
}

/// Where `serve --listen` was given, a file does not change it, neither at the start nor later.
#[test]
fn a_file_does_not_override_the_command_line() {
    let scratch = Scratch::new("listen-file");
    let spare = TcpListener::bind("127.0.0.1:0").expect("loopback works");
    let taken = spare.local_addr().expect("it has one");
    let file = scratch.file(
        "flashyard.toml",
        &format!("[target]\nlisten = [\"{taken}\"]\n"),
    );
    let target = Target::start(&scratch, &["--config", path(&file)]);
    let here = target.address.clone();
    assert_eq!(addresses(&target.json(&["target", "show"])), [&*here]);
    target.json(&["apply", path(&file)]);
    assert_eq!(addresses(&target.json(&["target", "show"])), [&*here]);
    // A target without that option goes where the file says.
    let other = scratch.file("other.toml", "[target]\nlisten = [\"127.0.0.1:0\"]\n");
    target.json(&["target", "set", "--listen", "[::1]:0"]);
    let applied = target.json(&["apply", path(&other)]);
    assert_eq!(changed(&applied), ["target listen"]);
    let there = addresses(&target.json(&["target", "show"]));
    assert!(
        there.len() == 1 && there[0].starts_with("127.0.0.1:"),
        "{there:?}"
    );
}
