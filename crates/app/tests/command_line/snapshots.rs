//! Snapshots from the command line: made, shared, cloned, restored, compared, deleted, over kills.

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{Scratch, Target, path};

/// A target with a mapped pool `p` on a file, and tenants `db` and `audit`.
fn with_pool(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("d.img");
    let device = ["--kind", "file", "--path", path(&image), "--size", "64MiB"];
    target.json(&[&["device", "create", "d"], &device[..]].concat());
    target.json(&["pool", "create", "p", "--device", "d", "--kind", "mapped"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&["tenant", "create", "audit", "--host", "*"]);
    target
}

fn create(target: &Target, name: &str) -> Value {
    let args = ["--pool", "p", "--size", "1MiB", "--tenant", "db"];
    target.json(&[&["volume", "create", name], &args[..]].concat())
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// The names of all snapshots.
fn names(target: &Target) -> Vec<String> {
    let all = target.json(&["snapshot", "list"]);
    let all = all.as_array().expect("a list").iter();
    all.map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn snapshots_clones_and_what_is_shared_survive_a_kill() {
    let scratch = Scratch::new("snapshots");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    let made = target.json(&words("snapshot create v@one"));
    let one = &made[0];
    assert_eq!(one["own_bytes"], 1 << 20, "{made}");
    assert_eq!(
        (&one["clones"], &one["shared_as"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    fill(&target, &volume, 2);
    let clone = target.json(&words("volume clone v@one c"));
    assert_eq!(
        (&clone["size"], &clone["tenant"]),
        (&(1 << 20).into(), &"db".into())
    );
    let shared = target.json(&words("snapshot share v@one old"));
    assert_eq!(
        (&shared["read_only"], &shared["tenant"]),
        (&true.into(), &"db".into())
    );
    assert_eq!(bytes(&target, &clone), [1].into());
    assert_eq!(bytes(&target, &shared), [1].into());
    fill(&target, &clone, 3);
    target.json(&words("snapshot create v@two c@two"));
    target.kill();

    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target), ["c@two", "v@one", "v@two"]);
    let show = |name: &str| target.json(&["volume", "show", name]);
    for (name, byte) in [("v", 2), ("c", 3), ("old", 1)] {
        assert_eq!(bytes(&target, &show(name)), [byte].into(), "{name}");
    }
    let volume = show("v");
    assert_eq!(
        (&volume["own_bytes"], &volume["shared_bytes"]),
        (&0.into(), &(1 << 20).into())
    );
    let pool = target.json(&words("pool show p"));
    assert_eq!(pool["snapshot_bytes"], 3 << 20, "{pool}");
    target.json(&words("volume rename v w"));
    fill(&target, &show("w"), 4);
    target.json(&words("snapshot restore w@two --yes"));
    assert_eq!(bytes(&target, &show("w")), [2].into());
    // What a snapshot is shared as goes, the snapshot stays.
    target.json(&words("volume delete old --yes"));
    assert_eq!(names(&target), ["c@two", "w@one", "w@two"]);
    for gone in [
        "snapshot delete c@two --yes",
        "volume delete c --yes",
        "snapshot delete w@one --yes",
    ] {
        target.json(&words(gone));
    }
    assert_eq!(target.terminate(), 0);

    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target), ["w@two"]);
    assert_eq!(
        bytes(&target, &target.json(&words("volume show w"))),
        [2].into()
    );
}

/// What deleting one would free is shown of each that can be deleted.
#[test]
fn what_a_snapshot_would_free_is_shown() {
    let scratch = Scratch::new("snapshots-free");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    target.json(&words("snapshot create v@one"));
    let frees = |name: &str| target.json(&["snapshot", "show", name])["frees_bytes"].clone();
    assert_eq!(frees("v@one"), 0);
    fill(&target, &volume, 2);
    assert_eq!(frees("v@one"), 1 << 20);
    target.json(&words("snapshot create v@two"));
    assert_eq!(
        (frees("v@one"), frees("v@two")),
        ((1 << 20).into(), 0.into())
    );
    // One with a clone cannot be deleted, and a list does not look.
    target.json(&words("volume clone v@two c"));
    assert_eq!(frees("v@two"), Value::Null);
    let listed = target.json(&words("snapshot list"));
    assert_eq!(listed[0]["frees_bytes"], Value::Null, "{listed}");
    let text = target.run(&words("snapshot show v@one"));
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("frees") && text.contains("1 MiB"), "{text}");
    target.refused(&words("snapshot show v@none"), "no snapshot");
    let used = || target.json(&words("pool show p"))["snapshot_bytes"].as_u64();
    let before = used().expect("a number");
    target.json(&words("snapshot delete v@one --yes"));
    // Counts are those of the last cut, which another one makes; it gives leaves away by and by.
    let mut freed = 0;
    for _ in 0..20 {
        target.json(&words("snapshot create v@three"));
        freed = before - used().expect("a number");
        target.json(&words("snapshot delete v@three --yes"));
        if freed > 0 {
            break;
        }
    }
    assert_eq!(freed, 1 << 20);
}

#[test]
fn what_differs_is_told_in_bytes() {
    let scratch = Scratch::new("snapshots-diff");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    target.json(&words("snapshot create v@empty"));
    fill(&target, &volume, 1);
    target.json(&words("snapshot create v@full"));
    for (args, changed) in [
        ("snapshot diff v@empty v@full", 1 << 20),
        ("snapshot diff v@empty v", 1 << 20),
        ("snapshot diff v@full v", 0),
        ("snapshot diff v@full", 1 << 20),
        ("snapshot diff v@empty", 0),
    ] {
        let found = target.json(&words(args));
        assert_eq!(found["changed_bytes"], changed, "{args}: {found}");
        let ranges = found["ranges"].as_array().expect("a list");
        assert_eq!(ranges.len(), usize::from(changed > 0));
        if changed > 0 {
            assert_eq!(
                (&ranges[0]["offset_bytes"], &ranges[0]["length_bytes"]),
                (&0.into(), &changed.into())
            );
        }
    }
    target.refused(
        &words("snapshot diff v@empty w"),
        "only versions of one volume",
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let scratch = Scratch::new("snapshots-refused");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    target.json(&words("device create ram --kind memory --size 64MiB"));
    target.json(&words("device create other --kind memory --size 64MiB"));
    target.json(&words("device create whole --kind memory --size 16MiB"));
    target.json(&words("pool create raw --device ram"));
    target.json(&words("pool create q --device other --kind mapped"));
    target.json(&words("volume create r --pool raw --size 1MiB --tenant db"));
    target.json(&words("volume create x --pool q --size 1MiB --tenant db"));
    target.json(&words("volume create d --device whole --tenant db"));
    target.json(&words("snapshot create v@one"));
    target.json(&words("volume clone v@one c"));
    target.json(&words("snapshot share v@one old"));
    for (args, why) in [
        (
            "snapshot create r@one",
            "a raw pool has no snapshots: make a pool with kind = \"mapped\"",
        ),
        (
            "snapshot create d@one",
            "is a whole device and has no snapshots",
        ),
        ("snapshot create nobody@one", "no volume"),
        ("snapshot create v@one", "has a snapshot one already"),
        (
            "snapshot create v@two x@two",
            "cannot be kept at the same moment",
        ),
        (
            "snapshot create old@one",
            "is a snapshot, which stays as it is",
        ),
        ("snapshot delete v@one", "say --yes"),
        (
            "snapshot delete v@one --yes",
            "given to a tenant as volume `old`",
        ),
        ("snapshot delete v@none --yes", "has no snapshot none"),
        ("snapshot restore v@one", "say --yes"),
        (
            "snapshot share v@one again",
            "given to a tenant as volume `old`",
        ),
        ("snapshot share v@one again --tenant audit", "say --yes"),
        ("volume clone v@one e --tenant audit", "cannot be another's"),
        ("volume clone v@one v", "there is a volume"),
        ("volume clone v@none e", "has no snapshot none"),
        (
            "volume delete v --yes",
            "has snapshots, such as v@one; delete them first",
        ),
        (
            "volume move v --to q",
            "has snapshots, such as v@one; delete them first",
        ),
        ("volume move c --tenant audit --yes", "is a clone of v@one"),
        (
            "volume set old --read-only off",
            "is a snapshot, which stays as it is",
        ),
        (
            "volume set old --size 2MiB",
            "is a snapshot, which stays as it is",
        ),
        (
            "volume move old --to q",
            "is a snapshot, which stays as it is",
        ),
    ] {
        target.refused(&words(args), why);
    }
    // What a snapshot is shared as is in no file.
    let export = target.run(&["export"]);
    let export = String::from_utf8_lossy(&export.stdout).into_owned();
    assert!(export.contains("name = \"c\""), "{export}");
    assert!(!export.contains("name = \"old\""), "{export}");
    target.json(&words("volume delete old --yes"));
    target.refused(
        &words("snapshot delete v@one --yes"),
        "volume c is a clone of v@one",
    );
    target.json(&words("snapshot share v@one seen --tenant audit --yes"));
    target.json(&words("volume delete seen --yes"));
    target.json(&words("snapshot create v@two"));
    target.refused(
        &words("snapshot restore v@one --yes"),
        "is older than snapshot two",
    );
    // Nothing of that has changed anything.
    assert_eq!(names(&target), ["v@one", "v@two"]);
    assert_eq!(bytes(&target, &volume), [1].into());
}

#[test]
fn a_clone_stays_with_its_tenant_also_when_its_origin_or_its_pool_is_not_there() {
    let scratch = Scratch::new("snapshots-origin");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    target.json(&words("snapshot create v@one"));
    let clone = target.json(&words("volume clone v@one c"));
    fill(&target, &clone, 2);
    assert_eq!(target.terminate(), 0);
    let image = scratch.join("d.img");
    let away = scratch.join("away.img");
    std::fs::rename(&image, &away).expect("it is there");
    let target = Target::start(&scratch, &[]);
    let moves = words("volume move c --tenant audit --yes");
    target.refused(&moves, "pool `p` is not available");
    assert_eq!(target.terminate(), 0);
    std::fs::rename(&away, &image).expect("it is there");
    std::fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    // The state is lost, and tenants come back after the pool.
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device",
        "create",
        "d",
        "--kind",
        "file",
        "--path",
        path(&image),
    ]);
    target.json(&words("pool import p --device d"));
    target.json(&words("tenant create db --host *"));
    target.json(&words("tenant create audit --host *"));
    target.json(&words("volume import c --pool p --tenant db"));
    target.refused(&moves, "is a clone of v@one");
    target.json(&words("volume import v --pool p --tenant db"));
    assert_eq!(
        bytes(&target, &target.json(&words("volume show v"))),
        [1].into()
    );
}

#[test]
fn a_clone_that_a_tenant_has_had_is_neither_taken_nor_deleted() {
    let scratch = Scratch::new("snapshots-owned");
    let target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    target.json(&words("snapshot create v@one"));
    let clone = target.json(&words("volume clone v@one c"));
    fill(&target, &clone, 2);
    // The target calls it by another name than the pool does.
    target.json(&words("volume rename c d"));
    let again = words("volume clone v@one c");
    let made = target.json(&again);
    assert_ne!(made["uuid"], clone["uuid"]);
    target.json(&words("volume delete c --yes"));
    target.json(&words("volume rename d c"));
    target.kill();
    std::fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    let target = Target::start(&scratch, &[]);
    let image = scratch.join("d.img");
    target.json(&[
        "device",
        "create",
        "d",
        "--kind",
        "file",
        "--path",
        path(&image),
    ]);
    target.json(&words("pool import p --device d"));
    target.json(&words("tenant create db --host *"));
    target.json(&words("volume import v --pool p --tenant db"));
    target.refused(&again, "there is a volume c already");
    target.json(&words("volume import c --pool p --tenant db"));
    let found = target.json(&words("volume show c"));
    assert_eq!(found["uuid"], clone["uuid"]);
    assert_eq!(bytes(&target, &found), [2].into());
    target.refused(&again, "there is a volume `c`");
    assert_eq!(bytes(&target, &found), [2].into());
}

#[test]
fn killed_at_any_moment_a_snapshot_is_there_or_not_and_nothing_else_changes() {
    let scratch = Scratch::new("snapshots-killed");
    let mut target = with_pool(&scratch);
    let volume = create(&target, "v");
    fill(&target, &volume, 1);
    for round in 0..12 {
        let name = format!("v@r{round}");
        let state = scratch.join("state");
        let work = [
            vec!["snapshot", "create", &name],
            vec!["snapshot", "delete", "v@r0", "--yes"],
            vec!["volume", "clone", "v@r1", "c"],
        ];
        let args = &work[match round {
            5 => 1,
            8 => 2,
            _ => 0,
        }];
        let mut asking = std::process::Command::new(crate::rig::PROGRAM)
            .args(args)
            .args(["--state", path(&state), "--json"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the program starts");
        // Some of them have ended before, some have not begun.
        if round % 3 == 0 {
            asking.wait().expect("it ends");
        }
        target.kill();
        asking.wait().expect("it ends");
        target = Target::start(&scratch, &[]);
        let there = names(&target);
        assert!(
            round % 3 > 0 || round == 5 || there.contains(&name),
            "{there:?}"
        );
        assert_eq!(
            bytes(&target, &target.json(&words("volume show v"))),
            [1].into()
        );
    }
    // What a kill has cut off is taken up when it is asked for again.
    if !names(&target).contains(&"v@r1".to_owned()) {
        target.json(&words("snapshot create v@r1"));
    }
    if target.run(&words("volume show c --json")).status.code() != Some(0) {
        target.json(&words("volume clone v@r1 c"));
    }
    assert_eq!(
        bytes(&target, &target.json(&words("volume show c"))),
        [1].into()
    );
    assert_eq!(target.terminate(), 0);
}
