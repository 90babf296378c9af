//! The log of I/O statistics that a host has read, as a command shows it.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

use flashyard_nvme::log::{IoStatistics, LatencyBin, StatisticsLog};
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, expect_failure, path};

fn bytes() -> [u8; StatisticsLog::LEN] {
    let bin = |lower_us, upper_us, count| LatencyBin {
        lower_us,
        upper_us,
        count,
    };
    let log = StatisticsLog {
        writes: IoStatistics {
            ops: 3,
            bytes: 12_288,
            time_us: 90,
            waited_us: Some(60),
            waited_ops: Some(1),
            latency: vec![bin(0, 20, 2), bin(20, u64::MAX, 1)],
        },
        in_flight: 2,
        nsid: 4,
        namespaces: 1,
        ..StatisticsLog::default()
    };
    let mut data = [0; StatisticsLog::LEN];
    log.encode(&mut data);
    data
}

fn shown(words: &[&str], input: Stdio) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("host-stats").args(words).stdin(input);
    command.output().expect("the program starts")
}

#[test]
fn a_log_is_shown_for_people_and_programs() {
    let scratch = Scratch::new("host-stats");
    let file = scratch.join("log.bin");
    fs::write(&file, bytes()).expect("it is ours");
    let people = shown(&["--histogram", path(&file)], Stdio::null());
    let people = String::from_utf8(people.stdout).expect("text");
    assert!(
        people.starts_with("namespace 4; in flight: 2\n"),
        "{people}"
    );
    assert!(people.contains("writes    3  12 KiB  30 us"), "{people}");
    assert!(people.ends_with("  any      0       1\n"), "{people}");

    let piped = shown(&["--json"], File::open(&file).expect("it is there").into());
    let shown: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
    assert_eq!(shown["nsid"], 4);
    assert_eq!(shown["write"]["waited_us"], 60);
    assert_eq!(shown["write"]["buckets"][1]["under_us"], Value::Null);
    assert_eq!(shown["read"]["mean_us"], Value::Null);
}

#[test]
fn what_is_no_such_log_is_refused_with_the_way_to_read_one() {
    let scratch = Scratch::new("no-host-stats");
    let file = scratch.join("log.bin");
    expect_failure(&shown(&[path(&file)], Stdio::null()), 1, "cannot read");
    for (data, why) in [
        (&[][..], "fewer than 4096 bytes"),
        (&[1; StatisticsLog::LEN][..], "begins with 0x01010101"),
    ] {
        fs::write(&file, data).expect("it is ours");
        let refused = shown(&[path(&file)], Stdio::null());
        expect_failure(&refused, 1, why);
        expect_failure(&refused, 1, "nvme get-log DEVICE --log-id=0xd0");
    }
}
