//! What is shown of a volume on its way to another pool.

use schemars::JsonSchema;
use serde::Serialize;

/// How far a volume is on its way to another pool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MigrationView {
    pub to: String,
    pub state: MigrationState,
    pub copied_bytes: u64,
    pub size_bytes: u64,
    /// At the rate so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<u64>,
    /// Why it waits or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a volume on its way to another pool is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// Its content is copied.
    Copying,
    /// It goes on at the next start.
    Waiting,
    /// It is there, and what is left behind is to be deleted.
    Leaving,
    /// It stays where it was.
    Failed,
}
