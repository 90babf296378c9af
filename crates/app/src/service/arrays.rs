//! Devices of kind `array`: several devices as one, all on one core. Which of them are members, and
//! how each is, stands on the members themselves; the store only says which devices to look at.

use std::rc::Rc;

use flashyard_block::array::{
    Array, ArrayError, Layout, NewMember, Options, Status, Uuid as ArrayId,
};
use uuid::Uuid;

use super::devices::close_device;
use super::fault::{InUse, Invalid, NotFound, Refused, Unavailable};
use super::work::Work;
use super::{Fault, Stack, Subject, no_such};
use crate::control::{ArrayHow, ArrayOf, KindName, View};
use crate::graph::NodeId;
use crate::nodes::Node;
use crate::spec::{ArraySpec, DeviceSpec, NamespaceUuid, PoolSpec, Redundancy, VolumeKind};
use crate::state::Kind;

/// How an array comes to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// It is made, of devices that hold nothing, or whatever they hold.
    Made { id: ArrayId, force: bool },
    /// It was made before; with nothing, whichever the devices are members of.
    Found { id: Option<ArrayId>, degraded: bool },
}

impl Work<'_> {
    /// Makes an array known, new or as it is on its devices, and a pool on it if one is wanted.
    pub(super) fn create_array(&mut self, of: ArrayOf, how: ArrayHow) -> Result<View, Fault> {
        let ArrayOf {
            device,
            pool,
            tenant,
        } = of;
        let parity = device.array().is_some_and(|array| array.parity() > 0);
        if let (Some(pool), true, false) = (&pool, parity, how.import) {
            check_mapped(pool)?;
        }
        let name = device.name.clone();
        let notes = self.put_array(device, how)?;
        let Some(pool) = pool else {
            return self.view_one(KindName::Device, &name);
        };
        let made = match how.import {
            true => self.import_pool(&pool, tenant.as_deref()),
            false => self.create_pool(pool, how.force),
        };
        if made.is_err() {
            self.delete_array(&name, !how.import)?;
        }
        made.map(|view| notes.into_iter().fold(view, View::with_note))
    }

    /// Opens a new array, or one that is on its devices, and notes it. Gives what was seen of its
    /// devices.
    pub(super) fn put_array(
        &mut self,
        mut spec: DeviceSpec,
        how: ArrayHow,
    ) -> Result<Vec<String>, Fault> {
        let array = self.check_new_array(&spec)?;
        let id = self.reserve();
        let home = self.gather(&array)?;
        let given = array.uuid.map(|uuid| uuid.0.into_bytes());
        let beginning = match how.import {
            true => Beginning::Found {
                id: given,
                degraded: how.degraded,
            },
            false => Beginning::Made {
                id: given.unwrap_or_else(|| Uuid::new_v4().into_bytes()),
                force: how.force,
            },
        };
        let status = self.begin_array(id, home, &spec, &array, beginning)?;
        spec.set_array(|array| {
            array.uuid = Some(NamespaceUuid(Uuid::from_bytes(status.uuid)));
            let parity = match status.parity {
                0 => None,
                1 => Some(Redundancy::Parity),
                _ => Some(Redundancy::DoubleParity),
            };
            if how.import {
                // What is no member is named in the notes, and free for other use.
                let is_member = |name: &String| status.members.iter().any(|it| it.name == *name);
                array.devices.retain(is_member);
                array.spares.retain(is_member);
            }
            if how.import && parity.is_some() {
                array.redundancy = parity;
                array.columns = columns_of(&status);
            } else if how.import && status.copies > 1 {
                array.redundancy = Some(Redundancy::Mirror);
                array.copies = Some(status.copies as u32).filter(|copies| *copies != 2);
                array.safe_read = status.safe_read.then_some(true);
            }
        });
        spec.disposable = !how.import;
        let noted = self.commit(|state, _| {
            state.put_device(&spec)?;
            Ok(move |stack: &mut Stack| stack.graph.add_open(id, spec, home))
        });
        if let Err(fault) = noted {
            close_device(self.cores, id, home);
            return Err(fault);
        }
        Ok(status.notes)
    }

    /// Refuses an array of devices that are not there, or that are used.
    fn check_new_array(&self, spec: &DeviceSpec) -> Result<ArraySpec, Fault> {
        spec.check()?;
        if self.graph.find(Kind::Device, &spec.name).is_some() {
            return Err(InUse::Name(KindName::Device, spec.name.clone()).into());
        }
        let array = spec.array().cloned();
        let array = array.ok_or_else(|| no_such(KindName::Device, &spec.name))?;
        for name in array.all() {
            self.check_new_member(name, spec.block_size)?;
        }
        Ok(array)
    }

    pub(super) fn check_new_member(&self, name: &str, block_size: u32) -> Result<NodeId, Fault> {
        let (id, device) = self.device(name)?;
        if device.spec.array().is_some() {
            return Err(Invalid::ArrayOfArrays(name.to_owned()).into());
        }
        if let Some(user) = self.user_text(id) {
            return Err(InUse::Taken(name.to_owned(), user).into());
        }
        self.home_of(id)?;
        self.check_blocks(id)?;
        let real = device.spec.block_size;
        if real != block_size {
            return Err(Invalid::BlocksBelow(name.to_owned(), real).into());
        }
        Ok(id)
    }

    /// Opens an array that the store knows, with those of its devices that are open.
    pub(super) fn open_array(
        &mut self,
        id: NodeId,
        spec: &DeviceSpec,
        degraded: bool,
    ) -> Result<usize, Fault> {
        let array = spec.array().cloned();
        let array = array.ok_or_else(|| no_such(KindName::Device, &spec.name))?;
        let home = self.gather(&array)?;
        let known = array.uuid.map(|uuid| uuid.0.into_bytes());
        let beginning = match (self.forgets(id), known) {
            // Memory has forgotten that it was one.
            (true, Some(id)) => Beginning::Made { id, force: true },
            _ => Beginning::Found {
                id: known,
                degraded,
            },
        };
        self.begin_array(id, home, spec, &array, beginning)?;
        Ok(home)
    }

    /// Brings all devices of an array that are open to one core: that of the first one.
    fn gather(&mut self, array: &ArraySpec) -> Result<usize, Fault> {
        let members = array
            .all()
            .filter_map(|name| self.graph.find(Kind::Device, name));
        let members: Vec<NodeId> = members.filter(|id| self.home_of(*id).is_ok()).collect();
        let first = members.first().copied();
        let first = first.ok_or_else(|| Unavailable::NoMembers(array.devices.join(", ")))?;
        // A partition cannot leave the core of what it is cut from.
        let cut = |id: &&NodeId| {
            let below = self.graph.all_under(**id).into_iter();
            let mut below = below.filter_map(|id| self.graph.device(id));
            below.any(|device| device.spec.partition().is_some())
        };
        let fixed = members.iter().find(cut).copied().unwrap_or(first);
        let home = self.home_of(fixed)?;
        for member in members {
            self.bring(member, home)?;
        }
        Ok(home)
    }

    /// Opens a device on another core, if it is not there, and what it stands on before.
    pub(super) fn bring(&mut self, id: NodeId, home: usize) -> Result<(), Fault> {
        let now = self.home_of(id)?;
        let Some(device) = self.graph.device(id) else {
            return Ok(());
        };
        let spec = device.spec.clone();
        if now == home {
            return Ok(());
        }
        if spec.partition().is_some() {
            return Err(Refused::OtherCore(spec.name).into());
        }
        close_device(self.cores, id, now);
        self.edit(|stack| stack.graph.change_device(id, |device| device.home = None));
        if let Some(below) = self.graph.below(id) {
            self.bring(below, home)?;
        }
        let opened = self.open_device_on(id, &spec, home)?;
        self.edit(|stack| {
            let open = |device: &mut crate::graph::Device| device.home = Some(opened);
            stack.graph.change_device(id, open);
        });
        Ok(())
    }

    fn begin_array(
        &self,
        id: NodeId,
        home: usize,
        spec: &DeviceSpec,
        array: &ArraySpec,
        beginning: Beginning,
    ) -> Result<flashyard_block::array::Status, Fault> {
        let named = |name: &String| {
            let id = self.graph.find(Kind::Device, name)?;
            self.home_of(id).is_ok().then(|| (name.clone(), id))
        };
        let devices: Vec<(String, NodeId)> = array.devices.iter().filter_map(named).collect();
        let spares: Vec<(String, NodeId)> = array.spares.iter().filter_map(named).collect();
        let layout = Layout {
            copies: array.copies() as usize,
            parity: array.parity() as usize,
            safe_read: array.safe_read == Some(true),
        };
        let options = Options {
            rebuild_priority: array.rebuild_priority.into(),
            rebuild_limit: array.rebuild_bytes(),
            ..Options::default()
        };
        let whole = devices.len() == array.devices.len();
        let name = spec.name.clone();
        let opened = self.cores.call(home, move |state| async move {
            let member = |(name, id): (String, NodeId)| {
                let device = state.nodes.device(id)?;
                Some(NewMember { name, device })
            };
            let devices: Vec<NewMember> = devices.into_iter().filter_map(member).collect();
            let spares: Vec<NewMember> = spares.into_iter().filter_map(member).collect();
            let rt = &state.rt;
            let array = match beginning {
                Beginning::Made { id, force } if whole => {
                    let array = Array::create(rt, devices, id, layout, options, force).await?;
                    if !spares.is_empty() {
                        array.add_spares(spares, force).await?;
                    }
                    array
                }
                Beginning::Made { .. } => return Err(ArrayError::NoCopy(vec![name])),
                Beginning::Found { id, degraded } => {
                    let all = [devices, spares].concat();
                    Array::open(rt, all, id, options, degraded).await?
                }
            };
            let status = array.status();
            state.nodes.add(id, Node::Array(Rc::new(array)));
            Ok(status)
        });
        opened.map_err(Fault::from)
    }

    /// Refuses to let go of devices that I/O which was given to them may still change.
    pub(super) fn check_finished(&self, id: NodeId) -> Result<(), Fault> {
        let Ok(home) = self.home_of(id) else {
            return Ok(());
        };
        let unfinished = self.cores.call(home, move |state| async move {
            state.nodes.array(id).map(|array| array.unfinished())
        });
        match unfinished.into_iter().flatten().next() {
            Some(name) => Err(ArrayError::Unfinished(name).into()),
            None => Ok(()),
        }
    }

    /// Forgets an array; its devices are empty then if it is to be destroyed.
    pub(super) fn delete_array(&mut self, name: &str, destroy: bool) -> Result<(), Fault> {
        let (id, device) = self.device(name)?;
        let (home, members) = (device.home, self.members_of(id));
        self.check_finished(id)?;
        if destroy && let Some(core) = home {
            let destroyed = self.cores.call(core, move |state| async move {
                match state.nodes.array(id) {
                    Some(array) => array.destroy().await,
                    None => Ok(()),
                }
            });
            destroyed?;
            for member in members {
                self.note_disposable(member)?;
            }
        }
        self.delete_device(name).map(drop)
    }

    /// The devices that an array is made of, as far as they are known.
    fn members_of(&self, id: NodeId) -> Vec<NodeId> {
        let array = self.graph.device(id).and_then(|device| device.spec.array());
        let names = array.into_iter().flat_map(ArraySpec::all);
        names
            .filter_map(|name| self.graph.find(Kind::Device, name))
            .collect()
    }
}

impl Stack {
    /// The array that a pool stands on, or that is called so.
    pub(super) fn array_of(&self, name: &str) -> Result<(KindName, NodeId), Fault> {
        let pool = self.graph.find(Kind::Pool, name);
        let (kind, id) = match pool {
            Some(pool) => (KindName::Pool, self.graph.device_under(pool)),
            None => (KindName::Device, self.graph.find(Kind::Device, name)),
        };
        let id = id.ok_or_else(|| no_such(KindName::Pool, name))?;
        let device = self.graph.device(id);
        match device.is_some_and(|device| device.spec.array().is_some()) {
            true => Ok((kind, id)),
            false => Err(Invalid::NoArray(name.to_owned()).into()),
        }
    }

    /// What `pool start` opens: the array under a pool if that is not open, else the pool; or an
    /// array.
    pub(super) fn to_start(&self, name: &str) -> Result<(KindName, NodeId), Fault> {
        let Ok((id, _)) = self.pool(name) else {
            return self.array_of(name);
        };
        let closed = |device: &NodeId| self.faults.contains_key(&Subject::Node(*device));
        let array = self.array_of(name).ok().map(|(_, array)| array);
        Ok((KindName::Pool, array.filter(closed).unwrap_or(id)))
    }

    /// The core of a device that is to be on the same array, if one is open.
    pub(super) fn home_beside(&self, id: NodeId) -> Option<usize> {
        let arrays = self.graph.devices_on(id);
        let arrays = arrays.filter(|it| {
            let device = self.graph.device(*it);
            device.is_some_and(|device| device.spec.array().is_some())
        });
        let members = arrays.flat_map(|array| self.graph.all_under(array));
        let mut homes = members.filter_map(|it| self.graph.device(it)?.home);
        homes.next()
    }
}

impl Stack {
    /// Refuses a device with parity for anything but a mapped pool.
    pub(super) fn check_no_parity(&self, id: NodeId) -> Result<(), Fault> {
        let device = self.graph.device(id).map(|device| &device.spec);
        let array = device.and_then(|spec| spec.array());
        match (device, array) {
            (Some(spec), Some(array)) if array.parity() > 0 => {
                Err(Invalid::OnParity(spec.name.clone()).into())
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a raw pool, which cannot be on parity.
pub(super) fn check_mapped(pool: &PoolSpec) -> Result<(), Fault> {
    match pool.kind {
        Some(VolumeKind::Mapped) => Ok(()),
        _ => Err(Invalid::OnParity(pool.name.clone()).into()),
    }
}

/// The columns of each set that has parity, if there are several.
pub(super) fn columns_of(status: &Status) -> Option<u32> {
    let has_sets = status.members.iter().any(|it| it.set > Some(0));
    (has_sets && status.parity > 0).then_some(status.copies as u32)
}

impl From<ArrayError> for Fault {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Members(..)
            | ArrayError::Columns(..)
            | ArrayError::Groups(..)
            | ArrayError::SafeRead
            | ArrayError::TooMany
            | ArrayError::BlockSize(..)
            | ArrayError::TooSmall(..) => Self::Invalid(Invalid::Array(error)),
            ArrayError::NotAMember(_) => Self::NotFound(NotFound::Member(error)),
            ArrayError::IsMember(_) | ArrayError::Rebuilding(_) | ArrayError::Unfinished(_) => {
                Self::InUse(InUse::Array(error))
            }
            ArrayError::Occupied(..)
            | ArrayError::Foreign(..)
            | ArrayError::Twin(..)
            | ArrayError::Diverged(..)
            | ArrayError::MayBeOld(_)
            | ArrayError::Needed(_) => Self::Refused(Refused::Array(error)),
            ArrayError::NoMember(_)
            | ArrayError::Newer(..)
            | ArrayError::NoCopy(_)
            | ArrayError::AllOld(_)
            | ArrayError::Device(..)
            | ArrayError::Closed => Self::Unavailable(Unavailable::Array(error)),
        }
    }
}
