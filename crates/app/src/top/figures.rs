//! What is to be shown of two looks at a target: an item of figures for each row. Pure.

use std::collections::BTreeMap;

use super::blame;
use crate::control::{
    ActivityView, ConnectionActivity, PromiseState, PromiseView, TenantActivity, TenantOnDevice,
    TrafficView,
};
use crate::iostat::{By, Direction, Figures, Interval, Part};
use crate::units;

/// What a target said at one moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) traffic: TrafficView,
    pub(super) activity: ActivityView,
}

/// A look and the one before it, if there was one in the same run of the target.
#[derive(Clone, Copy)]
pub(super) struct Looks<'a> {
    before: Option<&'a Look>,
    now: &'a Look,
}

/// What came to something in an interval, reads and writes together where they are not named.
#[derive(Clone, Debug, Default)]
pub(super) struct Io {
    pub(super) in_flight: usize,
    pub(super) iops: f64,
    pub(super) read_iops: f64,
    pub(super) write_iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    /// For their turn.
    pub(super) waited_mean_us: Option<f64>,
    pub(super) waited_p99_us: Option<f64>,
}

/// A tenant, or what of it is on a device.
#[derive(Debug)]
pub(super) struct OfTenant {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) weight: u32,
    pub(super) promise: Option<PromiseState>,
    /// What it got of the promise that is kept worst.
    pub(super) promised: Option<String>,
    pub(super) queued: usize,
    pub(super) busy_part: f64,
    pub(super) io: Io,
    pub(super) excess_us: Option<f64>,
    pub(super) blame: Option<String>,
    pub(super) errors: u64,
}

#[derive(Debug)]
pub(super) struct OfVolume {
    pub(super) name: String,
    pub(super) tenant: String,
    pub(super) device: String,
    pub(super) io: Io,
    /// Of its tenant on its device.
    pub(super) blame: Option<String>,
}

#[derive(Debug)]
pub(super) struct OfDevice {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) core: Option<usize>,
    pub(super) tenants: usize,
    pub(super) queued: usize,
    pub(super) io: Io,
    pub(super) blame: Option<String>,
}

#[derive(Debug)]
pub(super) struct OfCore {
    pub(super) core: usize,
    pub(super) answers: bool,
    pub(super) processor_part: Option<f64>,
    pub(super) connections: usize,
    /// Whose home it is, and that tenants have volumes on.
    pub(super) devices: usize,
    pub(super) io: Io,
}

#[derive(Debug)]
pub(super) struct OfConnection {
    pub(super) controller: u16,
    pub(super) tenant: Option<String>,
    pub(super) host: String,
    pub(super) peer: String,
    pub(super) io_queues: usize,
    pub(super) cores: String,
    pub(super) read_iops: f64,
    pub(super) write_iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) errors: u64,
}

impl<'a> Looks<'a> {
    pub(super) fn new(before: Option<&'a Look>, now: &'a Look) -> Self {
        let of_this_run = |before: &&Look| before.activity.starts == now.activity.starts;
        Self {
            before: before.filter(of_this_run),
            now,
        }
    }

    /// Whether figures are since the target started.
    pub(super) fn since_start(self) -> bool {
        self.before.is_none()
    }

    /// How long the interval was, by the clock of the target.
    pub(super) fn seconds(self) -> f64 {
        let from = self.before.map_or(0.0, |it| it.activity.run_seconds);
        (self.now.activity.run_seconds - from).max(1e-3)
    }

    pub(super) fn tenants(self) -> Vec<OfTenant> {
        let io = self.io(By::Tenant);
        let all = self.now.activity.tenants.iter();
        all.map(|tenant| of_tenant(tenant, io.get(&tenant.tenant).cloned().unwrap_or_default()))
            .collect()
    }

    pub(super) fn volumes(self) -> Vec<OfVolume> {
        let io = self.io(By::Volume);
        let all = self.now.traffic.volumes.iter();
        all.filter_map(|row| {
            let name = row.volume.clone()?;
            let on_device = self.on_device(&row.tenant, &row.device);
            Some(OfVolume {
                io: io.get(&name).cloned().unwrap_or_default(),
                name,
                tenant: row.tenant.clone(),
                device: row.device.clone(),
                blame: blame::of_tenant(on_device),
            })
        })
        .collect()
    }

    pub(super) fn devices(self) -> Vec<OfDevice> {
        let io = self.io(By::Device);
        let all = self.now.activity.devices.iter();
        all.map(|device| {
            let name = &device.device;
            let tenants = self.now.activity.tenants.iter();
            let here = tenants.filter_map(|tenant| {
                let on_it = tenant.devices.iter().find(|it| it.device == *name)?;
                Some((&*tenant.tenant, on_it))
            });
            let here: Vec<(&str, &TenantOnDevice)> = here.collect();
            OfDevice {
                name: name.clone(),
                policy: device.policy.name().to_owned(),
                core: device.core,
                tenants: device.tenants,
                queued: here.iter().map(|(_, it)| it.queued).sum(),
                io: io.get(name).cloned().unwrap_or_default(),
                blame: blame::of_device(here),
            }
        })
        .collect()
    }

    pub(super) fn cores(self) -> Vec<OfCore> {
        let activity = &self.now.activity;
        let interval = self.interval(By::Device);
        let homes = activity.devices.iter();
        let homes: BTreeMap<&str, usize> = homes
            .filter_map(|it| Some((&*it.device, it.core?)))
            .collect();
        let all = activity.cores.iter();
        all.map(|core| {
            let own = |name: &str| homes.get(name) == Some(&core.core);
            let here = interval.rows.iter().filter(|row| own(&row.name));
            OfCore {
                core: core.core,
                answers: !activity.silent_cores.contains(&core.core),
                processor_part: self.processor_part(core.core),
                connections: core.connections,
                devices: homes.values().filter(|it| **it == core.core).count(),
                io: Io::of(here, &interval),
            }
        })
        .collect()
    }

    pub(super) fn connections(self) -> Vec<OfConnection> {
        let before = self
            .before
            .map_or(&[][..], |before| &before.activity.connections);
        // The number of a controller is used again.
        let known = before.iter().map(|it| ((it.controller, &*it.hostnqn), it));
        let known: BTreeMap<(u16, &str), &ConnectionActivity> = known.collect();
        let all = self.now.activity.connections.iter();
        all.map(|it| {
            let was = known.get(&(it.controller, &*it.hostnqn)).copied();
            of_connection(it, was, self.seconds())
        })
        .collect()
    }

    /// What of its time a core's thread had a processor.
    fn processor_part(self, core: usize) -> Option<f64> {
        let taken = |look: &Look| {
            let mut cores = look.activity.cores.iter();
            cores.find(|it| it.core == core)?.processor_seconds
        };
        let before = self.before.map_or(Some(0.0), taken)?;
        Some(((taken(self.now)? - before) / self.seconds()).clamp(0.0, 1.0))
    }

    fn on_device(self, tenant: &str, device: &str) -> Option<&'a TenantOnDevice> {
        let tenants = &self.now.activity.tenants;
        // They are in the order of names.
        let at = tenants.binary_search_by(|it| it.tenant.as_str().cmp(tenant));
        let tenant = tenants.get(at.ok()?)?;
        tenant.devices.iter().find(|it| it.device == device)
    }

    fn interval(self, by: By) -> Interval {
        Interval::between(self.before.map(|it| &it.traffic), &self.now.traffic, by)
    }

    fn io(self, by: By) -> BTreeMap<String, Io> {
        let interval = self.interval(by);
        let rows = interval.rows.iter();
        rows.map(|row| (row.name.clone(), Io::of([row], &interval)))
            .collect()
    }
}

impl Io {
    fn of<'a>(rows: impl IntoIterator<Item = &'a Figures>, interval: &Interval) -> Self {
        let mut all = Figures::new("");
        rows.into_iter().for_each(|row| all.add(row));
        let (both, seconds) = (all.both(), interval.seconds);
        let percentile = |part: Part, of_all| both.percentile_us(part, &interval.bounds_us, of_all);
        let iops = |direction: &Direction| direction.iops(seconds);
        Self {
            in_flight: all.in_flight,
            iops: iops(&both),
            read_iops: iops(&all.read),
            write_iops: iops(&all.write),
            bytes_per_second: both.bytes_per_second(seconds),
            p50_us: percentile(Part::All, 0.5),
            p99_us: percentile(Part::All, 0.99),
            waited_mean_us: both.mean_us(Part::Waited),
            waited_p99_us: percentile(Part::Waited, 0.99),
        }
    }
}

fn of_tenant(tenant: &TenantActivity, io: Io) -> OfTenant {
    let devices = &tenant.devices;
    let ios: u64 = devices.iter().map(|it| it.ios).sum();
    let excess: f64 = devices.iter().map(|it| it.excess_us * it.ios as f64).sum();
    let busy = devices.iter().map(|it| it.busy_part);
    // The worst comes first.
    let promised = tenant.promises.first().map(describe);
    OfTenant {
        name: tenant.tenant.clone(),
        class: tenant.class.name().to_owned(),
        weight: tenant.weight,
        promise: tenant.promise_state,
        promised,
        queued: devices.iter().map(|it| it.queued).sum(),
        busy_part: busy.fold(0.0, f64::max).clamp(0.0, 1.0),
        io,
        excess_us: (ios > 0).then(|| excess / ios as f64),
        blame: blame::of_tenant(devices),
        errors: tenant.errors,
    }
}

/// What was got of a promise.
fn describe(promise: &PromiseView) -> String {
    let figure = |value: u64| match &*promise.unit {
        "bytes_per_second" => units::bandwidth(value as f64),
        "us" => units::microseconds(value as f64),
        _ => value.to_string(),
    };
    let got = promise.got.map_or("-".to_owned(), figure);
    let of = figure(promise.promised);
    format!("{got} of {of} {}", promise.promise.replace('_', " "))
}

fn of_connection(
    it: &ConnectionActivity,
    was: Option<&ConnectionActivity>,
    seconds: f64,
) -> OfConnection {
    let rate = |count: fn(&ConnectionActivity) -> u64| {
        count(it).saturating_sub(was.map_or(0, count)) as f64 / seconds
    };
    let cores: Vec<String> = it.cores.iter().map(usize::to_string).collect();
    OfConnection {
        controller: it.controller,
        tenant: it.tenant.clone(),
        host: it.hostnqn.clone(),
        peer: it
            .peer
            .map_or("vfio-user".to_owned(), |peer| peer.to_string()),
        io_queues: it.io_queues,
        cores: cores.join(" "),
        read_iops: rate(|it| it.reads),
        write_iops: rate(|it| it.writes),
        bytes_per_second: rate(|it| it.bytes_read + it.bytes_written),
        errors: it.errors,
    }
}
