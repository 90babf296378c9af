//! Figures for Prometheus. They are what `list` and `status` show, under the names that Prometheus
//! asks for: base units, counters that end in `_total`, and labels with few values.

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
use crate::control::{KindName, PromiseState, StatusView, View};
use crate::graph::NodeId;
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
    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        rows: impl Iterator<Item = (Labels, u64)>,
    ) {
        let rows = Rows::Counter(rows.collect());
        self.0.push(Family { name, help, rows });
    }

    fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        rows: impl Iterator<Item = (Labels, f64)>,
    ) {
        let rows = Rows::Gauge(rows.collect());
        self.0.push(Family { name, help, rows });
    }

    fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        rows: impl Iterator<Item = (Labels, Spread)>,
    ) {
        let rows = Rows::Histogram(rows.collect());
        self.0.push(Family { name, help, rows });
    }

    fn text(self) -> String {
        let mut registry = Registry::with_prefix("flashyard");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

/// Labels, by name and value.
fn labels<const N: usize>(all: [(&'static str, &str); N]) -> Labels {
    let owned = all
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()));
    owned.collect()
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
        self.metrics_of_times(&mut figures);
        self.metrics_of_pools(&mut figures);
        self.metrics_of_arrays(&mut figures);
        View::Metrics(figures.text())
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
                both.map(|(op, timed)| {
                    let own = [("tenant", tenant), ("device", device), ("op", op)];
                    (labels(own), spread(timed))
                })
            });
            rows.collect::<Vec<_>>().into_iter()
        };
        figures.histogram(
            "io_duration",
            "Time of I/O at its device, in this run of the target: waiting for its turn, and served",
            rows(|timed| Spread::new(timed.waited_ns + timed.served_ns, &timed.took)),
        );
        figures.histogram(
            "io_waited",
            "Of this, waiting for its turn",
            rows(|timed| Spread::new(timed.waited_ns, &timed.waited)),
        );
        figures.histogram(
            "io_served",
            "Of this, served by the device",
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
            kinds.map(|(kind, bytes)| (labels([("pool", &name), ("kind", kind)]), bytes as f64))
        });
        figures.gauge("pool_bytes", "Space of a pool, as `pool show` has it", rows);
        let volumes = self.graph.all(Kind::Volume).filter_map(|id| {
            let volume = self.graph.volume(id)?;
            let spec = &volume.record.spec;
            let place = spec.pool.as_deref().or(spec.device.as_deref())?;
            let own = labels([
                ("volume", &spec.name),
                ("tenant", &spec.tenant),
                ("place", place),
            ]);
            Some((own, spec.size?.0 as f64))
        });
        figures.gauge(
            "volume_size_bytes",
            "Size of a volume as hosts see it",
            volumes,
        );
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
                let own =
                    |kind| labels([("array", name), ("member", &member.device), ("kind", kind)]);
                errors.push((own("unreadable"), member.read_errors));
                errors.push((own("wrong"), member.wrong_reads));
                let own = labels([("array", name), ("member", &member.device)]);
                healed.push((own, member.healed));
            }
            let own = labels([("array", name)]);
            rebuilds.extend(
                array
                    .rebuild_percent
                    .map(|done| (own.clone(), done / 100.0)),
            );
            unresolved.push((own, array.unresolved as f64));
        }
        figures.counter(
            "array_member_read_errors",
            "Reads of a member of an array that failed, or gave what other members contradict",
            errors.into_iter(),
        );
        figures.counter(
            "array_member_healed",
            "Blocks of a member that were written again with what other members have",
            healed.into_iter(),
        );
        figures.gauge(
            "array_rebuild_progress_ratio",
            "What of a rebuild is done, while there is one",
            rebuilds.into_iter(),
        );
        figures.gauge(
            "array_unresolved_blocks",
            "Blocks about which copies disagree",
            unresolved.into_iter(),
        );
    }
}

fn of_target(status: &StatusView, figures: &mut Figures) {
    let one = |own: Labels, value: f64| std::iter::once((own, value));
    let target = &status.target;
    figures.gauge(
        "build_info",
        "Version of the target",
        one(labels([("version", target.version)]), 1.0),
    );
    figures.counter(
        "ran_seconds",
        "How long the target ran, in all its runs",
        std::iter::once((Vec::new(), target.ran_seconds)),
    );
    figures.counter(
        "starts",
        "Runs of the target",
        std::iter::once((Vec::new(), target.starts)),
    );
    figures.counter(
        "unsafe_shutdowns",
        "Runs that were cut off",
        std::iter::once((Vec::new(), target.ended_unsafely)),
    );
    figures.gauge(
        "objects",
        "Things that there are",
        [
            (KindName::Device, target.devices),
            (KindName::Pool, target.pools),
            (KindName::Tenant, status.tenants.len()),
            (KindName::Volume, target.volumes),
            (KindName::Function, target.functions),
        ]
        .into_iter()
        .map(|(kind, count)| (labels([("kind", kind.name())]), count as f64)),
    );
    figures.gauge(
        "connections",
        "NVMe/TCP connections of a core",
        status.cores.iter().map(|row| {
            let core = row.core.to_string();
            (labels([("core", &core)]), row.connections as f64)
        }),
    );
    figures.gauge(
        "health_problems",
        "Things that are wrong, by code; muted ones too",
        status.health.problems.iter().map(|row| {
            let muted = if row.muted_until.is_some() {
                "yes"
            } else {
                "no"
            };
            let own = [("code", &*row.code.to_string()), ("muted", muted)];
            (labels(own), row.count as f64)
        }),
    );
    figures.gauge(
        "healthy",
        "1 if nothing is wrong that is not muted, else 0",
        one(
            Vec::new(),
            f64::from(u8::from(
                status.health.health == crate::control::HealthState::Healthy,
            )),
        ),
    );
}

fn of_tenants(status: &StatusView, figures: &mut Figures) {
    let of = |name: &str, op: &'static str| labels([("tenant", name), ("op", op)]);
    let tenants = &status.tenants;
    figures.counter(
        "io_operations",
        "I/O commands of a tenant's hosts and guests",
        tenants.iter().flat_map(|row| {
            let both = [("read", row.reads), ("write", row.writes)];
            both.map(|(op, count)| (of(&row.tenant, op), count))
        }),
    );
    figures.counter(
        "io_bytes",
        "Bytes of these",
        tenants.iter().flat_map(|row| {
            let both = [("read", row.bytes_read), ("write", row.bytes_written)];
            both.map(|(op, bytes)| (of(&row.tenant, op), bytes))
        }),
    );
    figures.counter(
        "io_errors",
        "I/O commands that ended with an error",
        tenants
            .iter()
            .map(|row| (labels([("tenant", &row.tenant)]), row.errors)),
    );
    figures.gauge(
        "controllers",
        "Controllers that a tenant's hosts have, and the guests of its functions",
        tenants
            .iter()
            .map(|row| (labels([("tenant", &row.tenant)]), row.hosts as f64)),
    );
}

fn of_promises(status: &StatusView, figures: &mut Figures) {
    let own = |tenant: &str, device: &str, promise: &str| {
        labels([("tenant", tenant), ("device", device), ("promise", promise)])
    };
    figures.gauge(
        "promise_ratio",
        "What a tenant got in the last seconds over what it is promised; of a latency target the target over the latency",
        status.promises.iter().filter_map(|row| {
            let (got, promised) = (row.got? as f64, row.promised as f64);
            let ratio = match row.promise {
                "latency_target" => promised / got.max(1.0),
                _ => got / promised.max(1.0),
            };
            Some((own(&row.tenant, &row.device, row.promise), ratio))
        }),
    );
    figures.gauge(
        "promise_missed",
        "1 if a tenant asked for what it is promised and did not get it in the last seconds, else 0",
        status.promises.iter().filter_map(|row| {
            let missed = row.state? == PromiseState::Missed;
            let own = own(&row.tenant, &row.device, row.promise);
            Some((own, f64::from(u8::from(missed))))
        }),
    );
}

fn of_drives(status: &StatusView, figures: &mut Figures) {
    let drives = &status.drives;
    figures.gauge(
        "drive_write_amplification_ratio",
        "Flash that an emulated drive wrote for each byte written",
        drives.iter().map(|row| {
            let own = labels([("device", &row.device)]);
            (own, row.drive.write_amplification)
        }),
    );
    figures.gauge(
        "drive_lateness_p99_seconds",
        "How much later than due 99 of 100 completions of an emulated drive were",
        drives.iter().map(|row| {
            let own = labels([("device", &row.device)]);
            (own, row.drive.lateness_p99_us / 1e6)
        }),
    );
    figures.counter(
        "injected_faults",
        "Faults that a device injected on purpose",
        status.injected.iter().filter_map(|row| {
            let own = labels([("device", &row.device), ("fault", &row.fault)]);
            Some((own, row.injected?))
        }),
    );
}
