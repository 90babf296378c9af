//! No command waits behind another that has nothing to do with it. One of the devices is another
//! target's, which is stopped: nothing that is asked of it is ever answered.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path, serve};

/// A target whose device `far` is a namespace of another one, which is given as well.
fn two(scratch: &[Scratch; 2]) -> [Target; 2] {
    let other = Target::start(&scratch[0], &[]);
    other.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "64MiB",
    ]);
    other.json(&["tenant", "create", "peer", "--host", "*"]);
    other.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "peer",
    ]);
    let target = Target::start(&scratch[1], &[]);
    let subnqn = "nqn.2026-11.dev.flashyard:peer";
    let far = ["device", "create", "far", "--kind", "nvme-tcp"];
    let there = ["--address", &other.address, "--subnqn", subnqn];
    target.json(&[far.as_slice(), &there].concat());
    target.json(&["tenant", "create", "db", "--host", "*"]);
    [other, target]
}

fn signal(target: &Target, signal: &str) {
    let id = target.child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.expect("kill exists").success());
    // A thread that runs is stopped when it comes to notice.
    while signal == "-STOP" && !is_stopped(&id) {}
}

/// Whether no thread of a process runs.
fn is_stopped(id: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task")).expect("it is ours");
    let stopped = |thread: io::Result<fs::DirEntry>| {
        let path = thread.expect("it is ours").path().join("stat");
        // Behind the name, which is in parentheses.
        let stat = fs::read_to_string(path).expect("it is ours");
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    threads.into_iter().all(stopped)
}

/// Whether a process has a handler for SIGTERM.
fn catches_term(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it is ours");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> 14 & 1 == 1)
}

/// Types a command, and does not wait for its end.
fn begin(target: &Target, args: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--state").arg(&target.state);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Whether a command has not ended.
fn runs(child: &mut Child) -> bool {
    child.try_wait().expect("it is ours").is_none()
}

/// Whether a command still runs when others, which came after it, have ended.
fn waits(target: &Target, child: &mut Child) -> bool {
    for _ in 0..3 {
        target.json(&["status"]);
    }
    runs(child)
}

/// Asks for everything, and changes what is not `far`.
fn others_go_on(scratch: &Scratch, target: &Target, round: &str) {
    let status = target.json(&["status"]);
    assert!(status["target"]["devices"].as_u64() >= Some(1), "{status}");
    for kind in ["device", "partition", "pool", "tenant", "volume"] {
        target.json(&[kind, "list"]);
    }
    assert_eq!(target.json(&["device", "show", "far"])["state"], "online");
    let (device, pool, volume) = (
        format!("d{round}"),
        format!("p{round}"),
        format!("v{round}"),
    );
    target.json(&[
        "device", "create", &device, "--kind", "memory", "--size", "64MiB",
    ]);
    target.json(&["device", "set", &device, "--policy", "fifo"]);
    target.json(&["pool", "create", &pool, "--device", &device]);
    let create = ["volume", "create", &volume, "--pool", &pool];
    target.json(&[&create[..], &["--size", "16MiB", "--tenant", "db"]].concat());
    target.json(&["volume", "set", &volume, "--size", "32MiB"]);
    target.json(&["tenant", "set", "db", "--weight", "3"]);
    target.json(&["why", "db"]);
    target.json(&["target", "set", "--io-queues", "8"]);
    let file = format!("[[tenant]]\nname = \"t{round}\"\n");
    let file = scratch.file("more.toml", &file);
    target.json(&["apply", path(&file)]);
    target.json(&["volume", "delete", &volume, "--yes"]);
    target.json(&["pool", "delete", &pool]);
    target.json(&["device", "delete", &device]);
}

#[test]
fn nobody_waits_for_a_device_that_never_answers_but_who_changes_it() {
    let scratch = [Scratch::new("turns-far"), Scratch::new("turns")];
    let [other, target] = two(&scratch);
    signal(&other, "-STOP");
    // It is written, and answers nothing.
    let mut calibrate = begin(&target, &["device", "calibrate", "far", "--destroy"]);
    // Until the calibration has its turn, others have theirs.
    let set = ["device", "set", "far", "--policy", "fifo"];
    let mut rounds = 0..;
    let mut second = loop {
        let mut second = begin(&target, &set);
        let round = rounds.next().unwrap_or_default().to_string();
        others_go_on(&scratch[1], &target, &round);
        if waits(&target, &mut second) {
            break second;
        }
    };
    assert!(waits(&target, &mut calibrate), "it is not answered");
    signal(&other, "-CONT");
    // Whether it could be measured is for the connection to say.
    calibrate.wait().expect("it is ours");
    assert!(second.wait().expect("it is ours").success());
    assert_eq!(target.json(&["device", "show", "far"])["policy"], "fifo");
}

#[test]
fn a_volume_that_is_made_where_nobody_answers_holds_up_nobody_else() {
    let scratch = [Scratch::new("made-far"), Scratch::new("made")];
    let [other, target] = two(&scratch);
    signal(&other, "-STOP");
    let create = ["volume", "create", "slow", "--device", "far", "--erase"];
    let mut slow = begin(&target, &[&create[..], &["--tenant", "db"]].concat());
    // It is there from when it is noted, and neither its tenant nor its device can go.
    while names(&target.json(&["volume", "list"])) != ["slow"] {
        assert!(runs(&mut slow), "it has ended before its volume was noted");
    }
    assert_eq!(
        target.json(&["volume", "show", "slow"])["state"],
        "creating"
    );
    target.refused(&["tenant", "delete", "db"], "has volume `slow`");
    let mut rename = begin(&target, &["tenant", "rename", "db", "shop"]);
    others_go_on(&scratch[1], &target, "2");
    assert!(waits(&target, &mut slow), "it is not answered");
    assert!(
        waits(&target, &mut rename),
        "the volume says whose it is: it is renamed when that is made"
    );
    signal(&other, "-CONT");
    let made = slow.wait().expect("it is ours").success();
    assert!(rename.wait().expect("it is ours").success());
    let volumes = target.json(&["volume", "list"]);
    match made {
        true => assert_eq!(volumes[0]["tenant"], "shop"),
        false => assert!(names(&volumes).is_empty(), "{volumes}"),
    }
}

/// A host that came between a new tenant and its volumes would miss them, and give them up.
#[test]
fn hosts_of_a_tenant_that_a_file_makes_wait_for_its_volumes() {
    let scratch = [Scratch::new("hosts-far"), Scratch::new("hosts")];
    let [other, target] = two(&scratch);
    signal(&other, "-STOP");
    let file = "[[tenant]]\nname = \"shop\"\nhosts = [\"*\"]\n\
                [[volume]]\nname = \"slow\"\ndevice = \"far\"\ntenant = \"shop\"\ncontent = \"erase\"\n";
    let file = scratch[1].file("shop.toml", file);
    let mut apply = begin(&target, &["apply", path(&file)]);
    while names(&target.json(&["tenant", "list"])) != ["db", "shop"] {
        assert!(runs(&mut apply), "it has ended before its tenant was made");
    }
    let subnqn = "nqn.2026-11.dev.flashyard:shop";
    let connect = || {
        let perf = ["perf", "--connect", &target.address, "--subnqn", subnqn];
        let mut command = Command::new(PROGRAM);
        command
            .args(perf)
            .args(["--rw", "randread", "--seconds", "1"]);
        command.output().expect("the program starts")
    };
    expect_failure(&connect(), 1, "Controller Busy");
    // Others change something meanwhile, which admits no host.
    target.json(&["tenant", "set", "db", "--weight", "2"]);
    expect_failure(&connect(), 1, "Controller Busy");
    signal(&other, "-CONT");
    let applied = apply.wait().expect("it is ours").success();
    // Whether the volume could be zeroed is for the connection to say.
    match applied {
        true => assert!(connect().status.success(), "it has its volume"),
        false => assert_eq!(names(&target.json(&["tenant", "list"])), ["db"]),
    }
}

/// The first signal is served when the target has started, and the second at once.
#[test]
fn a_start_that_waits_for_another_target_can_be_ended() {
    let scratch = [Scratch::new("starts-far"), Scratch::new("starts")];
    let [other, target] = two(&scratch);
    assert_eq!(target.terminate(), 0);
    signal(&other, "-STOP");
    let mut child = serve(&scratch[1], &[]).spawn().expect("the program starts");
    let id = child.id().to_string();
    let end = || {
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill exists").success());
    };
    while !catches_term(&id) {}
    end();
    let errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let said = errors.lines().next().and_then(Result::ok);
    assert!(said.is_some_and(|it| it.contains("a second signal ends it at once")));
    end();
    let status = child.wait().expect("it was ours");
    assert_eq!(status.code(), Some(1), "it waits for nothing any more");
}
