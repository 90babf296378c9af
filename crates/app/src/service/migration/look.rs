//! What is known of volumes that are on their way, and what may not happen to them.

use super::super::fault::{InUse, Invalid, Refused};
use super::super::work::Work;
use super::super::{Fault, Stack};
use flashyard_block::pool::{self, PoolError, VolumeForm};

use crate::control::{MigrationState, MigrationView, NewForm};
use crate::graph::NodeId;
use crate::spec::Size;
use crate::state::{Kind, MoveRecord, MoveStage, VolumeRecord};

impl Stack {
    /// A volume that is on its way.
    pub(super) fn moving(&self, id: NodeId) -> Result<(VolumeRecord, MoveRecord), Fault> {
        let record = self.record(id)?;
        match record.moving.clone() {
            Some(moving) => Ok((record, moving)),
            None => Err(Refused::NotMigrating(record.spec.name).into()),
        }
    }

    pub(super) fn is_copying(&self, id: NodeId) -> bool {
        let moving = self.moving(id);
        moving.is_ok_and(|(_, moving)| moving.stage == MoveStage::Copying)
    }

    /// A volume that goes from one pool towards another one, over others as well.
    pub(super) fn migrates_between(&self, from: &str, to: &str) -> Option<String> {
        let volumes = self.graph.all(Kind::Volume);
        let ways = volumes.filter_map(|id| {
            let (record, moving) = self.moving(id).ok()?;
            let way = (record.place().to_owned(), moving.pool, record.spec.name);
            (moving.stage == MoveStage::Copying && record.spec.pool.is_some()).then_some(way)
        });
        let ways: Vec<_> = ways.collect();
        let (mut reached, mut seen) = (vec![from.to_owned()], 0);
        while let Some(place) = reached.get(seen).cloned() {
            seen += 1;
            for (_, next, volume) in ways.iter().filter(|(from, ..)| *from == place) {
                if next == to {
                    return Some(volume.clone());
                }
                if !reached.contains(next) {
                    reached.push(next.clone());
                }
            }
        }
        None
    }

    /// Refuses to change a volume that is on its way.
    pub(in crate::service) fn check_not_migrating(&self, id: NodeId) -> Result<(), Fault> {
        match self.moving(id) {
            Ok((record, moving)) => Err(InUse::Migrating(record.spec.name, moving.pool).into()),
            Err(_) => Ok(()),
        }
    }

    /// Refuses to take away a pool in which the copy of a volume is.
    pub(in crate::service) fn check_no_copies(&self, pool: &str) -> Result<(), Fault> {
        let mut volumes = self.graph.all(Kind::Volume);
        let found = volumes.find_map(|id| {
            let (record, moving) = self.moving(id).ok()?;
            (moving.pool == pool && !moving.whole).then_some(record.spec.name)
        });
        match found {
            Some(volume) => Err(InUse::MigrationOf(pool.to_owned(), volume).into()),
            None => Ok(()),
        }
    }

    /// Copies that a pool is to keep.
    pub(in crate::service) fn known_copies(&self) -> Vec<[u8; 16]> {
        let volumes = self.graph.all(Kind::Volume);
        let moving = volumes.filter_map(|id| Some(self.moving(id).ok()?.1));
        moving.map(|moving| moving.uuid.into_bytes()).collect()
    }
}

impl Work<'_> {
    /// Refuses a form that a volume cannot get in its pool.
    pub(in crate::service) fn check_form(
        &self,
        id: NodeId,
        record: &VolumeRecord,
        form: NewForm,
    ) -> Result<(), Fault> {
        let name = record.spec.name.clone();
        self.check_clone_stays(id)?;
        let spec = form.applied_to(&record.spec);
        if self.kind_of(&spec) == pool::Kind::Raw {
            return Err(PoolError::Plain(name).into());
        }
        if let Some(Size(chunk)) = form.chunk
            && !VolumeForm::CHUNKS.map(u64::from).contains(&chunk)
        {
            return Err(Invalid::Chunk(name, chunk).into());
        }
        if spec.form() == record.spec.form() {
            return Err(Refused::KeptSo(name).into());
        }
        let device = self.graph.device_under(id);
        device.map_or(Ok(()), |device| self.check_size(&spec, device))
    }

    /// How far a volume is on its way.
    pub(in crate::service) fn view_migration(
        &self,
        id: NodeId,
        record: &VolumeRecord,
    ) -> Option<MigrationView> {
        let running = self.service.migrations.get(id);
        let failed = self.service.migrations.failure(id);
        let size = record.spec.size.map_or(0, |size| size.0);
        let view = |to: String, state, copied_bytes, why| MigrationView {
            to,
            state,
            copied_bytes,
            size_bytes: size,
            remaining_seconds: running.as_ref().and_then(|it| it.remaining()),
            why,
        };
        match (&record.moving, &running) {
            (Some(moving), Some(running)) if moving.stage == MoveStage::Copying => Some(view(
                moving.pool.clone(),
                MigrationState::Copying,
                running.progress.copied(),
                None,
            )),
            (Some(moving), _) if moving.stage == MoveStage::Leaving => Some(view(
                record.place().to_owned(),
                MigrationState::Leaving,
                size,
                failed.map(|(_, why)| why),
            )),
            (Some(moving), _) => Some(view(
                moving.pool.clone(),
                MigrationState::Waiting,
                moving.copied_bytes,
                None,
            )),
            (None, _) => {
                let (to, why) = failed?;
                Some(view(to, MigrationState::Failed, 0, Some(why)))
            }
        }
    }
}
