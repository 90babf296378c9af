//! What a tenant finds in what it was given, over NVMe/TCP.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use flashyard_host::{Association, Options, Queue, ReadInto};
use flashyard_nvme::Nqn;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data, Rt, uring};
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, path};

/// Blocks of a command, of 4 KiB each.
const EACH: u64 = 16;
const MIB: u64 = 1 << 20;

/// Lets a host of tenant `db` do something with a namespace, given the number of
/// blocks.
fn with_volume<T: 'static, F: Future<Output = T> + 'static>(
    target: &Target,
    volume: &Value,
    work: impl FnOnce(Queue, u32, u64) -> F + 'static,
) -> T {
    let address: SocketAddr = target.address.parse().expect("it is an address");
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let options = Options::new(
        nqn("nqn.2026-11.dev.flashyard:db"),
        nqn("nqn.2026-11.test:host"),
        [9; 16],
    );
    let nsid = volume["nsid"].as_u64().expect("it has one") as u32;
    let blocks = volume["size"].as_u64().expect("it has one") / 4096;
    let talk = move |rt: Rt| async move {
        let host = Association::connect(&rt, address, options).await;
        let host = host.expect("it listens");
        let done = work(host.queue(0), nsid, blocks).await;
        host.close().await;
        done
    };
    uring::run(uring::Config::default(), talk).expect("io_uring is allowed here")
}

/// Fills a volume with a byte, and flushes it.
pub(crate) fn fill(target: &Target, volume: &Value, byte: u8) {
    with_volume(target, volume, move |queue, nsid, blocks| async move {
        for slba in (0..blocks).step_by(EACH as usize) {
            let blocks = EACH.min(blocks - slba) as u32;
            let mut data = Buf::take(blocks as usize * 4096).expect("there is memory");
            data.fill(byte);
            let range = LbaRange { slba, blocks };
            let written = queue.write(nsid, range, Data::Buf(data), false).await;
            written.expect("it is sound");
        }
        queue.flush(nsid).await.expect("it is sound");
    });
}

/// The bytes that a volume holds, in `part` of its blocks.
fn bytes_in(target: &Target, volume: &Value, part: std::ops::Range<u64>) -> BTreeSet<u8> {
    with_volume(target, volume, move |queue, nsid, blocks| async move {
        let mut bytes = BTreeSet::new();
        for slba in (part.start..part.end.min(blocks)).step_by(EACH as usize) {
            let blocks = EACH.min(blocks - slba) as u32;
            let into = Buf::take(blocks as usize * 4096).expect("there is memory");
            let range = LbaRange { slba, blocks };
            let read = queue.read(nsid, range, ReadInto::Buf(into)).await;
            let ReadInto::Buf(data) = read.expect("it is sound") else {
                unreachable!("a buffer was given")
            };
            for block in data.chunks_exact(512) {
                match *block == [block[0]; 512] {
                    true => drop(bytes.insert(block[0])),
                    false => bytes.extend(block),
                }
            }
        }
        bytes
    })
}

pub(crate) fn bytes(target: &Target, volume: &Value) -> BTreeSet<u8> {
    bytes_in(target, volume, 0..u64::MAX)
}

fn whole(target: &Target, more: &[&str]) -> Value {
    let create = [
        "volume", "create", "whole", "--device", "ssd0", "--tenant", "db",
    ];
    target.json(&[&create[..], more].concat())
}

fn zero() -> BTreeSet<u8> {
    BTreeSet::from([0])
}

/// A target with tenant `db` and a device `ssd0` on a file of 16 MiB.
fn with_file(scratch: &Scratch, content: &[u8]) -> Target {
    let image = scratch.join("ssd0.img");
    if !content.is_empty() {
        fs::write(&image, content).expect("the scratch directory is writable");
    }
    let target = Target::start(scratch, &[]);
    let create = [
        "device",
        "create",
        "ssd0",
        "--kind",
        "file",
        "--path",
        path(&image),
    ];
    let size: &[&str] = match content {
        [] => &["--size", "16MiB"],
        _ => &[],
    };
    target.json(&[&create[..], size].concat());
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target
}

/// The target is killed while it deletes a volume, at a moment of chance; whoever gets the space
/// then reads zeroes, in the pool and on the whole device.
#[test]
fn a_kill_while_a_volume_is_deleted_leaves_nothing_to_read() {
    let scratch = Scratch::new("kill-delete");
    let mut target = with_file(&scratch, &[]);
    for life in 0..5_u64 {
        target.json(&["pool", "create", "p", "--device", "ssd0"]);
        let create = |name| {
            [
                "volume", "create", name, "--pool", "p", "--size", "14MiB", "--tenant", "db",
            ]
        };
        let old = target.json(&create("old"));
        assert_eq!(bytes(&target, &old), zero(), "life {life}");
        fill(&target, &old, 0xa1);
        let delete = Command::new(PROGRAM)
            .args(["volume", "delete", "old", "--yes", "--state"])
            .arg(&target.state)
            .stderr(std::process::Stdio::null())
            .spawn();
        thread::sleep(Duration::from_micros(4000 + 700 * life));
        target.kill();
        delete
            .expect("the program starts")
            .wait()
            .expect("it was ours");
        target = Target::start(&scratch, &[]);
        let volumes = target.json(&["volume", "list"]);
        if volumes.as_array().is_some_and(|all| !all.is_empty()) {
            assert_eq!(volumes[0]["state"], "online", "{volumes}");
            target.json(&["volume", "delete", "old", "--yes"]);
        }
        let new = target.json(&create("new"));
        assert_eq!(bytes(&target, &new), zero(), "life {life}");
        fill(&target, &new, 0xb2);
        target.json(&["volume", "delete", "new", "--yes"]);
        target.json(&["pool", "delete", "p"]);
        let last = whole(&target, &[]);
        assert_eq!(bytes(&target, &last), zero(), "life {life}");
        fill(&target, &last, 0xc3);
        target.json(&["volume", "delete", "whole", "--yes"]);
    }
}

/// Data that were there before are neither shown nor destroyed unless somebody says so.
#[test]
fn what_was_there_before_is_kept_or_erased_by_name() {
    let scratch = Scratch::new("import");
    let target = with_file(&scratch, &vec![0x5a; 4 << 20]);
    let image = scratch.join("ssd0.img");
    let create = [
        "volume", "create", "whole", "--device", "ssd0", "--tenant", "db",
    ];
    target.refused(&create, "say --erase to have it zeroed, or --keep");
    let imported = whole(&target, &["--keep"]);
    assert_eq!(bytes(&target, &imported), BTreeSet::from([0x5a]));
    // It is the tenant's from now on, and goes with the volume.
    target.kill();
    let target = Target::start(&scratch, &[]);
    let found = target.json(&["volume", "show", "whole"]);
    assert_eq!(bytes(&target, &found), BTreeSet::from([0x5a]));
    target.json(&["volume", "delete", "whole", "--yes"]);
    assert_eq!(bytes(&target, &whole(&target, &[])), zero());
    target.json(&["volume", "delete", "whole", "--yes"]);

    // A device that is taken off and put back is one that nothing is known of.
    target.kill();
    let target = Target::start(&scratch, &[]);
    target.json(&["device", "delete", "ssd0"]);
    fs::write(&image, vec![0x5a; 4 << 20]).expect("it is ours");
    let again = [
        "device",
        "create",
        "ssd0",
        "--kind",
        "file",
        "--path",
        path(&image),
    ];
    target.json(&again);
    target.refused(&create, "--keep");
    assert_eq!(bytes(&target, &whole(&target, &["--erase"])), zero());
    let both = [&create[..], &["--erase", "--keep"]].concat();
    assert_eq!(target.run(&both).status.code(), Some(2));
}

/// A file that has another size at the next start: what it has more is zeroed before it is shown,
/// and what it has less is reported.
#[test]
fn a_device_that_has_another_size_shows_nothing_strange() {
    let scratch = Scratch::new("resized");
    let target = with_file(&scratch, &vec![0x5a; 4 << 20]);
    let image = scratch.join("ssd0.img");
    whole(&target, &["--keep"]);
    target.kill();
    fs::write(&image, [vec![0x5a; 4 << 20], vec![0xee; 4 << 20]].concat()).expect("it is ours");
    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "whole"]);
    assert_eq!(volume["size"], 8 * MIB);
    assert_eq!(bytes_in(&target, &volume, 0..1024), BTreeSet::from([0x5a]));
    assert_eq!(bytes_in(&target, &volume, 1024..2048), zero());
    fill(&target, &volume, 0xb2);
    target.kill();
    // What has been given away is not zeroed again.
    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "whole"]);
    assert_eq!(bytes(&target, &volume), BTreeSet::from([0xb2]));
    target.kill();
    let file = OpenOptions::new()
        .write(true)
        .open(&image)
        .expect("it is ours");
    file.set_len(6 * MIB).expect("it can be cut");
    drop(file);
    let target = Target::start(&scratch, &[]);
    let volume = target.json(&["volume", "show", "whole"]);
    assert_eq!(volume["state"], "unavailable", "{volume}");
    let why = volume["fault"].as_str().unwrap_or_default();
    assert!(why.contains("its end is lost"), "{why}");
    assert_eq!(
        fs::metadata(&image).expect("it is there").len(),
        6 * MIB,
        "nothing is made of it"
    );
}
