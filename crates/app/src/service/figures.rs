//! Figures as they are given to Prometheus, before they are text or protobuf.

use std::fmt;

use flashyard_engine::Traffic;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::{self, Counter, Gauge, Metric, Times};

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One name with all its rows.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) rows: Rows,
}

#[derive(Debug)]
pub(super) enum Rows {
    Counter(Vec<(Labels, u64)>),
    Gauge(Vec<(Labels, f64)>),
    /// Of times.
    Histogram(Vec<(Labels, Spread)>),
}

/// How times are spread: their sum in seconds, and how many there are in each bucket.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) sum: f64,
    /// The few that text has.
    pub(super) buckets: Vec<(f64, u64)>,
    /// Those that are counted, by [`Traffic::bounds_ns`].
    pub(super) counts: Vec<u64>,
}

/// Of the doublings that are counted, the bounds of those that are shown: 20 us to 1.3 s. Few, for
/// each is a row of each tenant, device, direction and stage.
const SHOWN_NS: [u64; 12] = [
    5 << 12,
    5 << 13,
    5 << 14,
    5 << 15,
    5 << 16,
    5 << 17,
    5 << 18,
    5 << 19,
    5 << 20,
    5 << 22,
    5 << 25,
    5 << 28,
];

impl Spread {
    pub(super) fn new(sum_ns: u64, counts: &[u64]) -> Self {
        let mut buckets: Vec<(f64, u64)> = SHOWN_NS
            .iter()
            .map(|bound| (*bound as f64 / 1e9, 0))
            .chain([(f64::INFINITY, 0)])
            .collect();
        for (bound, count) in Traffic::bounds_ns().zip(counts) {
            let shown = SHOWN_NS
                .iter()
                .position(|shown| bound.is_some_and(|bound| bound <= *shown));
            buckets[shown.unwrap_or(SHOWN_NS.len())].1 += count;
        }
        Self {
            sum: sum_ns as f64 / 1e9,
            buckets,
            counts: counts.to_vec(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// All figures at one moment.
#[derive(Debug, Default)]
pub(super) struct Figures(pub(super) Vec<Family>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.rows {
                Rows::Counter(_) => MetricType::Counter,
                Rows::Gauge(_) => MetricType::Gauge,
                Rows::Histogram(_) => MetricType::Histogram,
            };
            let unit = matches!(family.rows, Rows::Histogram(_)).then_some(&Unit::Seconds);
            let mut rows = encoder.encode_descriptor(family.name, family.help, unit, kind)?;
            match &family.rows {
                Rows::Counter(all) => {
                    for (labels, value) in all {
                        ConstCounter::new(*value).encode(rows.encode_family(labels)?)?;
                    }
                }
                Rows::Gauge(all) => {
                    for (labels, value) in all {
                        ConstGauge::new(*value).encode(rows.encode_family(labels)?)?;
                    }
                }
                Rows::Histogram(all) => {
                    for (labels, spread) in all {
                        let (count, buckets) = (spread.count(), &spread.buckets);
                        rows.encode_family(labels)?
                            .encode_histogram::<NoLabelSet>(spread.sum, count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Figures {
    pub(super) fn counter<const N: usize>(
        &mut self,
        of: &Metric<Counter, N>,
        rows: impl Iterator<Item = ([String; N], u64)>,
    ) {
        let rows = Rows::Counter(labelled(of.labels, rows));
        self.add(of.name, of.help, rows);
    }

    pub(super) fn gauge<const N: usize>(
        &mut self,
        of: &Metric<Gauge, N>,
        rows: impl Iterator<Item = ([String; N], f64)>,
    ) {
        let rows = Rows::Gauge(labelled(of.labels, rows));
        self.add(of.name, of.help, rows);
    }

    pub(super) fn histogram<const N: usize>(
        &mut self,
        of: &Metric<Times, N>,
        rows: impl Iterator<Item = ([String; N], Spread)>,
    ) {
        let rows = Rows::Histogram(labelled(of.labels, rows));
        self.add(of.name, of.help, rows);
    }

    fn add(&mut self, name: &'static str, help: &'static str, rows: Rows) {
        self.0.push(Family { name, help, rows });
    }

    /// As OpenMetrics text.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::with_prefix(metrics::PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

/// Rows with the names of their labels.
fn labelled<const N: usize, T>(
    names: [&'static str; N],
    rows: impl Iterator<Item = ([String; N], T)>,
) -> Vec<(Labels, T)> {
    rows.map(|(values, value)| (names.into_iter().zip(values).collect(), value))
        .collect()
}
