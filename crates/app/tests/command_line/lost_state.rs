//! A target whose state directory was lost is started with its configuration file: what the file
//! names and devices have already waits to be imported, and everything else is served.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{Scratch, Target, expect_failure, names, path, target_perf_output};

const FILE: &str = r#"
    [[device]]
    name = "ssd0"
    kind = "file"
    path = "ssd0.img"
    size = "16MiB"

    [[device]]
    name = "ssd1"
    kind = "file"
    path = "ssd1.img"
    size = "4MiB"

    [[device]]
    name = "oc0"
    kind = "open-channel"
    store = "file"
    path = "oc0.img"
    size = "512MiB"

    [[device]]
    name = "cut"
    kind = "partition"
    partition = { device = "oc0", count = 16 }
    policy = "fifo"

    [[device]]
    name = "logs"
    kind = "partition"
    partition = { device = "oc0", channels = "4-5" }

    [[device]]
    name = "faulty"
    kind = "fault"
    device = "cut"

    [[device]]
    name = "ram0"
    kind = "memory"
    size = "4MiB"

    [[pool]]
    name = "fast"
    devices = ["ssd0"]

    [[pool]]
    name = "slow"
    devices = ["logs"]

    [[tenant]]
    name = "db"
    hosts = ["*"]

    [[volume]]
    name = "a"
    pool = "fast"
    size = "2MiB"
    tenant = "db"
    nsid = 5

    [[volume]]
    name = "b"
    pool = "slow"
    size = "2MiB"
    tenant = "db"
    nsid = 6

    [[volume]]
    name = "disk"
    device = "ssd1"
    tenant = "db"
    content = "erase"
    nsid = 7

    [[volume]]
    name = "near"
    device = "ram0"
    tenant = "db"
    nsid = 8

    [[volume]]
    name = "whole"
    device = "faulty"
    tenant = "db"
    uuid = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11"
    nsid = 9
"#;

/// What is not available, and why.
fn faults(target: &Target) -> Vec<(String, String)> {
    let status = target.json(&["status"]);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let rows = status["faults"].as_array().expect("a list").iter();
    rows.map(|row| (text(&row["what"]), text(&row["why"])))
        .collect()
}

/// What waits to be imported after the state was lost, and what its fault says.
const WAITING: [(&str, &str); 10] = [
    (
        "partition cut",
        "`flashyard partition import cut --device oc0`",
    ),
    ("device faulty", "with partition `cut`"),
    (
        "partition logs",
        "`flashyard partition import logs --device oc0`",
    ),
    ("pool fast", "`flashyard pool import fast --device ssd0`"),
    (
        "pool slow",
        "with partition `logs`, which is to be imported first",
    ),
    ("tenant db", "are asked to come again"),
    ("volume a", "with pool `fast`"),
    ("volume b", "with pool `slow`"),
    (
        "volume disk",
        "`flashyard volume create disk --device ssd1 --tenant db --keep --uuid UUID --nsid 7`",
    ),
    ("volume whole", "with device `faulty`"),
];

fn assert_waiting(target: &Target, waiting: &[(&str, &str)]) {
    let found = faults(target);
    let what: Vec<_> = found.iter().map(|(what, _)| what.as_str()).collect();
    let expected: Vec<_> = waiting.iter().map(|(what, _)| *what).collect();
    assert_eq!(what, expected);
    for ((what, why), (_, said)) in found.iter().zip(waiting) {
        assert!(why.contains(said), "{what}: {why}");
    }
}

#[test]
fn a_start_without_its_state_serves_the_rest_and_says_what_is_to_be_imported() {
    let scratch = Scratch::new("lost-state");
    let file = scratch.file("target.toml", FILE);
    let with_file = ["--config", path(&file)];
    let target = Target::start(&scratch, &with_file);
    let volumes = target.json(&["volume", "list"]);
    assert_eq!(names(&volumes), ["a", "b", "disk", "near", "whole"]);
    let byte = |volume: &Value| volume["name"].as_str().expect("a name").as_bytes()[0];
    let rows = volumes.as_array().expect("a list");
    for volume in rows {
        fill(&target, volume, byte(volume));
    }
    // The file is older than the volume.
    target.json(&["volume", "set", "a", "--size", "3MiB"]);
    let assert_same = |target: &Target, name: &str| {
        let was = rows.iter().find(|it| it["name"] == name);
        let was = was.expect("it was there");
        let now = target.json(&["volume", "show", name]);
        assert_eq!(now["state"], "online", "{now}");
        for key in ["uuid", "nguid", "nsid", "tenant"] {
            assert_eq!(now[key], was[key], "{key} of {name}");
        }
    };
    let assert_content = |target: &Target, name: &str| {
        let was = rows.iter().find(|it| it["name"] == name);
        let was = was.expect("it was there");
        // What it was before it grew.
        assert_eq!(bytes(target, was), BTreeSet::from([byte(was)]), "{name}");
    };
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    // With the file, without it, and with it again: the same waits, and nothing was made over it.
    let mut target = Target::start(&scratch, &with_file);
    for more in [&[][..], &with_file] {
        assert_eq!(names(&target.json(&["volume", "list"])), ["near"]);
        assert_eq!(names(&target.json(&["pool", "list"])), [""; 0]);
        assert_waiting(&target, &WAITING);
        target.refused(&["pool", "show", "fast"], "`flashyard pool import fast");
        target.refused(&["volume", "show", "b"], "with pool `slow`");
        target.refused(&["apply", path(&file)], "--import");
        target.kill();
        target = Target::start(&scratch, more);
    }
    let near = target.json(&["volume", "show", "near"]);
    assert_eq!(near["state"], "online");
    let exported = target.run(&["export"]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    for table in ["name = \"fast\"", "name = \"whole\"", "name = \"cut\""] {
        assert!(exported.contains(table), "{table} is not in: {exported}");
    }

    // Each import makes healthy what the file says to be there, while the target runs.
    let imported = target.json(&["pool", "import", "fast", "--device", "ssd0"]);
    let notes = imported["notes"].to_string();
    assert!(notes.contains("volume a was in pool fast"), "{notes}");
    assert_same(&target, "a");
    assert_eq!(target.json(&["volume", "show", "a"])["size"], 3 << 20);
    let left = |gone: &[&str]| {
        let left = WAITING.iter().filter(|(what, _)| !gone.contains(what));
        left.copied().collect::<Vec<_>>()
    };
    assert_waiting(&target, &left(&["pool fast", "volume a"]));
    let imported = target.json(&["partition", "import", "--device", "oc0"]);
    let notes = imported["notes"].to_string();
    assert!(notes.contains("pool slow was on device logs"), "{notes}");
    assert_same(&target, "b");
    assert_same(&target, "whole");
    assert_eq!(target.json(&["partition", "show", "cut"])["policy"], "fifo");
    let done = [
        "partition cut",
        "device faulty",
        "partition logs",
        "pool fast",
        "pool slow",
        "volume a",
        "volume b",
        "volume whole",
    ];
    assert_waiting(&target, &left(&done));
    // A host that came in now would miss the disk that still waits, and give it up.
    expect_failure(
        &target_perf_output(&target, &["--rw", "randread"]),
        1,
        "Controller Busy",
    );
    let uuid = rows[2]["uuid"].as_str().expect("it has one");
    let disk = ["volume", "create", "disk", "--device", "ssd1", "--tenant"];
    target.json(&[&disk[..], &["db", "--keep", "--uuid", uuid, "--nsid", "7"]].concat());
    assert_same(&target, "disk");
    assert_waiting(&target, &[]);
    for name in ["a", "b", "disk", "whole"] {
        assert_content(&target, name);
    }
    // What was imported and is deleted is not to be imported.
    target.json(&["volume", "delete", "b", "--yes"]);
    assert_waiting(&target, &[]);
    assert_eq!(target.terminate(), 0);

    let target = Target::start(&scratch, &with_file);
    assert_waiting(&target, &[]);
    for name in ["a", "disk", "whole"] {
        assert_same(&target, name);
        assert_content(&target, name);
    }
    let again = target.json(&["volume", "show", "b"]);
    assert_eq!(
        bytes(&target, &again),
        BTreeSet::from([0]),
        "it was deleted"
    );
}

/// Volumes that wait keep the hosts of their tenant out, whatever it is called by then. One that
/// its pool does not have goes on waiting: an empty one would pass for its data.
#[test]
fn a_tenant_with_volumes_that_wait_is_renamed_and_not_deleted() {
    const BEFORE: &str = r#"
        [[device]]
        name = "ssd0"
        kind = "file"
        path = "ssd0.img"
        size = "16MiB"

        [[pool]]
        name = "fast"
        devices = ["ssd0"]

        [[tenant]]
        name = "db"
        hosts = ["*"]

        [[volume]]
        name = "a"
        pool = "fast"
        size = "2MiB"
        tenant = "db"
    "#;
    const MORE: &str = r#"
        [[volume]]
        name = "later"
        pool = "fast"
        size = "2MiB"
        tenant = "db"
        uuid = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11"
    "#;
    let scratch = Scratch::new("lost-tenant");
    let file = scratch.file("target.toml", BEFORE);
    let target = Target::start(&scratch, &["--config", path(&file)]);
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    let file = scratch.file("target.toml", &[BEFORE, MORE].concat());
    let target = Target::start(&scratch, &["--config", path(&file)]);
    let refusal = "volume `a` of tenant `db` waits to be imported";
    target.refused(&["tenant", "delete", "db"], refusal);
    target.json(&["tenant", "rename", "db", "shop"]);
    let refusal = "volume `a` of tenant `shop` waits to be imported";
    target.refused(&["tenant", "delete", "shop"], refusal);
    let pool = ("pool fast", "`flashyard pool import fast --device ssd0`");
    let tenant = ("tenant shop", "are asked to come again");
    let a = ("volume a", "with pool `fast`");
    let later = ("volume later", "with pool `fast`");
    assert_waiting(&target, &[pool, tenant, a, later]);

    let imported = target.json(&["pool", "import", "fast", "--device", "ssd0"]);
    let notes = imported["notes"].to_string();
    let note = "volume later still waits to be imported: pool `fast` holds no volume `later`";
    assert!(notes.contains(note), "{notes}");
    assert_eq!(target.json(&["volume", "show", "a"])["tenant"], "shop");
    let later = ("volume later", "`flashyard volume import later --pool fast");
    assert_waiting(&target, &[tenant, later]);
    // Who takes it out of the file does without it.
    let renamed = BEFORE.replace("\"db\"", "\"shop\"");
    let file = scratch.file("target.toml", &renamed);
    target.json(&["apply", path(&file)]);
    assert_waiting(&target, &[]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["a"]);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["shop"]);
}
