//! Volumes and subsystems that are called as the administrator says, other names, write protection,
//! and volumes that go to another tenant; with restarts and kills between.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, changed, expect_failure, names, path};

const UUID: &str = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11";
const NGUID: &str = "aa0d1c4652c54b0f9a1c0d3a5f2b7e22";
const EUI64: &str = "0025385b71b0c2a1";
const NQN: &str = "nqn.2014-08.org.example:storage.of.somebody.else";
const DB: &str = "nqn.2026-11.dev.flashyard:db";
const LAB: &str = "nqn.2026-11.dev.flashyard:lab";

/// A target with a pool on a file, and the tenants `db` and `lab`.
fn with_pool(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("ssd0.img");
    let device = [
        "device", "create", "ssd0", "--kind", "file", "--size", "32MiB",
    ];
    target.json(&[&device[..], &["--path", path(&image)]].concat());
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    for tenant in ["db", "lab"] {
        target.json(&["tenant", "create", tenant, "--host", "*"]);
    }
    target
}

fn create<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let base = [
        "volume", "create", name, "--pool", "fast", "--size", "4MiB", "--tenant",
    ];
    [&base[..], more].concat()
}

fn perf(target: &Target, subnqn: &str, nsid: &str, rw: &str) -> Output {
    let place = [
        "perf",
        "--connect",
        &target.address,
        "--subnqn",
        subnqn,
        "--nsid",
        nsid,
    ];
    let load = [
        "--bs",
        "16KiB",
        "--qd",
        "8",
        "--seconds",
        "1",
        "--json",
        "--rw",
        rw,
    ];
    let output = Command::new(PROGRAM).args(place).args(load).output();
    output.expect("the program starts")
}

fn does_io(target: &Target, subnqn: &str, nsid: &str, rw: &str) -> bool {
    let output = perf(target, subnqn, nsid, rw);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    output.status.success() && report["errors"] == 0
}

/// What is on the pool's device behind the pool's own data.
fn content(scratch: &Scratch) -> Vec<u8> {
    fs::read(scratch.join("ssd0.img")).expect("it is there")[2 << 20..].to_vec()
}

#[test]
fn a_volume_takes_the_place_of_another_targets() {
    let scratch = Scratch::new("identity");
    let target = with_pool(&scratch);
    let tenant = target.json(&[
        "tenant",
        "create",
        "shop",
        "--host",
        "*",
        "--nqn",
        NQN,
        "--serial",
        "S3EVNX0J800042",
        "--model",
        "SPDK bdev Controller",
    ]);
    let identity = |tenant: &Value| {
        ["subnqn", "serial", "model"].map(|key| tenant[key].as_str().expect("text").to_owned())
    };
    assert_eq!(
        identity(&tenant),
        [NQN, "S3EVNX0J800042", "SPDK bdev Controller"]
    );
    let more = [
        "shop",
        "--uuid",
        UUID,
        "--nguid",
        NGUID,
        "--eui64",
        EUI64,
        "--nsid",
        "3",
        "--read-only",
    ];
    let volume = target.json(&create("orders", &more));
    let known_by = ["uuid", "nguid", "eui64", "nsid", "read_only"];
    let shown = known_by.map(|key| volume[key].clone());
    let given: [Value; 5] = [
        UUID.into(),
        NGUID.into(),
        EUI64.into(),
        3.into(),
        true.into(),
    ];
    assert_eq!(shown, given, "{volume}");
    let plain = target.json(&create("plain", &["shop"]));
    assert_eq!(
        (&plain["nsid"], &plain["read_only"]),
        (&4.into(), &false.into())
    );
    assert_eq!(plain["eui64"], Value::Null);
    let own = target.json(&["tenant", "show", "db"]);
    assert_eq!(own["model"], "Flashyard");

    for (more, why) in [
        (
            ["db", "--uuid", UUID],
            "is that of volume `orders`: hosts would take both for one disk",
        ),
        (["db", "--nguid", NGUID], "is that of volume `orders`"),
        (["db", "--eui64", EUI64], "is that of volume `orders`"),
        (["shop", "--nsid", "3"], "nsid 3 is that of volume `orders`"),
        (
            ["db", "--nsid", "1025"],
            "nsid 1025 is out of range: 1 to 1024",
        ),
        (["db", "--nsid", "0"], "numbers begin with 1"),
    ] {
        target.refused(&create("other", &more), why);
    }
    for wrong in [
        ["db", "--uuid", "orders"],
        ["db", "--nguid", "12"],
        ["db", "--eui64", ""],
    ] {
        expect_failure(&target.run(&create("other", &wrong)), 2, "is not");
    }
    let other = ["tenant", "create", "other", "--host", "*"];
    for (more, why) in [
        (["--nqn", NQN], "give another `nqn`, or use that tenant"),
        (["--nqn", DB], "the subsystem of tenant `db` is called"),
        (["--nqn", "shop"], "no name for a subsystem"),
        (
            ["--serial", "123456789012345678901"],
            "1 to 20 printable ASCII",
        ),
        (["--model", "caf\u{e9}"], "1 to 40 printable ASCII"),
    ] {
        target.refused(&[&other[..], &more].concat(), why);
    }
    assert_eq!(
        names(&target.json(&["volume", "list"])),
        ["orders", "plain"]
    );
    assert_eq!(
        names(&target.json(&["tenant", "list"])),
        ["db", "lab", "shop"]
    );
    target.kill();

    let target = Target::start(&scratch, &[]);
    assert_eq!(target.json(&["volume", "show", "orders"]), volume);
    assert_eq!(
        identity(&target.json(&["tenant", "show", "shop"])),
        identity(&tenant)
    );
    assert!(does_io(&target, NQN, "3", "randread"));
    assert!(!does_io(&target, NQN, "3", "randwrite"), "it is read-only");
    assert!(does_io(&target, NQN, "4", "randwrite"));
}

/// A file may leave an identity out or repeat it, and may not change it.
#[test]
fn a_file_gives_identities_once() {
    let scratch = Scratch::new("identity-file");
    let file = |tenant: &str, volume: &str| {
        let text = format!(
            "[[device]]\nname = \"ram0\"\nkind = \"memory\"\nsize = \"32MiB\"\n\
             [[pool]]\nname = \"fast\"\ndevices = [\"ram0\"]\n\
             [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\n{tenant}\n\
             [[volume]]\nname = \"orders\"\npool = \"fast\"\nsize = \"4MiB\"\ntenant = \"db\"\n{volume}\n"
        );
        scratch.file("flashyard.toml", &text)
    };
    let ids = format!(
        "uuid = \"{UUID}\"\nnguid = \"{NGUID}\"\neui64 = \"{EUI64}\"\nnsid = 7\nread_only = true"
    );
    let names = format!("nqn = \"{NQN}\"\nserial = \"S1\"\nmodel = \"M1\"");
    let config = file(&names, &ids);
    let target = Target::start(&scratch, &["--config", path(&config)]);
    let volume = target.json(&["volume", "show", "orders"]);
    assert_eq!(
        (&volume["uuid"], &volume["nsid"]),
        (&UUID.into(), &7.into())
    );
    assert_eq!(
        (&volume["subnqn"], &volume["read_only"]),
        (&NQN.into(), &true.into())
    );
    let protected = "read_only = true";
    let serial = "serial = \"S1\"";
    for (tenant, volume) in [(&*names, &*ids), ("", protected), (serial, protected)] {
        let config = file(tenant, volume);
        let plan = target.json(&["apply", path(&config)]);
        assert_eq!(changed(&plan), Vec::<String>::new(), "{tenant} {volume}");
    }
    for (tenant, volume, why) in [
        (
            &*format!("nqn = \"{DB}\""),
            "",
            "its nqn is nqn.2014-08.org.example:storage",
        ),
        ("serial = \"S2\"", "", "its serial is S1 and stays"),
        ("model = \"M2\"", "", "its model is M1 and stays"),
        (
            "",
            &*format!("uuid = \"{UUID}\"").replace("2f0d", "3f0d"),
            "its uuid is 2f0d",
        ),
        ("", &*format!("nguid = \"{UUID}\""), "its nguid is aa0d"),
        (
            "",
            "eui64 = \"1025385b71b0c2a1\"",
            "its eui64 is 0025385b71b0c2a1 and stays",
        ),
        ("", "nsid = 8", "its nsid is 7 and stays"),
    ] {
        let config = file(tenant, volume);
        target.refused(&["apply", path(&config)], why);
    }
    let config = file("", "read_only = false");
    let plan = target.json(&["apply", path(&config)]);
    assert_eq!(changed(&plan), ["volume orders read_only"]);
    assert_eq!(
        target.json(&["volume", "show", "orders"])["read_only"],
        false
    );
}

#[test]
fn a_volume_is_protected_and_released_again() {
    let scratch = Scratch::new("protect");
    let target = with_pool(&scratch);
    target.json(&create("orders", &["db"]));
    assert!(does_io(&target, DB, "1", "randwrite"));
    let set = ["volume", "set", "orders", "--read-only"];
    let volume = target.json(&[&set[..], &["on"]].concat());
    assert_eq!(volume["read_only"], true);
    assert!(!does_io(&target, DB, "1", "randwrite"));
    assert!(does_io(&target, DB, "1", "randread"));
    target.json(&["volume", "set", "orders", "--size", "8MiB"]);
    target.kill();

    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "orders"]);
    assert_eq!(
        (&volume["read_only"], &volume["size"]),
        (&true.into(), &(8 << 20).into())
    );
    assert!(!does_io(&target, DB, "1", "randwrite"));
    target.json(&[&set[..], &["off"]].concat());
    assert!(does_io(&target, DB, "1", "randwrite"));
    expect_failure(&target.run(&["volume", "set", "orders"]), 2, "--read-only");
    target.refused(
        &["volume", "set", "nobody", "--read-only", "on"],
        "no volume `nobody`",
    );
}

#[test]
fn what_is_renamed_stays_what_it_is_to_hosts() {
    let scratch = Scratch::new("rename");
    let target = with_pool(&scratch);
    let orders = target.json(&create("orders", &["db"]));
    target.json(&create("other", &["db"]));
    assert!(does_io(&target, DB, "1", "randwrite"));
    let before = content(&scratch);
    for (args, why) in [
        (
            ["volume", "rename", "orders", "other"],
            "there is a volume `other` already",
        ),
        (["volume", "rename", "nobody", "x"], "no volume `nobody`"),
        (["volume", "rename", "orders", "../x"], "not a name"),
        (
            ["tenant", "rename", "db", "lab"],
            "there is a tenant `lab` already",
        ),
        (["tenant", "rename", "nobody", "x"], "no tenant `nobody`"),
        (["tenant", "rename", "db", "a b"], "not a name"),
    ] {
        target.refused(&args, why);
    }
    let renamed = target.json(&["volume", "rename", "orders", "archive"]);
    assert!(
        renamed["note"]
            .to_string()
            .contains("`orders` is refused, or makes"),
        "{renamed}"
    );
    let shop = target.json(&["tenant", "rename", "db", "shop"]);
    assert!(
        shop["note"]
            .to_string()
            .contains("`db` is refused, or makes"),
        "{shop}"
    );
    assert_eq!(
        (&shop["subnqn"], &shop["volumes"][0]),
        (&DB.into(), &"archive".into())
    );
    let same = |volume: &Value| {
        for key in ["uuid", "nguid", "nsid", "subnqn", "size"] {
            assert_eq!(volume[key], orders[key], "{key}");
        }
        assert_eq!(volume["tenant"], "shop");
    };
    same(&target.json(&["volume", "show", "archive"]));
    // The old names are free, the old NQN is not.
    target.json(&create("orders", &["shop"]));
    target.refused(
        &["tenant", "create", "db", "--host", "*"],
        "the subsystem of tenant `shop` is called nqn.2026-11.dev.flashyard:db",
    );
    target.json(&["volume", "set", "archive", "--size", "4MiB"]);
    target.kill();

    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["lab", "shop"]);
    same(&target.json(&["volume", "show", "archive"]));
    assert!(does_io(&target, DB, "1", "randread"));
    assert_eq!(content(&scratch), before);
    target.json(&["volume", "delete", "archive", "--yes"]);
    assert_eq!(
        names(&target.json(&["volume", "list"])),
        ["orders", "other"]
    );
    target.kill();
    let check = Command::new(PROGRAM)
        .arg("check")
        .arg(scratch.join("ssd0.img"))
        .output();
    let check = check.expect("the program starts");
    let printed = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(
        check.status.success() && !printed.contains("archive"),
        "{printed}"
    );
}

/// A volume that the pool has and the store does not know, as after an older backup of the store:
/// whoever gives its UUID does not get what is in it.
#[test]
fn a_volume_that_nobody_knows_is_not_had_by_its_uuid() {
    let scratch = Scratch::new("unknown");
    let older = scratch.join("older");
    with_pool(&scratch).kill();
    let copied = Command::new("cp")
        .arg("-r")
        .args([&scratch.join("state"), &older])
        .status();
    assert!(copied.expect("cp exists").success());
    let target = Target::start(&scratch, &[]);
    target.json(&create("orders", &["db", "--uuid", UUID]));
    assert!(does_io(&target, DB, "1", "randwrite"));
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");
    fs::rename(&older, scratch.join("state")).expect("both are ours");

    let target = Target::start(&scratch, &[]);
    let why = "holds a volume of uuid 2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11, called `orders`";
    target.refused(&create("mine", &["lab", "--uuid", UUID]), why);
    assert_eq!(names(&target.json(&["volume", "list"])), Vec::<&str>::new());
}

/// The store says the new name and the pool the old one.
#[test]
fn a_rename_that_was_cut_is_finished() {
    let scratch = Scratch::new("cut");
    let (image, older) = (scratch.join("ssd0.img"), scratch.join("older.img"));
    let target = with_pool(&scratch);
    let uuid = target.json(&create("orders", &["db"]))["uuid"].clone();
    target.kill();
    fs::copy(&image, &older).expect("there is room");
    let target = Target::start(&scratch, &[]);
    target.json(&["volume", "rename", "orders", "archive"]);
    target.kill();
    fs::rename(&older, &image).expect("both are ours");

    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "archive"]);
    assert_eq!(
        (&volume["uuid"], &volume["state"]),
        (&uuid, &"online".into())
    );
    assert!(does_io(&target, DB, "1", "randwrite"));
    target.json(&create("orders", &["db"]));
    target.json(&["volume", "delete", "archive", "--yes"]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["orders"]);
}

#[test]
fn a_volume_is_given_to_another_tenant_with_its_content() {
    let scratch = Scratch::new("move");
    let target = with_pool(&scratch);
    let orders = target.json(&create("orders", &["db"]));
    target.json(&create("hers", &["lab"]));
    assert!(does_io(&target, DB, "1", "randwrite"));
    let before = content(&scratch);
    let give = ["volume", "move", "orders", "--tenant"];
    target.refused(&[&give[..], &["lab"]].concat(), "say --yes");
    for (more, why) in [
        (&["db", "--yes"][..], "is tenant `db`'s already"),
        (&["nobody", "--yes"], "no tenant `nobody`"),
        (
            &["lab", "--nsid", "1", "--yes"],
            "volume `hers` of tenant `lab` has nsid 1",
        ),
        (&["lab", "--nsid", "0", "--yes"], "numbers begin with 1"),
        (&["lab", "--nsid", "1025", "--yes"], "1 to 1024"),
    ] {
        target.refused(&[&give[..], more].concat(), why);
        assert_eq!(target.json(&["volume", "show", "orders"]), orders);
        assert!(does_io(&target, DB, "1", "randread"), "{more:?}");
    }
    let moved = target.json(&[&give[..], &["lab", "--nsid", "9", "--yes"]].concat());
    assert_eq!(
        (&moved["tenant"], &moved["nsid"]),
        (&"lab".into(), &9.into())
    );
    assert_eq!(
        (&moved["uuid"], &moved["subnqn"]),
        (&orders["uuid"], &LAB.into())
    );
    assert!(
        moved["note"]
            .to_string()
            .contains("all that tenant `db` has written"),
        "{moved}"
    );
    assert!(!does_io(&target, DB, "1", "randread"));
    assert!(does_io(&target, LAB, "9", "randread"));
    assert_eq!(content(&scratch), before);
    target.kill();

    let target = Target::start(&scratch, &[]);
    assert!(!does_io(&target, DB, "1", "randread"));
    assert!(does_io(&target, LAB, "9", "randread"));
    assert_eq!(content(&scratch), before);
    let file = scratch.file(
        "flashyard.toml",
        "[[volume]]\nname = \"orders\"\npool = \"fast\"\nsize = \"4MiB\"\ntenant = \"db\"\n",
    );
    target.refused(
        &["apply", path(&file)],
        "flashyard volume move orders --tenant db --yes",
    );
}

/// Whenever the target is killed, the volume is one tenant's under one name, with all that is in
/// it.
#[test]
fn a_kill_in_the_middle_leaves_the_old_or_the_new() {
    let scratch = Scratch::new("middle");
    let mut target = with_pool(&scratch);
    let uuid = target.json(&create("a", &["db"]))["uuid"].clone();
    assert!(does_io(&target, DB, "1", "randwrite"));
    let before = content(&scratch);
    let (mut name, mut tenant) = ("a".to_owned(), "db".to_owned());
    for round in 0..16_u64 {
        let other_name = if name == "a" { "b" } else { "a" };
        let other_tenant = if tenant == "db" { "lab" } else { "db" };
        let args: &[&str] = match round % 2 {
            0 => &["volume", "move", &name, "--tenant", other_tenant, "--yes"],
            _ => &["volume", "rename", &name, other_name],
        };
        let mut command = Command::new(PROGRAM);
        command.args(args).arg("--state").arg(&target.state);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut asking = command.spawn().expect("the program starts");
        thread::sleep(Duration::from_micros(1500 * round));
        target.kill();
        asking.wait().expect("it was ours");
        target = Target::start(&scratch, &[]);
        let volumes = target.json(&["volume", "list"]);
        let volume = &volumes[0];
        assert_eq!(names(&volumes).len(), 1, "{volumes}");
        assert_eq!(
            (&volume["uuid"], &volume["state"]),
            (&uuid, &"online".into()),
            "{volume}"
        );
        name = volume["name"].as_str().expect("a name").to_owned();
        tenant = volume["tenant"].as_str().expect("a name").to_owned();
        assert!(["a", "b"].contains(&&*name) && ["db", "lab"].contains(&&*tenant));
        let seen = |tenant: &str| {
            let tenant = target.json(&["tenant", "show", tenant]);
            tenant["volumes"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(seen("db") + seen("lab"), 1);
        assert_eq!(content(&scratch), before, "round {round}");
    }
    target.json(&["volume", "set", &name, "--size", "8MiB"]);
}

/// A device that does not answer keeps its volume where it is: nothing of the old tenant may land
/// after the new one has it.
#[test]
fn a_volume_whose_device_is_silent_stays() {
    let (far, near) = (Scratch::new("silent-far"), Scratch::new("silent-near"));
    let back = Target::start(&far, &[]);
    back.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "16MiB",
    ]);
    back.json(&["tenant", "create", "front", "--host", "*"]);
    back.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "front",
    ]);
    let front = Target::start(&near, &[]);
    front.json(&[
        "device",
        "create",
        "far0",
        "--kind",
        "nvme-tcp",
        "--address",
        &back.address,
        "--subnqn",
        "nqn.2026-11.dev.flashyard:front",
    ]);
    front.json(&["pool", "create", "fast", "--device", "far0"]);
    for tenant in ["db", "lab"] {
        front.json(&["tenant", "create", tenant, "--host", "*"]);
    }
    front.json(&create("orders", &["db"]));
    let mut busy = Command::new(PROGRAM)
        .args([
            "perf",
            "--connect",
            &front.address,
            "--subnqn",
            DB,
            "--rw",
            "randread",
        ])
        .args(["--bs", "4KiB", "--seconds", "30", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let reads = || front.json(&["status"])["tenants"][0]["reads"].as_u64();
    while reads() == Some(0) {
        thread::sleep(Duration::from_millis(10));
    }
    let signal = |name: &str| {
        let id = back.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill exists").success());
    };
    signal("-STOP");
    let give = ["volume", "move", "orders", "--tenant", "lab", "--yes"];
    let refused = front.run(&give);
    signal("-CONT");
    expect_failure(
        &refused,
        1,
        "is still tenant `db`'s: its device has not answered",
    );
    let volume = front.json(&["volume", "show", "orders"]);
    assert_eq!(
        (&volume["tenant"], &volume["nsid"]),
        (&"db".into(), &1.into())
    );
    busy.kill().expect("it is ours");
    busy.wait().expect("it is ours");
    assert!(does_io(&front, DB, "1", "randwrite"));
    front.json(&give);
    assert!(does_io(&front, LAB, "1", "randwrite") && !does_io(&front, DB, "1", "randread"));
}
