//! What hosts did or failed to do that cost them a connection, for whoever runs the target: the
//! last few of them.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use flashyard_nvme::Nqn;
use flashyard_nvme::tcp::Violation;
use flashyard_time::Time;

/// How many are kept: hosts can make as many as they like.
const KEPT: usize = 64;

/// A connection or an association that the target has ended because of its host. Shown as one line.
#[derive(Clone, Debug)]
pub struct HostEvent {
    /// Counts from 1, without gaps: tells what is new, and how many have been missed.
    pub number: u64,
    /// When, by the clock of the runtime.
    pub at: Time,
    /// The peer's end of the connection.
    pub peer: SocketAddr,
    /// The association it belonged to, or that it asked for; `None` before Connect.
    pub controller: Option<HostEventController>,
    /// What happened.
    pub kind: HostEventKind,
}

/// The association that an event is about.
#[derive(Clone, Debug)]
pub struct HostEventController {
    /// Controller identifier; `None` when Connect was refused.
    pub cntlid: Option<u16>,
    /// Name of the tenant; `None` for discovery.
    pub tenant: Option<String>,
    /// Name of the host.
    pub hostnqn: Nqn,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// Nothing was heard of the host for its Keep Alive Timeout: its association was ended.
    KeepAliveExpired,
    /// The host is not among those that may connect to this tenant. It is answered that there is no
    /// such subsystem.
    NotAllowed,
    /// The host broke the rules of NVMe/TCP: the connection was ended, the association too if it
    /// was its Admin queue.
    Violation(Violation),
}

impl fmt::Display for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.controller {
            Some(controller) => {
                let tenant = controller.tenant.as_deref().unwrap_or("discovery");
                let (hostnqn, cntlid) = (controller.hostnqn, controller.cntlid);
                write!(f, "host {hostnqn} of {tenant} (")?;
                if let Some(cntlid) = cntlid {
                    write!(f, "controller {cntlid}, ")?;
                }
                write!(f, "{}): ", self.peer)?;
            }
            None => write!(f, "{}: ", self.peer)?,
        }
        match self.kind {
            HostEventKind::KeepAliveExpired => f.write_str("the keep-alive timer expired"),
            HostEventKind::NotAllowed => {
                f.write_str("refused, for it is not among the hosts that may connect to the tenant")
            }
            HostEventKind::Violation(violation) => write!(f, "{violation}"),
        }
    }
}

/// The last events of a target.
#[derive(Default)]
pub(crate) struct HostEvents {
    kept: VecDeque<HostEvent>,
    count: u64,
}

impl HostEvents {
    /// Takes one in and numbers it; the oldest may have to go for it.
    pub(crate) fn add(&mut self, event: HostEvent) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.count += 1;
        let number = self.count;
        self.kept.push_back(HostEvent { number, ..event });
    }

    /// The last ones, oldest first.
    pub(crate) fn recent(&self) -> Vec<HostEvent> {
        self.kept.iter().cloned().collect()
    }
}
