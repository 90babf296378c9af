//! Figures as the messages of protobuf that Prometheus takes (`io.prometheus.client`), with native
//! histograms beside the few buckets that text has.
//!
//! The target counts times in four buckets for each doubling, of equal width; a native histogram
//! has 256, each as much wider than the one before. So all of a bucket goes to the native one that
//! has its geometric mean: a quantile is at most an eighth away from the times that were counted,
//! as they are kept, and the native buckets add nothing to that. What took less than the first
//! bound is in the bucket for zero, whose threshold is that bound; so counts, sums and that part
//! are exact.

use flashyard_engine::Traffic;

use super::figures::{Family, Figures, Labels, Rows, Spread};
use crate::metrics::PREFIX;
use crate::protobuf::Message;

/// Native buckets: 2 to the power of this for each doubling.
const SCHEMA: i64 = 8;

/// Fields of the messages, and values of `MetricType`.
mod of {
    pub(super) mod family {
        pub(crate) const NAME: u32 = 1;
        pub(crate) const HELP: u32 = 2;
        pub(crate) const TYPE: u32 = 3;
        pub(crate) const METRIC: u32 = 4;
    }
    pub(super) mod kind {
        pub(crate) const COUNTER: u64 = 0;
        pub(crate) const GAUGE: u64 = 1;
        pub(crate) const HISTOGRAM: u64 = 4;
    }
    pub(super) mod metric {
        pub(crate) const LABEL: u32 = 1;
        pub(crate) const GAUGE: u32 = 2;
        pub(crate) const COUNTER: u32 = 3;
        pub(crate) const HISTOGRAM: u32 = 7;
    }
    pub(super) mod label {
        pub(crate) const NAME: u32 = 1;
        pub(crate) const VALUE: u32 = 2;
    }
    pub(super) mod histogram {
        pub(crate) const COUNT: u32 = 1;
        pub(crate) const SUM: u32 = 2;
        pub(crate) const BUCKET: u32 = 3;
        pub(crate) const SCHEMA: u32 = 5;
        pub(crate) const ZERO_THRESHOLD: u32 = 6;
        pub(crate) const ZERO_COUNT: u32 = 7;
        pub(crate) const POSITIVE_SPAN: u32 = 12;
        pub(crate) const POSITIVE_DELTA: u32 = 13;
    }
    pub(super) mod bucket {
        pub(crate) const CUMULATIVE_COUNT: u32 = 1;
        pub(crate) const UPPER_BOUND: u32 = 2;
    }
    pub(super) mod span {
        pub(crate) const OFFSET: u32 = 1;
        pub(crate) const LENGTH: u32 = 2;
    }
}

/// The only field of a gauge and of a counter.
const VALUE: u32 = 1;

/// All figures, each family behind its length.
pub(super) fn encode(figures: &Figures) -> Vec<u8> {
    let mut all = Vec::new();
    for family in &figures.0 {
        write(family).delimited(&mut all);
    }
    all
}

fn write(family: &Family) -> Message {
    let (suffix, kind) = match family.rows {
        Rows::Counter(_) => ("_total", of::kind::COUNTER),
        Rows::Gauge(_) => ("", of::kind::GAUGE),
        Rows::Histogram(_) => ("_seconds", of::kind::HISTOGRAM),
    };
    let mut message = Message::default();
    let name = format!("{PREFIX}_{}{suffix}", family.name);
    message.text(of::family::NAME, &name);
    message.text(of::family::HELP, family.help);
    message.uint(of::family::TYPE, kind);
    match &family.rows {
        Rows::Counter(rows) => add(&mut message, rows, |metric, value| {
            metric.message(of::metric::COUNTER, |it| it.double(VALUE, *value as f64));
        }),
        Rows::Gauge(rows) => add(&mut message, rows, |metric, value| {
            metric.message(of::metric::GAUGE, |it| it.double(VALUE, *value));
        }),
        Rows::Histogram(rows) => add(&mut message, rows, |metric, spread| {
            metric.message(of::metric::HISTOGRAM, |it| write_histogram(it, spread));
        }),
    }
    message
}

fn add<T>(message: &mut Message, rows: &[(Labels, T)], write: impl Fn(&mut Message, &T)) {
    for (labels, value) in rows {
        message.message(of::family::METRIC, |metric| {
            for (name, value) in labels {
                metric.message(of::metric::LABEL, |label| {
                    label.text(of::label::NAME, name);
                    label.text(of::label::VALUE, value);
                });
            }
            write(metric, value);
        });
    }
}

fn write_histogram(message: &mut Message, spread: &Spread) {
    message.uint(of::histogram::COUNT, spread.count());
    message.double(of::histogram::SUM, spread.sum);
    let mut below = 0;
    for (bound, count) in &spread.buckets {
        below += count;
        message.message(of::histogram::BUCKET, |bucket| {
            bucket.uint(of::bucket::CUMULATIVE_COUNT, below);
            bucket.double(of::bucket::UPPER_BOUND, *bound);
        });
    }
    let native = Native::of(&spread.counts);
    message.sint(of::histogram::SCHEMA, SCHEMA);
    message.double(of::histogram::ZERO_THRESHOLD, native.threshold);
    message.uint(of::histogram::ZERO_COUNT, native.zero);
    for (offset, length) in native.spans() {
        message.message(of::histogram::POSITIVE_SPAN, |span| {
            span.sint(of::span::OFFSET, offset);
            span.uint(of::span::LENGTH, length);
        });
    }
    message.sints(of::histogram::POSITIVE_DELTA, native.deltas());
}

/// Counts in native buckets.
#[derive(Debug, PartialEq)]
struct Native {
    /// What took less than this, in seconds, is zero.
    threshold: f64,
    zero: u64,
    /// The numbers of buckets in which there is something, with what is in them.
    buckets: Vec<(i64, u64)>,
}

impl Native {
    fn of(counts: &[u64]) -> Self {
        let bounds: Vec<Option<u64>> = Traffic::bounds_ns().collect();
        let first = bounds.first().copied().flatten().unwrap_or(1);
        let mut buckets: Vec<(i64, u64)> = Vec::new();
        for (place, count) in counts.iter().enumerate().skip(1) {
            if *count == 0 {
                continue;
            }
            let low = bounds[place - 1].unwrap_or(first) as f64;
            let high = bounds.get(place).copied().flatten();
            let mean = high.map_or(low, |high| (low * high as f64).sqrt());
            buckets.push((number_of(mean / 1e9), *count));
        }
        Self {
            threshold: first as f64 / 1e9,
            zero: counts.first().copied().unwrap_or_default(),
            buckets,
        }
    }

    /// Buckets one after the other, each as how many are left out before it, and how many it is.
    fn spans(&self) -> Vec<(i64, u64)> {
        let mut spans: Vec<(i64, u64)> = Vec::new();
        let mut next = 0;
        for (number, _) in &self.buckets {
            match spans.last_mut() {
                Some((_, length)) if *number == next => *length += 1,
                _ => spans.push((number - next, 1)),
            }
            next = number + 1;
        }
        spans
    }

    /// What each bucket has more than the one before.
    fn deltas(&self) -> impl Iterator<Item = i64> {
        let mut before = 0;
        self.buckets.iter().map(move |(_, count)| {
            // No target lives for so many I/Os that it would wrap.
            let delta = count.cast_signed() - before;
            before = count.cast_signed();
            delta
        })
    }
}

/// The bucket of a time: number n has what is more than 2 to the power of (n - 1) over 256, and not
/// more than of n over 256.
fn number_of(seconds: f64) -> i64 {
    (seconds.log2() * 2_f64.powi(SCHEMA as i32)).ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a native bucket ends, in seconds.
    fn end_of(number: i64) -> f64 {
        2_f64.powf(number as f64 / 256.0)
    }

    #[test]
    fn each_bucket_goes_to_a_native_one_in_its_middle() {
        let bounds: Vec<Option<u64>> = Traffic::bounds_ns().collect();
        let mut before = i64::MIN;
        for place in 1..bounds.len() {
            let mut counts = vec![0; bounds.len()];
            counts[place] = 7;
            let native = Native::of(&counts);
            let [(number, 7)] = native.buckets[..] else {
                panic!("{native:?}");
            };
            assert!(number > before, "they stay in their order");
            before = number;
            let low = bounds[place - 1].expect("it is not the last") as f64 / 1e9;
            let Some(high) = bounds[place] else { continue };
            let (high, end) = (high as f64 / 1e9, end_of(number));
            // A quantile is within an eighth of whatever was counted.
            assert!(
                end / low < 1.125 && high / end_of(number - 1) < 1.125,
                "{place}"
            );
        }
    }

    #[test]
    fn all_that_was_counted_is_in_the_spans() {
        let mut counts = vec![0; 20];
        for (place, count) in [(0, 5), (1, 3), (2, 9), (19, 1)] {
            counts[place] = count;
        }
        let native = Native::of(&counts);
        assert_eq!(native.zero, 5);
        assert!((native.threshold - 5.12e-6).abs() < 1e-12);
        let (spans, deltas) = (native.spans(), native.deltas().collect::<Vec<_>>());
        assert_eq!(deltas, [3, 6, -8]);
        // As whoever reads them counts.
        let mut numbers = Vec::new();
        let mut next = 0;
        for (offset, length) in spans {
            next += offset;
            numbers.extend(next..next + length.cast_signed());
            next += length.cast_signed();
        }
        let own: Vec<i64> = native.buckets.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, own);
    }

    #[test]
    fn neighbours_are_one_span() {
        let native = Native {
            threshold: 1e-6,
            zero: 0,
            buckets: vec![(-3, 1), (-2, 1), (0, 1), (1, 4)],
        };
        assert_eq!(native.spans(), [(-3, 2), (1, 2)]);
        assert_eq!(native.deltas().collect::<Vec<_>>(), [1, 0, 0, 3]);
    }

    #[test]
    fn a_family_is_the_message_that_it_is_said_to_be() {
        let labels: Labels = vec![("op", "read".to_owned())];
        let figures = Figures(vec![Family {
            name: "io_operations",
            help: "I/O",
            rows: Rows::Counter(vec![(labels, 2)]),
        }]);
        let name = b"flashyard_io_operations_total";
        let mut expected = vec![0x0a, name.len() as u8];
        expected.extend(name);
        expected.extend(b"\x12\x03I/O\x18\x00\x22\x17");
        expected.extend(b"\x0a\x0a\x0a\x02op\x12\x04read");
        expected.extend(b"\x1a\x09\x09\x00\x00\x00\x00\x00\x00\x00\x40");
        let length = expected.len() as u8;
        assert_eq!(encode(&figures)[0], length);
        assert_eq!(encode(&figures)[1..], expected);
    }
}
