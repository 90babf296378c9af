//! What a device can give, which guarantees are held against (`promises.rs`).
//!
//! An emulated drive is measured by a copy of its model in virtual time, worn out, for a guarantee
//! has to hold then too. Any other device is measured by I/O (`measure.rs`), where something was
//! written before: with a pool in a scratch volume, which is filled and goes again; with a user's
//! data by reading them; without a user by writing it over, if that was asked for.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flashyard_block::pool::{Pool, PoolError};
use flashyard_flash::ssd::{self, Condition};
use flashyard_flash::workload::{self, Source, Worker};
use flashyard_time::{Duration, Histogram};

use super::fault::{InUse, Refused, Unavailable};
use super::measure::{
    DEPTH, Found, LARGE, SMALL, STEPS, STREAMS, Stopped, Task, Watch, measure, point, rises,
};
use super::work::Work;
use super::{Checked, Fault, flash, no_such, policies};
use crate::control::{CalibrationView, KindName, LoadView, Progress, View};
use crate::cores::Reply;
use crate::graph::{Node, NodeId};
use crate::spec::{
    Bandwidth, CALIBRATION_UUID, ConditionName, Conditions, DeviceKind, DeviceSpec, FlashSpec,
    LoadPoint, MeasuredMedium, MeasuredPlace, Medium, RatesSpec,
};
use crate::units;

/// How long each load of a model is measured, in virtual time.
const VIRTUAL: Duration = Duration::from_ms(500);
/// How much of a device is written and read: what caches of a drive hold is less, and memory is
/// precious.
const SPAN: u64 = 256 << 20;
const SPAN_IN_MEMORY: u64 = 64 << 20;
/// A scratch volume that is smaller says nothing of its device.
const SPAN_LEAST: u64 = 8 << 20;
/// A scratch volume is known by its UUID, also after a kill; this is its name.
const SCRATCH_NAME: &str = "flashyard-calibration";

/// What a measurement has found, and under which conditions.
struct Calibration {
    capability: RatesSpec,
    curve: Vec<LoadPoint>,
    conditions: Conditions,
}

impl Work<'_> {
    /// Measures a device, notes what it can give, and tells it with the curve behind it.
    pub(super) fn calibrate(
        &mut self,
        name: &str,
        destroy: bool,
        progress: bool,
    ) -> Result<View, Fault> {
        let (id, device) = self.device(name)?;
        let spec = device.spec.clone();
        let found = match spec.kind() {
            DeviceKind::Flash => Calibration::of_model(&spec)?,
            kind => self.measured(id, kind, destroy, progress)?,
        };
        let curve_kept = rises(&found.curve);
        let view = CalibrationView {
            device: name.to_owned(),
            capability: found.capability,
            curve: found.curve.iter().map(LoadView::from).collect(),
            curve_kept,
            note: found.note(),
            calibration: found.conditions.clone(),
        };
        self.note_capability(id, found)?;
        Ok(View::Calibration(Box::new(view)))
    }

    /// What a device can give; an emulated one is measured now if it was not before.
    pub(super) fn capability_of(&mut self, device: NodeId) -> Result<(), Fault> {
        let spec = self.graph.device(device).map(|it| it.spec.clone());
        if let Some(spec) = spec
            && spec.capability.is_none()
            && spec.kind() == DeviceKind::Flash
        {
            self.note_capability(device, Calibration::of_model(&spec)?)?;
        }
        Ok(())
    }

    /// Keeps what was measured. What was not measured now stays as it was.
    fn note_capability(&mut self, device: NodeId, found: Calibration) -> Result<(), Fault> {
        self.change_spec(device, |spec| found.put_into(spec))?;
        let noted = self.graph.device(device);
        if noted.is_some_and(|device| device.spec.policy.kind().needs_figures()) {
            self.renew_policy(device);
        }
        Ok(())
    }

    /// Measures by I/O, on the home core.
    fn measured(
        &self,
        id: NodeId,
        kind: DeviceKind,
        destroy: bool,
        progress: bool,
    ) -> Result<Calibration, Fault> {
        self.check_blocks(id)?;
        self.check_no_parity(id)?;
        let name = self.graph.name(id).to_owned();
        let user = self.user_text(id);
        if let (true, Some(user)) = (destroy, user) {
            return Err(InUse::Measured(name, user).into());
        }
        let most = match self.forgets(id) {
            true => SPAN_IN_MEMORY,
            false => SPAN,
        };
        let watch = Arc::new(Watch::default());
        let outcome = match self.graph.user_of(id) {
            Some(Node::Pool(record)) => {
                let (pool, core) = self.pool_home(&record.spec.name)?;
                let watch = Arc::clone(&watch);
                self.cores.send(core, move |state| async move {
                    let pool = state.nodes.pool(pool).ok_or(PoolError::NotAPool)?;
                    let device = state.nodes.device(id);
                    let task = Task {
                        kind,
                        is_page_cached: device.is_some_and(|it| it.is_page_cached()),
                        bytes: most,
                        writes: true,
                    };
                    in_scratch_volume(&state.rt, &pool, task, watch).await
                })
            }
            None if !destroy => return Err(Refused::NeverWritten(name).into()),
            user => {
                let (place, most) = match user {
                    None => (MeasuredPlace::WholeDevice, most),
                    Some(_) => (MeasuredPlace::InUse, u64::MAX),
                };
                let core = self.home_of(id)?;
                let watch = Arc::clone(&watch);
                self.cores.send(core, move |state| async move {
                    let device = state.nodes.device(id).ok_or(PoolError::NotAPool)?;
                    let info = device.info();
                    let bytes = most.min(info.blocks * u64::from(info.block_size));
                    let writes = place == MeasuredPlace::WholeDevice;
                    let task = Task {
                        kind,
                        is_page_cached: device.is_page_cached(),
                        bytes,
                        writes,
                    };
                    let found = measure(&state.rt, device, task, watch).await;
                    Ok(found.map(|found| Calibration::of_device(found, place, bytes, None)))
                })
            }
        };
        match self.follow(outcome, &watch, progress) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(Stopped::Cancelled)) => Err(Unavailable::Cancelled(name).into()),
            Ok(Err(Stopped::Unwritten(part))) => Err(Refused::Unwritten(name, part).into()),
            Ok(Err(Stopped::Failed(error))) => Err(Unavailable::Measured(name, error).into()),
            Err(PoolError::NotAPool) => Err(no_such(KindName::Device, &name)),
            Err(PoolError::Full { needed, free }) => {
                Err(Refused::NoRoomToMeasure(name, needed, free).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a measurement. It ends early when whoever asked for it has gone, or the target
    /// ends.
    fn follow<T>(&self, outcome: Reply<T>, watch: &Watch, progress: bool) -> T {
        outcome.wait_while(|| {
            if self.asker.is_gone() || self.service.turns.are_closed() {
                watch.cancel();
            }
            if progress {
                self.asker.tell(Progress {
                    done: watch.done(),
                    of: Watch::PARTS,
                });
            }
        })
    }
}

/// Makes a volume of at most the task's bytes, measures there and takes it away again, whatever
/// comes of it.
async fn in_scratch_volume(
    rt: &flashyard_runtime::Rt,
    pool: &Pool,
    task: Task,
    watch: Arc<Watch>,
) -> Result<Result<Calibration, Stopped>, PoolError> {
    clear_scratch(pool).await?;
    let free = pool.info().free;
    let bytes = task.bytes.min(free / 2).max(SPAN_LEAST);
    let device = pool
        .create_volume(SCRATCH_NAME, CALIBRATION_UUID.into_bytes(), bytes)
        .await?;
    let task = Task { bytes, ..task };
    let found = measure(rt, device, task, watch).await;
    clear_scratch(pool).await?;
    let place = MeasuredPlace::ScratchVolume;
    Ok(found.map(|found| Calibration::of_device(found, place, bytes, Some(free))))
}

/// Takes away what a measurement that was cut off has left.
pub(super) async fn clear_scratch(pool: &Pool) -> Result<(), PoolError> {
    match pool.find(CALIBRATION_UUID.into_bytes()) {
        Some((name, _)) => pool.delete(&name).await,
        None => Ok(()),
    }
}

/// Finds out what the policy of `spec` needs to know, where that can be found out by itself; else
/// it is refused. A start measures nothing and refuses nothing: `fair` stands in until somebody has
/// measured.
pub(super) fn find_figures(spec: &mut DeviceSpec, checked: Checked) -> Result<(), Fault> {
    if checked == Checked::Never {
        return Ok(());
    }
    if spec.policy.kind().needs_figures()
        && spec.capability.is_none()
        && spec.kind() == DeviceKind::Flash
    {
        Calibration::of_model(spec)?.put_into(spec);
    }
    policies::check(spec)
}

impl Calibration {
    fn of_model(spec: &DeviceSpec) -> Result<Self, Fault> {
        let (capability, curve) = emulated(spec)?;
        let place = MeasuredPlace::Model;
        let conditions = conditions(MeasuredMedium::Model, place, None, None, Vec::new());
        Ok(Self {
            capability,
            curve,
            conditions,
        })
    }

    fn of_device(found: Found, place: MeasuredPlace, bytes: u64, free: Option<u64>) -> Self {
        let conditions = conditions(found.medium, place, Some(bytes), free, found.unstable);
        Self {
            capability: found.capability,
            curve: found.curve,
            conditions,
        }
    }

    /// What is to be said of the figures.
    fn note(&self) -> Option<String> {
        let curve = (!rises(&self.curve)).then(|| {
            "reads took less time at a higher load, so the curve is not kept: measure again while the machine is quiet"
                .to_owned()
        });
        let doubt = self.conditions.doubt();
        let doubt = doubt.map(|why| format!("guarantees are not held against all of this: {why}"));
        let memory = (self.conditions.medium == MeasuredMedium::Memory)
            .then(|| "these are the figures of memory".to_owned());
        let notes: Vec<_> = [memory, doubt, curve].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn put_into(self, spec: &mut DeviceSpec) {
        let before = spec.capability.unwrap_or_default();
        let found = self.capability;
        let mut conditions = self.conditions;
        if found.write_iops.is_none()
            && let Some(measured) = &spec.calibration
        {
            let writes = measured.unstable.iter();
            let writes = writes.filter(|rate| rate.starts_with("write")).cloned();
            conditions.unstable.extend(writes);
        }
        spec.capability = Some(RatesSpec {
            write_iops: found.write_iops.or(before.write_iops),
            write_bandwidth: found.write_bandwidth.or(before.write_bandwidth),
            ..found
        });
        spec.calibration = Some(conditions);
        spec.curve = match rises(&self.curve) {
            true => self.curve,
            false => Vec::new(),
        };
    }
}

fn conditions(
    medium: MeasuredMedium,
    place: MeasuredPlace,
    measured_bytes: Option<u64>,
    free_bytes: Option<u64>,
    unstable: Vec<String>,
) -> Conditions {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Conditions {
        date: units::utc(now.map_or(0, |since| since.as_secs())),
        medium,
        place,
        measured_bytes,
        free_bytes,
        io_bytes: [SMALL as u64, LARGE as u64],
        in_flight: [DEPTH, STREAMS],
        unstable,
    }
}

/// Measures a copy of an emulated drive's model.
fn emulated(spec: &DeviceSpec) -> Result<(RatesSpec, Vec<LoadPoint>), Fault> {
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
