//! `flashyard target`: what can be typed about the target itself.

use clap::{Args, Subcommand};

use super::reach::Reach;
use crate::options::whole;
use crate::spec::{Address, Size};

/// `flashyard target`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard target set --listen 192.0.2.1:4420\n  flashyard target show"
)]
pub struct TargetArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: TargetCommand,
}

/// What can be done with the target itself.
#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// Show where it listens and what it tells hosts
    #[command(after_help = "Examples:\n  flashyard target show\n  flashyard target show --json")]
    Show,
    /// Change that while hosts are connected; what is not given stays as it is
    #[command(
        after_help = "Examples:\n  flashyard target set --listen 192.0.2.1:4420,[2001:db8::1]:4420\n  \
        flashyard target set --max-transfer 256KiB --io-queues 16 --queue-depth 128 --in-capsule 16KiB\n\n\
        --listen holds at once: the answer comes when the target listens at the new addresses; at those that are not\n\
        named any more it takes no new connections, and those that are there stay.\n\
        The others hold for hosts that connect from now on; connected hosts keep what they were given until they\n\
        connect again. All of it is kept over restarts; a configuration file that is applied later overrides it."
    )]
    Set(TargetSetArgs),
}

/// What `flashyard target set` can change.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub struct TargetSetArgs {
    /// How the NQNs of subsystems begin, for tenants made from now on
    #[arg(long, value_name = "NQN", help_heading = "What to change")]
    pub nqn_prefix: Option<String>,
    /// Cores to serve from, from the next start on
    #[arg(long, value_name = "N", help_heading = "What to change")]
    pub cores: Option<u16>,
    /// All addresses to listen at; may be repeated
    #[arg(
        long,
        help_heading = "Network",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub listen: Vec<Address>,
    /// What one command may move (MDTS), a power of two from 8KiB to 1MiB
    #[arg(long, help_heading = "Limits for hosts", value_name = "SIZE")]
    pub max_transfer: Option<Size>,
    /// I/O queues that a host may have, 1 to 1024
    #[arg(long, help_heading = "Limits for hosts", value_name = "N", value_parser = whole::<u16>("target", "io_queues"))]
    pub io_queues: Option<u16>,
    /// Entries of an I/O queue, 2 to 1024
    #[arg(long, help_heading = "Limits for hosts", value_name = "N", value_parser = whole::<u16>("target", "queue_depth"))]
    pub queue_depth: Option<u16>,
    /// Data of a write that may come with its command, a multiple of 16 bytes up to 64KiB, or 0
    #[arg(long, help_heading = "Limits for hosts", value_name = "SIZE")]
    pub in_capsule: Option<Size>,
    /// Folder of the sockets of functions that are made from now on
    #[arg(long, help_heading = "Virtual machines", value_name = "FOLDER")]
    pub socket_folder: Option<String>,
}
