//! The state store: one SQLite database holding the inventory. Every change is one transaction and on disk
//! before it is acknowledged (`synchronous = FULL`, write-ahead log), so `kill -9` and power cuts leave the old
//! or the new state. One process owns it at a time.

mod identity;
mod settings;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, params};
use uuid::Uuid;

use self::identity::take_nsid;
use crate::spec::{DeviceSpec, PoolSpec, Size, TenantSpec, VolumeSpec};

/// Layout of the tables; a newer program's store is refused, an older one is brought up to date.
const VERSION: i64 = 2;

const SCHEMA: &str = "
    CREATE TABLE target (id INTEGER PRIMARY KEY CHECK (id = 0), uuid BLOB NOT NULL);
    CREATE TABLE device (name TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
    CREATE TABLE pool (name TEXT PRIMARY KEY, spec TEXT NOT NULL, uuid BLOB NOT NULL) STRICT;
    CREATE TABLE tenant (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
        nsid_next INTEGER NOT NULL DEFAULT 1) STRICT;
    CREATE TABLE volume (name TEXT PRIMARY KEY, spec TEXT NOT NULL, uuid BLOB NOT NULL, nsid INTEGER NOT NULL,
        phase TEXT NOT NULL CHECK (phase IN ('creating', 'ready', 'deleting'))) STRICT;
";

/// What version 2 has beside the tables of version 1.
const SINCE_2: &str = "ALTER TABLE target ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';";

/// Why the store could not do what was asked.
#[derive(Debug)]
pub enum StateError {
    /// Another flashyard runs on this state directory.
    Locked(PathBuf),
    /// The store was written by a newer flashyard.
    TooNew(i64),
    /// The directory or a file in it could not be used.
    Io(PathBuf, std::io::Error),
    /// SQLite refused; the disk may be full or the file damaged.
    Sqlite(rusqlite::Error),
    /// A record does not read back.
    Damaged(String),
    /// The tenant has as many volumes as it can have.
    NoNumber(String),
    /// Another volume of the tenant has this namespace number.
    NumberTaken {
        /// The tenant.
        tenant: String,
        /// The number.
        nsid: u32,
    },
    /// Namespace numbers end before this one.
    NumberTooGreat {
        /// The number.
        nsid: u32,
        /// The greatest there can be.
        most: u32,
    },
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked(path) => {
                write!(
                    f,
                    "another flashyard uses the state in {}: stop it, or choose --state",
                    path.display()
                )
            }
            Self::TooNew(version) => {
                write!(
                    f,
                    "the state store has version {version}, this program knows {VERSION}: use a newer flashyard"
                )
            }
            Self::Io(path, error) => write!(f, "cannot use {}: {error}", path.display()),
            Self::Sqlite(error) => write!(
                f,
                "the state store failed: {error}; check free space and permissions"
            ),
            Self::Damaged(what) => write!(
                f,
                "the state store is damaged ({what}): restore it from a backup"
            ),
            Self::NoNumber(tenant) => write!(
                f,
                "tenant `{tenant}` has as many volumes as a tenant can have: delete one, or use another tenant"
            ),
            Self::NumberTaken { tenant, nsid } => write!(
                f,
                "another volume of tenant `{tenant}` has nsid {nsid}: `flashyard volume list` shows all"
            ),
            Self::NumberTooGreat { nsid, most } => {
                write!(f, "nsid {nsid} is out of range: 1 to {most}")
            }
        }
    }
}

impl std::error::Error for StateError {}

impl From<rusqlite::Error> for StateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// How far a volume's creation or deletion has come. The pool on the device is changed between two
/// transactions; a crash in between is finished at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Named, perhaps not yet in the pool.
    Creating,
    /// In the pool and served.
    Ready,
    /// To be gone, perhaps still in the pool.
    Deleting,
}

/// A volume with what the target has given it for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// What the user asked for. UUID and number stand below, where they are for every volume.
    pub spec: VolumeSpec,
    /// Namespace UUID; never changes, hosts drop a namespace whose UUID does.
    pub uuid: Uuid,
    /// Namespace number in its tenant's subsystem; used again there only when all others have been.
    pub nsid: u32,
    /// Creation and deletion.
    pub phase: Phase,
}

/// A tenant with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRecord {
    /// What the user asked for.
    pub spec: TenantSpec,
    /// Number, never used again.
    pub id: u32,
}

/// A pool with its identity on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    /// What the user asked for.
    pub spec: PoolSpec,
    /// Written into the pool's metadata, so that another pool on the same device is noticed.
    pub uuid: Uuid,
}

/// Everything in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// By name.
    pub devices: BTreeMap<String, DeviceSpec>,
    /// By name.
    pub pools: BTreeMap<String, PoolRecord>,
    /// By name.
    pub tenants: BTreeMap<String, TenantRecord>,
    /// By name.
    pub volumes: BTreeMap<String, VolumeRecord>,
}

/// The open store.
#[derive(Debug)]
pub struct State {
    connection: Connection,
    target_uuid: Uuid,
    _lock: Option<File>,
}

impl State {
    /// Opens or creates the store in `directory`.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let io = |error| StateError::Io(directory.to_owned(), error);
        // Who may write here may do anything with the volumes.
        let mut private = DirBuilder::new();
        private
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(io)?;
        let lock = File::create(directory.join("lock")).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateError::Locked(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        Self::prepare(Connection::open(directory.join("state.db"))?, Some(lock))
    }

    /// A store that is forgotten with the process, for the demo and tests.
    pub fn in_memory() -> Result<Self, StateError> {
        Self::prepare(Connection::open_in_memory()?, None)
    }

    fn prepare(mut connection: Connection, lock: Option<File>) -> Result<Self, StateError> {
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction()?;
        let version: i64 =
            transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            0 => {
                transaction.execute_batch(SCHEMA)?;
                transaction.execute(
                    "INSERT INTO target (id, uuid) VALUES (0, ?1)",
                    [Uuid::new_v4().into_bytes()],
                )?;
                transaction.execute_batch(SINCE_2)?;
            }
            1 => transaction.execute_batch(SINCE_2)?,
            VERSION => {}
            newer => return Err(StateError::TooNew(newer)),
        }
        transaction.pragma_update(None, "user_version", VERSION)?;
        let uuid: [u8; 16] =
            transaction.query_row("SELECT uuid FROM target", [], |row| row.get(0))?;
        transaction.commit()?;
        Ok(Self {
            connection,
            target_uuid: Uuid::from_bytes(uuid),
            _lock: lock,
        })
    }

    /// Identity of this target; serial numbers are derived from it.
    pub fn target_uuid(&self) -> Uuid {
        self.target_uuid
    }

    /// Everything, read in one transaction.
    pub fn inventory(&mut self) -> Result<Inventory, StateError> {
        let transaction = self.connection.transaction()?;
        let mut inventory = Inventory::default();
        for spec in rows::<String>(&transaction, "SELECT spec FROM device", |row| row.get(0))? {
            let spec: DeviceSpec = decode(&spec)?;
            inventory.devices.insert(spec.name.clone(), spec);
        }
        for (spec, uuid) in
            rows::<(String, [u8; 16])>(&transaction, "SELECT spec, uuid FROM pool", pair)?
        {
            let spec: PoolSpec = decode(&spec)?;
            inventory.pools.insert(
                spec.name.clone(),
                PoolRecord {
                    spec,
                    uuid: Uuid::from_bytes(uuid),
                },
            );
        }
        for (spec, id) in rows::<(String, u32)>(&transaction, "SELECT spec, id FROM tenant", pair)?
        {
            let spec: TenantSpec = decode(&spec)?;
            inventory
                .tenants
                .insert(spec.name.clone(), TenantRecord { spec, id });
        }
        for record in rows(
            &transaction,
            "SELECT spec, uuid, nsid, phase FROM volume",
            RawVolume::read,
        )? {
            let record = record.decode()?;
            inventory.volumes.insert(record.spec.name.clone(), record);
        }
        Ok(inventory)
    }

    /// Adds or changes a device.
    pub fn put_device(&mut self, spec: &DeviceSpec) -> Result<(), StateError> {
        self.execute(
            "INSERT INTO device (name, spec) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET spec = ?2",
            params![spec.name, encode(spec)],
        )
    }

    /// Adds or changes a pool; a new one gets its identity here.
    pub fn put_pool(&mut self, spec: &PoolSpec) -> Result<PoolRecord, StateError> {
        self.execute(
            "INSERT INTO pool (name, spec, uuid) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET spec = ?2",
            params![spec.name, encode(spec), Uuid::new_v4().into_bytes()],
        )?;
        let uuid: [u8; 16] = self.connection.query_row(
            "SELECT uuid FROM pool WHERE name = ?1",
            [&spec.name],
            |row| row.get(0),
        )?;
        Ok(PoolRecord {
            spec: spec.clone(),
            uuid: Uuid::from_bytes(uuid),
        })
    }

    /// Adds or changes a tenant; a new one gets its number here.
    pub fn put_tenant(&mut self, spec: &TenantSpec) -> Result<TenantRecord, StateError> {
        self.execute(
            "INSERT INTO tenant (name, spec) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET spec = ?2",
            params![spec.name, encode(spec)],
        )?;
        let id = self.connection.query_row(
            "SELECT id FROM tenant WHERE name = ?1",
            [&spec.name],
            |row| row.get(0),
        )?;
        Ok(TenantRecord {
            spec: spec.clone(),
            id,
        })
    }

    /// Adds a volume in phase `creating` and gives it the UUID and the namespace number (1 to `most`) that it asks for, or
    /// others.
    pub fn add_volume(&mut self, spec: &VolumeSpec, most: u32) -> Result<VolumeRecord, StateError> {
        let uuid = spec.uuid.map_or_else(Uuid::new_v4, |uuid| uuid.0);
        self.change(|transaction| {
            let nsid = take_nsid(transaction, &spec.tenant, spec.nsid, most)?;
            let spec = VolumeSpec {
                uuid: None,
                nsid: None,
                ..spec.clone()
            };
            transaction.execute(
                "INSERT INTO volume (name, spec, uuid, nsid, phase) VALUES (?1, ?2, ?3, ?4, 'creating')",
                params![spec.name, encode(&spec), uuid.into_bytes(), nsid],
            )?;
            Ok(VolumeRecord {
                spec,
                uuid,
                nsid,
                phase: Phase::Creating,
            })
        })
    }

    /// Moves a volume on to `phase`.
    pub fn set_volume_phase(&mut self, name: &str, phase: Phase) -> Result<(), StateError> {
        self.execute(
            "UPDATE volume SET phase = ?2 WHERE name = ?1",
            params![name, phase.name()],
        )
    }

    /// Remembers a volume's new size.
    pub fn set_volume_size(&mut self, record: &VolumeRecord, size: Size) -> Result<(), StateError> {
        let spec = VolumeSpec {
            size: Some(size),
            ..record.spec.clone()
        };
        self.execute(
            "UPDATE volume SET spec = ?2 WHERE name = ?1",
            params![spec.name, encode(&spec)],
        )
    }

    /// Forgets a device, pool, tenant or volume.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Result<(), StateError> {
        self.execute(
            &format!("DELETE FROM {} WHERE name = ?1", kind.table()),
            [name],
        )
    }

    /// One statement as a change.
    fn execute(&mut self, sql: &str, values: impl rusqlite::Params) -> Result<(), StateError> {
        self.change(|transaction| Ok(transaction.execute(sql, values).map(drop)?))
    }

    /// One change: made whole, and on disk when this returns.
    fn change<T>(
        &mut self,
        act: impl FnOnce(&Transaction<'_>) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let transaction = self.connection.transaction()?;
        let done = act(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

/// The kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device.
    Device,
    /// A pool.
    Pool,
    /// A tenant.
    Tenant,
    /// A volume.
    Volume,
}

impl Kind {
    fn table(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Tenant => "tenant",
            Self::Volume => "volume",
        }
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }

    fn parse(text: &str) -> Result<Self, StateError> {
        [Self::Creating, Self::Ready, Self::Deleting]
            .into_iter()
            .find(|phase| phase.name() == text)
            .ok_or_else(|| StateError::Damaged(format!("volume phase `{text}`")))
    }
}

fn pair<A, B>(row: &rusqlite::Row<'_>) -> rusqlite::Result<(A, B)>
where
    A: rusqlite::types::FromSql,
    B: rusqlite::types::FromSql,
{
    Ok((row.get(0)?, row.get(1)?))
}

/// A row of the volume table, not yet understood.
struct RawVolume {
    spec: String,
    uuid: [u8; 16],
    nsid: u32,
    phase: String,
}

impl RawVolume {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            spec: row.get(0)?,
            uuid: row.get(1)?,
            nsid: row.get(2)?,
            phase: row.get(3)?,
        })
    }

    fn decode(self) -> Result<VolumeRecord, StateError> {
        Ok(VolumeRecord {
            spec: decode(&self.spec)?,
            uuid: Uuid::from_bytes(self.uuid),
            nsid: self.nsid,
            phase: Phase::parse(&self.phase)?,
        })
    }
}

fn rows<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StateError> {
    let mut statement = transaction.prepare(sql)?;
    let found = statement
        .query_map([], read)?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(found)
}

fn encode<T: serde::Serialize>(spec: &T) -> String {
    serde_json::to_string(spec).expect("specifications are plain data")
}

fn decode<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StateError> {
    serde_json::from_str(text).map_err(|error| StateError::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::spec::{ClassName, DeviceKind, PolicyName};

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
        }
    }

    fn volume(name: &str, tenant: &str) -> VolumeSpec {
        VolumeSpec {
            name: name.into(),
            pool: Some("fast".into()),
            device: None,
            size: Some(Size(1 << 20)),
            tenant: tenant.into(),
            uuid: None,
            nguid: None,
            eui64: None,
            nsid: None,
            read_only: None,
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("flashyard-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_was_stored_is_there_after_a_restart() {
        let directory = scratch("state");
        let device = DeviceSpec {
            name: "ram0".into(),
            kind: DeviceKind::Memory,
            partition: None,
            size: Some(Size(1 << 30)),
            block_size: 512,
            path: None,
            address: None,
            subnqn: None,
            nsid: None,
            profile: None,
            condition: None,
            store: None,
            seed: None,
            dilation: None,
            units: None,
            policy: PolicyName::Fifo,
            capability: None,
            curve: Vec::new(),
        };
        let mut state = State::open(&directory).expect("a new store");
        let uuid = state.target_uuid();
        state.put_device(&device).expect("stored");
        state
            .put_pool(&PoolSpec {
                name: "fast".into(),
                devices: vec!["ram0".into()],
            })
            .expect("stored");
        state.put_tenant(&tenant("db")).expect("stored");
        let record = state
            .add_volume(&volume("orders", "db"), MOST)
            .expect("stored");
        let before = state.inventory().expect("readable");
        drop(state);

        let mut state = State::open(&directory).expect("the same store");
        assert_eq!(state.target_uuid(), uuid);
        let after = state.inventory().expect("readable");
        assert_eq!(after, before);
        assert_eq!(after.devices["ram0"], device);
        assert_eq!(after.volumes["orders"], record);
        assert_eq!(after.volumes["orders"].phase, Phase::Creating);
        fs::remove_dir_all(&directory).expect("it is ours");
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
        let directory = scratch("lock");
        let state = State::open(&directory).expect("a new store");
        assert!(matches!(
            State::open(&directory),
            Err(StateError::Locked(_))
        ));
        state
            .connection
            .pragma_update(None, "user_version", VERSION + 1)
            .expect("written");
        drop(state);
        assert!(matches!(
            State::open(&directory),
            Err(StateError::TooNew(_))
        ));
        fs::write(
            directory.join("state.db"),
            b"this is no database, whatever its name says",
        )
        .expect("written");
        assert!(matches!(
            State::open(&directory),
            Err(StateError::Sqlite(_))
        ));
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
