//! What `device calibrate` finds, what it leaves behind, and what is made of it.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, names, path, target_perf};

const CALIBRATE: [&str; 3] = ["device", "calibrate", "disk0"];

/// A target with a file that has a pool, on which a tenant has a volume.
fn with_pool(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    let file = scratch.join("disk0.img");
    let file = [
        "device",
        "create",
        "disk0",
        "--kind",
        "file",
        "--path",
        path(&file),
    ];
    target.json(&[&file[..], &["--size", "256MiB"]].concat());
    target.json(&["pool", "create", "p", "--device", "disk0"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = ["volume", "create", "v", "--pool", "p", "--tenant", "db"];
    target.json(&[&volume[..], &["--size", "32MiB"]].concat());
    target
}

fn free(target: &Target) -> u64 {
    let pool = target.json(&["pool", "show", "p"]);
    pool["free_bytes"].as_u64().expect("it is open")
}

/// Types the command, and waits until it is at work in its scratch volume.
fn begin(target: &Target) -> Child {
    let before = free(target);
    let mut command = Command::new(PROGRAM);
    command.args(CALIBRATE).arg("--state").arg(&target.state);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the program starts");
    while free(target) == before {}
    child
}

#[test]
fn a_device_in_use_is_measured_in_a_volume_that_goes_again() {
    let scratch = Scratch::new("calibration");
    let target = with_pool(&scratch);
    let before = free(&target);
    target.refused(
        &[&CALIBRATE[..], &["--destroy"]].concat(),
        "used by pool `p`",
    );
    let found = target.json(&CALIBRATE);
    for rate in [
        "read_iops",
        "write_iops",
        "read_bandwidth",
        "write_bandwidth",
    ] {
        assert!(found["capability"][rate].as_u64() > Some(0), "{found}");
    }
    let how = &found["calibration"];
    assert_eq!(
        (&how["place"], &how["medium"]),
        (&"scratch-volume".into(), &"device".into())
    );
    assert_eq!(how["free_bytes"].as_u64(), Some(before), "{how}");
    assert!(
        how["date"].as_str().is_some_and(|date| date.ends_with('Z')),
        "{how}"
    );
    let kept = target.json(&["device", "show", "disk0"]);
    assert_eq!(&kept["calibration"], how);
    let points = kept["curve"].as_array().map(Vec::len);
    let wanted = if found["curve_kept"] == true { 10 } else { 0 };
    assert_eq!(points, Some(wanted), "{found}");
    assert_eq!(free(&target), before);
    assert_eq!(names(&target.json(&["volume", "list"])), ["v"]);
    assert_eq!(
        target_perf(&target, &["--rw", "randrw", "--verify"])["errors"],
        0
    );
    // What was not seen to hold twice is no ground for a guarantee.
    let given = target.json(&[
        "tenant",
        "set",
        "db",
        "--guarantee",
        "iops=1,write_bandwidth=1MB/s",
    ]);
    let needed = |rate: &Value| rate != "read_bandwidth";
    let unstable = how["unstable"].as_array().expect("a list");
    let is_stable = !unstable.iter().any(needed);
    let wanted = if is_stable { "verified" } else { "unverified" };
    assert_eq!(given["guarantee_state"], wanted, "{given}");
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(
        target.json(&["device", "show", "disk0"])["calibration"],
        *how
    );
    assert_eq!(target.terminate(), 0);
}

/// Ctrl-C ends it in the target as well; after a kill the next start takes the volume away. The
/// part of the device where that volume is has two seconds for an I/O, so that the measurement goes
/// on for minutes if it is not ended.
#[test]
fn a_measurement_that_is_cut_off_leaves_nothing() {
    let scratch = Scratch::new("calibration-cut");
    let target = Target::start(&scratch, &[]);
    let file = scratch.join("disk0.img");
    for command in [
        &format!(
            "device create file0 --kind file --size 256MiB --path {}",
            path(&file)
        ),
        "device create disk0 --kind fault --device file0",
        "pool create p --device disk0",
        "tenant create db --host *",
        "volume create v --pool p --tenant db --size 32MiB",
        "device set disk0 --fault latency,latency=2s,from=64MiB,to=240MiB",
    ] {
        target.json(&command.split(' ').collect::<Vec<_>>());
    }
    let before = free(&target);
    let mut child = begin(&target);
    // As Ctrl-C does, which who runs the tests in the background may have had ignored.
    child.kill().expect("it is ours");
    let status = child.wait().expect("it is ours");
    assert!(!status.success(), "it was ended");
    // It has its turn when the measurement has ended.
    let set = target.json(&["device", "set", "disk0", "--policy", "fair"]);
    assert_eq!(set["capability"], Value::Null, "nothing is noted: {set}");
    assert_eq!(free(&target), before);
    let mut child = begin(&target);
    target.kill();
    child.wait().expect("it is ours");
    let target = Target::start(&scratch, &[]);
    assert_eq!(free(&target), before);
    assert_eq!(names(&target.json(&["volume", "list"])), ["v"]);
    assert_eq!(target.terminate(), 0);
}

/// A pool without room says how much a measurement needs, and is left as it was.
#[test]
fn a_pool_that_is_full_is_not_measured() {
    let scratch = Scratch::new("calibration-full");
    let target = with_pool(&scratch);
    let most = (free(&target) - (4 << 20)).to_string();
    let volume = ["volume", "create", "rest", "--pool", "p", "--tenant", "db"];
    target.json(&[&volume[..], &["--size", &most]].concat());
    let before = free(&target);
    target.refused(&CALIBRATE, "in a volume of at least 8 MiB");
    assert_eq!(free(&target), before);
    assert_eq!(names(&target.json(&["volume", "list"])), ["rest", "v"]);
    assert_eq!(target.terminate(), 0);
}

/// A null device has figures, and they are never the ground of a promise.
#[test]
fn figures_of_nothing_are_no_ground_for_a_guarantee() {
    let scratch = Scratch::new("calibration-null");
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device", "create", "null0", "--kind", "null", "--size", "1GiB",
    ]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let found = target.json(&["device", "calibrate", "null0", "--destroy"]);
    assert_eq!(found["calibration"]["medium"], "null", "{found}");
    assert!(
        found["note"].to_string().contains("keeps no data"),
        "{found}"
    );
    target.json(&[
        "volume", "create", "v", "--device", "null0", "--tenant", "db",
    ]);
    let given = target.json(&["tenant", "set", "db", "--guarantee", "read_iops=1"]);
    assert_eq!(given["guarantee_state"], "unverified", "{given}");
    assert!(
        given["guarantee_hint"]
            .to_string()
            .contains("keeps no data"),
        "{given}"
    );
    assert_eq!(target.terminate(), 0);
}

/// What is known not to be kept is refused, says how to have it nevertheless, and is shown as what
/// it is.
#[test]
fn force_takes_what_cannot_be_kept() {
    let scratch = Scratch::new("force");
    let target = Target::start(&scratch, &[]);
    let text = |device: &str, guarantee: &str| {
        format!(
            "[[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"64MiB\"\n{device}\n\
             [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\n{guarantee}\n\
             [[volume]]\nname = \"a\"\ndevice = \"ram0\"\ntenant = \"db\"\n"
        )
    };
    let known = "capability = { read_iops = 1000 }";
    let apply = |text: String| scratch.file("flashyard.toml", &text);
    let state = || target.json(&["tenant", "show", "db"])["guarantee_state"].clone();
    target.json(&["apply", path(&apply(text(known, "")))]);
    let set = ["tenant", "set", "db", "--guarantee", "read_iops=1500"];
    target.refused(&set, "this would sell 150 % of ram0 (db 150 %)");
    target.refused(&set, "--force");
    assert_eq!(state(), Value::Null);
    target.json(&[&set[..], &["--force"]].concat());
    assert_eq!(state(), "oversold");
    target.json(&["tenant", "set", "db", "--guarantee", "none"]);
    let more = apply(text(known, "guarantee = { read_iops = 1500 }"));
    target.refused(&["apply", path(&more)], "--force");
    assert_eq!(state(), Value::Null);
    target.json(&["apply", path(&more), "--force"]);
    assert_eq!(state(), "oversold");
    // A policy that is changed later is warned about, and the same guarantee is not refused.
    target.json(&["tenant", "set", "db", "--guarantee", "read_iops=500"]);
    target.json(&["device", "set", "ram0", "--policy", "fifo"]);
    let shown = target.json(&["tenant", "show", "db"]);
    assert_eq!(shown["guarantee_state"], "ignored", "{shown}");
    let advice = "flashyard device set ram0 --policy fair";
    assert!(
        shown["guarantee_hint"].to_string().contains(advice),
        "{shown}"
    );
    let row = &target.json(&["status"])["tenants"][0]["guarantee_state"];
    assert_eq!(*row, "ignored");
    let fifo = format!("{known}\npolicy = \"fifo\"");
    let same = apply(text(&fifo, "guarantee = { read_iops = 500 }"));
    target.json(&["apply", path(&same)]);
    let set = ["tenant", "set", "db", "--guarantee", "read_iops=600"];
    target.refused(&set, advice);
    let more = apply(text(&fifo, "guarantee = { read_iops = 600 }"));
    target.refused(&["apply", path(&more)], advice);
    target.json(&[&set[..], &["--force"]].concat());
    assert_eq!(state(), "ignored");
    assert_eq!(target.terminate(), 0);
}

/// A start measures nothing: a policy that needs figures is stood in for until somebody has
/// measured, and no object of the file is refused for it.
#[test]
fn a_start_measures_nothing() {
    let scratch = Scratch::new("untold");
    let config = scratch.file(
        "flashyard.toml",
        "[[device]]\nname = \"ssd0\"\nkind = \"flash\"\nsize = \"256MiB\"\nprofile = \"dct983\"\npolicy = \"reflex\"\n\
         [[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"64MiB\"\npolicy = \"flashfq\"\n",
    );
    let target = Target::start(&scratch, &["--config", path(&config)]);
    for device in ["ssd0", "ram0"] {
        let shown = target.json(&["device", "show", device]);
        let note = shown["policy_note"].to_string();
        assert!(note.contains("`fair` stands in"), "{shown}");
        assert!(
            note.contains(&format!("flashyard device calibrate {device}")),
            "{shown}"
        );
    }
    target.json(&["device", "calibrate", "ssd0"]);
    let shown = target.json(&["device", "show", "ssd0"]);
    assert_eq!(shown["policy_note"], Value::Null, "{shown}");
    assert_eq!(shown["calibration"]["medium"], "model");
    assert_eq!(target.terminate(), 0);
}
