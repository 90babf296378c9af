//! What is on devices outlives the state directory: it is imported, exported, kept and put back.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path};

const MIB: u64 = 1 << 20;

/// Creates a device on an image, whether that is there or not.
fn add_device(target: &Target, scratch: &Scratch, name: &str) {
    let image = scratch.join(format!("{name}.img"));
    let create = ["device", "create", name, "--kind", "file", "--path"];
    let size = ["--size", "32MiB"];
    target.json(&[&create[..], &[path(&image)], &size].concat());
}

fn add_volume(target: &Target, name: &str, more: &[&str]) -> Value {
    let create = ["volume", "create", name, "--pool", "fast", "--size", "2MiB"];
    target.json(&[&create[..], &["--tenant", "db"], more].concat())
}

/// A target with tenant `db`, a pool `fast`, and in it `a`, `b` and `c`, each full of a byte. Then
/// its state directory is lost; the device is added again, and the tenant.
fn after_a_loss(scratch: &Scratch) -> (Target, [Value; 3]) {
    let target = Target::start(scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    add_device(&target, scratch, "ssd0");
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    let volumes = ["a", "b", "c"].map(|name| {
        let nsid = if name == "b" { "7" } else { "0" };
        let nsid: &[&str] = if nsid == "0" { &[] } else { &["--nsid", nsid] };
        let volume = add_volume(&target, name, nsid);
        fill(&target, &volume, name.as_bytes()[0]);
        volume
    });
    target.kill();
    let target = begin_anew(scratch);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    add_device(&target, scratch, "ssd0");
    (target, volumes)
}

/// Starts on a state directory that was lost.
fn begin_anew(scratch: &Scratch) -> Target {
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");
    Target::start(scratch, &[])
}

fn assert_same(target: &Target, before: &Value, byte: u8) {
    let name = before["name"].as_str().expect("it has one");
    let now = target.json(&["volume", "show", name]);
    for key in ["uuid", "nguid", "nsid", "size", "pool", "tenant"] {
        assert_eq!(now[key], before[key], "{key} of {name}");
    }
    assert_eq!(bytes(target, &now), BTreeSet::from([byte]), "{name}");
}

fn import<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let of = ["volume", "import", name, "--pool", "fast", "--tenant", "db"];
    [&of[..], more].concat()
}

const IMPORT: [&str; 5] = ["pool", "import", "fast", "--device", "ssd0"];

#[test]
fn a_pool_is_imported_after_its_state_was_lost() {
    let scratch = Scratch::new("import-pool");
    let (target, [_, b, c]) = after_a_loss(&scratch);
    target.refused(
        &["pool", "create", "fast", "--device", "ssd0"],
        "`flashyard pool import fast --device ssd0` takes it over",
    );
    let listed = target.json(&[&IMPORT[..], &["--list"]].concat());
    assert_eq!(listed["pool"], Value::Null);
    assert_eq!(names(&listed["volumes"]), ["a", "b", "c"]);
    assert_eq!(listed["volumes"][1]["uuid"], b["uuid"]);
    assert_eq!(
        names(&target.json(&["pool", "list"])),
        [""; 0],
        "only shown"
    );

    let imported = target.json(&IMPORT);
    assert_eq!(imported["uuid"], listed["uuid"]);
    assert_eq!(names(&target.json(&["volume", "list"])), [""; 0]);
    let note = target.json(&import("b", &["--nsid", "7"]));
    let note = note["note"].as_str().expect("a note");
    assert!(
        note.contains("tenant `db` reads all that is in it"),
        "{note}"
    );
    let note = target.json(&import("a", &[]))["note"].clone();
    let note = note.as_str().expect("a note");
    assert!(note.contains("which the pool does not know"), "{note}");
    target.refused(
        &import("a", &[]),
        "is imported already: it is volume `a` of tenant `db`",
    );
    target.refused(&import("d", &[]), "pool `fast` holds no volume `d`");
    let before = target.json(&["volume", "list"]);
    target.refused(
        &import("c", &["--nsid", "7"]),
        "nsid 7 is that of volume `b`",
    );
    assert_eq!(target.json(&["volume", "list"]), before);
    assert_same(&target, &b, b'b');
    assert_eq!(
        bytes(&target, &target.json(&["volume", "show", "a"])),
        BTreeSet::from([b'a'])
    );
    // The one that is left is of no one, and the pool is not destroyed with it.
    let listed = target.json(&[&IMPORT[..], &["--list"]].concat());
    assert_eq!(listed["volumes"][2]["tenant"], Value::Null);
    assert_eq!(listed["volumes"][2]["uuid"], c["uuid"]);
    target.json(&["volume", "delete", "a", "--yes"]);
    target.json(&["volume", "delete", "b", "--yes"]);
    target.refused(&["pool", "delete", "fast"], "`flashyard volume import c");
    target.kill();

    let target = Target::start(&scratch, &[]);
    let nsid = c["nsid"].to_string();
    target.json(&import("c", &["--nsid", &nsid]));
    assert_same(&target, &c, b'c');
    target.json(&["volume", "rename", "c", "d"]);
    target.json(&["volume", "set", "d", "--size", "3MiB"]);
    target.json(&["volume", "delete", "d", "--yes"]);
    target.json(&["pool", "delete", "fast"]);
}

#[test]
fn all_volumes_of_a_pool_are_imported_at_once_or_none() {
    let scratch = Scratch::new("import-all");
    let (target, [a, b, c]) = after_a_loss(&scratch);
    target.refused(
        &[&IMPORT[..], &["--tenant", "eve"]].concat(),
        "no tenant `eve`",
    );
    // A name that is taken: nothing is imported, and the pool is as it was.
    add_device(&target, &scratch, "ssd1");
    target.json(&["pool", "create", "other", "--device", "ssd1"]);
    let taken = ["volume", "create", "b", "--pool", "other", "--size", "1MiB"];
    target.json(&[&taken[..], &["--tenant", "db"]].concat());
    let all = [&IMPORT[..], &["--tenant", "db"]].concat();
    target.refused(&all, "there is a volume `b` already");
    assert_eq!(names(&target.json(&["pool", "list"])), ["other"]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["b"]);
    target.refused(
        &["pool", "import", "other", "--device", "ssd0"],
        "a pool `other` already",
    );
    target.refused(
        &["pool", "import", "x", "--device", "ssd1"],
        "used by pool `other`",
    );
    target.json(&["volume", "rename", "b", "mine"]);
    let imported = target.json(&all);
    assert_eq!(names(&imported["volumes"]), ["a", "b", "c"]);
    for (now, was) in imported["volumes"]
        .as_array()
        .expect("a list")
        .iter()
        .zip([&a, &b, &c])
    {
        assert_eq!(
            (&now["uuid"], &now["tenant"]),
            (&was["uuid"], &was["tenant"])
        );
        let volume = target.json(&["volume", "show", was["name"].as_str().expect("a name")]);
        assert_eq!(bytes(&target, &volume).len(), 1);
    }
    let before = target.json(&["volume", "list"]);
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(target.json(&["volume", "list"]), before, "over a restart");
    // A copy of the device is another device, with the same disks.
    fs::copy(scratch.join("ssd0.img"), scratch.join("ssd2.img")).expect("there is room");
    add_device(&target, &scratch, "ssd2");
    target.refused(
        &["pool", "import", "again", "--device", "ssd2"],
        "that is pool `fast` here already",
    );
    assert_eq!(names(&target.json(&["pool", "list"])), ["fast", "other"]);
}

#[test]
fn what_is_no_sound_pool_is_not_imported() {
    let scratch = Scratch::new("import-none");
    let (target, _) = after_a_loss(&scratch);
    add_device(&target, &scratch, "ssd1");
    target.refused(
        &["pool", "import", "x", "--device", "ssd1"],
        "holds no pool, so there is nothing to import",
    );
    target.json(&["device", "delete", "ssd0"]);
    let image = OpenOptions::new()
        .write(true)
        .open(scratch.join("ssd0.img"));
    let image = image.expect("it is there");
    for place in [0, MIB] {
        image
            .write_all_at(&[0xff; 16], place + 64)
            .expect("it is ours");
    }
    add_device(&target, &scratch, "ssd0");
    target.refused(&IMPORT, "`flashyard check` with its path tells more");
    assert_eq!(names(&target.json(&["pool", "list"])), [""; 0]);
}

/// An exported file makes the same anywhere: in an empty target, where it came from, and over
/// devices whose state was lost.
#[test]
fn what_is_exported_makes_the_same() {
    let scratch = Scratch::new("export");
    let target = Target::start(&scratch, &[]);
    target.json(&["target", "set", "--io-queues", "4", "--in-capsule", "16KiB"]);
    let tenant = ["tenant", "create", "db", "--host", "*", "--weight", "3"];
    target.json(&[&tenant[..], &["--limit", "bandwidth=1GB/s"]].concat());
    target.json(&["tenant", "create", "lab", "--nqn", "nqn.2026-11.test:lab"]);
    target.json(&["tenant", "rename", "lab", "labs"]);
    add_device(&target, &scratch, "ssd0");
    add_device(&target, &scratch, "ssd1");
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    let a = add_volume(&target, "a", &["--eui64", "0123456789abcdef"]);
    let b = add_volume(&target, "b", &["--nsid", "7"]);
    let whole = ["volume", "create", "whole", "--device", "ssd1"];
    let whole = target.json(&[&whole[..], &["--tenant", "db"]].concat());
    let all = [(&a, b'a'), (&b, b'b'), (&whole, b'w')];
    for (volume, byte) in all {
        fill(&target, volume, byte);
    }
    target.json(&["volume", "set", "b", "--read-only", "on"]);
    let file = scratch.join("export.toml");
    let export = |target: &Target, file: &Path| {
        let done = target.run(&["export", "--output", path(file)]);
        assert!(done.status.success(), "{done:?}");
        fs::read_to_string(file).expect("it was written")
    };
    let text = export(&target, &file);
    assert!(text.contains("size = \"2MiB\""), "{text}");
    let nothing = target.json(&["apply", path(&file)]);
    assert_eq!(
        nothing["changes"].as_array().map(Vec::len),
        Some(0),
        "{nothing}"
    );
    let tenants = target.json(&["tenant", "list"]);
    let volumes = target.json(&["volume", "list"]);
    target.kill();

    // The state is lost, the devices are not.
    let target = begin_anew(&scratch);
    target.refused(&["apply", path(&file)], "`flashyard apply FILE --import`");
    assert_eq!(names(&target.json(&["device", "list"])), [""; 0]);
    let applied = target.json(&["apply", path(&file), "--import"]);
    let notes = applied["notes"].to_string();
    assert!(
        notes.contains("pool fast was on device ssd0 and is imported"),
        "{notes}"
    );
    assert!(notes.contains("volume a was in pool fast"), "{notes}");
    assert_eq!(target.json(&["tenant", "list"]), tenants);
    for (volume, byte) in all {
        assert_same(&target, volume, byte);
    }
    assert_eq!(export(&target, &scratch.join("again.toml")), text);
    let nothing = target.json(&["apply", path(&file), "--import"]);
    assert_eq!(
        nothing["changes"].as_array().map(Vec::len),
        Some(0),
        "{nothing}"
    );
    target.kill();

    // Nothing is left but the file.
    for name in ["ssd0", "ssd1"] {
        fs::remove_file(scratch.join(format!("{name}.img"))).expect("it is ours");
    }
    let target = begin_anew(&scratch);
    target.json(&["apply", path(&file)]);
    assert_eq!(target.json(&["tenant", "list"]), tenants);
    let now = target.json(&["volume", "list"]);
    let rows = |list: &Value| list.as_array().expect("a list").clone();
    assert_eq!(rows(&now).len(), 3);
    for (now, was) in rows(&now).iter().zip(rows(&volumes)) {
        for key in [
            "name",
            "uuid",
            "nguid",
            "eui64",
            "nsid",
            "read_only",
            "subnqn",
        ] {
            assert_eq!(now[key], was[key], "{key}");
        }
    }
    assert_eq!(export(&target, &scratch.join("third.toml")), text);
}

/// A file that does not fit to what is on the device changes nothing there, and nothing of it is
/// lost when the file is taken back.
#[test]
fn a_file_that_fails_while_it_imports_takes_nothing_with_it() {
    let scratch = Scratch::new("import-fails");
    let (target, [a, b, c]) = after_a_loss(&scratch);
    let image = scratch.join("ssd0.img");
    target.json(&["device", "delete", "ssd0"]);
    let file = scratch.join("file.toml");
    let write = |size: &str| {
        let mut text = format!(
            "[[device]]\nname = \"ssd0\"\nkind = \"file\"\npath = \"{}\"\n\
             [[pool]]\nname = \"fast\"\ndevices = [\"ssd0\"]\n",
            path(&image)
        );
        for (name, size, nsid) in [("a", "2MiB", 1), ("b", "2MiB", 7), ("c", size, 8)] {
            let table = format!(
                "[[volume]]\nname = \"{name}\"\npool = \"fast\"\nsize = \"{size}\"\ntenant = \"db\"\nnsid = {nsid}\n"
            );
            text.push_str(&table);
        }
        fs::write(&file, text).expect("the scratch directory is writable");
    };
    let before = fs::read(&image).expect("it is there");
    write("4MiB");
    target.refused(
        &["apply", path(&file), "--import"],
        "its size is 2 MiB, the file says 4 MiB",
    );
    for kind in ["device", "pool", "volume"] {
        assert_eq!(names(&target.json(&[kind, "list"])), [""; 0]);
    }
    assert!(
        fs::read(&image).expect("it is there") == before,
        "the device is as it was"
    );
    // A later step fails: what was imported is forgotten, and stays in the pool.
    add_device(&target, &scratch, "ssd1");
    target.json(&["pool", "create", "other", "--device", "ssd1"]);
    let grows = [
        "volume", "create", "grows", "--pool", "other", "--size", "1MiB",
    ];
    target.json(&[&grows[..], &["--tenant", "db", "--nsid", "20"]].concat());
    write("2MiB");
    let good = fs::read_to_string(&file).expect("it is there");
    let too_large =
        "[[volume]]\nname = \"grows\"\npool = \"other\"\nsize = \"1GiB\"\ntenant = \"db\"\n";
    fs::write(&file, format!("{good}{too_large}")).expect("it is writable");
    target.refused(
        &["apply", path(&file), "--import"],
        "could not note that the file is applied",
    );
    assert_eq!(names(&target.json(&["volume", "list"])), ["grows"]);
    assert_eq!(names(&target.json(&["pool", "list"])), ["other"]);
    assert!(
        fs::read(&image).expect("it is there") == before,
        "the device is as it was"
    );
    write("2MiB");
    target.json(&["apply", path(&file), "--import"]);
    for (volume, byte) in [(&a, b'a'), (&b, b'b'), (&c, b'c')] {
        assert_same(&target, volume, byte);
    }
}

/// A backup is taken while the target runs and put back while it does not; what is refused changes
/// nothing, and a store that is replaced is kept.
#[test]
fn a_backup_of_the_state_is_put_back() {
    let scratch = Scratch::new("backup");
    let backup = scratch.join("kept.db");
    let restore = |file: &Path, more: &[&str]| {
        let state = scratch.join("state");
        let command = ["restore", path(file), "--state", path(&state)];
        let mut restore = Command::new(PROGRAM);
        restore
            .args(command)
            .args(more)
            .output()
            .expect("the program starts")
    };
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    add_device(&target, &scratch, "ssd0");
    target.json(&["pool", "create", "fast", "--device", "ssd0"]);
    let volume = add_volume(&target, "a", &["--nsid", "7"]);
    fill(&target, &volume, b'a');
    target.json(&["backup", path(&backup)]);
    target.refused(&["backup", path(&backup)], "is there already");
    target.json(&["tenant", "create", "later", "--host", "*"]);
    expect_failure(
        &restore(&backup, &["--yes"]),
        1,
        "another flashyard uses the state",
    );
    target.kill();

    expect_failure(&restore(&backup, &[]), 1, "say --yes");
    let mut damaged = fs::read(&backup).expect("it was written");
    let place = damaged
        .windows(6)
        .position(|it| it == b"\"db\",\"")
        .expect("a record");
    damaged[place + 1] = b'x';
    let wrong = scratch.join("wrong.db");
    for content in [&damaged[..], b"no store", b""] {
        fs::write(&wrong, content).expect("it is writable");
        expect_failure(&restore(&wrong, &["--yes"]), 1, "is no sound backup");
    }
    // The version of the tables, in the header of the file.
    let mut newer = fs::read(&backup).expect("it was written");
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&wrong, newer).expect("it is writable");
    expect_failure(&restore(&wrong, &["--yes"]), 1, "use a newer flashyard");
    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db", "later"]);
    target.kill();

    assert!(restore(&backup, &["--yes"]).status.success());
    assert!(scratch.join("state/state.db.old-1").exists());
    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db"]);
    assert_same(&target, &volume, b'a');
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");
    assert!(restore(&backup, &[]).status.success(), "where nothing is");
    let target = Target::start(&scratch, &[]);
    assert_same(&target, &volume, b'a');
}
