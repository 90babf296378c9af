//! What is stored is there again, and each number is given once.

mod damage;
mod left;

use std::collections::BTreeMap;
use std::fs;

use flashyard_testbed::Scratch;

use super::schema::{SCHEMA, SINCE_2, SINCE_3, SINCE_4, STORE, VERSION};
use super::*;
use crate::spec::{ClassName, Config, DeviceKind, FlatDevice};

/// Volumes of a tenant.
const MOST: u32 = 4;

fn tenant(name: &str) -> TenantSpec {
    TenantSpec {
        name: name.into(),
        nqn: None,
        serial: None,
        model: None,
        hosts: vec!["*".into()],
        class: ClassName::Latency,
        weight: 2,
        guarantee: None,
        limit: None,
        latency_target: None,
        quota: BTreeMap::new(),
    }
}

impl State {
    /// One tenant as a change.
    pub(super) fn put_tenant(&mut self, spec: &TenantSpec) -> Result<TenantRecord, StateError> {
        self.put_tenants(std::slice::from_ref(spec), |_| Ok::<_, StateError>(()))?;
        Ok(self
            .inventory()?
            .tenants
            .remove(&spec.name)
            .expect("stored"))
    }

    /// One volume as a change.
    pub(super) fn add_volume(
        &mut self,
        spec: &VolumeSpec,
        most: u32,
    ) -> Result<VolumeRecord, StateError> {
        let added = self.add_volumes(std::slice::from_ref(spec), most);
        Ok(added?.remove(0))
    }

    pub(super) fn set_volume_phase(&mut self, name: &str, phase: Phase) -> Result<(), StateError> {
        self.set_volume_phases([name].into_iter(), phase)
    }
}

fn volume(name: &str, tenant: &str) -> VolumeSpec {
    VolumeSpec {
        kind: None,
        compression: None,
        chunk: None,
        reserve: None,
        name: name.into(),
        pool: Some("fast".into()),
        device: None,
        size: Some(Size(1 << 20)),
        tenant: tenant.into(),
        content: None,
        uuid: None,
        nguid: None,
        eui64: None,
        nsid: None,
        read_only: None,
    }
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let directory = Scratch::new("state");
    let mut device = FlatDevice::new("ram0".into(), DeviceKind::Memory);
    (device.size, device.block_size) = (Some(Size(1 << 30)), 512);
    let device = DeviceSpec::try_from(device).expect("it is right");
    let mut state = State::open(&directory, IfDamaged::Refuse).expect("a new store");
    let uuid = state.target_uuid();
    state.put_device(&device).expect("stored");
    state
        .put_pool(
            &PoolSpec {
                kind: None,
                key: None,
                compression: None,
                chunk: None,
                name: "fast".into(),
                devices: vec!["ram0".into()],
            },
            Uuid::new_v4(),
        )
        .expect("stored");
    state.put_tenant(&tenant("db")).expect("stored");
    let record = state
        .add_volume(&volume("orders", "db"), MOST)
        .expect("stored");
    let before = state.inventory().expect("readable");
    drop(state);

    let mut state = State::open(&directory, IfDamaged::Refuse).expect("the same store");
    assert_eq!(state.target_uuid(), uuid);
    let after = state.inventory().expect("readable");
    assert_eq!(after, before);
    assert_eq!(after.devices["ram0"], device);
    assert_eq!(after.volumes["orders"], record);
    assert_eq!(after.volumes["orders"].phase, Phase::Creating);
}

#[test]
fn numbers_given_away_are_given_again_as_late_as_possible() {
    let mut state = State::in_memory().expect("a store");
    let first = state.put_tenant(&tenant("db")).expect("stored").id;
    assert_eq!(
        state
            .add_volume(&volume("a", "db"), MOST)
            .expect("stored")
            .nsid,
        1
    );
    assert_eq!(
        state
            .add_volume(&volume("b", "db"), MOST)
            .expect("stored")
            .nsid,
        2
    );
    state.remove(Kind::Volume, "b").expect("removed");
    assert_eq!(
        state
            .add_volume(&volume("c", "db"), MOST)
            .expect("stored")
            .nsid,
        3
    );
    for (name, nsid) in [("d", 4), ("e", 2)] {
        let record = state.add_volume(&volume(name, "db"), MOST).expect("stored");
        assert_eq!(record.nsid, nsid, "{name}");
    }
    assert!(matches!(
        state.add_volume(&volume("f", "db"), MOST),
        Err(StateError::NoNumber(_))
    ));
    state.remove(Kind::Volume, "a").expect("removed");
    assert_eq!(
        state
            .add_volume(&volume("f", "db"), MOST)
            .expect("stored")
            .nsid,
        1
    );
    state.remove(Kind::Tenant, "db").expect("removed");
    assert!(state.put_tenant(&tenant("db")).expect("stored").id > first);
}

#[test]
fn a_volume_taken_twice_changes_nothing() {
    let mut state = State::in_memory().expect("a store");
    state.put_tenant(&tenant("db")).expect("stored");
    state.add_volume(&volume("a", "db"), MOST).expect("stored");
    let before = state.inventory().expect("readable");
    assert!(matches!(
        state.add_volume(&volume("a", "db"), MOST),
        Err(StateError::Sqlite(_))
    ));
    assert_eq!(state.inventory().expect("readable"), before);
    assert_eq!(
        state
            .add_volume(&volume("b", "db"), MOST)
            .expect("stored")
            .nsid,
        2,
        "the refusal used up no number"
    );
}

#[test]
fn a_second_owner_and_a_newer_store_are_refused() {
    let directory = Scratch::new("lock");
    let state = State::open(&directory, IfDamaged::Refuse).expect("a new store");
    assert!(matches!(
        State::open(&directory, IfDamaged::Refuse),
        Err(StateError::Locked(_))
    ));
    state
        .connection
        .pragma_update(None, "user_version", VERSION + 1)
        .expect("written");
    drop(state);
    assert!(matches!(
        State::open(&directory, IfDamaged::Refuse),
        Err(StateError::TooNew(_))
    ));
    fs::write(
        directory.join("state.db"),
        b"this is no database, whatever its name says",
    )
    .expect("written");
    assert!(matches!(
        State::open(&directory, IfDamaged::Refuse),
        Err(StateError::Refused(_, _, false))
    ));
}

#[test]
fn a_change_is_on_disk_when_it_is_acknowledged() {
    let directory = Scratch::new("pragmas");
    let mut state = State::open(&directory, IfDamaged::Refuse).expect("a new store");
    for reopened in [false, true] {
        // As SQLite tells it of the connection that is really used. 2 is FULL.
        for (name, value) in [("synchronous", "2"), ("journal_mode", "truncate")] {
            let read = |row: &rusqlite::Row<'_>| match row.get_ref(0)? {
                rusqlite::types::ValueRef::Integer(number) => Ok(number.to_string()),
                other => Ok(other.as_str()?.to_owned()),
            };
            let set = state.connection.pragma_query_value(None, name, read);
            assert_eq!(set.as_deref(), Ok(value), "{name}, reopened: {reopened}");
        }
        state.put_tenant(&tenant("db")).expect("stored");
        let found = fs::read_dir(&directory).expect("it is ours");
        let mut files: Vec<_> = found
            .map(|entry| entry.expect("it is ours"))
            .filter(|entry| entry.metadata().expect("it is there").len() > 0)
            .map(|entry| entry.file_name())
            .collect();
        files.sort();
        assert_eq!(files, ["state.db"], "all of it is in one file");
        drop(state);
        state = State::open(&directory, IfDamaged::Refuse).expect("the same store");
    }
}

/// A store of version 1 has neither a checksum nor counters, and a write-ahead log.
#[test]
fn a_store_of_the_version_before_is_brought_up_to_date() {
    let directory = Scratch::new("version-1");
    let old = Connection::open(directory.join(STORE)).expect("a new file");
    old.pragma_update(None, "journal_mode", "WAL").expect("set");
    old.execute_batch(SCHEMA).expect("the tables of version 1");
    old.pragma_update(None, "user_version", 1).expect("set");
    let uuid = Uuid::from_u128(7);
    let sql = "INSERT INTO target (id, uuid) VALUES (0, ?1)";
    old.execute(sql, [uuid.into_bytes()]).expect("stored");
    let sql = "INSERT INTO tenant (id, name, spec, nsid_next) VALUES (9, 'db', ?1, 5)";
    old.execute(sql, [encode(&tenant("db"))]).expect("stored");
    drop(old);

    let mut state = State::open(&directory, IfDamaged::Refuse).expect("an older store");
    assert_eq!(state.target_uuid(), uuid);
    let inventory = state.inventory().expect("readable");
    assert_eq!(inventory.tenants["db"].id, 9);
    assert_eq!(state.life().expect("readable"), Life::default());
    assert_eq!(state.put_tenant(&tenant("lab")).expect("stored").id, 10);
    drop(state);
    assert!(!directory.join("state.db-wal").exists());
    let mut state = State::open(&directory, IfDamaged::Refuse).expect("it is a new one now");
    assert_eq!(state.inventory().expect("readable").tenants.len(), 2);
}

/// A store as a program of version 2, 3 or 4 left it.
fn older(directory: &Scratch, version: i64) -> Connection {
    let old = Connection::open(directory.join(STORE)).expect("a new file");
    let since = [(2, SINCE_2), (3, SINCE_3), (4, SINCE_4)];
    let tables = since.iter().filter(|(since, _)| *since <= version);
    for sql in [SCHEMA].into_iter().chain(tables.map(|(_, sql)| *sql)) {
        old.execute_batch(sql).expect("the tables of that version");
    }
    let sql = "INSERT INTO target (id, uuid, life, settings) VALUES (0, ?1, ?2, ?3)";
    let life = r#"{"starts":3,"cut":1,"seconds":60,"running":false}"#;
    let row = rusqlite::params![Uuid::from_u128(7).into_bytes(), life, r#"{"cores":2}"#];
    old.execute(sql, row).expect("stored");
    let sql = "INSERT INTO tenant (id, name, spec, nsid_next) VALUES (9, 'db', ?1, 5)";
    old.execute(sql, [encode(&tenant("db"))]).expect("stored");
    let sql = "INSERT INTO volume (name, spec, uuid, nsid, phase) VALUES ('v', ?1, ?2, 4, 'ready')";
    let row = rusqlite::params![encode(&volume("v", "db")), Uuid::from_u128(8).into_bytes()];
    old.execute(sql, row).expect("stored");
    let sql = "INSERT INTO counted (tenant, counters) VALUES (9, ?1)";
    old.execute(sql, [r#"{"reads":17}"#]).expect("stored");
    old.pragma_update(None, "user_version", version)
        .expect("set");
    content::seal_as(&old, version).expect("sealed");
    old
}

#[test]
fn stores_of_all_versions_with_a_checksum_are_brought_up_to_date() {
    for version in 2..VERSION {
        let directory = Scratch::new(&format!("version-{version}"));
        drop(older(&directory, version));
        for round in 0..2 {
            let mut state = State::open(&directory, IfDamaged::Refuse)
                .unwrap_or_else(|error| panic!("version {version}, round {round}: {error}"));
            assert_eq!(state.target_uuid(), Uuid::from_u128(7));
            let inventory = state.inventory().expect("readable");
            assert_eq!(inventory.tenants["db"].id, 9);
            let volume = &inventory.volumes["v"];
            assert_eq!((volume.nsid, volume.uuid), (4, Uuid::from_u128(8)));
            assert_eq!(state.counted().expect("readable")[&9].reads, 17);
            assert_eq!(state.settings().expect("readable").cores, Some(2));
            let life = state.life().expect("readable");
            assert_eq!((life.starts, life.cut, life.seconds), (3, 1, 60));
            if round == 0 {
                // A number that was given is not given again.
                assert_eq!(state.put_tenant(&tenant("lab")).expect("stored").id, 10);
                let added = state.add_volume(&volume_of("w"), 2 * MOST).expect("stored");
                assert_eq!(added.nsid, 5, "version {version}");
            }
        }
    }
}

fn volume_of(name: &str) -> VolumeSpec {
    volume(name, "db")
}

/// What is not what was stored is refused before it is brought up to date.
#[test]
fn a_store_of_a_version_before_that_was_changed_is_refused_as_it_is() {
    for version in 2..VERSION {
        let directory = Scratch::new(&format!("version-{version}-changed"));
        let old = older(&directory, version);
        old.execute("UPDATE tenant SET nsid_next = 1", [])
            .expect("changed");
        drop(old);
        let opened = State::open(&directory, IfDamaged::Refuse);
        assert!(matches!(opened, Err(StateError::Refused(..))), "{version}");
        let old = Connection::open(directory.join(STORE)).expect("it is there");
        let found: i64 = old
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .expect("readable");
        assert_eq!(found, version, "it stays as it was");
    }
}

#[test]
fn what_is_counted_goes_on_and_ends_with_its_tenant() {
    let directory = Scratch::new("counted");
    let mut state = State::open(&directory, IfDamaged::Refuse).expect("a new store");
    let first = state.begin_run().expect("stored");
    assert_eq!((first.starts, first.cut, first.seconds), (1, 0, 0));
    let id = state.put_tenant(&tenant("db")).expect("stored").id;
    let counted = Counted {
        reads: 3,
        bytes_written: 1 << 40,
        unsafe_shutdowns: 2,
        ..Counted::default()
    };
    let life = Life {
        seconds: 60,
        ..first
    };
    let tenants = BTreeMap::from([(id, counted), (id + 1, counted)]);
    state.put_counted(&life, &tenants).expect("stored");
    drop(state);

    // Cut: it was running.
    let mut state = State::open(&directory, IfDamaged::Refuse).expect("the same store");
    let second = state.begin_run().expect("stored");
    assert_eq!((second.starts, second.cut, second.seconds), (2, 1, 60));
    let found = state.counted().expect("readable");
    assert_eq!(
        found,
        BTreeMap::from([(id, counted)]),
        "nobody else is there"
    );
    let ended = Life {
        running: false,
        ..second
    };
    state.put_counted(&ended, &BTreeMap::new()).expect("stored");
    assert_eq!(state.counted().expect("readable"), found);
    state.remove(Kind::Tenant, "db").expect("removed");
    assert!(state.counted().expect("readable").is_empty());
    drop(state);

    let mut state = State::open(&directory, IfDamaged::Refuse).expect("the same store");
    let third = state.begin_run().expect("stored");
    assert_eq!((third.starts, third.cut, third.running), (3, 1, true));
}

/// Rows that were stored when a device was one flat record load, and are stored the same again.
#[test]
fn rows_of_flat_devices_load_and_stay_as_they_are() {
    // With what the target notes itself, which is not for files.
    let config: Config =
        toml::from_str(include_str!("fixtures/devices.toml")).expect("it is right");
    let rows = include_str!("fixtures/devices.jsonl").lines();
    assert_eq!(rows.clone().count(), config.devices.len());
    for (row, spec) in rows.zip(&config.devices) {
        let read: DeviceSpec = decode(row).expect(row);
        assert_eq!(read, *spec);
        assert_eq!(encode(&read), row);
    }
}
