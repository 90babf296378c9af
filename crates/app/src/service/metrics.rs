//! Figures for Prometheus. They are what `list` and `status` show, under the names that Prometheus
//! asks for (`metrics.rs`): base units, counters that end in `_total`, and labels with few values.

use std::collections::BTreeMap;

use flashyard_engine::{Timed, Traffic};

use super::figures::{Figures, Spread};
use super::native;
use super::observed::Observed;
use super::work::Work;
use crate::control::{
    HealthState, KindName, MetricsForm, MetricsText, Page, PromiseState, StatusView, View,
};
use crate::graph::NodeId;
use crate::metrics;
use crate::state::Kind;

/// The values of labels.
fn values<const N: usize>(all: [&str; N]) -> [String; N] {
    all.map(str::to_owned)
}

impl Work<'_> {
    /// All figures.
    pub(super) fn metrics(&mut self, form: MetricsForm) -> View {
        let observed = self.ask_observed(self.graph.tenants().map(|(id, _)| id));
        let silent = self.ask_all();
        let observed: Observed = observed.answers();
        let mut figures = Figures::default();
        if let View::Status(status) = self.view_status(&silent, &observed, &Page::default()) {
            of_target(&status, &mut figures);
            of_tenants(&status, &mut figures);
            of_promises(&status, &mut figures);
            of_drives(&status, &mut figures);
        }
        self.metrics_of_targets(&mut figures);
        self.metrics_of_times(&mut figures);
        self.metrics_of_pools(&mut figures);
        self.metrics_of_arrays(&mut figures);
        View::Metrics(match form {
            MetricsForm::Text => MetricsText::Text(figures.text()),
            MetricsForm::Protobuf => MetricsText::Protobuf(native::encode(&figures)),
        })
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
        for counted in self.ask_traffic(|_| true).0 {
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
