//! Partitions of an open-channel device, from the command line to NVMe/TCP.

use std::fs::OpenOptions;
use std::future::Future;
use std::io::{Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use flashyard_host::{Association, HostError, Options, Queue, ReadInto};
use flashyard_nvme::Nqn;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data, Rt, uring};
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path, target_perf};

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
fn a_mapped_pool_uses_what_its_partition_grows_by_at_once() {
    let (_scratch, target) = with_device("partition-mapped");
    target.json(&create("logs", &["--channels", "0"]));
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "pool", "create", "p", "--device", "logs", "--kind", "mapped",
    ]);
    let volume = [
        "volume", "create", "v", "--pool", "p", "--size", "1GiB", "--tenant", "db",
    ];
    target.json(&volume);
    let size = || target.json(&["pool", "show", "p"])["size"].as_u64();
    let before = size();
    target.json(&["partition", "grow", "logs", "--channels", "1-2"]);
    let after = size();
    assert!(
        after > before.map(|bytes| 2 * bytes),
        "{before:?} {after:?}"
    );
    let report = target_perf(&target, &["--rw", "randrw", "--verify"]);
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

pub(crate) fn check(file: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("check").arg(file);
    command.output().expect("the program starts")
}

/// A device of four channels in a file, with a partition of one of them.
fn in_file(scratch: &Scratch) -> (Target, std::path::PathBuf) {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("oc0.img");
    target.json(&[
        "device",
        "create",
        "oc0",
        "--kind",
        "open-channel",
        "--size",
        "512MiB",
        "--store",
        "file",
        "--path",
        path(&image),
    ]);
    target.json(&create("db", &["--channels", "0-3"]));
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "whole", "--device", "db", "--tenant", "db",
    ]);
    (target, image)
}

/// Runs a host against the first volume of tenant `db`.
fn host<F: Future + 'static>(
    target: &Target,
    talk: impl FnOnce(Association) -> F + 'static,
) -> F::Output {
    let address: SocketAddr = target.address.parse().expect("it is an address");
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let options = Options::new(
        nqn("nqn.2026-11.dev.flashyard:db"),
        nqn("nqn.2026-11.test:host"),
        [9; 16],
    );
    let talk = |rt: Rt| async move {
        let connected = Association::connect(&rt, address, options).await;
        talk(connected.expect("it listens")).await
    };
    uring::run(uring::Config::default(), talk).expect("io_uring is allowed here")
}

/// Blocks of the volume that hosts write, and blocks of each write.
const BLOCKS: u64 = 2048;
const EACH: u32 = 16;

fn range(place: u64) -> LbaRange {
    LbaRange {
        slba: place * u64::from(EACH),
        blocks: EACH,
    }
}

async fn write(queue: &Queue, place: u64, value: u8) -> Result<(), HostError> {
    let mut data = Buf::take(EACH as usize * 4096).expect("there is memory");
    data.fill(value);
    queue.write(1, range(place), Data::Buf(data), false).await
}

/// The value of each block that was written.
async fn values(queue: &Queue) -> Vec<u8> {
    let mut values = Vec::new();
    for place in 0..BLOCKS / u64::from(EACH) {
        let into = Buf::take(EACH as usize * 4096).expect("there is memory");
        let data = queue.read(1, range(place), ReadInto::Buf(into)).await;
        let data = match data.expect("it is there") {
            ReadInto::Buf(data) => data,
            ReadInto::Discard(_) => unreachable!("a buffer was given"),
        };
        for block in data.chunks_exact(4096) {
            assert!(
                block.iter().all(|byte| *byte == block[0]),
                "a block is torn"
            );
            values.push(block[0]);
        }
    }
    values
}

/// Kills the target while a host writes, several times: what was flushed is there, or what was
/// written since.
#[test]
fn what_was_flushed_survives_kill_9() {
    let scratch = Scratch::new("killed");
    let (mut target, image) = in_file(&scratch);
    for life in 1..5_u8 {
        host(&target, move |host| async move {
            let queue = host.queue(0);
            for place in 0..BLOCKS / u64::from(EACH) {
                write(&queue, place, 10 * life).await.expect("written");
            }
            queue.flush(1).await.expect("flushed");
            host.close().await;
        });
        let id = target.child.id().to_string();
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(150 + 90 * u64::from(life)));
            let killed = Command::new("kill").args(["-9", &id]).status();
            assert!(killed.expect("kill exists").success());
        });
        // Twice what was flushed, in an order of its own, until the target is gone.
        host(&target, move |host| async move {
            let queue = host.queue(0);
            let places = BLOCKS / u64::from(EACH);
            for turn in 0.. {
                let place = turn * 37 % places;
                if write(&queue, place, 10 * life + 1).await.is_err() {
                    return;
                }
            }
        });
        killer.join().expect("it kills");
        target.kill();
        target = Target::start(&scratch, &[]);
        let found = host(&target, |host| async move {
            let values = values(&host.queue(0)).await;
            host.close().await;
            values
        });
        let possible = [10 * life, 10 * life + 1];
        let wrong = found.iter().position(|value| !possible.contains(value));
        assert_eq!(wrong, None, "life {life}: {:?}", wrong.map(|at| found[at]));
    }
    target.kill();
    let sound = check(&image);
    assert!(
        sound.status.success(),
        "{}",
        String::from_utf8_lossy(&sound.stdout)
    );
}

#[test]
fn a_damaged_layout_is_told_and_nothing_is_made_anew() {
    let scratch = Scratch::new("damagedlayout");
    let (target, image) = in_file(&scratch);
    assert_eq!(target.terminate(), 0);
    // The copies are in the first chunks of the first and the last unit; each begins with its
    // magic.
    let bytes = std::fs::read(&image).expect("it is there");
    let copies: Vec<usize> = (0..bytes.len())
        .step_by(4096)
        .filter(|at| bytes[*at..].starts_with(b"FLSHUNIT"))
        .collect();
    assert_eq!(copies.len(), 2);
    let damage = |at: usize| {
        let mut file = OpenOptions::new()
            .write(true)
            .open(&image)
            .expect("it is there");
        file.seek(SeekFrom::Start(at as u64 + 66))
            .expect("it is that long");
        file.write_all(&[!bytes[at + 66]]).expect("it is writable");
    };
    damage(copies[0]);
    let output = check(&image);
    assert!(output.status.success(), "nothing is lost");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("first copy of the layout is not usable"),
        "{printed}"
    );
    assert!(printed.contains("partition db: 32 units"), "{printed}");
    assert!(printed.contains("repairable: nothing is lost"), "{printed}");
    let target = Target::start(&scratch, &[]);
    assert_eq!(target.json(&["partition", "show", "db"])["state"], "online");
    assert_eq!(target.terminate(), 0);
    assert!(check(&image).status.success(), "repaired");
    let bytes = std::fs::read(&image).expect("it is there");
    let copies = (0..bytes.len())
        .step_by(4096)
        .filter(|at| bytes[*at..].starts_with(b"FLSHUNIT"));
    copies.for_each(damage);
    expect_failure(&check(&image), 1, "not sound");
    let target = Target::start(&scratch, &[]);
    let shown = target.json(&["device", "show", "oc0"]);
    assert_eq!(shown["state"], "unavailable");
    let fault = shown["fault"].as_str().expect("it says why");
    assert!(
        fault.contains("the layout of the partitions is damaged"),
        "{fault}"
    );
    assert_eq!(
        target.json(&["partition", "show", "db"])["state"],
        "unavailable"
    );
    assert_eq!(target.terminate(), 0);
}

#[test]
fn files_that_cannot_hold_a_device_are_refused_with_the_reason() {
    let scratch = Scratch::new("notours");
    let (target, image) = in_file(&scratch);
    let foreign = scratch.file("foreign.img", &"not ours ".repeat(1000));
    let device = |name: &'static str, size: &'static str, file: &Path| {
        let file = path(file).to_owned();
        [
            "device",
            "create",
            name,
            "--kind",
            "open-channel",
            "--size",
            size,
            "--store",
            "file",
            "--path",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([file])
        .collect::<Vec<_>>()
    };
    let refused = |args: Vec<String>, why: &str| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        target.refused(&args, why);
    };
    refused(device("oc1", "512MiB", &foreign), "holds something else");
    refused(device("oc1", "512MiB", &image), "is device `oc0` already");
    let link = scratch.join("link.img");
    std::os::unix::fs::symlink(&image, &link).expect("links are there");
    refused(device("oc1", "512MiB", &link), "another program uses it");
    target.refused(
        &[
            "device",
            "create",
            "oc1",
            "--kind",
            "open-channel",
            "--size",
            "512MiB",
            "--store",
            "pattern",
        ],
        "store must be memory or file",
    );
    target.json(&["volume", "delete", "whole", "--yes"]);
    target.json(&["partition", "delete", "db", "--yes"]);
    target.json(&["device", "delete", "oc0"]);
    refused(device("oc2", "256MiB", &image), "give its size");
    assert_eq!(target.terminate(), 0);
}

#[test]
fn partitions_in_a_file_survive_a_stop_and_a_kill() {
    let scratch = Scratch::new("inafile");
    let (target, image) = in_file(&scratch);
    let before = target.json(&["partition", "show", "db"]);
    let load = ["--nsid", "1", "--rw", "randrw", "--verify"];
    let report = target_perf(&target, &load);
    assert_eq!(report["errors"], 0);
    target.refused(
        &[
            "device",
            "create",
            "oc1",
            "--kind",
            "open-channel",
            "--size",
            "512MiB",
            "--store",
            "file",
            "--path",
            path(&image),
        ],
        "is device `oc0` already",
    );
    expect_failure(&check(&image), 1, "another program uses it");
    assert_eq!(target.terminate(), 0);
    let sound = check(&image);
    assert!(
        sound.status.success(),
        "{}",
        String::from_utf8_lossy(&sound.stderr)
    );
    assert!(String::from_utf8_lossy(&sound.stdout).contains("partition db: 32 units"));

    let target = Target::start(&scratch, &[]);
    let after = target.json(&["partition", "show", "db"]);
    for key in ["units", "size", "state", "device"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let status = target.json(&["status"]);
    assert_eq!(status["partitions"][0]["partition"], "db");
    assert_eq!(status["partitions"][0]["state"], "online");
    let report = target_perf(&target, &load);
    assert_eq!(report["errors"], 0);
    target.kill();
    let sound = check(&image);
    assert!(
        sound.status.success(),
        "{}",
        String::from_utf8_lossy(&sound.stderr)
    );
    let target = Target::start(&scratch, &[]);
    assert_eq!(target.json(&["volume", "show", "whole"])["state"], "online");
    target.json(&["volume", "delete", "whole", "--yes"]);
    target.json(&["partition", "delete", "db", "--yes"]);
    target.json(&create("other", &["--channels", "0-3"]));
    assert_eq!(target.terminate(), 0);
}

/// A target that was killed while it created or deleted a partition leaves nothing of it.
#[test]
fn what_a_kill_left_half_done_is_cleared_away() {
    let scratch = Scratch::new("halfcut");
    let (target, image) = in_file(&scratch);
    target.json(&create("calm", &["--channels", "4"]));
    target.json(&create("gone", &["--channels", "5"]));
    target.json(&["volume", "delete", "whole", "--yes"]);
    target.kill();
    let state = rusqlite::Connection::open(scratch.join("state").join("state.db"));
    let state = state.expect("nobody uses it");
    let noted = state.execute(
        "UPDATE device SET spec = json_set(spec, '$.partition.unfinished', json('true')) WHERE name IN ('db', 'gone')",
        [],
    );
    assert_eq!(noted.expect("they are there"), 2);
    // As a store of version 1, which has no checksum that this would not fit.
    let older = state.execute_batch(
        "DROP TABLE content; DROP TABLE counted; DROP TABLE function; ALTER TABLE target DROP COLUMN life;
         ALTER TABLE target DROP COLUMN settings; DROP TABLE document; DROP INDEX volume_of_tenant; \
         ALTER TABLE volume DROP COLUMN move; PRAGMA user_version = 1",
    );
    older.expect("nobody uses it");
    drop(state);
    let target = Target::start(&scratch, &[]);
    assert_eq!(names(&target.json(&["partition", "list"])), ["calm"]);
    target.json(&create("db", &["--channels", "0-3"]));
    target.json(&create("again", &["--channels", "5"]));
    target.kill();
    let target = Target::start(&scratch, &[]);
    let listed = target.json(&["partition", "list"]);
    assert_eq!(names(&listed), ["again", "calm", "db"]);
    for one in listed.as_array().expect("a list") {
        assert_eq!(one["state"], "online", "{one}");
    }
    assert_eq!(target.terminate(), 0);
    assert!(check(&image).status.success());
}

/// Damages all that is needed to take up the partition that has the first four of sixteen channels.
pub(crate) fn damage_partition(image: &Path) {
    // Heads of chunks lie before the first record; those of the first four channels are the
    // partition's, but for the layout's.
    let bytes = std::fs::read(image).expect("it is there");
    let starts = |at: &usize, magic| bytes[*at..].starts_with(magic);
    let mut pieces = (0..bytes.len()).step_by(4096);
    let record = pieces.find(|at| starts(at, b"FLWU"));
    let record = record.expect("the layout is in the first chunk");
    let mut file = OpenOptions::new()
        .write(true)
        .open(image)
        .expect("it is there");
    let heads = (3 * 4096..record / 16 * 4).step_by(4096);
    for at in heads.filter(|at| starts(at, b"FLCH")) {
        file.seek(SeekFrom::Start(at as u64 + 24))
            .expect("it is that long");
        file.write_all(&[!bytes[at + 24]]).expect("it is writable");
    }
}

#[test]
fn a_partition_that_is_lost_is_told_and_can_be_deleted() {
    let scratch = Scratch::new("lostcut");
    let (target, image) = in_file(&scratch);
    target.json(&create("calm", &["--channels", "4"]));
    assert_eq!(target.terminate(), 0);
    damage_partition(&image);
    expect_failure(&check(&image), 1, "not sound");
    let target = Target::start(&scratch, &[]);
    assert_eq!(
        target.json(&["partition", "show", "calm"])["state"],
        "online"
    );
    let shown = target.json(&["partition", "show", "db"]);
    let fault = shown["fault"].as_str().expect("it says why");
    assert!(fault.contains("cannot be taken up"), "{fault}");
    target.json(&["volume", "delete", "whole", "--yes"]);
    target.json(&["partition", "delete", "db", "--yes"]);
    target.json(&create("db", &["--channels", "0-3"]));
    assert_eq!(target.terminate(), 0);
    assert!(check(&image).status.success());
}
