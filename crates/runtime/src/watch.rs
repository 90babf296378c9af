//! Memory that others change without waking the core: it is looked at in every turn, and a core
//! that is about to sleep arranges to be woken up first. A look that finds something counts as
//! something from outside, so the budget for polling decides how long the core looks in vain.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_time::Time;

/// Memory that a core looks at, on the real machine: simulated cores have none to share.
pub trait Watched {
    /// Looks, and wakes the tasks that care; whether there was something.
    fn look(&self) -> bool;

    /// The core is about to sleep. From now on whoever changes the memory has to wake it up, by
    /// something that it waits for in any case; then looks once more. Gives until when the core may
    /// sleep: not beyond `now` if there is something already.
    fn rest(&self, now: Time) -> Time;
}

/// Has memory looked at until it is dropped.
#[must_use = "dropped, it ends"]
pub struct Watch {
    all: Rc<Watches>,
    watched: Rc<dyn Watched>,
}

/// All that a core looks at. Nothing is borrowed while it does.
#[derive(Default)]
pub(crate) struct Watches(RefCell<Vec<Rc<dyn Watched>>>);

impl Watches {
    pub(crate) fn add(self: &Rc<Self>, watched: Rc<dyn Watched>) -> Watch {
        self.0.borrow_mut().push(watched.clone());
        Watch {
            all: self.clone(),
            watched,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Looks at all; whether anything was found.
    pub(crate) fn look(&self) -> bool {
        let mut found = false;
        for place in 0.. {
            let watched = self.0.borrow().get(place).cloned();
            let Some(watched) = watched else { break };
            found |= watched.look();
        }
        found
    }

    /// Until when the core may sleep.
    pub(crate) fn rest(&self, now: Time) -> Time {
        let mut until = Time::MAX;
        for place in 0.. {
            let watched = self.0.borrow().get(place).cloned();
            let Some(watched) = watched else { break };
            until = until.min(watched.rest(now));
        }
        until
    }

    /// Looks at nothing any more.
    pub(crate) fn clear(&self) {
        let all = self.0.take();
        drop(all);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        all.retain(|other| !Rc::ptr_eq(other, &self.watched));
    }
}
