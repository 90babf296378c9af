//! What requests about functions are answered with.

use schemars::JsonSchema;
use serde::Serialize;

use super::condition::{Condition, Health};
use crate::spec::{DoorbellName, SocketMode};

/// A function.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FunctionView {
    pub name: String,
    pub tenant: String,
    /// Where virtual machines find it.
    pub socket: String,
    /// Permissions of the socket.
    pub mode: SocketMode,
    /// Owner of the socket; null for who runs the target.
    pub owner: Option<String>,
    /// Group of the socket; null for that of who runs the target.
    pub group: Option<String>,
    /// How a guest without shadow doorbells rings, from the next start on.
    pub doorbells: DoorbellName,
    /// How many cores serve its I/O queues at most, from the next start on.
    pub cores: usize,
    /// Its tenant's subsystem.
    pub subnqn: Option<String>,
    /// Its tenant's volumes, which are its namespaces.
    pub volumes: Vec<String>,
    /// What it does now.
    #[serde(flatten)]
    pub guest: GuestView,
    #[serde(flatten)]
    pub health: Health,
}

/// What the guest of a function does.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GuestView {
    /// The core that offers the function; null while it is not offered.
    pub core: Option<usize>,
    /// Null while it is not offered, or its core does not answer.
    pub guest: Option<GuestState>,
    pub io_queues: Option<usize>,
    /// What guests have done since the controller was enabled; null without one.
    pub reads: Option<u64>,
    pub writes: Option<u64>,
    pub bytes_read: Option<u64>,
    pub bytes_written: Option<u64>,
    pub errors: Option<u64>,
}

/// How far a guest is with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestState {
    /// No client is connected.
    None,
    /// A virtual machine monitor is connected, and its guest does not use the controller.
    Connected,
    /// The guest uses the controller.
    Running,
    /// The controller has failed (CSTS.CFS), and waits for the guest to reset it.
    Failed,
}

/// A function at a glance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FunctionRow {
    pub function: String,
    pub tenant: String,
    #[serde(flatten)]
    pub guest: GuestView,
    pub state: Condition,
}
