//! What a device can give, which guarantees are held against (`promises.rs`).
//!
//! An emulated drive is measured by a copy of its model in virtual time, worn out, for a guarantee
//! has to hold then too. Any other device is measured by doing I/O: reads at any time, writes only
//! when nobody uses it and its content may be lost.

use std::rc::Rc;

use flashyard_block::{DeviceExt, IoError, SharedDevice, Tag};
use flashyard_flash::ssd::{self, Condition};
use flashyard_flash::workload::{self, Source, Worker};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Duration, Histogram, Rng};

use super::fault::{InUse, Unavailable};
use super::work::Work;
use super::{Fault, flash, no_such, policies};
use crate::control::{CalibrationView, KindName, LoadView, View};
use crate::graph::NodeId;
use crate::spec::{
    Bandwidth, ConditionName, DeviceKind, DeviceSpec, FlashSpec, LoadPoint, Medium, RatesSpec,
};

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

impl Work<'_> {
    /// Measures a device, notes what it can give, and tells it with the curve behind it.
    pub(super) fn calibrate(&mut self, name: &str, destroy: bool) -> Result<View, Fault> {
        let (id, device) = self.device(name)?;
        let spec = device.spec.clone();
        let (capability, curve) = if spec.kind() == DeviceKind::Flash {
            emulated(&spec)?
        } else {
            let user = self.user_text(id);
            if let (true, Some(user)) = (destroy, user) {
                return Err(InUse::Measured(name.to_owned(), user).into());
            }
            self.measured(id, destroy)?
        };
        self.note_capability(id, capability, &curve)?;
        let us = |ns: u64| ns as f64 / 1e3;
        let curve = curve.iter().map(|point| LoadView {
            read_iops: point.read_iops,
            mean_us: us(point.mean_ns),
            p50_us: us(point.p50_ns),
            p95_us: us(point.p95_ns),
            p99_us: us(point.p99_ns),
        });
        Ok(View::Calibration(CalibrationView {
            device: name.to_owned(),
            capability,
            curve: curve.collect(),
        }))
    }

    /// What a device can give; an emulated one is measured now if it was not before.
    pub(super) fn capability_of(&mut self, device: NodeId) -> Result<RatesSpec, Fault> {
        let Some(spec) = self.graph.device(device).map(|it| it.spec.clone()) else {
            return Ok(RatesSpec::default());
        };
        match (spec.capability, spec.kind()) {
            (Some(capability), _) => Ok(capability),
            (None, DeviceKind::Flash) => {
                let (capability, curve) = emulated(&spec)?;
                self.note_capability(device, capability, &curve)?;
                Ok(capability)
            }
            (None, _) => Ok(RatesSpec::default()),
        }
    }

    /// Keeps what was measured. What was not measured now stays as it was.
    fn note_capability(
        &mut self,
        device: NodeId,
        measured: RatesSpec,
        curve: &[LoadPoint],
    ) -> Result<(), Fault> {
        self.change_spec(device, |spec| {
            let before = spec.capability.unwrap_or_default();
            spec.capability = Some(RatesSpec {
                write_iops: measured.write_iops.or(before.write_iops),
                write_bandwidth: measured.write_bandwidth.or(before.write_bandwidth),
                ..measured
            });
            spec.curve = curve.to_vec();
        })?;
        let noted = self.graph.device(device);
        if noted.is_some_and(|device| device.spec.policy.is_told()) {
            self.renew_policy(device);
        }
        Ok(())
    }

    /// Measures by I/O, on the home core.
    fn measured(&self, id: NodeId, destroy: bool) -> Result<(RatesSpec, Vec<LoadPoint>), Fault> {
        self.check_blocks(id)?;
        let core = self.home_of(id)?;
        let measured = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(id)?;
            Some(measure(&state.rt, &device, destroy).await)
        });
        let name = self.graph.name(id);
        let measured = measured.ok_or_else(|| no_such(KindName::Device, name))?;
        measured.map_err(|error| Unavailable::Measured(name.to_owned(), error).into())
    }
}

/// Finds out what the policy of `spec` has to be told, where that can be found out by itself; else
/// it is refused.
pub(super) fn tell_if_needed(spec: &mut DeviceSpec) -> Result<(), Fault> {
    if spec.policy.is_told() && spec.capability.is_none() && spec.kind() == DeviceKind::Flash {
        let (capability, curve) = emulated(spec)?;
        (spec.capability, spec.curve) = (Some(capability), curve);
    }
    policies::check(spec)
}

/// Measures a copy of an emulated drive's model.
pub(super) fn emulated(spec: &DeviceSpec) -> Result<(RatesSpec, Vec<LoadPoint>), Fault> {
    let Medium::Flash(drive) = &spec.medium else {
        return Ok((RatesSpec::default(), Vec::new()));
    };
    let worn = |condition| {
        let drive = FlashSpec {
            condition: Some(ConditionName(condition)),
            ..drive.clone()
        };
        flash::model(&spec.name, &drive)
    };
    let slower = u64::from(drive.complete().dilation);
    let run = |condition, worker| -> Result<u64, Fault> {
        let mut device: ssd::Device = worn(condition)?;
        let got = workload::closed_loop(&mut device, &[worker], VIRTUAL, VIRTUAL, 1).remove(0);
        let ios = got.read_iops() + got.write_iops();
        Ok(ios / slower * u64::from(worker.units) * 4096)
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
        let source = Source::reads(offered * slower, VIRTUAL.scale(1, 2));
        workload::open_loop(&mut worn(fragmented)?, &[source], 1, |answer| {
            latency.record(answer.latency.as_ns() * slower);
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

/// Latencies of small reads at random addresses, of which so many come per second: each of
/// [`DEPTH`] readers has its instants, and reads at the next of them when it has its answer.
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

/// Bytes and blocks of an I/O of `bytes`, and for how many there is room. Some devices have blocks
/// that are larger.
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
