//! `flashyard check` of what earlier versions have written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use flashyard_corpus::Image;
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch};

#[test]
fn what_an_earlier_version_wrote_is_checked_and_left_as_it_is() {
    let scratch = Scratch::new("images");
    // The image, the verdict, the generations of both copies, and what is in it.
    let cases: [(&str, &str, [u64; 2], &[&str]); 6] = [
        ("pool", "sound", [7, 7], &["log.s-1", "orders"]),
        ("pool-cut", "repairable", [8, 7], &["log.s-1", "orders"]),
        ("open-channel", "sound", [3, 3], &["db", "logs"]),
        ("open-channel-1", "sound", [3, 3], &["db", "logs"]),
        ("open-channel-cut", "repairable", [3, 2], &["db", "logs"]),
        ("open-channel-cut-1", "repairable", [3, 2], &["db", "logs"]),
    ];
    for (name, verdict, generations, content) in cases {
        let image = Image::named(name);
        let path = scratch.join(name);
        let file = File::create(&path).expect("the scratch directory is writable");
        file.set_len(image.size).expect("it is sparse");
        for (offset, part) in &image.parts {
            file.write_all_at(part, *offset).expect("it is writable");
        }
        drop(file);
        let output = Command::new(PROGRAM)
            .arg("check")
            .arg(&path)
            .arg("--json")
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{name}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(report["verdict"], verdict, "{name}: {report}");
        let of_copies = [0, 1].map(|copy| report["copies"][copy]["generation"].as_u64());
        assert_eq!(of_copies, generations.map(Some), "{name}: {report}");
        let kind = match name.starts_with("pool") {
            true => "volumes",
            false => "partitions",
        };
        let listed = report[kind].as_array().expect("a list").iter();
        let listed: Vec<_> = listed.filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(listed, content, "{name}: {report}");
        assert!(fs::read(&path).expect("it is there") == image.bytes());
    }
}
