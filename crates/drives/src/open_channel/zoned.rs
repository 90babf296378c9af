//! Partitions of a real zoned device.

use std::path::Path;

use flashyard_runtime::Rt;

use super::layout::{Layout, Record};
use super::{OpenChannel, PartitionError};
use crate::zoned::Zones;

impl OpenChannel {
    /// Opens the host-managed zoned block device at `path`, its zones dealt out to `units`, or to
    /// as many as make sense. Partitions that are on it are taken up. `uuid` is given to a device
    /// that has none; one that holds anything else is refused.
    pub async fn open_zoned(
        rt: &Rt,
        path: &Path,
        units: Option<u32>,
        uuid: [u8; 16],
    ) -> Result<Self, PartitionError> {
        let zones = Zones::open(rt, path, units).await?;
        Self::open_on(zones, None, uuid).await
    }

    /// Whether it is a real device.
    pub fn is_zoned(&self) -> bool {
        self.model.is_none()
    }

    /// Whether the device lets the partitions of a layout write into all of their units.
    pub(super) fn check_units(&self, layout: &Layout) -> Result<(), PartitionError> {
        let Some(most) = self.backing.most_units() else {
            return Ok(());
        };
        let units: usize = layout
            .partitions
            .iter()
            .map(|one| one.units().count())
            .sum();
        if units <= most as usize {
            return Ok(());
        }
        Err(PartitionError::Geometry(format!(
            "the device lets so few zones be partly written that partitions can have {most} units in all, not {units}: ask \
             for fewer, or divide the device into fewer and larger units"
        )))
    }

    /// Whether the units of a partition have channels to themselves. What the zones of a real
    /// device share it does not tell.
    pub(super) fn has_own_channels(&self, layout: &Layout, record: &Record) -> bool {
        !self.is_zoned() && layout.has_own_channels(record)
    }
}
