//! Mapped pools on parity from the command line: made, refused where they cannot be, without a
//! member, with another one, and found again.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::content::{bytes, fill};
use crate::rig::{PROGRAM, Scratch, Target, answer, path, target_perf};

/// Makes devices `d0`, `d1`, ... on files.
fn devices(target: &Target, scratch: &Scratch, count: usize) {
    for number in 0..count {
        let name = format!("d{number}");
        let image = scratch.join(format!("{name}.img"));
        let file = ["--kind", "file", "--path", path(&image), "--size", "48MiB"];
        target.json(&[&["device", "create", &name], &file[..]].concat());
    }
}

/// Tenant `db` with a volume in pool `p`.
fn volume(target: &Target) -> Value {
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = ["volume", "create", "v", "--pool", "p", "--size", "8MiB"];
    target.json(&[&volume[..], &["--tenant", "db"]].concat())
}

fn show(target: &Target) -> Value {
    target.json(&["pool", "show", "p"])
}

/// How many members of pool `p` are in a state.
fn count(target: &Target, state: &str) -> usize {
    let pool = show(target);
    let members = pool["members"].as_array().expect("a list").iter();
    members.filter(|member| member["state"] == state).count()
}

/// A new volume with this number keeps what is written to it.
fn verify(target: &Target, nsid: u32) {
    let (name, nsid) = (format!("x{nsid}"), nsid.to_string());
    let volume = ["volume", "create", &name, "--pool", "p", "--size", "4MiB"];
    let made = target.json(&[&volume[..], &["--tenant", "db"]].concat());
    assert_eq!(made["nsid"].to_string(), nsid, "{made}");
    let report = target_perf(target, &["--nsid", &nsid, "--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0, "{report}");
}

#[test]
fn what_cannot_be_on_parity_is_refused_and_nothing_is_left_of_it() {
    let scratch = Scratch::new("parity-refused");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 4);
    let create = ["pool", "create", "p", "--redundancy"];
    let raw = [&create[..], &["raid5", "--devices", "d0,d1,d2"]].concat();
    target.refused(&raw, "a pool `--kind mapped`");
    let mapped = ["--kind", "mapped", "--devices"];
    let few = [&create[..], &["parity"], &mapped[..], &["d0,d1"]].concat();
    target.refused(&few, "give 3 to 16");
    let few = [&create[..], &["raid6"], &mapped[..], &["d0,d1,d2"]].concat();
    target.refused(&few, "give 4 to 16");
    let unknown = target.run(&[&create[..], &["raid50", "--devices", "d0,d1,d2"]].concat());
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let why = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(why.contains("`parity` (raid5)"), "{why}");
    let made = target.json(&[&create[..], &["raid5"], &mapped[..], &["d0,d1,d2"]].concat());
    assert_eq!(made["kind"], "mapped");
    target.json(&["pool", "delete", "p"]);
    let made = target.json(&[&create[..], &["raid6"], &mapped[..], &["d0,d1,d2,d3"]].concat());
    assert_eq!(made["kind"], "mapped");
    let layer = ["device", "create", "x", "--kind", "fault", "--device", "p"];
    target.refused(&layer, "is used by");
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_pool_on_parity_goes_on_without_a_member_and_another_takes_its_place() {
    let scratch = Scratch::new("parity-replace");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 5);
    let bad = [
        "device", "create", "bad", "--kind", "fault", "--device", "d2",
    ];
    target.json(&bad);
    let create = ["pool", "create", "p", "--kind", "mapped", "--redundancy"];
    target.json(&[&create[..], &["parity", "--devices", "d0,d1,bad"]].concat());
    let made = volume(&target);
    fill(&target, &made, 7);
    // It lies: what it tells wrong is computed, and counted.
    let set = ["device", "set", "bad", "--fault"];
    target.json(&[&set[..], &["poison,rate=5%,on=write,from=12MiB"]].concat());
    verify(&target, 2);
    target.json(&["device", "set", "bad", "--no-faults"]);
    target.json(&["pool", "scrub", "p"]);
    while show(&target)["scrub"]["scrub_state"] == "running" {}
    let pool = show(&target);
    assert_eq!(pool["scrub"]["unresolved"], 0, "{pool}");
    let wrong = |at: usize| {
        pool["members"][at]["wrong_reads"]
            .as_u64()
            .expect("a number")
    };
    assert!(wrong(2) > 0 && wrong(0) + wrong(1) == 0, "{pool}");
    // It fails.
    target.json(&[&set[..], &["error,rate=100%,on=write"]].concat());
    verify(&target, 3);
    assert_eq!(count(&target, "failed"), 1);
    verify(&target, 4);
    assert_eq!(bytes(&target, &made), [7].into());
    target.refused(
        &["pool", "remove", "p", "--device", "d0"],
        "replace it instead",
    );
    target.json(&["pool", "replace", "p", "--device", "bad", "--with", "d3"]);
    while count(&target, "active") < 3 {}
    verify(&target, 5);
    // A spare takes the place of the next one.
    target.json(&["pool", "add", "p", "--spare", "d4"]);
    assert_eq!(count(&target, "spare"), 1);
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_pool_on_parity_is_found_again_without_a_member_and_not_without_two() {
    let scratch = Scratch::new("parity-lost");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 4);
    let create = [
        "pool",
        "create",
        "p",
        "--kind",
        "mapped",
        "--redundancy",
        "parity",
    ];
    target.json(&[&create[..], &["--devices", "d0,d1,d2"]].concat());
    let made = volume(&target);
    fill(&target, &made, 9);
    let kept = scratch.join("kept.toml");
    let exported = target.run(&["export", "--output", path(&kept)]);
    assert!(exported.status.success(), "{exported:?}");
    let text = fs::read_to_string(&kept).expect("it was written");
    assert!(text.contains("redundancy = \"parity\""), "{text}");
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    let target = Target::start(&scratch, &["--config", path(&kept)]);
    let import = ["pool", "import", "p", "--devices"];
    target.refused(&[&import[..], &["d2"]].concat(), "bring");
    let imported = target.json(&[&import[..], &["d2,d3,d0"]].concat());
    let notes = imported["notes"].to_string();
    assert!(notes.contains("device d3: it is no member"), "{notes}");
    assert_eq!(bytes(&target, &made), [9].into());
    verify(&target, 2);
    let state = show(&target);
    assert_eq!(count(&target, "failed"), 1, "{state}");
    target.json(&["pool", "replace", "p", "--device", "d1", "--with", "d1"]);
    while count(&target, "active") < 3 {}
    assert_eq!(target.terminate(), 0);
    // The state is kept this time.
    let target = Target::start(&scratch, &[]);
    assert_eq!(count(&target, "active"), 3);
    verify(&target, 3);
    assert_eq!(target.terminate(), 0);
}

/// It grows by whole sets. Each bears the loss of a member, and all of it is found again.
#[test]
fn a_pool_on_parity_grows_by_sets() {
    let scratch = Scratch::new("parity-grow");
    let target = Target::start(&scratch, &[]);
    devices(&target, &scratch, 8);
    let create = ["pool", "create", "p", "--kind", "mapped", "--redundancy"];
    let parity = [&create[..], &["parity", "--devices"]].concat();
    let columns = |devices: &'static str, count: &'static str| {
        [&parity[..], &[devices, "--columns", count]].concat()
    };
    target.refused(&columns("d0,d1,d2,d3", "3"), "give a multiple of 3");
    target.refused(&columns("d0,d1,d2,d3", "2"), "give 3 to 16");
    let mirror = [&create[..], &["mirror", "--devices", "d0,d1"]].concat();
    target.refused(&[&mirror[..], &["--columns", "2"]].concat(), "of parity");
    let before = target.json(&[&parity[..], &["d0,d1,d2"]].concat());
    let made = volume(&target);
    fill(&target, &made, 7);
    let add = ["pool", "add", "p", "--devices"];
    target.refused(&[&add[..], &["d3,d4"]].concat(), "give 3 or a multiple");
    let after = target.json(&[&add[..], &["d3,d4,d5"]].concat());
    let size = |pool: &Value| pool["size"].as_u64().expect("a size");
    assert!(size(&after) > size(&before) + (64 << 20), "{after}");
    assert_eq!(count(&target, "active"), 6);
    let device = target.json(&["device", "show", "p"]);
    assert_eq!(device["columns"], 3, "{device}");
    verify(&target, 2);
    let replace = ["pool", "replace", "p", "--device", "d4", "--with", "d6"];
    target.json(&replace);
    while count(&target, "active") < 6 || show(&target)["members"].to_string().contains("d4") {}
    let kept = scratch.join("kept.toml");
    let exported = target.run(&["export", "--output", path(&kept)]);
    assert!(exported.status.success(), "{exported:?}");
    target.kill();
    fs::remove_dir_all(scratch.join("state")).expect("it is ours");

    // One of each set is missing, and the others are given in any order.
    let target = Target::start(&scratch, &["--config", path(&kept)]);
    let import = ["pool", "import", "p", "--devices"];
    target.refused(&[&import[..], &["d5,d0,d2"]].concat(), "bring");
    target.json(&[&import[..], &["d5,d0,d2,d6"]].concat());
    assert_eq!(bytes(&target, &made), [7].into());
    assert_eq!(count(&target, "failed"), 2);
    let device = target.json(&["device", "show", "p"]);
    assert_eq!(device["columns"], 3, "{device}");
    for device in ["d1", "d3"] {
        target.json(&["pool", "replace", "p", "--device", device]);
        while show(&target)["rebuild_percent"] != Value::Null {}
    }
    while count(&target, "active") < 6 {}
    verify(&target, 3);
    assert_eq!(target.terminate(), 0);
    // A member says so by itself.
    let output = Command::new(PROGRAM)
        .args(["check", path(&scratch.join("d5.img")), "--json"])
        .output();
    let report = answer(&output.expect("the program starts"));
    let members = report["members"].as_array().expect("a list").iter();
    let of_set = |set: u64| members.clone().filter(|it| it["set"] == set).count();
    assert_eq!((of_set(0), of_set(1)), (3, 3), "{report}");
}

/// A pool of two sets is made at once, also from a file.
#[test]
fn a_pool_on_several_sets_of_parity_is_made_from_a_file() {
    let scratch = Scratch::new("parity-sets");
    let file = scratch.join("target.toml");
    let device = |number: usize| {
        let image = scratch.join(format!("d{number}.img"));
        let image = path(&image);
        format!(
            "[[device]]\nname = \"d{number}\"\nkind = \"file\"\npath = \"{image}\"\nsize = \"48MiB\"\n"
        )
    };
    let mut text: String = (0..6).map(device).collect();
    text += "[[device]]\nname = \"p\"\nkind = \"array\"\nredundancy = \"parity\"\ncolumns = 3\n";
    text += "devices = [\"d0\", \"d1\", \"d2\", \"d3\", \"d4\", \"d5\"]\n";
    text += "[[pool]]\nname = \"p\"\ndevices = [\"p\"]\nkind = \"mapped\"\n";
    fs::write(&file, &text).expect("it is ours");
    let target = Target::start(&scratch, &["--config", path(&file)]);
    let members = show(&target)["members"].clone();
    let sets = members.as_array().expect("a list").iter();
    let sets: Vec<_> = sets.map(|member| member["set"].as_u64()).collect();
    let expected = [0, 0, 0, 1, 1, 1].map(Some);
    assert_eq!(sets, expected, "{members}");
    volume(&target);
    verify(&target, 2);
    assert_eq!(target.terminate(), 0);
    // The file is the same.
    let target = Target::start(&scratch, &["--config", path(&file)]);
    verify(&target, 3);
    target.json(&["apply", path(&file)]);
    assert_eq!(target.terminate(), 0);
}
