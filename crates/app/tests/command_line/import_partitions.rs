//! Partitions outlive the state directory: their device has recorded them, and they are imported.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::partitions::{check, damage_partition};
use crate::rig::{Scratch, Target, expect_failure, names, path};

/// Creates open-channel device `oc0` on an image, whether that is there or not.
fn add_device(target: &Target, scratch: &Scratch) {
    let create = ["device", "create", "oc0", "--kind", "open-channel"];
    let image = scratch.join("oc0.img");
    let file = ["--size", "512MiB", "--store", "file", "--path"];
    target.json(&[&create[..], &file, &[path(&image)]].concat());
}

fn cut(target: &Target, name: &str, count: &str) {
    let create = ["partition", "create", name, "--device", "oc0"];
    target.json(&[&create[..], &["--count", count]].concat());
}

fn add_whole(target: &Target, more: &[&str]) -> Value {
    let create = ["volume", "create", "whole", "--device", "db"];
    target.json(&[&create[..], &["--tenant", "db"], more].concat())
}

/// A device with partition `db`, which has grown and is volume `whole`; `logs`, with volume `a` of
/// pool `fast`; and `blank`. Then the state directory is lost; the device is added again, and the
/// tenant. Gives the partitions and the volumes as they were.
fn after_a_loss(scratch: &Scratch) -> (Target, Value, [Value; 2]) {
    let target = Target::start(scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    add_device(&target, scratch);
    cut(&target, "db", "16");
    target.json(&["partition", "grow", "db", "--count", "16"]);
    cut(&target, "logs", "16");
    cut(&target, "blank", "16");
    let whole = add_whole(&target, &["--nsid", "7"]);
    target.json(&["pool", "create", "fast", "--device", "logs"]);
    let create = ["volume", "create", "a", "--pool", "fast", "--tenant", "db"];
    let a = target.json(&[&create[..], &["--size", "1MiB"]].concat());
    fill(&target, &whole, b'w');
    fill(&target, &a, b'a');
    let partitions = target.json(&["partition", "list"]);
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");
    let target = Target::start(scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    add_device(&target, scratch);
    (target, partitions, [whole, a])
}

fn assert_same(now: &Value, before: &Value, keys: &[&str]) {
    for key in keys {
        assert_eq!(now[key], before[key], "{key} of {}", before["name"]);
    }
}

/// Whether the partitions have the units and sizes that they had.
fn assert_units(target: &Target, before: &Value) {
    let now = target.json(&["partition", "list"]);
    let rows = |list: &Value| list.as_array().expect("a list").clone();
    assert_eq!(rows(&now).len(), rows(before).len());
    for (now, was) in rows(&now).iter().zip(rows(before)) {
        assert_same(now, &was, &UNITS);
    }
}

const UNITS: [&str; 5] = ["name", "device", "size", "units", "op"];
const IDENTITY: [&str; 5] = ["uuid", "nguid", "nsid", "size", "tenant"];

const IMPORT: [&str; 4] = ["partition", "import", "--device", "oc0"];
const LIST: [&str; 5] = ["partition", "import", "--device", "oc0", "--list"];
const IMPORT_DB: [&str; 5] = ["partition", "import", "db", "--device", "oc0"];

#[test]
fn partitions_are_imported_after_their_state_was_lost() {
    let scratch = Scratch::new("import-cut");
    let (target, before, [whole, a]) = after_a_loss(&scratch);
    let listed = target.json(&LIST);
    assert_eq!(listed["device"], "oc0");
    let found = &listed["partitions"];
    assert_eq!(names(found), ["db", "logs", "blank"]);
    for (place, holds) in ["data", "pool", "nothing"].into_iter().enumerate() {
        assert_eq!(found[place]["holds"], holds);
        assert_eq!(found[place]["imported"], false);
    }
    assert_eq!(found[0]["given"].as_array().map(Vec::len), Some(2));
    assert_eq!(names(&target.json(&["partition", "list"])), [""; 0]);

    let imported = target.json(&IMPORT_DB);
    assert_eq!(imported["partitions"][0]["imported"], true);
    assert_eq!(imported["partitions"][0]["uuid"], found[0]["uuid"]);
    assert_eq!(imported["partitions"][1]["imported"], false);
    let shown = target.json(&["partition", "show", "db"]);
    // In the order of names, it comes after `blank`.
    assert_same(&shown, &before[1], &UNITS);
    // Whose it was, and by what hosts know it, is said by name.
    let uuid = whole["uuid"].as_str().expect("it has one");
    let with = ["--keep", "--uuid", uuid, "--nsid", "7"];
    assert_same(&add_whole(&target, &with), &whole, &IDENTITY);
    assert_eq!(bytes(&target, &whole), BTreeSet::from([b'w']));
    // All the others.
    target.json(&IMPORT);
    target.refused(&IMPORT, "has no partition that this target does not know");
    target.json(&["pool", "import", "fast", "--device", "logs"]);
    let import = ["volume", "import", "a", "--pool", "fast", "--tenant", "db"];
    let nsid = a["nsid"].to_string();
    target.json(&[&import[..], &["--nsid", &nsid]].concat());
    assert_units(&target, &before);
    target.kill();

    let target = Target::start(&scratch, &[]);
    for (volume, byte) in [(&whole, b'w'), (&a, b'a')] {
        let name = volume["name"].as_str().expect("it has one");
        assert_same(&target.json(&["volume", "show", name]), volume, &IDENTITY);
        assert_eq!(bytes(&target, volume), BTreeSet::from([byte]), "{name}");
    }
    // They are as if they had been created here.
    target.json(&["partition", "grow", "blank", "--count", "16"]);
    target.json(&["volume", "delete", "whole", "--yes"]);
    let again = add_whole(&target, &[]);
    assert_eq!(bytes(&target, &again), BTreeSet::from([0]));
    target.json(&["volume", "delete", "whole", "--yes"]);
    target.json(&["partition", "delete", "db", "--yes"]);
    cut(&target, "db", "32");
    assert_eq!(target.terminate(), 0);
    assert!(check(&scratch.join("oc0.img")).status.success());
}

/// What is refused changes nothing, on the device or in the state.
#[test]
fn what_cannot_be_imported_is_refused_with_the_reason() {
    let scratch = Scratch::new("import-cut-not");
    let (target, _, [whole, _]) = after_a_loss(&scratch);
    let lists = |target: &Target| {
        let lists = ["partition", "device", "pool", "volume"];
        lists.map(|kind| target.json(&[kind, "list"])).to_vec()
    };
    // How late an emulated drive is depends on the machine.
    let lateness = |row: &mut Value| row.as_object_mut().map(|row| row.remove("lateness_p99_us"));
    let seen = |target: &Target| {
        let mut lists = lists(target);
        let rows = lists.iter_mut().filter_map(Value::as_array_mut);
        rows.flatten().for_each(|row| drop(lateness(row)));
        (lists, target.json(&LIST))
    };
    let before = seen(&target);
    let create = [
        "partition",
        "create",
        "db",
        "--device",
        "oc0",
        "--count",
        "1",
    ];
    target.refused(&create, "`flashyard partition import db --device oc0`");
    let units = before.1["partitions"][0]["given"][0].as_str();
    let units = units.expect("it was given some");
    let create = [
        "partition",
        "create",
        "x",
        "--device",
        "oc0",
        "--units",
        units,
    ];
    target.refused(&create, "`flashyard partition import db --device oc0`");
    for kind in ["create", "import"] {
        target.refused(
            &["pool", kind, "p", "--device", "oc0"],
            "`flashyard partition import --device oc0 --list`",
        );
    }
    target.refused(
        &["partition", "import", "nil", "--device", "oc0"],
        "has no partition `nil`",
    );
    target.refused(
        &["partition", "import", "--device", "nil"],
        "no device `nil`",
    );
    assert_eq!(seen(&target), before);

    // What is no device for partitions, and a name that is taken.
    let ram = ["--kind", "memory", "--size", "16MiB"];
    target.json(&[&["device", "create", "logs"][..], &ram].concat());
    let before = seen(&target);
    target.refused(
        &["partition", "import", "--device", "logs"],
        "is no open-channel device",
    );
    target.refused(&IMPORT, "another device here is called so");
    assert_eq!(seen(&target), before, "all or none");
    target.json(&IMPORT_DB);
    let before = seen(&target);
    target.refused(&IMPORT_DB, "is imported already");

    // What another state knew of is neither shown nor destroyed unless somebody says so.
    let create = ["volume", "create", "whole", "--device", "db", "--tenant"];
    target.refused(&[&create[..], &["db"]].concat(), "say --erase");
    target.refused(&[&create[..], &["db", "--keep"]].concat(), "say --uuid");
    target.refused(
        &[&create[..], &["eve", "--keep"]].concat(),
        "no tenant `eve`",
    );
    target.refused(
        &["pool", "create", "p", "--device", "db"],
        "was imported and holds data",
    );
    target.refused(
        &["pool", "import", "p", "--device", "db"],
        "holds no pool, so there is nothing to import",
    );
    assert_eq!(seen(&target), before);
    target.json(&["device", "delete", "logs"]);
    target.json(&["partition", "import", "logs", "--device", "oc0"]);
    target.refused(
        &["pool", "create", "p", "--device", "logs"],
        "`flashyard pool import p --device logs`",
    );
    let uuid = whole["uuid"].as_str().expect("it has one");
    add_whole(&target, &["--keep", "--uuid", uuid]);
    assert_eq!(
        bytes(&target, &target.json(&["volume", "show", "whole"])),
        BTreeSet::from([b'w'])
    );
}

#[test]
fn a_partition_that_cannot_be_taken_up_is_not_imported() {
    let scratch = Scratch::new("import-cut-damaged");
    let target = Target::start(&scratch, &[]);
    add_device(&target, &scratch);
    target.json(&[
        "partition",
        "create",
        "db",
        "--device",
        "oc0",
        "--channels",
        "0-3",
    ]);
    cut(&target, "calm", "8");
    assert_eq!(target.terminate(), 0);
    let image = scratch.join("oc0.img");
    damage_partition(&image);
    expect_failure(&check(&image), 1, "not sound");
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");
    let target = Target::start(&scratch, &[]);
    add_device(&target, &scratch);
    let listed = target.json(&LIST);
    assert_eq!(listed["partitions"][0]["size"], Value::Null);
    let fault = listed["partitions"][0]["fault"].as_str();
    assert!(
        fault.is_some_and(|it| it.contains("cannot be taken up")),
        "{listed}"
    );
    target.refused(&IMPORT_DB, "partition db cannot be taken up");
    target.refused(&IMPORT, "partition db cannot be taken up");
    assert_eq!(names(&target.json(&["partition", "list"])), [""; 0]);
    target.json(&["partition", "import", "calm", "--device", "oc0"]);
    assert_eq!(names(&target.json(&["partition", "list"])), ["calm"]);
}

/// An exported file makes the same partitions: over a device whose state was lost, and anew, with
/// the units that each was given when it was created and when it grew.
#[test]
fn exported_partitions_are_made_and_found_as_they_were() {
    let scratch = Scratch::new("export-cut");
    let export = |target: &Target, name: &str| {
        let file = scratch.join(name);
        let done = target.run(&["export", "--output", path(&file)]);
        assert!(done.status.success(), "{done:?}");
        (fs::read_to_string(&file).expect("it was written"), file)
    };
    let lose_state = |target: Target| {
        target.kill();
        fs::remove_dir_all(scratch.join("state")).expect("it is ours");
        Target::start(&scratch, &[])
    };
    let unchanged = |target: &Target, file: &Path| {
        for more in [&["--plan"][..], &[]] {
            let applied = target.json(&[&["apply", path(file)], more].concat());
            assert_eq!(applied["changes"], Value::Array(Vec::new()), "{applied}");
        }
    };
    let (target, _, [whole, a]) = after_a_loss(&scratch);
    target.json(&IMPORT);
    let uuid = whole["uuid"].as_str().expect("it has one");
    add_whole(&target, &["--keep", "--uuid", uuid, "--nsid", "7"]);
    target.json(&[
        "pool", "import", "fast", "--device", "logs", "--tenant", "db",
    ]);
    // Others have units between those that it was given first and later.
    target.json(&["partition", "grow", "logs", "--channels", "10,12"]);
    let before = target.json(&["partition", "list"]);
    let (text, file) = export(&target, "export.toml");
    assert!(text.contains("given = ["), "{text}");
    unchanged(&target, &file);

    let target = lose_state(target);
    target.refused(&["apply", path(&file)], "`flashyard apply FILE --import`");
    assert_eq!(names(&target.json(&["device", "list"])), [""; 0]);
    let applied = target.json(&["apply", path(&file), "--import"]);
    let notes = applied["notes"].to_string();
    assert!(notes.contains("partition db was on device oc0"), "{notes}");
    assert_units(&target, &before);
    assert_eq!(bytes(&target, &whole), BTreeSet::from([b'w']));
    assert_eq!(bytes(&target, &a), BTreeSet::from([b'a']));
    assert_eq!(export(&target, "again.toml").0, text);
    unchanged(&target, &file);
    // What has grown since stays, whatever an older file says.
    target.json(&["partition", "grow", "blank", "--count", "8"]);
    unchanged(&target, &file);

    // A file that means other units changes nothing.
    let other = scratch.join("other.toml");
    let begin = text
        .find("count = ")
        .or(text.find("units = \""))
        .expect("a choice");
    let line = text[begin..].lines().next().expect("it is a line");
    fs::write(&other, text.replacen(line, "count = 5", 1)).expect("it is writable");
    let target = lose_state(target);
    target.refused(&["apply", path(&other), "--import"], "count");
    assert_eq!(names(&target.json(&["device", "list"])), [""; 0]);

    // Nothing is left but the file.
    let target = lose_state(target);
    fs::remove_file(scratch.join("oc0.img")).expect("it is ours");
    target.json(&["apply", path(&file)]);
    assert_eq!(export(&target, "third.toml").0, text);
    assert_units(&target, &before);
    assert_eq!(bytes(&target, &whole), BTreeSet::from([0]));
}
