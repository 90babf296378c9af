//! Asynchronous events: what a host wants to be notified of, and what there is to notify (Base
//! Specification, Asynchronous Event Request).
//!
//! An event is reported once; the next of its kind only after the host has read the log that goes
//! with it.

use alloc::collections::{BTreeSet, VecDeque};

use flashyard_nvme::Status;
use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::feature::AsyncEventConfiguration;

use crate::pcie::InvalidDoorbell;

/// How many Asynchronous Event Requests are kept (AERL, there zero-based).
pub const REQUEST_LIMIT: usize = 8;

/// Namespaces that the changed namespace list holds.
pub const CHANGED_LIMIT: usize = 1024;

/// Kinds of events that this target has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A namespace was added, removed, resized or changed.
    NamespaceChanged,
    /// The discovery log changed.
    DiscoveryChanged,
    /// A doorbell of a queue that does not exist was written. On PCIe only, as the next.
    InvalidDoorbell,
    /// A doorbell was written with a value that its queue does not have.
    InvalidDoorbellValue,
}

impl EventKind {
    const ALL: [Self; 4] = [
        Self::NamespaceChanged,
        Self::DiscoveryChanged,
        Self::InvalidDoorbell,
        Self::InvalidDoorbellValue,
    ];

    /// Whether Asynchronous Event Configuration allows it. Errors are always reported.
    fn is_allowed(self, configuration: AsyncEventConfiguration) -> bool {
        match self {
            Self::NamespaceChanged => configuration.has(AsyncEventConfiguration::NAMESPACE),
            Self::DiscoveryChanged => configuration.has(AsyncEventConfiguration::DISCOVERY),
            Self::InvalidDoorbell | Self::InvalidDoorbellValue => true,
        }
    }

    const fn event(self) -> AsyncEvent {
        match self {
            Self::NamespaceChanged => AsyncEvent::NAMESPACE_CHANGED,
            Self::DiscoveryChanged => AsyncEvent::DISCOVERY_CHANGED,
            Self::InvalidDoorbell => AsyncEvent::INVALID_DOORBELL,
            Self::InvalidDoorbellValue => AsyncEvent::INVALID_DOORBELL_VALUE,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Reporting {
    /// Nothing has happened since the log was read.
    #[default]
    Quiet,
    /// Something has happened that the host is to be notified of.
    Pending,
    /// The host has been notified and has not read the log.
    Reported,
}

/// Requests and events of one controller.
#[derive(Clone, Debug, Default)]
pub struct Events {
    requests: VecDeque<u16>,
    configuration: AsyncEventConfiguration,
    reporting: [Reporting; EventKind::ALL.len()],
    changed: ChangedNamespaces,
}

impl Events {
    /// An Asynchronous Event Request has come: it is kept.
    ///
    /// # Errors
    /// Asynchronous Event Request Limit Exceeded.
    pub fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= REQUEST_LIMIT {
            return Err(Status::AER_LIMIT_EXCEEDED.with_dnr());
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Takes back a kept request that is to be aborted; `false` if there is none of this
    /// identifier.
    pub fn abort(&mut self, cid: u16) -> bool {
        let at = self.requests.iter().position(|kept| *kept == cid);
        at.is_some_and(|at| self.requests.remove(at).is_some())
    }

    /// Asynchronous Event Configuration.
    pub fn configuration(&self) -> AsyncEventConfiguration {
        self.configuration
    }

    /// Sets Asynchronous Event Configuration. Events that are no longer wanted are forgotten.
    pub fn configure(&mut self, configuration: AsyncEventConfiguration) {
        self.configuration = configuration;
        for kind in EventKind::ALL {
            if !kind.is_allowed(configuration) {
                self.reporting[kind as usize] = Reporting::Quiet;
            }
        }
    }

    /// A namespace has changed.
    pub fn namespace_changed(&mut self, nsid: u32) {
        self.changed.insert(nsid);
        self.raise(EventKind::NamespaceChanged);
    }

    /// The discovery log has changed, as this host sees it.
    pub fn discovery_changed(&mut self) {
        self.raise(EventKind::DiscoveryChanged);
    }

    /// A doorbell was written in vain; `kind` says why.
    pub fn invalid_doorbell(&mut self, kind: InvalidDoorbell) {
        self.raise(match kind {
            InvalidDoorbell::Queue => EventKind::InvalidDoorbell,
            InvalidDoorbell::Value => EventKind::InvalidDoorbellValue,
        });
    }

    /// The log of `kind` was read to the end of what the host asked; without Retain Asynchronous
    /// Event the next event may be reported.
    pub fn log_was_read(&mut self, kind: EventKind, retain: bool) {
        if retain {
            return;
        }
        self.reporting[kind as usize] = Reporting::Quiet;
        if kind == EventKind::NamespaceChanged {
            self.changed = ChangedNamespaces::default();
        }
    }

    /// What the changed namespace log says.
    pub fn changed(&self) -> &ChangedNamespaces {
        &self.changed
    }

    /// The next event to tell: the request to complete, and DW0 of the completion.
    pub fn poll(&mut self) -> Option<(u16, u32)> {
        let kind = EventKind::ALL
            .into_iter()
            .find(|kind| self.reporting[*kind as usize] == Reporting::Pending)?;
        let cid = self.requests.pop_front()?;
        self.reporting[kind as usize] = Reporting::Reported;
        Some((cid, kind.event().dw0()))
    }

    fn raise(&mut self, kind: EventKind) {
        let reporting = &mut self.reporting[kind as usize];
        if kind.is_allowed(self.configuration) && *reporting == Reporting::Quiet {
            *reporting = Reporting::Pending;
        }
    }
}

/// Namespaces that changed since their log was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    overflow: bool,
}

impl ChangedNamespaces {
    fn insert(&mut self, nsid: u32) {
        self.nsids.insert(nsid);
        if self.nsids.len() > CHANGED_LIMIT {
            self.overflow = true;
        }
        if self.overflow {
            self.nsids.clear();
        }
    }

    /// The identifiers, ascending; `None` if there are more than the log can hold.
    pub fn nsids(&self) -> Option<impl Iterator<Item = u32> + '_> {
        (!self.overflow).then(|| self.nsids.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn listening(mask: u32) -> Events {
        let mut events = Events::default();
        events.configure(AsyncEventConfiguration(mask));
        events
    }

    fn changed(events: &Events) -> Option<Vec<u32>> {
        events.changed().nsids().map(Iterator::collect)
    }

    #[test]
    fn an_event_is_told_once_until_its_log_is_read() {
        let mut events = listening(AsyncEventConfiguration::NAMESPACE);
        for cid in [7, 8] {
            events.request(cid).expect("room");
        }
        assert_eq!(events.poll(), None);
        events.namespace_changed(3);
        assert_eq!(events.poll(), Some((7, 0x0004_0002)));
        events.namespace_changed(4);
        assert_eq!(events.poll(), None, "reported, and the log not read");

        events.log_was_read(EventKind::NamespaceChanged, true);
        assert_eq!(changed(&events), Some(vec![3, 4]), "retained");
        events.namespace_changed(5);
        assert_eq!(events.poll(), None);

        events.log_was_read(EventKind::NamespaceChanged, false);
        assert_eq!(changed(&events), Some(vec![]));
        assert_eq!(events.poll(), None, "the log that was read had it all");
        events.namespace_changed(5);
        assert_eq!(events.poll(), Some((8, 0x0004_0002)));
    }

    #[test]
    fn kinds_do_not_hold_up_each_other() {
        let mut events =
            listening(AsyncEventConfiguration::NAMESPACE | AsyncEventConfiguration::DISCOVERY);
        events.discovery_changed();
        events.namespace_changed(1);
        assert_eq!(events.poll(), None, "no request");
        for cid in [1, 2, 3] {
            events.request(cid).expect("room");
        }
        assert_eq!(events.poll(), Some((1, 0x0004_0002)));
        assert_eq!(events.poll(), Some((2, 0x0070_f002)));
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn what_the_host_did_not_ask_for_is_not_told() {
        let mut events = listening(AsyncEventConfiguration::DISCOVERY);
        events.request(1).expect("room");
        events.namespace_changed(1);
        assert_eq!(events.poll(), None);
        assert_eq!(
            changed(&events),
            Some(vec![1]),
            "the log knows nevertheless"
        );
        events.discovery_changed();
        events.configure(AsyncEventConfiguration(0));
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn an_invalid_doorbell_is_reported_whatever_is_configured() {
        let mut events = listening(0);
        for cid in [1, 2, 3] {
            events.request(cid).expect("room");
        }
        events.invalid_doorbell(InvalidDoorbell::Value);
        events.invalid_doorbell(InvalidDoorbell::Value);
        assert_eq!(events.poll(), Some((1, 0x0001_0100)));
        assert_eq!(events.poll(), None, "once until the error log is read");
        events.invalid_doorbell(InvalidDoorbell::Queue);
        assert_eq!(events.poll(), Some((2, 0x0001_0000)));
        events.log_was_read(EventKind::InvalidDoorbellValue, false);
        events.invalid_doorbell(InvalidDoorbell::Value);
        assert_eq!(events.poll(), Some((3, 0x0001_0100)));
    }

    #[test]
    fn requests_are_bounded_and_can_be_aborted() {
        let mut events = Events::default();
        for cid in 0..REQUEST_LIMIT as u16 {
            assert_eq!(events.request(cid), Ok(()));
        }
        assert_eq!(
            events.request(99),
            Err(Status::AER_LIMIT_EXCEEDED.with_dnr())
        );
        assert!(events.abort(0));
        assert!(!events.abort(0));
        assert_eq!(events.request(99), Ok(()));
    }

    #[test]
    fn too_many_changes_are_all_namespaces() {
        let mut events = Events::default();
        for nsid in 1..=CHANGED_LIMIT as u32 {
            events.namespace_changed(nsid);
        }
        events.namespace_changed(1);
        assert_eq!(changed(&events).map(|list| list.len()), Some(CHANGED_LIMIT));
        events.namespace_changed(5000);
        assert_eq!(changed(&events), None);
        events.namespace_changed(1);
        assert_eq!(changed(&events), None, "until the log is read");
        events.log_was_read(EventKind::NamespaceChanged, false);
        assert_eq!(changed(&events), Some(vec![]));
    }
}
