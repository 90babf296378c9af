//! A volume goes to another pool while its hosts use it. `block::migration` copies and keeps both
//! sides alike; here is who is asked, what is stored, and in which order.
//!
//! | | store | the pool it leaves has | the pool it goes to has |
//! | --- | --- | --- | --- |
//! | copying | `copying` | the volume | a copy, which is no volume by its UUID |
//! | **switch-over**: one change of the store | `leaving` | the volume | the copy |
//! | the copy takes the volume's UUID and name | `leaving` | the volume | the volume |
//! | what is left gives them up | `leaving` | a copy | the volume |
//! | from here on nothing is written to it; it is deleted | none | nothing | the volume |
//!
//! A volume that is a whole device goes to a pool in the same way; its device knows no volume, and
//! is cleaned behind the switch-over. Until that is done the volume stands on it as well.
//!
//! A volume that is to be kept otherwise in its own pool goes the same way, with a copy in that
//! pool: the third and fourth line are then one change of the pool, in which both exchange what
//! they are.
//!
//! Both sides get every write until the fourth line, so each side that has the volume's UUID is
//! whole, whichever of the store and the pools is lost. A kill in between is finished at the next
//! start. A copy that no move knows is deleted when its pool is opened.

mod look;
mod place;
mod run;

use std::sync::Arc;
use std::thread;

use flashyard_block::migration::{CopyError, Migration, Side, Sides, Start};
use flashyard_block::pool::{self, NewVolume, Pool, PoolError};
use flashyard_engine::DeviceHandle;

use super::cause::DRAIN;
use super::fault::{InUse, Refused, Unavailable};
use super::work::Work;
use super::{Checked, Fault, Service, Stack, Subject};
use crate::control::{Destination, KindName, NewForm, View};
use crate::graph::NodeId;
use crate::out::note;
use crate::spec::{VolumeKind, is_copy_uuid, new_copy_uuid};
use crate::state::{Kind, MoveRecord, MoveStage, Phase, VolumeRecord};

pub(super) use run::Migrations;
use run::{Running, Step};

impl Work<'_> {
    /// Brings a volume to another pool, or has it kept otherwise in its own; waits until it is
    /// there, unless it goes on by itself.
    pub(super) fn migrate_volume(
        &mut self,
        name: &str,
        to: Destination,
        checked: Checked,
        (background, progress): (bool, bool),
    ) -> Result<View, Fault> {
        let (to, form) = match to {
            Destination::Pool(to) => (Some(to), None),
            Destination::Form(form) => (None, Some(form)),
        };
        let wanted = to.as_deref().unwrap_or_default();
        let turn = self.take(|work| Ok(work.wants_of_migration(name, wanted)))?;
        let (id, volume) = self.volume(name)?;
        let to = to.unwrap_or_else(|| volume.record.place().to_owned());
        let is_asked = |moving: &MoveRecord| moving.form == form;
        match self.moving(id) {
            // It has been asked for before.
            Ok((_, moving))
                if moving.stage == MoveStage::Copying && moving.pool == to && is_asked(&moving) => {
            }
            Ok((record, moving))
                if moving.stage == MoveStage::Leaving
                    && record.place() == to
                    && is_asked(&moving) =>
            {
                match self.service.migrations.get(id) {
                    Some(running) => self.leave_former(id, &running)?,
                    None => self.delete_left(id)?,
                }
            }
            _ => self.begin_migration(id, &to, form, checked)?,
        }
        drop(turn);
        if background && self.service.migrations.follow(id) {
            self.look();
            return self.view_one(KindName::Volume, name);
        }
        self.finish_migration(id, progress)?;
        self.view_one(KindName::Volume, self.graph.name(id))
    }

    /// Checks, stores, makes the copy and begins to fill it.
    fn begin_migration(
        &mut self,
        id: NodeId,
        to: &str,
        form: Option<NewForm>,
        checked: Checked,
    ) -> Result<(), Fault> {
        let record = self.record(id)?;
        let (name, is_served) = (record.spec.name.as_str(), self.namespace(id).is_some());
        let pool = self.check_migration(id, &record, to, form)?;
        if !is_served {
            let why = self.faults.get(&Subject::Node(id)).map(Arc::clone);
            let why = why.unwrap_or_else(|| Arc::new(Refused::HalfMade(name.to_owned()).into()));
            return Err(Unavailable::Thing(KindName::Volume, name.to_owned(), why).into());
        }
        if checked == Checked::Now
            && let (Some(tenant), Some(device)) =
                (self.graph.tenant_of(id), self.graph.device_under(pool))
        {
            let spec = self.tenant(&record.spec.tenant)?.1.spec.clone();
            self.measure_devices_of(&spec, Some(device))?;
            self.check_promises(&[], &[(tenant, device)])?;
        }
        let moving = MoveRecord {
            pool: to.to_owned(),
            uuid: new_copy_uuid(),
            whole: false,
            stage: MoveStage::Copying,
            form,
            copied_bytes: 0,
        };
        self.note_move(id, Some(moving))?;
        let begun = self.make_copy(id, name);
        let begun = begun.and_then(|()| self.install_migration(id, Start::default()));
        if let Err(fault) = begun {
            self.end_migration(id)?;
            return Err(fault);
        }
        Ok(())
    }

    /// Refuses what cannot be moved, or not there; gives the pool.
    fn check_migration(
        &self,
        id: NodeId,
        record: &VolumeRecord,
        to: &str,
        form: Option<NewForm>,
    ) -> Result<NodeId, Fault> {
        let name = record.spec.name.clone();
        let from = record.spec.pool.clone();
        if form.is_some() && from.is_none() {
            let place = record.place().to_owned();
            return Err(Refused::NotInPool(name, place).into());
        }
        if record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name).into());
        }
        self.check_not_migrating(id)?;
        self.check_no_snapshot(id)?;
        self.check_no_snapshots(id)?;
        let (pool, _) = self.pool_home(to)?;
        if let Some(form) = form {
            self.check_form(id, record, form)?;
            return Ok(pool);
        }
        if let Some(from) = from {
            if from == to {
                return Err(Refused::AlreadyThere(name, from).into());
            }
            // I/O that waits for its turn in one pool may hold one in the other: not in a circle.
            if let Some(other) = self.migrates_between(to, &from) {
                return Err(InUse::MovesBack(name, to.to_owned(), from, other).into());
            }
        }
        let device = self.graph.device_under(pool);
        let device = device.and_then(|device| self.graph.device(device));
        let kind = self.graph.pool(pool).and_then(|pool| pool.spec.kind);
        let other = device.map(|device| match VolumeKind::of_pool(kind) {
            pool::Kind::Raw => device.spec.block_size,
            pool::Kind::Mapped => 4096,
        });
        let own = self.namespace(id).map(|device| device.info().block_size);
        if let (Some(own), Some(other)) = (own, other)
            && own != other
        {
            return Err(Refused::OtherBlocks(name, own, to.to_owned(), other).into());
        }
        Ok(pool)
    }

    /// Makes the copy in the pool that the volume goes to, as large as the volume and all zeroes,
    /// if it is not there: a kill, or a pool in memory.
    fn make_copy(&self, id: NodeId, volume: &str) -> Result<(), Fault> {
        let (record, moving) = self.moving(id)?;
        let bytes = record.spec.size.map_or(0, |size| size.0);
        let (wanted, volume) = (copy_name(&moving), volume.to_owned());
        let (form, stays) = (moving.form_of(&record.spec), moving.form.is_some());
        let reserve = record.spec.reserve.map_or(0, |size| size.0);
        self.in_pool_of(&moving.pool, move |pool| async move {
            if let Some((copy, device)) = pool.find(moving.uuid.into_bytes()) {
                // A whole device may have grown since.
                let info = device.info();
                return match info.blocks * u64::from(info.block_size) < bytes {
                    true => pool.grow(&copy, bytes).await,
                    false => Ok(()),
                };
            }
            if !stays && pool.volume(&volume).is_some() {
                return Err(PoolError::Exists(volume));
            }
            let mut copy = NewVolume::new(wanted.clone(), moving.uuid.into_bytes(), bytes);
            if pool.info().kind == pool::Kind::Mapped {
                copy.form = form;
            }
            pool.create_volumes(vec![copy]).await?;
            if pool.info().kind == pool::Kind::Mapped
                && let Err(error) = pool.reserve(vec![(wanted.clone(), reserve)]).await
            {
                pool.delete(&wanted).await?;
                return Err(error);
            }
            Ok(())
        })
    }

    /// From here on the volume's I/O goes through the migration, and the copying begins when
    /// nothing else is at the volume.
    fn install_migration(&mut self, id: NodeId, start: Start) -> Result<(), Fault> {
        let (record, moving) = self.moving(id)?;
        let gone = |place: &str| Fault::from(Unavailable::Gone(place.to_owned()));
        let handle = self.namespace(id).cloned();
        let handle = handle.ok_or_else(|| gone(record.place()))?;
        let target = self.serve_copy(id, &moving)?;
        let place = self.place_of(&record)?;
        let (core, device) = (place.core, place.device);
        let policy = self.policy_of(device);
        let copy = target.clone();
        let stays = moving.form.is_some().then_some(moving.uuid.into_bytes());
        let progress = self.cores.call(core, move |state| async move {
            let source = place.find(&state.nodes)?;
            let switch = state.switch(device, &policy)?;
            let (target, copy_to) = match stays {
                None => {
                    let target = state.engine.way_to(&copy);
                    (target.clone(), target)
                }
                // A write has its turn there already, and must not wait for another one.
                Some(uuid) => {
                    let (_, target) = state.nodes.pool(place.pool?)?.find(uuid)?;
                    let copy_to = state.engine.way_through(&switch, target.clone());
                    (target, copy_to)
                }
            };
            let sides = Sides {
                copy_from: state.engine.way_through(&switch, source.clone()),
                source,
                copy_to,
                target,
            };
            let migration = Migration::new(&state.rt, sides, start);
            let progress = migration.progress();
            state.nodes.add_migration(id, migration);
            Some(progress)
        });
        let progress = progress.ok_or_else(|| gone(record.place()))?;
        let size = record.spec.size.map_or(0, |size| size.0);
        let running = Running::new((moving.pool, size), core, target, progress);
        self.service.migrations.put(id, &running);
        self.cores.send(core, move |state| async move {
            let Some(migration) = state.nodes.migration(id) else {
                return;
            };
            let engine = &state.engine;
            let device = std::rc::Rc::new(migration.clone());
            engine.exchange_device(&handle, device).await;
            running.finish(migration.copy().await);
        });
        Ok(())
    }

    /// Makes the copy reachable from all cores, behind the switch of its device.
    fn serve_copy(&self, id: NodeId, moving: &MoveRecord) -> Result<DeviceHandle, Fault> {
        let (pool, core) = self.pool_home(&moving.pool)?;
        let gone = || Fault::from(Unavailable::Gone(moving.pool.clone()));
        let device = self.graph.device_under(pool).ok_or_else(gone)?;
        let (policy, uuid) = (self.policy_of(device), moving.uuid.into_bytes());
        let handle = self.cores.call(core, move |state| async move {
            let (_, copy) = state.nodes.pool(pool)?.find(uuid)?;
            let switch = state.switch(device, &policy)?;
            Some(state.engine.add_device(copy, &switch))
        });
        if let Some(tenant) = self.graph.tenant_of(id) {
            self.tell_share_to(device, tenant);
        }
        handle.ok_or_else(gone)
    }

    /// Waits until all is copied, and brings the volume there; or leaves it where it is.
    pub(super) fn finish_migration(&mut self, id: NodeId, progress: bool) -> Result<(), Fault> {
        let Some(running) = self.service.migrations.get(id) else {
            return Ok(());
        };
        let copied = loop {
            match running.wait() {
                Step::Copied(outcome) => break outcome,
                Step::Copying(how_far) if progress => self.asker.tell(how_far),
                Step::Copying(_) => {}
            }
            if self.service.turns.are_closed() {
                return Err(self.migrates_later(id));
            }
        };
        self.look();
        let wants = |work: &Self| Ok(work.wants_of_migration(work.graph.name(id), &running.to));
        let _turn = self.take(wants).map_err(|_| self.migrates_later(id))?;
        let outcome = match copied.and_then(|()| self.begin_switch(id, &running)) {
            Ok(()) => self.switch_over(id, &running),
            Err(why) => {
                // Who cancels a move that has just begun ends it.
                if self.is_copying(id) {
                    self.end_migration(id)?;
                }
                Err(self.not_migrated(id, &running.to, why))
            }
        };
        if let Err(fault) = &outcome
            && copied != Err(CopyError::Cancelled)
        {
            let why = fault.to_string();
            self.service.migrations.fail(id, running.to.clone(), why);
        }
        running.end();
        outcome
    }

    /// From now on both sides count.
    fn begin_switch(&self, id: NodeId, running: &Running) -> Result<(), CopyError> {
        let begun = self.with_migration(
            running.home,
            id,
            |it| async move { it.begin_switch().await },
        );
        begun.unwrap_or(Err(CopyError::Cancelled))
    }

    /// The volume is in the other pool from now on. Where this fails both sides still get every
    /// write, and it can be tried again.
    fn switch_over(&mut self, id: NodeId, running: &Running) -> Result<(), Fault> {
        let recorded = self.commit(|state, stack| {
            let record = stack.record(id)?;
            let moving = record.moving.as_ref();
            let pool = moving.and_then(|moving| stack.pool(&moving.pool).ok());
            let kind = VolumeKind::normal(pool.and_then(|(_, pool)| pool.spec.kind));
            let switched = state.switch_move(&record, kind)?;
            Ok(move |stack: &mut Stack| stack.set_record(id, switched))
        });
        // What could not be recorded may be on the medium all the same.
        self.with_migration(running.home, id, |it| async move { it.target_may_count() });
        recorded?;
        self.leave_former(id, running)
    }

    /// The store says that the volume is in the other pool: so do the pools, hosts go there, and
    /// what is left goes.
    fn leave_former(&mut self, id: NodeId, running: &Running) -> Result<(), Fault> {
        self.take_identity(id)?;
        let left = self.leave_identity(id);
        self.with_migration(
            running.home,
            id,
            |it| async move { it.end(Side::Target).await },
        );
        let (record, moving) = self.moving(id)?;
        let (handle, former) = (running.target.clone(), self.namespace(id).cloned());
        let (tenant, nsid) = (&record.spec.tenant, record.nsid);
        self.target.exchange(tenant, nsid, handle.clone())?;
        self.edit(|stack| {
            stack
                .graph
                .change_volume(id, |volume| volume.namespace = Some(handle));
        });
        if let Some(former) = former {
            self.leave_way(running.home, id, former);
        }
        if moving.form.is_none()
            && let (Some(tenant), Some(device)) =
                (self.graph.tenant_of(id), self.device_left(&moving))
        {
            self.forget_share(device, tenant);
        }
        self.service.migrations.forget(id);
        left.and_then(|()| self.delete_left(id))
    }

    /// In the pool that the volume is in the copy is the volume. Before that is done the volume is
    /// not served.
    pub(super) fn take_identity(&self, id: NodeId) -> Result<(), Fault> {
        let Ok((record, moving)) = self.moving(id) else {
            return Ok(());
        };
        if moving.stage == MoveStage::Copying {
            return Ok(());
        }
        let (own, copy) = (record.uuid.into_bytes(), moving.uuid.into_bytes());
        let (name, owner) = (record.spec.name.clone(), record.owner());
        let form = moving.form.map(|_| record.spec.form());
        self.in_pool_of(record.place(), move |pool| async move {
            if let Some(form) = form {
                // Both are in this pool: which one is the volume is seen by how it is kept.
                let volumes = pool.list();
                let former = volumes.iter().find(|it| it.uuid == own && it.form != form);
                return match former {
                    Some(_) => pool.exchange(own, copy).await,
                    None => Ok(()),
                };
            }
            if pool.find(copy).is_some() {
                pool.identify(copy, own, &name).await?;
            }
            pool.set_owner(&name, owner).await
        })
    }

    /// What is left in the pool that the volume has come from is the volume no more.
    fn leave_identity(&self, id: NodeId) -> Result<(), Fault> {
        let (record, moving) = self.moving(id)?;
        if moving.form.is_some() {
            return self.take_identity(id);
        }
        // A device knows no volume.
        if moving.whole {
            return Ok(());
        }
        let (own, copy) = (record.uuid.into_bytes(), moving.uuid.into_bytes());
        let left = copy_name(&moving);
        self.in_pool_of(&moving.pool, move |pool| async move {
            match pool.find(own) {
                Some(_) => pool.identify(own, copy, &left).await,
                None => Ok(()),
            }
        })
    }

    /// Deletes what is left in the pool that the volume has come from, or on the device, which is
    /// clean then as after the deletion of a volume.
    pub(super) fn delete_left(&mut self, id: NodeId) -> Result<(), Fault> {
        let (_, moving) = self.moving(id)?;
        match moving.left_device() {
            Some(name) => self.clear_left(name)?,
            None => {
                self.leave_identity(id)?;
                self.delete_copy(&moving)?;
            }
        }
        self.note_move(id, None)
    }

    /// The volume stays where it is; the copy goes.
    fn end_migration(&mut self, id: NodeId) -> Result<(), Fault> {
        let (record, moving) = self.moving(id)?;
        self.note_move(id, None)?;
        let running = self.service.migrations.get(id);
        self.service.migrations.forget(id);
        if let Some(running) = &running {
            running.finish(Err(CopyError::Cancelled));
        }
        let place = self.place_of(&record)?;
        let handle = self.namespace(id).cloned();
        self.cores.call(place.core, move |state| async move {
            let migration = state.nodes.migration(id)?;
            migration.end(Side::Source).await;
            state.nodes.remove_migration(id);
            let source = place.find(&state.nodes)?;
            let (engine, handle) = (state.engine.clone(), handle?);
            let exchanged = async move { engine.exchange_device(&handle, source).await };
            state.rt.spawn(exchanged).detach();
            Some(())
        });
        if let Some(running) = running {
            let copy = running.target.clone();
            self.cores.call(copy.core(), move |state| async move {
                let removed = state.engine.remove_device(&copy);
                state.rt.timeout(DRAIN, removed).await.is_some()
            });
        }
        // What cannot be deleted now is when its pool is opened again.
        let _ = self.delete_copy(&moving);
        Ok(())
    }

    /// Takes the way by which hosts have reached a volume away, when no command can be on it any
    /// more: commands that had found it before are answered by then.
    fn leave_way(&self, core: usize, id: NodeId, former: DeviceHandle) {
        self.cores.call(core, move |state| async move {
            state.nodes.remove_migration(id);
            let (rt, engine) = (state.rt.clone(), state.engine.clone());
            let linger = engine.target().config().limits.longest_wait();
            let leave = async move {
                rt.sleep(linger).await;
                engine.remove_device(&former).await;
            };
            state.rt.spawn(leave).detach();
        });
    }

    fn delete_copy(&self, moving: &MoveRecord) -> Result<(), Fault> {
        let uuid = moving.uuid.into_bytes();
        self.in_pool_of(&moving.pool, move |pool| async move {
            match pool.find(uuid) {
                Some((copy, _)) => pool.delete(&copy).await,
                None => Ok(()),
            }
        })
    }

    /// A volume that is on its way stays where it is.
    pub(super) fn cancel_migration(&mut self, name: &str) -> Result<View, Fault> {
        let (id, volume) = self.volume(name)?;
        let record = volume.record.clone();
        match &record.moving {
            None => return Err(Refused::NotMigrating(name.to_owned()).into()),
            Some(moving) if moving.stage == MoveStage::Leaving => {
                let place = record.place().to_owned();
                return Err(Refused::HasMigrated(name.to_owned(), place).into());
            }
            Some(_) => {}
        }
        if let Some(running) = self.service.migrations.get(id) {
            let core = self.place_of(&record)?.core;
            self.with_migration(core, id, |it| async move { it.cancel() });
            // Also while it waits for I/O that was there before.
            running.finish(Err(CopyError::Cancelled));
            // Whoever waits for it takes it away.
            running.wait_ended();
        }
        self.look();
        let _turn = self.take(|work| Ok(work.wants_of_migration(work.graph.name(id), "")))?;
        if self.is_copying(id) {
            self.end_migration(id)?;
        }
        let place = self.record(id)?.place().to_owned();
        if place != record.place() {
            return Err(Refused::HasMigrated(name.to_owned(), place).into());
        }
        self.view_one(KindName::Volume, self.graph.name(id))
    }

    /// Goes on with what a crash or the end of the target has cut off.
    pub(super) fn resume_migrations(&mut self) {
        for id in self.graph.all(Kind::Volume).collect::<Vec<_>>() {
            let Ok((record, moving)) = self.moving(id) else {
                continue;
            };
            if self.service.migrations.get(id).is_some() {
                continue;
            }
            let resumed = match moving.stage {
                MoveStage::Copying => {
                    let size = record.spec.size.map_or(0, |size| size.0);
                    let start = Start {
                        copied: moving.copied_bytes,
                        touched: size,
                    };
                    let made = self.make_copy(id, &record.spec.name);
                    let begun = made.and_then(|()| self.install_migration(id, start));
                    // At the start nobody follows any yet.
                    begun.map(|()| {
                        self.service.migrations.follow(id);
                    })
                }
                MoveStage::Leaving => self.delete_left(id),
            };
            if let Err(fault) = resumed {
                note(format_args!(
                    "volume {} is not moved now: {fault}",
                    record.spec.name
                ));
            }
        }
    }

    fn note_move(&mut self, id: NodeId, moving: Option<MoveRecord>) -> Result<(), Fault> {
        self.commit(|state, stack| {
            let noted = state.note_move(&stack.record(id)?, moving)?;
            Ok(move |stack: &mut Stack| stack.set_record(id, noted))
        })
    }

    /// What `ask` gives of a migration, on its core; nothing if there is none.
    fn with_migration<T, W, F>(&self, core: usize, id: NodeId, ask: W) -> Option<T>
    where
        T: Send + 'static,
        W: FnOnce(Migration) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.cores.call(core, move |state| async move {
            let migration = state.nodes.migration(id);
            match migration {
                Some(migration) => Some(ask(migration).await),
                None => None,
            }
        })
    }

    fn in_pool_of<T, W, F>(&self, pool: &str, ask: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(Pool) -> F + Send + 'static,
        F: Future<Output = Result<T, PoolError>> + 'static,
    {
        let (pool, core) = self.pool_home(pool)?;
        let asked = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(pool).ok_or(PoolError::NotAPool)?;
            ask(pool).await
        });
        Ok(asked?)
    }

    fn not_migrated(&self, id: NodeId, to: &str, why: CopyError) -> Fault {
        Unavailable::NotMigrated(self.graph.name(id).to_owned(), to.to_owned(), why).into()
    }

    fn migrates_later(&self, id: NodeId) -> Fault {
        let name = self.graph.name(id).to_owned();
        let to = self
            .moving(id)
            .map_or_else(|_| String::new(), |(_, it)| it.pool);
        Unavailable::MigratesLater(name, to).into()
    }
}

impl Service {
    /// Moves that no command waits for have threads of their own from now on, and so do those that
    /// a start has found.
    pub fn follow_migrations(self: &Arc<Self>) {
        let service = Arc::downgrade(self);
        self.migrations.follow_by(Box::new(move |id| {
            let Some(service) = service.upgrade() else {
                return;
            };
            thread::spawn(move || {
                let ended = Work::begin(&service, &()).and_then(|mut work| {
                    let ended = work.finish_migration(id, false);
                    work.renew_copy();
                    ended
                });
                if let Err(fault) = ended {
                    note(format_args!("{fault}"));
                }
            });
        }));
    }
}

/// Takes away copies that no move knows.
pub(super) async fn clear_copies(pool: &Pool, known: &[[u8; 16]]) -> Result<(), PoolError> {
    for volume in pool.list() {
        if is_copy_uuid(&volume.uuid) && !known.contains(&volume.uuid) {
            pool.delete(&volume.name).await?;
        }
    }
    Ok(())
}

/// What a copy is called in its pool.
fn copy_name(moving: &MoveRecord) -> String {
    format!("copy-{}", moving.uuid.simple())
}
