//! Mapped pools and volumes from the command line: made, filled, killed, checked and taken over.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{
    PROGRAM, Scratch, Target, answer, expect_failure, path, target_perf, target_perf_output,
};

/// A target with a mapped pool `p` on a file, and tenant `db`.
fn with_pool(scratch: &Scratch, size: &str) -> Target {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("d.img");
    let device = ["--kind", "file", "--path", path(&image), "--size", size];
    target.json(&[&["device", "create", "d"], &device[..]].concat());
    let pool = target.json(&["pool", "create", "p", "--device", "d", "--kind", "mapped"]);
    assert_eq!(pool["kind"], "mapped", "{pool}");
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target
}

fn create(target: &Target, name: &str, size: &str) -> Value {
    let args = ["--pool", "p", "--size", size, "--tenant", "db"];
    target.json(&[&["volume", "create", name], &args[..]].concat())
}

/// What `check` says of the file of the pool.
fn check(scratch: &Scratch) -> Value {
    let image = scratch.join("d.img");
    let output = Command::new(PROGRAM)
        .args(["check", path(&image), "--json"])
        .output()
        .expect("the program starts");
    answer(&output)
}

#[test]
fn a_mapped_volume_keeps_its_data_over_a_kill_and_is_larger_than_its_pool() {
    let scratch = Scratch::new("mapped");
    let target = with_pool(&scratch, "128MiB");
    let thin = create(&target, "thin", "1TiB");
    let a = create(&target, "a", "8MiB");
    assert_eq!(thin["block_size"], 4096);
    let pool = target.json(&["pool", "show", "p"]);
    assert!(pool["logical_bytes"].as_u64() > pool["size"].as_u64());
    let report = target_perf(&target, &["--nsid", "2", "--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0, "{report}");
    fill(&target, &a, 7);
    target.kill();

    let target = Target::start(&scratch, &[]);
    let a = target.json(&["volume", "show", "a"]);
    assert_eq!(bytes(&target, &a), [7].into());
    assert_eq!(target.terminate(), 0);
    let report = check(&scratch);
    assert_eq!(
        (&report["verdict"], &report["kind"]),
        (&"sound".into(), &"mapped".into()),
        "{report}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let scratch = Scratch::new("mapped-refused");
    let target = Target::start(&scratch, &[]);
    for (name, size) in [("small", "16MiB"), ("large", "64MiB")] {
        target.json(&["device", "create", name, "--kind", "memory", "--size", size]);
    }
    target.json(&["tenant", "create", "db"]);
    let pool = ["pool", "create", "p", "--kind", "mapped", "--device"];
    let on = |device| [&pool[..], &[device]].concat();
    target.refused(&on("small"), "a pool needs 33554432 bytes");
    target.json(&on("large"));
    target.json(&["pool", "create", "raw", "--device", "small"]);
    let volume = |pool, kind| {
        let place = ["volume", "create", "v", "--pool", pool, "--kind", kind];
        [&place[..], &["--size", "1MiB", "--tenant", "db"]].concat()
    };
    target.refused(
        &volume("raw", "mapped"),
        "pool `raw` is raw; make a pool with --kind mapped",
    );
    target.refused(
        &volume("p", "raw"),
        "leave the kind out, or name a raw pool",
    );
    expect_failure(
        &target.run(&volume("p", "fast")),
        2,
        "possible values: raw, mapped",
    );
    let made = target.json(&volume("p", "mapped"));
    assert_eq!(made["name"], "v");
    let odd = [
        "volume", "create", "w", "--pool", "p", "--size", "1025KiB", "--tenant", "db",
    ];
    target.refused(&odd, "a multiple of 4096 bytes");
    assert_eq!(target.terminate(), 0);
}

/// The target after its state was lost, with the device of the pool and the tenant again.
fn without_state(scratch: &Scratch, target: Target) -> Target {
    target.kill();
    std::fs::remove_dir_all(scratch.join("state")).expect("it was there");
    let target = Target::start(scratch, &[]);
    let image = scratch.join("d.img");
    let create = ["device", "create", "d", "--kind", "file", "--path"];
    target.json(&[&create[..], &[path(&image)]].concat());
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target
}

#[test]
fn a_lost_state_is_not_lost_names_tenants_and_identities() {
    let scratch = Scratch::new("mapped-import");
    let target = with_pool(&scratch, "64MiB");
    target.json(&["tenant", "create", "web"]);
    let nguid = "2f0d1c4652c54b0f9a1c0d3a5f2b7e11";
    let args = "volume create a --pool p --size 1MiB --tenant db --nsid 5";
    let args: Vec<&str> = args.split(' ').chain(["--nguid", nguid]).collect();
    let a = target.json(&args);
    fill(&target, &a, 9);
    let b = create(&target, "b", "2MiB");
    target.json(&[
        "volume", "move", "b", "--tenant", "web", "--nsid", "8", "--yes",
    ]);
    let target = without_state(&scratch, target);
    let import = ["pool", "import", "p", "--device", "d"];
    let listed = target.json(&[&import[..], &["--list"]].concat());
    let notes = listed["notes"].as_array().expect("a list");
    assert_eq!(
        notes[1], "volume b was tenant `web`'s, with nsid 8",
        "{listed}"
    );
    let imported = target.json(&import);
    let notes = imported["notes"].as_array().expect("a list");
    assert_eq!(notes.len(), 1, "{imported}");
    let again = target.json(&["volume", "show", "a"]);
    for key in ["uuid", "nguid", "nsid", "tenant", "size"] {
        assert_eq!(again[key], a[key], "{key}");
    }
    assert_eq!(bytes(&target, &again), [9].into());
    target.json(&["tenant", "create", "web"]);
    let given = ["volume", "import", "b", "--pool", "p", "--tenant", "web"];
    let given = target.json(&given);
    assert_eq!((&given["uuid"], &given["nsid"]), (&b["uuid"], &8.into()));
    let note = given["note"].as_str().expect("a note");
    assert!(note.ends_with("its nsid is 8"), "the pool knows it: {note}");
    assert_eq!(target.json(&["pool", "show", "p"])["kind"], "mapped");
    assert_eq!(target.terminate(), 0);
}

/// Changes a header of the log whose batch was flushed before others were written, and the footer
/// that repeats it.
fn damage_log(scratch: &Scratch) {
    let mut options = File::options();
    let image = options.read(true).write(true).open(scratch.join("d.img"));
    let image = image.expect("it is there");
    let block = |number: u64| {
        let mut bytes = [0; 64];
        let read = image.read_exact_at(&mut bytes, number * 4096);
        read.expect("it is in the file");
        bytes
    };
    let field = |bytes: &[u8], at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let mut headers = Vec::new();
    for number in 0..(256 << 20) / 4096 {
        let bytes = block(number);
        if bytes[8..12] == *b"FYLB" {
            let within = u64::from(bytes[56]);
            headers.push((field(&bytes, 16), field(&bytes, 48), number, within));
        }
    }
    headers.sort_unstable();
    let flushed = headers.iter().map(|one| one.1).max();
    let proved = headers.iter().rfind(|one| Some(one.0) <= flushed);
    let (_, _, header, within) = *proved.expect("something was flushed");
    // Segments have 64 blocks, of which the last is the trailer of the footer.
    for number in [header, header - within + 63] {
        let at = number * 4096 + 20;
        let mut byte = [0];
        image.read_exact_at(&mut byte, at).expect("it is there");
        let changed = image.write_all_at(&[!byte[0]], at);
        changed.expect("it is there");
    }
}

#[test]
fn a_pool_that_has_lost_a_part_of_its_log_says_so_and_can_only_be_read() {
    let scratch = Scratch::new("mapped-log");
    let target = with_pool(&scratch, "256MiB");
    let volume = create(&target, "v", "1MiB");
    for byte in 1..3 {
        fill(&target, &volume, byte);
    }
    target.kill();
    damage_log(&scratch);
    let why = "a part of its log that was flushed";
    for _ in 0..2 {
        let target = Target::start(&scratch, &[]);
        for what in ["pool show p", "volume show v"] {
            let args: Vec<&str> = what.split(' ').collect();
            let shown = target.json(&args);
            assert_eq!(shown["state"], "read-only", "{shown}");
            let fault = shown["fault"].as_str().expect("it says why");
            assert!(fault.contains(why), "{fault}");
        }
        let found = bytes(&target, &target.json(&["volume", "show", "v"]));
        assert!(found.is_subset(&[0, 1].into()), "{found:?}");
        let args = ["volume", "create", "w", "--pool", "p", "--size", "1MiB"];
        let refused = target.run(&[&args[..], &["--tenant", "db"]].concat());
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(target.terminate(), 0);
    }
    let report = check(&scratch);
    assert_eq!(report["verdict"], "lost", "{report}");
    let problems = report["problems"].to_string();
    let why = "a part of the log that was flushed cannot be read";
    assert!(problems.contains(why), "{problems}");
}

#[test]
fn a_kill_at_any_moment_of_a_write_leaves_old_or_new_blocks() {
    let scratch = Scratch::new("mapped-killed");
    let mut target = with_pool(&scratch, "64MiB");
    let a = create(&target, "a", "4MiB");
    fill(&target, &a, 1);
    for round in 2..8_u8 {
        let id = target.child.id().to_string();
        let kill = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(round) * 7));
            let kill = Command::new("kill").args(["-9", &id]).status();
            assert!(kill.expect("kill exists").success());
        });
        let load = ["--nsid", "1", "--rw", "randwrite", "--verify"];
        // It ends with errors: its target goes away.
        drop(target_perf_output(&target, &load));
        kill.join().expect("it was killed");
        target.kill();
        assert_ne!(check(&scratch)["verdict"], "lost", "round {round}");
        target = Target::start(&scratch, &[]);
        let volume = target.json(&["volume", "show", "a"]);
        assert_eq!(volume["state"], "online", "{volume}");
        fill(&target, &a, round);
        assert_eq!(bytes(&target, &a), [round].into());
    }
    assert_eq!(target.terminate(), 0);
    assert_eq!(check(&scratch)["verdict"], "sound");
}

#[test]
fn a_compressed_volume_takes_less_keeps_its_data_and_is_found_as_it_was() {
    let scratch = Scratch::new("mapped-compressed");
    let target = with_pool(&scratch, "128MiB");
    let args = |name, more: &[&'static str]| {
        let place = ["volume", "create", name, "--pool", "p", "--size", "8MiB"];
        [&place[..], &["--tenant", "db"], more].concat()
    };
    let a = target.json(&args("a", &["--compression", "lz4"]));
    assert_eq!(
        (&a["compression"], &a["chunk_bytes"]),
        (&"lz4".into(), &16384.into()),
        "{a}"
    );
    let b = target.json(&args("b", &["--compression", "zstd", "--chunk", "4KiB"]));
    assert_eq!(b["chunk_bytes"], 4096, "{b}");
    let c = target.json(&args("c", &["--chunk", "16KiB", "--compression", "none"]));
    assert_eq!(
        (&c["compression"], &c["chunk_bytes"]),
        (&Value::Null, &16384.into()),
        "{c}"
    );
    for volume in [&a, &b, &c] {
        let nsid = volume["nsid"].to_string();
        let report = target_perf(&target, &["--nsid", &nsid, "--rw", "randrw", "--verify"]);
        assert_eq!(report["errors"], 0, "{report}");
        fill(&target, volume, 7);
    }
    target.kill();

    let target = Target::start(&scratch, &[]);
    for name in ["a", "b", "c"] {
        let volume = target.json(&["volume", "show", name]);
        assert_eq!(bytes(&target, &volume), [7].into(), "{volume}");
    }
    let pool = target.json(&["pool", "show", "p"]);
    let ratio = pool["compression_ratio"].as_f64();
    assert!(ratio.is_some_and(|ratio| ratio > 1.5), "{pool}");
    let target = without_state(&scratch, target);
    target.json(&["pool", "import", "p", "--device", "d"]);
    let again = target.json(&["volume", "show", "a"]);
    for key in ["compression", "chunk_bytes", "uuid", "size"] {
        assert_eq!(again[key], a[key], "{again}");
    }
    let exported = target.run(&["export"]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(exported.contains("compression = \"lz4\""), "{exported}");
    assert!(exported.contains("chunk = \"16KiB\""), "{exported}");
    assert_eq!(target.terminate(), 0);
    assert_eq!(check(&scratch)["verdict"], "sound");
}

#[test]
fn what_a_volume_cannot_be_compressed_as_is_refused() {
    let scratch = Scratch::new("mapped-form-refused");
    let target = with_pool(&scratch, "64MiB");
    target.json(&[
        "device", "create", "m", "--kind", "memory", "--size", "64MiB",
    ]);
    target.json(&["pool", "create", "raw", "--device", "m"]);
    let volume = |pool, size, more: &[&'static str]| {
        let place = ["volume", "create", "v", "--pool", pool, "--size", size];
        [&place[..], &["--tenant", "db"], more].concat()
    };
    target.refused(
        &volume("raw", "1MiB", &["--compression", "lz4"]),
        "use a pool of kind mapped",
    );
    target.refused(
        &volume("p", "1MiB", &["--chunk", "8KiB"]),
        "use 4KiB, or 16KiB",
    );
    target.refused(
        &volume("p", "1028KiB", &["--compression", "zstd"]),
        "a multiple of 16384 bytes",
    );
    expect_failure(
        &target.run(&volume("p", "1MiB", &["--compression", "best"])),
        2,
        "possible values: none, lz4, zstd",
    );
    target.json(&volume("raw", "1MiB", &["--compression", "none"]));
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_pool_takes_up_a_file_that_has_grown_and_refuses_it_when_it_is_cut() {
    let scratch = Scratch::new("mapped-grown");
    let target = with_pool(&scratch, "64MiB");
    let a = create(&target, "a", "8MiB");
    fill(&target, &a, 7);
    let size = |target: &Target| target.json(&["pool", "show", "p"])["size"].as_u64();
    let before = size(&target);
    assert_eq!(target.terminate(), 0);
    let resize = |bytes: u64| {
        let file = File::options().write(true).open(scratch.join("d.img"));
        let resized = file.expect("it is ours").set_len(bytes);
        resized.expect("there is space");
    };
    resize(192 << 20);
    let target = Target::start(&scratch, &[]);
    let after = size(&target);
    assert!(
        after > before.map(|bytes| 2 * bytes),
        "{before:?} {after:?}"
    );
    let a = target.json(&["volume", "show", "a"]);
    assert_eq!(bytes(&target, &a), [7].into());
    let b = create(&target, "b", "96MiB");
    fill(&target, &b, 9);
    target.kill();
    let report = check(&scratch);
    assert_ne!(report["verdict"], "lost", "{report}");

    let target = Target::start(&scratch, &[]);
    assert_eq!(size(&target), after);
    let b = target.json(&["volume", "show", "b"]);
    assert_eq!(bytes(&target, &b), [9].into());
    assert_eq!(target.terminate(), 0);
    // As large as the target was told it is, and not as large as the pool.
    resize(64 << 20);
    let target = Target::start(&scratch, &[]);
    let pool = target.json(&["pool", "show", "p"]);
    let why = pool["fault"].as_str().unwrap_or_default();
    assert!(why.contains("give it its size back"), "{pool}");
    target.terminate();
}

/// A file that is made larger while the target runs is taken up by a command, also below an
/// encrypted device; hosts go on meanwhile, and a pool on nothing larger stays as it is.
#[test]
fn a_pool_takes_up_a_file_that_grows_while_it_is_used() {
    let scratch = Scratch::new("mapped-grows");
    let target = with_pool(&scratch, "64MiB");
    let key = scratch.file("k", &"k".repeat(32));
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
    let (raw, key) = (scratch.join("e.img"), format!("file:{}", path(&key)));
    let below = ["--kind", "file", "--path", path(&raw), "--size", "64MiB"];
    target.json(&[&["device", "create", "e"], &below[..]].concat());
    let layer = ["--kind", "crypt", "--device", "e", "--key", &key];
    target.json(&[&["device", "create", "safe"], &layer[..]].concat());
    target.json(&["pool", "create", "q", "--device", "safe"]);
    let a = create(&target, "a", "8MiB");
    fill(&target, &a, 7);
    let size = |pool: &str| {
        let shown = target.json(&["pool", "show", pool]);
        shown["size"].as_u64().expect("it is open")
    };
    for (pool, image) in [("p", "d.img"), ("q", "e.img")] {
        let before = size(pool);
        target.json(&["pool", "grow", pool]);
        assert_eq!(size(pool), before, "nothing is larger");
        let file = File::options().write(true).open(scratch.join(image));
        file.expect("it is ours")
            .set_len(192 << 20)
            .expect("there is space");
        let grown = target.json(&["pool", "grow", pool]);
        assert_eq!(grown["size"].as_u64(), Some(size(pool)));
        assert!(size(pool) > 2 * before, "{before} {}", size(pool));
    }
    let after = [size("p"), size("q")];
    let b = create(&target, "b", "96MiB");
    fill(&target, &b, 9);
    let more = ["--pool", "q", "--size", "96MiB", "--tenant", "db"];
    let c = target.json(&[&["volume", "create", "c"], &more[..]].concat());
    assert_eq!(bytes(&target, &c), [0].into());
    assert_eq!(bytes(&target, &a), [7].into());
    target.kill();
    let target = Target::start(&scratch, &[]);
    for (pool, size) in ["p", "q"].into_iter().zip(after) {
        assert_eq!(target.json(&["pool", "show", pool])["size"], size);
    }
    let b = target.json(&["volume", "show", "b"]);
    assert_eq!(bytes(&target, &b), [9].into());
    assert_eq!(target.terminate(), 0);
    assert_ne!(check(&scratch)["verdict"], "lost");
}

/// A pool has compression and chunks for volumes that do not say theirs; what is exported makes the
/// same volumes elsewhere, whatever the pool has.
#[test]
fn a_pool_says_how_volumes_are_kept_that_do_not_say_it() {
    let scratch = Scratch::new("mapped-defaults");
    let target = with_pool(&scratch, "128MiB");
    let form = |target: &Target, name: &str| {
        let shown = target.json(&["volume", "show", name]);
        (shown["compression"].clone(), shown["chunk_bytes"].clone())
    };
    create(&target, "before", "8MiB");
    let set = target.json(&["pool", "set", "p", "--compression", "lz4"]);
    assert_eq!(
        (&set["compression"], &set["chunk_bytes"]),
        (&"lz4".into(), &Value::Null)
    );
    create(&target, "lz4", "8MiB");
    let more = ["--pool", "p", "--size", "8MiB", "--tenant", "db"];
    let made = |name: &str, own: &[&str]| {
        target.json(&[&["volume", "create", name], &more[..], own].concat());
    };
    made("plain", &["--compression", "none"]);
    made("short", &["--chunk", "4KiB"]);
    target.json(&["snapshot", "create", "plain@s"]);
    target.json(&["volume", "clone", "plain@s", "clone"]);
    let expected = [
        ("before", (Value::Null, 4096.into())),
        ("lz4", ("lz4".into(), 16384.into())),
        ("plain", (Value::Null, 4096.into())),
        ("short", ("lz4".into(), 4096.into())),
        // What is made of a snapshot is kept as that.
        ("clone", (Value::Null, 4096.into())),
    ];
    for (name, expected) in &expected {
        assert_eq!(form(&target, name), *expected, "{name}");
    }
    target.refused(
        &["pool", "set", "p", "--chunk", "8KiB"],
        "use 4KiB, or 16KiB",
    );
    let exported = String::from_utf8(target.run(&["export"]).stdout).expect("text");
    assert_eq!(target.terminate(), 0);

    std::fs::remove_dir_all(scratch.join("state")).expect("it is lost");
    std::fs::remove_file(scratch.join("d.img")).expect("it is there");
    let file = scratch.file("f.toml", &exported);
    let target = Target::start(&scratch, &[]);
    target.json(&["apply", path(&file)]);
    assert_eq!(target.json(&["pool", "show", "p"])["compression"], "lz4");
    for (name, expected) in &expected {
        assert_eq!(form(&target, name), *expected, "{name} of the file");
    }
    target.json(&[
        "pool",
        "set",
        "p",
        "--compression",
        "none",
        "--chunk",
        "16KiB",
    ]);
    target.kill();
    let target = Target::start(&scratch, &[]);
    create(&target, "long", "8MiB");
    assert_eq!(form(&target, "long"), (Value::Null, 16384.into()));
    target.refused(
        &[
            &["volume", "create", "odd", "--pool", "p", "--tenant", "db"][..],
            &["--size", "20KiB"],
        ]
        .concat(),
        "a block of its pool",
    );
}
