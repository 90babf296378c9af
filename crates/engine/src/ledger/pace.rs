//! Whether a device takes much longer than it usually does for what it is asked for. Its usual
//! time for reads and writes of each size is learnt from the sampled I/Os, ten seconds at a time;
//! so is how much it usually does. A span of ten seconds is slow when I/O took a multiple of its
//! usual time at the device although no more was done than usual: more load alone makes nothing
//! slow. An I/O that never ends is in no sample, so that is reported as well.

use flashyard_sched::{Ask, Op};
use flashyard_time::{Duration, Time};

use super::account::{KINDS, kind};
use super::work::price;

/// What is judged at a time.
const SPAN: Duration = Duration::from_secs(10);
/// So many slow spans, one after the other, are a slow device.
const SPANS: u32 = 3;
/// So many spans have to be known before a time is a usual one.
const KNOWN: u32 = 3;
/// Slow is so many times what is usual,
const TIMES: f64 = 8.0;
/// and at least so much more, for each I/O.
const MORE: Duration = Duration::from_ms(1);
/// No more was done than usual: not more than so many times as much,
const LOAD: f64 = 2.0;
/// or than this part of all that is usually done, be it reads or writes.
const SLACK: f64 = 0.1;
/// What a span changes of what is usual, at least; of a slow one, lest a device that fails becomes
/// the usual thing within minutes. There it is a part of the ratio: so it takes about an hour,
/// however slow the device is.
const LEARNT: f64 = 1.0 / 8.0;
const LEARNT_SLOW: f64 = 1.0 / 360.0;

/// A device that is slower than usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slowness {
    /// Each I/O takes longer.
    Latency {
        /// What such I/O usually takes at the device, on average.
        usual: Duration,
        /// What it took in the last span.
        now: Duration,
    },
    /// There is I/O at the device, and for so long none of it has ended.
    Nothing(Duration),
}

/// The time that a device takes.
pub(super) struct Pace {
    began: Time,
    last: Time,
    span: Sums,
    usual: Usual,
    /// Slow spans one after the other, and the last of them.
    slow: u32,
    latency: (Duration, Duration),
    stuck: Stuck,
}

/// What was done in a span.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// I/Os by kind, and their nanoseconds at the device.
    ios: [u64; KINDS],
    ns: [u64; KINDS],
    /// Reads, and everything else, priced.
    work: [u64; 2],
}

/// What is usual.
#[derive(Default)]
struct Usual {
    /// Nanoseconds of an I/O by kind, and of how many spans that is known.
    ns: [f64; KINDS],
    spans: [u32; KINDS],
    work: [f64; 2],
    all_spans: u32,
}

/// Since when nothing has ended while there was something at the device.
#[derive(Default)]
struct Stuck {
    done: u64,
    since: Option<Time>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            began: Time::ZERO,
            last: Time::ZERO,
            span: Sums::default(),
            usual: Usual::default(),
            slow: 0,
            latency: (Duration::ZERO, Duration::ZERO),
            stuck: Stuck::default(),
        }
    }

    /// Counts a sampled I/O that stands for so many.
    pub(super) fn count(&mut self, io: &Ask, ended: Time, device_ns: u64, times: u64) {
        self.roll(ended);
        let kind = kind(io);
        self.span.ios[kind] += times;
        self.span.ns[kind] += device_ns * times;
        self.span.work[usize::from(io.op != Op::Read)] += price(io) * times;
        self.last = self.last.max(ended);
    }

    /// How the device is slower than usual, if it is. `done` grows with each I/O that ends, `here`
    /// is how many are at the device now.
    pub(super) fn slowness(&mut self, now: Time, done: u64, here: usize) -> Option<Slowness> {
        self.roll(now);
        let stuck = self.stuck.look(now, done, here);
        if let Some(lasting) = stuck.filter(|lasting| *lasting >= SPAN.scale(SPANS.into(), 1)) {
            return Some(Slowness::Nothing(lasting));
        }
        let is_old = now.since(self.last) > SPAN.scale(SPANS.into(), 1);
        let (usual, now) = self.latency;
        (self.slow >= SPANS && !is_old).then_some(Slowness::Latency { usual, now })
    }

    /// Judges the span that is over, and begins another one.
    fn roll(&mut self, now: Time) {
        if now.since(self.began) < SPAN {
            return;
        }
        let span = std::mem::take(&mut self.span);
        self.began = now;
        if span.ios.iter().sum::<u64>() == 0 {
            return;
        }
        let slow = self.usual.judge(&span);
        match slow {
            Some(latency) => {
                self.slow += 1;
                self.latency = latency;
            }
            None => self.slow = 0,
        }
        self.usual.learn(&span, slow.is_some());
    }
}

impl Usual {
    /// What is usual and what it was instead, for each I/O of a span that is slow.
    fn judge(&self, span: &Sums) -> Option<(Duration, Duration)> {
        let all: f64 = self.work.iter().sum();
        let is_more = |(done, usual): (&u64, &f64)| *done as f64 > usual * LOAD + all * SLACK;
        if span.work.iter().zip(&self.work).any(is_more) {
            return None;
        }
        let (mut ios, mut took, mut usual) = (0, 0, 0.0);
        for kind in (0..KINDS).filter(|kind| self.spans[*kind] >= KNOWN) {
            ios += span.ios[kind];
            took += span.ns[kind];
            usual += self.ns[kind] * span.ios[kind] as f64;
        }
        let more = took as f64 - usual;
        let is_slow =
            ios > 0 && took as f64 >= usual * TIMES && more >= MORE.as_ns() as f64 * ios as f64;
        let each = |ns: f64| Duration::from_ns((ns / ios as f64) as u64);
        is_slow.then(|| (each(usual), each(took as f64)))
    }

    fn learn(&mut self, span: &Sums, is_slow: bool) {
        let towards = |usual: f64, now: f64, spans: u32| match is_slow {
            true => usual * (now / usual).powf(LEARNT_SLOW),
            false => usual + (now - usual) * LEARNT.max(1.0 / f64::from(spans)),
        };
        for kind in (0..KINDS).filter(|kind| span.ios[*kind] > 0) {
            self.spans[kind] = self.spans[kind].saturating_add(1);
            // What takes no time at all has no ratio.
            let mean = (span.ns[kind] as f64 / span.ios[kind] as f64).max(1.0);
            let usual = self.ns[kind].max(1.0);
            self.ns[kind] = towards(usual, mean, self.spans[kind]);
        }
        if is_slow {
            return;
        }
        self.all_spans = self.all_spans.saturating_add(1);
        for (usual, done) in self.work.iter_mut().zip(span.work) {
            *usual = towards(*usual, done as f64, self.all_spans);
        }
    }
}

impl Stuck {
    /// For how long nothing has ended although something was there each time that somebody looked:
    /// what was there at the first of these times is there still.
    fn look(&mut self, now: Time, done: u64, here: usize) -> Option<Duration> {
        if here == 0 || done != self.done {
            self.done = done;
            self.since = (here > 0).then_some(now);
            return None;
        }
        Some(now.since(*self.since.get_or_insert(now)))
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId, TenantId};

    use super::*;

    /// So many spans with a hundred I/Os each, each of which took so long.
    fn spans(pace: &mut Pace, at: &mut u64, count: u64, (op, bytes, us): (Op, u64, u64), ios: u64) {
        let io = Ask {
            id: IoId(0),
            tenant: TenantId(1),
            class: Class::Throughput,
            op,
            bytes,
            lba: 0,
        };
        for _ in 0..count {
            for number in 0..100 {
                let ended = Time::from_ns(*at * SPAN.as_ns() + number * 90_000_000);
                pace.count(&io, ended, us * 1000, ios / 100);
            }
            *at += 1;
        }
    }

    fn is_slow(pace: &mut Pace, at: u64) -> bool {
        let now = Time::from_ns(at * SPAN.as_ns());
        pace.slowness(now, at, 0).is_some()
    }

    const READ: (Op, u64, u64) = (Op::Read, 4096, 100);
    const SLOW: (Op, u64, u64) = (Op::Read, 4096, 5_000);

    #[test]
    fn the_same_load_at_many_times_its_time_is_slow_and_more_load_is_not() {
        for (load, expected) in [(1_000, true), (2_000, true), (3_000, false)] {
            let (mut pace, mut at) = (Pace::new(), 1);
            spans(&mut pace, &mut at, 6, READ, 1_000);
            assert!(!is_slow(&mut pace, at));
            spans(&mut pace, &mut at, 2, SLOW, load);
            assert!(!is_slow(&mut pace, at), "not for long enough");
            spans(&mut pace, &mut at, 1, SLOW, load);
            assert_eq!(is_slow(&mut pace, at), expected, "{load}");
        }
    }

    #[test]
    fn writes_that_were_not_there_before_excuse_slow_reads() {
        let (mut pace, mut at) = (Pace::new(), 1);
        spans(&mut pace, &mut at, 6, READ, 1_000);
        for _ in 0..4 {
            let mut same = at;
            spans(&mut pace, &mut same, 1, (Op::Write, 128 << 10, 9_000), 100);
            spans(&mut pace, &mut at, 1, SLOW, 1_000);
        }
        assert!(!is_slow(&mut pace, at));
    }

    #[test]
    fn what_nobody_knows_the_usual_time_of_is_not_slow_and_little_is_not_either() {
        let (mut pace, mut at) = (Pace::new(), 1);
        spans(&mut pace, &mut at, 6, SLOW, 1_000);
        assert!(!is_slow(&mut pace, at));
        let (mut pace, mut at) = (Pace::new(), 1);
        spans(&mut pace, &mut at, 6, (Op::Read, 4096, 10), 1_000);
        spans(&mut pace, &mut at, 6, (Op::Read, 4096, 900), 1_000);
        assert!(!is_slow(&mut pace, at), "less than a millisecond more");
    }

    #[test]
    fn a_device_that_stays_slow_is_reported_for_half_an_hour_and_then_that_is_usual() {
        for times in [50, 5_000] {
            let slow = (READ.0, READ.1, READ.2 * times);
            let (mut pace, mut at) = (Pace::new(), 1);
            spans(&mut pace, &mut at, 6, READ, 1_000);
            spans(&mut pace, &mut at, 180, slow, 1_000);
            assert!(is_slow(&mut pace, at), "{times}");
            spans(&mut pace, &mut at, 720, slow, 1_000);
            assert!(!is_slow(&mut pace, at), "{times}");
        }
    }

    #[test]
    fn an_idle_device_is_not_slow_any_more() {
        let (mut pace, mut at) = (Pace::new(), 1);
        spans(&mut pace, &mut at, 6, READ, 1_000);
        spans(&mut pace, &mut at, 3, SLOW, 1_000);
        assert!(is_slow(&mut pace, at));
        assert!(!is_slow(&mut pace, at + 4));
    }
}
