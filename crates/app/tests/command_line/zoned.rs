//! Zoned devices, as far as a machine without one can tell. With one they are tested in a guest,
//! see tests/linux-host.

use std::process::Command;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, path};

#[test]
fn what_has_no_zones_is_refused() {
    let scratch = Scratch::new("zoned");
    let target = Target::start(&scratch, &[]);
    let file = scratch.file("disk.img", "nothing");
    let create = |path| {
        let what = ["device", "create", "zns0", "--kind", "zoned", "--path"];
        [what.as_slice(), &[path]].concat()
    };
    let file = file.to_string_lossy().into_owned();
    target.refused(&create(&file), "is a regular file");
    target.refused(&create("/nowhere/at/all"), "cannot open /nowhere/at/all");
    // It is neither a device nor a thing to cut partitions from now.
    target.refused(&["device", "show", "zns0"], "there is no device `zns0`");
    let partition = [
        "partition",
        "create",
        "p",
        "--device",
        "zns0",
        "--count",
        "1",
    ];
    target.refused(&partition, "there is no device `zns0`");
    assert_eq!(target.terminate(), 0);
}

/// What is neither a file nor a block device, or holds nothing, is not looked at as if it were a
/// drive.
#[test]
fn what_cannot_be_checked_is_refused_with_the_reason() {
    let scratch = Scratch::new("unchecked");
    let empty = scratch.file("empty.img", &"\0".repeat(8192));
    let (empty, folder) = (path(&empty), path(&scratch));
    let cases = [
        ("/nowhere/at/all", "cannot read /nowhere/at/all"),
        ("/dev/null", "neither a regular file nor a block device"),
        (folder, "Is a directory"),
        (empty, "is not sound"),
    ];
    for (what, why) in cases {
        let output = Command::new(PROGRAM).args(["check", what]).output();
        expect_failure(&output.expect("the program starts"), 1, why);
    }
}
