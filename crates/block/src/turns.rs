//! Turns of what a device does on its own account: rebuilds, scrubs. Nobody waits for that, so it
//! goes to the switch before the device as I/O of the system, and takes turns there with the I/O of
//! tenants: in the background, or for throughput while data are at stake.
//!
//! Who takes a turn holds nothing that I/O of tenants could wait for, and asks for it first; what
//! tenants wait for is done without one. So no turn is ever behind I/O that waits for it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_runtime::sync::Notify;
use flashyard_sched::{Class, Op};

/// What the system does on its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SystemWork {
    /// Members get what they lack.
    Rebuild,
    /// Copies that a crash left different are made equal.
    Resync,
    /// Everything is read and verified.
    Scrub,
    /// A volume that moves is copied.
    Move,
}

impl SystemWork {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rebuild, Self::Resync, Self::Scrub, Self::Move];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Resync => "resync",
            Self::Scrub => "scrub",
            Self::Move => "move",
        }
    }
}

impl fmt::Display for SystemWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A part of such work, as large as the I/O of a tenant that takes as much of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is a part of.
    pub work: SystemWork,
    /// In the background, unless data are at stake.
    pub class: Class,
    /// What is done.
    pub op: Op,
    /// How much.
    pub bytes: u64,
    /// Where: parts in order follow each other.
    pub lba: u64,
}

/// Gives turns at a device.
pub trait Turns {
    /// Waits for the turn of a part. Who waits no more drops it.
    fn wait(&self, step: Step) -> Pin<Box<dyn Future<Output = Box<dyn Turn>>>>;
}

/// The turn of a part of work, until it is ended; one that is dropped counts as a failure.
pub trait Turn {
    /// The device gets it now.
    fn begin(&mut self);

    /// It has been done, well or not.
    fn end(self: Box<Self>, ok: bool);
}

/// A turn, or the freedom to go on where nobody gives turns.
#[derive(Default)]
pub(crate) struct Taken(Option<Box<dyn Turn>>);

impl Taken {
    /// The device gets it now.
    pub(crate) fn begin(&mut self) {
        if let Some(turn) = &mut self.0 {
            turn.begin();
        }
    }

    /// It has been done, well or not.
    pub(crate) fn end(self, ok: bool) {
        if let Some(turn) = self.0 {
            turn.end(ok);
        }
    }
}

/// Where a device takes turns for its work.
#[derive(Default)]
pub(crate) struct Queue {
    turns: RefCell<Option<Rc<dyn Turns>>>,
    ended: Cell<bool>,
    ends: Notify,
}

impl Queue {
    /// From now on turns are taken there.
    pub(crate) fn set(&self, turns: &Rc<dyn Turns>) {
        *self.turns.borrow_mut() = Some(turns.clone());
    }

    /// Waits for a turn; nothing if there are none any more.
    pub(crate) async fn take(&self, step: Step) -> Option<Taken> {
        let turns = self.turns.borrow().clone();
        let Some(turns) = turns else {
            return (!self.ended.get()).then(Taken::default);
        };
        let (mut turn, mut ends) = (turns.wait(step), pin!(self.ends.notified()));
        poll_fn(|context| {
            if self.ended.get() {
                return Poll::Ready(None);
            }
            let _woken_to_look = ends.as_mut().poll(context);
            turn.as_mut()
                .poll(context)
                .map(|turn| Some(Taken(Some(turn))))
        })
        .await
    }

    /// Whether nobody gets a turn any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whoever waits gets no turn, and nobody gets one later.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.ends.notify_all();
    }
}
