//! A volume goes from pool to pool, and from core to core, under a verifying load: nothing that was
//! acknowledged is missing, whenever the target is killed, and no I/O fails while it lives.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use flashyard_host::{Association, Options, Queue, ReadInto};
use flashyard_nvme::Nqn;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data, Rt, uring};
use flashyard_time::Rng;

use crate::rig::{Scratch, Target};

/// Kills in `make test`; `FLASHYARD_ROUNDS=25` makes it 200.
const KILLS: u64 = 8;
const BLOCK: usize = 4096;
/// Blocks of the volume, each of which one writer has.
const BLOCKS: u64 = 4096;
const WRITERS: u64 = 6;

/// What each block holds: the number of the last write that was acknowledged, and of the last one
/// that was sent.
#[derive(Clone)]
struct Model {
    acknowledged: Vec<u64>,
    sent: Vec<u64>,
    next: u64,
}

impl Model {
    fn new() -> Self {
        let all = || vec![0; BLOCKS as usize];
        Self {
            acknowledged: all(),
            sent: all(),
            next: 1,
        }
    }
}

fn filled(number: u64) -> Buf {
    let mut buf = Buf::take(BLOCK).expect("there is memory");
    for word in buf.chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    buf
}

async fn number_at(queue: &Queue, block: u64) -> Option<u64> {
    let into = Buf::take(BLOCK).expect("there is memory");
    let range = LbaRange {
        slba: block,
        blocks: 1,
    };
    let read = queue.read(1, range, ReadInto::Buf(into)).await.ok()?;
    let ReadInto::Buf(data) = read else {
        unreachable!("a buffer was given")
    };
    let mut words = data
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next().unwrap_or(0);
    assert!(words.all(|word| word == first), "block {block} is torn");
    Some(first)
}

/// What is in the volume is what was acknowledged, or what was sent after it; whether the target
/// was there until all was read.
async fn verify(queue: &Queue, model: &mut Model) -> bool {
    for block in 0..BLOCKS {
        let at = block as usize;
        let Some(found) = number_at(queue, block).await else {
            return false;
        };
        let (acknowledged, sent) = (model.acknowledged[at], model.sent[at]);
        assert!(
            found == acknowledged || found == sent,
            "block {block} holds write {found}, not {acknowledged} or {sent}"
        );
        model.acknowledged[at] = found;
        model.sent[at] = found;
    }
    true
}

/// Writes and reads until stopped or the target goes; an I/O that fails before is a defect.
async fn writer(
    queue: Queue,
    model: Rc<RefCell<Model>>,
    own: u64,
    mut rng: Rng,
    stop: Rc<dyn Fn() -> bool>,
) -> bool {
    let some = BLOCKS / WRITERS;
    while !stop() {
        let block = own + WRITERS * rng.below(some);
        let at = block as usize;
        if rng.below(3) == 0 {
            let expected = model.borrow().acknowledged[at];
            match number_at(&queue, block).await {
                Some(found) => assert_eq!(found, expected, "block {block}"),
                None => return false,
            }
            continue;
        }
        let number = {
            let mut model = model.borrow_mut();
            model.next += 1;
            model.sent[at] = model.next;
            model.next
        };
        let range = LbaRange {
            slba: block,
            blocks: 1,
        };
        let data = Data::Buf(filled(number));
        if queue
            .write(1, range, data, rng.below(16) == 0)
            .await
            .is_err()
        {
            return false;
        }
        model.borrow_mut().acknowledged[at] = number;
        if rng.below(64) == 0 && queue.flush(1).await.is_err() {
            return false;
        }
    }
    true
}

/// One life of the target: what it holds is verified, then it is used until `stop` or its end.
/// Gives what is known then, and whether all I/O was answered.
fn use_volume(target: &Target, model: Model, seed: u64, stop: Arc<AtomicBool>) -> (Model, bool) {
    let address: SocketAddr = target.address.parse().expect("it is an address");
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let options = Options::new(
        nqn("nqn.2026-11.dev.flashyard:db"),
        nqn("nqn.2026-11.test:host"),
        [9; 16],
    );
    let talk = move |rt: Rt| async move {
        let Ok(host) = Association::connect(&rt, address, options).await else {
            return (model, false);
        };
        let (queue, mut known) = (host.queue(0), model);
        if !verify(&queue, &mut known).await {
            return (known, false);
        }
        let model = Rc::new(RefCell::new(known));
        let ended = Rc::new(Cell::new(false));
        let (other, flag) = (Rc::clone(&ended), stop);
        let stop: Rc<dyn Fn() -> bool> =
            Rc::new(move || other.get() || flag.load(Ordering::Relaxed));
        let writers: Vec<_> = (0..WRITERS)
            .map(|own| {
                let rng = Rng::new(seed ^ own << 32);
                let (queue, model) = (host.queue(0), Rc::clone(&model));
                rt.spawn(writer(queue, model, own, rng, Rc::clone(&stop)))
            })
            .collect();
        let mut good = true;
        for writer in writers {
            good &= writer.await;
            ended.set(!good);
        }
        let model = model.borrow().clone();
        (model, good)
    };
    uring::run(uring::Config::default(), talk).expect("io_uring is allowed here")
}

fn two_pools(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &["--cores", "2"]);
    for name in ["one", "two"] {
        let path = scratch.join(format!("{name}.img"));
        let path = path.to_str().expect("plain names");
        target.json(&[
            "device", "create", name, "--kind", "file", "--path", path, "--size", "64MiB",
        ]);
        target.json(&["pool", "create", name, "--device", name]);
    }
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "v", "--pool", "one", "--size", "16MiB", "--tenant", "db",
    ]);
    target
}

/// There and back.
type Goals = [&'static [&'static str]; 2];

const POOLS: Goals = [&["--to", "two"], &["--to", "one"]];
const SETTINGS: Goals = [
    &["--to-settings", "--compression", "zstd", "--chunk", "16KiB"],
    &["--to-settings", "--compression", "none", "--chunk", "4KiB"],
];

/// A mapped pool with the volume.
fn mapped_pool(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &["--cores", "2"]);
    let path = scratch.join("one.img");
    let path = path.to_str().expect("plain names");
    let device = ["device", "create", "one", "--kind", "file", "--path", path];
    target.json(&[&device[..], &["--size", "128MiB"]].concat());
    target.json(&[
        "pool", "create", "one", "--device", "one", "--kind", "mapped",
    ]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "volume", "create", "v", "--pool", "one", "--size", "16MiB", "--tenant", "db",
    ]);
    target
}

/// Moves the volume there and back until the target goes; counts the moves.
fn move_about(state: &std::path::Path, goals: Goals, stop: &AtomicBool, moved: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        for goal in goals {
            let done = std::process::Command::new(crate::rig::PROGRAM)
                .args(["volume", "move", "v"])
                .args(goal)
                .arg("--state")
                .arg(state)
                .output()
                .expect("the program starts");
            moved.fetch_add(u64::from(done.status.success()), Ordering::Relaxed);
        }
    }
}

/// Waits until the volume goes nowhere any more.
fn wait_for_rest(target: &Target) {
    loop {
        let shown = target.json(&["volume", "show", "v"]);
        match shown["migration"]["state"].as_str() {
            None => return,
            Some("copying" | "leaving") => thread::sleep(Duration::from_millis(20)),
            Some(_) => panic!("{shown}"),
        }
    }
}

#[test]
fn a_volume_that_moves_is_whole_after_kill_9_at_any_moment() {
    let scratch = Scratch::new("migration-killed");
    let target = two_pools(&scratch);
    is_whole_after_kills(&scratch, target, POOLS);
}

#[test]
fn a_volume_that_gets_other_settings_is_whole_after_kill_9_at_any_moment() {
    let scratch = Scratch::new("settings-killed");
    let target = mapped_pool(&scratch);
    is_whole_after_kills(&scratch, target, SETTINGS);
}

fn is_whole_after_kills(scratch: &Scratch, mut target: Target, goals: Goals) {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    let rounds = rounds
        .and_then(|text| text.parse::<u64>().ok())
        .unwrap_or(1);
    let (mut model, mut rng) = (Model::new(), Rng::new(29));
    let moved = AtomicU64::new(0);
    for kill in 0..KILLS * rounds {
        let wait = Duration::from_millis(200 + rng.below(1800));
        let (stop, id) = (AtomicBool::new(false), target.child.id().to_string());
        model = thread::scope(|scope| {
            scope.spawn(|| move_about(&target.state, goals, &stop, &moved));
            scope.spawn(|| {
                thread::sleep(wait);
                stop.store(true, Ordering::Relaxed);
                let kill = std::process::Command::new("kill")
                    .args(["-9", &id])
                    .status();
                assert!(kill.expect("kill exists").success());
            });
            let never = Arc::new(AtomicBool::new(false));
            use_volume(&target, model, kill, never).0
        });
        target.kill();
        target = Target::start(scratch, &["--cores", "2"]);
    }
    // What was cut off ends by itself.
    wait_for_rest(&target);
    let stop = Arc::new(AtomicBool::new(true));
    let (_, good) = use_volume(&target, model, 0, stop);
    assert!(good, "the volume is there");
    assert!(
        moved.load(Ordering::Relaxed) > KILLS * rounds / 4,
        "it moved"
    );
    assert_eq!(target.terminate(), 0);
}

#[test]
fn no_io_fails_because_a_volume_moves_or_stays() {
    let scratch = Scratch::new("migration-live");
    no_io_fails(two_pools(&scratch), POOLS);
}

#[test]
fn no_io_fails_because_a_volume_gets_other_settings() {
    let scratch = Scratch::new("settings-live");
    let target = no_io_fails(mapped_pool(&scratch), SETTINGS);
    let there = |target: &Target| {
        let volume = target.json(&["volume", "show", "v"]);
        let compression = volume["compression"].as_str().map(str::to_owned);
        (compression, volume["chunk_bytes"].as_u64())
    };
    let wanted = match there(&target).0 {
        Some(_) => 1,
        None => 0,
    };
    target.json(&[&["volume", "move", "v"], SETTINGS[wanted]].concat());
    let after = [(Some("zstd".to_owned()), Some(16384)), (None, Some(4096))];
    assert_eq!(there(&target), after[wanted]);
    let again = [&["volume", "move", "v"], SETTINGS[wanted]].concat();
    target.refused(&again, "is kept so already");
    let odd = ["volume", "move", "v", "--to-settings", "--chunk", "8KiB"];
    target.refused(&odd, "use 4KiB, or 16KiB");
    target.json(&["snapshot", "create", "v@s"]);
    let other = [&["volume", "move", "v"], SETTINGS[1 - wanted]].concat();
    target.refused(&other, "volume `v` has snapshots");
    target.json(&["volume", "clone", "v@s", "c"]);
    let clone = [&["volume", "move", "c"], SETTINGS[1 - wanted]].concat();
    target.refused(&clone, "volume `c` is a clone of v@s");
    target.json(&[
        "device", "create", "m", "--kind", "memory", "--size", "16MiB",
    ]);
    target.json(&["pool", "create", "raw", "--device", "m"]);
    let volume = [
        "volume", "create", "r", "--pool", "raw", "--size", "4MiB", "--tenant", "db",
    ];
    target.json(&volume);
    let raw = [&["volume", "move", "r"], SETTINGS[0]].concat();
    target.refused(&raw, "raw pool");
    assert_eq!(target.terminate(), 0);
}

/// Gives the target, with the volume at rest.
fn no_io_fails(target: Target, goals: Goals) -> Target {
    let identity = |target: &Target| {
        let volume = target.json(&["volume", "show", "v"]);
        ["uuid", "nguid", "nsid", "size", "subnqn"].map(|key| volume[key].clone())
    };
    let before = identity(&target);
    let (stop, ends) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let moved = AtomicU64::new(0);
    thread::scope(|scope| {
        let load = scope.spawn(|| use_volume(&target, Model::new(), 7, Arc::clone(&stop)));
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(3));
            ends.store(true, Ordering::Relaxed);
        });
        move_about(&target.state, goals, &ends, &moved);
        // Perhaps it is kept so already.
        target.run(&[&["volume", "move", "v"], goals[0], &["--background"]].concat());
        // It may be there already.
        target.run(&["volume", "move", "v", "--cancel"]);
        stop.store(true, Ordering::Relaxed);
        let (_, good) = load.join().expect("it verified all");
        assert!(good, "an I/O failed");
    });
    assert!(moved.load(Ordering::Relaxed) >= 2, "it moved");
    assert_eq!(identity(&target), before);
    wait_for_rest(&target);
    target
}
