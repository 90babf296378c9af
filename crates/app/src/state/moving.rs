//! Volumes that go from one pool to another: what has to be known of it after a crash.

use flashyard_block::pool::VolumeForm;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::control::NewForm;
use crate::spec::{CompressionName, VolumeSpec};

/// A move that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The other pool: where the copy is that is no volume; or the device that a volume was, whole,
    /// and has left.
    pub pool: String,
    /// It has left a device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// What that copy is known by there. A volume's own UUID is where the volume is.
    pub uuid: Uuid,
    /// How far it is.
    pub stage: MoveStage,
    /// How the volume is kept when it is there, if that is not as it was: then it stays in its
    /// pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<NewForm>,
    /// Bytes from the beginning that are the same on both sides, if the target has ended since in
    /// good order; otherwise the copy is compared.
    #[serde(default)]
    pub copied_bytes: u64,
}

impl MoveRecord {
    /// The device that a volume has left, which nobody else may have before it is clean.
    pub fn left_device(&self) -> Option<&str> {
        self.whole.then_some(&*self.pool)
    }

    /// How the volume is kept where it goes, if that keeps volumes in such ways.
    pub fn form_of(&self, spec: &VolumeSpec) -> VolumeForm {
        self.form.unwrap_or_default().applied_to(spec).form()
    }
}

impl NewForm {
    /// The volume as it is kept then.
    pub fn applied_to(&self, spec: &VolumeSpec) -> VolumeSpec {
        VolumeSpec {
            compression: CompressionName::normal(self.compression.or(spec.compression)),
            chunk: VolumeSpec::normal_chunk(self.chunk.or(spec.chunk)),
            ..spec.clone()
        }
    }
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
