//! Devices that inject faults on purpose: made, changed, marked wherever they matter, and never in
//! the way of the end.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, changed, expect_failure, path};

const SUBNQN: &str = "nqn.2026-11.dev.flashyard:db";

/// A command in one string.
fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn with_pool(scratch: &Scratch, faults: &str) -> Target {
    let target = Target::start(scratch, &[]);
    for command in [
        "device create ram0 --kind memory --size 64MiB",
        &format!("device create bad0 --kind fault --device ram0 --seed 7{faults}"),
        "pool create p --device bad0",
        "tenant create db --host *",
        "volume create v --pool p --size 8MiB --tenant db",
    ] {
        target.json(&words(command));
    }
    target
}

/// Reads at random; what came of it, and the exit status.
fn perf(target: &Target, more: &str) -> Child {
    Command::new(PROGRAM)
        .args(["perf", "--connect", &target.address, "--subnqn", SUBNQN])
        .args(["--qd", "4", "--json"])
        .args(words(more))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn states(target: &Target) -> Vec<String> {
    let shown = ["device show bad0", "pool show p", "volume show v"];
    let states = shown.map(|command| target.json(&words(command))["state"].clone());
    let states = states
        .iter()
        .map(|it| it.as_str().expect("a state").to_owned());
    states.collect()
}

/// The faults of a device, each with what was said of it.
fn faults_of(shown: &Value) -> Value {
    let mut faults = shown["faults"].clone();
    for fault in faults.as_array_mut().into_iter().flatten() {
        let said = fault.as_object_mut().expect("an object");
        said.retain(|_, value| !value.is_null());
    }
    faults
}

/// Until it holds.
fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn faults_are_injected_counted_marked_and_taken_away_while_the_device_is_used() {
    let scratch = Scratch::new("faults-life");
    let target = with_pool(&scratch, "");
    assert_eq!(states(&target), ["online"; 3]);
    assert_eq!(
        target.json(&words("status"))["injected"],
        Value::Array(vec![])
    );

    let set = "device set bad0 --fault error,rate=10%,on=read --fault latency,latency=100us";
    let set = target.json(&words(set));
    let faults = serde_json::json!([
        {"kind": "error", "rate": "10%", "on": "read"},
        {"kind": "latency", "latency": 100},
    ]);
    assert_eq!(faults_of(&set), faults);
    assert_eq!(states(&target), ["injects-faults"; 3]);

    let output = perf(&target, "--rw randread --seconds 1").wait_with_output();
    let output = output.expect("it ended");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let errors = report["errors"].as_u64().expect("a number");
    assert!(errors > 0, "{report}");
    let status = target.json(&words("status"));
    let injected = &status["injected"];
    let rows = injected.as_array().expect("a list");
    let [error, latency] = rows.as_slice() else {
        panic!("{status}");
    };
    assert_eq!(error["device"], "bad0");
    assert_eq!(error["fault"], "error,rate=10%,on=read");
    assert!(error["injected"].as_u64() >= Some(errors), "{error}");
    assert!(latency["injected"].as_u64() >= error["injected"].as_u64());
    let shown = target.json(&words("device show bad0"));
    assert_eq!(&shown["injected"], injected);
    let marked = status["faults"].as_array().expect("a list");
    let why = marked[0]["why"].as_str().expect("text");
    assert_eq!(marked[0]["what"], "device bad0");
    assert!(
        why.contains("injects faults on purpose (error,rate=10%,on=read; latency"),
        "{why}"
    );
    for list in [
        "device list",
        "pool list",
        "volume list",
        "status",
        "pool show p",
    ] {
        let output = target.run(&words(list));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("injects faults on purpose"), "{list}: {text}");
    }

    // One that stays goes on counting, and one that is new begins.
    let set = "device set bad0 --fault error,rate=10%,on=read --fault gone,on=write";
    let set = target.json(&words(set));
    assert_eq!(set["injected"][0], *error);
    assert_eq!(set["injected"][1]["seen"], 0);
    let off = target.json(&words("device set bad0 --no-faults"));
    assert_eq!(
        (&off["faults"], &off["injected"]),
        (&Value::Null, &Value::Array(vec![]))
    );
    assert_eq!(states(&target), ["online"; 3]);
    let output = perf(&target, "--rw randread --seconds 1").wait_with_output();
    assert!(output.expect("it ended").status.success());
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let scratch = Scratch::new("faults-refused");
    let target = with_pool(&scratch, " --fault poison");
    for command in [
        "device create small --kind memory --size 8MiB --block-size 512",
        "device create channels --kind open-channel --size 128MiB",
        "device create free --kind memory --size 8MiB",
    ] {
        target.json(&words(command));
    }
    let before = [target.json(&["device", "list"]), target.json(&["export"])];
    let create = "device create bad1 --kind fault";
    for (command, why) in [
        (
            format!("{create} --device missing"),
            "there is no device `missing`",
        ),
        (
            format!("{create} --device ram0"),
            "device `ram0` is used by device `bad0`",
        ),
        (
            format!("{create} --device bad0"),
            "device `bad0` is used by pool `p`",
        ),
        (
            format!("{create} --device channels"),
            "device `channels` is for partitions",
        ),
        (
            format!("{create} --device small"),
            "blocks of 512 bytes: set block_size to that",
        ),
        (
            format!("{create} --device free --fault lost,from=8MiB"),
            "`lost,from=8388608` is behind the end of the device, which has 8 MiB",
        ),
        (
            format!("{create} --device free --fault lost,from=1000"),
            "device `bad1`: faults: lost: from is byte 1000: give a multiple of 4096",
        ),
        (create.to_owned(), "a fault device needs `device`"),
        (
            "device set ram0 --fault poison".into(),
            "device `ram0` injects no faults",
        ),
        (
            "device set ram0 --no-faults".into(),
            "device `ram0` injects no faults",
        ),
        (
            "device set missing --no-faults".into(),
            "there is no device `missing`",
        ),
        (
            "device set bad0 --fault stale,on=write".into(),
            "it can only be read",
        ),
        (
            "device set bad0 --fault lost,from=1GiB".into(),
            "behind the end",
        ),
        ("device delete ram0".into(), "device `bad0`"),
        (
            "pool create q --device ram0".into(),
            "used by device `bad0`",
        ),
        (
            "volume create w --device ram0 --tenant db".into(),
            "used by device `bad0`",
        ),
    ] {
        target.refused(&words(&command), why);
    }
    for (command, why) in [
        ("device set bad0", "required"),
        (
            "device set bad0 --no-faults --fault poison",
            "cannot be used with",
        ),
        (
            "device set bad0 --policy fair --no-faults",
            "cannot be used with",
        ),
        (
            "device set bad0 --fault rot",
            "`rot` is no fault: begin with one of poison, torn",
        ),
        (
            "device set bad0 --fault poison,rate=2",
            "`2` is not a rate: write it like 0.1%",
        ),
    ] {
        expect_failure(&target.run(&words(command)), 2, why);
    }
    let after = [target.json(&["device", "list"]), target.json(&["export"])];
    assert_eq!(before, after);
    // Whose data there are is not known of a layer either.
    let image = scratch.join("found.img");
    fs::write(&image, vec![7; 8 << 20]).expect("writable");
    let found = format!("device create found --kind file --path {}", path(&image));
    target.json(&words(&found));
    target.json(&words("device create bad1 --kind fault --device found"));
    let whole = "volume create w --device bad1 --tenant db";
    target.refused(&words(whole), "--keep");
    target.json(&words("device delete bad1"));
    // A layer on a layer that nothing uses.
    target.json(&words("device create bad1 --kind fault --device free"));
    let refused = "device create bad2 --kind fault --device bad1";
    target.refused(&words(refused), "device `bad1` injects faults itself");
    target.json(&words("device delete bad1"));
    target.json(&words("device delete free"));
}

/// In the file the layer stands before its device, and is made after it; the faults are free, and
/// pruning takes both away.
#[test]
fn a_file_makes_changes_and_prunes_a_layer() {
    let scratch = Scratch::new("faults-file");
    let target = Target::start(&scratch, &[]);
    let file = scratch.join("f.toml");
    let apply = |faults: &str, devices: &str, more: &str| {
        let layer = format!(
            "[[device]]\nname = \"a-bad\"\nkind = \"fault\"\ndevice = \"ram\"\nblock_size = 512\n{faults}\n"
        );
        fs::write(&file, format!("{layer}{devices}")).expect("writable");
        let line = format!("apply {}{more}", path(&file));
        target.run(&[words(&line), vec!["--json"]].concat())
    };
    let ram = "[[device]]\nname = \"ram\"\nkind = \"memory\"\nsize = \"8MiB\"\nblock_size = 512\n";
    expect_failure(
        &apply("", "", ""),
        1,
        "device `a-bad`: there is no device `ram`: add it to the file",
    );
    let applied = |output: &std::process::Output| {
        assert!(output.status.success(), "{output:?}");
        changed(&crate::rig::answer(output))
    };
    applied(&apply(
        "faults = [{ kind = \"lost\", rate = \"1%\", from = \"1MiB\" }]",
        ram,
        "",
    ));
    let faults = || faults_of(&target.json(&words("device show a-bad")));
    let lost = serde_json::json!([{"kind": "lost", "rate": "1%", "from": 1 << 20}]);
    assert_eq!(faults(), lost);
    // What is exported makes the same again.
    let exported = scratch.join("exported.toml");
    fs::write(&exported, target.run(&["export"]).stdout).expect("writable");
    let plan = target.json(&["apply", path(&exported), "--plan"]);
    assert_eq!(changed(&plan), [""; 0], "{plan}");
    let changes = applied(&apply(
        "faults = [{ kind = \"hang\", on = \"write\" }]",
        ram,
        "",
    ));
    assert_eq!(changes, ["device a-bad faults"]);
    assert_eq!(
        faults(),
        serde_json::json!([{"kind": "hang", "on": "write"}])
    );
    // By hand, and back by the file; then the file says it no longer.
    target.json(&words("device set a-bad --no-faults"));
    let changes = applied(&apply(
        "faults = [{ kind = \"hang\", on = \"write\" }]",
        ram,
        "",
    ));
    assert_eq!(changes, ["device a-bad faults"]);
    expect_failure(
        &apply("faults = [{ kind = \"torn\", from = \"8MiB\" }]", ram, ""),
        1,
        "is behind the end of the device",
    );
    assert_eq!(
        faults(),
        serde_json::json!([{"kind": "hang", "on": "write"}])
    );
    assert_eq!(applied(&apply("", ram, "")), ["device a-bad faults"]);
    assert_eq!(faults(), Value::Null);
    fs::write(&file, "").expect("writable");
    let pruned = format!("apply {} --prune --yes", path(&file));
    target.json(&words(&pruned));
    assert_eq!(target.json(&["device", "list"]), Value::Array(vec![]));
}

/// A layer is as large as the partition below it, and so is what stands on it.
#[test]
fn a_volume_on_a_layer_grows_with_the_partition_below() {
    let scratch = Scratch::new("faults-partition");
    let target = Target::start(&scratch, &[]);
    for command in [
        "device create oc0 --kind open-channel --size 4GiB",
        "partition create p0 --device oc0 --count 2",
        "device create bad0 --kind fault --device p0 --fault stale",
        "tenant create db --host *",
        "volume create v --device bad0 --tenant db",
    ] {
        target.json(&words(command));
    }
    let size = || {
        let shown = target.json(&words("volume show v"));
        assert_eq!(shown["state"], "injects-faults");
        shown["size"].as_u64().expect("it is served")
    };
    let before = size();
    target.refused(&words("partition delete p0 --yes"), "device `bad0`");
    target.json(&words("partition grow p0 --count 2"));
    assert!(size() > before);
    for command in [
        "volume delete v --yes",
        "device delete bad0",
        "partition delete p0 --yes",
    ] {
        target.json(&words(command));
    }
}

/// Faults are of the device as it is noted, counts of the run; the start says what it injects. What
/// a flush has lied about is gone, and what was there before is as it was.
#[test]
fn faults_outlive_the_target_and_what_a_flush_has_lied_about_does_not() {
    let scratch = Scratch::new("faults-restart");
    let target = Target::start(&scratch, &[]);
    let image = scratch.join("disk.img");
    let device = format!(
        "device create disk --kind file --size 16MiB --path {}",
        path(&image)
    );
    for command in [
        &device,
        "device create bad --kind fault --device disk",
        "pool create p --device bad",
        "tenant create db --host *",
        "volume create v --pool p --size 8MiB --tenant db",
        "device set bad --fault lying-flush",
    ] {
        target.json(&words(command));
    }
    let before = fs::read(&image).expect("it is there");
    let written = perf(&target, "--rw write --bs 64KiB --verify --seconds 1").wait_with_output();
    let written = written.expect("it ended");
    assert!(written.status.success(), "{written:?}");
    // The drive has a volatile cache: only a flush is a promise, and a new volume needs some.
    target.json(&words("volume create w --pool p --size 1MiB --tenant db"));
    let shown = target.json(&words("device show bad"));
    assert!(
        shown["injected"][0]["injected"].as_u64() > Some(0),
        "{shown}"
    );
    assert!(shown["unflushed_bytes"].as_u64() > Some(0), "{shown}");
    assert_eq!(target.terminate(), 0);
    assert!(fs::read(&image).expect("it is there") == before);
    // What hangs does so once the target has started, and then it can be taken away.
    let target = Target::start(&scratch, &[]);
    target.json(&words("device set bad --fault hang"));
    target.kill();
    let target = Target::start(&scratch, &[]);
    let injected = &target.json(&words("status"))["injected"];
    assert_eq!(
        (&injected[0]["fault"], &injected[0]["seen"]),
        (&"hang".into(), &0.into())
    );
    target.json(&words("device set bad --fault lying-flush"));
    assert_eq!(target.terminate(), 0);

    let mut again = Target::start(&scratch, &[]);
    let shown = again.json(&words("device show bad"));
    assert_eq!(
        faults_of(&shown),
        serde_json::json!([{"kind": "lying-flush"}])
    );
    assert_eq!(shown["injected"][0]["injected"], 0);
    // The pool is whole, and has never heard of the volume that was promised last.
    assert_eq!(
        again.json(&words("volume show v"))["state"],
        "injects-faults"
    );
    assert_eq!(again.json(&words("volume show w"))["state"], "unavailable");
    let mut errors = again.child.stderr.take().expect("it is piped");
    assert_eq!(again.terminate(), 0);
    let mut said = String::new();
    errors.read_to_string(&mut said).expect("text");
    assert!(
        said.contains("device bad: device bad injects faults on purpose (lying-flush)"),
        "{said}"
    );
}

/// A command that waits for what hangs has the device, and the faults can be changed all the same.
#[test]
fn what_hangs_is_freed_by_taking_the_fault_away_and_by_the_end_of_the_target() {
    let scratch = Scratch::new("faults-hang");
    let target = with_pool(&scratch, "");
    for command in [
        "device create ram1 --kind memory --size 64MiB",
        "device create bad1 --kind fault --device ram1 --fault hang",
    ] {
        target.json(&words(command));
    }
    let hanging = |device: &str| {
        let shown = target.json(&["device", "show", device]);
        shown["injected"][0]["injected"].as_u64() > Some(0)
    };
    let create = |pool: &str| {
        Command::new(PROGRAM)
            .args(["pool", "create", pool, "--device", "bad1", "--state"])
            .arg(&target.state)
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts")
    };
    let created = create("q");
    wait_for(|| hanging("bad1"));
    target.json(&words("device set bad1 --no-faults"));
    let created = created.wait_with_output().expect("it ended");
    assert!(created.status.success(), "{created:?}");
    target.json(&words("pool delete q"));

    // Hosts, and a command, wait when the target ends.
    target.json(&words("device set bad1 --fault hang"));
    let created = create("q");
    target.json(&words("device set bad0 --fault hang,on=read"));
    let mut host = perf(&target, "--rw randread --seconds 60");
    wait_for(|| hanging("bad0") && hanging("bad1"));
    assert_eq!(target.terminate(), 0);
    let created = created.wait_with_output().expect("it ended");
    assert_eq!(created.status.code(), Some(1), "{created:?}");
    // It would connect again.
    host.kill().expect("it runs");
    host.wait().expect("it was ours");
}
