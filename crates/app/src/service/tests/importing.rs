//! The state directory is lost, and the file that was exported before imports what is on the
//! devices. It is cut off, or the store fails, at each change of the store: all of it is there
//! afterwards, or nothing, and in both cases the devices have what they had. So they have when the
//! target is started with the file.

use super::*;

const WHAT_IS_LOST: &str = r#"
    [[device]]
    name = "disk"
    kind = "file"
    path = "LIVE/disk"
    size = "8MiB"

    [[device]]
    name = "oc"
    kind = "open-channel"
    store = "file"
    path = "LIVE/oc"
    size = "512MiB"

    [[device]]
    name = "one"
    kind = "partition"
    partition = { device = "oc", channels = "0-1" }

    [[device]]
    name = "two"
    kind = "partition"
    partition = { device = "oc", channels = "2-3" }

    [[pool]]
    name = "p"
    devices = ["disk"]

    [[pool]]
    name = "q"
    devices = ["two"]

    [[tenant]]
    name = "a"
    weight = 3

    [[tenant]]
    name = "b"

    [[volume]]
    name = "v"
    pool = "p"
    size = "2MiB"
    tenant = "a"
    nsid = 7

    [[volume]]
    name = "w"
    pool = "q"
    size = "2MiB"
    tenant = "b"

    [[volume]]
    name = "x"
    device = "one"
    tenant = "b"
"#;

/// Devices without their state in `live`, and once more in `lost`; the file that was exported
/// before, and what there was.
fn lose_state(scene: &Scene) -> (Act, Volumes) {
    let service = scene.with(WHAT_IS_LOST);
    for (name, byte) in [("v", 0xa1), ("w", 0xb1), ("x", 0xb2)] {
        service.fill(name, byte);
    }
    let all = service.volumes();
    let exported = service.handle(Request::Export);
    let Ok(View::File(file)) = exported else {
        panic!("{exported:?}")
    };
    service.end();
    for entry in fs::read_dir(scene.live()).expect("it is there") {
        let entry = entry.expect("it is there");
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("state") {
            fs::remove_file(entry.path()).expect("it is ours");
        }
    }
    copy(&scene.live(), &scene.root.join("lost"));
    let how = How {
        plan: false,
        prune: false,
        yes: false,
        import: true,
        force: false,
    };
    (ask(Request::Apply { file, how }), all)
}

/// What there is in a state that knows nothing.
fn nothing(scene: &Scene) -> Volumes {
    let service = scene.start();
    let nothing = service.volumes();
    service.end();
    nothing
}

#[test]
fn a_kill_while_a_file_imports_leaves_all_or_nothing() {
    let scene = Scene::new("kill-import");
    let (import, all) = lose_state(&scene);
    let nothing = nothing(&scene);
    let images = images(&scene, scene.start(), std::slice::from_ref(&import));
    let mut found_all = 0;
    for (number, (image, _)) in images.iter().enumerate() {
        let place = format!("image {number}");
        scene.become_image(image);
        let service = scene.start();
        service.check_whole(&place);
        let found = service.volumes();
        found_all += usize::from(found == all);
        assert!(
            [&nothing, &all].contains(&&found),
            "{place}: neither all nor nothing: {found:?}"
        );
        let again = service.act(&import);
        again.unwrap_or_else(|fault| panic!("{place}: {fault}"));
        assert_eq!(service.volumes(), all, "{place}, imported again");
        service.end();
    }
    assert!((1..images.len()).contains(&found_all), "{found_all}");
}

/// Whenever a start with the file is killed, nothing is made over what the devices have.
#[test]
fn a_kill_while_a_start_finds_what_is_to_be_imported_loses_nothing() {
    let scene = Scene::new("kill-found");
    let (import, all) = lose_state(&scene);
    let Act::Ask(request) = &import else {
        unreachable!("it is a request")
    };
    let Request::Apply { file, .. } = &**request else {
        unreachable!("it applies a file")
    };
    let start = Act::Start(Box::new(file.clone()));
    let images = images(&scene, scene.start(), std::slice::from_ref(&start));
    assert!(images.len() > 5, "it changes the store");
    for (number, (image, _)) in images.iter().enumerate() {
        scene.become_image(image);
        let service = scene.start();
        for act in [&start, &import] {
            let done = service.act(act);
            done.unwrap_or_else(|fault| panic!("image {number}: {fault}"));
        }
        service.check_whole(&format!("image {number}"));
        assert_eq!(service.volumes(), all, "image {number}");
        service.end();
    }
}

#[test]
fn an_import_that_the_store_refuses_changes_nothing() {
    let scene = Scene::new("fail-import");
    let (import, all) = lose_state(&scene);
    let nothing = nothing(&scene);
    let mut changes = usize::MAX;
    let mut failing = 0;
    while failing < changes {
        let again = scene.root.join("again");
        copy(&scene.root.join("lost"), &again);
        scene.become_image(&again);
        let service = scene.start();
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        watch::set(Some(Box::new(move |done| {
            let number = count.get();
            count.set(number + usize::from(!done));
            !done && number == failing
        })));
        if let Err(fault) = service.act(&import) {
            assert_eq!(service.volumes(), nothing, "change {failing}: {fault}");
            let again = service.act(&import);
            again.unwrap_or_else(|fault| panic!("change {failing}, again: {fault}"));
        }
        watch::set(None);
        assert_eq!(service.volumes(), all, "change {failing}");
        service.end();
        changes = seen.get();
        failing += 1;
    }
    assert!(changes > 5, "{changes}");
}
