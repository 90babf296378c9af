//! Devices that inject faults on purpose: a start does not meet them, and they can be taken away
//! whatever waits for what hangs.

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
            let reads = scope.spawn(|| service.content("v"));
            while injected(&service) == 0 {
                thread::yield_now();
            }
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
        let applied = scope.spawn(|| service.handle(applying(&file)));
        while service.stack().device("bad").is_err() || injected(&service) == 0 {
            thread::yield_now();
        }
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
    while injected(&service) == 0 {
        thread::yield_now();
    }
    thread::scope(|scope| {
        let moves = Request::MigrateVolume {
            name: "v".into(),
            to: "q".into(),
            background: false,
            force: false,
            progress: false,
        };
        let moves = scope.spawn(|| service.handle(moves));
        let is_moving = || {
            let stack = service.stack();
            let (_, volume) = stack.volume("v").expect("it is there");
            volume.record.moving.is_some()
        };
        while !is_moving() {
            thread::yield_now();
        }
        let snapshot = SnapshotChange::Create(vec!["v@now".parse().expect("a name")]);
        let refused = service.handle(Request::ChangeSnapshot(snapshot));
        let why = refused.map(drop).expect_err("it would stay behind");
        assert!(why.to_string().contains("way to pool `q`"), "{why}");
        let cancelled = service.handle(Request::CancelMigration("v".into()));
        assert!(cancelled.is_ok(), "{cancelled:?}");
        let moved = moves.join().expect("it ends");
        assert!(moved.is_err(), "{moved:?}");
        assert!(!is_moving());
    });
    set_faults(&service, &[]);
    read.wait();
    service.end();
}
