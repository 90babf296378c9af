//! Volumes that go from one pool to another: what has to be known of it after a crash.

use rusqlite::params;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{State, StateError, VolumeRecord, encode};
use crate::spec::{VolumeKind, VolumeSpec};

/// A move that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The other pool: where the copy is that is no volume.
    pub pool: String,
    /// What that copy is known by there. A volume's own UUID is where the volume is.
    pub uuid: Uuid,
    /// How far it is.
    pub stage: MoveStage,
    /// Bytes from the beginning that are the same on both sides, if the target has ended since in
    /// good order; otherwise the copy is compared.
    #[serde(default)]
    pub copied_bytes: u64,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStage {
    /// The volume is where it was; the copy in the other pool is made.
    Copying,
    /// The volume is where it was to go; what is left in the other pool is to be deleted.
    Leaving,
}

impl State {
    /// Notes how far the move of a volume is, or that there is none.
    pub fn note_move(
        &mut self,
        record: &VolumeRecord,
        moving: Option<MoveRecord>,
    ) -> Result<VolumeRecord, StateError> {
        self.execute(
            "UPDATE volume SET move = ?2 WHERE name = ?1",
            params![record.spec.name, moving.as_ref().map(encode)],
        )?;
        Ok(VolumeRecord {
            moving,
            ..record.clone()
        })
    }

    /// The volume is in the other pool from now on: the one change that decides which side counts.
    /// That keeps volumes of this kind.
    pub fn switch_move(
        &mut self,
        record: &VolumeRecord,
        kind: Option<VolumeKind>,
    ) -> Result<VolumeRecord, StateError> {
        let Some(moving) = &record.moving else {
            return Ok(record.clone());
        };
        let spec = VolumeSpec {
            pool: Some(moving.pool.clone()),
            kind,
            ..record.spec.clone()
        };
        let left = MoveRecord {
            pool: record.spec.pool.clone().unwrap_or_default(),
            stage: MoveStage::Leaving,
            copied_bytes: 0,
            ..moving.clone()
        };
        self.execute(
            "UPDATE volume SET spec = ?2, move = ?3 WHERE name = ?1",
            params![spec.name, encode(&spec), encode(&left)],
        )?;
        Ok(VolumeRecord {
            spec,
            moving: Some(left),
            ..record.clone()
        })
    }
}
