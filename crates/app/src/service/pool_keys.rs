//! Keys of encrypted pools. Secrets are fetched and keys derived on the thread of the command,
//! which may take seconds; cores only read and write the header with the key.

use flashyard_block::pool::{Forgotten, KeyHeader, Pool, PoolError};
use flashyard_codec::cipher::Key;
use flashyard_keys::Secret;

use super::fault::{Invalid, Unavailable};
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{KindName, View};
use crate::graph::NodeId;
use crate::spec::{KeyText, PoolSpec};

/// A header with a key by chance for a new pool; nothing for one that is not encrypted.
pub(super) fn new_key(spec: &PoolSpec, uuid: [u8; 16]) -> Result<Option<(KeyHeader, Key)>, Fault> {
    let Some(source) = &spec.key else {
        return Ok(None);
    };
    let made = KeyHeader::make(uuid, &fetch(&spec.name, source)?);
    made.map(Some).map_err(|error| PoolError::Key(error).into())
}

impl Work<'_> {
    /// The key of a pool on a device that is open; nothing if no key is said of it. `uuid` is which
    /// pool it has to be, where that is known. A change of the secret that was cut off is ended:
    /// the one that was not given opens it no more.
    pub(super) fn pool_key(
        &self,
        spec: &PoolSpec,
        device: NodeId,
        uuid: Option<[u8; 16]>,
    ) -> Result<Option<Key>, Fault> {
        let Some(source) = &spec.key else {
            return Ok(None);
        };
        // What is not there, or is not encrypted, is found when it is opened.
        let Some(header) = self.find_key_header(device)? else {
            return Ok(None);
        };
        if uuid.is_some_and(|uuid| uuid != header.uuid()) {
            return Err(Unavailable::OtherPool(spec.name.clone()).into());
        }
        let (key, place) = open(&header, &fetch(&spec.name, source)?)?;
        if header.secrets() > 1 {
            self.store_key_header(device, header.only(place))?;
        }
        Ok(Some(key))
    }

    /// Has another secret open an encrypted pool, while it is used. After a crash at any moment the
    /// secret that is noted opens it: in between both do.
    pub(super) fn rekey_pool(&mut self, name: &str, to: KeyText) -> Result<View, Fault> {
        let (id, record) = self.pool(name)?;
        let (spec, uuid) = (record.spec.clone(), record.uuid);
        let not_encrypted = || PoolError::NotEncrypted;
        let source = spec.key.as_ref().ok_or_else(not_encrypted)?;
        let (device, _) = self.device(spec.device())?;
        let header = self.find_key_header(device)?.ok_or_else(not_encrypted)?;
        if header.uuid() != uuid.into_bytes() {
            return Err(Unavailable::OtherPool(name.to_owned()).into());
        }
        let (key, place) = open(&header, &fetch(name, source)?)?;
        let both = header.with_secret(&key, place, &fetch(name, &to)?);
        let both = self.store_key_header(device, both.map_err(PoolError::Key)?)?;
        let spec = PoolSpec {
            key: Some(to),
            ..spec
        };
        self.commit(|state, _| {
            state.change_pool(&spec)?;
            Ok(move |stack: &mut Stack| stack.graph.change_pool(id, |record| record.spec = spec))
        })?;
        // The former secret is the first of both.
        self.store_key_header(device, both.only(1))?;
        self.view_one(KindName::Pool, name)
    }

    /// Deletes an encrypted pool. One that could not be opened, since its key is lost, goes with
    /// all its volumes: nobody can read them, and none can be deleted without the pool.
    pub(super) fn erase_pool(&mut self, name: &str) -> Result<View, Fault> {
        let (id, record) = self.pool(name)?;
        let (spec, uuid) = (record.spec.clone(), record.uuid.into_bytes());
        if spec.key.is_none() {
            return Err(Invalid::HasNoKeys(name.to_owned()).into());
        }
        let (device, _) = self.device(spec.device())?;
        let core = self.home_of(device)?;
        let is_open = self.cores.call(
            core,
            move |state| async move { state.nodes.pool(id).is_some() },
        );
        if is_open {
            return self.delete_pool(name);
        }
        self.check_no_copies(name)?;
        let volumes: Vec<NodeId> = self.graph.volumes_on(id).map(|(id, _)| id).collect();
        for volume in &volumes {
            self.check_not_migrating(*volume)?;
        }
        let forgotten = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            Pool::forget_encrypted(&device, uuid).await
        });
        match forgotten {
            Ok(Forgotten::Erased) => self.note_disposable(device)?,
            // It was erased before a crash, or is not here: what is here instead stays.
            Ok(Forgotten::Absent) => {}
            Ok(Forgotten::Other) => return Err(Unavailable::OtherPool(name.to_owned()).into()),
            Err(_) if self.is_spent(device) => {}
            Err(error) => return Err(error.into()),
        }
        self.forget_deleted(id, &volumes)?;
        Ok(View::Done)
    }

    fn find_key_header(&self, device: NodeId) -> Result<Option<KeyHeader>, Fault> {
        let core = self.home_of(device)?;
        let found = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            KeyHeader::find(&*device).await
        });
        Ok(found?)
    }

    fn store_key_header(&self, device: NodeId, header: KeyHeader) -> Result<KeyHeader, Fault> {
        let core = self.home_of(device)?;
        let stored = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            header.store(&*device).await
        });
        Ok(stored?)
    }
}

fn fetch(pool: &str, source: &KeyText) -> Result<Secret, Fault> {
    let fetched = source.0.fetch();
    fetched.map_err(|error| Invalid::Key(KindName::Pool, pool.to_owned(), error).into())
}

fn open(header: &KeyHeader, secret: &Secret) -> Result<(Key, usize), Fault> {
    header
        .open(secret)
        .map_err(|error| PoolError::Key(error).into())
}
