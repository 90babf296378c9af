//! What is known of a tenant: how long its I/O takes, the least that it takes, and what made it
//! slower.

use std::array;

use flashyard_sched::{Ask, Op, TenantId};
use flashyard_time::{Duration, Histogram, Time};

use super::causes::{Cause, Causes};
use super::recent::{Recent, RecentIo};
use super::stamps::{Spans, Stages};
use super::work::{Done, History};

/// What is reported covers the last one to two of these.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Bytes up to which an I/O is of each size kind but the last.
const SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
pub(super) const KINDS: usize = 2 * (SIZES.len() + 1);

/// Where the latency of a tenant came from recently. Sums are nanoseconds.
#[derive(Clone, Debug)]
pub struct Why {
    /// Whose.
    pub tenant: TenantId,
    /// I/Os that ended.
    pub ios: u64,
    /// Nanoseconds from the first byte of its command to the last of its answer, of each.
    pub latency: Histogram,
    /// The same, stage by stage, of all.
    pub stages: Stages,
    /// What exceeded the least that it takes, of all, by cause; the largest first.
    pub causes: Vec<(Cause, u64)>,
}

pub(super) struct Account {
    tenant: TenantId,
    history: History,
    receive: [Least; KINDS],
    device: [Least; KINDS],
    send: [Least; KINDS],
    windows: [Books; 2],
    recent_io: Box<RecentIo>,
    since: Time,
}

/// The least of two windows.
#[derive(Clone, Copy)]
struct Least {
    now: u64,
    before: u64,
}

struct Books {
    latency: Histogram,
    stages: Stages,
    causes: Causes,
}

/// A fraction.
#[derive(Clone, Copy)]
pub(super) struct Part {
    is: u64,
    of: u64,
}

impl Account {
    pub(super) fn new(tenant: TenantId, now: Time) -> Self {
        Self {
            tenant,
            history: History::default(),
            receive: [Least::NONE; KINDS],
            device: [Least::NONE; KINDS],
            send: [Least::NONE; KINDS],
            windows: array::from_fn(|_| Books::new()),
            recent_io: RecentIo::new(),
            since: now,
        }
    }

    /// Whose it is.
    pub(super) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Whether nothing is left to report.
    pub(super) fn is_empty(&self, now: Time) -> bool {
        now.since(self.since) >= WINDOW.scale(2, 1)
    }

    /// Books an I/O that stands for so many; gives what of each stage is more than the least of
    /// recently. Nothing needs to wait for a turn, or to be taken in.
    pub(super) fn record(
        &mut self,
        io: &Ask,
        spans: &Spans,
        stages: &Stages,
        times: u64,
    ) -> Stages {
        self.recent_io.record(io, spans, stages, times);
        let books = &mut self.windows[0];
        books.stages.add(stages, times);
        books.latency.record_n(stages.all(), times);
        let kind = kind(io);
        Stages {
            receive: self.receive[kind].excess(stages.receive),
            device: self.device[kind].excess(stages.device),
            send: self.send[kind].excess(stages.send),
            ..*stages
        }
    }

    #[inline]
    pub(super) fn charge(&mut self, cause: Cause, ns: u64) {
        // Most of what is looked at waited for nothing.
        if ns == 0 {
            return;
        }
        self.windows[0].causes.charge(cause, ns);
        self.recent_io.charge(cause, ns);
    }

    /// The part of the tenant's own work that goes on beside any one of its I/Os. Who has one I/O
    /// in flight at a time is never in its own way: by Little's law the mean number in flight is
    /// the sum of their times over the time.
    pub(super) fn beside_itself(&self, now: Time) -> Part {
        let stages = &self.windows[0].stages;
        let in_flight = stages.turn + stages.device;
        let passed = now.since(self.since).as_ns();
        Part {
            of: in_flight.max(1),
            is: in_flight.saturating_sub(passed),
        }
    }

    /// Notes that it was `done` at the end of every bin before `to` of which nothing is known yet.
    pub(super) fn fill(&mut self, to: u64, done: Done) {
        self.history.fill(to, done);
    }

    /// What the device did for the tenant between two instants, if it is `done` now.
    pub(super) fn within(&self, span: (Time, Time), done: Done) -> Done {
        self.history.within(span, done)
    }

    /// Begins a new window when it is time.
    pub(super) fn roll(&mut self, now: Time) {
        if now.since(self.since) < WINDOW {
            return;
        }
        if self.is_empty(now) {
            self.windows[0].clear();
        }
        self.windows.swap(0, 1);
        self.windows[0].clear();
        let leasts = [&mut self.receive, &mut self.device, &mut self.send];
        leasts.into_iter().flatten().for_each(Least::roll);
        self.since = now;
    }

    /// What it got in the last seconds, if it got anything.
    pub(super) fn recent(&self, now: Time) -> Option<Recent> {
        self.recent_io.tell(self.tenant, now)
    }

    /// All that is known.
    pub(super) fn why(&self) -> Why {
        let [recent, older] = &self.windows;
        let mut latency = recent.latency.clone();
        latency.merge(&older.latency);
        let mut stages = recent.stages;
        stages.add(&older.stages, 1);
        let mut causes = recent.causes.clone();
        causes.add(&older.causes);
        Why {
            tenant: self.tenant,
            ios: latency.count(),
            latency,
            stages,
            causes: causes.by_size(),
        }
    }
}

impl Part {
    pub(super) fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.is) / u128::from(self.of)) as u64
    }
}

impl Least {
    const NONE: Self = Self {
        now: u64::MAX,
        before: u64::MAX,
    };

    /// Heeds `ns`, and gives what of it is more than the least.
    fn excess(&mut self, ns: u64) -> u64 {
        self.now = self.now.min(ns);
        ns - self.now.min(self.before)
    }

    fn roll(&mut self) {
        self.before = self.now;
        self.now = u64::MAX;
    }
}

impl Books {
    fn new() -> Self {
        Self {
            latency: Histogram::new(),
            stages: Stages::default(),
            causes: Causes::default(),
        }
    }

    fn clear(&mut self) {
        self.latency.clear();
        self.causes.clear();
        self.stages = Stages::default();
    }
}

/// What kind of I/O it is: what takes alike.
pub(super) fn kind(io: &Ask) -> usize {
    let size = SIZES.iter().filter(|most| io.bytes > **most).count();
    2 * size + usize::from(io.op != Op::Read)
}
