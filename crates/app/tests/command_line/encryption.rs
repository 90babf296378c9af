//! Encrypted devices: data are nowhere in the clear, only the right key opens them, keys are
//! changed while hosts are connected, whatever is killed, and what is erased is gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flashyard_time::Rng;
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, changed, expect_failure, path, target_perf};

/// Kills in `make test`; `FLASHYARD_ROUNDS=20` makes it many.
const KILLS: u64 = 8;

/// A command in one string.
fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// A file that only its owner can read; what `--key` is given for it.
fn secret(scratch: &Scratch, name: &str, content: &str) -> String {
    let file = scratch.file(name, content);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path(&file).to_owned()
}

fn key(scratch: &Scratch, letter: &str) -> String {
    format!("file:{}", secret(scratch, letter, &letter.repeat(32)))
}

/// A target with an encrypted file, and a volume in a pool on it.
fn encrypted(scratch: &Scratch, key: &str) -> Target {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("f0.img");
    for command in [
        &format!(
            "device create f0 --kind file --size 64MiB --path {}",
            path(&image)
        ),
        &format!("device create safe0 --kind crypt --device f0 --key {key}"),
        "pool create p --device safe0",
        "tenant create db --host *",
        "volume create v --pool p --size 8MiB --tenant db",
    ] {
        target.json(&words(command));
    }
    target
}

/// The state of the device, and why.
fn state(target: &Target) -> (String, String) {
    let shown = target.json(&words("device show safe0"));
    let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("fault"))
}

/// Writes and reads back what is checked, and fails on an error.
fn verify(target: &Target) {
    let report = target_perf(target, &words("--rw randrw --verify"));
    assert_eq!(report["errors"], 0, "{report}");
}

#[test]
fn only_its_key_opens_an_encrypted_device() {
    let scratch = Scratch::new("crypt-keys");
    let [a, b] = ["a", "b"].map(|letter| key(&scratch, letter));
    let target = encrypted(&scratch, &a);
    verify(&target);
    let shown = target.json(&words("device show safe0"));
    assert_eq!(
        (&shown["key"], &shown["device"]),
        (&Value::from(&*a), &Value::from("f0"))
    );
    assert_eq!(shown["size"], 63 << 20);
    assert_eq!(target.terminate(), 0);

    // Names of volumes are in the clear in a pool, and nowhere here.
    let image = fs::read(scratch.join("f0.img")).expect("it is there");
    assert!(!image.windows(8).any(|bytes| bytes == b"FLSHPOOL"));
    let check = Command::new(PROGRAM)
        .args(["check", "--json"])
        .arg(scratch.join("f0.img"))
        .output()
        .expect("the program starts");
    let check: Value = serde_json::from_slice(&check.stdout).expect("it prints JSON");
    assert_eq!(
        (&check["verdict"], &check["bytes"]),
        (&"sound".into(), &(63 << 20).into())
    );
    assert_eq!(check["uuid"], shown["uuid"]);

    // Another key in the file, and none.
    let file = scratch.join("a");
    for (content, why) in [
        (Some("c".repeat(32)), "the key or passphrase is wrong"),
        (Some("short".to_owned()), "a key has 32 at least"),
        (None, "cannot read the key file"),
    ] {
        match content {
            Some(content) => drop(secret(&scratch, "a", &content)),
            None => fs::remove_file(&file).expect("it was there"),
        }
        let target = Target::start(&scratch, &[]);
        let (state, fault) = state(&target);
        assert!(
            state == "unavailable" && fault.contains(why),
            "{state}: {fault}"
        );
        let volume = target.json(&words("volume show v"));
        assert_eq!(volume["state"], "unavailable");
        target.terminate();
    }
    secret(&scratch, "a", &"a".repeat(32));
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "online");
    verify(&target);

    // Whoever makes the device anew has to have its key.
    for command in [
        "volume delete v --yes",
        "pool delete p",
        "device delete safe0",
    ] {
        target.json(&words(command));
    }
    let create = |key: &str| format!("device create safe1 --kind crypt --device f0 --key {key}");
    target.refused(&words(&create(&b)), "the key or passphrase is wrong");
    let again = target.json(&words(&create(&a)));
    assert_eq!(again["uuid"], shown["uuid"]);
    target.refused(&words("device rekey f0 --key file:/x"), "is not encrypted");
}

#[test]
fn a_changed_passphrase_opens_and_the_former_one_does_not() {
    let scratch = Scratch::new("crypt-rekey");
    let target = encrypted(&scratch, &key(&scratch, "a"));
    let phrase = secret(&scratch, "phrase", "open sesame\n");
    let to = format!("device rekey safe0 --key passphrase-file:{phrase}");
    let shown = target.json(&words(&to));
    assert_eq!(shown["key"], format!("passphrase-file:{phrase}"));
    verify(&target);
    target.terminate();
    secret(&scratch, "phrase", "open sesam\n");
    let target = Target::start(&scratch, &[]);
    assert!(state(&target).1.contains("the key or passphrase is wrong"));
    // The former key does not open it any more, whatever says so.
    let wrong = target.run(&words("device rekey safe0 --key file:/none"));
    expect_failure(&wrong, 1, "the key or passphrase is wrong");
    target.terminate();
    secret(&scratch, "phrase", "open sesame\n");
    let target = Target::start(&scratch, &[]);
    assert_eq!(state(&target).0, "online");
    verify(&target);
}

#[test]
fn a_device_that_is_not_the_one_is_refused() {
    let scratch = Scratch::new("crypt-foreign");
    let a = key(&scratch, "a");
    let target = encrypted(&scratch, &a);
    let other = scratch.join("f1.img");
    let create = format!(
        "device create f1 --kind file --size 64MiB --path {}",
        path(&other)
    );
    target.json(&words(&create));
    let create = format!("device create other --kind crypt --device f1 --key {a}");
    target.json(&words(&create));
    target.terminate();
    // The same key opens both, and still one does not pass for the other.
    fs::copy(&other, scratch.join("f0.img")).expect("a copy");
    let target = Target::start(&scratch, &[]);
    let (state, fault) = state(&target);
    assert!(
        state == "unavailable" && fault.contains("holds another encrypted device"),
        "{fault}"
    );
    // Nor is something else than an encrypted device overwritten.
    let disk = scratch.file("disk.img", "");
    let mut bytes = vec![0; 8 << 20];
    bytes[1080..1082].copy_from_slice(b"\x53\xef");
    fs::write(&disk, bytes).expect("it can be written");
    let create = format!("device create f2 --kind file --path {}", path(&disk));
    target.json(&words(&create));
    let create = format!("device create new --kind crypt --device f2 --key {a}");
    target.refused(&words(&create), "holds an ext file system");
    target.json(&words(&format!("{create} --force")));
}

#[test]
fn what_is_erased_cannot_be_opened_again() {
    let scratch = Scratch::new("crypt-erase");
    let a = key(&scratch, "a");
    let target = encrypted(&scratch, &a);
    target.refused(
        &words("device delete safe0 --erase --yes"),
        "is used by pool `p`",
    );
    for command in ["volume delete v --yes", "pool delete p"] {
        target.json(&words(command));
    }
    target.refused(&words("device delete safe0 --erase"), "say --yes");
    target.refused(&words("device delete f0 --erase --yes"), "is not encrypted");
    target.json(&words("device delete safe0 --erase --yes"));
    let header = &fs::read(scratch.join("f0.img")).expect("it is there")[..1 << 20];
    assert!(header.iter().all(|byte| *byte == 0));
    // The same key makes another device.
    let create = format!("device create safe0 --kind crypt --device f0 --key {a}");
    target.json(&words(&create));
}

#[test]
fn a_file_makes_an_encrypted_device_and_changes_nothing_of_it() {
    let scratch = Scratch::new("crypt-file");
    secret(&scratch, "k", &"k".repeat(32));
    // The layer stands before the device that it is on, and paths are meant from the file.
    let file = scratch.file(
        "f.toml",
        "[[device]]\nname = \"safe0\"\nkind = \"crypt\"\ndevice = \"f0\"\nkey = \"file:k\"\n\n\
         [[device]]\nname = \"f0\"\nkind = \"file\"\npath = \"f0.img\"\nsize = \"64MiB\"\n\n\
         [[pool]]\nname = \"p\"\ndevices = [\"safe0\"]\n",
    );
    let target = Target::start(&scratch, &[]);
    let plan = target.json(&["apply", path(&file), "--plan"]);
    assert_eq!(plan["changes"][0]["name"], "f0", "{plan}");
    assert_eq!(plan["changes"][1]["name"], "safe0", "{plan}");
    target.json(&["apply", path(&file)]);
    let again = target.json(&["apply", path(&file), "--plan"]);
    assert_eq!(changed(&again), [""; 0], "{again}");
    let exported = String::from_utf8(target.run(&["export"]).stdout).expect("text");
    assert!(
        exported.contains("kind = \"crypt\"") && exported.contains("/k\""),
        "{exported}"
    );
    // A file does not change the key.
    let other = fs::read_to_string(&file)
        .expect("it is there")
        .replace("file:k", "file:other");
    let other = scratch.file("g.toml", &other);
    target.refused(
        &["apply", path(&other)],
        "flashyard device rekey safe0 --key",
    );
}

/// The target is killed at any moment of a change of the key: one of both opens the device, and it
/// is the one that the target has noted.
#[test]
fn a_kill_while_the_key_is_changed_locks_nobody_out() {
    let scratch = Scratch::new("crypt-killed");
    let keys = ["a", "b"].map(|letter| key(&scratch, letter));
    let mut target = encrypted(&scratch, &keys[0]);
    let rounds = std::env::var("FLASHYARD_ROUNDS").map_or(1, |it| it.parse().expect("a number"));
    let mut rng = Rng::new(5);
    for round in 0..KILLS * rounds {
        let to = &keys[(round as usize + 1) % 2];
        let mut rekey = Command::new(PROGRAM)
            .args(["device", "rekey", "safe0", "--key", to, "--state"])
            .arg(&target.state)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        thread::sleep(Duration::from_micros(rng.below(60_000)));
        target.kill();
        let _ = rekey.wait();
        target = Target::start(&scratch, &[]);
        assert_eq!(
            state(&target),
            ("online".to_owned(), String::new()),
            "round {round}"
        );
    }
    verify(&target);
}
