//! What tenants are promised, beside what they got.

use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, path};

/// A load; ended when dropped.
struct Load(Child);

impl Load {
    fn start(target: &Target, tenant: &str, more: &[&str]) -> Self {
        let subnqn = format!("nqn.2026-11.dev.flashyard:{tenant}");
        let load = Command::new(PROGRAM)
            .args(["perf", "--connect", &target.address, "--subnqn", &subnqn])
            .args(["--rw", "randread", "--bs", "4KiB", "--seconds", "300"])
            .args(more)
            .stdout(Stdio::null())
            .spawn();
        Self(load.expect("the program starts"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until it is so.
fn eventually(mut is_so: impl FnMut() -> bool) {
    let tries = (0..240).any(|_| {
        let is_so = is_so();
        if !is_so {
            thread::sleep(Duration::from_millis(250));
        }
        is_so
    });
    assert!(tries, "it never was so");
}

/// Asks until the promises of a tenant stand as they should: each with its state and what limits
/// it, and its rate of reads among those of `got`. All of it has to be true of one moment: a load
/// that has just begun waits for its limit before its first read is counted.
fn stands(target: &Target, tenant: &str, expected: &[[&str; 3]], got: Range<u64>) -> Value {
    let mut shown = Value::Null;
    eventually(|| {
        shown = target.json(&["tenant", "show", tenant]);
        let promises = shown["promises"].as_array().expect("a list").iter();
        let found = promises.map(|it| {
            ["promise", "state", "limited_by"].map(|key| it[key].as_str().unwrap_or_default())
        });
        let as_expected = found.eq(expected.iter().copied());
        let mut promises = shown["promises"].as_array().expect("a list").iter();
        let rate = promises.find(|it| it["promise"] == "read_iops");
        let rate = rate.and_then(|it| it["got"].as_u64());
        as_expected && rate.is_some_and(|rate| got.contains(&rate))
    });
    shown
}

/// On a drive that takes 8 ms for a read: one read at a time, a few reads now and then, and reads
/// that a limit holds back.
#[test]
fn a_promise_is_shown_beside_what_was_got() {
    let scratch = Scratch::new("reality");
    let config = scratch.file(
        "flashyard.toml",
        "[[device]]\nname = \"ssd0\"\nkind = \"flash\"\nsize = \"256MiB\"\nprofile = \"dct983\"\ndilation = 100\n\
         condition = \"fragmented\"\npolicy = \"fair\"\n\
         [[pool]]\nname = \"p\"\ndevices = [\"ssd0\"]\n\
         [[tenant]]\nname = \"db\"\nhosts = [\"*\"]\nclass = \"latency\"\nguarantee = { read_iops = 100000 }\n\
         latency_target = \"10s\"\n\
         [[tenant]]\nname = \"lab\"\nhosts = [\"*\"]\nguarantee = { read_iops = 500 }\n\
         limit = { read_bandwidth = \"200KB/s\" }\n\
         [[tenant]]\nname = \"idle\"\nhosts = [\"*\"]\n\
         [[volume]]\nname = \"a\"\npool = \"p\"\nsize = \"32MiB\"\ntenant = \"db\"\n\
         [[volume]]\nname = \"b\"\npool = \"p\"\nsize = \"32MiB\"\ntenant = \"lab\"\n\
         [[volume]]\nname = \"c\"\npool = \"p\"\nsize = \"32MiB\"\ntenant = \"idle\"\n",
    );
    let target = Target::start(&scratch, &["--config", path(&config)]);
    let (rate, latency) = ("read_iops", "latency_target");
    let (own, not_asked_for) = ("own-demand", "not-asked-for");
    let idle = [[rate, not_asked_for, own], [latency, not_asked_for, own]];
    let quiet = stands(&target, "db", &idle, 0..1);
    assert_eq!(quiet["promise_state"], not_asked_for);
    assert_eq!(quiet["promises"][1]["got"], Value::Null);

    // The target of 10 s is kept; the guarantee, of more than the drive could ever give, is not
    // asked for: with one read at a time, and with a few of them.
    let asked = [[latency, "kept", ""], [rate, not_asked_for, own]];
    for more in [&["--qd", "1"][..], &["--qd", "1", "--rate", "20"]] {
        let load = Load::start(&target, "db", more);
        let shown = stands(&target, "db", &asked, 1..5_000);
        assert_eq!(shown["promise_state"], "kept");
        let promise = &shown["promises"][1];
        assert_eq!(
            (&promise["device"], &promise["promised"]),
            (&"ssd0".into(), &100_000.into())
        );
        drop(load);
    }

    let load = Load::start(&target, "lab", &["--qd", "8"]);
    stands(&target, "lab", &[[rate, "missed", "own-limit"]], 1..500);
    // While the load goes on, all commands say so.
    let is = |value: &Value, key: &str, word: &str| value[key] == word;
    eventually(|| {
        let list = target.json(&["tenant", "list"]);
        let states = list.as_array().expect("a list").iter();
        states
            .filter(|tenant| is(tenant, "name", "lab") == is(tenant, "promise_state", "missed"))
            .filter(|tenant| is(tenant, "name", "idle") == tenant["promise_state"].is_null())
            .count()
            == 3
    });
    eventually(|| {
        let status = target.json(&["status"]);
        let promises = status["promises"].as_array().expect("a list").iter();
        let missed: Vec<_> = promises.filter(|it| it["state"] == "missed").collect();
        missed.len() == 1 && missed[0]["tenant"] == "lab"
    });
    for args in [
        &["tenant", "list"][..],
        &["tenant", "show", "lab"],
        &["status"],
    ] {
        eventually(|| {
            let shown = target.run(args).stdout;
            let shown = String::from_utf8_lossy(&shown);
            shown.contains("missed") && (args[1..] == ["list"] || shown.contains("own-limit"))
        });
    }
    drop(load);
    assert_eq!(target.terminate(), 0);
}
