//! Events of a controller: the loop of Asynchronous Event Requests, and the reading of the logs
//! that belong to the events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::aer::AsyncEvent;
use flashyard_runtime::sync::Notify;

use crate::admin;
use crate::association::Inner;
use crate::queue::HostError;

/// Events that were not taken; beyond that the oldest are forgotten, and [`Event::Missed`] says so.
const KEPT: usize = 64;

/// An event that the controller reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These namespaces came, went or changed; look at them again. Empty: too many to list, look at
    /// all.
    NamespacesChanged(Vec<u32>),
    /// The discovery log changed.
    DiscoveryChanged,
    /// Any other event.
    Other(AsyncEvent),
    /// Events came faster than they were taken: look at everything again.
    Missed,
}

/// Events between the loop and the tasks that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: RefCell<VecDeque<Event>>,
    arrived: Notify,
    missed: Cell<bool>,
}

impl Events {
    pub(crate) async fn next(&self, inner: &Inner) -> Result<Event, HostError> {
        loop {
            if self.missed.replace(false) {
                return Ok(Event::Missed);
            }
            if let Some(event) = self.queue.borrow_mut().pop_front() {
                return Ok(event);
            }
            if let Some(error) = inner.failure.get() {
                return Err(error);
            }
            self.arrived.notified().await;
        }
    }

    fn push(&self, event: Event) {
        let mut queue = self.queue.borrow_mut();
        if queue.back() == Some(&event) {
            return;
        }
        if queue.len() == KEPT {
            queue.pop_front();
            self.missed.set(true);
        }
        queue.push_back(event);
        self.arrived.notify_one();
    }

    /// Wakes waiting tasks: there will be no more events.
    pub(crate) fn end(&self) {
        self.arrived.notify_all();
    }
}

/// Keeps one Asynchronous Event Request with the controller. Ends when it is refused or the
/// association ends.
pub(crate) async fn listen(inner: Rc<Inner>) {
    let queue = Rc::clone(&inner.admin.shared);
    while let Ok(answer) = queue
        .patient_command(SubmissionQueueEntry::async_event_request())
        .await
    {
        let event = AsyncEvent::from_dw0(answer.value as u32);
        // The log is read even if no task wants it: only then will the controller report again.
        let event = match event {
            AsyncEvent::NAMESPACE_CHANGED => match admin::changed_namespaces(&inner.admin).await {
                Ok(namespaces) => Event::NamespacesChanged(namespaces),
                Err(_) => Event::NamespacesChanged(Vec::new()),
            },
            AsyncEvent::DISCOVERY_CHANGED => Event::DiscoveryChanged,
            other => {
                let _ = admin::acknowledge(&inner.admin, other).await;
                Event::Other(other)
            }
        };
        inner.events.push(event);
    }
}
