//! What tenants are owed, and why they do not get it.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use std::fs;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, names, path, target_perf, terminate};

/// What is promised of a drive is held against what it can give, and policies and shares change
/// while it is used.
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
    let tenant = target.json(&["tenant", "show", "db"]);
    assert_eq!(
        tenant["guarantee_state"], "unverified",
        "a start waits for no measurement"
    );
    let measured = target.json(&["device", "calibrate", "ssd0"]);
    let reads = measured["capability"]["read_iops"].as_u64();
    let reads = reads.expect("it was measured");
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
    let bulk = load("lab", &["--rw", "randwrite", "--qd", "32", "--credits"]);
    let reader = load("db", &["--rw", "randread", "--qd", "1"]);
    // Each policy in turn, under load: nothing fails.
    for policy in ["fifo", "gimbal", "caps", "fair"] {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let set = target.json(&["device", "set", "ssd0", "--policy", policy]);
        assert_eq!(set["policy"], policy);
    }
    let report = |load: Child| {
        let output = load.wait_with_output().expect("it ends");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(report["errors"], 0, "{report}");
        assert!(report["iops"].as_f64().expect("a number") > 0.0);
        report
    };
    let reader = report(reader);
    assert_eq!(reader["credit"], Value::Null, "it did not ask: {reader}");
    report(bulk);
    let bulk = report(load(
        "lab",
        &["--rw", "randwrite", "--qd", "32", "--credits"],
    ));
    assert!(
        bulk["credit"]["bytes"].is_u64(),
        "fair tells those who ask: {bulk}"
    );
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
    assert_eq!(device["promises"][0]["device"], "ssd0", "{why}");
    let shown = target.run(&["why", "db"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    for part in ["measured at the target", "promised, and got", "WANTED"] {
        assert!(shown.contains(part), "{shown}");
    }
    target.refused(&["why", "nobody"], "no tenant `nobody`");
    target.refused(
        &["device", "set", "ssd9", "--policy", "fair"],
        "no device `ssd9`",
    );

    // A device in use is not written over to be measured. Whose it is was promised nothing: how
    // much memory gives depends on what else this machine does.
    target.json(&["tenant", "create", "idle", "--host", "*"]);
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "64MiB",
    ]);
    let measured = target.json(&["device", "calibrate", "ram0", "--destroy"]);
    let writes = measured["capability"]["write_iops"].as_u64();
    assert!(writes > Some(0), "{measured}");
    target.json(&[
        "volume", "create", "c", "--device", "ram0", "--tenant", "idle",
    ]);
    target.refused(
        &["device", "calibrate", "ram0", "--destroy"],
        "used by volume `c`",
    );
    assert_eq!(target.terminate(), 0);
}

/// Every policy can stand in front of a device in use, those that need figures of it once
/// it was measured.
#[test]
fn every_policy_stands_in_front_of_a_device() {
    let scratch = Scratch::new("policies");
    let target = Target::start(&scratch, &[]);
    let memory = ["device", "create", "ram0", "--kind", "memory"];
    let memory = [&memory[..], &["--size", "64MiB"]].concat();
    let needs_figures = [&memory[..], &["--policy", "reflex"]].concat();
    target.refused(&needs_figures, "device calibrate ram0 --destroy");
    target.json(&memory);
    let set = |policy| ["device", "set", "ram0", "--policy", policy];
    target.refused(&set("flashfq"), "needs to know");
    // Nothing was ever written there that could be read.
    target.refused(&["device", "calibrate", "ram0"], "--destroy");
    let measured = target.json(&["device", "calibrate", "ram0", "--destroy"]);
    let curve = measured["curve"].as_array().expect("a list");
    assert_eq!(curve.len(), 10);
    assert!(
        curve
            .iter()
            .all(|point| point["p95_us"].as_f64() > Some(0.0))
    );
    let flash = ["device", "create", "ssd0", "--kind", "flash"];
    let drive = [
        "--profile",
        "dct983",
        "--size",
        "256MiB",
        "--policy",
        "reflex",
    ];
    let flash = [&flash[..], &drive].concat();
    let flash = target.json(&flash);
    assert!(
        flash["capability"]["write_iops"].as_u64() > Some(0),
        "{flash}"
    );
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = [
        "volume", "create", "v", "--device", "ram0", "--tenant", "db",
    ];
    target.json(&volume);
    for policy in [
        "reflex",
        "flashfq",
        "gimbal",
        "gimbal-released",
        "caps",
        "fifo",
        "fair",
    ] {
        assert_eq!(target.json(&set(policy))["policy"], policy);
        let verified = target_perf(&target, &["--rw", "write", "--verify"]);
        assert_eq!(verified["errors"], 0, "{policy}");
    }
    target.json(&set("flashfq"));
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(
        target.json(&["device", "show", "ram0"])["policy"],
        "flashfq"
    );
    // Memory has forgotten everything: there is nothing to measure by reading.
    let calibrate = ["device", "calibrate", "ram0"];
    target.refused(
        &calibrate,
        "100 % of the reads of device `ram0` found nothing",
    );
    assert_eq!(target.terminate(), 0);
}

/// A file can move a guarantee from one tenant to another, whichever it names first; one that sells
/// too much in the end changes nothing at all.
#[test]
fn a_file_moves_a_guarantee() {
    let scratch = Scratch::new("moves");
    let target = Target::start(&scratch, &[]);
    let write = |name: &str, [db, lab]: [&str; 2], more: &str| {
        let text = format!(
            "[[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"64MiB\"\n\
             capability = {{ read_iops = 100000, write_iops = 10000 }}\n\
             [[pool]]\nname = \"p\"\ndevices = [\"ram0\"]\n\
             [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\nguarantee = {{ {db} }}\n\
             [[tenant]]\nname = \"lab\"\nhosts = [\"*\"]\nguarantee = {{ {lab} }}\n\
             [[volume]]\nname = \"a\"\npool = \"p\"\nsize = \"8MiB\"\ntenant = \"db\"\n\
             [[volume]]\nname = \"b\"\npool = \"p\"\nsize = \"8MiB\"\ntenant = \"lab\"\n{more}"
        );
        path(&scratch.file(name, &text)).to_owned()
    };
    let guarantees = || {
        let tenants = target.json(&["tenant", "list"]);
        let of = |place: usize, rate: &str| tenants[place]["guarantee"][rate].as_u64();
        [
            of(0, "read_iops"),
            of(0, "write_iops"),
            of(1, "read_iops"),
            of(1, "write_iops"),
        ]
    };
    let most = "read_iops = 80000, write_iops = 500";
    let least = "read_iops = 10000, write_iops = 500";
    let first = write("first.toml", [most, least], "");
    let moved = write("moved.toml", [least, most], "");
    let crossed = ["read_iops = 60000", "write_iops = 4000"];
    let crossed = write("crossed.toml", crossed, "");
    let back = write("back.toml", ["write_iops = 4000", "read_iops = 60000"], "");
    for (file, then) in [
        (&first, [Some(80_000), Some(500), Some(10_000), Some(500)]),
        (&moved, [Some(10_000), Some(500), Some(80_000), Some(500)]),
        (&first, [Some(80_000), Some(500), Some(10_000), Some(500)]),
        (&crossed, [Some(60_000), None, None, Some(4_000)]),
        (&back, [None, Some(4_000), Some(60_000), None]),
    ] {
        target.json(&["apply", file]);
        assert_eq!(guarantees(), then, "{file}");
        let again = target.json(&["apply", file]);
        assert_eq!(
            again["changes"].as_array().map(Vec::len),
            Some(0),
            "{again}"
        );
    }
    // A third one is too many: neither it nor its volume nor what the others would have had comes
    // about.
    let third = "[[tenant]]\nname = \"new\"\nhosts = [\"*\"]\nguarantee = { read_iops = 30000 }\n\
                 [[volume]]\nname = \"c\"\npool = \"p\"\nsize = \"8MiB\"\ntenant = \"new\"\n";
    let before = guarantees();
    let oversold = write("oversold.toml", [most, "read_iops = 5000"], third);
    for args in [&["apply", &oversold][..], &["apply", &oversold, "--plan"]] {
        target.refused(
            args,
            "this would sell 120 % of ram0 (db 85 %, lab 5 %, new 30 %)",
        );
    }
    assert_eq!(guarantees(), before);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db", "lab"]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["a", "b"]);
    // By hand it is refused as well, and the option that the refusal names takes it.
    let new = ["tenant", "create", "new", "--host", "*"];
    target.json(&[&new[..], &["--guarantee", "read_iops=30000"]].concat());
    let third = ["volume", "create", "c", "--pool", "p", "--size", "8MiB"];
    let third = [&third[..], &["--tenant", "new"]].concat();
    target.refused(&third, "have it taken nevertheless with --force");
    assert_eq!(names(&target.json(&["volume", "list"])), ["a", "b"]);
    target.json(&[&third[..], &["--force"]].concat());
    assert_eq!(names(&target.json(&["volume", "list"])), ["a", "b", "c"]);
    assert_eq!(target.terminate(), 0);
}

/// Nobody has measured the device of an example, so its guarantee is accepted, and shown as
/// unverified wherever tenants are shown, until somebody has.
#[test]
fn a_guarantee_on_a_device_that_nobody_has_measured_is_unverified() {
    let scratch = Scratch::new("unverified");
    let example = include_str!("../../../../examples/sharing.toml");
    let config = scratch.file("flashyard.toml", example);
    let target = Target::start(&scratch, &["--config", path(&config)]);
    assert_eq!(
        target_perf(&target, &["--rw", "randrw", "--verify"])["errors"],
        0
    );

    let state = |view: &Value| view["guarantee_state"].as_str().map(str::to_owned);
    let hint = "flashyard device calibrate ssd0";
    let of_db = |tenants: &Value, key: &str| {
        let mut tenants = tenants.as_array().into_iter().flatten();
        tenants.find(|tenant| tenant[key] == "db").cloned()
    };
    for view in [
        of_db(&target.json(&["tenant", "list"]), "name").expect("it is listed"),
        target.json(&["tenant", "show", "db"]),
    ] {
        assert_eq!(state(&view).as_deref(), Some("unverified"), "{view}");
        assert!(view["guarantee_hint"].to_string().contains(hint), "{view}");
    }
    let status = target.json(&["status"]);
    let tenant = of_db(&status["tenants"], "tenant").expect("it is shown");
    assert_eq!(state(&tenant).as_deref(), Some("unverified"), "{status}");
    for args in [&["tenant", "list"][..], &["tenant", "show", "db"]] {
        let shown = target.run(args).stdout;
        let shown = String::from_utf8_lossy(&shown);
        assert!(
            shown.contains("unverified") && shown.contains(hint),
            "{shown}"
        );
    }
    // So is one that is given later, and one in a file that is applied; a new volume of its tenant
    // as well.
    let given = target.json(&["tenant", "set", "db", "--guarantee", "read_iops=21000"]);
    assert_eq!(state(&given).as_deref(), Some("unverified"), "{given}");
    target.json(&["apply", path(&config)]);
    target.json(&[
        "volume", "create", "more", "--pool", "fast", "--size", "256MiB", "--tenant", "db",
    ]);
    // Once given what the device can do, the target knows, also after a restart.
    target.json(&["device", "calibrate", "ssd0"]);
    let known = target.json(&["tenant", "show", "db"]);
    let device = target.json(&["device", "show", "ssd0"]);
    let unstable = device["calibration"]["unstable"].to_string();
    let is_unverified = state(&known).as_deref() == Some("unverified");
    assert_eq!(is_unverified, unstable.contains("read_iops"), "{known}");
    assert_eq!(target.terminate(), 0);
}

/// Data come back whatever their tenant was promised; the promise is marked.
#[test]
fn an_import_is_not_refused_for_what_is_oversold() {
    let scratch = Scratch::new("oversold-import");
    let image = scratch.join("ssd0.img");
    let file = format!(
        "[[device]]\nname = \"ssd0\"\nkind = \"file\"\npath = \"{}\"\nsize = \"64MiB\"\n\
         capability = {{ read_iops = 1000 }}\n\
         [[tenant]]\nname = \"db\"\nguarantee = {{ read_iops = 1500 }}\n",
        path(&image)
    );
    let file = scratch.file("target.toml", &file);
    let apply = ["apply", path(&file)];
    let create = ["volume", "create", "v", "--pool", "p", "--size", "8MiB"];
    let create = [&create[..], &["--tenant", "db", "--force"]].concat();
    let pool = ["pool", "import", "p", "--device", "ssd0"];
    let volume = ["volume", "import", "v", "--pool", "p", "--tenant", "db"];
    let all = [&pool[..], &["--tenant", "db"]].concat();
    let mut target = Target::start(&scratch, &[]);
    target.json(&apply);
    target.json(&["pool", "create", "p", "--device", "ssd0"]);
    target.json(&create);
    for import in [vec![&all[..]], vec![&pool[..], &volume[..]]] {
        target.kill();
        fs::remove_dir_all(scratch.join("state")).expect("it is ours");
        target = Target::start(&scratch, &[]);
        target.json(&apply);
        for command in import {
            target.json(command);
        }
        let shown = target.json(&["tenant", "show", "db"]);
        assert_eq!(shown["guarantee_state"], "oversold", "{shown}");
        assert_eq!(names(&target.json(&["volume", "list"])), ["v"]);
    }
    assert_eq!(target.terminate(), 0);
}

/// What is known to be too much is refused while the target runs, and does not keep it from
/// starting.
#[test]
fn a_start_does_not_fail_for_what_is_oversold() {
    let scratch = Scratch::new("oversold");
    let config = scratch.file(
        "flashyard.toml",
        "[[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"64MiB\"\n\
         capability = { read_iops = 1000 }\n\
         [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\nguarantee = { read_iops = 1500 }\n\
         [[volume]]\nname = \"a\"\ndevice = \"ram0\"\ntenant = \"db\"\n",
    );
    let oversold = "this would sell 150 % of ram0 (db 150 %)";
    let mut target = Target::start(&scratch, &["--config", path(&config)]);
    assert_eq!(target_perf(&target, &["--rw", "randread"])["errors"], 0);
    let shown = target.json(&["tenant", "show", "db"]);
    assert_eq!(shown["guarantee_state"], "oversold", "{shown}");
    assert!(
        shown["guarantee_hint"].to_string().contains(oversold),
        "{shown}"
    );
    let more = ["tenant", "set", "db", "--guarantee", "read_iops=1600"];
    target.refused(&more, "this would sell 160 % of ram0");
    target.refused(&["apply", path(&config)], oversold);
    let less = target.json(&["tenant", "set", "db", "--guarantee", "read_iops=900"]);
    assert_eq!(less["guarantee_state"], "verified", "{less}");
    let mut said = String::new();
    let errors = target.child.stderr.take();
    terminate(&mut target.child);
    errors
        .expect("it is piped")
        .read_to_string(&mut said)
        .expect("it is text");
    assert!(
        said.contains(&format!(
            "guarantee of tenant db is not known to hold: {oversold}"
        )),
        "{said}"
    );
}
