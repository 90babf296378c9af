//! Functions for virtual machines, made by commands and used by a guest of our own: a driver with
//! memory of its own, at the other end of the socket.

use std::cell::RefCell;
use std::fs;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flashyard_host::vfio::{Guest, GuestError, GuestOptions, VfioClient};
use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::identify::Cns;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_time::Duration;
use serde_json::{Value, json};

use crate::rig::{Scratch, Target, changed, names, path};

/// Bytes of a block of the devices here.
pub(crate) const BLOCK: usize = 4096;

/// For all that a guest does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A guest that takes little memory, of which some tests have many.
pub(crate) fn small() -> GuestOptions {
    GuestOptions {
        ram: 16 << 20,
        transfer: 32 << 10,
        ..GuestOptions::default()
    }
}

/// What a guest does, on a core of its own.
fn in_guest<F: Future<Output = ()> + 'static>(work: impl FnOnce(Rt) -> F + 'static) {
    let bounded = |rt: Rt| async move {
        let done = rt.timeout(PATIENCE, work(rt.clone())).await;
        done.expect("a guest has what it waits for in time");
    };
    uring::run(Config::default(), bounded).expect("this machine has io_uring");
}

/// A guest that uses a function. One that has lost its client a moment ago takes the next one when
/// it has noticed.
pub(crate) async fn guest(rt: &Rt, socket: &Path) -> Guest {
    for _ in 0..1000 {
        match Guest::start(rt, socket, small()).await {
            Ok(guest) => return guest,
            Err(GuestError::Client(_)) => rt.sleep(Duration::from_ms(5)).await,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the function takes no client")
}

pub(crate) fn range(slba: u64, blocks: u32) -> LbaRange {
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
pub(crate) fn with_volume(scratch: &Scratch, target: &Target) {
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

pub(crate) fn socket(function: &Value) -> PathBuf {
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

/// Runs what a guest does beside commands at the target.
pub(crate) fn beside<F: Future<Output = ()> + 'static>(
    target: Target,
    work: impl FnOnce(Rt, Rc<RefCell<Target>>) -> F + 'static,
) -> Target {
    let shared = Rc::new(RefCell::new(target));
    let given = shared.clone();
    in_guest(move |rt| work(rt, given));
    let target = Rc::try_unwrap(shared).map(RefCell::into_inner);
    target.unwrap_or_else(|_| panic!("the guest has ended"))
}

#[test]
fn many_are_made_at_once_or_none() {
    let scratch = Scratch::new("functions");
    let target = Target::start(&scratch, &["--cores", "2"]);
    with_volume(&scratch, &target);
    create(&target, "vm-7");
    let many = ["function", "create", "vm", "--tenant", "db", "--count"];
    target.refused(&[&many[..], &["8"]].concat(), "a function `vm-7` already");
    assert_eq!(names(&target.json(&["function", "list"])), ["vm-7"]);
    target.json(&["function", "delete", "vm-7"]);
    let made = target.json(&[&many[..], &["32"]].concat());
    assert_eq!(made.as_array().map(Vec::len), Some(32));
    let sockets: Vec<_> = made
        .as_array()
        .expect("a list")
        .iter()
        .map(socket)
        .collect();
    assert!(sockets[31].ends_with("vm-32.sock"));
    // Where the tenant's namespaces are.
    let core = &target.json(&["device", "show", "d"])["core"];
    for function in made.as_array().expect("a list") {
        assert_eq!(&function["core"], core);
    }
    let target = beside(target, move |rt, target| async move {
        let mut guests = Vec::new();
        for socket in &sockets {
            guests.push(guest(&rt, socket).await);
        }
        for (number, guest) in (1..).zip(&mut guests) {
            writes(guest, 1, number * 4).await;
        }
        for (number, guest) in (1..).zip(guests.iter_mut().rev()) {
            finds(guest, 1, number * 4).await;
        }
        let status = target.borrow().json(&["status"]);
        let rows = status["functions"].as_array().expect("a list");
        assert_eq!(rows.len(), 32);
        for row in rows {
            let seen = (
                &row["guest"],
                &row["io_queues"],
                &row["writes"],
                &row["reads"],
            );
            assert_eq!(seen, (&json!("running"), &json!(2), &json!(1), &json!(1)));
        }
        assert_eq!(status["tenants"][0]["hosts"], 32);
        assert_eq!(status["target"]["functions"], 32);
    });
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_function_goes_under_load_only_if_that_is_said() {
    let scratch = Scratch::new("delete");
    let target = Target::start(&scratch, &[]);
    with_volume(&scratch, &target);
    let place = socket(&create(&target, "vm1"));
    let other = socket(&create(&target, "vm2"));
    let target = beside(target, move |rt, target| async move {
        let mut used = guest(&rt, &place).await;
        let mut beside = guest(&rt, &other).await;
        writes(&mut used, 1, 1).await;
        target
            .borrow()
            .refused(&["function", "delete", "vm1"], "say --yes");
        target
            .borrow()
            .refused(&["tenant", "delete", "db"], "delete its");
        finds(&mut used, 1, 1).await;
        for number in 0..40 {
            let cid = used.take_place(1).expect("room");
            let entry =
                SubmissionQueueEntry::write(1, range(number, 8), Sgl::Transport { length: 0 });
            used.put_io(1, (entry, cid), (0, 8 * BLOCK as u32))
                .expect("room");
        }
        used.ring(1).await.expect("rung");
        target
            .borrow()
            .json(&["function", "delete", "vm1", "--yes"]);
        assert!(used.status().await.is_err(), "the connection is closed");
        assert!(!place.exists());
        writes(&mut beside, 1, 100).await;
        finds(&mut beside, 1, 100).await;
        // Another one of the same name waits for what this one has issued.
        create(&target.borrow(), "vm1");
        let mut again = guest(&rt, &place).await;
        writes(&mut again, 1, 60).await;
        finds(&mut again, 1, 60).await;
    });
    assert_eq!(target.terminate(), 0);
}

#[test]
fn after_kill_9_sockets_return_and_nothing_else_is_removed() {
    let scratch = Scratch::new("function-kill");
    let target = Target::start(&scratch, &[]);
    with_volume(&scratch, &target);
    let place = socket(&create(&target, "vm1"));
    let taken = socket(&create(&target, "vm2"));
    let at = place.clone();
    let target = beside(target, move |rt, target| async move {
        let mut guest = guest(&rt, &at).await;
        writes(&mut guest, 1, 9).await;
        target.borrow_mut().child.kill().expect("it runs");
        target.borrow_mut().child.wait().expect("it was ours");
        assert!(guest.status().await.is_err(), "the connection is closed");
    });
    drop(target);
    assert!(place.exists(), "it is still there");
    // Another program has its own socket there now.
    fs::remove_file(&taken).expect("ours");
    let foreign = UnixListener::bind(&taken).expect("free");

    let target = Target::start(&scratch, &[]);
    let at = place.clone();
    in_guest(move |rt| async move {
        let mut guest = guest(&rt, &at).await;
        finds(&mut guest, 1, 9).await;
    });
    let refused = target.json(&["function", "show", "vm2"]);
    assert_eq!(refused["state"], "unavailable");
    let fault = refused["fault"].as_str().expect("a reason");
    assert!(fault.contains("has not made it: remove it"), "{fault}");
    assert!(taken.exists());
    UnixStream::connect(&taken).expect("it listens still");
    drop(foreign);
    target.json(&["function", "delete", "vm2"]);
    assert!(taken.exists(), "it was never ours");
}

#[test]
fn a_socket_has_the_permissions_that_were_said() {
    let scratch = Scratch::new("permissions");
    let target = Target::start(&scratch, &[]);
    with_volume(&scratch, &target);
    let place = scratch.join("run/vm1.sock");
    let own = fs::metadata(&scratch).expect("ours").gid().to_string();
    let create = ["function", "create", "vm1", "--tenant", "db"];
    let with = |more: &[&'static str]| [&create[..], more].concat();
    target.refused(
        &with(&["--owner", "no-such-user"]),
        "no user `no-such-user`",
    );
    target.refused(
        &with(&["--group", "no-such-group"]),
        "no group `no-such-group`",
    );
    let long = "x".repeat(120);
    target.refused(&[&create[..], &["--socket", &long]].concat(), "at most 96");
    target.refused(
        &["function", "create", "vm1", "--tenant", "eve"],
        "no tenant `eve`",
    );
    let file = scratch.file("taken", "a file");
    let taken = [&create[..], &["--socket", path(&file)]].concat();
    target.refused(&taken, "remove it if nothing uses it");
    assert_eq!(fs::read(&file).expect("it stays"), b"a file");
    assert_eq!(names(&target.json(&["function", "list"])), [""; 0]);

    let good = ["--socket", path(&place), "--mode", "0660", "--group", &own];
    target.json(&[&create[..], &good].concat());
    let mode = || fs::metadata(&place).expect("it is there").mode() & 0o777;
    assert_eq!(mode(), 0o660);
    target.refused(
        &[
            "function",
            "create",
            "vm2",
            "--tenant",
            "db",
            "--socket",
            path(&place),
        ],
        "function `vm1`",
    );
    target.refused(&["function", "set", "vm1"], "nothing to change");
    target.json(&["function", "set", "vm1", "--mode", "0600"]);
    assert_eq!(mode(), 0o600);
    let shown = target.json(&["function", "show", "vm1"]);
    assert_eq!(
        (&shown["mode"], &shown["group"]),
        (&json!("0600"), &json!(own))
    );

    // A second target finds the folder taken, and serves the rest.
    let second = Scratch::new("permissions-2");
    let other = Target::start(&second, &[]);
    other.json(&["tenant", "create", "db"]);
    let beside = scratch.join("run/vm9.sock");
    let refused = [
        "function",
        "create",
        "vm9",
        "--tenant",
        "db",
        "--socket",
        path(&beside),
    ];
    other.refused(&refused, "another target that runs has its sockets in");
    assert_eq!(target.terminate(), 0);
    other.json(&refused);
}

const FILE: &str = r#"
    [target]
    socket_folder = "run"

    [[device]]
    name = "m"
    kind = "memory"
    size = "16MiB"

    [[tenant]]
    name = "db"

    [[volume]]
    name = "v"
    device = "m"
    tenant = "db"

    [[function]]
    name = "vm1"
    tenant = "db"
    mode = "0660"

    [[function]]
    name = "vm2"
    tenant = "db"
    socket = "other/vm2.sock"
"#;

/// Where the doorbells of functions can be mapped, as clients are told.
fn mappable(sockets: Vec<PathBuf>) -> Vec<bool> {
    let found = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&found);
    in_guest(move |rt| async move {
        for socket in sockets {
            let mut client = loop {
                match VfioClient::connect(&rt, &socket).await {
                    Ok(client) => break client,
                    Err(_) => rt.sleep(Duration::from_ms(5)).await,
                }
            };
            let bar = client.region(0).await.expect("it answers");
            seen.borrow_mut().push(!bar.areas.is_empty());
        }
    });
    found.take()
}

#[test]
fn doorbells_are_mapped_where_that_was_chosen() {
    let scratch = Scratch::new("function-doorbells");
    let target = Target::start(&scratch, &[]);
    target.json(&["tenant", "create", "db"]);
    let fast = ["function", "create", "fast", "--tenant", "db"];
    let fast = target.json(&[&fast[..], &["--doorbells", "mapped"]].concat());
    let plain = create(&target, "plain");
    assert_eq!(
        (&fast["doorbells"], &plain["doorbells"]),
        (&json!("mapped"), &json!("trapped"))
    );
    let sockets = vec![socket(&fast), socket(&plain)];
    assert_eq!(mappable(sockets.clone()), [true, false]);
    let set = ["function", "set", "fast", "--doorbells", "trapped"];
    assert_eq!(target.json(&set)["doorbells"], "trapped");
    let set = ["function", "set", "plain", "--doorbells", "mapped"];
    assert_eq!(target.json(&set)["doorbells"], "mapped");
    assert_eq!(target.terminate(), 0);
    let target = Target::start(&scratch, &[]);
    assert_eq!(mappable(sockets), [false, true], "from the next start on");
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_file_makes_functions_changes_them_and_deletes_them() {
    let scratch = Scratch::new("function-file");
    let file = scratch.file("target.toml", FILE);
    let target = Target::start(&scratch, &["--config", path(&file)]);
    let places = [scratch.join("run/vm1.sock"), scratch.join("other/vm2.sock")];
    let list = target.json(&["function", "list"]);
    let found: Vec<_> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(socket)
        .collect();
    assert_eq!(found, places);
    let apply = |target: &Target, text: &str, more: &[&str]| {
        let file = scratch.file("target.toml", text);
        target.json(&[&["apply", path(&file)], more].concat())
    };
    assert_eq!(apply(&target, FILE, &[])["changes"], json!([]));

    // What `export` says makes the same, and changes nothing here.
    let exported = scratch.join("exported.toml");
    let written = target.json(&["export", "--output", path(&exported)]);
    assert_eq!(written["path"], path(&exported));
    let text = fs::read_to_string(&exported).expect("it was written");
    assert_eq!(
        target.json(&["apply", path(&exported), "--plan"])["changes"],
        json!([])
    );
    assert!(text.contains("[[function]]"), "{text}");

    let mode = || fs::metadata(&places[0]).expect("it is there").mode() & 0o777;
    assert_eq!(mode(), 0o660);
    let closed = FILE.replace("mode = \"0660\"", "");
    let planned = apply(&target, &closed, &["--plan"]);
    assert_eq!(changed(&planned), ["function vm1 mode"]);
    assert_eq!(mode(), 0o660, "a plan changes nothing");
    apply(&target, &closed, &[]);
    assert_eq!(mode(), 0o600);

    let moved = FILE.replace("other/vm2.sock", "elsewhere/vm2.sock");
    let moved = scratch.file("target.toml", &moved);
    target.refused(&["apply", path(&moved)], "its socket is");
    let nobody = format!("{closed}\n[[function]]\nname = \"vm3\"\ntenant = \"eve\"\n");
    let nobody = scratch.file("target.toml", &nobody);
    target.refused(&["apply", path(&nobody)], "there is no tenant `eve`");

    // The third cannot be made: nothing of the file is done.
    let foreign = scratch.file("foreign", "a file");
    let more = format!(
        "{closed}\n[[function]]\nname = \"vm3\"\ntenant = \"db\"\n\
         [[function]]\nname = \"vm4\"\ntenant = \"db\"\nsocket = \"{}\"\n",
        path(&foreign)
    );
    let more = scratch.file("target.toml", &more);
    target.refused(&["apply", path(&more)], "nothing was changed");
    assert_eq!(names(&target.json(&["function", "list"])), ["vm1", "vm2"]);
    assert!(!scratch.join("run/vm3.sock").exists());

    target.json(&["tenant", "rename", "db", "shop"]);
    let renamed = target.json(&["function", "show", "vm1"]);
    assert_eq!(
        (&renamed["tenant"], &renamed["guest"]),
        (&json!("shop"), &json!("none"))
    );
    target.json(&["tenant", "rename", "shop", "db"]);

    let fewer = closed.split("[[function]]").next().expect("the first part");
    let kept = apply(&target, fewer, &[]);
    assert!(
        kept["notes"]
            .to_string()
            .contains("function vm2 is no longer in the file")
    );
    let file = scratch.file("target.toml", fewer);
    target.refused(
        &["apply", path(&file), "--prune"],
        "function vm1 would be deleted",
    );
    apply(&target, fewer, &["--prune", "--yes"]);
    assert_eq!(names(&target.json(&["function", "list"])), [""; 0]);
    assert!(places.iter().all(|place| !place.exists()));
    assert_eq!(target.terminate(), 0);

    // All of it again from what was exported, by a target that knows nothing.
    fs::remove_dir_all(scratch.join("state")).expect("ours");
    let target = Target::start(&scratch, &["--config", path(&exported)]);
    let list = target.json(&["function", "list"]);
    let found: Vec<_> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(socket)
        .collect();
    assert_eq!(found, places);
    target.kill();

    // The state is lost, and the sockets of the target that was killed are there.
    fs::remove_dir_all(scratch.join("state")).expect("ours");
    let target = Target::start(&scratch, &["--config", path(&exported)]);
    let status = target.json(&["status"]);
    assert_eq!(status["faults"], json!([]));
    assert_eq!(status["functions"][1]["state"], "online");
}

#[test]
fn a_guest_sees_volumes_that_come_grow_and_go() {
    let scratch = Scratch::new("function-hot");
    let target = Target::start(&scratch, &[]);
    with_volume(&scratch, &target);
    let place = socket(&create(&target, "vm1"));
    let target = beside(target, move |rt, target| async move {
        let mut guest = guest(&rt, &place).await;
        // Namespace Attribute Notices, as Linux asks for them.
        let notices = SubmissionQueueEntry::set_features(0x0b, 0, 1 << 8);
        guest.admin(notices).await.expect("set");
        for (change, namespaces) in [
            (
                &[
                    "volume", "create", "v2", "--pool", "p", "--size", "8MiB", "--tenant", "db",
                ][..],
                &[1, 2][..],
            ),
            (&["volume", "set", "v2", "--size", "16MiB"], &[1, 2]),
            (&["volume", "delete", "v1", "--yes"], &[2]),
        ] {
            let cid = guest.take_place(0).expect("room");
            let asks = SubmissionQueueEntry::async_event_request().with_cid(cid);
            guest.put(0, &asks).expect("room");
            guest.ring(0).await.expect("rung");
            target.borrow().json(change);
            let event = guest.completion(0).await.expect("an event");
            assert_eq!(
                event.dw0(),
                AsyncEvent::NAMESPACE_CHANGED.dw0(),
                "{change:?}"
            );
            let list = guest
                .identify(Cns::ACTIVE_NAMESPACES, 0)
                .await
                .expect("a list");
            let found = list
                .chunks(4)
                .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
            let found: Vec<u32> = found.take_while(|nsid| *nsid > 0).collect();
            assert_eq!(found, namespaces, "{change:?}");
            // The event is reported once for each time that the list of changes is read.
            let cid = guest.take_place(0).expect("room");
            let at = guest.data(0, cid, 0);
            let sgl = Sgl::Transport { length: 0 };
            let log = SubmissionQueueEntry::get_log_page(4, 0xffff_ffff, 0, 4096, false, sgl);
            guest
                .put(0, &log.with_cid(cid).with_prps(at, 0))
                .expect("room");
            guest.ring(0).await.expect("rung");
            assert!(
                guest
                    .completion(0)
                    .await
                    .expect("the log")
                    .status()
                    .is_success()
            );
        }
        let size = guest
            .identify(Cns::NAMESPACE, 2)
            .await
            .expect("a namespace");
        let blocks = u64::from_le_bytes(size[..8].try_into().expect("eight bytes"));
        assert_eq!(blocks * BLOCK as u64, 16 << 20);
        writes(&mut guest, 2, 5).await;
        finds(&mut guest, 2, 5).await;
    });
    assert_eq!(target.terminate(), 0);
}

/// A function in front of a namespace of another target, as a machine has it that offers only
/// functions.
#[test]
fn a_function_stands_in_front_of_a_remote_namespace() {
    let far = Scratch::new("function-far");
    let storage = Target::start(&far, &[]);
    with_volume(&far, &storage);
    storage.json(&["tenant", "set", "db", "--host", "*"]);
    let near = Scratch::new("function-near");
    let target = Target::start(&near, &[]);
    let subnqn = "nqn.2026-11.dev.flashyard:db";
    let remote = [
        "device",
        "create",
        "r",
        "--kind",
        "nvme-tcp",
        "--address",
        &storage.address,
    ];
    target.json(
        &[
            &remote[..],
            &["--subnqn", subnqn, "--nsid", "1", "--block-size", "4096"],
        ]
        .concat(),
    );
    target.json(&["tenant", "create", "vms"]);
    target.json(&[
        "volume", "create", "disk", "--device", "r", "--tenant", "vms", "--keep",
    ]);
    let place = socket(&target.json(&["function", "create", "vm1", "--tenant", "vms"]));
    let direct = socket(&create(&storage, "there"));
    let at = direct.clone();
    in_guest(move |rt| async move {
        let mut guest = guest(&rt, &place).await;
        for seed in [1, 40, 80] {
            writes(&mut guest, 1, seed).await;
        }
        for seed in [80, 40, 1] {
            finds(&mut guest, 1, seed).await;
        }
    });
    // It is on the other target.
    in_guest(move |rt| async move {
        let mut guest = guest(&rt, &at).await;
        finds(&mut guest, 1, 40).await;
    });
    assert_eq!(target.terminate(), 0);
    assert_eq!(storage.terminate(), 0);
}
