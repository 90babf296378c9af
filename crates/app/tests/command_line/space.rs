//! Reservations of volumes and quotas of tenants: set, refused, kept over kills, in files, and
//! found again when the state is lost.

use serde_json::Value;

use crate::rig::{Scratch, Target, changed, path};

const MIB: u64 = 1 << 20;

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// A target with a mapped pool `p` on a file, a raw one `r`, and tenant `db`.
fn with_pools(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    for (pool, kind) in [("p", "mapped"), ("r", "raw")] {
        let image = scratch.join(format!("{pool}.img"));
        let device = ["--kind", "file", "--path", path(&image), "--size", "64MiB"];
        target.json(&[&["device", "create", pool], &device[..]].concat());
        let named = ["pool", "create", pool, "--device", pool, "--kind", kind];
        target.json(&named);
    }
    target.json(&words("tenant create db --host * --quota p=8MiB"));
    target
}

fn reserved(target: &Target, volume: &str) -> Value {
    target.json(&["volume", "show", volume])["reserved_bytes"].clone()
}

fn quota(target: &Target) -> Value {
    target.json(&words("tenant show db"))["quotas"][0].clone()
}

#[test]
fn reservations_and_quotas_are_set_refused_and_kept_over_a_kill() {
    let scratch = Scratch::new("space");
    let target = with_pools(&scratch);
    let make = "volume create v --pool p --size 1GiB --tenant db --reserve";
    target.refused(&words(&format!("{make} 9MiB")), "only 8388608 are free");
    target.json(&words(&format!("{make} 3MiB")));
    assert_eq!(reserved(&target, "v"), 3 * MIB);
    assert_eq!(
        target.json(&words("pool show p"))["reserved_bytes"],
        3 * MIB
    );
    let now = quota(&target);
    assert_eq!(
        (&now["pool"], &now["quota_bytes"], &now["reserved_bytes"]),
        (&"p".into(), &(8 * MIB).into(), &(3 * MIB).into())
    );
    assert_eq!(now["space_hint"], Value::Null);
    target.refused(&words("volume set v --reserve 1GiB"), "cannot be reserved");
    target.json(&words("volume set v --reserve 7MiB"));
    let hint = quota(&target)["space_hint"].clone();
    let hint = hint.as_str().expect("it is nearly used");
    assert!(hint.starts_with("87 % of its quota in pool p"), "{hint}");
    for (typed, why) in [
        (
            "volume create w --pool r --size 1MiB --tenant db --reserve 1MiB",
            "a raw pool has no reservations",
        ),
        ("tenant set db --quota r=1GiB", "a raw pool has no quotas"),
        ("tenant set db --quota x=1GiB", "x"),
    ] {
        target.refused(&words(typed), why);
    }
    target.kill();
    let target = Target::start(&scratch, &[]);
    assert_eq!(reserved(&target, "v"), 7 * MIB);
    assert_eq!(quota(&target)["reserved_bytes"], 7 * MIB);
    target.refused(
        &words("volume set v --reserve 9MiB"),
        "only 8388608 are free",
    );
    target.json(&words("tenant rename db shop"));
    target.refused(
        &words("volume set v --reserve 9MiB"),
        "only 8388608 are free",
    );
    target.json(&words("tenant set shop --quota p=none"));
    target.json(&words("volume set v --reserve 9MiB"));
    target.json(&words("volume set v --reserve 0"));
    assert_eq!(reserved(&target, "v"), Value::Null);
}

#[test]
fn a_file_sets_them_takes_them_away_and_an_import_finds_what_is_reserved() {
    let scratch = Scratch::new("space-file");
    let target = with_pools(&scratch);
    let file = |tenant: &str, volume: &str| {
        let image = scratch.join("p.img");
        let text = format!(
            "[[device]]\nname = \"p\"\nkind = \"file\"\npath = {:?}\nsize = \"64MiB\"\n\
             [[pool]]\nname = \"p\"\ndevices = [\"p\"]\nkind = \"mapped\"\n\
             [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\n{tenant}\n\
             [[volume]]\nname = \"v\"\npool = \"p\"\nsize = \"1GiB\"\ntenant = \"db\"\n{volume}\n",
            path(&image)
        );
        scratch.file("flashyard.toml", &text)
    };
    let config = file("quota = { p = \"8MiB\" }", "reserve = \"2MiB\"");
    target.json(&["apply", path(&config)]);
    assert_eq!(reserved(&target, "v"), 2 * MIB);
    let config = file("quota = { p = \"6MiB\" }", "reserve = \"3MiB\"");
    let applied = target.json(&["apply", path(&config)]);
    assert_eq!(changed(&applied), ["tenant db quota.p", "volume v reserve"]);
    let config = file("quota = { p = \"6MiB\" }", "reserve = \"7MiB\"");
    target.refused(&["apply", path(&config)], "only 6291456 are free");
    assert_eq!(reserved(&target, "v"), 3 * MIB);
    let exported = target.run(&["export"]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(exported.contains("reserve = \"3MiB\""), "{exported}");
    assert!(exported.contains("p = \"6MiB\""), "{exported}");
    let config = file("", "");
    target.json(&["apply", path(&config)]);
    assert_eq!(reserved(&target, "v"), Value::Null);
    assert_eq!(quota(&target), Value::Null);
    target.json(&words("volume set v --reserve 5MiB"));
    target.terminate();
    let other = Scratch::new("space-import");
    let target = Target::start(&other, &[]);
    let image = scratch.join("p.img");
    let device = ["--kind", "file", "--path", path(&image)];
    target.json(&[&["device", "create", "p"], &device[..]].concat());
    target.json(&words("tenant create db"));
    target.json(&words("pool import p --device p"));
    assert_eq!(reserved(&target, "v"), 5 * MIB);
}

#[test]
fn a_volume_for_another_tenant_fits_its_quota_and_quotas_go_with_their_pool() {
    let scratch = Scratch::new("space-moved");
    let target = with_pools(&scratch);
    target.json(&words("tenant create lab --quota p=4MiB"));
    let quotas = |tenant: &str| target.json(&["tenant", "show", tenant])["quotas"].clone();
    target.json(&words(
        "volume create v --pool p --size 1GiB --tenant db --reserve 3MiB",
    ));
    target.json(&words(
        "volume create w --pool p --size 1GiB --tenant db --reserve 2MiB",
    ));
    target.json(&words("volume move v --tenant lab --yes"));
    assert_eq!(quotas("lab")[0]["reserved_bytes"], 3 * MIB);
    target.refused(
        &words("volume move w --tenant lab --yes"),
        "takes 2097152 bytes of pool `p` and the quota of tenant `lab` there leaves 1048576",
    );
    let shown = target.json(&words("volume show w"));
    assert_eq!(
        (&shown["tenant"], &shown["state"]),
        (&"db".into(), &"online".into())
    );
    target.json(&words("tenant set lab --quota p=5MiB"));
    target.json(&words("volume move w --tenant lab --yes"));
    for volume in ["v", "w"] {
        target.json(&["volume", "delete", volume, "--yes"]);
    }
    target.json(&words("pool delete p"));
    assert_eq!((quotas("lab"), quotas("db")), (Value::Null, Value::Null));
    target.kill();
    let target = Target::start(&scratch, &[]);
    let shown = target.json(&words("tenant show lab"));
    assert_eq!(shown["quotas"], Value::Null, "{shown}");
    target.json(&words("pool create p --device p --kind mapped"));
    assert_eq!(target.json(&words("tenant show db"))["quotas"], Value::Null);
}
