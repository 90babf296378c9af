//! What is loaded: a target over NVMe/TCP, or an NVMe function over vfio-user. To the load both are
//! queues that take commands.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use flashyard_host::vfio::{PolledFunction, PolledOptions, PolledQueue};
use flashyard_host::{Answer, Association, CreditReport, HostError, Options, Payload, Queue};
use flashyard_nvme::identify::IdentifyNamespace;
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_time::Duration;

use super::error::PerfError;
use crate::spec::Address;

/// What an address of a function begins with.
const FUNCTION: &str = "vfio-user:";
/// Before a function is asked again that was interrupted.
const RETRY: Duration = Duration::from_ms(10);

/// What `--connect` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A target that listens for NVMe/TCP.
    Target(Address),
    /// The socket of a function.
    Function(PathBuf),
}

impl FromStr for Peer {
    type Err = <Address as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(FUNCTION) {
            Some(path) if !path.is_empty() => Ok(Self::Function(path.into())),
            _ => text.parse().map(Self::Target),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(address) => address.fmt(f),
            Self::Function(path) => write!(f, "{FUNCTION}{}", path.display()),
        }
    }
}

/// The way to it, with everything looked up.
#[derive(Clone)]
pub(super) enum Way {
    Tcp(SocketAddr, Box<Options>),
    Function(PathBuf, PolledOptions),
}

/// It is connected.
pub(super) enum Connected {
    Tcp(Association),
    Function(Box<PolledFunction>),
}

/// An I/O queue of it.
#[derive(Clone)]
pub(super) enum Lane {
    Tcp(Queue),
    Function(PolledQueue),
}

impl Way {
    pub(super) async fn connect(&self, rt: &Rt, nsid: u32) -> Result<Connected, PerfError> {
        match self {
            Self::Tcp(address, options) => {
                let connected = Association::connect(rt, *address, (**options).clone()).await;
                let connected = connected.map_err(|error| PerfError::Connect(*address, error))?;
                Ok(Connected::Tcp(connected))
            }
            Self::Function(path, options) => {
                let started = PolledFunction::start(rt, path, *options, nsid).await;
                let started = started.map_err(|error| PerfError::Function(path.clone(), error))?;
                Ok(Connected::Function(Box::new(started)))
            }
        }
    }
}

impl Connected {
    pub(super) async fn namespace(&self, nsid: u32) -> Result<IdentifyNamespace, PerfError> {
        match self {
            Self::Tcp(association) => association
                .identify_namespace(nsid)
                .await
                .map_err(|error| PerfError::Identify(nsid, error)),
            Self::Function(function) => Ok(function.namespace().clone()),
        }
    }

    /// Most bytes of a command.
    pub(super) fn max_transfer(&self) -> usize {
        match self {
            Self::Tcp(association) => association.max_transfer(),
            Self::Function(function) => function.max_transfer(),
        }
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        match self {
            Self::Tcp(association) => association.queues().into_iter().map(Lane::Tcp).collect(),
            Self::Function(function) => function.queues().into_iter().map(Lane::Function).collect(),
        }
    }

    pub(super) fn credit(&self, nsid: u32) -> Option<CreditReport> {
        match self {
            Self::Tcp(association) => association.credit(nsid),
            Self::Function(_) => None,
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Tcp(association) => association.close().await,
            Self::Function(function) => function.close().await,
        }
    }
}

impl Lane {
    pub(super) async fn command(
        &self,
        entry: SubmissionQueueEntry,
        payload: Payload,
    ) -> Result<Answer, HostError> {
        match self {
            Self::Tcp(queue) => queue.command(entry, payload).await,
            Self::Function(queue) => queue.command(entry, payload).await,
        }
    }

    /// How long to wait before a command is tried again that ended with this status, if it was only
    /// interrupted.
    pub(super) fn retry_delay(&self, status: Status) -> Option<Duration> {
        match self {
            Self::Tcp(queue) => queue.retry_delay(status),
            Self::Function(_) => status.is(Status::COMMAND_INTERRUPTED).then_some(RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_its_socket_and_all_else_is_an_address() {
        for (text, function) in [
            ("vfio-user:/run/vm1.sock", true),
            ("vfio-user:vm1.sock", true),
            ("localhost:4420", false),
        ] {
            let peer: Peer = text.parse().expect(text);
            assert_eq!(matches!(peer, Peer::Function(_)), function, "{text}");
            assert_eq!(peer.to_string(), text);
        }
        for text in ["vfio-user:", "/run/vm1.sock"] {
            text.parse::<Peer>().expect_err(text);
        }
    }
}
