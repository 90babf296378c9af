//! What a pool has, and what its volumes take of it.

use serde::Serialize;

/// The space of an open pool.
#[derive(Debug, Serialize)]
pub struct SpaceView {
    /// Bytes for volumes.
    pub size: u64,
    /// Bytes that no volume has, or has written.
    pub free_bytes: u64,
    /// Bytes of these that are used.
    pub used_bytes: u64,
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
