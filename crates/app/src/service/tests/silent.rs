//! A core that does not turn holds up commands that change something on it, and none that only
//! reads.

use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::*;

const CONFIG: &str = r#"
    [[device]]
    name = "ram"
    kind = "memory"
    size = "64MiB"

    [[pool]]
    name = "p"
    devices = ["ram"]

    [[tenant]]
    name = "a"

    [[volume]]
    name = "v"
    pool = "p"
    size = "16MiB"
    tenant = "a"
"#;

fn look(service: &Service, request: Request) -> Value {
    match service.handle(request) {
        Ok(view) => serde_json::to_value(view).expect("a view is plain data"),
        Err(fault) => panic!("{fault}"),
    }
}

#[test]
fn who_only_looks_does_not_wait_for_a_core_that_does_not_turn() {
    let scene = Scene::new("silent");
    let service = scene.with(CONFIG);
    let pool = || look(&service, Request::Show(KindName::Pool, "p".into()));
    let faults = || look(&service, Request::Status(Page::default()))["faults"].clone();
    let (before, none) = (pool(), faults());
    assert_eq!(none, Value::Array(Vec::new()));

    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let stuck = service.cores.send(0, |_| async move {
        begin.send(()).expect("it is waited for");
        // Not even a task of its own: the thread itself stands still.
        let _ = ended.recv();
    });
    begun.recv().expect("the core has begun");
    assert_eq!(pool(), before, "as it was reported before");
    let silent = faults();
    assert_eq!(silent[0]["what"], "core 0", "{silent}");
    let volume = look(&service, Request::Show(KindName::Volume, "v".into()));
    assert_eq!(volume["size"], 16 << 20);
    for kind in [KindName::Device, KindName::Tenant, KindName::Volume] {
        let list = look(&service, Request::List(kind, Page::default()));
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    }
    look(&service, Request::Why { tenant: "a".into() });
    let silent = look(&service, Request::Activity(Page::default()));
    assert_eq!(silent["silent_cores"], serde_json::json!([0]));
    assert_eq!(silent["tenants"][0]["devices"][0]["queued"], 0);

    thread::scope(|scope| {
        let grow = Request::SetVolume {
            name: "v".into(),
            change: VolumeChange::Size(Size(32 << 20)),
        };
        let change = scope.spawn(|| look(&service, grow));
        drop(end);
        assert_eq!(change.join().expect("it ends")["size"], 32 << 20);
    });
    stuck.wait();
    assert_ne!(pool(), before, "as it is now");
    assert_eq!(faults(), none);
    service.end();
}
