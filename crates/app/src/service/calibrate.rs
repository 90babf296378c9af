//! What a device can give, and whether what is promised of it adds up. A guarantee is a part of the device's time:
//! the reads promised of the reads that it can do, and the writes of the writes. More than all of it is not sold.
//!
//! An emulated drive is measured by a copy of its model in virtual time, worn out, for a guarantee has to hold then too.
//! Any other device is measured by doing I/O: reads at any time, writes only when nobody uses it and its content may be
//! lost.

use std::rc::Rc;

use flashyard_block::{IoError, SharedDevice, Tag};
use flashyard_flash::ssd::{self, Condition};
use flashyard_flash::workload::{self, Source, Worker};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_sched::Rates;
use flashyard_time::{Duration, Histogram, Rng};
use serde_json::{Value, json};

use super::{Fault, Service, flash};
use crate::spec::{Bandwidth, DeviceKind, DeviceSpec, LoadPoint, RatesSpec, TenantSpec};

/// I/Os in flight while the most is measured.
const DEPTH: u32 = 256;
const STREAMS: u32 = 32;
const SMALL: usize = 4 << 10;
const LARGE: usize = 128 << 10;
/// How long each load is measured, in virtual and in real time.
const VIRTUAL: Duration = Duration::from_ms(500);
const REAL: Duration = Duration::from_secs(1);
/// How long each step of the curve is measured in real time.
const STEP: Duration = Duration::from_ms(200);
/// Steps of the curve, in tenths of the most.
const STEPS: u64 = 10;

/// All of a device, and what adding up its parts may err.
const ALL: f64 = 1.0 + 1e-9;

impl Service {
    /// Measures a device, notes what it can give, and tells it with the curve behind it.
    pub(super) fn calibrate(&mut self, name: &str, destroy: bool) -> Result<Value, Fault> {
        let Some(spec) = self.inventory.devices.get(name).cloned() else {
            return Err(format!(
                "there is no device `{name}`: `flashyard device list` shows all"
            ));
        };
        let (capability, curve) = if spec.kind == DeviceKind::Flash {
            emulated(&spec)?
        } else {
            let user = self.device_user(name);
            if let (true, Some(user)) = (destroy, user) {
                return Err(format!(
                    "device `{name}` is used by {user}: measuring writes would destroy that; leave --destroy out to measure reads"
                ));
            }
            self.measured(name, destroy)?
        };
        let curve = self.note_capability(&spec, capability, curve)?;
        Ok(json!({
            "device": name,
            "capability": capability,
            "curve": curve.iter().map(|point| json!({
                "read_iops": point.read_iops,
                "mean_us": point.mean_ns as f64 / 1e3,
                "p50_us": point.p50_ns as f64 / 1e3,
                "p95_us": point.p95_ns as f64 / 1e3,
                "p99_us": point.p99_ns as f64 / 1e3,
            })).collect::<Vec<_>>(),
        }))
    }

    /// Refuses what would promise more of a device than it can give: `tenant` as it is to be, on the devices that it
    /// has volumes on and on `device`, if it is to get one there. Who is promised no more than before is not refused.
    pub(super) fn check_promises(
        &mut self,
        tenant: &TenantSpec,
        device: Option<&str>,
    ) -> Result<(), Fault> {
        let Some(wanted) = tenant.guarantee else {
            return Ok(());
        };
        let present = self.inventory.tenants.get(&tenant.name);
        let before = present.and_then(|record| record.spec.guarantee);
        if device.is_none() && before.is_some_and(|before| wanted.lesser(before) == wanted) {
            return Ok(());
        }
        let mut devices = self.devices_of(&tenant.name);
        devices.extend(device.map(str::to_owned));
        devices.dedup();
        for device in devices {
            self.check_promises_of(&device, tenant)?;
        }
        Ok(())
    }

    fn check_promises_of(&mut self, device: &str, tenant: &TenantSpec) -> Result<(), Fault> {
        let capability = self.capability_of(device)?;
        let others = self.inventory.tenants.values();
        let others = others.filter(|other| {
            other.spec.name != tenant.name
                && self
                    .devices_of(&other.spec.name)
                    .iter()
                    .any(|name| name == device)
        });
        let all = others.map(|record| &record.spec).chain([tenant]);
        add_up(device, capability, all)
            .map_err(|(Untenable::Unknown(why) | Untenable::Oversold(why))| why)
    }

    /// What a device can give; an emulated one is measured now if it was not before.
    pub(super) fn capability_of(&mut self, device: &str) -> Result<RatesSpec, Fault> {
        let Some(spec) = self.inventory.devices.get(device).cloned() else {
            return Ok(RatesSpec::default());
        };
        match (spec.capability, spec.kind) {
            (Some(capability), _) => Ok(capability),
            (None, DeviceKind::Flash) => {
                let (capability, curve) = emulated(&spec)?;
                self.note_capability(&spec, capability, curve)?;
                Ok(capability)
            }
            (None, _) => Ok(RatesSpec::default()),
        }
    }

    /// Keeps what was measured; gives the curve. What was not measured now stays as it was.
    fn note_capability(
        &mut self,
        spec: &DeviceSpec,
        measured: RatesSpec,
        curve: Vec<LoadPoint>,
    ) -> Result<Vec<LoadPoint>, Fault> {
        let before = spec.capability.unwrap_or_default();
        let spec = DeviceSpec {
            capability: Some(RatesSpec {
                write_iops: measured.write_iops.or(before.write_iops),
                write_bandwidth: measured.write_bandwidth.or(before.write_bandwidth),
                ..measured
            }),
            curve: curve.clone(),
            ..spec.clone()
        };
        let is_told = spec.policy.is_told();
        self.state
            .put_device(&spec)
            .map_err(|error| error.to_string())?;
        let name = spec.name.clone();
        self.inventory.devices.insert(name.clone(), spec);
        if is_told {
            self.renew_policy(&name);
        }
        Ok(curve)
    }

    /// Measures by I/O, on the home core.
    fn measured(&self, name: &str, destroy: bool) -> Result<(RatesSpec, Vec<LoadPoint>), Fault> {
        self.check_blocks(name)?;
        let core = self.home_of(name)?;
        let device = name.to_owned();
        let measured = self.cores.call(core, move |state| async move {
            let device = state.devices.borrow().get(&device).cloned();
            let device = device.expect("its home is this core");
            measure(&state.rt, &device, destroy).await
        });
        measured.map_err(|error| {
            format!("device `{name}` failed while it was measured ({error:?}): see to it first")
        })
    }
}

/// Why promises of a device do not hold, for people.
pub(super) enum Untenable {
    /// Nobody knows what the device can give.
    Unknown(Fault),
    /// It is less than what is promised.
    Oversold(Fault),
}

/// Adds up what is promised of a device that can give so much.
pub(super) fn add_up<'a>(
    device: &str,
    capability: RatesSpec,
    tenants: impl Iterator<Item = &'a TenantSpec>,
) -> Result<(), Untenable> {
    let mut parts = Vec::new();
    for spec in tenants {
        let Some(guarantee) = spec.guarantee else {
            continue;
        };
        let part = part_of(guarantee.rates(), capability.rates()).map_err(|what| {
            Untenable::Unknown(format!(
                "nobody knows how many {what} device `{device}` can give, so none can be guaranteed: measure it with \
                 `flashyard device calibrate {device}`, or say so as its `capability`"
            ))
        })?;
        parts.push((spec.name.as_str(), part));
    }
    let sold: f64 = parts.iter().map(|(_, part)| part).sum();
    if sold <= ALL {
        return Ok(());
    }
    let list: Vec<_> = parts
        .iter()
        .map(|(name, part)| format!("{name} {:.0} %", part * 100.0))
        .collect();
    Err(Untenable::Oversold(format!(
        "this would sell {:.0} % of {device} ({}): lower a guarantee; `flashyard device calibrate {device}` shows what it can give",
        sold * 100.0,
        list.join(", ")
    )))
}

/// The part of a device's time that a guarantee takes; or what is not known of the device.
fn part_of(owed: Rates, most: Rates) -> Result<f64, &'static str> {
    let part = |owed: Option<u64>, most: Option<u64>, what| match (owed, most) {
        (None, _) => Ok(0.0),
        (Some(owed), Some(most)) if most > 0 => Ok(owed as f64 / most as f64),
        (Some(_), _) => Err(what),
    };
    // What may be either is the dearer of the two.
    let dearer = |reads: Option<u64>, writes: Option<u64>| Some(reads?.min(writes?));
    let either = part(owed.ios, dearer(most.read_ios, most.write_ios), "I/Os")?.max(part(
        owed.bytes,
        dearer(most.read_bytes, most.write_bytes),
        "bytes a second",
    )?);
    let reads = part(owed.read_ios, most.read_ios, "reads")?.max(part(
        owed.read_bytes,
        most.read_bytes,
        "bytes a second",
    )?);
    let writes = part(owed.write_ios, most.write_ios, "writes")?.max(part(
        owed.write_bytes,
        most.write_bytes,
        "bytes a second",
    )?);
    Ok(either.max(reads + writes))
}

/// Measures a copy of an emulated drive's model.
pub(super) fn emulated(spec: &DeviceSpec) -> Result<(RatesSpec, Vec<LoadPoint>), Fault> {
    let worn = |condition| {
        let mut spec = spec.clone();
        spec.condition = Some(crate::spec::ConditionName(condition));
        flash::model(&spec)
    };
    let drive = spec.drive().map_or(1, |drive| u64::from(drive.dilation));
    let run = |condition, worker| -> Result<u64, Fault> {
        let mut device: ssd::Device = worn(condition)?;
        let got = workload::closed_loop(&mut device, &[worker], VIRTUAL, VIRTUAL, 1).remove(0);
        let ios = got.read_iops() + got.write_iops();
        Ok(ios / drive * u64::from(worker.units) * 4096)
    };
    let fragmented = Condition::Fragmented(100);
    let read = run(fragmented, Worker::reader(DEPTH))?;
    let write = run(fragmented, Worker::writer(STREAMS))?;
    let capability = RatesSpec {
        read_iops: Some(read / 4096),
        write_iops: Some(write / 4096),
        read_bandwidth: Some(Bandwidth(run(fragmented, Worker::streamer(STREAMS, 100))?)),
        write_bandwidth: Some(Bandwidth(run(fragmented, Worker::streamer(STREAMS, 0))?)),
        ..RatesSpec::default()
    };
    let mut curve = Vec::new();
    for step in 1..=STEPS {
        let offered = read / 4096 * step / STEPS;
        let mut latency = Histogram::new();
        let source = Source::reads(offered * drive, VIRTUAL.scale(1, 2));
        workload::open_loop(&mut worn(fragmented)?, &[source], 1, |answer| {
            latency.record(answer.latency.as_ns() * drive);
        });
        curve.push(point(offered, &latency));
    }
    Ok((capability, curve))
}

/// Measures a device by reading it and, if its content may be lost, by writing it.
async fn measure(
    rt: &Rt,
    device: &SharedDevice,
    destroy: bool,
) -> Result<(RatesSpec, Vec<LoadPoint>), IoError> {
    let small = load(rt, device, DEPTH, SMALL, false).await?;
    let large = load(rt, device, STREAMS, LARGE, false).await?;
    let mut capability = RatesSpec {
        read_iops: Some(small),
        read_bandwidth: Some(Bandwidth(large * LARGE as u64)),
        ..RatesSpec::default()
    };
    if destroy {
        let small = load(rt, device, STREAMS, SMALL, true).await?;
        let large = load(rt, device, STREAMS, LARGE, true).await?;
        capability.write_iops = Some(small);
        capability.write_bandwidth = Some(Bandwidth(large * LARGE as u64));
    }
    let mut curve = Vec::new();
    for step in 1..=STEPS {
        let offered = small * step / STEPS;
        curve.push(point(offered, &paced(rt, device, offered.max(1)).await?));
    }
    Ok((capability, curve))
}

fn point(read_iops: u64, latency: &Histogram) -> LoadPoint {
    LoadPoint {
        read_iops,
        mean_ns: latency.mean(),
        p50_ns: latency.percentile(500_000),
        p95_ns: latency.percentile(950_000),
        p99_ns: latency.percentile(990_000),
    }
}

/// Latencies of small reads at random addresses, of which so many come per second: each of [`DEPTH`] readers has its
/// instants, and reads at the next of them when it has its answer.
async fn paced(rt: &Rt, device: &SharedDevice, rate: u64) -> Result<Histogram, IoError> {
    let (bytes, blocks, places) = transfers(device, SMALL);
    let (begin, every) = (rt.now(), Duration::from_secs(u64::from(DEPTH)) / rate);
    let until = begin + STEP;
    let readers: Vec<_> = (0..u64::from(DEPTH))
        .map(|reader| {
            let (rt, device) = (rt.clone(), Rc::clone(device));
            let mut next = begin + every * reader / u64::from(DEPTH);
            rt.clone().spawn(async move {
                let (mut rng, mut latency) = (Rng::new(reader), Histogram::new());
                while next < until {
                    rt.sleep_until(next).await;
                    let lba = rng.below(places) * blocks;
                    let buf = Buf::take(bytes).ok_or(IoError::Busy)?;
                    let sent = rt.now();
                    let _: Data = device.read(Tag::default(), lba, buf).await?;
                    latency.record(rt.now().since(sent).as_ns());
                    next = (next + every).max(sent);
                    // A device that answers at once must not keep the core from everybody else.
                    rt.turn_end().await;
                }
                Ok::<_, IoError>(latency)
            })
        })
        .collect();
    let mut all = Histogram::new();
    for reader in readers {
        all.merge(&reader.await?);
    }
    Ok(all)
}

/// Bytes and blocks of an I/O of `bytes`, and for how many there is room. Some devices have blocks that are larger.
fn transfers(device: &SharedDevice, bytes: usize) -> (usize, u64, u64) {
    let info = device.info();
    let bytes = bytes.max(info.block_size as usize);
    let blocks = bytes as u64 / u64::from(info.block_size);
    (bytes, blocks, (info.blocks / blocks).max(1))
}

/// I/Os a second of `bytes` at random addresses, so many in flight.
async fn load(
    rt: &Rt,
    device: &SharedDevice,
    depth: u32,
    bytes: usize,
    write: bool,
) -> Result<u64, IoError> {
    let (bytes, blocks, places) = transfers(device, bytes);
    let until = rt.now() + REAL;
    let workers: Vec<_> = (0..depth)
        .map(|worker| {
            let (rt, device) = (rt.clone(), Rc::clone(device));
            rt.clone().spawn(async move {
                let mut rng = Rng::new(u64::from(worker));
                let mut done = 0;
                while rt.now() < until {
                    let lba = rng.below(places) * blocks;
                    let buf = Buf::take(bytes).ok_or(IoError::Busy)?;
                    if write {
                        device.write(Tag::default(), lba, buf, false).await?;
                    } else {
                        let _: Data = device.read(Tag::default(), lba, buf).await?;
                    }
                    done += 1;
                    // A device that answers at once must not keep the core from everybody else.
                    rt.turn_end().await;
                }
                Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await?;
    }
    Ok(done * 1_000 / REAL.as_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str) -> Rates {
        text.parse::<RatesSpec>().expect("rates").rates()
    }

    #[test]
    fn a_guarantee_is_a_part_of_the_device() {
        let most =
            rates("read_iops=400000,write_iops=40000,read_bandwidth=3GB/s,write_bandwidth=200MB/s");
        for (owed, part) in [
            ("read_iops=40000", 0.1),
            ("write_iops=20000", 0.5),
            ("read_iops=40000,write_iops=20000", 0.6),
            ("iops=20000", 0.5),
            ("bandwidth=100MB/s", 0.5),
            ("read_iops=40000,read_bandwidth=1500MB/s", 0.5),
            ("read_iops=400000,write_iops=40000", 2.0),
        ] {
            let found = part_of(rates(owed), most).expect("all is known");
            assert!((found - part).abs() < 1e-9, "{owed}: {found}");
        }
        assert_eq!(
            part_of(rates("write_iops=1"), rates("read_iops=1")),
            Err("writes")
        );
        assert_eq!(part_of(Rates::NONE, Rates::NONE), Ok(0.0));
    }
}
