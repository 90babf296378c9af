//! How something is, and what is wrong with it.

use schemars::JsonSchema;
use serde::Serialize;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    Online,
    /// It cannot; its fault says why.
    Unavailable,
    /// A volume whose space is being cleaned.
    Creating,
    /// A device for partitions whose file has no space left.
    Full,
    /// A partition that takes no more writes; a pool that can only be read, and what is on it.
    ReadOnly,
    /// Online, on a device that injects faults on purpose.
    InjectsFaults,
    /// Online, with fewer copies than there are to be.
    Degraded,
}

/// How something is, and what is wrong with it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    pub state: Condition,
    /// What is wrong, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}
