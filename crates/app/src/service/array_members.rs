//! The members of an array that is open: those that join, go and are exchanged while it is used.

use std::rc::Rc;

use flashyard_block::array::{Array, ArrayError, NewMember};
use flashyard_block::pool::Pool;

use super::Fault;
use super::arrays::columns_of;
use super::work::Work;
use crate::control::{ArrayChange, RebuildChange, View};
use crate::graph::NodeId;
use crate::spec::{ArraySpec, SpecError};
use crate::state::Kind;

impl Work<'_> {
    /// Changes an array while it is used. `name` is that of a pool on it, or its own.
    pub(super) fn change_array(&mut self, name: &str, change: ArrayChange) -> Result<View, Fault> {
        if let ArrayChange::Start { degraded } = change {
            let (kind, id) = self.to_start(name)?;
            self.start_node(id, degraded)?;
            self.ask_all();
            return self.view_one(kind, name);
        }
        let (kind, id) = self.array_of(name)?;
        match change {
            ArrayChange::Start { .. } => {}
            ArrayChange::Add { devices, force } => self.add_members(id, devices, false, force)?,
            ArrayChange::AddSpares { devices, force } => {
                self.add_members(id, devices, true, force)?;
            }
            ArrayChange::Replace { old, new, force } => {
                self.replace_member(id, old, new, force)?;
            }
            ArrayChange::Remove { device } => self.remove_member(id, &device)?,
            ArrayChange::SetRebuild(change) => self.set_rebuild(id, change)?,
            ArrayChange::Scrub { stop } => self.scrub(id, stop)?,
        }
        self.ask_all();
        self.view_one(kind, name)
    }

    /// Notes what a rebuild gets, also of an array that is not open.
    fn set_rebuild(&mut self, id: NodeId, change: RebuildChange) -> Result<(), Fault> {
        let device = self.graph.device(id).map(|device| &device.spec);
        if let Some((spec, array)) = device.and_then(|spec| Some((spec, spec.array()?))) {
            let mut array = array.clone();
            change.apply_to(&mut array);
            // The rest may be wrong for a while: a device more is listed while one is replaced.
            let checked = array.check_rebuild();
            checked.map_err(|error| SpecError::Device(spec.name.clone(), error))?;
        }
        self.change_spec(id, |spec| spec.set_array(|array| change.apply_to(array)))?;
        self.renew_rebuild(id);
        Ok(())
    }

    /// Has an array know what was noted; one that is not open will when it is.
    pub(super) fn renew_rebuild(&self, id: NodeId) {
        self.send_in_order(|stack| {
            let array = stack.graph.device(id)?.spec.array()?;
            let (priority, limit) = (array.rebuild_priority, array.rebuild_bytes());
            let home = stack.home_of(id).ok()?;
            Some(self.cores.send(home, move |state| async move {
                if let Some(array) = state.nodes.array(id) {
                    array.set_rebuild_priority(priority.into());
                    array.set_rebuild_limit(limit);
                }
            }))
        });
    }

    /// Reads all copies of everything, or ends that. A mapped pool on them knows what they should
    /// hold; else they are compared.
    fn scrub(&self, id: NodeId, stop: bool) -> Result<(), Fault> {
        let home = self.home_of(id)?;
        for pool in self.pools_on(id) {
            let scrubbed = self.cores.call(home, move |state| async move {
                match state.nodes.pool(pool) {
                    Some(Pool::Mapped(pool)) if stop => {
                        pool.stop_scrub();
                        Some(Ok(()))
                    }
                    Some(Pool::Mapped(pool)) => Some(pool.scrub()),
                    _ => None,
                }
            });
            if let Some(scrubbed) = scrubbed {
                return scrubbed.map_err(Fault::from);
            }
        }
        self.in_array(id, move |array| async move {
            match stop {
                true => array.stop_scrub(),
                false => array.scrub(),
            }
            Ok(())
        })
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
            self.forget_former(id)?;
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
            Err(Fault::NotFound(_)) if former() => {
                let name = device.to_owned();
                self.in_array(id, move |array| async move { array.check_finished(&name) })?;
            }
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
            let array = state.nodes.array(id)?;
            Some((array.status(), array.unfinished()))
        });
        let Some((status, unfinished)) = status else {
            return Ok(());
        };
        let of = |spare: bool| {
            let members = status.members.iter();
            let members = members.filter(move |it| it.set.is_none() == spare);
            members.map(|it| it.name.clone()).collect::<Vec<String>>()
        };
        let (mut devices, spares) = (of(false), of(true));
        let listed = self.graph.device(id).and_then(|it| it.spec.array());
        // What may still change a device must not fall on another user of it.
        let kept = listed.into_iter().flat_map(ArraySpec::all).filter(|name| {
            let is = |names: &[String]| names.iter().any(|it| it == name);
            !is(&devices) && !is(&spares) && is(&unfinished)
        });
        let kept: Vec<String> = kept.map(str::to_owned).collect();
        devices.extend(kept);
        let columns = columns_of(&status);
        let same = listed.is_some_and(|it| {
            it.devices == devices && it.spares == spares && it.columns == columns
        });
        if same {
            return Ok(());
        }
        self.change_spec(id, |spec| {
            spec.set_array(|array| {
                (array.devices, array.spares) = (devices, spares);
                array.columns = columns;
            });
        })
    }

    fn pools_on(&self, id: NodeId) -> Vec<NodeId> {
        let pools = self.graph.all(Kind::Pool);
        pools
            .filter(|pool| self.graph.device_under(*pool) == Some(id))
            .collect()
    }

    /// Has the pool on a device use what that has grown by.
    pub(super) fn extend_pool(&self, id: NodeId) -> Result<(), Fault> {
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
