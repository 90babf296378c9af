//! Encrypted devices: a layer before another device, on its core, and its header with the key.
//! Secrets are fetched and keys derived on the thread of the command, which may take seconds; cores
//! only read and write headers.

use std::rc::Rc;

use flashyard_block::crypt::{self, CryptDevice, CryptError, Header};
use flashyard_block::{Info, SharedDevice};
use flashyard_codec::cipher::Key;
use flashyard_keys::{KeyError, Secret};
use uuid::Uuid;

use super::devices::close_device;
use super::fault::{InUse, Internal, Invalid, Refused, Unavailable};
use super::work::Work;
use super::{Fault, Over, Stack};
use crate::control::{KindName, View};
use crate::graph::NodeId;
use crate::nodes::Node;
use crate::spec::{CryptSpec, KeyText};
use crate::state::Kind;

/// A header, and the key in it.
struct Opened {
    header: Header,
    key: Key,
    /// Nothing was ever written to the device below but the header.
    blank: bool,
}

impl Work<'_> {
    /// Makes an encrypted device, or opens the one that is there if the key is its own. Gives its
    /// core and its UUID.
    pub(super) fn create_crypt(
        &self,
        id: NodeId,
        name: &str,
        layer: &CryptSpec,
        over: Over,
    ) -> Result<(usize, Uuid), Fault> {
        let secret = fetch(name, &layer.key)?;
        let opened = match (over, self.find_header(layer)?) {
            (Over::Nothing, Ok(header)) => self.unlock(name, layer, header, &secret)?,
            (Over::Nothing, Err(CryptError::Absent)) | (Over::Anything, _) => {
                self.format(name, layer, &secret, over)?
            }
            (Over::Nothing, Err(error)) => return Err(crypt_fault(name, error)),
        };
        let uuid = Uuid::from_bytes(opened.header.uuid());
        let core = self.put_crypt(id, name, layer, opened)?;
        Ok((core, uuid))
    }

    /// Opens an encrypted device that the store knows. On memory, which forgets everything, it is
    /// made anew.
    pub(super) fn open_crypt(
        &self,
        id: NodeId,
        name: &str,
        layer: &CryptSpec,
    ) -> Result<usize, Fault> {
        let (below, _) = self.device(&layer.device)?;
        let found = self.find_header(layer)?;
        let secret = fetch(name, &layer.key)?;
        let opened = match found {
            Ok(header) => self.unlock(name, layer, header, &secret)?,
            Err(CryptError::Absent) if self.forgets(below) => {
                self.format(name, layer, &secret, Over::Nothing)?
            }
            Err(error) => return Err(crypt_fault(name, error)),
        };
        self.put_crypt(id, name, layer, opened)
    }

    /// Has another secret open an encrypted device, while it is used. After a crash at any moment
    /// the secret that is noted opens it: in between both do.
    pub(super) fn rekey(&mut self, name: &str, to: KeyText) -> Result<View, Fault> {
        let (id, layer) = self.crypt(name)?;
        let fault = |error| crypt_fault(name, error);
        let header = self.find_header(&layer)?.map_err(fault)?;
        check_uuid(name, &layer, &header)?;
        let (key, place) = open(name, &header, &fetch(name, &layer.key)?)?;
        let both = header.with_secret(&key, place, &fetch(name, &to)?);
        let both = self.store_header(name, &layer, both.map_err(fault)?)?;
        self.change_spec(id, |spec| spec.change_crypt(|layer| layer.key = to))?;
        // The former secret is the first of both.
        self.store_header(name, &layer, both.only(1))?;
        self.view_one(KindName::Device, name)
    }

    /// Forgets the key of an encrypted device that nothing uses, and the device.
    pub(super) fn erase_key(&mut self, name: &str) -> Result<View, Fault> {
        let (id, layer) = self.crypt(name)?;
        if let Some(user) = self.user_text(id) {
            return Err(InUse::Below(KindName::Device, name.to_owned(), user).into());
        }
        if let Ok(header) = self.find_header(&layer)? {
            check_uuid(name, &layer, &header)?;
        }
        let home = self.graph.device(id).and_then(|device| device.home);
        if let Some(core) = home {
            close_device(self.cores, id, core);
        }
        let erased = self.on_below(&layer, |below| async move { crypt::erase(&*below).await })?;
        erased.map_err(|error| crypt_fault(name, error))?;
        self.commit(|state, _| {
            state.remove(Kind::Device, name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })?;
        Ok(View::Done)
    }

    fn crypt(&self, name: &str) -> Result<(NodeId, CryptSpec), Fault> {
        let (id, device) = self.device(name)?;
        match device.spec.crypt() {
            Some(layer) => Ok((id, layer.clone())),
            None => Err(Invalid::NotEncrypted(name.to_owned()).into()),
        }
    }

    /// The key of a device that has a header. A change of the secret that was cut off is ended: the
    /// one that was not given opens it no more.
    fn unlock(
        &self,
        name: &str,
        layer: &CryptSpec,
        header: Header,
        secret: &Secret,
    ) -> Result<Opened, Fault> {
        check_uuid(name, layer, &header)?;
        let (key, place) = open(name, &header, secret)?;
        let header = match header.secrets() {
            1 => header,
            _ => self.store_header(name, layer, header.only(place))?,
        };
        Ok(Opened {
            header,
            key,
            blank: false,
        })
    }

    /// Gives a device a header with a new key.
    fn format(
        &self,
        name: &str,
        layer: &CryptSpec,
        secret: &Secret,
        over: Over,
    ) -> Result<Opened, Fault> {
        type Looked = Result<(Info, bool), CryptError>;
        let fault = |error| match error {
            CryptError::Occupied(what) => {
                Refused::CryptOver(name.to_owned(), layer.device.clone(), what).into()
            }
            error => crypt_fault(name, error),
        };
        let looked: Looked = self.on_below(layer, move |below| async move {
            if over == Over::Nothing {
                crypt::look_for_room(&*below).await?;
            }
            Ok((below.info(), below.is_blank()))
        })?;
        let (info, blank) = looked.map_err(fault)?;
        let uuid = layer.uuid.map_or_else(Uuid::new_v4, |uuid| uuid.0);
        let (header, key) = Header::make(&info, uuid.into_bytes(), secret).map_err(fault)?;
        let header = self.store_header(name, layer, header)?;
        Ok(Opened { header, key, blank })
    }

    /// Puts the layer before its device.
    fn put_crypt(
        &self,
        id: NodeId,
        name: &str,
        layer: &CryptSpec,
        opened: Opened,
    ) -> Result<usize, Fault> {
        let (below, _) = self.device(&layer.device)?;
        let (core, below_name) = (self.home_of(below)?, layer.device.clone());
        let put = self.cores.call(core, move |state| async move {
            let Some(below) = state.nodes.device(below) else {
                return Ok(Err(Fault::from(Unavailable::NotWhole(below_name))));
            };
            let device = CryptDevice::new(&state.rt, below, &opened.key)?;
            let device = match opened.blank {
                true => device.on_blank(),
                false => device,
            };
            state.nodes.add(id, Node::Blocks(Rc::new(device)));
            Ok::<_, CryptError>(Ok(()))
        });
        put.map_err(|error| crypt_fault(name, error))??;
        Ok(core)
    }

    fn find_header(&self, layer: &CryptSpec) -> Result<Result<Header, CryptError>, Fault> {
        self.on_below(layer, |below| async move { crypt::find(&*below).await })
    }

    fn store_header(&self, name: &str, layer: &CryptSpec, header: Header) -> Result<Header, Fault> {
        let stored = self.on_below(layer, move |below| async move {
            crypt::store(&*below, header).await
        })?;
        stored.map_err(|error| crypt_fault(name, error))
    }

    /// Does something with the device below, on its core.
    fn on_below<T, W, F>(&self, layer: &CryptSpec, work: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(SharedDevice) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (below, _) = self.device(&layer.device)?;
        let core = self.home_of(below)?;
        let done = self.cores.call(core, move |state| async move {
            match state.nodes.device(below) {
                Some(device) => Some(work(device).await),
                None => None,
            }
        });
        done.ok_or_else(|| Unavailable::NotWhole(layer.device.clone()).into())
    }
}

fn fetch(name: &str, key: &KeyText) -> Result<Secret, Fault> {
    let fetched = key.0.fetch();
    fetched.map_err(|error| Invalid::Key(KindName::Device, name.to_owned(), error).into())
}

fn open(name: &str, header: &Header, secret: &Secret) -> Result<(Key, usize), Fault> {
    let opened = header.open(secret);
    opened.map_err(|error| crypt_fault(name, error.into()))
}

/// Refuses the header of another device than the one that is noted.
fn check_uuid(name: &str, layer: &CryptSpec, header: &Header) -> Result<(), Fault> {
    match layer.uuid {
        Some(uuid) if uuid.0.into_bytes() != header.uuid() => {
            Err(Unavailable::OtherCrypt(name.to_owned(), layer.device.clone()).into())
        }
        _ => Ok(()),
    }
}

fn crypt_fault(name: &str, error: CryptError) -> Fault {
    let name = name.to_owned();
    match error {
        CryptError::TooSmall(_)
        | CryptError::BlockSize(_)
        | CryptError::Key(KeyError::WrongSecret) => Invalid::Crypt(name, error).into(),
        CryptError::Cipher(_) | CryptError::Key(KeyError::Library) => Internal::Crypt(error).into(),
        CryptError::Absent
        | CryptError::Damaged(_)
        | CryptError::Newer(_)
        | CryptError::Occupied(_)
        | CryptError::Key(_)
        | CryptError::Geometry(_)
        | CryptError::Device { .. } => Unavailable::Crypt(Some(name), error).into(),
    }
}
