//! What a tenant got in the last seconds, and for how much of them it had something to be done:
//! what promises are held against. Made of the sampled I/Os, each of which stands for those since
//! the last one, so that it costs nothing on the path of the others.

use std::array;

use flashyard_sched::{Ask, Class, Op, TenantId};
use flashyard_time::{Duration, Time};

use super::causes::{Cause, Causes};
use super::stamps::{Spans, Stages};

/// What is reported covers the last four to five of these.
const BUCKET: Duration = Duration::from_secs(1);
const BUCKETS: usize = 5;
/// Latencies are counted by eighths of a doubling, from one microsecond to a minute.
const EIGHTHS: usize = 8 * 26;

/// What a tenant got from a device in the last seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Whose.
    pub tenant: TenantId,
    /// How long these seconds were: five at most, less if its first I/O came later.
    pub span: Duration,
    /// For how long it had an I/O waiting for its turn, or at the device.
    pub busy: Duration,
    /// Its reads.
    pub reads: Moved,
    /// Its writes, and everything else.
    pub writes: Moved,
    /// What 99 of 100 of its latency-sensitive I/Os stayed under, from the first byte of the
    /// command to the last of the answer, to 10 %; nothing if it had none.
    pub p99: Option<Duration>,
    /// What exceeded the least that its I/O takes, in nanoseconds of all, by cause; the largest
    /// first.
    pub causes: Vec<(Cause, u64)>,
    /// I/Os that wait for their turn now.
    pub queued: usize,
}

/// I/O of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// I/Os that ended.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long they waited for a turn and were at the device, in nanoseconds of all.
    pub ns: u64,
}

/// The last seconds of a tenant.
pub(super) struct RecentIo {
    buckets: [Bucket; BUCKETS],
    /// The bucket of the I/O that was recorded last.
    last: usize,
    last_ended: Time,
}

struct Bucket {
    /// Its second, counted from the origin of time.
    number: u64,
    first: Time,
    busy: u64,
    reads: Moved,
    writes: Moved,
    latency: [u32; EIGHTHS],
    causes: Causes,
}

impl RecentIo {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            buckets: array::from_fn(|_| Bucket::new(0, Time::ZERO)),
            last: 0,
            last_ended: Time::ZERO,
        })
    }

    /// Books an I/O that stands for so many, which ended after the last one. Between the two its
    /// tenant had something to be done for as long as all of them took.
    pub(super) fn record(&mut self, io: &Ask, spans: &Spans, stages: &Stages, times: u64) {
        let number = number_of(spans.ended);
        self.last = number as usize % BUCKETS;
        let bucket = &mut self.buckets[self.last];
        if bucket.number < number || bucket.is_empty() {
            *bucket = Bucket::new(number, spans.arrived);
        }
        let passed = spans.ended.since(self.last_ended).as_ns();
        let took = spans.ended.since(spans.arrived).as_ns();
        bucket.busy += passed.min(took.saturating_mul(times));
        self.last_ended = self.last_ended.max(spans.ended);
        let moved = match io.op {
            Op::Read => &mut bucket.reads,
            _ => &mut bucket.writes,
        };
        moved.ios += times;
        moved.bytes += io.bytes * times;
        moved.ns += (stages.turn + stages.device) * times;
        if io.class == Class::Latency {
            bucket.latency[eighth_of(stages.all())] += times as u32;
        }
    }

    /// Charges what the last recorded I/O waited for.
    pub(super) fn charge(&mut self, cause: Cause, ns: u64) {
        self.buckets[self.last].causes.charge(cause, ns);
    }

    /// All of the last seconds, if there was anything.
    pub(super) fn tell(&self, tenant: TenantId, now: Time) -> Option<Recent> {
        let oldest = (number_of(now) + 1).saturating_sub(BUCKETS as u64);
        let within = |bucket: &&Bucket| bucket.number >= oldest && !bucket.is_empty();
        let buckets = || self.buckets.iter().filter(within);
        let first = buckets().map(|bucket| bucket.first).min()?;
        let began = first.max(Time::from_ns(oldest * BUCKET.as_ns()));
        let mut all = Bucket::new(0, first);
        buckets().for_each(|bucket| all.add(bucket));
        let span = now.since(began);
        Some(Recent {
            tenant,
            span,
            busy: Duration::from_ns(all.busy).min(span),
            reads: all.reads,
            writes: all.writes,
            p99: all.p99(),
            causes: all.causes.by_size(),
            queued: 0,
        })
    }
}

impl Recent {
    /// Whether nothing has ended.
    pub fn is_nothing(&self) -> bool {
        self.reads.ios + self.writes.ios == 0
    }

    /// A tenant that got nothing.
    pub(crate) fn nothing(tenant: TenantId) -> Self {
        Self {
            tenant,
            span: Duration::ZERO,
            busy: Duration::ZERO,
            reads: Moved::default(),
            writes: Moved::default(),
            p99: None,
            causes: Vec::new(),
            queued: 0,
        }
    }
}

impl Moved {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ios: self.ios + other.ios,
            bytes: self.bytes + other.bytes,
            ns: self.ns + other.ns,
        }
    }
}

impl Bucket {
    fn new(number: u64, first: Time) -> Self {
        Self {
            number,
            first,
            busy: 0,
            reads: Moved::default(),
            writes: Moved::default(),
            latency: [0; EIGHTHS],
            causes: Causes::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.reads.ios + self.writes.ios == 0
    }

    fn add(&mut self, more: &Self) {
        self.busy += more.busy;
        self.reads = self.reads.and(more.reads);
        self.writes = self.writes.and(more.writes);
        for (count, more) in self.latency.iter_mut().zip(&more.latency) {
            *count += more;
        }
        self.causes.add(&more.causes);
    }

    /// The end of the eighth in which the last hundredth begins.
    fn p99(&self) -> Option<Duration> {
        let count: u64 = self.latency.iter().map(|count| u64::from(*count)).sum();
        let mut left = (count * 99).div_ceil(100);
        let eighth = self.latency.iter().position(|count| {
            left = left.saturating_sub(u64::from(*count));
            left == 0
        });
        eighth
            .filter(|_| count > 0)
            .map(|eighth| Duration::from_ns(end_of(eighth)))
    }
}

fn number_of(now: Time) -> u64 {
    now.as_ns() / BUCKET.as_ns()
}

/// The eighth of a doubling that a latency is in.
fn eighth_of(ns: u64) -> usize {
    let units = (ns >> 7).max(8);
    let doubling = units.ilog2() - 3;
    let place = doubling as usize * 8 + (units >> doubling) as usize - 8;
    place.min(EIGHTHS - 1)
}

/// Where an eighth ends.
fn end_of(eighth: usize) -> u64 {
    ((9 + eighth as u64 % 8) << (eighth / 8)) << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A latency is at most an eighth of a doubling below what is reported of it.
    #[test]
    fn eighths_are_where_they_should_be() {
        for ns in (1_100..60_000_000_u64).step_by(997) {
            let end = end_of(eighth_of(ns));
            assert!(ns < end && end <= ns + ns / 8 + 128, "{ns} {end}");
        }
        assert!(eighth_of(u64::MAX) < EIGHTHS && eighth_of(0) == 0);
    }
}
