//! The command line. Everything a user can type stands here; what it does stands in the modules
//! named alike.

mod audit;
mod device;
mod events;
mod function;
mod generate;
mod health;
mod host_stats;
mod iostat;
mod lab;
mod partition;
mod reach;
mod sim;
mod snapshot;
mod target;
mod tenant;
mod top;
mod volume;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::control::Level;
use crate::failure::Failure;
use crate::log::LogForm;
use crate::options::{whole, within};
use crate::perf::PerfArgs;
use crate::spec::{Address, Size, Span};

pub use audit::AuditArgs;
pub use device::{DeviceArgs, DeviceCommand};
pub use events::EventsArgs;
pub use function::{FunctionArgs, FunctionCommand};
pub use generate::{GenerateArgs, GenerateCommand, Shell};
pub use health::{HealthArgs, HealthCommand};
pub use host_stats::HostStatsArgs;
pub use iostat::IostatArgs;
pub use lab::{LabArgs, LabCommand, LabRunArgs};
pub use partition::{PartitionArgs, PartitionCommand, UnitsArgs};
pub use reach::Reach;
pub use sim::SimArgs;
pub use snapshot::{CloneArgs, SnapshotArgs, SnapshotCommand};
pub use target::{TargetArgs, TargetCommand, TargetSetArgs};
pub use tenant::{TenantArgs, TenantCommand};
pub use top::TopArgs;
pub use volume::{
    MoveGoalArgs, OnOff, PoolArgs, PoolCommand, RebuildArgs, VolumeArgs, VolumeCommand,
};

/// A storage target for people who share flash: volumes for many tenants over NVMe/TCP.
#[derive(Debug, Parser)]
#[command(
    name = "flashyard",
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "Examples:\n  flashyard demo\n  flashyard serve --state ./state --config flashyard.toml\n  \
    flashyard status --state ./state\n\n\
    Where examples say flashyard and no such program is found, type its path, such as target/release/flashyard.\n\
    Commands find the running target by its state directory: give them the --state that `serve` has, or set\n\
    FLASHYARD_STATE; without either, both use the same default. Each command has examples: flashyard COMMAND --help."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was typed. Help that was asked for is printed and ends the program.
    pub fn typed() -> Result<Self, Failure> {
        let mut command = with_negative_numbers(Self::command());
        let typed = command.try_get_matches_from_mut(std::env::args_os());
        let typed = typed.and_then(|typed| Self::from_arg_matches(&typed));
        typed.map_err(|error| match error.use_stderr() {
            true => Failure::Usage(error.format(&mut command)),
            false => error.exit(),
        })
    }
}

/// `-5` is a value that an option may refuse with a reason, and no option of its own.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(with_negative_numbers)
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
    /// List, create, compare, restore, share and delete snapshots: volumes as they were
    Snapshot(SnapshotArgs),
    /// List, show, create, change, rename and delete tenants: who may use what
    Tenant(TenantArgs),
    /// List, show, create, change and delete functions: NVMe PCIe controllers for virtual machines
    /// on this machine
    Function(FunctionArgs),
    /// Show and change where the target listens, and the limits that it tells hosts
    Target(TargetArgs),
    /// Show the running target at a glance
    #[command(
        after_help = "Examples:\n  flashyard status\n  flashyard status --check\n  flashyard status --state ./state --json"
    )]
    Status(StatusArgs),
    /// Show what is wrong, by codes that stay the same, and what to do
    #[command(
        after_help = "Examples:\n  flashyard health\n  flashyard health mute POOL_NEARLY_FULL --for 8h\n  \
        flashyard health unmute POOL_NEARLY_FULL"
    )]
    Health(HealthArgs),
    /// Print figures for Prometheus, as OpenMetrics text
    #[command(after_help = "Example:\n  flashyard metrics --state ./state")]
    Metrics(Reach),
    /// Show what comes to tenants, volumes or devices, and how long it takes, again and again
    Iostat(IostatArgs),
    /// Watch what tenants are promised, want and get, and who makes them wait, on the whole
    /// terminal
    Top(TopArgs),
    /// Show what a host has read of its controller: how much I/O came, how long it took and waited
    HostStats(HostStatsArgs),
    /// Show what has happened: who came and went, what was changed, what is wrong
    Events(EventsArgs),
    /// Show who has changed something, or was refused
    Audit(AuditArgs),
    /// Show where a tenant's latency comes from, and who causes it
    #[command(
        after_help = "Examples:\n  flashyard why db\n  flashyard why db --json\n\n\
        The answer covers the last ten to twenty seconds."
    )]
    Why(WhyArgs),
    /// Make the running target have everything that a configuration file names
    Apply(ApplyArgs),
    /// Print the configuration file that makes what the running target has
    Export(ExportArgs),
    /// Write a copy of the running target's state to a file
    Backup(BackupArgs),
    /// Put a copy of the state back, while the target does not run
    Restore(RestoreArgs),
    /// Verify, read-only, a pool on a file or block device, or a file that holds an open-channel
    /// device
    Check(CheckArgs),
    /// Write the pages of the manual, or print what makes a shell complete commands
    Generate(GenerateArgs),
}

/// `flashyard demo`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  flashyard demo\n  flashyard demo --seconds 5 --exit --json")]
pub struct DemoArgs {
    /// How long to measure
    #[arg(long, help_heading = "Measurement", default_value_t = 10, value_parser = within::<u64>(1, 86_400))]
    pub seconds: u64,
    /// Slow the emulated drive down by this much, so that the delays of this machine count for
    /// little
    #[arg(long, help_heading = "Measurement", value_name = "N", default_value_t = 10, value_parser = within::<u32>(1, 1000))]
    pub dilation: u32,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Do not go on with a dashboard after the measurement (so it is, too, when the output is not a
    /// terminal)
    #[arg(long, help_heading = "Measurement")]
    pub exit: bool,
}

/// `flashyard serve`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard serve --config flashyard.toml\n  \
    flashyard serve --state ./state --listen 127.0.0.1:4420\n  \
    flashyard serve --api 192.0.2.7:4421 --api-tokens tokens --api-cert target.crt --api-key target.key\n  \
    flashyard serve --config flashyard.toml --take-over\n\n\
    What the file names is created or changed at start; what it does not name stays as it is in the state.\n\
    SIGHUP applies the file again, as `flashyard apply` does, and reads those of --api anew; one that cannot be used\n\
    changes nothing."
)]
pub struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, help_heading = "Configuration", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// State directory: inventory and the socket of the API
    /// [default: /var/lib/flashyard as root, else ~/.local/state/flashyard]
    #[arg(
        long,
        help_heading = "Configuration",
        value_name = "DIR",
        env = "FLASHYARD_STATE",
        verbatim_doc_comment
    )]
    pub state: Option<PathBuf>,
    /// If the state store is damaged, start from its copy; the damaged file is kept as
    /// state.db.damaged
    #[arg(long, help_heading = "Configuration")]
    pub restore_state: bool,
    /// Only look whether a start with these options could use the state and the file; a target that
    /// runs goes on
    #[arg(long, help_heading = "Configuration", conflicts_with_all = ["take_over", "restore_state"])]
    pub check: bool,
    /// Take over from the target that uses the state, if there is one: first all that can be
    /// checked, then its sockets, so that hosts wait and are not refused; then it ends
    #[arg(long, help_heading = "Configuration", conflicts_with = "restore_state")]
    pub take_over: bool,
    /// Listen here instead of where the file or the state says, until `target set --listen`; may be
    /// repeated
    #[arg(long, help_heading = "Network", value_name = "HOST:PORT")]
    pub listen: Vec<Address>,
    /// Listen here for the REST API as well, for those whom --api-tokens names; without --api-cert
    /// a loopback address
    #[arg(
        long,
        help_heading = "Network",
        value_name = "ADDR:PORT",
        requires = "api_tokens"
    )]
    pub api: Option<SocketAddr>,
    /// File with who may ask at --api, a line each: `read`, `operate` or `admin`, then a token and
    /// a name for it, or `cn:NAME` or `san:NAME` of a client's certificate. SIGHUP reads it anew
    #[arg(long, help_heading = "Network", value_name = "FILE", requires = "api")]
    pub api_tokens: Option<PathBuf>,
    /// Certificate of --api in PEM form, then those between it and its authority: TLS 1.3. SIGHUP
    /// reads it anew
    #[arg(
        long,
        help_heading = "Network",
        value_name = "FILE",
        requires_all = ["api", "api_key"]
    )]
    pub api_cert: Option<PathBuf>,
    /// Private key of --api-cert, which only its owner may read
    #[arg(
        long,
        help_heading = "Network",
        value_name = "FILE",
        requires = "api_cert"
    )]
    pub api_key: Option<PathBuf>,
    /// Who signs certificates of clients. A client needs one, or a token if there are any
    #[arg(
        long,
        help_heading = "Network",
        value_name = "FILE",
        requires = "api_cert"
    )]
    pub api_client_ca: Option<PathBuf>,
    /// Number of cores to serve from, instead of what the file says
    #[arg(long, help_heading = "Cores and memory", value_parser = within::<u16>(1, 256))]
    pub cores: Option<u16>,
    /// Pin core 0 to this processor, core 1 to the next, and so on
    #[arg(long, help_heading = "Cores and memory", value_name = "N")]
    pub processor: Option<usize>,
    /// Microseconds to poll at most for what comes next, where it mostly comes so soon; 0: sleep at
    /// once
    #[arg(long, help_heading = "Cores and memory", value_name = "US", default_value_t = 60, value_parser = within::<u64>(0, 1_000_000))]
    pub poll_us: u64,
    /// Bound of I/O buffer memory of each core, at least 4MiB. With less than 256MiB commands wait
    /// earlier for memory
    #[arg(
        long,
        help_heading = "Cores and memory",
        value_name = "SIZE",
        default_value = "256MiB"
    )]
    pub buffers: Size,
    /// How long an end, also one for --take-over, may wait for what is in flight. Hosts wait 30 s
    #[arg(
        long,
        help_heading = "Cores and memory",
        value_name = "TIME",
        default_value = "60s"
    )]
    pub stop_within: Span,
    /// What to write to standard error
    #[arg(long, help_heading = "Output", value_enum, value_name = "FORM", default_value_t = LogForm::Off)]
    pub log: LogForm,
    /// With --log: leave out what is less urgent. What somebody has to know of is always written
    #[arg(long, help_heading = "Output", value_enum, value_name = "LEVEL", default_value_t = Level::Info)]
    pub log_level: Level,
    /// A sampled I/O that took so long is an event of the kind slow-io; a latency-sensitive one of
    /// a tenant with a latency target when it took four times that, if this is less. 0: none is
    #[arg(
        long,
        help_heading = "Output",
        value_name = "TIME",
        default_value = "1s"
    )]
    pub slow_io: Span,
    /// Print where it listens as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `flashyard discover`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  flashyard discover --connect 127.0.0.1:4420")]
pub struct DiscoverArgs {
    /// Address of the target
    #[arg(long, help_heading = "Target", value_name = "HOST:PORT")]
    pub connect: Address,
    /// Host NQN to ask as
    #[arg(
        long,
        help_heading = "Target",
        value_name = "NQN",
        default_value = "nqn.2026-11.dev.flashyard:host"
    )]
    pub hostnqn: String,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `flashyard apply`.
#[derive(Args, Debug)]
#[command(
    after_help = "Each key by itself: one that the file says holds, also against a change by hand, and that is said; one that\n\
        no file ever said stays as it is; one that the last file said and this one does not returns to its default.\n\
        All of it is done, or nothing.\n\n\
        Examples:\n  flashyard apply flashyard.toml --plan\n  flashyard apply flashyard.toml --prune --yes\n  \
        flashyard apply flashyard.toml --import"
)]
pub struct ApplyArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// Configuration file (TOML)
    pub file: PathBuf,
    /// Only show what would be done: each key, what it says now and what it would say
    #[arg(long, help_heading = "What to do")]
    pub plan: bool,
    /// Delete what the file that was applied last had and this one has no longer
    #[arg(long, help_heading = "What to do")]
    pub prune: bool,
    /// Take over pools and volumes that are on devices already, with what is in them, as after the
    /// state was lost: volumes by their UUID, or by their name where the file says none
    #[arg(long, help_heading = "What to do")]
    pub import: bool,
    /// Also what loses data (--prune), or leaves a tenant without hosts
    #[arg(long, help_heading = "What to do")]
    pub yes: bool,
    /// Also what promises more of a device than it can give, or than its policy keeps
    #[arg(long, help_heading = "What to do")]
    pub force: bool,
}

/// `flashyard backup`.
#[derive(Args, Debug)]
#[command(
    after_help = "The state is all that the target knows of devices, pools, tenants and volumes, and no data of volumes. It may be\n\
        taken while the target runs, and has every change that was acknowledged before.\n\n\
        Example:\n  flashyard backup state-backup.db"
)]
pub struct BackupArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// The file to write; one that is there is not replaced
    pub file: PathBuf,
}

/// `flashyard restore`.
#[derive(Args, Debug)]
#[command(
    after_help = "The target must not run. Volumes that were made after the backup are in their pools, and are taken over with\n\
        `volume import`; those deleted after it are shown as lost.\n\n\
        Example:\n  flashyard restore state-backup.db --state ./state --yes"
)]
pub struct RestoreArgs {
    /// How to find the state.
    #[command(flatten)]
    pub reach: Reach,
    /// The backup
    pub file: PathBuf,
    /// Put it in the place of a state store that is there, and keep that beside it
    #[arg(long, help_heading = "Confirmation")]
    pub yes: bool,
}

/// `flashyard export`.
#[derive(Args, Debug)]
#[command(
    after_help = "Applied to an empty target the file makes the same devices, pools, tenants and volumes, with all that hosts know\n\
        them by; applied where it came from it changes nothing. Where the state was lost and the devices were not:\n\
        flashyard apply FILE --import\n\n\
        Examples:\n  flashyard export\n  flashyard export --output flashyard.toml"
)]
pub struct ExportArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// Write it here instead of to standard output
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub output: Option<PathBuf>,
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
    #[arg(long, help_heading = "Device", default_value_t = 4096, value_parser = whole::<u32>("device", "block_size"))]
    pub block_size: u32,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `flashyard status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// Print one line for a monitor. Status 0: healthy, 3: degraded, 4: failed
    #[arg(long, help_heading = "Output")]
    pub check: bool,
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
