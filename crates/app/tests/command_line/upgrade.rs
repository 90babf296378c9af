//! A state store of a newer program: whoever does not know it refuses it, and leaves it as it is.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path, refuses_to_start};

/// Where a database of SQLite has the version of its tables, in its header: four bytes.
const VERSION_AT: u64 = 60;
const WHY: &str = "use a newer flashyard";

fn version(file: &Path) -> u32 {
    let mut bytes = [0; 4];
    let file = fs::File::open(file).expect("it is there");
    file.read_exact_at(&mut bytes, VERSION_AT)
        .expect("a header");
    u32::from_be_bytes(bytes)
}

fn set_version(file: &Path, version: u32) {
    let file = OpenOptions::new().write(true).open(file);
    let file = file.expect("it is there");
    file.write_all_at(&version.to_be_bytes(), VERSION_AT)
        .expect("it is ours");
}

/// A state with a tenant, and a backup of it.
fn served(scratch: &Scratch) {
    let target = Target::start(scratch, &[]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let backup = scratch.join("backup.db");
    target.json(&["backup", path(&backup)]);
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_store_of_a_newer_program_is_refused_and_stays_as_it_is() {
    let scratch = Scratch::new("newer");
    served(&scratch);
    let store = scratch.join("state/state.db");
    let copy = scratch.join("state/state.copy.db");
    let known = version(&store);
    assert!(known > 0);
    set_version(&store, known + 1);
    let before = [&store, &copy].map(|file| fs::read(file).expect("it is there"));
    // Nor does the copy, which this program knows, take the place of one that is only newer.
    for more in [&[][..], &["--restore-state"]] {
        refuses_to_start(&scratch, more, WHY);
        let after = [&store, &copy].map(|file| fs::read(file).expect("it is there"));
        assert!(before == after, "{more:?} has changed it");
        assert!(!scratch.join("state/state.db.damaged").exists());
    }
    set_version(&store, known);
    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target.json(&["tenant", "list"])), ["db"]);
}

#[test]
fn a_backup_of_a_newer_program_is_not_put_back() {
    let scratch = Scratch::new("newer-backup");
    served(&scratch);
    let backup = scratch.join("backup.db");
    set_version(&backup, version(&backup) + 1);
    let store = scratch.join("state/state.db");
    let before = fs::read(&store).expect("it is there");
    let output = Command::new(PROGRAM)
        .args(["restore", path(&backup), "--yes", "--state"])
        .arg(scratch.join("state"))
        .output();
    expect_failure(&output.expect("the program starts"), 1, WHY);
    assert_eq!(fs::read(&store).expect("it is there"), before);
}
