//! Verification of what is on a device, read-only.

use super::metadata::{EXTENT_BYTES, Metadata, extents_of_device};
use crate::Device;
use crate::pool::error::PoolError;
use crate::pool::facts::{Kind, Report, VolumeForm, VolumeInfo};
use crate::superblock::{self, CopyReport, Found, Repair};

/// Looks at both copies of the metadata on `device`: checksums, bounds, and that no extent has two
/// owners.
pub(in crate::pool) fn check(device: &dyn Device, found: Found<Metadata>) -> Report {
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
    Report {
        kind: Kind::Raw,
        copies,
        repairs,
        problems,
        volumes,
    }
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy is not usable: {why}; opening the pool writes it anew from the other one"
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
        shared: 0,
        written: record.runs.iter().map(|run| run.count * EXTENT_BYTES).sum(),
        reserved: 0,
        form: VolumeForm::default(),
        owner: None,
    };
    let mut volumes: Vec<VolumeInfo> = metadata.volumes.iter().map(info).collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    volumes
}
