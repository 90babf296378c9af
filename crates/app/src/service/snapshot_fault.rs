//! What cannot be done with snapshots.

use std::fmt;

use super::fault::{Fault, Refused};
use crate::control::SnapshotName;

/// See the module. `Display` is one line that says what to do.
#[derive(Debug)]
pub enum SnapshotFault {
    /// A volume that is a whole device.
    WholeDevice(String),
    /// A volume that is itself a snapshot.
    IsSnapshot(String),
    /// Volumes of two pools are not kept at the same moment.
    TwoPools(String, String),
    /// A snapshot that is given to a tenant: as which volume.
    Shared(SnapshotName, String),
    /// A clone for another tenant than that of the snapshot's volume: whose that is.
    CloneOfOther(SnapshotName, String),
    /// A volume that has snapshots: one of them.
    HasSnapshots(String, String),
    /// A volume that is a clone: of what.
    IsClone(String, String),
    /// A clone that was to be kept otherwise: of what it is one.
    CloneStays(String, String),
}

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WholeDevice(volume) => write!(
                f,
                "volume `{volume}` is a whole device and has no snapshots; make a volume in a pool with kind = \"mapped\""
            ),
            Self::IsSnapshot(volume) => write!(
                f,
                "volume `{volume}` is a snapshot, which stays as it is; make a clone of the snapshot instead"
            ),
            Self::TwoPools(one, other) => write!(
                f,
                "volumes of pools `{one}` and `{other}` cannot be kept at the same moment; make a snapshot of each pool's"
            ),
            Self::Shared(snapshot, volume) => write!(
                f,
                "{snapshot} is given to a tenant as volume `{volume}`; delete that volume first, the snapshot stays"
            ),
            Self::CloneOfOther(snapshot, tenant) => write!(
                f,
                "{snapshot} is tenant `{tenant}`'s, and a clone of it cannot be another's; copy the data, or share the \
                 snapshot with `snapshot share --tenant`"
            ),
            Self::HasSnapshots(volume, snapshot) => write!(
                f,
                "volume `{volume}` has snapshots, such as {snapshot}; delete them first"
            ),
            Self::CloneStays(volume, snapshot) => write!(
                f,
                "volume `{volume}` is a clone of {snapshot} and kept as that is; make a volume with other settings and copy the data"
            ),
            Self::IsClone(volume, snapshot) => write!(
                f,
                "volume `{volume}` is a clone of {snapshot} and stays with that one's tenant; copy the data instead"
            ),
        }
    }
}

impl From<SnapshotFault> for Fault {
    fn from(fault: SnapshotFault) -> Self {
        Self::Refused(Refused::Snapshot(fault))
    }
}
