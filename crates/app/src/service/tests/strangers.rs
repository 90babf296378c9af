//! What is on devices and came there from another state: it is imported, refused or deleted by
//! name, and nothing that is said of it is untrue.

use super::*;
use crate::spec::DeviceSpec;

fn channels(number: u32) -> String {
    format!(
        "[[device]]\nname = \"oc{number}\"\nkind = \"open-channel\"\nstore = \"file\"\n\
         path = \"LIVE/oc{number}\"\nsize = \"512MiB\"\n"
    )
}

fn partition(name: &str, number: u32, channels: &str) -> String {
    format!(
        "[[device]]\nname = \"{name}\"\nkind = \"partition\"\n\
         partition = {{ device = \"oc{number}\", channels = \"{channels}\" }}\n"
    )
}

fn tenant(name: &str) -> String {
    format!("[[tenant]]\nname = \"{name}\"\n")
}

fn volume(name: &str, place: &str, tenant: &str, more: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\n{place}\ntenant = \"{tenant}\"\n{more}\n")
}

impl Scene {
    /// A service has had what `config` says; its state is lost, the devices are not.
    fn lost(&self, config: &[String], use_it: impl FnOnce(&Service)) {
        let service = self.with(&config.concat());
        use_it(&service);
        service.end();
        self.lose_state();
    }

    fn lose_state(&self) {
        for entry in fs::read_dir(self.live()).expect("it is there") {
            let entry = entry.expect("it is there");
            if entry.file_name().to_string_lossy().starts_with("state") {
                fs::remove_file(entry.path()).expect("it is ours");
            }
        }
    }
}

fn done(service: &Service, request: Request) -> View {
    match service.handle(request) {
        Ok(view) => view,
        Err(fault) => panic!("{fault}"),
    }
}

fn refused(service: &Service, request: Request, why: &str) {
    let before = service.volumes();
    let fault = service.handle(request).expect_err(why).to_string();
    assert!(fault.contains(why), "`{why}` is not in: {fault}");
    assert_eq!(service.volumes(), before);
}

fn import_partitions(device: &str, name: Option<&str>) -> Request {
    Request::ImportPartitions {
        device: device.into(),
        name: name.map(str::to_owned),
        policy: None,
        list: false,
    }
}

fn delete_of(kind: KindName, name: &str) -> Request {
    Request::Delete(kind, name.into())
}

/// Two devices have a partition of one name. What deletes one of both is said to, and takes the one
/// that is meant.
#[test]
fn a_partition_is_deleted_on_the_device_that_is_meant() {
    let scene = Scene::new("which-device");
    for number in [0, 1] {
        let config = [
            channels(number),
            partition("db", number, "0-1"),
            tenant("a"),
        ];
        let whole = volume("v", "device = \"db\"", "a", "");
        scene.lost(&[config.concat(), whole], |service| service.fill("v", 0xa1));
    }
    let service = scene.with(&[channels(0), channels(1)].concat());
    done(&service, import_partitions("oc0", None));
    let on_devices = || {
        ["oc0", "oc1"].map(|device| {
            let list = Request::ImportPartitions {
                device: device.into(),
                name: None,
                policy: None,
                list: true,
            };
            let shown = serde_json::to_value(done(&service, list)).expect("plain data");
            shown["partitions"].as_array().map_or(0, Vec::len)
        })
    };
    let both = import_partitions("oc1", None);
    refused(
        &service,
        both,
        "and so has device `oc0`, whose one is known here",
    );
    let as_device = delete_of(KindName::Device, "db");
    let says = "`flashyard partition delete db --yes` deletes both";
    refused(&service, as_device, says);
    assert_eq!(on_devices(), [1, 1]);
    let by_device = |device: &str| Request::DeletePartition {
        name: "db".into(),
        device: device.into(),
    };
    refused(&service, by_device("oc2"), "no device `oc2`");
    done(&service, by_device("oc1"));
    assert_eq!(on_devices(), [1, 0]);
    refused(
        &service,
        by_device("oc1"),
        "device `oc1` has no partition `db`",
    );
    done(&service, by_device("oc0"));
    assert_eq!(on_devices(), [0, 0]);
    service.end();
}

/// The device of a partition is away, and another one has a partition of this name.
#[test]
fn a_partition_whose_device_is_away_is_forgotten_and_no_other_deleted() {
    let scene = Scene::new("device-away");
    scene.lost(&[channels(1), partition("db", 1, "0-1")], |_| {});
    let config = [channels(0), partition("db", 0, "0-1"), channels(1)];
    scene.with(&config.concat()).end();
    fs::rename(scene.live().join("oc0"), scene.live().join("away")).expect("it is ours");
    let service = scene.start();
    let delete = || delete_of(KindName::Partition, "db");
    done(&service, delete());
    refused(
        &service,
        delete(),
        "has found one on device `oc1`: say --device",
    );
    assert_eq!(service.on_devices(), BTreeSet::from(["db".to_owned()]));
    done(&service, import_partitions("oc1", None));
    service.end();
}

/// A layer shows what is on the partition below it, and has to be asked for like that.
#[test]
fn an_imported_partition_is_as_protected_below_a_layer() {
    let scene = Scene::new("below-layer");
    let whole = volume("v", "device = \"db\"", "a", "");
    let config = [channels(0), partition("db", 0, "0-1"), tenant("a"), whole];
    scene.lost(&config, |service| service.fill("v", 0xa1));
    let layer = "[[device]]\nname = \"bad\"\nkind = \"fault\"\ndevice = \"db\"\n";
    let service = scene.with(&[channels(0), tenant("a")].concat());
    done(&service, import_partitions("oc0", None));
    let layer: DeviceSpec = Config::parse(layer).expect("it is right").devices.remove(0);
    done(&service, Request::CreateDevice(layer));
    let pool = |force| Request::CreatePool {
        spec: toml::from_str("name = \"p\"\ndevices = [\"bad\"]").expect("a pool"),
        force,
    };
    let says = "device `bad` stands on a partition that is not empty: partition `db` was imported and holds data";
    refused(&service, pool(false), says);
    let give = |content: &str| {
        let text = volume("v", "device = \"bad\"", "a", content);
        let spec = Config::parse(&text).expect("it is right").volumes.remove(0);
        Request::CreateVolume { spec, force: false }
    };
    refused(&service, give(""), "say --erase");
    refused(
        &service,
        give("content = \"keep\""),
        "partition `db` was imported",
    );
    let keep = "content = \"keep\"\nuuid = \"2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\"";
    done(&service, give(keep));
    assert_eq!(service.content("v").1, BTreeSet::from([0xa1]));
    // What came from here since is no longer unknown.
    done(&service, delete_of(KindName::Volume, "v"));
    done(&service, pool(false));
    service.end();
}

fn pool_on(number: u32) -> String {
    format!(
        "[[device]]\nname = \"disk{number}\"\nkind = \"file\"\npath = \"LIVE/disk{number}\"\nsize = \"8MiB\"\n\
         [[pool]]\nname = \"p{number}\"\ndevices = [\"disk{number}\"]\n"
    )
}

fn in_pool(name: &str, tenant: &str, more: &str) -> String {
    volume(name, "pool = \"p0\"\nsize = \"1MiB\"", tenant, more)
}

impl Scene {
    /// A file of this target, as `serve --config` reads it.
    fn file(&self, config: &[String]) -> Document {
        let live = self.live();
        let text = config
            .concat()
            .replace("LIVE", live.to_str().expect("plain names"));
        Document::parse(&text, Path::new("/")).expect("it is right")
    }

    /// A start with a file, after the state was lost.
    fn start_with(&self, config: &[String]) -> Service {
        let service = self.open();
        let applied = service.apply_at_start(&self.file(config));
        assert!(applied.is_ok(), "{applied:?}");
        service.inject_faults().expect("it runs");
        service
    }
}

fn import_pool(tenant: Option<&str>) -> Request {
    Request::ImportPool {
        spec: toml::from_str("name = \"p0\"\ndevices = [\"disk0\"]").expect("a pool"),
        tenant: tenant.map(str::to_owned),
        list: false,
    }
}

/// What a service shows, as programs read it.
fn json(view: View) -> serde_json::Value {
    serde_json::to_value(view).expect("plain data")
}

fn owner(service: &Service, volume: &str) -> Option<String> {
    let stack = service.stack();
    let found = stack.volume(volume).ok()?;
    Some(found.1.record.spec.tenant.clone())
}

/// The file says whose a volume is, also where it cannot be imported yet.
#[test]
fn volumes_that_the_file_names_are_nobody_elses() {
    let scene = Scene::new("file-names");
    let both = [in_pool("v", "a", ""), in_pool("w", "a", "")].concat();
    scene.lost(&[pool_on(0), tenant("a"), both], |service| {
        service.fill("v", 0xa1)
    });
    // Its size is not what the pool has.
    let large = in_pool("v", "a", "").replace("1MiB", "2MiB");
    let file = [pool_on(0), tenant("a"), tenant("b"), large];
    let service = scene.start_with(&file);
    let imported = json(done(&service, import_pool(Some("b"))));
    let notes = imported["notes"].to_string();
    assert!(
        notes.contains("volume v still waits to be imported: "),
        "{notes}"
    );
    assert_eq!(owner(&service, "v"), None);
    assert_eq!(owner(&service, "w").as_deref(), Some("b"));
    service.end();
}

/// What went wrong first is what is said; the pool stays if something in it was imported, and only
/// then.
#[test]
fn a_pool_whose_volumes_cannot_all_be_given_away_stays_or_goes_with_a_word() {
    for follows in [false, true] {
        let scene = Scene::new("pool-stays");
        let both = [in_pool("v", "a", ""), in_pool("w", "a", "")].concat();
        scene.lost(&[pool_on(0), tenant("a"), both], |_| {});
        let other = volume("w", "pool = \"p1\"\nsize = \"1MiB\"", "a", "");
        let of_file = if follows {
            in_pool("v", "a", "")
        } else {
            in_pool("v", "a", "").replace("1MiB", "2MiB")
        };
        let file = [
            pool_on(0),
            pool_on(1),
            tenant("a"),
            tenant("b"),
            of_file,
            other,
        ];
        let service = scene.start_with(&file);
        let fault = service
            .handle(import_pool(Some("b")))
            .expect_err("`w` is taken");
        let fault = fault.to_string();
        assert!(fault.contains("there is a volume `w` already"), "{fault}");
        assert_eq!(
            fault.contains("the pool is imported and stays"),
            follows,
            "{fault}"
        );
        assert_eq!(service.stack().pool("p0").is_ok(), follows);
        assert_eq!(owner(&service, "v").is_some(), follows);
        service.end();
    }
}

/// Nothing renames a pool, and what the file has in it would wait without end.
#[test]
fn a_pool_that_the_file_names_is_imported_under_that_name() {
    let scene = Scene::new("other-name");
    scene.lost(&[pool_on(0), tenant("a"), in_pool("v", "a", "")], |_| {});
    let alone = "[[device]]\nname = \"more\"\nkind = \"memory\"\nsize = \"8MiB\"\n".to_owned();
    let file = [pool_on(0), alone, tenant("a"), in_pool("v", "a", "")];
    let service = scene.start_with(&file);
    for (name, device) in [("fast", "disk0"), ("p0", "more")] {
        let spec = format!("name = \"{name}\"\ndevices = [\"{device}\"]");
        let other = Request::ImportPool {
            spec: toml::from_str(&spec).expect("a pool"),
            tenant: None,
            list: false,
        };
        refused(&service, other, "`flashyard pool import p0 --device disk0`");
    }
    done(&service, import_pool(None));
    assert_eq!(owner(&service, "v").as_deref(), Some("a"));
    service.end();
}

fn import(service: &Service, scene: &Scene, config: &[String]) -> Result<View, Fault> {
    let how = How {
        plan: false,
        prune: false,
        yes: false,
        import: true,
        force: false,
    };
    let file = scene.file(config);
    service.handle(Request::Apply { file, how })
}

/// What the file has zeroed is not kept in its place, and what is kept is said.
#[test]
fn an_import_neither_erases_nor_keeps_a_whole_device_against_the_file() {
    let scene = Scene::new("whole-import");
    let disk = "[[device]]\nname = \"d\"\nkind = \"file\"\npath = \"LIVE/d\"\nsize = \"8MiB\"\n";
    let new = "[[device]]\nname = \"m\"\nkind = \"memory\"\nsize = \"8MiB\"\n";
    let config = |content: &str| {
        let whole = volume("v", "device = \"d\"", "a", content);
        let other = volume("w", "device = \"m\"", "a", "content = \"erase\"");
        [disk.to_owned(), new.to_owned(), tenant("a"), whole, other]
    };
    scene.lost(&config(""), |service| service.fill("v", 0xa1));
    let service = scene.start();
    let fault = import(&service, &scene, &config("content = \"erase\""));
    let fault = fault.expect_err("it contradicts itself").to_string();
    assert!(
        fault.contains("an import keeps what is on device `d`"),
        "{fault}"
    );
    assert_eq!(service.volumes(), Volumes::new());
    let imported = import(&service, &scene, &config(""));
    let notes = json(imported.expect("it keeps the data"))["notes"].to_string();
    assert!(
        notes.contains("volume v has device d as it was: tenant a reads"),
        "{notes}"
    );
    assert!(!notes.contains("volume w"), "{notes}");
    assert_eq!(service.content("v").1, BTreeSet::from([0xa1]));
    service.end();
}

/// Figures of a device cannot be found out without destroying what is on it: `fair` stands in.
#[test]
fn an_import_needs_no_figures_of_the_device() {
    let scene = Scene::new("no-figures");
    let whole = |more: &str| volume("v", "device = \"db\"", "a", more);
    let lost = [
        channels(0),
        partition("db", 0, "0-1"),
        tenant("a"),
        whole(""),
    ];
    scene.lost(&lost, |service| service.fill("v", 0xa1));
    let figured = partition("db", 0, "0-1") + "policy = \"reflex\"\n";
    let uuid = "uuid = \"2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\"";
    let file = [channels(0), figured, tenant("a"), whole(uuid)];
    for by_file in [false, true] {
        let service = match by_file {
            false => scene.start_with(&file),
            true => scene.start(),
        };
        if by_file {
            import(&service, &scene, &file).expect("it waits for no figures");
        } else {
            let mut other = import_partitions("oc0", Some("db"));
            if let Request::ImportPartitions { policy, .. } = &mut other {
                *policy = Some(crate::spec::PolicyName::fifo());
            }
            let says = "the file gives partition `db` policy `reflex`: leave --policy out";
            refused(&service, other, says);
            done(&service, import_partitions("oc0", Some("db")));
        }
        let shown = json(done(&service, Request::Show(KindName::Device, "db".into())));
        assert_eq!(shown["policy"], "reflex", "{shown}");
        assert!(shown.to_string().contains("`fair` stands in"), "{shown}");
        assert_eq!(service.content("v").1, BTreeSet::from([0xa1]));
        service.end();
        scene.lose_state();
    }
}

/// What comes back does so whatever is promised, by a file as by a command.
#[test]
fn an_import_by_a_file_is_not_refused_for_what_is_promised() {
    let scene = Scene::new("promised");
    scene.lost(&[pool_on(0), tenant("a"), in_pool("v", "a", "")], |_| {});
    let slow = pool_on(0).replace("size", "capability = { read_iops = 1000 }\nsize");
    let much = tenant("a") + "guarantee = { read_iops = 1500 }\n";
    let service = scene.start();
    let imported = import(&service, &scene, &[slow, much, in_pool("v", "a", "")]);
    let notes = json(imported.expect("it is not refused"))["notes"].to_string();
    let says = "the guarantee of tenant a is not known to hold: this would sell 150 %";
    assert!(notes.contains(says), "{notes}");
    assert_eq!(owner(&service, "v").as_deref(), Some("a"));
    service.end();
}

/// What `status` says to type, as the request that it is.
fn typed(service: &Service, volume: &str) -> Request {
    let waiting = service.stack().faults_to_import();
    let found = waiting
        .into_iter()
        .find(|(kind, name, _)| *kind == KindName::Volume && name == volume);
    let why = found.expect("it waits").2.to_string();
    let command = why
        .split('`')
        .find(|it| it.starts_with("flashyard "))
        .expect("a command");
    let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(command.split(' '));
    let crate::cli::Command::Volume(args) = cli.expect("it can be typed").command else {
        panic!("{command}");
    };
    crate::commands::volume_request(args.command).expect("it is right")
}

/// A volume that has another name in its pool than in the file, and is protected: the command that
/// is suggested gives it back as the file has it.
#[test]
fn what_is_suggested_gives_a_volume_back_as_the_file_has_it() {
    let scene = Scene::new("suggested");
    let uuid = "uuid = \"2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\"\n";
    let there = in_pool("v", "a", uuid);
    scene.lost(&[pool_on(0), tenant("a"), there], |service| {
        service.fill("v", 0xa1)
    });
    let more = uuid.to_owned() + "nsid = 9\neui64 = \"0123456789abcdef\"\nread_only = true\n";
    // The pool is imported while nothing is known of the volume; then a file names it.
    let pool = pool_on(0);
    let disk = &pool[..pool.find("[[pool]]").expect("it has one")];
    let service = scene.with(&[disk.to_owned(), tenant("a")].concat());
    done(&service, import_pool(None));
    service.end();
    let service = scene.start_with(&[pool.clone(), tenant("a"), in_pool("orders", "a", &more)]);
    done(&service, typed(&service, "orders"));
    let stack = service.stack();
    let record = &stack.volume("orders").expect("it is there").1.record;
    assert_eq!((record.nsid, record.spec.read_only), (9, Some(true)));
    assert_eq!(
        record.spec.eui64.map(String::from).as_deref(),
        Some("0123456789abcdef")
    );
    assert_eq!(service.content("orders").1, BTreeSet::from([0xa1]));
    assert_eq!(stack.faults_to_import().len(), 0);
    service.end();
}

/// Another command is making a device, and has noted only its name: no other command takes that.
#[test]
fn a_name_that_is_being_given_is_not_given_again() {
    let scene = Scene::new("name-race");
    scene.lost(&[channels(0), partition("db", 0, "0-1")], |_| {});
    let service = scene.with(&[channels(0)].concat());
    let noted = |name: &str| {
        let spec = format!("name = \"{name}\"\nkind = \"memory\"\nsize = \"4MiB\"");
        toml::from_str::<DeviceSpec>(&spec).expect("a device")
    };
    for name in ["db", "logs", "ram"] {
        let noted = service.store().put_device(&noted(name));
        assert!(noted.is_ok(), "{noted:?}");
    }
    let cut = partition("logs", 0, "2-3");
    let cut = Config::parse(&cut).expect("it is right").devices.remove(0);
    let ram = DeviceSpec {
        block_size: 512,
        ..noted("ram")
    };
    for taken in [
        import_partitions("oc0", None),
        Request::CreateDevice(cut),
        Request::CreateDevice(ram),
    ] {
        refused(&service, taken, "or another command is making it");
    }
    let inventory = service.store().inventory().expect("it is whole");
    for name in ["db", "logs", "ram"] {
        assert_eq!(inventory.devices[name], noted(name));
    }
    assert_eq!(service.on_devices(), BTreeSet::from(["db".to_owned()]));
    service.end();
}
