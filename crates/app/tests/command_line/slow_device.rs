//! A device that takes long: the log says which I/Os were slow, health names the device, and an end
//! does not wait for it longer than it may.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, serve, terminate};

/// Waits so often; each wait is short.
const TRIES: usize = 4_000;

/// A target that a host reads from, an I/O at a time, on a slow device.
struct Slow {
    target: Target,
    load: Child,
    log: PathBuf,
}

impl Slow {
    fn start(scratch: &Scratch, latency: &str, more: &[&str]) -> Self {
        let slow = Self::on(scratch, more, &[], |target| {
            let device = ["device", "create", "ram0", "--kind", "memory"];
            target.json(&[&device[..], &["--size", "16MiB"]].concat());
            let bad = ["device", "create", "bad0", "--kind", "fault"];
            target.json(&[&bad[..], &["--device", "ram0"]].concat());
        });
        // Not before: to make a volume reads, too.
        let latency = format!("latency,on=read,latency={latency}");
        slow.target
            .json(&["device", "set", "bad0", "--fault", &latency]);
        slow
    }

    /// The same on a device `bad0` that `make` makes.
    fn on(scratch: &Scratch, more: &[&str], load: &[&str], make: impl FnOnce(&Target)) -> Self {
        let log = scratch.join("log");
        let mut command = serve(scratch, more);
        command.stderr(fs::File::create(&log).expect("it is ours"));
        let target = Target::of(scratch, &mut command);
        make(&target);
        target.json(&["tenant", "create", "db", "--host", "*"]);
        let volume = ["volume", "create", "v", "--device", "bad0"];
        target.json(&[&volume[..], &["--tenant", "db", "--erase"]].concat());
        let load = Command::new(PROGRAM)
            .args(["perf", "--connect", &target.address])
            .args(["--subnqn", "nqn.2026-11.dev.flashyard:db"])
            .args(["--rw", "randread", "--qd", "1", "--seconds", "600"])
            .args(load)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let load = load.expect("the program starts");
        Self { target, load, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).expect("it is ours")
    }

    /// What has come to the volume since the start.
    fn came(&self) -> Value {
        let output = self.target.run(&["iostat", "--by", "volume", "--json"]);
        let came = serde_json::from_slice::<Value>(&output.stdout);
        came.unwrap_or_default()
    }

    /// Waits until a read is at the device.
    fn reads(&self) {
        until("no read is at the device", || {
            self.came()["rows"][0]["in_flight"].as_u64() > Some(0)
        });
    }

    /// What health says of slow devices.
    fn slow_devices(&self) -> Option<Value> {
        let health = self.target.json(&["health"]);
        let problems = health["problems"].as_array().expect("a list");
        let slow = problems.iter().find(|it| it["code"] == "DEVICE_SLOW");
        slow.cloned()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..TRIES {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

#[test]
fn slow_ios_are_logged_with_their_stages_and_what_is_less_urgent_is_not() {
    let scratch = Scratch::new("slow-io");
    let log = [
        "--log",
        "json",
        "--log-level",
        "warning",
        "--slow-io",
        "5ms",
    ];
    let mut slow = Slow::start(&scratch, "20ms", &log);
    until("it tells of no slow I/O", || {
        slow.said().contains("slow-io")
    });
    let said = slow.said();
    let lines = said.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("an object in each line");
        line
    });
    let (told, others): (Vec<Value>, Vec<Value>) = lines.partition(|it| it["kind"] == "slow-io");
    let (first, io) = (&told[0], &told[0]["slow"]);
    assert_eq!(
        (&first["level"], &first["what"]),
        (&"warning".into(), &"tenant db".into())
    );
    assert_eq!(
        (&io["tenant"], &io["device"]),
        (&"db".into(), &"bad0".into())
    );
    assert_eq!(
        (&io["op"], &io["slow_after_us"]),
        (&"read".into(), &5_000.into())
    );
    let took = io["took_us"].as_u64().expect("a number");
    assert!(took >= 20_000, "{io}");
    assert!(io["device_us"].as_u64() >= Some(20_000), "{io}");
    assert!(io["ios"].as_u64() > Some(0), "{io}");
    // One for a tenant and device within a minute, however many there are.
    assert_eq!(told.len(), 1, "{said}");
    // What was changed, and who has connected, is less urgent.
    for line in others {
        let level = line["level"].as_str();
        assert!(
            matches!(level, Some("notice" | "warning" | "error")),
            "{line}"
        );
    }
    let events = slow.target.run(&["events"]);
    let events = String::from_utf8(events.stdout).expect("text");
    assert!(
        events.contains("slow-io  tenant db: a read of 4 KiB on device bad0 took"),
        "{events}"
    );
    assert!(
        events.contains("changed"),
        "they are events all the same: {events}"
    );
    assert_eq!(terminate(&mut slow.target.child), 0);
}

/// What is usual is known after three spans of ten seconds with I/O, and a device is slow after
/// three more. Reads come at a pace that shows when these are over; for as many as that takes, and
/// a span more, nothing is slow.
#[test]
fn a_device_that_takes_many_times_as_long_as_usual_is_named_until_it_does_not() {
    const PACE: u64 = 20;
    let scratch = Scratch::new("device-slow");
    let paced = ["--rate", &PACE.to_string()];
    let slow = Slow::on(&scratch, &[], &paced, |target| {
        let path = scratch.join("img0");
        let path = path.to_str().expect("plain text");
        let file = ["device", "create", "img0", "--kind", "file", "--path", path];
        target.json(&[&file[..], &["--size", "16MiB"]].concat());
        target.json(&[
            "device", "create", "bad0", "--kind", "fault", "--device", "img0",
        ]);
    });
    until("nobody reads", || {
        let came = slow.came();
        let reads = came["seconds"]
            .as_f64()
            .zip(came["rows"][0]["read_iops"].as_f64());
        reads.is_some_and(|(seconds, each)| seconds * each > (50 * PACE) as f64)
    });
    assert_eq!(slow.slow_devices(), None);

    let latency = "latency,on=read,latency=500ms";
    slow.target
        .json(&["device", "set", "bad0", "--fault", latency]);
    let mut found = None;
    until("it is not slow", || {
        found = slow.slow_devices();
        found.is_some()
    });
    let found = found.expect("it was so");
    assert_eq!(found["what"], serde_json::json!(["device bad0"]), "{found}");
    assert_eq!(found["severity"], "degraded", "{found}");
    let detail = found["detail"].as_str().expect("text");
    assert!(
        detail.starts_with("I/O takes ") && detail.contains(" at it, usually "),
        "{found}"
    );
    // That is an event, too.
    let events = || {
        let events = slow.target.run(&["events"]);
        String::from_utf8(events.stdout).expect("text")
    };
    until("there is no event of it", || {
        events().contains("DEVICE_SLOW: device bad0: I/O takes")
    });

    slow.target.json(&["device", "set", "bad0", "--no-faults"]);
    until("it is slow for ever", || slow.slow_devices().is_none());
    until("there is no event of the end", || {
        events().contains("DEVICE_SLOW: it is over")
    });
}

/// A target on a volume of another one, which does not answer any more while a read is there.
struct Stuck {
    back: Target,
    slow: Slow,
}

impl Stuck {
    fn start(far: &Scratch, near: &Scratch) -> Self {
        let back = Target::start(far, &[]);
        let ram = ["device", "create", "ram0", "--kind", "memory"];
        back.json(&[&ram[..], &["--size", "16MiB"]].concat());
        back.json(&["tenant", "create", "front", "--host", "*"]);
        let volume = ["volume", "create", "v", "--device", "ram0"];
        back.json(&[&volume[..], &["--tenant", "front"]].concat());
        let slow = Slow::on(near, &["--stop-within", "1s"], &[], |target| {
            let far = ["device", "create", "bad0", "--kind", "nvme-tcp"];
            let at = ["--address", &back.address, "--subnqn"];
            let subnqn = ["nqn.2026-11.dev.flashyard:front"];
            target.json(&[&far[..], &at[..], &subnqn[..]].concat());
        });
        slow.reads();
        signal(&back.child, "-STOP");
        // The first read behind that stays.
        for _ in 0..10 {
            slow.reads();
            thread::sleep(Duration::from_millis(20));
        }
        Self { back, slow }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        signal(&self.back.child, "-CONT");
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill exists").success());
}

#[test]
fn an_end_waits_for_a_device_no_longer_than_it_may_and_says_what_is_left() {
    let (far, near) = (Scratch::new("stop-far"), Scratch::new("stop-within"));
    let mut stuck = Stuck::start(&far, &near);
    assert_eq!(terminate(&mut stuck.slow.target.child), 1);
    let said = stuck.slow.said();
    let left = "not finished after 1 s, and ended: 1 I/O at device bad0. Hosts repeat";
    assert!(said.contains(left), "{said}");
}

#[test]
fn whoever_takes_over_waits_no_longer_either() {
    let (far, near) = (Scratch::new("over-far"), Scratch::new("over-within"));
    let mut stuck = Stuck::start(&far, &near);
    let address = stuck.slow.target.address.clone();
    let mut command = serve(&near, &["--take-over", "--listen", &address]);
    let (back, old) = (&stuck.back.child, &mut stuck.slow.target.child);
    let mut next = thread::scope(|scope| {
        let next = scope.spawn(|| Target::of(&near, &mut command));
        let status = old.wait().expect("it was ours");
        // The next one uses the same device.
        signal(back, "-CONT");
        assert_eq!(status.code(), Some(1));
        next.join().expect("it starts")
    });
    let said = stuck.slow.said();
    assert!(said.contains("1 I/O at device bad0"), "{said}");
    assert_eq!(next.json(&["status"])["target"]["ended_unsafely"], 1);
    assert_eq!(terminate(&mut next.child), 0);
}
