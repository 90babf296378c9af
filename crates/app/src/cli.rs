//! The command line. Everything a user can type stands here; what it does stands in the modules
//! named alike.

mod sim;
mod target;
mod tenant;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::options;
use crate::perf::PerfArgs;
use crate::spec::{
    ConditionName, DeviceKind, Eui64, NamespaceUuid, Nguid, PolicyName, Size, StoreName,
};

pub use sim::SimArgs;
pub use target::{TargetArgs, TargetCommand, TargetSetArgs};
pub use tenant::{TenantArgs, TenantCommand};

/// A storage target for people who share flash: volumes for many tenants over NVMe/TCP.
#[derive(Debug, Parser)]
#[command(
    name = "flashyard",
    version,
    propagate_version = true,
    max_term_width = 110
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the main job: a target, three tenants, real NVMe/TCP on loopback
    Demo(DemoArgs),
    /// Run the target until Ctrl-C or SIGTERM
    Serve(ServeArgs),
    /// Measure a volume over NVMe/TCP
    Perf(Box<PerfArgs>),
    /// Run experiments on models of drives and switches, in virtual time
    Lab(LabArgs),
    /// Live whole lives of a target in virtual time, by seed, and look for what goes wrong in them
    Sim(SimArgs),
    /// Find what a target offers to a host
    Discover(DiscoverArgs),
    /// List, show, create and delete devices: things that store blocks
    Device(DeviceArgs),
    /// List, show, create, grow and delete partitions: exclusive flash units of an open-channel or
    /// zoned device
    Partition(PartitionArgs),
    /// List, show, create and delete pools: devices divided into volumes
    Pool(PoolArgs),
    /// List, show, create, change, rename, move and delete volumes: what tenants use
    Volume(VolumeArgs),
    /// List, show, create, change, rename and delete tenants: who may use what
    Tenant(TenantArgs),
    /// Show and change where the target listens, and the limits that it tells hosts
    Target(TargetArgs),
    /// Show the running target at a glance
    Status(Reach),
    /// Show where a tenant's latency comes from, and who causes it
    #[command(
        after_help = "Examples:\n  flashyard why db\n  flashyard why db --json\n\n\
        What is told covers the last ten to twenty seconds."
    )]
    Why(WhyArgs),
    /// Make the running target have everything that a configuration file names
    Apply(ApplyArgs),
    /// Verify, read-only, a pool on a file or block device, or a file that holds an open-channel
    /// device
    Check(CheckArgs),
}

/// How to reach the running target.
#[derive(Args, Clone, Debug)]
pub struct Reach {
    /// State directory of the target, where its control socket is
    /// [default: /var/lib/flashyard as root, else ~/.local/state/flashyard]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "FLASHYARD_STATE",
        verbatim_doc_comment
    )]
    pub state: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// `flashyard demo`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  flashyard demo\n  flashyard demo --seconds 5 --exit --json")]
pub struct DemoArgs {
    /// How long to measure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Slow the emulated drive down by this much, so that the delays of this machine count for
    /// little
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub dilation: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Do not go on serving after the measurement (so it is, too, when the output is not a
    /// terminal)
    #[arg(long)]
    pub exit: bool,
}

/// `flashyard serve`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard serve --config flashyard.toml\n  \
    flashyard serve --state ./state --listen 127.0.0.1:4420\n\n\
    What the file names is created or changed at start; what it does not name stays as it is in the state."
)]
pub struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// State directory: inventory and control socket
    /// [default: /var/lib/flashyard as root, else ~/.local/state/flashyard]
    #[arg(
        long,
        value_name = "DIR",
        env = "FLASHYARD_STATE",
        verbatim_doc_comment
    )]
    pub state: Option<PathBuf>,
    /// If the state store is damaged, start from its copy; the damaged file is kept as
    /// state.db.damaged
    #[arg(long)]
    pub restore_state: bool,
    /// Listen here instead of where the file or the state says, until `target set --listen`; may be
    /// repeated
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Number of cores to serve from, instead of what the file says
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cores: Option<u16>,
    /// Pin core 0 to this processor, core 1 to the next, and so on
    #[arg(long, value_name = "N")]
    pub processor: Option<usize>,
    /// Microseconds to poll at most for what comes next, where it mostly comes so soon; 0: sleep at
    /// once
    #[arg(long, value_name = "US", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub poll_us: u64,
    /// Bound of I/O buffer memory of each core, at least 4MiB. With less than 256MiB commands wait
    /// earlier for memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub buffers: Size,
}

/// `flashyard lab`.
#[derive(Args, Debug)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What can be done in the laboratory.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List all experiments, and what each one shows
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an experiment: its claim, and what can be set
    Show {
        /// Its name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment
    Run(LabRunArgs),
}

/// `flashyard lab run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  flashyard lab run ssd-validate\n  \
    flashyard lab run ssd-latency-curve --quick --json\n  \
    flashyard lab run ssd-interference --seeds 5 --plot ./plots\n  \
    flashyard lab run ssd-latency-curve --set profile=970pro --markdown curve.md\n\n\
    `flashyard lab show NAME` tells what can be set.")]
pub struct LabRunArgs {
    /// Its name
    pub name: String,
    /// Compare these policies in the switch; may be repeated
    #[arg(long = "policy", value_name = "P", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// What all chance follows from [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Take means over this many seeds, with their 95 % confidence intervals [default: 1]
    #[arg(long, value_name = "N")]
    pub seeds: Option<u32>,
    /// Small drives and short spans: to see whether it works, not what comes of it
    #[arg(long)]
    pub quick: bool,
    /// Set something; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = options::setting)]
    pub settings: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts, and each chart as SVG, into this directory
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Exit with status 1 when a row does not pass
    #[arg(long)]
    pub check: bool,
}

/// `flashyard discover`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  flashyard discover --connect 127.0.0.1:4420")]
pub struct DiscoverArgs {
    /// Address of the target
    #[arg(long, value_name = "ADDR:PORT")]
    pub connect: SocketAddr,
    /// Host NQN to ask as
    #[arg(
        long,
        value_name = "NQN",
        default_value = "nqn.2026-11.dev.flashyard:host"
    )]
    pub hostnqn: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `flashyard apply`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  flashyard apply flashyard.toml --plan")]
pub struct ApplyArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// Configuration file (TOML)
    pub file: PathBuf,
    /// Only show what would be done
    #[arg(long)]
    pub plan: bool,
}

/// `flashyard check`.
#[derive(Args, Debug)]
#[command(
    after_help = "Status 0: all is sound, or is put right when it is used again (`repairable`), and nothing is lost.\n\
        Status 1: something is lost or cannot be used; the lines `problem` say what.\n\
        With --json, `verdict` is `sound`, `repairable` or `lost`.\n\n\
        Example:\n  flashyard check /srv/flashyard/ssd0.img --block-size 4096"
)]
pub struct CheckArgs {
    /// File or block device that holds a pool, or an open-channel or zoned device with its
    /// partitions
    pub file: PathBuf,
    /// Bytes per block of the device
    #[arg(long, default_value_t = 4096)]
    pub block_size: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `flashyard device`.
#[derive(Args, Debug)]
pub struct DeviceArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: DeviceCommand,
}

/// What can be done with devices.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// List all devices
    List,
    /// Show one device
    Show {
        /// Its name
        name: String,
    },
    /// Create a device
    #[command(
        after_help = "Examples:\n  flashyard device create ram0 --kind memory --size 1GiB\n  \
        flashyard device create ssd0 --kind file --path /srv/ssd0.img --size 8GiB\n  \
        flashyard device create disk0 --kind block --path /dev/sdb\n  \
        flashyard device create nand0 --kind flash --size 8GiB --profile dct983 --condition fragmented\n  \
        flashyard device create oc0 --kind open-channel --size 4GiB --store file --path /srv/oc0.img\n  \
        flashyard device create zns0 --kind zoned --path /dev/nvme1n1 --units 8\n  \
        flashyard device create far0 --kind nvme-tcp --address 127.0.0.1:4420 --subnqn nqn.2026-11.dev.flashyard:db"
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// What it is
        #[arg(long)]
        kind: DeviceKind,
        /// Size (null, memory, flash, new files)
        #[arg(long)]
        size: Option<Size>,
        /// Bytes per block: 512 or 4096
        #[arg(long, default_value_t = 4096)]
        block_size: u32,
        /// File or block device
        #[arg(long)]
        path: Option<String>,
        /// Address of another target
        #[arg(long, value_name = "ADDR:PORT")]
        address: Option<SocketAddr>,
        /// Subsystem of another target
        #[arg(long, value_name = "NQN")]
        subnqn: Option<String>,
        /// Namespace of another target
        #[arg(long)]
        nsid: Option<u32>,
        /// Drive to emulate: dct983, 970pro, ... or a file that holds a profile
        #[arg(long, value_name = "NAME|FILE")]
        profile: Option<String>,
        /// What was done to that drive before: empty, clean, fragmented, or fragmented=NN% of it
        /// [default: empty]
        #[arg(long)]
        condition: Option<ConditionName>,
        /// Where its content is [default: memory]
        #[arg(long)]
        store: Option<StoreName>,
        /// What chance in its condition follows from [default: 1]
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Make it this many times slower, so that the rest of the machine counts for less
        /// [default: 1]
        #[arg(long, value_name = "N")]
        dilation: Option<u32>,
        /// Parallel units to deal the zones of a zoned device out to [default: up to 16, of 32
        /// zones each]
        #[arg(long, value_name = "N")]
        units: Option<u32>,
        /// Scheduling policy of the switch in front of it
        #[arg(long, default_value = "fair")]
        policy: PolicyName,
    },
    /// Measure what a device can give, which guarantees are held against
    #[command(
        after_help = "Examples:\n  flashyard device calibrate ssd0\n  flashyard device calibrate disk0 --destroy\n\n\
        An emulated drive is measured by a copy of its model. Any other device is read for four seconds; with --destroy\n\
        it is also written, and its content is lost, which is only done while nothing uses it."
    )]
    Calibrate {
        /// Its name
        name: String,
        /// Measure writes too: its content is lost
        #[arg(long)]
        destroy: bool,
    },
    /// Change the policy of a device while it is used; no I/O fails
    #[command(after_help = "Example:\n  flashyard device set ssd0 --policy fair")]
    Set {
        /// Its name
        name: String,
        /// The algorithm of the switch in front of it
        #[arg(long)]
        policy: PolicyName,
    },
    /// Delete a device that nothing uses; what it stores stays on it
    Delete {
        /// Its name
        name: String,
    },
}

/// `flashyard partition`.
#[derive(Args, Debug)]
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
    #[arg(long, value_name = "LIST")]
    pub channels: Option<String>,
    /// Single units, each a channel and a number there, such as 0.0,1.0
    #[arg(long, value_name = "LIST")]
    pub units: Option<String>,
    /// So many units, on as few channels as possible
    #[arg(long, value_name = "N")]
    pub count: Option<u32>,
}

/// What can be done with partitions.
#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// List all partitions
    List,
    /// Show one partition: capacity, bandwidth, write amplification, wear, units
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
        #[arg(long)]
        device: String,
        /// Which units.
        #[command(flatten)]
        units: UnitsArgs,
        /// Flash kept beyond the capacity, in percent of it
        #[arg(long, value_name = "PERCENT", default_value = "20%")]
        op: String,
        /// Scheduling policy of the switch in front of it
        #[arg(long, default_value = "fair")]
        policy: PolicyName,
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
    Delete {
        /// Its name
        name: String,
        /// Yes, destroy the data
        #[arg(long)]
        yes: bool,
    },
}

/// `flashyard pool`.
#[derive(Args, Debug)]
pub struct PoolArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// What can be done with pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List all pools
    List,
    /// Show one pool
    Show {
        /// Its name
        name: String,
    },
    /// Create a pool on a device (a device that already holds a pool is refused)
    #[command(after_help = "Example:\n  flashyard pool create fast --device ssd0")]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// The device to divide
        #[arg(long)]
        device: String,
        /// Even if the device holds something: all of it is lost
        #[arg(long)]
        force: bool,
    },
    /// Delete a pool without volumes
    Delete {
        /// Its name
        name: String,
    },
}

/// `flashyard volume`.
#[derive(Args, Debug)]
pub struct VolumeArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// What can be done with volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List all volumes
    List,
    /// Show one volume
    Show {
        /// Its name
        name: String,
    },
    /// Create a volume and attach it to its tenant's subsystem
    #[command(
        after_help = "Examples:\n  flashyard volume create orders --pool fast --size 2GiB --tenant db\n  \
        flashyard volume create whole --device ssd1 --tenant db\n  \
        flashyard volume create imported --device disk7 --tenant db --keep\n  \
        flashyard volume create taken --pool fast --size 2GiB --tenant db --nsid 3 \\\n    \
        --uuid 2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11 --nguid 2f0d1c4652c54b0f9a1c0d3a5f2b7e11\n\n\
        Hosts know a disk by its identifiers: with those of another target's volume, and its NQN at the tenant, they\n\
        take this one for the same. Identifiers are fixed from now on, except that `volume move` gives another nsid."
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// The pool to cut it from
        #[arg(
            long,
            conflicts_with = "device",
            required_unless_present = "device",
            requires = "size"
        )]
        pool: Option<String>,
        /// The device to give away whole
        #[arg(long, conflicts_with = "size")]
        device: Option<String>,
        /// Its size
        #[arg(long)]
        size: Option<Size>,
        /// Who it belongs to
        #[arg(long)]
        tenant: String,
        /// Give the device away with the data on it, which the tenant can read then
        #[arg(long, conflicts_with_all = ["pool", "erase"])]
        keep: bool,
        /// Zero the device first, whatever is on it
        #[arg(long, conflicts_with = "pool")]
        erase: bool,
        /// UUID of its namespace [default: a new one]
        #[arg(long)]
        uuid: Option<NamespaceUuid>,
        /// NGUID of its namespace, 32 hexadecimal digits [default: the bytes of the UUID]
        #[arg(long, value_name = "HEX")]
        nguid: Option<Nguid>,
        /// EUI64 of its namespace, 16 hexadecimal digits [default: none]
        #[arg(long, value_name = "HEX")]
        eui64: Option<Eui64>,
        /// Number of its namespace in the tenant's subsystem, 1 to 1024 [default: the next free
        /// one]
        #[arg(long, value_name = "N")]
        nsid: Option<u32>,
        /// Refuse writes from the beginning
        #[arg(long)]
        read_only: bool,
    },
    /// Grow a volume, or refuse or take writes; connected hosts see it at once
    #[command(
        after_help = "Examples:\n  flashyard volume set orders --size 4GiB\n  \
        flashyard volume set orders --read-only on\n\n\
        Writes that were in flight finish; later ones are answered Namespace is Write Protected."
    )]
    Set {
        /// Its name
        name: String,
        /// What is to change.
        #[command(flatten)]
        change: VolumeChangeArgs,
    },
    /// Call a volume otherwise; hosts notice nothing
    #[command(
        after_help = "Example:\n  flashyard volume rename orders orders-2025\n\n\
        A configuration file that still has the old name would make a new volume of it: change the file as well."
    )]
    Rename {
        /// Its name
        name: String,
        /// What it is called from now on
        new: String,
    },
    /// Give a volume with its content to another tenant
    #[command(
        after_help = "Example:\n  flashyard volume move orders --tenant lab --yes\n\n\
        The hosts that have it now lose it, and what they were writing has finished before the other tenant's hosts\n\
        see it; unmount it before. UUID, NGUID and EUI64 stay. Nothing is erased: the other tenant reads all of it."
    )]
    Move {
        /// Its name
        name: String,
        /// Who is to have it
        #[arg(long)]
        tenant: String,
        /// Number of its namespace there [default: the next free one]
        #[arg(long, value_name = "N")]
        nsid: Option<u32>,
        /// Yes, the other tenant may read its data
        #[arg(long)]
        yes: bool,
    },
    /// Delete a volume and everything in it; a device that it has whole is zeroed
    #[command(after_help = "Example:\n  flashyard volume delete orders --yes")]
    Delete {
        /// Its name
        name: String,
        /// Yes, its data may be lost
        #[arg(long)]
        yes: bool,
    },
}

/// What `flashyard volume set` can change, one at a time.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct VolumeChangeArgs {
    /// The new size, not less than the present one
    #[arg(long)]
    pub size: Option<Size>,
    /// Whether writes are refused
    #[arg(long)]
    pub read_only: Option<OnOff>,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOff {
    /// It is so.
    On,
    /// It is not.
    Off,
}

/// `flashyard why`.
#[derive(Args, Debug)]
pub struct WhyArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// The tenant
    pub tenant: String,
}
