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
        policy: crate::spec::PolicyName::Fair,
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
                policy: crate::spec::PolicyName::Fair,
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
