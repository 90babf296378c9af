//! Measurements of a worker: latencies, rates and, where asked for, their course over time.

mod fairness;
mod stats;

use flashyard_sched::Op;
use flashyard_time::{Duration, Histogram, Time};

pub use fairness::{f_util, jain};
pub use stats::Estimate;

/// One I/O that came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Time,
    pub(crate) op: Op,
    pub(crate) bytes: u64,
    /// From its issue to its answer.
    pub(crate) total: Duration,
    /// From where its host sent it to its answer.
    pub(crate) flight: Duration,
    /// From its arrival at the switch to its dispatch.
    pub(crate) held: Duration,
    /// From its dispatch by the switch to the drive's completion.
    pub(crate) device: Duration,
}

/// What a worker got within a span. I/O counts where its answer falls into the span.
#[derive(Clone, Debug)]
pub struct Tally {
    /// What it read.
    pub reads: Side,
    /// What it wrote; flushes and the like are counted here without bytes.
    pub writes: Side,
    /// I/Os of an open loop that came while too many were in flight.
    pub lost: u64,
    /// Parts of the span, in order; none when they were not asked for.
    pub windows: Vec<Window>,
    from: Time,
    span: Duration,
    window: Duration,
}

/// Reads or writes.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// From issue to answer, in nanoseconds.
    pub total: Histogram,
    /// Of that, from where the host sent it: less than the total where hosts hold I/O back.
    pub flight: Histogram,
    /// Of that, what the drive took.
    pub device: Histogram,
    /// The longest that a switch held one, also one that it held when the run ended.
    pub longest_hold: Duration,
    /// Bytes.
    pub bytes: u64,
}

/// What was done in a part of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// I/Os of any kind.
    pub ios: u64,
    /// Their latencies in sum, in nanoseconds, from issue to answer.
    pub total_ns: u64,
}

impl Tally {
    /// Nothing yet, from `from` on, in parts of `window` if that is not zero.
    pub(crate) fn new(from: Time, span: Duration, window: Duration) -> Self {
        let parts = span.as_ns().checked_div(window.as_ns()).unwrap_or(0);
        Self {
            reads: Side::default(),
            writes: Side::default(),
            lost: 0,
            windows: vec![Window::default(); parts as usize],
            from,
            span,
            window,
        }
    }

    /// Counts an I/O if it came back after the beginning of the span.
    pub(crate) fn record(&mut self, sample: &Sample) {
        if sample.at <= self.from {
            return;
        }
        let (side, moved) = match sample.op {
            Op::Read => (&mut self.reads, sample.bytes),
            Op::Write | Op::CompareAndWrite => (&mut self.writes, sample.bytes),
            Op::Flush | Op::WriteZeroes | Op::Deallocate => (&mut self.writes, 0),
        };
        side.total.record(sample.total.as_ns());
        side.flight.record(sample.flight.as_ns());
        side.device.record(sample.device.as_ns());
        side.bytes += moved;
        side.longest_hold = side.longest_hold.max(sample.held);
        // The last instant belongs to the last part.
        let place = (sample.at.since(self.from).as_ns() - 1).checked_div(self.window.as_ns());
        if let Some(window) = place.and_then(|place| self.windows.get_mut(place as usize)) {
            match sample.op {
                Op::Read => window.read_bytes += moved,
                _ => window.written_bytes += moved,
            }
            window.ios += 1;
            window.total_ns += sample.total.as_ns();
        }
    }

    /// A switch held an I/O for so long.
    pub(crate) fn held(&mut self, op: Op, held: Duration) {
        let side = match op {
            Op::Read => &mut self.reads,
            _ => &mut self.writes,
        };
        side.longest_hold = side.longest_hold.max(held);
    }

    /// Counts an I/O that could not be issued.
    pub(crate) fn lost(&mut self, at: Time) {
        self.lost += u64::from(at > self.from);
    }

    /// The span that was measured.
    pub fn span(&self) -> Duration {
        self.span
    }

    /// I/Os per second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.reads.total.count() + self.writes.total.count())
    }

    /// Reads per second.
    pub fn read_iops(&self) -> f64 {
        self.per_second(self.reads.total.count())
    }

    /// Writes per second.
    pub fn write_iops(&self) -> f64 {
        self.per_second(self.writes.total.count())
    }

    /// Bytes per second, both ways.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.reads.bytes + self.writes.bytes)
    }

    /// Latencies of reads and writes together.
    pub fn total(&self) -> Histogram {
        let mut both = self.reads.total.clone();
        both.merge(&self.writes.total);
        both
    }

    /// Latencies of reads and writes together, from where their host sent them.
    pub fn flight(&self) -> Histogram {
        let mut both = self.reads.flight.clone();
        both.merge(&self.writes.flight);
        both
    }

    /// Reads and writes apart; windows and what was lost are in neither.
    pub fn sides(&self) -> (Self, Self) {
        let empty = Self::new(self.from, self.span, Duration::ZERO);
        let reads = Self {
            reads: self.reads.clone(),
            ..empty.clone()
        };
        (
            reads,
            Self {
                writes: self.writes.clone(),
                ..empty
            },
        )
    }

    /// Adds what another worker got in the same span.
    ///
    /// # Panics
    /// When the spans or their parts differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(
            (self.from, self.span, self.window),
            (other.from, other.span, other.window)
        );
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.lost += other.lost;
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.read_bytes += theirs.read_bytes;
            mine.written_bytes += theirs.written_bytes;
            mine.ios += theirs.ios;
            mine.total_ns += theirs.total_ns;
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.span == Duration::ZERO {
            return 0.0;
        }
        count as f64 / self.span.as_secs_f64()
    }
}

impl Side {
    fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        self.flight.merge(&other.flight);
        self.device.merge(&other.device);
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.bytes += other.bytes;
    }
}

/// A percentile of a histogram of nanoseconds, in microseconds; nothing when nothing was counted.
pub fn percentile_us(histogram: &Histogram, parts_per_million: u32) -> Option<f64> {
    (histogram.count() > 0).then(|| histogram.percentile(parts_per_million) as f64 / 1e3)
}

/// The mean of a histogram of nanoseconds, in microseconds; nothing when nothing was counted.
pub fn mean_us(histogram: &Histogram) -> Option<f64> {
    let count = histogram.count();
    (count > 0).then(|| histogram.sum() as f64 / count as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_us: u64, op: Op) -> Sample {
        Sample {
            at: Time::ZERO + Duration::from_us(at_us),
            op,
            bytes: 4096,
            total: Duration::from_us(10),
            flight: Duration::from_us(9),
            held: Duration::from_us(1),
            device: Duration::from_us(8),
        }
    }

    #[test]
    fn only_the_span_counts_and_every_instant_of_it_once() {
        let from = Time::ZERO + Duration::from_us(100);
        let mut tally = Tally::new(from, Duration::from_us(200), Duration::from_us(100));
        for at in [50, 100, 101, 200, 201, 300] {
            tally.record(&sample(at, Op::Read));
        }
        tally.record(&sample(150, Op::Flush));
        assert_eq!(tally.reads.total.count(), 4);
        assert_eq!(
            tally
                .windows
                .iter()
                .map(|window| window.ios)
                .collect::<Vec<_>>(),
            [3, 2]
        );
        assert_eq!((tally.writes.total.count(), tally.writes.bytes), (1, 0));
        assert!((tally.read_iops() - 20_000.0).abs() < 1e-6);
        assert!((tally.bytes_per_second() - 81.92e6).abs() < 1.0);
        assert_eq!(mean_us(&tally.reads.device), Some(8.0));
        assert_eq!(percentile_us(&Histogram::new(), 500_000), None);
    }

    #[test]
    fn tallies_add_up() {
        let mut both = Tally::new(Time::ZERO, Duration::from_us(100), Duration::from_us(50));
        let mut other = both.clone();
        both.record(&sample(10, Op::Write));
        other.held(Op::Write, Duration::from_us(5));
        other.record(&sample(20, Op::Read));
        other.lost(Time::from_ns(1));
        both.merge(&other);
        assert_eq!((both.lost, both.windows[0].ios), (1, 2));
        assert_eq!(both.total().count(), 2);
        assert_eq!(both.writes.longest_hold, Duration::from_us(5));
        assert_eq!(both.reads.longest_hold, Duration::from_us(1));
    }
}
