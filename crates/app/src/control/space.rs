//! What a pool has, and what its volumes take of it.

use schemars::JsonSchema;
use serde::Serialize;

/// The space of an open pool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SpaceView {
    /// Bytes for volumes.
    pub size: u64,
    /// Bytes that no volume has, or has written.
    pub free_bytes: u64,
    /// Bytes of these that are used.
    pub used_bytes: u64,
    /// Bytes beside these that are kept for some of its volumes.
    pub reserved_bytes: u64,
    /// Bytes of its volumes as hosts see them.
    pub logical_bytes: u64,
    /// Bytes of those used that snapshots store.
    pub snapshot_bytes: u64,
    /// Bytes that were written, before they were compressed.
    pub written_bytes: u64,
    /// Bytes that these take.
    pub stored_bytes: u64,
    /// How many times more was written; null while nothing is.
    pub compression_ratio: Option<f64>,
    pub block_size: u32,
    /// What is to be done before the pool is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_hint: Option<String>,
}

/// What the volumes of a tenant and their snapshots may take of a pool, and what they do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuotaView {
    pub pool: String,
    pub quota_bytes: u64,
    /// Bytes that they take, with their map; null while the pool is not open.
    pub used_bytes: Option<u64>,
    /// Bytes beside these that are kept for them.
    pub reserved_bytes: Option<u64>,
    /// What is to be done before writes fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_hint: Option<String>,
}
