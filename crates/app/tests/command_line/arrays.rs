//! Pools of several devices from the command line: members that go, come back, are exchanged, lie
//! and are found again.

use std::fs;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{Scratch, Target, names, path, target_perf};

/// Makes devices `d0`, `d1`, ... on files.
fn devices(target: &Target, scratch: &Scratch, count: usize) {
    for number in 0..count {
        let name = format!("d{number}");
        let image = scratch.join(format!("{name}.img"));
        let file = ["--kind", "file", "--path", path(&image), "--size", "64MiB"];
        target.json(&[&["device", "create", &name], &file[..]].concat());
    }
}

/// Tenant `db` with a volume in pool `p`.
fn volume(target: &Target) -> Value {
    target.json(&["tenant", "create", "db", "--host", "*"]);
    create(target, "v", "8MiB")
}

fn create(target: &Target, name: &str, size: &str) -> Value {
    let volume = ["volume", "create", name, "--pool", "p", "--size", size];
    target.json(&[&volume[..], &["--tenant", "db"]].concat())
}

/// The members of pool `p`, each with its state.
fn members(target: &Target) -> Vec<(String, String)> {
    let pool = target.json(&["pool", "show", "p"]);
    let text = |member: &Value, key: &str| member[key].as_str().expect("text").to_owned();
    let members = pool["members"].as_array().expect("a list").iter();
    members
        .map(|member| (text(member, "device"), text(member, "state")))
        .collect()
}

fn wait_for(target: &Target, wanted: &[(&str, &str)]) {
    let is_so = |found: &[(String, String)]| {
        let found = found.iter().map(|(device, state)| (&**device, &**state));
        found.eq(wanted.iter().copied())
    };
    while !is_so(&members(target)) {}
}

/// No I/O of an empty volume fails, and what is read is what was written.
fn verify(target: &Target, nsid: &str) {
    let report = target_perf(target, &["--nsid", nsid, "--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0, "{report}");
}

#[test]
fn members_are_exchanged_lost_and_added_and_nothing_of_a_volume_is() {
    let scratch = Scratch::new("arrays");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 6);
    let mirror = ["pool", "create", "p", "--redundancy", "mirror", "--devices"];
    target.refused(&[&mirror[..], &["d0"]].concat(), "give a multiple of 2");
    target.refused(&[&mirror[..], &["d0,d0"]].concat(), "d0");
    let pool = target.json(&[&mirror[..], &["d0,d1"]].concat());
    assert_eq!(pool["state"], "online");
    let made = volume(&target);
    verify(&target, "1");
    fill(&target, &made, 7);

    let by_d2 = ["pool", "replace", "p", "--device", "d1", "--with", "d2"];
    target.json(&by_d2);
    wait_for(&target, &[("d0", "active"), ("d2", "active")]);
    target.json(&["pool", "add", "p", "--spare", "d3"]);
    target.refused(&["pool", "add", "p", "--devices", "d3,d4"], "d3");
    assert_eq!(target.terminate(), 0);

    // One that is missing may have had later data than the others, if they were used without them.
    let (here, away) = (scratch.join("d2.img"), scratch.join("d2.away"));
    fs::rename(&here, &away).expect("it is ours");
    let target = Target::start(&scratch, &[]);
    let pool = target.json(&["pool", "show", "p"]);
    let fault = pool["fault"].as_str().unwrap_or_default();
    assert!(fault.contains("pool start POOL --degraded"), "{pool}");
    target.json(&["pool", "start", "p", "--degraded"]);
    wait_for(&target, &[("d0", "active"), ("d3", "active")]);
    assert_eq!(bytes(&target, &made), [7].into());
    fill(&target, &made, 8);
    assert_eq!(target.terminate(), 0);

    // It comes back with old data.
    fs::rename(&away, &here).expect("it is ours");
    let target = Target::start(&scratch, &[]);
    let pool = target.json(&["pool", "show", "p"]);
    let note = "device d2 was a member once and is not any more";
    assert!(pool["notes"].to_string().contains(note), "{pool}");
    assert_eq!(bytes(&target, &made), [8].into());
    let before = pool["size"].as_u64().expect("a size");
    let grown = target.json(&["pool", "add", "p", "--devices", "d4,d5"]);
    assert!(
        grown["size"].as_u64() > Some(before + (32 << 20)),
        "{grown}"
    );
    create(&target, "w", "80MiB");
    verify(&target, "2");
    assert_eq!(bytes(&target, &made), [8].into());
    assert_eq!(target.terminate(), 0);
}

/// What a rebuild gets is said when a pool is made, in a file, or while it is used, and is kept
/// over a restart; where nothing is ever rebuilt it is refused.
#[test]
fn what_a_rebuild_gets_is_set_shown_and_kept() {
    let scratch = Scratch::new("arrays-priority");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 6);
    let made = ["pool", "create", "p", "--devices", "d0,d1"];
    let priority = |pool: &Value| pool["rebuild_priority"].clone();
    let flag = ["--rebuild-priority", "high"];
    let plain = "without redundancy nothing is rebuilt";
    target.refused(&[&made[..], &flag].concat(), plain);
    let mirror = ["--redundancy", "mirror"];
    let pool = target.json(&[&made[..], &mirror, &flag].concat());
    assert_eq!(priority(&pool), "high");
    let low = ["--rebuild-priority", "low", "--rebuild-limit", "50MB/s"];
    let pool = target.json(&[&["pool", "set", "p"], &low[..]].concat());
    assert_eq!(priority(&pool), "low");
    assert_eq!(pool["rebuild_limit"], 50_000_000);
    assert_eq!(target.terminate(), 0);

    let target = Target::start(&scratch, &[]);
    let pool = target.json(&["pool", "show", "p"]);
    assert_eq!(priority(&pool), "low");
    assert_eq!(pool["rebuild_limit"], 50_000_000);
    let device = target.json(&["device", "show", "p"]);
    assert_eq!(priority(&device), "low");
    let file = scratch.join("kept.toml");
    target.json(&["export", "--output", path(&file)]);
    let text = fs::read_to_string(&file).expect("it was written");
    let low = "rebuild_priority = \"low\"";
    for (said, becomes) in [("rebuild_priority = \"high\"", "high"), ("", "auto")] {
        fs::write(&file, text.replace(low, said)).expect("it is ours");
        target.json(&["apply", path(&file)]);
        let pool = target.json(&["pool", "show", "p"]);
        assert_eq!(priority(&pool), becomes, "{text}");
        assert_eq!(pool["rebuild_limit"], 50_000_000);
    }
    fs::write(&file, text.replace(low, "rebuild_priority = \"x\"")).expect("it is ours");
    target.refused(
        &["apply", path(&file)],
        "expected one of `auto`, `low`, `high`",
    );

    let limit = |limit| ["pool", "set", "p", "--rebuild-limit", limit];
    target.refused(&limit("10KB/s"), "give 1MB/s or more");
    assert_eq!(target.json(&limit("none"))["rebuild_limit"], Value::Null);
    // While a device is replaced, too: that is when it matters.
    volume(&target);
    target.json(&limit("1MB/s"));
    target.json(&["pool", "replace", "p", "--device", "d1", "--with", "d2"]);
    target.json(&limit("none"));
    wait_for(&target, &[("d0", "active"), ("d2", "active")]);
    target.json(&["pool", "create", "one", "--device", "d5"]);
    let set = ["pool", "set", "one", "--rebuild-priority", "low"];
    target.refused(&set, "several devices");
    target.json(&["pool", "create", "two", "--devices", "d3,d4"]);
    let set = ["pool", "set", "two", "--rebuild-priority", "low"];
    target.refused(&set, plain);
    let pool = target.json(&["pool", "show", "two"]);
    assert_eq!(priority(&pool), Value::Null);
    assert_eq!(target.terminate(), 0);
}

/// Members know their array: in any order, and not with one that is foreign.
#[test]
fn a_pool_of_several_devices_is_found_again_when_the_state_is_lost() {
    let scratch = Scratch::new("arrays-lost");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 4);
    target.json(&["pool", "create", "p", "--devices", "d0,d1,d2"]);
    let made = volume(&target);
    fill(&target, &made, 9);
    let kept = scratch.join("kept.toml");
    let exported = target.run(&["export", "--output", path(&kept)]);
    assert!(exported.status.success(), "{exported:?}");
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    let target = Target::start(&scratch, &["--config", path(&kept)]);
    target.refused(
        &["volume", "show", "v"],
        "pool `p`, which is to be imported first",
    );
    let import = ["pool", "import", "p", "--devices"];
    target.refused(&[&import[..], &["d0,d1"]].concat(), "bring d2 back");
    let imported = target.json(&[&import[..], &["d2,d3,d0,d1"]].concat());
    assert!(imported.get("kind").is_none(), "{imported}");
    let notes = imported["notes"].to_string();
    assert!(
        notes.contains("device d3: it is no member of an array"),
        "{notes}"
    );
    // It is not kept as one, so it is free for other use.
    target.json(&["pool", "create", "q", "--device", "d3"]);
    assert_eq!(names(&target.json(&["volume", "list"])), ["v"]);
    assert_eq!(bytes(&target, &made), [9].into());
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_mapped_pool_uses_members_that_are_added_and_keeps_them() {
    let scratch = Scratch::new("arrays-mapped");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 4);
    let create = ["pool", "create", "p", "--kind", "mapped", "--redundancy"];
    let made = target.json(&[&create[..], &["raid1", "--devices", "d0,d1"]].concat());
    assert_eq!(made["kind"], "mapped");
    volume(&target);
    verify(&target, "1");
    let size = |target: &Target| target.json(&["pool", "show", "p"])["size"].as_u64();
    let before = size(&target);
    target.json(&["pool", "add", "p", "--devices", "d2,d3"]);
    assert_eq!(members(&target).len(), 4);
    let after = size(&target);
    assert!(
        after > before.map(|bytes| bytes * 3 / 2),
        "{before:?} {after:?}"
    );
    verify(&target, "1");
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(size(&target), after);
    verify(&target, "1");
    assert_eq!(target.terminate(), 0);
}

/// One of two copies lies: a mapped pool knows which, and its scrub puts right what it keeps wrong.
#[test]
fn a_mapped_pool_on_a_mirror_never_reads_what_one_member_has_changed() {
    let scratch = Scratch::new("arrays-mapped-lies");
    let target = Target::start(&scratch, &[]);
    for name in ["m0", "m1"] {
        target.json(&[
            "device", "create", name, "--kind", "memory", "--size", "64MiB",
        ]);
    }
    let layer = ["device", "create", "bad", "--kind", "fault", "--device"];
    target.json(&[&layer[..], &["m1"]].concat());
    let create = ["pool", "create", "p", "--kind", "mapped", "--devices"];
    let how = ["m0,bad", "--redundancy", "mirror"];
    target.json(&[&create[..], &how].concat());
    volume(&target);
    let set = ["device", "set", "bad", "--fault"];
    // Behind the superblocks of the pool.
    let lies = "poison,rate=5%,on=write,from=8MiB";
    target.json(&[&set[..], &[lies]].concat());
    verify(&target, "1");
    target.json(&["device", "set", "bad", "--no-faults"]);
    target.json(&["pool", "scrub", "p"]);
    let scrub = || target.json(&["pool", "show", "p"])["scrub"].clone();
    while scrub()["scrub_state"] == "running" {}
    let found = scrub();
    assert!(found["repaired"].as_u64() > Some(0), "{found}");
    assert_eq!(found["unresolved"], 0, "{found}");
    let pool = target.json(&["pool", "show", "p"]);
    assert_eq!(pool["members"][0]["wrong_reads"], 0, "{pool}");
    assert!(
        pool["members"][1]["wrong_reads"].as_u64() > Some(0),
        "{pool}"
    );
    verify(&target, "1");
    assert_eq!(target.terminate(), 0);
}

/// One of three copies lies: with safe read no host ever sees it, and it is counted.
#[test]
fn safe_read_finds_the_copy_that_differs() {
    let scratch = Scratch::new("arrays-safe");
    let target = Target::start(&scratch, &[]);
    for name in ["m0", "m1", "m2"] {
        target.json(&[
            "device", "create", name, "--kind", "memory", "--size", "64MiB",
        ]);
    }
    let layer = ["device", "create", "bad", "--kind", "fault", "--device"];
    target.json(&[&layer[..], &["m2"]].concat());
    let create = ["pool", "create", "p", "--devices", "m0,m1,bad"];
    let how = ["--redundancy", "mirror", "--copies", "3", "--safe-read"];
    target.json(&[&create[..], &how].concat());
    volume(&target);
    let set = ["device", "set", "bad", "--fault", "poison,rate=5%,on=read"];
    target.json(&set);
    verify(&target, "1");
    let pool = target.json(&["pool", "show", "p"]);
    assert!(pool["mismatches"].as_u64() > Some(0), "{pool}");
    assert_eq!(pool["unresolved"], 0, "{pool}");
    assert_eq!(target.terminate(), 0);
}
