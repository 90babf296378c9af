//! The interface of a scheduler: what it is given, and what it decides.

use flashyard_time::{Duration, Time};

use crate::{Cost, Share};

/// The tenant that an I/O is done for. Number 0 is the system itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// The class of an I/O: for latency, for throughput, or in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Latency-sensitive.
    Latency,
    /// Throughput-critical.
    #[default]
    Throughput,
    /// Only when no other class wants the device.
    Background,
}

/// Names an I/O between its arrival and its completion or cancellation; free to be used again
/// afterwards. Ids are small numbers given out densely (indices of the switch's table), so a policy
/// may keep a table over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u32);

impl IoId {
    /// Of an I/O that has not come to a switch.
    pub const NONE: Self = Self(u32::MAX);
}

/// What is done to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read (and the reading half of a compare).
    Read,
    /// Write.
    Write,
    /// Flush: no bytes.
    Flush,
    /// Write zeroes: `bytes` is the length of the range, nothing is transferred.
    WriteZeroes,
    /// Deallocate: as write zeroes.
    Deallocate,
    /// Compare and write as one: a read and a write of `bytes` each.
    CompareAndWrite,
}

/// What an I/O asks of a scheduler, before there is a buffer: all that the scheduler knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its name, which the switch gives it.
    pub id: IoId,
    /// The tenant that is charged.
    pub tenant: TenantId,
    /// How it is to be treated.
    pub class: Class,
    /// What is done.
    pub op: Op,
    /// Length of the range in bytes.
    pub bytes: u64,
    /// First block of the range: distinguishes sequential from random access. 0 for a flush.
    pub lba: u64,
}

/// What the switch is to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Submit this I/O to the device, then ask again.
    Dispatch(IoId),
    /// Dispatch nothing before this time, unless there is an event first. Ask again then.
    WaitUntil(Time),
    /// Dispatch nothing before an arrival, a completion or a cancellation.
    WaitForEvent,
}

/// How a dispatched I/O ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time between dispatch and completion: what the device took.
    pub latency: Duration,
    /// Whether it succeeded. The latency of a failure says little about the device's load.
    pub ok: bool,
}

/// What a tenant may have outstanding from now on, to be reported to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Number of commands.
    pub ios: u32,
    /// Sum of their bytes.
    pub bytes: u64,
}

/// A figure of a policy's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge {
    /// What it is, as `snake_case` with its unit at the end, such as `read_window_bytes`.
    pub name: &'static str,
    /// Whose it is; `None` if it is the device's.
    pub tenant: Option<TenantId>,
    /// How much.
    pub value: f64,
}

/// Decides which queued I/O the device sees next.
///
/// Each I/O is announced once by [`Policy::arrive`] or [`Policy::arrive_again`] (or goes at once by
/// [`Policy::pass`]), then named once by [`Next::Dispatch`] and ended once by [`Policy::complete`];
/// or it is ended by [`Policy::cancel`] while queued. After every arrival, completion and
/// cancellation, and at the time of a [`Next::WaitUntil`], the switch calls [`Policy::next`] until
/// it no longer says `Dispatch`. Time never runs backwards between calls. A policy that breaks this
/// contract loses I/O; a switch that breaks it is a bug that policies may assert against.
pub trait Policy {
    /// Queues an I/O.
    fn arrive(&mut self, now: Time, io: Ask);

    /// Queues an I/O that was dispatched once and ended without having been done, because its host
    /// kept it waiting: it was charged for that dispatch and must not be charged again. A policy
    /// that does not override this charges twice.
    fn arrive_again(&mut self, now: Time, io: Ask) {
        self.arrive(now, io);
    }

    /// The short way when the device is not busy: takes `io` as arrived and dispatched, if nothing
    /// is queued and it may go now; otherwise changes nothing and says `false`, and the switch lets
    /// it arrive.
    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        let _ = (now, io);
        false
    }

    /// What to do now.
    fn next(&mut self, now: Time) -> Next;

    /// Just before a dispatched I/O is said to be complete: what devices have moved for it, and for
    /// what its tenant has caused since this was told last. Only devices that do more than they are
    /// asked tell it. A policy that does not override this charges by what is asked only.
    fn settle(&mut self, now: Time, io: &Ask, cost: Cost) {
        let _ = (now, io, cost);
    }

    /// A dispatched I/O has ended, with success or an error.
    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome);

    /// Forgets a queued I/O: abort, disconnect, reset. What is dispatched already cannot be
    /// cancelled.
    fn cancel(&mut self, now: Time, id: IoId);

    /// Sets the share of `tenant`. Tenants without a share have the default. I/O that is queued or
    /// dispatched stays as it is.
    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        let _ = (now, tenant, share);
    }

    /// Removes the share of `tenant`, which has gone. I/Os of it may still be queued or dispatched,
    /// and end as all do.
    fn forget(&mut self, now: Time, tenant: TenantId) {
        let _ = (now, tenant);
    }

    /// Reports each figure of its present state, for monitoring.
    fn watch(&self, now: Time, tell: &mut dyn FnMut(Gauge)) {
        let _ = (now, tell);
    }

    /// What `tenant` may have outstanding; `None` when this policy does not say.
    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        let _ = tenant;
        None
    }
}
