//! Figures for Prometheus. They are what `list` and `status` show, under the names that Prometheus
//! asks for (`metrics.rs`): base units, counters that end in `_total`, and labels with few values.

use std::collections::BTreeMap;
use std::fmt;

use flashyard_engine::{Timed, Traffic};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::observed::Observed;
use super::work::Work;
use crate::control::{HealthState, KindName, PromiseState, StatusView, View};
use crate::graph::NodeId;
use crate::metrics::{self, Counter, Gauge, Metric, Times};
use crate::state::Kind;

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// One name with all its rows.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    Counter(Vec<(Labels, u64)>),
    Gauge(Vec<(Labels, f64)>),
    /// Of times.
    Histogram(Vec<(Labels, Spread)>),
}

/// How times are spread: their sum in seconds, and how many there are in each bucket.
#[derive(Debug)]
struct Spread {
    sum: f64,
    buckets: Vec<(f64, u64)>,
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
    fn new(sum_ns: u64, counts: &[u64]) -> Self {
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
        }
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// All figures at one moment.
#[derive(Debug)]
struct Figures(Vec<Family>);

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
    fn counter<const N: usize>(
        &mut self,
        of: &Metric<Counter, N>,
        rows: impl Iterator<Item = ([String; N], u64)>,
    ) {
        let rows = Rows::Counter(labelled(of.labels, rows));
        self.add(of.name, of.help, rows);
    }

    fn gauge<const N: usize>(
        &mut self,
        of: &Metric<Gauge, N>,
        rows: impl Iterator<Item = ([String; N], f64)>,
    ) {
        let rows = Rows::Gauge(labelled(of.labels, rows));
        self.add(of.name, of.help, rows);
    }

    fn histogram<const N: usize>(
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

    fn text(self) -> String {
        let mut registry = Registry::with_prefix(metrics::PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

/// The values of labels.
fn values<const N: usize>(all: [&str; N]) -> [String; N] {
    all.map(str::to_owned)
}

/// Rows with the names of their labels.
fn labelled<const N: usize, T>(
    names: [&'static str; N],
    rows: impl Iterator<Item = ([String; N], T)>,
) -> Vec<(Labels, T)> {
    rows.map(|(values, value)| (names.into_iter().zip(values).collect(), value))
        .collect()
}

impl Work<'_> {
    /// All figures, as text.
    pub(super) fn metrics(&mut self) -> View {
        let observed = self.ask_observed(self.graph.tenants().map(|(id, _)| id));
        let silent = self.ask_all();
        let observed: Observed = observed.answers();
        let mut figures = Figures(Vec::new());
        if let View::Status(status) = self.view_status(&silent, &observed) {
            of_target(&status, &mut figures);
            of_tenants(&status, &mut figures);
            of_promises(&status, &mut figures);
            of_drives(&status, &mut figures);
        }
        self.metrics_of_targets(&mut figures);
        self.metrics_of_times(&mut figures);
        self.metrics_of_pools(&mut figures);
        self.metrics_of_arrays(&mut figures);
        View::Metrics(figures.text())
    }

    /// What latencies are to be, of tenants that have a target.
    fn metrics_of_targets(&self, figures: &mut Figures) {
        let rows = self.graph.tenants().filter_map(|(_, record)| {
            let target = record.spec.latency_target?;
            let seconds = target.0.as_us() as f64 / 1e6;
            Some((values([&record.spec.name]), seconds))
        });
        figures.gauge(&metrics::LATENCY_TARGET, rows);
    }

    /// How long I/O takes, of each tenant at each device: of volumes there may be too many.
    fn metrics_of_times(&self, figures: &mut Figures) {
        let mut all: BTreeMap<(NodeId, NodeId), Traffic> = BTreeMap::new();
        for counted in self.ask_traffic().0 {
            *all.entry((counted.tenant, counted.device)).or_default() += &counted.traffic;
        }
        let rows = |spread: fn(&Timed) -> Spread| {
            let rows = all.iter().flat_map(move |((tenant, device), traffic)| {
                let (tenant, device) = (self.graph.name(*tenant), self.graph.name(*device));
                let both = [("read", &traffic.reads), ("write", &traffic.writes)];
                both.map(|(op, timed)| (values([tenant, device, op]), spread(timed)))
            });
            rows.collect::<Vec<_>>().into_iter()
        };
        figures.histogram(
            &metrics::IO_DURATION,
            rows(|timed| Spread::new(timed.waited_ns + timed.served_ns, &timed.took)),
        );
        figures.histogram(
            &metrics::IO_WAITED,
            rows(|timed| Spread::new(timed.waited_ns, &timed.waited)),
        );
        figures.histogram(
            &metrics::IO_SERVED,
            rows(|timed| Spread::new(timed.served_ns, &timed.served)),
        );
    }

    fn metrics_of_pools(&self, figures: &mut Figures) {
        let pools = self.graph.all(Kind::Pool).filter_map(|id| {
            let record = self.graph.pool(id)?;
            match self.view_pool(id, record) {
                View::Pool(view) => Some((view.name, view.space?)),
                _ => None,
            }
        });
        let rows = pools.flat_map(|(name, space)| {
            let kinds = [
                ("size", space.size),
                ("used", space.used_bytes),
                ("free", space.free_bytes),
                ("logical", space.logical_bytes),
                ("snapshot", space.snapshot_bytes),
                ("written", space.written_bytes),
                ("stored", space.stored_bytes),
            ];
            kinds.map(|(kind, bytes)| (values([&name, kind]), bytes as f64))
        });
        figures.gauge(&metrics::POOL_BYTES, rows);
        let volumes = self.graph.all(Kind::Volume).filter_map(|id| {
            let volume = self.graph.volume(id)?;
            let spec = &volume.record.spec;
            let place = spec.pool.as_deref().or(spec.device.as_deref())?;
            let own = values([&spec.name, &spec.tenant, place]);
            Some((own, spec.size?.0 as f64))
        });
        figures.gauge(&metrics::VOLUME_SIZE, volumes);
    }

    fn metrics_of_arrays(&self, figures: &mut Figures) {
        let (mut errors, mut healed) = (Vec::new(), Vec::new());
        let mut rebuilds = Vec::new();
        let mut unresolved = Vec::new();
        for id in self.graph.all(Kind::Device) {
            let Some(array) = self.view_array(id) else {
                continue;
            };
            let name = self.graph.name(id);
            for member in &array.members {
                let own = |kind| values([name, &member.device, kind]);
                errors.push((own("unreadable"), member.read_errors));
                errors.push((own("wrong"), member.wrong_reads));
                let own = values([name, &member.device]);
                healed.push((own, member.healed));
            }
            let own = values([name]);
            rebuilds.extend(
                array
                    .rebuild_percent
                    .map(|done| (own.clone(), done / 100.0)),
            );
            unresolved.push((own, array.unresolved as f64));
        }
        figures.counter(&metrics::MEMBER_READ_ERRORS, errors.into_iter());
        figures.counter(&metrics::MEMBER_HEALED, healed.into_iter());
        figures.gauge(&metrics::REBUILD_PROGRESS, rebuilds.into_iter());
        figures.gauge(&metrics::UNRESOLVED_BLOCKS, unresolved.into_iter());
    }
}

fn of_target(status: &StatusView, figures: &mut Figures) {
    let target = &status.target;
    figures.gauge(
        &metrics::BUILD_INFO,
        std::iter::once((values([target.version]), 1.0)),
    );
    figures.counter(&metrics::RAN, std::iter::once(([], target.ran_seconds)));
    figures.counter(&metrics::STARTS, std::iter::once(([], target.starts)));
    figures.counter(
        &metrics::UNSAFE_SHUTDOWNS,
        std::iter::once(([], target.ended_unsafely)),
    );
    figures.gauge(
        &metrics::OBJECTS,
        [
            (KindName::Device, target.devices),
            (KindName::Pool, target.pools),
            (KindName::Tenant, status.tenants.len()),
            (KindName::Volume, target.volumes),
            (KindName::Function, target.functions),
        ]
        .into_iter()
        .map(|(kind, count)| (values([kind.name()]), count as f64)),
    );
    figures.gauge(
        &metrics::CONNECTIONS,
        status.cores.iter().map(|row| {
            let core = row.core.to_string();
            (values([&core]), row.connections as f64)
        }),
    );
    figures.gauge(
        &metrics::HEALTH_PROBLEMS,
        status.health.problems.iter().map(|row| {
            let muted = if row.muted_until.is_some() {
                "yes"
            } else {
                "no"
            };
            (values([&row.code.to_string(), muted]), row.count as f64)
        }),
    );
    let healthy = status.health.health == HealthState::Healthy;
    figures.gauge(
        &metrics::HEALTHY,
        std::iter::once(([], f64::from(u8::from(healthy)))),
    );
}

fn of_tenants(status: &StatusView, figures: &mut Figures) {
    let of = |name: &str, op: &'static str| values([name, op]);
    let tenants = &status.tenants;
    figures.counter(
        &metrics::IO_OPERATIONS,
        tenants.iter().flat_map(|row| {
            let both = [("read", row.reads), ("write", row.writes)];
            both.map(|(op, count)| (of(&row.tenant, op), count))
        }),
    );
    figures.counter(
        &metrics::IO_BYTES,
        tenants.iter().flat_map(|row| {
            let both = [("read", row.bytes_read), ("write", row.bytes_written)];
            both.map(|(op, bytes)| (of(&row.tenant, op), bytes))
        }),
    );
    figures.counter(
        &metrics::IO_ERRORS,
        tenants
            .iter()
            .map(|row| (values([&row.tenant]), row.errors)),
    );
    figures.gauge(
        &metrics::CONTROLLERS,
        tenants
            .iter()
            .map(|row| (values([&row.tenant]), row.hosts as f64)),
    );
}

fn of_promises(status: &StatusView, figures: &mut Figures) {
    let own = |tenant: &str, device: &str, promise: &str| values([tenant, device, promise]);
    figures.gauge(
        &metrics::PROMISE_RATIO,
        status.promises.iter().filter_map(|row| {
            let (got, promised) = (row.got? as f64, row.promised as f64);
            let ratio = match &*row.promise {
                "latency_target" => promised / got.max(1.0),
                _ => got / promised.max(1.0),
            };
            Some((own(&row.tenant, &row.device, &row.promise), ratio))
        }),
    );
    figures.gauge(
        &metrics::PROMISE_MISSED,
        status.promises.iter().filter_map(|row| {
            let missed = row.state? == PromiseState::Missed;
            let own = own(&row.tenant, &row.device, &row.promise);
            Some((own, f64::from(u8::from(missed))))
        }),
    );
}

fn of_drives(status: &StatusView, figures: &mut Figures) {
    let drives = &status.drives;
    figures.gauge(
        &metrics::DRIVE_WRITE_AMPLIFICATION,
        drives.iter().map(|row| {
            let own = values([&row.device]);
            (own, row.drive.write_amplification)
        }),
    );
    figures.gauge(
        &metrics::DRIVE_LATENESS,
        drives.iter().map(|row| {
            let own = values([&row.device]);
            (own, row.drive.lateness_p99_us / 1e6)
        }),
    );
    figures.counter(
        &metrics::INJECTED_FAULTS,
        status.injected.iter().filter_map(|row| {
            let own = values([&row.device, &row.fault]);
            Some((own, row.injected?))
        }),
    );
}
