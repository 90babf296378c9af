//! `flashyard snapshot`, and clones of them.

use clap::{Args, Subcommand};

use super::Reach;
use crate::control::{SnapshotName, Version};
use crate::options::whole;

/// `flashyard snapshot`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard snapshot create orders@monday\n  flashyard snapshot list\n\n\
    Volumes of mapped pools have snapshots: made at once and without a copy, and only what is written later takes space."
)]
pub struct SnapshotArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List all snapshots, or those of a volume, the oldest first
    #[command(
        after_help = "Examples:\n  flashyard snapshot list\n  flashyard snapshot list orders --json"
    )]
    List {
        /// The volume
        volume: Option<String>,
    },
    /// Show one snapshot, with what deleting it would free
    #[command(after_help = "Example:\n  flashyard snapshot show orders@monday\n\n\
        It would free what it stores and neither the next snapshot nor the volume has. That is added up by reading its map.")]
    Show {
        /// Which
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: SnapshotName,
    },
    /// Keep volumes as they are at this moment
    #[command(
        after_help = "Examples:\n  flashyard snapshot create orders@monday\n  \
        flashyard snapshot create orders@before-upgrade index@before-upgrade\n\n\
        It has every write that was answered before, and none that is issued after the command ends. Several volumes of one\n\
        pool are kept at the same moment. What hosts have in their caches and have not written is not in it."
    )]
    Create {
        /// What is to be kept, and what that is called
        #[arg(value_name = "VOLUME@NAME", required = true)]
        snapshots: Vec<SnapshotName>,
    },
    /// Show which bytes were written between two snapshots, or since one
    #[command(
        after_help = "Examples:\n  flashyard snapshot diff orders@monday orders@tuesday\n  \
        flashyard snapshot diff orders@monday orders --json\n  flashyard snapshot diff orders@monday\n\n\
        With one snapshot alone: all that it has. Deallocated bytes count as written."
    )]
    Diff {
        /// The older snapshot; or the only one, compared with nothing
        #[arg(value_name = "VOLUME@NAME")]
        old: SnapshotName,
        /// The newer one, or the volume as it is now
        #[arg(value_name = "VOLUME[@NAME]")]
        new: Option<Version>,
    },
    /// Make a volume what its newest snapshot is: all that was written since is lost
    #[command(
        after_help = "Example:\n  flashyard snapshot restore orders@monday --yes\n\n\
        Unmount the volume on its hosts before: they would find other data under what they have in their caches.\n\
        Newer snapshots have to be deleted first; to see older data beside the present ones make a clone:\n  \
        flashyard volume clone orders@monday orders-monday"
    )]
    Restore {
        /// Which
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: SnapshotName,
        /// Yes, what was written since may be lost
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
    /// Give a snapshot to a tenant as a volume that takes no writes
    #[command(
        after_help = "Examples:\n  flashyard snapshot share orders@monday orders-monday\n  \
        flashyard snapshot share orders@monday audit --tenant audit --yes\n\n\
        `volume delete orders-monday --yes` takes it away again; the snapshot stays."
    )]
    Share {
        /// Which
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: SnapshotName,
        /// What the volume is called
        name: String,
        /// Who gets it [default: whose the volume is]
        #[arg(long, help_heading = "Owner")]
        tenant: Option<String>,
        /// Number of its namespace in the tenant's subsystem, 1 to 1024 [default: the next free
        /// one]
        #[arg(long, help_heading = "Identity", value_name = "N", value_parser = whole::<u32>("volume", "nsid"))]
        nsid: Option<u32>,
        /// Yes, the other tenant may read its data
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
    /// Delete a snapshot; space that nothing else has comes back by and by
    #[command(after_help = "Example:\n  flashyard snapshot delete orders@monday --yes")]
    Delete {
        /// Which
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: SnapshotName,
        /// Yes, its data may be lost
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
}

/// `flashyard volume clone`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  flashyard volume clone orders@monday orders-test\n\n\
    The clone has the size of the snapshot and is the same tenant's. It is made at once and without a copy; only what is\n\
    written to it takes space. The snapshot stays as long as it has clones."
)]
pub struct CloneArgs {
    /// The snapshot that it begins as
    #[arg(value_name = "VOLUME@NAME")]
    pub snapshot: SnapshotName,
    /// What the new volume is called
    pub name: String,
    /// Number of its namespace in the tenant's subsystem, 1 to 1024 [default: the next free one]
    #[arg(long, help_heading = "Identity", value_name = "N", value_parser = whole::<u32>("volume", "nsid"))]
    pub nsid: Option<u32>,
    /// Whose it is to be: only the tenant of the snapshot's volume
    #[arg(long, help_heading = "Owner")]
    pub tenant: Option<String>,
}
