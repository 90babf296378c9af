//! Devices that inject faults on purpose: a start does not meet them, and they can be taken away
//! whatever waits for what hangs.

use std::time::{Duration, Instant};

use super::migration::migrate;
use super::*;
use crate::control::SnapshotChange;
use crate::spec::FaultSpec;

const HANGS: &str = r#"
    [[device]]
    name = "disk"
    kind = "file"
    path = "LIVE/disk"
    size = "8MiB"

    [[device]]
    name = "bad"
    kind = "fault"
    device = "disk"
    faults = [{ kind = "hang" }]

    [[pool]]
    name = "p"
    devices = ["bad"]

    [[tenant]]
    name = "a"

    [[volume]]
    name = "v"
    pool = "p"
    size = "2MiB"
    tenant = "a"
"#;

/// More than anything takes that waits for nothing.
const PATIENCE: Duration = Duration::from_mins(1);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Takes the faults away when a test fails: else its other threads would wait for ever.
struct Freed<'a>(&'a Service);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        let (name, faults) = ("bad".into(), Vec::new());
        let _ = self.0.handle(Request::SetFaults { name, faults });
    }
}

fn set_faults(service: &Service, faults: &[&str]) {
    let faults = faults.iter().map(|fault| fault.parse::<FaultSpec>());
    let set = service.handle(Request::SetFaults {
        name: "bad".into(),
        faults: faults.collect::<Result<_, _>>().expect("faults"),
    });
    assert!(set.is_ok(), "{set:?}");
}

fn injected(service: &Service) -> u64 {
    let shown = service.handle(Request::Show(KindName::Device, "bad".into()));
    let shown = serde_json::to_value(shown.expect("it is there")).expect("plain data");
    shown["injected"][0]["injected"].as_u64().unwrap_or(0)
}

/// Neither what is opened nor what the file of a start makes.
#[test]
fn a_start_does_not_wait_for_what_hangs() {
    let scene = Scene::new("start-hangs");
    let file = HANGS.replace("LIVE", scene.live().to_str().expect("plain names"));
    let file = Document::parse(&file, Path::new("/")).expect("it is right");
    for round in 0..2 {
        let service = scene.open();
        let applied = service.apply_at_start(&file);
        assert!(applied.is_ok(), "round {round}: {applied:?}");
        assert_eq!(service.faults().len(), 0, "round {round}");
        if round == 0 {
            service.fill("v", 0xa1);
        }
        assert_eq!(injected(&service), 0);
        service.inject_faults().expect("it runs");
        thread::scope(|scope| {
            let _freed = Freed(&service);
            let reads = scope.spawn(|| service.content("v"));
            until("a read", || injected(&service) > 0);
            set_faults(&service, &[]);
            let (_, bytes) = reads.join().expect("it ends");
            assert_eq!(bytes, BTreeSet::from([0xa1]), "round {round}");
        });
        set_faults(&service, &["hang"]);
        service.end();
    }
}

/// Whatever a file that is applied waits for: the fault that it has set itself, too.
#[test]
fn what_hangs_is_freed_while_a_file_waits_for_it() {
    let scene = Scene::new("file-hangs");
    let file = HANGS.replace("LIVE", scene.live().to_str().expect("plain names"));
    let service = scene.start();
    thread::scope(|scope| {
        let _freed = Freed(&service);
        let applied = scope.spawn(|| service.handle(applying(&file)));
        let is_there = || service.stack().device("bad").is_ok();
        until("an I/O", || is_there() && injected(&service) > 0);
        set_faults(&service, &[]);
        let applied = applied.join().expect("it ends");
        assert!(applied.is_ok(), "{applied:?}");
    });
    assert_eq!(service.content("v").1, BTreeSet::from([0]));
    service.end();
}

/// A move begins when what was in flight has ended. Until then it can be cancelled.
#[test]
fn a_move_that_waits_for_what_hangs_can_be_cancelled() {
    let scene = Scene::new("move-hangs");
    let other = r#"
        [[device]]
        name = "ram"
        kind = "memory"
        size = "8MiB"

        [[pool]]
        name = "q"
        devices = ["ram"]
    "#;
    let service = scene.with(&HANGS.replace("{ kind = \"hang\" }", ""));
    let live = scene.live();
    let config = format!("{HANGS}{other}").replace("LIVE", live.to_str().expect("plain names"));
    let config = config.replace("{ kind = \"hang\" }", "");
    assert!(service.handle(applying(&config)).is_ok());
    set_faults(&service, &["hang"]);
    let stack = service.stack();
    let (id, _) = stack.volume("v").expect("it is there");
    let way = stack.namespace(id).expect("it is served").clone();
    let read = service.cores.send(way.core(), move |state| async move {
        let volume = state.engine.way_to(&way);
        let into = Buf::take(4096).expect("memory for one");
        let _ = volume.read(Tag::default(), 0, into).await;
    });
    until("a read", || injected(&service) > 0);
    thread::scope(|scope| {
        let _freed = Freed(&service);
        let moves = scope.spawn(|| service.handle(migrate("v", "q")));
        let is_moving = || {
            let stack = service.stack();
            let (_, volume) = stack.volume("v").expect("it is there");
            volume.record.moving.is_some()
        };
        until("the move", is_moving);
        let snapshot = SnapshotChange::Create(vec!["v@now".parse().expect("a name")]);
        let refused = service.handle(Request::ChangeSnapshot(snapshot));
        let why = refused.map(drop).expect_err("it would stay behind");
        assert!(why.to_string().contains("way to pool `q`"), "{why}");
        let cancels = scope.spawn(|| service.handle(Request::CancelMigration("v".into())));
        until("the cancel", || cancels.is_finished());
        let cancelled = cancels.join().expect("it ends");
        assert!(cancelled.is_ok(), "{cancelled:?}");
        until("the end of the move", || moves.is_finished());
        let moved = moves.join().expect("it ends");
        assert!(moved.is_err(), "{moved:?}");
        assert!(!is_moving());
    });
    set_faults(&service, &[]);
    read.wait();
    service.end();
}
