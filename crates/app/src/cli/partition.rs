//! `flashyard partition`: what can be typed about partitions.

use clap::{Args, Subcommand};

use super::reach::Reach;
use crate::options::whole;
use crate::spec::PolicyName;

/// `flashyard partition`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard partition create db --device oc0 --channels 0-3\n  flashyard partition list"
)]
pub struct PartitionArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: PartitionCommand,
}

/// Which parallel units of an open-channel or zoned device.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct UnitsArgs {
    /// Whole channels, such as 0-3,7: what others do is not noticed
    #[arg(long, help_heading = "Units", value_name = "LIST")]
    pub channels: Option<String>,
    /// Single units, each a channel and a number there, such as 0.0,1.0
    #[arg(long, help_heading = "Units", value_name = "LIST")]
    pub units: Option<String>,
    /// So many units, on as few channels as possible
    #[arg(long, help_heading = "Units", value_name = "N", value_parser = whole::<u32>("device", "count"))]
    pub count: Option<u32>,
}

/// What can be done with partitions.
#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// List all partitions
    #[command(after_help = "Example:\n  flashyard partition list")]
    List,
    /// Show one partition: capacity, bandwidth, write amplification, wear, units
    #[command(after_help = "Example:\n  flashyard partition show db")]
    Show {
        /// Its name
        name: String,
    },
    /// Create a partition, which is a device for pools and volumes
    #[command(
        after_help = "Examples:\n  flashyard device create oc0 --kind open-channel --size 8GiB\n  \
        flashyard partition create db --device oc0 --channels 0-3\n  \
        flashyard partition create logs --device oc0 --count 16 --op 7%\n  \
        flashyard volume create orders --device db --tenant db"
    )]
    Create {
        /// Name, unique among devices: letters, digits, `-`, `_`, `.`
        name: String,
        /// The open-channel or zoned device
        #[arg(long, help_heading = "Place")]
        device: String,
        /// Which units.
        #[command(flatten)]
        units: UnitsArgs,
        /// Flash kept beyond the capacity, in percent of it
        #[arg(
            long,
            help_heading = "Place",
            value_name = "PERCENT",
            default_value = "20%"
        )]
        op: String,
        /// Scheduling policy of the switch in front of it
        #[arg(long, help_heading = "Sharing", default_value = "fair")]
        policy: PolicyName,
    },
    /// Take over partitions that are on a device and that the target does not know, after its state
    /// was lost
    #[command(
        after_help = "Examples:\n  flashyard partition import --device oc0 --list\n  \
        flashyard partition import db --device oc0\n  \
        flashyard partition import --device oc0\n  \
        flashyard volume create orders --device db --tenant db --keep --nsid 3 \\\n    \
        --uuid 2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\n\n\
        Names, units and UUIDs of partitions are on the device, and so is what is in them. A pool in a partition is taken\n\
        over with `pool import`. A volume that was the whole partition is given back with `volume create --keep`; its\n\
        tenant, its number and the UUID that hosts know it by are not on the device, so say them: a file that `export`\n\
        has written has them, and `nvme list -v` and `nvme ns-descs` on a host show them."
    )]
    Import {
        /// Its name on the device [default: all that the target does not know]
        name: Option<String>,
        /// The open-channel or zoned device
        #[arg(long, help_heading = "Place")]
        device: String,
        /// Scheduling policy of the switch in front of it [default: as the file of the target has
        /// it, else fair]
        #[arg(long, help_heading = "Sharing")]
        policy: Option<PolicyName>,
        /// Only show what is on the device
        #[arg(long, help_heading = "What to do", conflicts_with = "name")]
        list: bool,
    },
    /// Give a partition more units while it is used
    #[command(after_help = "Example:\n  flashyard partition grow db --channels 4-5")]
    Grow {
        /// Its name
        name: String,
        /// Which units.
        #[command(flatten)]
        units: UnitsArgs,
    },
    /// Delete a partition that nothing uses, with all data in it
    #[command(after_help = "Examples:\n  flashyard partition delete db --yes\n  \
        flashyard partition delete db --device oc1 --yes\n\n\
        With --device it may be one that the target does not know: `partition import --list` shows those.")]
    Delete {
        /// Its name
        name: String,
        /// The device that it is on [default: that of the partition that `partition list` shows]
        #[arg(long, help_heading = "Place")]
        device: Option<String>,
        /// Yes, destroy the data
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
}
