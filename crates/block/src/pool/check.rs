//! Verification of what is on a device, read-only.

use std::fmt;

use super::copies::Start;
use super::metadata::{EXTENT_BYTES, Metadata, extents_of_device};
use super::{PoolError, VolumeInfo};
use crate::superblock::{self, COPY_NAMES, CopyReport, Repair};
use crate::{Device, Verdict};

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The two copies of the metadata.
    pub copies: [CopyReport; 2],
    /// What is repaired when the device is used again, one line each.
    pub repairs: Vec<String>,
    /// What is lost, or cannot be used, one line each.
    pub problems: Vec<String>,
    /// The volumes of the newest whole copy.
    pub volumes: Vec<VolumeInfo>,
}

impl Report {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.repairs, &self.problems)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in COPY_NAMES.iter().zip(&self.copies) {
            writeln!(f, "{name} copy: {}", copy.state)?;
        }
        for volume in &self.volumes {
            writeln!(
                f,
                "volume {}: {} bytes, {} allocated",
                volume.name, volume.bytes, volume.allocated
            )?;
        }
        for repair in &self.repairs {
            writeln!(f, "to be put right: {repair}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        self.verdict().fmt(f)
    }
}

/// Looks at both copies of the metadata on `device`: checksums, bounds, and that no extent has two
/// owners.
///
/// Fails only when the device cannot be read at all.
pub async fn check(device: &dyn Device) -> Result<Report, PoolError> {
    let found = superblock::find::<Metadata, _>(&Start(device)).await?;
    let copies = found.copies.each_ref().map(CopyReport::from);
    let (mut repairs, mut problems) = (Vec::new(), Vec::new());
    let mut volumes = Vec::new();
    match found.newest() {
        Ok(newest) => {
            repairs.extend(superblock::repairs(&copies).into_iter().map(tell));
            problems.extend(device_problems(device, &newest.content));
            volumes = list(&newest.content);
        }
        Err(error) => problems.push(PoolError::from(error).to_string()),
    }
    Ok(Report {
        copies,
        repairs,
        problems,
        volumes,
    })
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy is not usable: {why}; the next change of the pool writes it anew from the other one"
        ),
        Repair::Older => {
            "one copy is older: a change was cut off; the next change repairs it".into()
        }
    }
}

fn device_problems(device: &dyn Device, metadata: &Metadata) -> Option<String> {
    let info = device.info();
    let extents = extents_of_device(info.blocks * u64::from(info.block_size));
    if info.block_size != metadata.block_size {
        return Some(format!(
            "the pool has blocks of {} bytes, the device of {}",
            metadata.block_size, info.block_size
        ));
    }
    (extents < metadata.extents).then(|| {
        format!(
            "the pool has {} extents, the device room for {extents}",
            metadata.extents
        )
    })
}

/// The volumes of a state, in the order of their names.
pub(super) fn list(metadata: &Metadata) -> Vec<VolumeInfo> {
    let info = |record: &super::metadata::Record| VolumeInfo {
        name: record.name.clone(),
        uuid: record.uuid,
        bytes: record.blocks * u64::from(metadata.block_size),
        allocated: record.runs.iter().map(|run| run.count * EXTENT_BYTES).sum(),
    };
    let mut volumes: Vec<VolumeInfo> = metadata.volumes.iter().map(info).collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    volumes
}
