//! The state store: one SQLite database holding the inventory. Every change is one transaction and
//! on disk before it is acknowledged (`synchronous = FULL`), so `kill -9` and power cuts leave the
//! old or the new state. One process owns it at a time.
//!
//! A checksum of all records goes with each change. A store that is not what was stored is refused,
//! and its copy (`copy.rs`) can take its place. There is no write-ahead log: SQLite passes over its
//! end from the first damaged frame on, and an older state would be served for the newest one.

mod applied;
mod backup;
mod content;
mod copy;
mod counted;
mod error;
mod identity;
mod moving;
pub mod muted;
mod opening;
mod schema;
mod settings;
#[cfg(test)]
pub mod watch;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use self::identity::take_nsid;
use crate::spec::{
    DeviceSpec, FunctionSpec, Hex, Nguid, PoolSpec, Section, Size, TenantSpec, VolumeSpec,
};

pub use applied::{Applied, Before};
pub use backup::restore;
pub use counted::{Counted, Life};
pub use error::StateError;
pub use moving::{MoveRecord, MoveStage};

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
    /// That it goes to another pool, or has just come from one.
    pub moving: Option<MoveRecord>,
}

impl VolumeRecord {
    /// Its NGUID: the bytes of its UUID unless it was given another.
    pub fn nguid(&self) -> Nguid {
        self.spec.nguid.unwrap_or(Hex(self.uuid.into_bytes()))
    }
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
    /// By name.
    pub functions: BTreeMap<String, FunctionSpec>,
}

/// The open store.
#[derive(Debug)]
pub struct State {
    connection: Connection,
    target_uuid: Uuid,
    /// The state directory and its lock; none in memory.
    home: Option<(PathBuf, File)>,
    /// Something may have changed since the copy was made.
    copy_is_old: bool,
    was_restored: bool,
}

/// What becomes of a store that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfDamaged {
    /// It is refused.
    Refuse,
    /// Its copy takes its place, if that is sound.
    Restore,
}

impl State {
    /// Opens or creates the store in `directory`.
    pub fn open(directory: &Path, if_damaged: IfDamaged) -> Result<Self, StateError> {
        let home = Some((directory.to_owned(), opening::lock(directory)?));
        match (opening::open(directory), if_damaged) {
            (Err(StateError::Refused(file, what, true)), IfDamaged::Restore) => {
                copy::restore(directory).map_err(|error| match error {
                    StateError::Damaged(also) => {
                        StateError::Refused(file, format!("{what}; its copy: {also}"), false)
                    }
                    other => other,
                })?;
                let state = Self::prepare(opening::open(directory)?, home)?;
                Ok(Self {
                    was_restored: true,
                    ..state
                })
            }
            (store, _) => Self::prepare(store?, home),
        }
    }

    /// The store in `directory` as a start would have it, in memory: refuses what that would
    /// refuse, and changes nothing. Whoever has the store goes on.
    pub fn rehearse(directory: &Path) -> Result<Self, StateError> {
        Self::prepare(opening::rehearse(directory)?, None)
    }

    /// A store that is forgotten with the process, for the demo and tests.
    pub fn in_memory() -> Result<Self, StateError> {
        let mut connection = Connection::open_in_memory()?;
        opening::bring_up_to_date(&mut connection, true)?;
        Self::prepare(connection, None)
    }

    fn prepare(connection: Connection, home: Option<(PathBuf, File)>) -> Result<Self, StateError> {
        let uuid: [u8; 16] =
            connection.query_row("SELECT uuid FROM target", [], |row| row.get(0))?;
        Ok(Self {
            connection,
            target_uuid: Uuid::from_bytes(uuid),
            home,
            copy_is_old: true,
            was_restored: false,
        })
    }

    /// Makes the copy anew, if anything was changed since it was made or the store was opened.
    pub fn renew_copy(&mut self) -> Result<(), StateError> {
        if let Some((directory, _)) = &self.home
            && self.copy_is_old
        {
            copy::renew(&self.connection, directory)?;
        }
        self.copy_is_old = false;
        Ok(())
    }

    /// Whether the store was damaged, and its copy has taken its place.
    pub fn was_restored(&self) -> bool {
        self.was_restored
    }

    /// Where it is; nowhere if it is in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.home.as_ref().map(|(directory, _)| directory.as_path())
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
            "SELECT spec, uuid, nsid, phase, move FROM volume",
            RawVolume::read,
        )? {
            let record = record.decode()?;
            inventory.volumes.insert(record.spec.name.clone(), record);
        }
        for spec in rows::<String>(&transaction, "SELECT spec FROM function", |row| row.get(0))? {
            let spec: FunctionSpec = decode(&spec)?;
            inventory.functions.insert(spec.name.clone(), spec);
        }
        Ok(inventory)
    }

    /// Changes a device, or adds one that is known to be new.
    pub fn put_device(&mut self, spec: &DeviceSpec) -> Result<(), StateError> {
        self.execute(
            "INSERT INTO device (name, spec) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET spec = ?2",
            params![spec.name, encode(spec)],
        )
    }

    /// Adds devices under names that are free, all in one change.
    pub fn add_devices(&mut self, specs: &[DeviceSpec]) -> Result<(), StateError> {
        self.change(|transaction| {
            for spec in specs {
                let sql =
                    "INSERT INTO device (name, spec) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
                if transaction.execute(sql, params![spec.name, encode(spec)])? == 0 {
                    return Err(StateError::DeviceExists(spec.name.clone()));
                }
            }
            Ok(())
        })
    }

    /// Adds or changes functions, all in one change.
    pub fn put_functions(&mut self, specs: &[FunctionSpec]) -> Result<(), StateError> {
        self.change(|transaction| {
            let sql = "INSERT INTO function (name, spec) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET spec = ?2";
            let mut statement = transaction.prepare_cached(sql)?;
            for spec in specs {
                statement.execute(params![spec.name, encode(spec)])?;
            }
            Ok(())
        })
    }

    /// Adds a pool with the identity that it has on its device, or is to have.
    pub fn put_pool(&mut self, spec: &PoolSpec, uuid: Uuid) -> Result<PoolRecord, StateError> {
        self.execute(
            "INSERT INTO pool (name, spec, uuid) VALUES (?1, ?2, ?3)",
            params![spec.name, encode(spec), uuid.into_bytes()],
        )?;
        Ok(PoolRecord {
            spec: spec.clone(),
            uuid,
        })
    }

    /// Changes what is said of a pool.
    pub fn change_pool(&mut self, spec: &PoolSpec) -> Result<(), StateError> {
        self.execute(
            "UPDATE pool SET spec = ?2 WHERE name = ?1",
            params![spec.name, encode(spec)],
        )
    }

    /// Moves volumes on to `phase`, all in one change.
    pub fn set_volume_phases<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        phase: Phase,
    ) -> Result<(), StateError> {
        self.change(|transaction| {
            let sql = "UPDATE volume SET phase = ?2 WHERE name = ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            for name in names {
                statement.execute(params![name, phase.name()])?;
            }
            Ok(())
        })
    }

    /// Remembers a volume's new size.
    pub fn set_volume_size(&mut self, record: &VolumeRecord, size: Size) -> Result<(), StateError> {
        let spec = VolumeSpec {
            size: Some(size),
            ..record.spec.clone()
        };
        self.change(|transaction| put_volume(transaction, &spec))
    }

    /// Remembers what is kept for a volume.
    pub fn set_volume_reserve(
        &mut self,
        record: &VolumeRecord,
        reserve: Option<Size>,
    ) -> Result<VolumeRecord, StateError> {
        let spec = VolumeSpec {
            reserve,
            ..record.spec.clone()
        };
        self.change(|transaction| put_volume(transaction, &spec))?;
        Ok(VolumeRecord {
            spec,
            ..record.clone()
        })
    }

    /// Forgets a device, pool, tenant, volume or function.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Result<(), StateError> {
        self.change(|transaction| {
            if kind == Kind::Tenant {
                let sql =
                    "DELETE FROM counted WHERE tenant IN (SELECT id FROM tenant WHERE name = ?1)";
                transaction.execute(sql, [name])?;
            }
            let sql = format!("DELETE FROM {} WHERE name = ?1", kind.table());
            transaction.execute(&sql, [name])?;
            applied::forget_name(transaction, kind, name)
        })
    }

    /// One statement as a change.
    fn execute(&mut self, sql: &str, values: impl rusqlite::Params) -> Result<(), StateError> {
        self.change(|transaction| Ok(transaction.execute(sql, values).map(drop)?))
    }

    /// One change: made to what was stored and to nothing else, whole, and on disk when this
    /// returns.
    fn change<T, E: From<StateError>>(
        &mut self,
        act: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(StateError::from)?;
        content::verify_digest(&transaction)?;
        let done = act(&transaction)?;
        content::seal(&transaction).map_err(StateError::from)?;
        commit(transaction)?;
        self.copy_is_old = true;
        Ok(done)
    }
}

fn put_tenant(
    transaction: &Transaction<'_>,
    spec: &TenantSpec,
) -> Result<TenantRecord, StateError> {
    let put = "INSERT INTO tenant (name, spec) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET spec = ?2 RETURNING id";
    let mut statement = transaction.prepare_cached(put)?;
    let id = statement.query_row(params![spec.name, encode(spec)], |row| row.get(0))?;
    Ok(TenantRecord {
        spec: spec.clone(),
        id,
    })
}

fn add_volume(
    transaction: &Transaction<'_>,
    spec: &VolumeSpec,
    most: u32,
) -> Result<VolumeRecord, StateError> {
    let uuid = spec.uuid.map_or_else(Uuid::new_v4, |uuid| uuid.0);
    let nsid = take_nsid(transaction, &spec.tenant, spec.nsid, most)?;
    let spec = VolumeSpec {
        uuid: None,
        nsid: None,
        ..spec.clone()
    };
    let sql = "INSERT INTO volume (name, spec, uuid, nsid, phase) \
         VALUES (?1, ?2, ?3, ?4, 'creating')";
    let mut statement = transaction.prepare_cached(sql)?;
    statement.execute(params![spec.name, encode(&spec), uuid.into_bytes(), nsid])?;
    Ok(VolumeRecord {
        spec,
        uuid,
        nsid,
        phase: Phase::Creating,
        moving: None,
    })
}

fn put_volume(transaction: &Transaction<'_>, spec: &VolumeSpec) -> Result<(), StateError> {
    let sql = "UPDATE volume SET spec = ?2 WHERE name = ?1";
    transaction.execute(sql, params![spec.name, encode(spec)])?;
    Ok(())
}

/// Ends a change: it is on the disk, or nothing of it is.
fn commit(transaction: Transaction<'_>) -> Result<(), StateError> {
    #[cfg(test)]
    watch::step()?;
    transaction.commit()?;
    #[cfg(test)]
    watch::done();
    Ok(())
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
    /// A function.
    Function,
}

impl Kind {
    /// How it stands in files.
    fn section(self) -> Section {
        match self {
            Self::Device => Section::Device,
            Self::Pool => Section::Pool,
            Self::Tenant => Section::Tenant,
            Self::Volume => Section::Volume,
            Self::Function => Section::Function,
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Tenant => "tenant",
            Self::Volume => "volume",
            Self::Function => "function",
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
    moving: Option<String>,
}

impl RawVolume {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            spec: row.get(0)?,
            uuid: row.get(1)?,
            nsid: row.get(2)?,
            phase: row.get(3)?,
            moving: row.get(4)?,
        })
    }

    fn decode(self) -> Result<VolumeRecord, StateError> {
        Ok(VolumeRecord {
            spec: decode(&self.spec)?,
            uuid: Uuid::from_bytes(self.uuid),
            nsid: self.nsid,
            phase: Phase::parse(&self.phase)?,
            moving: self.moving.as_deref().map(decode).transpose()?,
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
mod tests;
