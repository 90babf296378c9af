//! The `[target]` table: where the target listens, how its subsystems are called, and what its
//! controllers tell hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use flashyard_controller::ControllerLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Address, Size};
use crate::units;

/// Bytes that one command may move. Less than two pages cannot be reported to hosts, more than this
/// no buffer has.
const MAX_TRANSFER: [u64; 2] = [8 << 10, 1 << 20];
pub(super) const IO_QUEUES: [u16; 2] = [1, 1024];
pub(super) const QUEUE_DEPTH: [u16; 2] = [2, 1024];
/// More cores than any machine here has.
pub const CORES_MOST: usize = 256;
const IN_CAPSULE_MOST: u64 = 64 << 10;
/// What IOCCSZ counts in.
const IN_CAPSULE_UNIT: u64 = 16;

/// Begins the NQNs of subsystems if nobody ever said otherwise.
const NQN_PREFIX: &str = "nqn.2026-11.dev.flashyard";

/// What can be set of the target itself, and is kept in the state. What is not given is as it was,
/// or as [`TargetSettings::effective`] has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSettings {
    /// The NQN of a tenant's subsystem is `PREFIX:TENANT` unless the tenant has one of its own.
    /// Holds for tenants that are made from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nqn_prefix: Option<String>,
    /// Cores to serve from. Holds from the next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// Addresses and ports for NVMe/TCP: holds at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Vec<Address>>,
    /// Bytes that one command may move (MDTS). Holds for hosts that connect from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_transfer: Option<Size>,
    /// I/O queues of one controller. Holds for hosts that connect from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_queues: Option<u16>,
    /// Entries of an I/O queue (MQES). Holds for hosts that connect from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u16>,
    /// Bytes of data in the capsule of an I/O command (IOCCSZ). Holds for hosts that connect from
    /// then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_capsule: Option<Size>,
    /// Folder of the sockets of functions that are made from then on, which is made where it is
    /// missing; `functions` in the state directory if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_folder: Option<String>,
}

/// Why a setting cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// There has to be an address.
    NoAddress,
    /// An address is there twice.
    AddressTwice(Address),
    /// Not a power of two, or out of range.
    MaxTransfer(u64),
    /// Out of range.
    IoQueues(u16),
    /// Out of range.
    QueueDepth(u16),
    /// Not a multiple of 16, or out of range.
    InCapsule(u64),
}

impl SettingError {
    /// The key that is wrong.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::NoAddress | Self::AddressTwice(_) => "listen",
            Self::MaxTransfer(_) => "max_transfer",
            Self::IoQueues(_) => "io_queues",
            Self::QueueDepth(_) => "queue_depth",
            Self::InCapsule(_) => "in_capsule",
        }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => {
                write!(
                    f,
                    "[target] listen is empty: give at least one address, such as 127.0.0.1:4420"
                )
            }
            Self::AddressTwice(address) => {
                write!(f, "[target] listen: {address} is there twice: give it once")
            }
            Self::MaxTransfer(bytes) => write!(
                f,
                "[target] max_transfer is {}: give a power of two from {} to {}",
                units::size(*bytes),
                units::size(MAX_TRANSFER[0]),
                units::size(MAX_TRANSFER[1])
            ),
            Self::IoQueues(queues) => write!(
                f,
                "[target] io_queues = {queues} is out of range: {} to {}",
                IO_QUEUES[0], IO_QUEUES[1]
            ),
            Self::QueueDepth(depth) => write!(
                f,
                "[target] queue_depth = {depth} is out of range: {} to {}",
                QUEUE_DEPTH[0], QUEUE_DEPTH[1]
            ),
            Self::InCapsule(bytes) => write!(
                f,
                "[target] in_capsule is {}: give a multiple of {IN_CAPSULE_UNIT} bytes up to {}, or 0",
                units::size(*bytes),
                units::size(IN_CAPSULE_MOST)
            ),
        }
    }
}

impl std::error::Error for SettingError {}

impl TargetSettings {
    /// Checks each by itself.
    pub fn check(&self) -> Result<(), SettingError> {
        if let Some(addresses) = &self.listen {
            check_addresses(addresses)?;
        }
        let within = |[least, most]: [u16; 2], value: Option<u16>| {
            value.filter(|value| !(least..=most).contains(value))
        };
        if let Some(queues) = within(IO_QUEUES, self.io_queues) {
            return Err(SettingError::IoQueues(queues));
        }
        if let Some(depth) = within(QUEUE_DEPTH, self.queue_depth) {
            return Err(SettingError::QueueDepth(depth));
        }
        let [least, most] = MAX_TRANSFER;
        match (self.max_transfer, self.in_capsule) {
            (Some(Size(bytes)), _)
                if !bytes.is_power_of_two() || !(least..=most).contains(&bytes) =>
            {
                Err(SettingError::MaxTransfer(bytes))
            }
            (_, Some(Size(bytes)))
                if !bytes.is_multiple_of(IN_CAPSULE_UNIT) || bytes > IN_CAPSULE_MOST =>
            {
                Err(SettingError::InCapsule(bytes))
            }
            _ => Ok(()),
        }
    }

    /// The same with what `change` gives.
    #[must_use]
    pub fn with(&self, change: Self) -> Self {
        Self {
            nqn_prefix: change.nqn_prefix.or_else(|| self.nqn_prefix.clone()),
            cores: change.cores.or(self.cores),
            listen: change.listen.or_else(|| self.listen.clone()),
            max_transfer: change.max_transfer.or(self.max_transfer),
            io_queues: change.io_queues.or(self.io_queues),
            queue_depth: change.queue_depth.or(self.queue_depth),
            in_capsule: change.in_capsule.or(self.in_capsule),
            socket_folder: change.socket_folder.or_else(|| self.socket_folder.clone()),
        }
    }

    /// The same with what holds where nothing was ever said.
    #[must_use]
    pub fn effective(&self) -> Self {
        let limits = ControllerLimits::default();
        let default = Self {
            nqn_prefix: Some(NQN_PREFIX.to_owned()),
            cores: Some(1),
            listen: Some(vec![SocketAddr::from(([127, 0, 0, 1], 4420)).into()]),
            max_transfer: Some(Size(limits.transfer_bytes.into())),
            io_queues: Some(limits.io_queues),
            queue_depth: Some(limits.queue_depth),
            in_capsule: Some(Size(limits.in_capsule_bytes.into())),
            socket_folder: None,
        };
        default.with(self.clone())
    }

    /// What the NQNs of subsystems begin with.
    pub fn prefix(&self) -> &str {
        self.nqn_prefix.as_deref().unwrap_or(NQN_PREFIX)
    }

    /// What the engine is given; of settings that were checked.
    pub fn limits(&self) -> ControllerLimits {
        let default = ControllerLimits::default();
        let bytes = |size: Option<Size>, default| {
            size.and_then(|size| u32::try_from(size.0).ok())
                .unwrap_or(default)
        };
        ControllerLimits {
            io_queues: self.io_queues.unwrap_or(default.io_queues),
            queue_depth: self.queue_depth.unwrap_or(default.queue_depth),
            in_capsule_bytes: bytes(self.in_capsule, default.in_capsule_bytes),
            transfer_bytes: bytes(self.max_transfer, default.transfer_bytes),
        }
    }
}

fn check_addresses(addresses: &[Address]) -> Result<(), SettingError> {
    if addresses.is_empty() {
        return Err(SettingError::NoAddress);
    }
    let mut seen = BTreeSet::new();
    // Port 0 is another one each time.
    for address in addresses.iter().filter(|address| address.port() != 0) {
        if !seen.insert(address) {
            return Err(SettingError::AddressTwice(address.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_named() {
        for (line, why) in [
            ("listen = []", "listen is empty"),
            (
                "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
                "127.0.0.1:1 is there twice",
            ),
            (
                "max_transfer = \"4KiB\"",
                "a power of two from 8 KiB to 1 MiB",
            ),
            ("max_transfer = \"2MiB\"", "a power of two from"),
            ("max_transfer = 100000", "a power of two from"),
            ("io_queues = 0", "1 to 1024"),
            ("io_queues = 1025", "1 to 1024"),
            ("queue_depth = 1", "2 to 1024"),
            ("in_capsule = 100", "a multiple of 16 bytes up to 64 KiB"),
            (
                "in_capsule = \"128KiB\"",
                "a multiple of 16 bytes up to 64 KiB",
            ),
        ] {
            let settings: TargetSettings = toml::from_str(line).expect(line);
            let error = settings.check().expect_err(line).to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
        for line in [
            "",
            "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]",
            "max_transfer = \"8KiB\"\nio_queues = 1\nqueue_depth = 2\nin_capsule = 0",
        ] {
            let settings: TargetSettings = toml::from_str(line).expect(line);
            assert_eq!(settings.check(), Ok(()), "{line}");
        }
    }

    #[test]
    fn what_is_not_given_stays() {
        let present: TargetSettings =
            toml::from_str("io_queues = 4\nqueue_depth = 64").expect("good");
        let change: TargetSettings = toml::from_str("queue_depth = 32").expect("good");
        let both = present.with(change);
        assert_eq!((both.io_queues, both.queue_depth), (Some(4), Some(32)));
        assert_eq!(both.limits().queue_depth, 32);
        assert_eq!(both.limits().transfer_bytes, 1 << 20);
        assert_eq!(both.effective().in_capsule, Some(Size(8192)));
    }
}
