//! Encrypted mapped pools: only the right key opens them, the state may be lost, keys of volumes
//! come and go with them, whatever is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flashyard_time::Rng;
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, changed, path, target_perf};

/// Kills in `make test`; `FLASHYARD_ROUNDS=20` makes it many.
const KILLS: u64 = 8;
/// Where the keys of volumes are on the device, twice.
const KEYS: [usize; 2] = [21 << 12, 277 << 12];

/// A command in one string.
fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// A file that only its owner can read; what `--key` is given for it.
fn key(scratch: &Scratch, name: &str, content: &str) -> String {
    let file = scratch.file(name, content);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    format!("file:{}", path(&file))
}

fn usual_key(scratch: &Scratch) -> String {
    key(scratch, "a", &"a".repeat(32))
}

/// A target with an encrypted pool and two volumes in it.
fn encrypted(scratch: &Scratch) -> Target {
    let key = usual_key(scratch);
    let target = Target::start(scratch, &[]);
    let image = scratch.join("f0.img");
    for command in [
        &format!(
            "device create f0 --kind file --size 64MiB --path {}",
            path(&image)
        ),
        &format!("pool create p --device f0 --kind mapped --key {key}"),
        "tenant create db --host *",
        "volume create v --pool p --size 8MiB --tenant db",
        "volume create w --pool p --size 8MiB --tenant db --compression lz4",
    ] {
        target.json(&words(command));
    }
    target
}

/// The state of the pool, and why.
fn state(target: &Target) -> (String, String) {
    let shown = target.json(&words("pool show p"));
    let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("fault"))
}

/// Writes and reads back what is checked, and fails on an error.
fn verify(target: &Target) {
    for nsid in ["1", "2"] {
        let words = ["--nsid", nsid, "--rw", "randrw", "--verify"];
        let report = target_perf(target, &words);
        assert_eq!(report["errors"], 0, "{report}");
    }
}

fn image(scratch: &Scratch) -> Vec<u8> {
    fs::read(scratch.join("f0.img")).expect("it is there")
}

/// Keys of volumes in each copy.
fn keys(scratch: &Scratch) -> [usize; 2] {
    let image = image(scratch);
    KEYS.map(|first| {
        let area = &image[first..first + (120 << 12)];
        area.chunks(512)
            .filter(|it| it.starts_with(b"FYVK"))
            .count()
    })
}

#[test]
fn only_its_key_opens_an_encrypted_pool() {
    let scratch = Scratch::new("vault-keys");
    let target = encrypted(&scratch);
    verify(&target);
    let shown = target.json(&words("pool show p"));
    assert_eq!(shown["key"], usual_key(&scratch));
    assert_eq!(keys(&scratch), [2, 2]);
    assert_eq!(target.terminate(), 0);
    let check = Command::new(PROGRAM)
        .args(["check", "--json"])
        .arg(scratch.join("f0.img"))
        .output()
        .expect("the program starts");
    let check: Value = serde_json::from_slice(&check.stdout).expect("it prints JSON");
    assert_eq!(check["verdict"], "sound", "{check}");

    let before = image(&scratch);
    let file = scratch.join("a");
    for (content, why) in [
        (Some("c".repeat(32)), "the key or passphrase is wrong"),
        (Some("short".to_owned()), "a key has 32 at least"),
        (None, "cannot read the key file"),
    ] {
        match content {
            Some(content) => drop(key(&scratch, "a", &content)),
            None => fs::remove_file(&file).expect("it was there"),
        }
        let target = Target::start(&scratch, &[]);
        let (state, fault) = state(&target);
        assert!(
            state == "unavailable" && fault.contains(why),
            "{state}: {fault}"
        );
        assert_eq!(target.json(&words("volume show v"))["state"], "unavailable");
        target.terminate();
        assert!(image(&scratch) == before, "nothing has changed");
    }
    usual_key(&scratch);
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target), ("online".to_owned(), String::new()));
    verify(&target);
    target.refused(&words("pool rekey nothing --key file:/x"), "no pool");
    let other = scratch.join("f1.img");
    let create = format!(
        "device create f1 --kind file --size 64MiB --path {}",
        path(&other)
    );
    target.json(&words(&create));
    let raw = format!("pool create q --device f1 --key {}", usual_key(&scratch));
    target.refused(&words(&raw), "only a mapped pool has a key");
    target.json(&words("pool create q --device f1 --kind mapped"));
    target.refused(&words("pool rekey q --key file:/x"), "is not encrypted");
}

#[test]
fn a_lost_state_needs_the_key_and_nothing_else() {
    let scratch = Scratch::new("vault-lost");
    let target = encrypted(&scratch);
    verify(&target);
    let uuid = target.json(&words("volume show v"))["uuid"].clone();
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is lost");
    let target = Target::start(&scratch, &[]);
    let open = format!(
        "device create f0 --kind file --path {}",
        path(&scratch.join("f0.img"))
    );
    target.json(&words(&open));
    target.json(&words("tenant create db --host *"));
    let listed = target.json(&words("pool import p --device f0 --list"));
    assert_eq!(listed["volumes"][0]["name"], "v", "{listed}");
    assert!(
        listed["notes"].to_string().contains("with --key"),
        "{listed}"
    );
    target.refused(
        &words("pool import p --device f0"),
        "the pool is encrypted: give its key",
    );
    let wrong = key(&scratch, "b", &"b".repeat(32));
    let wrong = format!("pool import p --device f0 --key {wrong}");
    target.refused(&words(&wrong), "the key or passphrase is wrong");
    let right = format!("pool import p --device f0 --key {}", usual_key(&scratch));
    target.json(&words(&right));
    assert_eq!(target.json(&words("volume show v"))["uuid"], uuid);
    verify(&target);
    target.terminate();
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "online");
    verify(&target);
}

#[test]
fn a_file_makes_an_encrypted_pool_and_changes_nothing_of_it() {
    let scratch = Scratch::new("vault-file");
    key(&scratch, "k", &"k".repeat(32));
    let text = "[[device]]\nname = \"f0\"\nkind = \"file\"\npath = \"f0.img\"\nsize = \"64MiB\"\n\n\
         [[pool]]\nname = \"p\"\ndevices = [\"f0\"]\nkind = \"mapped\"\n";
    let keyed = format!("{text}key = \"file:k\"\n");
    let file = scratch.file("f.toml", &keyed);
    let target = Target::start(&scratch, &[]);
    target.json(&["apply", path(&file)]);
    let again = target.json(&["apply", path(&file), "--plan"]);
    assert_eq!(changed(&again), [""; 0], "{again}");
    let exported = String::from_utf8(target.run(&["export"]).stdout).expect("text");
    assert!(
        exported.contains(&format!("key = \"file:{}", path(&scratch.join("k")))),
        "{exported}"
    );
    let other = scratch.file("g.toml", &keyed.replace("file:k", "file:other"));
    target.refused(&["apply", path(&other)], "flashyard pool rekey p --key");
    // What a file does not say stays.
    let plain = scratch.file("h.toml", text);
    target.json(&["apply", path(&plain)]);
    assert_eq!(state(&target).0, "online");
    // And one that is there is not encrypted afterwards.
    let image = scratch.join("f1.img");
    let create = format!(
        "device create f1 --kind file --size 64MiB --path {}",
        path(&image)
    );
    target.json(&words(&create));
    target.json(&words("pool create q --device f1 --kind mapped"));
    let other = "[[pool]]\nname = \"q\"\ndevices = [\"f1\"]\nkind = \"mapped\"\nkey = \"file:k\"\n";
    let other = scratch.file("i.toml", other);
    target.refused(&["apply", path(&other)], "is not encrypted afterwards");
    target.json(&words("pool delete q"));
    target.json(&words("device delete f1"));
    target.kill();
    // The file alone has the pool again.
    fs::remove_dir_all(scratch.join("state")).expect("it is lost");
    let target = Target::start(&scratch, &["--config", path(&file)]);
    let imported = target.run(&["apply", "--import", path(&file)]);
    assert!(imported.status.success(), "{imported:?}");
    assert_eq!(state(&target), ("online".to_owned(), String::new()));
}

#[test]
fn what_is_deleted_leaves_no_key() {
    let scratch = Scratch::new("vault-erase");
    let target = encrypted(&scratch);
    verify(&target);
    for (command, left) in [
        ("snapshot create v@s", 2),
        ("volume clone v@s c --tenant db", 3),
        ("volume delete c --yes", 2),
        ("snapshot delete v@s --yes", 2),
        ("volume delete v --yes", 1),
        ("volume delete w --yes", 0),
    ] {
        target.json(&words(command));
        assert_eq!(keys(&scratch), [left; 2], "{command}");
    }
    target.json(&words("pool delete p"));
    let start = &image(&scratch)[..2 << 20];
    assert!(start.iter().all(|byte| *byte == 0));
}

/// A key that could not be had at the start is given later, to a pool and to a device under one;
/// what stands on them is served then.
#[test]
fn a_key_that_comes_later_opens_what_waits_for_it() {
    let scratch = Scratch::new("vault-later");
    let target = encrypted(&scratch);
    let below = scratch.join("f1.img");
    let layer_key = key(&scratch, "b", &"b".repeat(32));
    for command in [
        &format!(
            "device create f1 --kind file --size 64MiB --path {}",
            path(&below)
        ),
        &format!("device create safe --kind crypt --device f1 --key {layer_key}"),
        "pool create q --device safe",
        "volume create x --pool q --size 8MiB --tenant db",
    ] {
        target.json(&words(command));
    }
    verify(&target);
    target.refused(&words("pool start p"), "is open");
    target.refused(&words("device start safe"), "is open");
    target.terminate();
    for name in ["a", "b"] {
        fs::rename(scratch.join(name), scratch.join(name.to_uppercase())).expect("it is there");
    }
    let target = Target::start(&scratch, &[]);
    let state = |target: &Target, what: &str| {
        target.json(&words(&format!(
            "{what} show {}",
            if what == "pool" { "q" } else { "x" }
        )))["state"]
            .clone()
    };
    for start in ["pool start p", "device start safe", "pool start q"] {
        target.refused(&words(start), "cannot read the key file");
    }
    key(&scratch, "a", &"c".repeat(32));
    target.refused(&words("pool start p"), "the key or passphrase is wrong");
    let shown = target.json(&words("pool show p"));
    assert!(shown["fault"].to_string().contains("is wrong"), "{shown}");
    usual_key(&scratch);
    assert_eq!(target.json(&words("pool start p"))["state"], "online");
    verify(&target);
    assert_eq!(state(&target, "volume"), "unavailable");
    fs::rename(scratch.join("B"), scratch.join("b")).expect("it is there");
    target.json(&words("device start safe"));
    assert_eq!(
        (state(&target, "pool"), state(&target, "volume")),
        ("online".into(), "online".into())
    );
    let report = target_perf(&target, &words("--nsid 3 --rw randrw --verify"));
    assert_eq!(report["errors"], 0, "{report}");
    target.refused(&words("device start safe"), "is open");
    assert_eq!(target.terminate(), 0);
}

/// Nobody can open a pool whose key is lost; it can be deleted with its volumes, and its device is
/// used again.
#[test]
fn a_pool_whose_key_is_lost_can_be_erased() {
    let scratch = Scratch::new("vault-no-key");
    let target = encrypted(&scratch);
    verify(&target);
    let erase = words("pool delete p --erase --yes");
    target.refused(&erase, "volume `");
    target.terminate();
    let own = image(&scratch);
    fs::remove_file(scratch.join("a")).expect("it was there");
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "unavailable");
    target.refused(&words("pool delete p"), "volume `");
    target.refused(&words("volume delete v --yes"), "cannot read the key file");
    target.refused(&words("pool delete p --erase"), "--yes");
    assert!(image(&scratch) == own, "nothing has changed");
    target.json(&erase);
    assert_eq!(keys(&scratch), [0; 2]);
    let start = &image(&scratch)[..2 << 20];
    assert!(start.iter().all(|byte| *byte == 0));
    for list in ["pool list", "volume list"] {
        assert_eq!(target.json(&words(list)).as_array().map(Vec::len), Some(0));
    }
    // The key that turns up opens nothing any more.
    let import = format!("pool import p --device f0 --key {}", usual_key(&scratch));
    target.refused(&words(&import), "no pool");
    target.json(&words("pool create q --device f0 --kind mapped"));
    target.refused(&words("pool delete q --erase --yes"), "is not encrypted");
    // Numbers are not given again unless somebody says so.
    target.json(&words(
        "volume create v --pool q --size 8MiB --tenant db --nsid 1",
    ));
    target.json(&words(
        "volume create w --pool q --size 8MiB --tenant db --nsid 2",
    ));
    verify(&target);
    target.terminate();
    let target = Target::start(&scratch, &[]);
    verify(&target);
}

/// Another pool on the device than the one that is deleted stays as it is.
#[test]
fn another_pool_in_the_place_of_one_whose_key_is_lost_is_not_erased() {
    let scratch = Scratch::new("vault-other");
    let target = encrypted(&scratch);
    target.terminate();
    let own = image(&scratch);
    fs::remove_dir_all(scratch.join("state")).expect("it is lost");
    fs::remove_file(scratch.join("f0.img")).expect("it is there");
    let target = encrypted(&scratch);
    target.terminate();
    fs::write(scratch.join("f0.img"), &own).expect("there is room");
    fs::remove_file(scratch.join("a")).expect("it was there");
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "unavailable");
    target.refused(&words("pool delete p --erase --yes"), "another pool");
    assert!(image(&scratch) == own, "nothing has changed");
    assert_eq!(
        target.json(&words("volume list")).as_array().map(Vec::len),
        Some(2)
    );
}

fn rounds() -> u64 {
    std::env::var("FLASHYARD_ROUNDS").map_or(1, |it| it.parse().expect("a number"))
}

/// Starts a command, and kills the target in the middle of it.
fn kill_within(target: Target, command: &str, scratch: &Scratch, rng: &mut Rng) -> Target {
    let mut running = Command::new(PROGRAM)
        .args(words(command))
        .arg("--state")
        .arg(&target.state)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    thread::sleep(Duration::from_micros(rng.below(60_000)));
    target.kill();
    let _ = running.wait();
    Target::start(scratch, &[])
}

/// The target is killed at any moment of a change of the key: one of both opens the pool, and it is
/// the one that the target has noted.
#[test]
fn a_kill_while_the_key_is_changed_locks_nobody_out() {
    let scratch = Scratch::new("vault-rekey");
    let mut target = encrypted(&scratch);
    let all = [usual_key(&scratch), key(&scratch, "b", &"b".repeat(32))];
    let mut rng = Rng::new(5);
    for round in 0..KILLS * rounds() {
        let to = &all[(round as usize + 1) % 2];
        let rekey = format!("pool rekey p --key {to}");
        target = kill_within(target, &rekey, &scratch, &mut rng);
        let found = state(&target);
        assert_eq!(found, ("online".to_owned(), String::new()), "round {round}");
    }
    let phrase = key(&scratch, "phrase", "open sesame\n").replace("file:", "passphrase-file:");
    let shown = target.json(&words(&format!("pool rekey p --key {phrase}")));
    assert_eq!(shown["key"], phrase);
    verify(&target);
    target.terminate();
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "online");
    verify(&target);
}

/// The target is killed while volumes come and go: each that is there has its key and its data, and
/// no other key is left.
#[test]
fn a_kill_while_volumes_come_and_go_loses_no_key_and_leaves_none() {
    let scratch = Scratch::new("vault-killed");
    let mut target = encrypted(&scratch);
    verify(&target);
    let mut rng = Rng::new(9);
    for round in 0..KILLS * rounds() {
        let command = match round % 2 {
            0 => "volume create x --pool p --size 4MiB --tenant db",
            _ => "volume delete x --yes",
        };
        target = kill_within(target, command, &scratch, &mut rng);
        // What was begun is ended after the start.
        let mut volumes = 0;
        for _ in 0..200 {
            let list = target.json(&words("volume list"));
            let list = list.as_array().expect("a list");
            volumes = list.len();
            if list.iter().all(|volume| volume["state"] == "online") {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(keys(&scratch), [volumes; 2], "round {round}");
        assert_eq!(state(&target).0, "online", "round {round}");
    }
    verify(&target);
}
