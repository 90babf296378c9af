//! Functions for virtual machines, made by commands and used by a guest of our own: a driver with
//! memory of its own, at the other end of the socket.

use std::fs;
use std::future::Future;
use std::path::Path;

use flashyard_host::vfio::{Guest, GuestError, GuestOptions};
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_time::Duration;
use serde_json::{Value, json};

use crate::rig::{Scratch, Target, names, path};

/// Bytes of a block of the devices here.
const BLOCK: usize = 4096;

/// What a guest does, on a core of its own.
fn in_guest<F: Future<Output = ()> + 'static>(work: impl FnOnce(Rt) -> F + 'static) {
    uring::run(Config::default(), work).expect("this machine has io_uring");
}

/// A guest that uses a function. One that has lost its client a moment ago takes the next one when
/// it has noticed.
async fn guest(rt: &Rt, socket: &Path) -> Guest {
    for _ in 0..1000 {
        match Guest::start(rt, socket, GuestOptions::default()).await {
            Ok(guest) => return guest,
            Err(GuestError::Client(_)) => rt.sleep(Duration::from_ms(5)).await,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the function takes no client")
}

fn range(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..4 * BLOCK).map(|at| (at / 7) as u8 ^ seed).collect()
}

async fn writes(guest: &mut Guest, nsid: u32, seed: u8) {
    let data = pattern(seed);
    let written = guest
        .write((1, nsid), range(seed.into(), 4), (0, &data))
        .await;
    written.expect("written");
}

async fn finds(guest: &mut Guest, nsid: u32, seed: u8) {
    let mut found = vec![0; 4 * BLOCK];
    let read = guest
        .read((2, nsid), range(seed.into(), 4), (0, &mut found))
        .await;
    read.expect("read");
    assert!(
        found == pattern(seed),
        "namespace {nsid} has what was written"
    );
}

/// A tenant with a volume on a file.
fn with_volume(scratch: &Scratch, target: &Target) {
    let image = scratch.join("d.img");
    target.json(&[
        "device",
        "create",
        "d",
        "--kind",
        "file",
        "--path",
        path(&image),
        "--size",
        "64MiB",
    ]);
    target.json(&["pool", "create", "p", "--device", "d"]);
    target.json(&["tenant", "create", "db"]);
    volume(target, "v1");
}

fn volume(target: &Target, name: &str) {
    target.json(&[
        "volume", "create", name, "--pool", "p", "--size", "8MiB", "--tenant", "db",
    ]);
}

fn create(target: &Target, name: &str) -> Value {
    target.json(&["function", "create", name, "--tenant", "db"])
}

fn socket(function: &Value) -> std::path::PathBuf {
    function["socket"].as_str().expect("a path").into()
}

#[test]
fn a_guest_reads_what_it_wrote_before_the_target_was_restarted() {
    let scratch = Scratch::new("function");
    let target = Target::start(&scratch, &[]);
    with_volume(&scratch, &target);
    let made = create(&target, "vm1");
    assert_eq!(
        (
            &made["guest"],
            &made["state"],
            &made["volumes"],
            &made["mode"]
        ),
        (
            &json!("none"),
            &json!("online"),
            &json!(["v1"]),
            &json!("0600")
        )
    );
    assert_eq!(made["subnqn"], "nqn.2026-11.dev.flashyard:db");
    let place = socket(&made);
    assert_eq!(place, scratch.join("state/functions/vm1.sock"));
    let at = place.clone();
    in_guest(move |rt| async move {
        let mut guest = guest(&rt, &at).await;
        writes(&mut guest, 1, 3).await;
        finds(&mut guest, 1, 3).await;
    });
    assert_eq!(target.terminate(), 0);
    assert!(!place.exists(), "the socket goes with the target");

    let target = Target::start(&scratch, &[]);
    let list = target.json(&["function", "list"]);
    assert_eq!(
        (names(&list), socket(&list[0])),
        (vec!["vm1"], place.clone())
    );
    in_guest(move |rt| async move {
        let mut guest = guest(&rt, &place).await;
        finds(&mut guest, 1, 3).await;
    });
    target.json(&["function", "delete", "vm1"]);
    assert_eq!(names(&target.json(&["function", "list"])), [""; 0]);
    let left = fs::read_dir(scratch.join("state/functions")).expect("it is there");
    let left: Vec<_> = left.map(|entry| entry.expect("ours").file_name()).collect();
    assert_eq!(left, [".flashyard.lock"]);
    target.json(&["volume", "delete", "v1", "--yes"]);
    target.json(&["tenant", "delete", "db"]);
}
