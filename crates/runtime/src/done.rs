//! That something was done with a descriptor of a simulated machine of this thread: whoever waits
//! for one tries again.

use std::rc::Rc;

use crate::sync::Notify;

thread_local! {
    static DONE: Rc<Notify> = Rc::default();
}

/// Something was done with a descriptor that may belong to a simulated machine.
pub(crate) fn something_done() {
    // The thread may be ending, and no core waits then.
    let _ = DONE.try_with(|done| done.notify_all());
}

/// Waits until then.
pub(crate) async fn until_something_done() {
    DONE.with(Rc::clone).notified().await;
}
