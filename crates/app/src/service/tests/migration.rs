//! Volumes that go to another pool, cut off everywhere.

use super::*;
use crate::control::{Destination, NewForm};
use crate::spec::CompressionName;

const POOLS: &str = r#"
    [[device]]
    name = "disk"
    kind = "file"
    path = "LIVE/disk"
    size = "8MiB"

    [[device]]
    name = "other"
    kind = "file"
    path = "LIVE/other"
    size = "8MiB"

    [[pool]]
    name = "p"
    devices = ["disk"]

    [[pool]]
    name = "q"
    devices = ["other"]

    [[tenant]]
    name = "a"

    [[tenant]]
    name = "b"
"#;

impl Service {
    /// What a start has found goes on; here without threads of its own.
    pub(super) fn finish_migrations(&self, place: &str) {
        let mut work = self.work().expect("it does not end");
        let volumes: Vec<_> = work.graph.all(Kind::Volume).collect();
        for id in volumes {
            let moved = work.finish_migration(id, false);
            moved.unwrap_or_else(|fault| panic!("{place}: {fault}"));
        }
    }

    fn place_of(&self, volume: &str) -> String {
        let stack = self.stack();
        let (_, volume) = stack.volume(volume).expect("it is there");
        volume.record.place().to_owned()
    }
}

pub(super) fn migrate(name: &str, pool: &str) -> Request {
    Request::MigrateVolume {
        name: name.into(),
        to: Destination::Pool(pool.into()),
        background: false,
        force: false,
        progress: false,
    }
}

fn reform(name: &str) -> Request {
    Request::MigrateVolume {
        name: name.into(),
        to: Destination::Form(NewForm {
            compression: Some(CompressionName::Lz4),
            chunk: None,
        }),
        background: false,
        force: false,
        progress: false,
    }
}

fn to(pool: &str) -> Act {
    ask(migrate("v", pool))
}

fn script() -> Vec<Act> {
    vec![
        create("name = \"v\"\npool = \"p\"\nsize = \"4MiB\"\ntenant = \"a\""),
        Act::Fill("v", 0xa1),
        create("name = \"w\"\npool = \"q\"\nsize = \"1MiB\"\ntenant = \"b\""),
        Act::Fill("w", 0xb1),
        to("q"),
        Act::Fill("v", 0xa1),
        create("name = \"x\"\npool = \"p\"\nsize = \"6MiB\"\ntenant = \"b\""),
        Act::Fresh("x"),
        delete(KindName::Volume, "x"),
        to("p"),
        Act::Fill("v", 0xa1),
    ]
}

/// A device that volumes are, whole.
const WHOLE: &str = r#"
    [[device]]
    name = "whole"
    kind = "file"
    path = "LIVE/whole"
    size = "4MiB"
"#;

/// A whole device goes to a pool, and another tenant gets the device.
fn script_of_a_device() -> Vec<Act> {
    vec![
        create("name = \"v\"\ndevice = \"whole\"\ntenant = \"a\""),
        Act::Fill("v", 0xa1),
        create("name = \"w\"\npool = \"q\"\nsize = \"1MiB\"\ntenant = \"b\""),
        Act::Fill("w", 0xb1),
        to("q"),
        Act::Fill("v", 0xa1),
        create("name = \"x\"\ndevice = \"whole\"\ntenant = \"b\""),
        Act::Fresh("x"),
        Act::Fill("x", 0xc1),
        delete(KindName::Volume, "x"),
        to("p"),
        Act::Fill("v", 0xa1),
    ]
}

#[test]
fn a_kill_at_any_change_of_a_move_from_a_device_leaves_the_volume_whole() {
    let scene = Scene::new("kill-whole");
    let config = format!("{POOLS}{WHOLE}");
    cut_everywhere(&scene, &config, &script_of_a_device(), Some("whole"));
}

#[test]
fn a_move_from_a_device_that_the_store_refuses_can_be_repeated() {
    let scene = Scene::new("fail-whole");
    let config = format!("{POOLS}{WHOLE}");
    fail_everywhere(&scene, &config, &script_of_a_device());
}

/// Until a device that a volume has left is clean nobody gets it, whichever change of the store
/// fails; then it is as after the deletion of a volume on it.
#[test]
fn a_device_that_was_left_is_taken_until_it_is_clean() {
    let scene = Scene::new("left-whole");
    let (mut failing, mut taken) = (0, 0);
    loop {
        let service = scene.with(&format!("{POOLS}{WHOLE}"));
        for act in &script_of_a_device()[..4] {
            assert!(service.act(act).is_ok());
        }
        let before = service.volumes();
        let seen = Cell::new(0);
        watch::set(Some(Box::new(move |done| {
            let number = seen.get();
            seen.set(number + usize::from(!done));
            !done && number == failing
        })));
        let moved = service.act(&to("q"));
        watch::set(None);
        let place = format!("change {failing}");
        if moved.is_err() && service.place_of("v") == "q" {
            taken += 1;
            let claims = [
                create("name = \"x\"\ndevice = \"whole\"\ntenant = \"b\""),
                delete(KindName::Device, "whole"),
            ];
            for claim in claims {
                let refused = service.act(&claim).expect_err(&place).to_string();
                assert!(refused.contains("volume `v`"), "{place}: {refused}");
            }
        }
        assert_eq!(service.volumes(), before, "{place}");
        service.end();
        let service = scene.start();
        service.check_whole(&place);
        assert_eq!(service.volumes(), before, "{place}");
        if service.place_of("v") == "q" {
            let raw = fs::read(scene.live().join("whole")).expect("it is there");
            assert!(raw.iter().all(|byte| *byte == 0), "{place}");
            let claim = create("name = \"x\"\ndevice = \"whole\"\ntenant = \"b\"");
            assert!(service.act(&claim).is_ok(), "{place}");
        }
        service.end();
        fs::remove_dir_all(scene.live()).expect("nothing runs in it");
        fs::create_dir_all(scene.live()).expect("it was there");
        if moved.is_ok() {
            break;
        }
        failing += 1;
    }
    assert!(taken > 0, "the device is cleaned behind the switch-over");
}

#[test]
fn a_kill_at_any_change_of_a_move_leaves_the_volume_whole() {
    let scene = Scene::new("kill-move");
    cut_everywhere(&scene, POOLS, &script(), Some("disk"));
}

#[test]
fn a_move_that_the_store_refuses_can_be_repeated() {
    let scene = Scene::new("fail-move");
    fail_everywhere(&scene, POOLS, &script());
}

/// Whichever change of the store fails: the volume can be left where it is, if it is there still.
#[test]
fn a_move_that_the_store_refuses_can_be_cancelled() {
    let scene = Scene::new("cancel-move");
    let script = script();
    let (mut failing, mut ways) = (0, BTreeSet::new());
    loop {
        let service = scene.with(POOLS);
        for act in &script[..4] {
            assert!(service.act(act).is_ok());
        }
        let before = service.volumes();
        let seen = Cell::new(0);
        watch::set(Some(Box::new(move |done| {
            let number = seen.get();
            seen.set(number + usize::from(!done));
            !done && number == failing
        })));
        let moved = service.act(&to("q"));
        watch::set(None);
        let place = format!("change {failing}");
        let cancelled = service.handle(Request::CancelMigration("v".into()));
        let way = match cancelled {
            Ok(_) => "cancelled",
            Err(fault) if fault.to_string().contains("nothing to cancel") => "nothing to cancel",
            Err(fault) if fault.to_string().contains("in pool") => "moved",
            Err(fault) => panic!("{place}: {fault}"),
        };
        ways.insert(way);
        assert_eq!(
            service.place_of("v") == "p",
            way == "cancelled" || way == "nothing to cancel" && moved.is_err(),
            "{place}: {way}"
        );
        assert_eq!(service.volumes(), before, "{place}");
        service.end();
        let service = scene.start();
        service.finish_migrations(&place);
        service.check_whole(&place);
        assert_eq!(service.volumes(), before, "{place}");
        service.end();
        fs::remove_dir_all(scene.live()).expect("nothing runs in it");
        fs::create_dir_all(scene.live()).expect("it was there");
        if moved.is_ok() {
            break;
        }
        failing += 1;
    }
    assert_eq!(ways.len(), 3, "{ways:?}");
}

/// Whatever the store and the pools were made to say by a kill: without the store, the pools have
/// each volume once, and all of it.
#[test]
fn without_the_store_a_volume_is_found_once() {
    let scene = Scene::new("lost-move");
    let images = images(&scene, scene.with(POOLS), &script());
    let moves: Vec<_> = images
        .iter()
        .filter(|(_, act)| *act == 4 || *act == 9)
        .collect();
    assert!(moves.len() > 8, "a move changes the store: {}", moves.len());
    for (number, (image, act)) in images.iter().enumerate() {
        scene.become_image(image);
        for file in ["state.db", "state.copy.db"] {
            // A kill before the first copy was made.
            let _ = fs::remove_file(scene.live().join(file));
        }
        let file = POOLS.replace("LIVE", scene.live().to_str().expect("plain names"));
        let (devices, pools) = (file.split("[[pool]]").next(), ["p", "q"]);
        let service = scene.start();
        let devices = format!(
            "{}\n[[tenant]]\nname = \"a\"\n",
            devices.expect("it has pools")
        );
        assert!(service.handle(applying(&devices)).is_ok());
        for (pool, device) in pools.into_iter().zip(["disk", "other"]) {
            let imported = service.handle(Request::ImportPool {
                spec: crate::spec::PoolSpec {
                    name: pool.into(),
                    kind: None,
                    key: None,
                    compression: None,
                    chunk: None,
                    devices: vec![device.into()],
                },
                tenant: Some("a".into()),
                list: false,
            });
            assert!(imported.is_ok(), "image {number}, act {act}: {imported:?}");
        }
        let volumes = service.volumes();
        if (2..).contains(act) {
            let (bytes, content) = &volumes["v"];
            assert_eq!(
                (*bytes, content),
                (4 << 20, &BTreeSet::from([0xa1])),
                "image {number}"
            );
        }
        assert_eq!(
            service.in_pools(),
            volumes
                .keys()
                .filter(|name| name.len() == 1)
                .cloned()
                .collect()
        );
        service.end();
    }
}

#[test]
fn what_cannot_be_moved_is_refused_and_stays() {
    let scene = Scene::new("refuse-move");
    let small = r#"
        [[device]]
        name = "small"
        kind = "memory"
        size = "4MiB"
        [[pool]]
        name = "small"
        devices = ["small"]
        [[device]]
        name = "fine"
        kind = "memory"
        size = "16MiB"
        block_size = 512
        [[pool]]
        name = "fine"
        devices = ["fine"]
        [[device]]
        name = "whole"
        kind = "memory"
        size = "4MiB"
        [[volume]]
        name = "all"
        device = "whole"
        tenant = "a"
        "#;
    let service = scene.with(&format!("{POOLS}{small}"));
    let script = script();
    for act in &script[..4] {
        assert!(service.act(act).is_ok());
    }
    let rows = [
        (migrate("v", "p"), "is in pool `p` already"),
        (migrate("v", "none"), "no pool `none`"),
        (migrate("none", "q"), "no volume `none`"),
        (migrate("v", "small"), "free"),
        (migrate("v", "fine"), "block_size = 4096"),
        (reform("all"), "whole device `whole`"),
        (migrate("all", "small"), "free"),
        (migrate("all", "fine"), "block_size = 4096"),
        (Request::CancelMigration("v".into()), "nothing to cancel"),
        (Request::CancelMigration("none".into()), "no volume `none`"),
    ];
    let before = service.volumes();
    for (request, why) in rows {
        let refused = service.handle(request.clone()).map(drop);
        let fault = refused.expect_err("it cannot be").to_string();
        assert!(fault.contains(why), "{request:?}: {fault}");
        assert_eq!(service.place_of("v"), "p");
    }
    let file = POOLS.replace("LIVE", scene.live().to_str().expect("plain names"));
    let file = format!(
        "{file}\n{small}\n[[volume]]\nname = \"v\"\npool = \"q\"\nsize = \"4MiB\"\ntenant = \"a\"\n"
    );
    let refused = service.handle(applying(&file)).map(drop);
    let fault = refused.expect_err("a file moves nothing").to_string();
    assert!(fault.contains("flashyard volume move v --to q"), "{fault}");
    assert_eq!(service.volumes(), before);
    assert_eq!(
        service.in_pools(),
        BTreeSet::from(["v".to_owned(), "w".to_owned()])
    );
    // And then it goes.
    assert!(service.act(&to("q")).is_ok());
    assert_eq!(service.place_of("v"), "q");
    assert_eq!(service.volumes(), before);
    service.end();
    let service = scene.start();
    assert_eq!(service.place_of("v"), "q");
    assert_eq!(service.volumes()["v"], before["v"]);
    service.end();
}
