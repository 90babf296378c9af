//! Stores that were left behind by targets that were killed: what `.dump` of SQLite writes of them,
//! and their version. In later versions they have to be what they were.

use super::*;
use crate::control::HealthCode;
use crate::spec::Section;

/// The newest one. Whoever changes the tables adds one of the version before the change.
const LEFT: (i64, &str) = (5, include_str!("../fixtures/store-5.sql"));

/// A directory with that store.
fn left(name: &str) -> Scratch {
    let directory = Scratch::new(name);
    let store = Connection::open(directory.join(STORE)).expect("a new file");
    store.execute_batch(LEFT.1).expect("it is what was there");
    directory
}

#[test]
fn there_is_a_store_of_this_version() {
    assert_eq!(LEFT.0, VERSION, "add what a program of this version leaves");
}

#[test]
fn a_store_that_was_left_is_what_it_was() {
    let directory = left("left");
    for round in 1..=2 {
        let mut state = State::open(&directory, IfDamaged::Refuse).expect("it is sound");
        assert!(!state.was_restored());
        let uuid = "52282cba-b27f-457f-a825-23946e3d337b";
        assert_eq!(state.target_uuid().to_string(), uuid);
        let inventory = state.inventory().expect("readable");

        let devices: Vec<&str> = inventory.devices.keys().map(|name| &**name).collect();
        assert_eq!(devices, ["bad0", "img0", "ram0"]);
        assert_eq!(inventory.devices["ram0"].policy.name(), "gimbal");
        let pool = &inventory.pools["safe"];
        assert_eq!(
            pool.uuid.to_string(),
            "7db583d3-68d7-4fcc-a28b-61b1beffbad9"
        );
        assert!(pool.spec.key.is_some() && pool.spec.compression.is_some());
        let tenants = inventory.tenants.iter();
        let tenants: Vec<(&str, u32)> = tenants.map(|(name, it)| (&**name, it.id)).collect();
        assert_eq!(tenants, [("db", 1), ("lab", 2), ("last", 4)]);
        let db = &inventory.tenants["db"].spec;
        assert_eq!((db.class, db.weight), (ClassName::Latency, 3));
        assert!(db.guarantee.is_some() && db.limit.is_some() && db.latency_target.is_some());
        assert_eq!(db.quota["safe"], Size(128 << 20));

        let volumes = inventory.volumes.iter();
        let volumes: Vec<_> = volumes
            .map(|(name, it)| (&**name, it.nsid, it.phase, it.spec.size))
            .collect();
        let size = |mib: u64| Some(Size(mib << 20));
        assert_eq!(
            volumes,
            [
                ("more", 2, Phase::Ready, size(8)),
                ("orders", 1, Phase::Ready, size(64)),
                ("scratch", 1, Phase::Ready, size(16)),
            ]
        );
        let volume = &inventory.volumes["scratch"];
        assert_eq!(
            volume.uuid.to_string(),
            "dd1390aa-4d0c-42f8-a8fb-70772b685311"
        );
        let moving = volume.moving.as_ref().expect("it is on its way");
        assert_eq!((&*moving.pool, moving.stage), ("safe", MoveStage::Copying));
        assert_eq!(inventory.functions["vm1"].tenant, "lab");

        assert_eq!(state.settings().expect("readable").io_queues, Some(8));
        let counted = state.counted().expect("readable");
        assert_eq!((counted[&2].reads, counted[&2].writes), (21_949, 22_279));
        let life = state.life().expect("readable");
        assert_eq!((life.starts, life.seconds, life.running), (1, 60, true));
        let applied = state.applied().expect("readable");
        assert_eq!(applied.renamed(Section::Tenant, "db"), None);
        let muted = state.muted().expect("readable");
        assert!(muted.until(HealthCode::GuaranteeUnverified, 0).is_some());
        if round == 1 {
            // The number of the tenant that was deleted is not given again.
            assert_eq!(state.put_tenant(&tenant("new")).expect("stored").id, 5);
            state.remove(Kind::Tenant, "new").expect("it is there");
        }
    }
}

/// Its checksum is that of the program that has left it.
#[test]
fn a_store_that_was_left_and_changed_is_refused() {
    let directory = left("left-changed");
    let store = Connection::open(directory.join(STORE)).expect("it is there");
    store
        .execute("UPDATE volume SET move = NULL", [])
        .expect("changed");
    drop(store);
    let opened = State::open(&directory, IfDamaged::Refuse);
    assert!(matches!(opened, Err(StateError::Refused(..))));
}
