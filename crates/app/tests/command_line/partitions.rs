//! Partitions of an open-channel device, from the command line to NVMe/TCP.

use serde_json::Value;

use crate::rig::{Scratch, Target, names, target_perf};

/// A device of sixteen channels with eight units each.
fn with_device(name: &str) -> (Scratch, Target) {
    let scratch = Scratch::new(name);
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device",
        "create",
        "oc0",
        "--kind",
        "open-channel",
        "--size",
        "1GiB",
    ]);
    (scratch, target)
}

fn create<'a>(name: &'a str, units: &[&'a str]) -> Vec<&'a str> {
    [&["partition", "create", name, "--device", "oc0"], units].concat()
}

#[test]
fn partitions_are_devices_for_pools_and_volumes() {
    let (scratch, target) = with_device("partitions");
    target.refused(
        &["pool", "create", "p", "--device", "oc0"],
        "partition create",
    );
    let made = target.json(&create("db", &["--channels", "0-1", "--op", "28%"]));
    assert_eq!(made["placement"], "own channels");
    assert_eq!(
        made["units"].as_str().map(|units| units.split(',').count()),
        Some(16)
    );
    let bytes = |value: &Value| value["size"].as_u64().unwrap_or_default();
    assert!((40 << 20..100 << 20).contains(&bytes(&made)), "{made}");
    target.json(&create("logs", &["--count", "16"]));
    let listed = target.json(&["partition", "list"]);
    assert_eq!(names(&listed), ["db", "logs"]);

    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "whole", "--device", "db", "--tenant", "db",
    ]);
    target.json(&["pool", "create", "fast", "--device", "logs"]);
    let volume = [
        "volume", "create", "cut", "--pool", "fast", "--size", "16MiB", "--tenant", "db",
    ];
    target.json(&volume);
    for nsid in ["1", "2"] {
        let load = ["--nsid", nsid, "--rw", "randrw", "--verify"];
        let report = target_perf(&target, &load);
        assert_eq!(report["errors"], 0);
        assert!(report["iops"].as_f64() > Some(1.0));
    }
    let shown = target.json(&["partition", "show", "db"]);
    assert!(shown["bytes_written"].as_u64() > Some(0));
    assert!(shown["write_amplification"].as_f64() >= Some(0.0));
    assert_eq!(shown["used_by"], "volume `whole`");
    let before = bytes(&shown);
    let grown = target.json(&["partition", "grow", "db", "--channels", "8"]);
    assert!(bytes(&grown) > before, "{grown}");
    let whole = target.json(&["volume", "show", "whole"]);
    assert_eq!(bytes(&whole), bytes(&grown));

    // A restart forgets the content of the flash, and nothing else.
    target.kill();
    let target = Target::start(&scratch, &[]);
    let again = target.json(&["partition", "show", "db"]);
    assert_eq!(
        (&again["units"], &again["size"]),
        (&grown["units"], &grown["size"])
    );
    let report = target_perf(&target, &["--nsid", "1", "--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0);
    assert_eq!(target.terminate(), 0);
}

#[test]
fn what_cannot_be_cut_is_refused_with_the_reason() {
    let (_scratch, target) = with_device("uncut");
    target.json(&create("db", &["--channels", "0"]));
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "64MiB",
    ]);
    let cases: [(&[&str], &str); 7] = [
        (&["--channels", "0-1"], "belongs to partition db"),
        (&["--channels", "16"], "channels 0 to 15"),
        (
            &["--units", "1.0,1.1,2.0"],
            "take the same number from each",
        ),
        (&["--units", "1.9"], "there is no unit 1.9"),
        (&["--count", "121"], "from the 120 that are free"),
        (&["--channels", "1", "--op", "1%"], "3 to 100 %"),
        (&["--channels", "1", "--op", "much"], "no over-provisioning"),
    ];
    for (units, why) in cases {
        target.refused(&create("logs", units), why);
    }
    let on_ram = [
        "partition",
        "create",
        "logs",
        "--device",
        "ram0",
        "--count",
        "1",
    ];
    target.refused(&on_ram, "is no open-channel device");
    target.refused(&["device", "delete", "oc0"], "is used by partition `db`");
    target.refused(&["partition", "delete", "db"], "--yes");
    target.json(&["partition", "delete", "db", "--yes"]);
    target.refused(&["partition", "show", "db"], "there is no partition `db`");
    target.json(&["device", "delete", "oc0"]);
}

#[test]
fn a_file_names_partitions() {
    let scratch = Scratch::new("cutfile");
    let file = scratch.file(
        "target.toml",
        "[target]\nlisten = [\"127.0.0.1:0\"]\n\
         [[device]]\nname = \"a\"\nkind = \"open-channel\"\nsize = \"1GiB\"\n\
         [[device]]\nname = \"0\"\nkind = \"partition\"\npartition = { device = \"a\", count = 8 }\n\
         [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\n\
         [[volume]]\nname = \"v\"\ndevice = \"0\"\ntenant = \"db\"\n",
    );
    // The device comes first in the file; at a restart it comes last in the alphabet.
    let config = file.to_string_lossy().into_owned();
    let target = Target::start(&scratch, &["--config", &config]);
    assert_eq!(target.json(&["partition", "show", "0"])["state"], "online");
    target.kill();
    let target = Target::start(&scratch, &["--config", &config]);
    assert_eq!(target.json(&["volume", "show", "v"])["state"], "online");
    assert_eq!(target.terminate(), 0);
}
