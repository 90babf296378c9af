//! Devices of kind `array`: several devices as one, all on one core. Which of them are members, and
//! how each is, stands on the members themselves; the store only says which devices to look at.

use std::rc::Rc;

use flashyard_block::array::{Array, ArrayError, Layout, NewMember, Options, Uuid as ArrayId};
use uuid::Uuid;

use super::devices::close_device;
use super::fault::{InUse, Invalid, NotFound, Refused, Unavailable};
use super::work::Work;
use super::{Fault, Stack, Subject, no_such};
use crate::control::{ArrayChange, ArrayHow, ArrayOf, KindName, View};
use crate::graph::{Node as Thing, NodeId};
use crate::nodes::Node;
use crate::spec::{ArraySpec, DeviceSpec, NamespaceUuid, Redundancy, VolumeKind};
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
            if how.import && status.copies > 1 {
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

    fn check_new_member(&self, name: &str, block_size: u32) -> Result<NodeId, Fault> {
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
    fn bring(&mut self, id: NodeId, home: usize) -> Result<(), Fault> {
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
            safe_read: array.safe_read == Some(true),
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
            let (rt, options) = (&state.rt, Options::default());
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

    /// Forgets an array; its devices are empty then if it is to be destroyed.
    pub(super) fn delete_array(&mut self, name: &str, destroy: bool) -> Result<(), Fault> {
        let (id, device) = self.device(name)?;
        let (home, members) = (device.home, self.members_of(id));
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

    /// Changes an array while it is used. `name` is that of a pool on it, or its own.
    pub(super) fn change_array(&mut self, name: &str, change: ArrayChange) -> Result<View, Fault> {
        let (kind, id) = self.array_of(name)?;
        match change {
            ArrayChange::Start { degraded } => self.start_array(id, degraded)?,
            ArrayChange::Add { devices, force } => self.add_members(id, devices, false, force)?,
            ArrayChange::AddSpares { devices, force } => {
                self.add_members(id, devices, true, force)?;
            }
            ArrayChange::Replace { old, new, force } => {
                self.replace_member(id, old, new, force)?;
            }
            ArrayChange::Remove { device } => self.remove_member(id, &device)?,
            ArrayChange::Scrub { stop } => self.in_array(id, move |array| async move {
                match stop {
                    true => array.stop_scrub(),
                    false => array.scrub(),
                }
                Ok(())
            })?,
        }
        self.ask_all();
        self.view_one(kind, name)
    }

    /// Opens an array that could not be opened, and all that stands on it.
    fn start_array(&mut self, id: NodeId, degraded: bool) -> Result<(), Fault> {
        if self.home_of(id).is_ok() {
            let name = self.graph.name(id).to_owned();
            return Err(Invalid::IsStarted(name).into());
        }
        let stands = |other: &NodeId| self.graph.all_under(*other).contains(&id);
        let all = self.graph.in_order().into_iter().filter(stands);
        let all: Vec<NodeId> = all.collect();
        for node in all {
            let opened = match self.graph.get(node).cloned() {
                Some(Thing::Device(device)) if node == id => {
                    let home = self.open_array(id, &device.spec, degraded)?;
                    self.edit(|stack| {
                        let open = |device: &mut crate::graph::Device| device.home = Some(home);
                        stack.graph.change_device(id, open);
                    });
                    Ok(())
                }
                _ => self.open_node(node),
            };
            match opened {
                Ok(()) => self.edit(|stack| drop(stack.faults.remove(&Subject::Node(node)))),
                Err(fault) => self.note_fault(Subject::Node(node), fault),
            }
        }
        Ok(())
    }

    /// Brings new members to the core of an array, and gives their names there.
    fn bring_members(
        &mut self,
        id: NodeId,
        names: &[String],
    ) -> Result<(usize, Vec<(String, NodeId)>), Fault> {
        let home = self.home_of(id)?;
        let block_size = self.graph.device(id).map_or(0, |it| it.spec.block_size);
        let mut found = Vec::new();
        for name in names {
            found.push((name.clone(), self.check_new_member(name, block_size)?));
        }
        for (_, member) in &found {
            self.bring(*member, home)?;
        }
        Ok((home, found))
    }

    fn add_members(
        &mut self,
        id: NodeId,
        names: Vec<String>,
        spare: bool,
        force: bool,
    ) -> Result<(), Fault> {
        if !spare {
            self.check_can_extend(id)?;
        }
        let (home, found) = self.bring_members(id, &names)?;
        // Noted first: a device that is none of its members is passed over when it is opened.
        self.change_spec(id, |spec| {
            spec.set_array(|array| match spare {
                true => array.spares.extend(names.clone()),
                false => array.devices.extend(names.clone()),
            });
        })?;
        let added = self.cores.call(home, move |state| async move {
            let array = state.nodes.array(id).ok_or(ArrayError::Closed)?;
            let member = |(name, id): (String, NodeId)| {
                let device = state.nodes.device(id)?;
                Some(NewMember { name, device })
            };
            let new: Vec<NewMember> = found.into_iter().filter_map(member).collect();
            match spare {
                true => array.add_spares(new, force).await,
                false => array.add(new, force).await,
            }
        });
        if let Err(error) = added {
            self.forget_members(id, &names)?;
            return Err(error.into());
        }
        if !spare {
            self.extend_pool(id)?;
        }
        Ok(())
    }

    fn replace_member(
        &mut self,
        id: NodeId,
        old: String,
        new: Option<String>,
        force: bool,
    ) -> Result<(), Fault> {
        let home = self.home_of(id)?;
        // The same device comes back.
        let same = new.is_none();
        let new = new.unwrap_or_else(|| old.clone());
        let found = match same {
            true => {
                let (member, _) = self.device(&new)?;
                self.bring(member, home)?;
                member
            }
            false => self.bring_members(id, std::slice::from_ref(&new))?.1[0].1,
        };
        if !same {
            self.change_spec(id, |spec| {
                spec.set_array(|array| array.devices.push(new.clone()));
            })?;
        }
        let name = new.clone();
        let replaced = self.cores.call(home, move |state| async move {
            let array = state.nodes.array(id).ok_or(ArrayError::Closed)?;
            let device = state.nodes.device(found);
            let device = device.ok_or_else(|| ArrayError::NotAMember(name.clone()))?;
            array.replace(&old, NewMember { name, device }, force).await
        });
        if let Err(error) = replaced {
            if !same {
                self.forget_members(id, &[new])?;
            }
            return Err(error.into());
        }
        self.forget_former(id)
    }

    fn remove_member(&mut self, id: NodeId, device: &str) -> Result<(), Fault> {
        let name = device.to_owned();
        let removed = self.in_array(id, move |array| async move { array.remove(&name).await });
        let former = || {
            let array = self.graph.device(id).and_then(|it| it.spec.array());
            array.is_some_and(|array| array.all().any(|name| name == device))
        };
        match removed {
            // It was replaced, and is only in the list still.
            Err(Fault::NotFound(_)) if former() => {}
            other => other?,
        }
        self.forget_members(id, &[device.to_owned()])?;
        self.forget_former(id)
    }

    /// Takes devices out of the list of an array.
    fn forget_members(&mut self, id: NodeId, names: &[String]) -> Result<(), Fault> {
        self.change_spec(id, |spec| {
            spec.set_array(|array| {
                array.devices.retain(|name| !names.contains(name));
                array.spares.retain(|name| !names.contains(name));
            });
        })
    }

    /// Has the list of an array say what its members are, with those that are still needed.
    pub(super) fn forget_former(&mut self, id: NodeId) -> Result<(), Fault> {
        let home = self.home_of(id)?;
        let status = self.cores.call(home, move |state| async move {
            state.nodes.array(id).map(|array| array.status())
        });
        let Some(status) = status else {
            return Ok(());
        };
        let of = |spare: bool| {
            let members = status.members.iter();
            let members = members.filter(move |it| it.set.is_none() == spare);
            members.map(|it| it.name.clone()).collect::<Vec<String>>()
        };
        let (devices, spares) = (of(false), of(true));
        let listed = self.graph.device(id).and_then(|it| it.spec.array());
        let same = listed.is_some_and(|it| it.devices == devices && it.spares == spares);
        if same {
            return Ok(());
        }
        self.change_spec(id, |spec| {
            spec.set_array(|array| (array.devices, array.spares) = (devices, spares));
        })
    }

    /// Refuses members for a pool that could not use them.
    fn check_can_extend(&self, id: NodeId) -> Result<(), Fault> {
        let mut pools = self.pools_on(id).into_iter();
        let mapped = pools.find_map(|pool| {
            let spec = &self.graph.pool(pool)?.spec;
            (spec.kind == Some(VolumeKind::Mapped)).then(|| spec.name.clone())
        });
        match mapped {
            Some(pool) => Err(Refused::Extend(pool).into()),
            None => Ok(()),
        }
    }

    fn pools_on(&self, id: NodeId) -> Vec<NodeId> {
        let pools = self.graph.all(Kind::Pool);
        pools
            .filter(|pool| self.graph.device_under(*pool) == Some(id))
            .collect()
    }

    /// Has the pool on an array use what it has grown by.
    fn extend_pool(&self, id: NodeId) -> Result<(), Fault> {
        let home = self.home_of(id)?;
        for pool in self.pools_on(id) {
            let grown = self.cores.call(home, move |state| async move {
                match state.nodes.pool(pool) {
                    Some(pool) => pool.extend().await,
                    None => Ok(()),
                }
            });
            grown?;
        }
        Ok(())
    }

    fn in_array<W, F>(&self, id: NodeId, work: W) -> Result<(), Fault>
    where
        W: FnOnce(Rc<Array>) -> F + Send + 'static,
        F: Future<Output = Result<(), ArrayError>> + 'static,
    {
        let home = self.home_of(id)?;
        let done = self.cores.call(home, move |state| async move {
            let array = state.nodes.array(id).ok_or(ArrayError::Closed)?;
            work(array).await
        });
        done.map_err(Fault::from)
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

impl From<ArrayError> for Fault {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Members(..)
            | ArrayError::TooMany
            | ArrayError::BlockSize(..)
            | ArrayError::TooSmall(..) => Self::Invalid(Invalid::Array(error)),
            ArrayError::NotAMember(_) => Self::NotFound(NotFound::Member(error)),
            ArrayError::IsMember(_) | ArrayError::Rebuilding(_) => Self::InUse(InUse::Array(error)),
            ArrayError::Occupied(..)
            | ArrayError::Foreign(..)
            | ArrayError::Twin(..)
            | ArrayError::Diverged(..)
            | ArrayError::MayBeOld(_)
            | ArrayError::Needed(_) => Self::Refused(Refused::Array(error)),
            ArrayError::NoMember(_)
            | ArrayError::Newer(..)
            | ArrayError::NoCopy(_)
            | ArrayError::Device(..)
            | ArrayError::Closed => Self::Unavailable(Unavailable::Array(error)),
        }
    }
}
