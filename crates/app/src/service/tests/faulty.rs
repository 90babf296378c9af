//! Devices that inject faults on purpose: a start does not meet them, and they can be taken away
//! whatever waits for what hangs.

use super::*;
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
