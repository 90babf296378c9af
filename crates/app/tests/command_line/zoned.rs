//! Zoned devices, as far as a machine without one can tell. With one they are tested in a guest, see tests/linux-host.

use crate::rig::{Scratch, Target};

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
