//! Volumes that go from one pool to another: what has to be known of it after a crash.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

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
