//! Log pages (Base Specification, Get Log Page): what a controller tells about itself.

mod ana;
mod discovery;
mod effects;
mod health;
mod statistics;

pub use ana::{AnaGroup, AnaLogHeader, AnaState};
pub use discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, SecurityType, SubsystemType, TransportType,
    Treq,
};
pub use effects::{CommandEffects, EffectsLog, FeatureEffects, FeatureEffectsLog, SupportedLogs};
pub use health::{CriticalWarning, ErrorLogEntry, FirmwareSlotLog, SmartLog};
pub use statistics::{IoStatistics, LatencyBin, NotStatistics, StatisticsLog};

use crate::bytes::Field;

/// Log Page Identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(pub u8);

impl LogId {
    /// Supported Log Pages: [`SupportedLogs`].
    pub const SUPPORTED: Self = Self(0x00);
    /// Error Information: [`ErrorLogEntry`], newest first.
    pub const ERROR: Self = Self(0x01);
    /// SMART / Health Information: [`SmartLog`].
    pub const SMART: Self = Self(0x02);
    /// Firmware Slot Information: [`FirmwareSlotLog`].
    pub const FIRMWARE_SLOT: Self = Self(0x03);
    /// Changed Attached Namespace List: [`encode_changed_namespaces`].
    pub const CHANGED_NAMESPACES: Self = Self(0x04);
    /// Commands Supported and Effects: [`EffectsLog`].
    pub const EFFECTS: Self = Self(0x05);
    /// Asymmetric Namespace Access: [`AnaLogHeader`], [`AnaGroup`].
    pub const ANA: Self = Self(0x0c);
    /// Feature Identifiers Supported and Effects: [`FeatureEffectsLog`].
    pub const FEATURE_EFFECTS: Self = Self(0x12);
    /// NVMe-MI Commands Supported and Effects.
    pub const MI_EFFECTS: Self = Self(0x13);
    /// Discovery: [`DiscoveryHeader`], [`DiscoveryEntry`].
    pub const DISCOVERY: Self = Self(0x70);
    /// Reservation Notification.
    pub const RESERVATION_NOTIFICATION: Self = Self(0x80);
    /// I/O statistics, vendor specific: [`StatisticsLog`].
    pub const STATISTICS: Self = Self(0xd0);
}

/// Length of the changed namespace list, bytes.
pub const CHANGED_NAMESPACES_LEN: usize = 4096;

/// The entry that says that more namespaces changed than the list holds.
const CHANGED_OVERFLOW: u32 = 0xffff_ffff;

/// Which namespaces changed since the log was last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangedNamespaces<'a> {
    /// These; ascending NSIDs.
    Some(&'a [u32]),
    /// More than 1,024: look at all.
    Overflow,
}

/// Writes the changed namespace list; more than 1,024 become an overflow.
pub fn encode_changed_namespaces(
    changed: ChangedNamespaces<'_>,
    data: &mut [u8; CHANGED_NAMESPACES_LEN],
) {
    data.fill(0);
    match changed {
        ChangedNamespaces::Some(nsids) if nsids.len() <= CHANGED_NAMESPACES_LEN / 4 => {
            for (i, nsid) in nsids.iter().enumerate() {
                nsid.put(data, i * 4);
            }
        }
        _ => CHANGED_OVERFLOW.put(data, 0),
    }
}

/// Reads the changed namespace list: its NSIDs, or `None` for an overflow.
pub fn decode_changed_namespaces(
    data: &[u8; CHANGED_NAMESPACES_LEN],
) -> Option<impl Iterator<Item = u32> + '_> {
    if u32::get(data, 0) == CHANGED_OVERFLOW {
        return None;
    }
    Some(
        data.as_chunks()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .take_while(|nsid| *nsid != 0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn changed_namespaces_both_ways() {
        let mut data = [0xaa; CHANGED_NAMESPACES_LEN];
        encode_changed_namespaces(ChangedNamespaces::Some(&[2, 0x0102_0304]), &mut data);
        assert_eq!(data[..12], [2, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        let read: Vec<u32> = decode_changed_namespaces(&data)
            .expect("no overflow")
            .collect();
        assert_eq!(read, [2, 0x0102_0304]);

        for changed in [
            ChangedNamespaces::Overflow,
            ChangedNamespaces::Some(&vec![1; 1025]),
        ] {
            encode_changed_namespaces(changed, &mut data);
            assert_eq!(data[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
            assert!(decode_changed_namespaces(&data).is_none());
        }
    }
}
