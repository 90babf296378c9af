//! Host-side control of I/O before it is sent: windows, credit, pacing.

use flashyard_sched::{Ask, Credit};
use flashyard_time::{Duration, Time};

/// Decides for all hosts which I/O is sent and which is held. Each worker is a host of its own,
/// named by its place in the setup.
///
/// Held I/O of a worker is asked for again, in order, after each completion of that worker; so a
/// worker that has nothing in flight has to be let go.
pub trait HostPolicy {
    /// Whether `io` may be sent now. It is then in flight until [`HostPolicy::complete`].
    fn admit(&mut self, now: Time, worker: usize, io: &Ask) -> bool;

    /// An I/O has come back after `latency`, counted from where it was sent. `credit` is what the
    /// switch said with it.
    fn complete(
        &mut self,
        now: Time,
        worker: usize,
        io: &Ask,
        latency: Duration,
        credit: Option<Credit>,
    );
}
