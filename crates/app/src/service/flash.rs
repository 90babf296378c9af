//! Emulated drives. A model may take seconds to make, so it is made here, on the thread that asks
//! for it, and then given to the core that runs it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::FileDevice;
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions, FlashStats};
use flashyard_flash::ssd::{self, BuildError};
use flashyard_flash::{Profile, UNIT_BYTES};
use flashyard_runtime::Rt;
use flashyard_time::Duration;

use super::fault::{DriveFault, Invalid, ProfileFault};
use super::work::Work;
use super::{Fault, Service};
use crate::control::{DriveRow, DriveView};
use crate::graph::{Device, NodeId};
use crate::out::note;
use crate::published::Report;
use crate::spec::{ConditionName, DeviceKind, FlashSpec, StoreName, is_file};
use crate::units;

/// Longest profile that is read, in bytes.
const PROFILE_LEN_MAX: u64 = 64 << 10;
/// From this size on, making a drive takes long enough to be mentioned.
const LARGE: u64 = 64 << 30;

impl Service {
    /// What a device that is an emulated drive has done until now.
    pub fn drive_stats(&self, device: &str) -> Option<FlashStats> {
        self.work().ok()?.drive_stats(device)
    }

    /// Forgets the lateness and latency that an emulated drive has counted, to measure anew.
    pub fn clear_drive_timing(&self, device: &str) {
        if let Ok(work) = self.work() {
            work.clear_drive_timing(device);
        }
    }
}

impl Work<'_> {
    /// What a device that is an emulated drive has done until now.
    pub(super) fn drive_stats(&self, device: &str) -> Option<FlashStats> {
        let (id, device) = self.device(device).ok()?;
        match &*self.report(device.home?, id)? {
            Report::Device(_, stats) => stats.as_deref().cloned(),
            _ => None,
        }
    }

    /// Forgets the lateness and latency that an emulated drive has counted, to measure anew.
    pub(super) fn clear_drive_timing(&self, device: &str) {
        if let Ok((id, device)) = self.device(device)
            && let Some(core) = device.home
        {
            self.cores.call(core, move |state| async move {
                if let Some(drive) = state.nodes.drive(id) {
                    drive.clear_timing();
                }
            });
        }
    }

    /// What the target at a glance tells of its emulated drives.
    pub(super) fn view_drives(&self) -> Vec<DriveRow> {
        let row = |(id, device): (NodeId, &Device)| {
            let drive = device.spec.drive()?;
            let report = self.report(device.home?, id)?;
            let Report::Device(_, Some(stats)) = &*report else {
                return None;
            };
            Some(DriveRow {
                device: device.spec.name.clone(),
                profile: drive.profile,
                condition: ConditionName(drive.condition),
                drive: DriveView::from(&**stats),
            })
        };
        self.graph.devices().filter_map(row).collect()
    }
}

/// Makes the model of a drive.
pub(super) fn model(name: &str, spec: &FlashSpec) -> Result<ssd::Device, Fault> {
    let (capacity, drive) = (spec.size.0, spec.complete());
    let wrong = |fault| Invalid::Drive(name.to_owned(), fault);
    let profile = profile(&drive.profile).map_err(|fault| wrong(DriveFault::Profile(fault)))?;
    enough_memory(&profile, capacity).map_err(wrong)?;
    if capacity >= LARGE {
        note(format_args!(
            "making device {name}: {} of {}, {}",
            units::size(capacity),
            profile.name,
            ConditionName(drive.condition),
        ));
    }
    let made = ssd::Device::in_condition(&profile, capacity, drive.seed, drive.condition);
    Ok(made.map_err(|error| match error {
        BuildError::Profile(error) => Invalid::DriveProfile(drive.profile, error),
        BuildError::Capacity { least, most } => wrong(DriveFault::Size {
            kind: DeviceKind::Flash,
            profile: profile.name.clone(),
            size: capacity,
            least,
            most,
        }),
    })?)
}

/// Runs a model on this core, with its content in `file` if it has one.
pub(super) fn run(
    rt: &Rt,
    block_size: u32,
    spec: &FlashSpec,
    model: ssd::Device,
    file: Option<FileDevice>,
) -> Result<Rc<FlashDevice>, Fault> {
    let drive = spec.complete();
    let store = match (file, drive.store) {
        (Some(file), _) => Store::File(file),
        (None, StoreName::Pattern) => Store::Pattern,
        (None, _) => Store::Memory,
    };
    let options = FlashOptions {
        block_size,
        store,
        dilation: drive.dilation,
    };
    Ok(Rc::new(FlashDevice::new(rt, model, options)?))
}

impl From<&FlashStats> for DriveView {
    fn from(stats: &FlashStats) -> Self {
        let latency = Duration::from_ns(stats.latency.mean());
        Self {
            write_amplification: stats.drive.write_amplification() as f64 / 1e3,
            free_superblocks: stats.drive.free_superblocks,
            in_flight: stats.in_flight,
            latency_mean_us: latency.as_ns() as f64 / 1e3,
            lateness_p99_us: stats.lateness.percentile(990_000) as f64 / 1e3,
            kept_time: if stats.is_void(latency) { "no" } else { "yes" },
        }
    }
}

/// A profile that ships, or one in a file.
pub(super) fn profile(name: &str) -> Result<Profile, ProfileFault> {
    if !is_file(name) {
        return Profile::named(name).ok_or_else(|| ProfileFault::Unknown(name.to_owned()));
    }
    let text = read_profile(Path::new(name))
        .map_err(|error| ProfileFault::Read(name.to_owned(), error))?;
    Profile::parse(&text).map_err(|error| ProfileFault::Wrong(name.to_owned(), error))
}

fn read_profile(path: &Path) -> std::io::Result<String> {
    // Opening anything else for reading may wait for ever, and all who ask the target with it.
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(PROFILE_LEN_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > PROFILE_LEN_MAX {
        let what = format!("it is longer than {PROFILE_LEN_MAX} bytes, which no profile is");
        return Err(std::io::Error::other(what));
    }
    Ok(text)
}

/// Refuses a drive whose model does not fit into the memory of this machine: making it would have
/// the kernel end this program.
fn enough_memory(profile: &Profile, capacity: u64) -> Result<(), DriveFault> {
    let Some(free) = free_memory() else {
        return Ok(());
    };
    let per_unit = bytes_per_unit(profile);
    let needed = (capacity / UNIT_BYTES).saturating_mul(per_unit);
    if needed <= free {
        return Ok(());
    }
    let fits = free / per_unit * UNIT_BYTES;
    Err(DriveFault::Memory {
        size: capacity,
        needed,
        free,
        most: fits - fits % (1 << 20),
    })
}

/// Memory of a model for each unit of capacity: a number for the unit, one for each physical unit,
/// and a little more.
fn bytes_per_unit(profile: &Profile) -> u64 {
    6 + 4 * (1_000_000 + profile.spare_ppm).div_ceil(1_000_000)
}

/// Bytes that programs may still take, as far as the system tells.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
