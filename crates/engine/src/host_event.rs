//! What hosts did, for whoever runs the target: the last few events that cost one a connection, and
//! these and all that come and go for whoever wants to be told at once.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use flashyard_nvme::Nqn;
use flashyard_nvme::tcp::Violation;
use flashyard_time::Time;

/// How many are kept: hosts can make as many as they like.
const KEPT: usize = 64;

/// Hears of each event when it happens, on the core where it does, while the target is locked: it
/// takes the event in and returns.
pub type Follower = Box<dyn Fn(&HostEvent) + Send + Sync>;

/// A host that has come or gone, or a connection or an association that the target has ended
/// because of its host. Shown as one line.
#[derive(Clone, Debug)]
pub struct HostEvent {
    /// Of those that are kept: counts from 1, without gaps, and tells what is new, and how many
    /// have been missed. 0 of others.
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
    /// It has a controller now.
    Connected,
    /// Its controller has gone. It had said so before, or its connection just ended.
    Ended {
        /// It had said so.
        with_notice: bool,
    },
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
            HostEventKind::Connected => f.write_str("connected"),
            HostEventKind::Ended { with_notice: true } => f.write_str("left"),
            HostEventKind::Ended { with_notice: false } => {
                f.write_str("gone without a word, or its connection was lost")
            }
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
    follower: Option<Follower>,
}

impl HostEvents {
    /// Takes one in and numbers it; the oldest may have to go for it.
    pub(crate) fn add(&mut self, event: HostEvent) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.count += 1;
        let number = self.count;
        let event = HostEvent { number, ..event };
        self.tell(&event);
        self.kept.push_back(event);
    }

    /// From now on this one is told.
    pub(crate) fn follow(&mut self, follower: Follower) {
        self.follower = Some(follower);
    }

    /// Tells of one that is not kept here.
    pub(crate) fn tell(&self, event: &HostEvent) {
        if let Some(follower) = &self.follower {
            follower(event);
        }
    }

    /// The last ones, oldest first.
    pub(crate) fn recent(&self) -> Vec<HostEvent> {
        self.kept.iter().cloned().collect()
    }
}
