//! The program as a user runs it: commands typed at a real target, on loopback, with a state directory of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flashyard");

/// A state directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("flashyard-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("the scratch directory is writable");
        path
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running target; killed when dropped.
struct Target {
    child: Child,
    address: String,
    state: PathBuf,
}

impl Target {
    fn start(scratch: &Scratch, more: &[&str]) -> Self {
        let mut child = serve(scratch, more).spawn().expect("the program starts");
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
            state: scratch.state(),
        }
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(args)
            .arg("--state")
            .arg(&self.state)
            .output()
            .expect("the program starts")
    }

    /// Runs a command that must succeed, and reads its JSON.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("it prints JSON")
    }

    /// Runs a command that must fail with status 1 and one line that contains `why`.
    fn refused(&self, args: &[&str], why: &str) {
        expect_failure(&self.run(args), 1, why);
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }

    fn terminate(mut self) -> i32 {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .expect("kill exists")
                .success()
        );
        self.child.wait().expect("it was ours").code().unwrap_or(-1)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(scratch: &Scratch, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("serve")
        .arg("--state")
        .arg(scratch.state())
        .args(more);
    if !more.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn expect_failure(output: &Output, status: i32, why: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.contains(why), "`{why}` is not in: {error}");
    assert!(
        status == 2 || error.trim_end().lines().count() == 1,
        "one line, not: {error}"
    );
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array()
        .expect("a list")
        .iter()
        .map(|row| row["name"].as_str().expect("a name"))
        .collect()
}

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
    let image = scratch.0.join("ssd0.img");
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

#[test]
fn a_volume_that_was_lost_is_told_and_not_made_again() {
    let scratch = Scratch::new("lost");
    let (image, older) = (scratch.0.join("ssd0.img"), scratch.0.join("older.img"));
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
        plan["steps"],
        Value::Array(Vec::new()),
        "everything is there already"
    );
    target.kill();

    fs::remove_file(scratch.0.join("ssd0.img")).expect("the device was a file");
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
        .arg(scratch.state())
        .output()
        .expect("it starts");
    expect_failure(&nobody, 1, "flashyard serve");
}

#[test]
fn a_target_that_cannot_start_says_why() {
    let scratch = Scratch::new("start");
    let fails = |more: &[&str], why: &str| {
        expect_failure(
            &serve(&scratch, more).output().expect("the program starts"),
            1,
            why,
        );
    };
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
        !scratch.state().join("control.sock").exists(),
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

#[test]
fn an_emulated_drive_is_a_device() {
    let scratch = Scratch::new("drive");
    let target = Target::start(&scratch, &[]);
    let image = scratch.0.join("kept.img");
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
        &include_str!("../../flash/profiles/dct983.toml").replace("suspends = 3", "suspends = 0"),
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

    // What was in memory is gone, and its pool is made anew, as on a memory device; the file is as it was.
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
    for phase in ["alone", "beside_writer", "together"] {
        assert_eq!(reader[phase]["errors"], 0);
        // Not even a machine that is too slow makes a read of the drive faster than the drive is.
        assert!(reader[phase]["latency_us"]["p50"].as_f64() > Some(790.0));
    }
    let beside_writes = &shown["drive"][3];
    assert!(beside_writes["write_amplification"].as_f64() > Some(1.0));
    assert!(beside_writes["void"].is_boolean());
    let void = shown["drive"]
        .as_array()
        .is_some_and(|phases| [0, 3].iter().any(|&place| phases[place]["void"] == true));
    let finding = shown["finding"].as_str().unwrap_or_default();
    assert_eq!(finding.contains("a read of db takes"), !void, "{finding}");
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
    let told = status["events"][0]["event"].as_str().unwrap_or_default();
    assert!(told.contains(&peer), "{told}");
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

fn target_perf(target: &Target, more: &[&str]) -> Value {
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
    let output = Command::new(PROGRAM)
        .args(base)
        .args(load)
        .args(more)
        .output()
        .expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// What is promised of a drive is held against what it can give, and policies and shares change while it is used.
#[test]
fn guarantees_policies_and_reasons() {
    let scratch = Scratch::new("promises");
    let config = scratch.file(
        "flashyard.toml",
        "[[device]]\nname = \"ssd0\"\nkind = \"flash\"\nsize = \"1GiB\"\nprofile = \"dct983\"\npolicy = \"fair\"\n\
         [[pool]]\nname = \"p\"\ndevices = [\"ssd0\"]\n\
         [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\nclass = \"latency\"\nguarantee = { read_iops = 100000 }\n\
         [[tenant]]\nname = \"lab\"\nhosts = [\"*\"]\nlimit = { iops = 3000 }\n\
         [[volume]]\nname = \"a\"\npool = \"p\"\nsize = \"128MiB\"\ntenant = \"db\"\n\
         [[volume]]\nname = \"b\"\npool = \"p\"\nsize = \"128MiB\"\ntenant = \"lab\"\n",
    );
    let config = config.to_str().expect("plain text");
    let target = Target::start(&scratch, &["--config", config, "--listen", "127.0.0.1:0"]);
    let device = target.json(&["device", "show", "ssd0"]);
    let reads = device["capability"]["read_iops"]
        .as_u64()
        .expect("a guarantee has the drive measured");
    assert!((300_000..500_000).contains(&reads), "{reads}");
    target.refused(
        &[
            "tenant",
            "set",
            "lab",
            "--guarantee",
            "write_iops=40000",
            "--limit",
            "none",
        ],
        "% of ssd0 (db ",
    );
    target.refused(
        &["tenant", "set", "lab", "--guarantee", "write_iops=5000"],
        "above its limit of iops 3000",
    );
    let changed = target.json(&[
        "tenant",
        "set",
        "lab",
        "--guarantee",
        "write_iops=2000",
        "--latency-target",
        "5ms",
    ]);
    assert_eq!(changed["guarantee"]["write_iops"], 2000);
    assert_eq!(changed["latency_target"], 5000);

    let load = |tenant: &str, more: &[&str]| {
        let subnqn = format!("nqn.2026-11.dev.flashyard:{tenant}");
        let args = [
            &[
                "perf",
                "--connect",
                &target.address,
                "--subnqn",
                &subnqn,
                "--json",
            ][..],
            &["--seconds", "0.5", "--warmup", "0.1", "--bs", "4KiB"],
            more,
        ]
        .concat();
        Command::new(PROGRAM)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts")
    };
    let bulk = load("lab", &["--rw", "randwrite", "--qd", "32"]);
    let reader = load("db", &["--rw", "randread", "--qd", "1"]);
    // Each policy in turn, under load: nothing fails.
    for policy in ["fifo", "gimbal", "caps", "fair"] {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let set = target.json(&["device", "set", "ssd0", "--policy", policy]);
        assert_eq!(set["policy"], policy);
    }
    for load in [bulk, reader] {
        let output = load.wait_with_output().expect("it ends");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(report["errors"], 0, "{report}");
        assert!(report["iops"].as_f64().expect("a number") > 0.0);
    }
    let why = target.json(&["why", "db"]);
    let device = &why["devices"][0];
    assert_eq!(
        (&device["device"], &device["policy"]),
        (&"ssd0".into(), &"fair".into())
    );
    assert!(device["ios"].as_u64().expect("a number") > 0, "{why}");
    let shares = device["causes"].as_array().expect("a list").iter();
    let sum: f64 = shares.filter_map(|cause| cause["share"].as_f64()).sum();
    assert!((0.99..1.01).contains(&sum), "{why}");
    target.refused(&["why", "nobody"], "no tenant `nobody`");
    target.refused(
        &["device", "set", "ssd9", "--policy", "fair"],
        "no device `ssd9`",
    );

    // What cannot be known cannot be promised.
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "64MiB",
    ]);
    target.refused(
        &[
            "volume", "create", "c", "--device", "ram0", "--tenant", "db",
        ],
        "device calibrate ram0",
    );
    let measured = target.json(&["device", "calibrate", "ram0", "--destroy"]);
    assert!(
        measured["capability"]["write_iops"]
            .as_u64()
            .expect("a number")
            > 0
    );
    target.json(&[
        "volume", "create", "c", "--device", "ram0", "--tenant", "db",
    ]);
    target.refused(
        &["device", "calibrate", "ram0", "--destroy"],
        "used by volume `c`",
    );
    assert_eq!(target.terminate(), 0);
}
