//! The graph beside a plain list of the same things: whatever is done to both, they tell the same.

use flashyard_time::Rng;

use super::*;
use crate::spec::{Config, VolumeSpec};
use crate::state::Phase;

fn config(text: &str) -> Config {
    Config::parse(text).expect("it is right")
}

fn device(text: &str) -> Node {
    config(&format!("[[device]]\n{text}"))
        .devices
        .remove(0)
        .into()
}

fn tenant(number: u32) -> TenantRecord {
    let spec = config(&format!("[[tenant]]\nname = \"t{number}\""));
    TenantRecord {
        spec: spec.tenants[0].clone(),
        id: number,
    }
}

fn volume(number: u64, place: &str, tenant: &str) -> VolumeRecord {
    let text = format!("[[volume]]\nname = \"v{number}\"\n{place}\ntenant = \"{tenant}\"");
    VolumeRecord {
        spec: config(&text).volumes.remove(0),
        uuid: Uuid::from_u128(u128::from(number)),
        nsid: number as u32,
        phase: Phase::Ready,
        moving: None,
    }
}

fn pool(name: &str, device: &str) -> Node {
    let text = format!("[[pool]]\nname = \"{name}\"\ndevices = [\"{device}\"]");
    Node::Pool(PoolRecord {
        spec: config(&text).pools.remove(0),
        uuid: Uuid::nil(),
    })
}

fn add(graph: &mut Graph, node: Node) -> NodeId {
    let id = graph.reserve();
    graph.add(id, node);
    id
}

/// A device with two partitions, on one of which stands a pool; a disk that is in use whole; two
/// tenants.
fn scene() -> Graph {
    let mut graph = Graph::default();
    let cut = |name: &str| {
        let text = "kind = \"partition\"\n[device.partition]\ndevice = \"oc\"\nchannels = \"0-3\"";
        device(&format!("name = \"{name}\"\n{text}"))
    };
    let oc = "name = \"oc\"\nkind = \"open-channel\"\nsize = \"512MiB\"";
    add(&mut graph, device(oc));
    add(&mut graph, cut("b"));
    add(&mut graph, cut("a"));
    let disk = "name = \"disk\"\nkind = \"file\"\npath = \"/disk\"";
    add(&mut graph, device(disk));
    add(&mut graph, pool("p", "a"));
    for number in [0, 1] {
        add(&mut graph, tenant(number).into());
    }
    let whole = volume(9_000, "device = \"disk\"", "t0");
    add(&mut graph, whole.into());
    graph
}

#[test]
fn each_comes_after_what_it_stands_on_in_whatever_order_a_store_has_it() {
    let cut = |name: &str, from: &str| {
        let text = format!(
            "name = \"{name}\"\nkind = \"partition\"\n[device.partition]\ndevice = \"{from}\"\nchannels = \"0\""
        );
        match device(&text) {
            Node::Device(device) => device.spec,
            other => unreachable!("{other:?}"),
        }
    };
    // By name the partition comes first; and two that stand on each other end nothing.
    let z = device("name = \"z\"\nkind = \"open-channel\"\nsize = \"512MiB\"");
    let Node::Device(z) = z else {
        unreachable!("it is a device");
    };
    let specs = [cut("a", "z"), z.spec, cut("b", "c"), cut("c", "b")];
    let inventory = Inventory {
        devices: specs.map(|spec| (spec.name.clone(), spec)).into(),
        ..Inventory::default()
    };
    let graph = Graph::new(inventory);
    let order: Vec<_> = graph.in_order();
    let order: Vec<_> = order.iter().map(|id| graph.name(*id)).collect();
    assert_eq!(order, ["z", "a", "c", "b"]);
}

/// From a volume down, over pool and layer, to the device at the bottom; and circles end.
#[test]
fn all_that_a_node_stands_on_is_found_once() {
    let mut graph = scene();
    let text = "name = \"bad\"\nkind = \"fault\"\ndevice = \"b\"";
    let layer = add(&mut graph, device(text));
    add(&mut graph, pool("q", "bad"));
    let top = volume(7, "pool = \"q\"\nsize = \"1MiB\"", "t1");
    let top = add(&mut graph, top.into());
    let names = |found: Vec<NodeId>| -> Vec<String> {
        let names = found.into_iter().map(|id| graph.name(id).to_owned());
        names.collect()
    };
    assert_eq!(
        names(graph.all_under(top)),
        ["v7", "q", "t1", "bad", "b", "oc"]
    );
    let below = graph.find(Kind::Device, "b").expect("it is there");
    assert_eq!(graph.devices_on(below).collect::<Vec<_>>(), [layer]);
    assert_eq!(graph.devices_on(layer).count(), 0);
    assert_eq!(graph.below(layer), Some(below));
    assert_eq!(
        graph.device_under(top),
        Some(layer),
        "its switch is the layer's"
    );
    let circle = |name: &str, on: &str| {
        device(&format!(
            "name = \"{name}\"\nkind = \"fault\"\ndevice = \"{on}\""
        ))
    };
    let mut graph = Graph::default();
    let first = add(&mut graph, circle("x", "y"));
    add(&mut graph, circle("y", "x"));
    graph.change(first, |_| {});
    assert_eq!(graph.all_under(first).len(), 2);
}

#[test]
fn what_is_used_tells_by_what() {
    let graph = scene();
    let user = |kind, name| {
        let id = graph.find(kind, name).expect("it is there");
        graph.user_of(id).map(|user| (user.kind(), user.name()))
    };
    for (kind, name, found) in [
        (Kind::Device, "oc", Some((KindName::Partition, "a"))),
        (Kind::Device, "a", Some((KindName::Pool, "p"))),
        (Kind::Device, "b", None),
        (Kind::Device, "disk", Some((KindName::Volume, "v9000"))),
        (Kind::Pool, "p", None),
        (Kind::Tenant, "t0", Some((KindName::Volume, "v9000"))),
        (Kind::Tenant, "t1", None),
    ] {
        assert_eq!(user(kind, name), found, "{name}");
    }
}

#[test]
fn volumes_that_come_and_go_and_change_hands_leave_nothing_behind() {
    let (mut graph, mut rng) = (scene(), Rng::new(7));
    let fresh = format!("{graph:?}");
    let device = graph.find(Kind::Device, "a").expect("it is there");
    let tenants = ["t0", "t1"];
    let mut own: BTreeMap<u64, (NodeId, VolumeSpec, NodeId)> = BTreeMap::new();
    for number in 0..2_000 {
        let name = tenants[rng.below(2) as usize];
        let whose = graph.find(Kind::Tenant, name).expect("it is there");
        let other = own.keys().nth(rng.below(40) as usize).copied();
        match other {
            Some(other) if rng.below(2) == 0 => {
                let (id, spec, _) = own.remove(&other).expect("it is there");
                let gone = graph.remove(id);
                assert!(gone.is_some_and(|node| node.name() == spec.name));
            }
            Some(other) => {
                let (id, spec, owner) = own.get_mut(&other).expect("it is there");
                graph.change_volume(*id, |volume| volume.record.spec.tenant = name.into());
                (spec.tenant, *owner) = (name.into(), whose);
            }
            None => {
                let record = volume(number, "pool = \"p\"\nsize = \"1MiB\"", name);
                let spec = record.spec.clone();
                let id = add(&mut graph, record.into());
                own.insert(number, (id, spec, whose));
            }
        }
        for tenant in tenants {
            let id = graph.find(Kind::Tenant, tenant).expect("it is there");
            let listed = graph.volumes_on(id);
            let listed = listed.filter(|(_, it)| it.record.nsid < 9_000);
            let listed: BTreeSet<_> = listed.map(|(id, _)| id).collect();
            let known = own.values().filter(|(_, spec, _)| spec.tenant == tenant);
            let known: BTreeSet<_> = known.map(|(id, ..)| *id).collect();
            assert_eq!(listed, known);
        }
        for (number, (id, spec, owner)) in &own {
            assert_eq!(graph.find(Kind::Volume, &spec.name), Some(*id));
            assert_eq!(graph.device_under(*id), Some(device));
            let nsid = Identity::Nsid(*owner, *number as u32);
            assert_eq!(graph.known_by(&nsid), Some(*id));
        }
    }
    for (id, ..) in own.into_values() {
        graph.remove(id);
    }
    graph.next = 8;
    assert_eq!(format!("{graph:?}"), fresh);
}

#[test]
fn a_tenant_keeps_its_volumes_when_it_is_called_otherwise() {
    let mut graph = scene();
    let id = graph.find(Kind::Tenant, "t0").expect("it is there");
    let mut record = graph.tenant(id).expect("it is there").clone();
    record.spec.name = "shop".into();
    graph.change_tenant(id, record);
    assert_eq!(graph.find(Kind::Tenant, "t0"), None);
    assert_eq!(graph.find(Kind::Tenant, "shop"), Some(id));
    let own: Vec<_> = graph.volumes_on(id).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].1.record.spec.tenant, "shop");
    assert_eq!(graph.tenant_of(own[0].0), Some(id));
}
