//! Memory that others change without waking the core: it is looked at in every turn, and a core
//! that is about to sleep arranges to be woken up first. A look that finds something counts as
//! something from outside, so the budget for polling decides how long the core looks in vain.

use std::rc::{Rc, Weak};

use flashyard_time::Time;

use crate::Rt;
use crate::executor::Core;

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
    core: Weak<Core>,
    watched: Rc<dyn Watched>,
}

impl Rt {
    /// Looks at `watched` in every turn from now on.
    pub fn watch(&self, watched: Rc<dyn Watched>) -> Watch {
        self.core.with_watched(|all| all.push(watched.clone()));
        Watch {
            core: Rc::downgrade(&self.core),
            watched,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.with_watched(|all| all.retain(|other| !Rc::ptr_eq(other, &self.watched)));
        }
    }
}
