//! `flashyard function`: what can be typed about NVMe functions for virtual machines.

use clap::{Args, Subcommand};

use super::reach::Reach;
use crate::options::within;
use crate::spec::{CORES_MOST, DoorbellName, SocketMode};

/// Functions that one command makes at most.
const COUNT_MOST: u64 = 256;

/// `flashyard function`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard function create vm1 --tenant db\n  flashyard function list\n\n\
    docs/virtual-machines.md shows how QEMU, libvirt and Cloud Hypervisor use a function."
)]
pub struct FunctionArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: FunctionCommand,
}

/// Who may use the socket of a function.
#[derive(Args, Clone, Debug)]
pub struct AccessArgs {
    /// Permissions of its socket, such as 0660; who may write to it has the tenant's volumes
    #[arg(long, help_heading = "Access")]
    pub mode: Option<SocketMode>,
    /// Owner of its socket, a user name or number
    #[arg(long, help_heading = "Access", value_name = "USER")]
    pub owner: Option<String>,
    /// Group of its socket, a name or number
    #[arg(long, help_heading = "Access")]
    pub group: Option<String>,
}

/// What can be done with functions.
#[derive(Debug, Subcommand)]
pub enum FunctionCommand {
    /// List all functions, and what their guests do
    #[command(after_help = "Example:\n  flashyard function list")]
    List,
    /// Show one function
    #[command(after_help = "Example:\n  flashyard function show vm1")]
    Show {
        /// Its name
        name: String,
    },
    /// Offer a function of a tenant to a virtual machine on this machine
    #[command(
        after_help = "Examples:\n  flashyard function create vm1 --tenant db\n  \
        flashyard function create web --tenant shop --count 8 --group kvm --mode 0660\n\n\
        The guest sees an NVMe drive whose namespaces are the tenant's volumes; those that come, grow or go later it is\n\
        notified of. Without --socket the socket is NAME.sock in the folder of `target set --socket-folder`, or in the\n\
        state directory. One virtual machine at a time uses a function."
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// Whose volumes it shows
        #[arg(long, help_heading = "Owner")]
        tenant: String,
        /// Make so many at once, called NAME-1, NAME-2 and so on
        #[arg(long, help_heading = "Place", value_name = "N", conflicts_with = "socket", value_parser = within::<u32>(1, COUNT_MOST))]
        count: Option<u32>,
        /// Path of its socket
        #[arg(long, help_heading = "Place", value_name = "PATH")]
        socket: Option<String>,
        /// Who may use it.
        #[command(flatten)]
        access: AccessArgs,
        /// How a guest without shadow doorbells rings [default: trapped]
        #[arg(long, help_heading = "Speed")]
        doorbells: Option<DoorbellName>,
        /// How many cores serve its I/O queues at most; more are slower for one volume [default: 1]
        #[arg(long, help_heading = "Speed", value_name = "N", value_parser = within::<usize>(1, CORES_MOST as u64))]
        cores: Option<usize>,
    },
    /// Change who may use the socket of a function, or how its guest rings; who is connected stays
    #[command(
        after_help = "Examples:\n  flashyard function set vm1 --group kvm --mode 0660\n  \
        flashyard function set vm1 --doorbells mapped"
    )]
    Set {
        /// Its name
        name: String,
        /// Who may use it.
        #[command(flatten)]
        access: AccessArgs,
        /// How a guest without shadow doorbells rings, from the next start of the target on
        #[arg(long, help_heading = "Speed")]
        doorbells: Option<DoorbellName>,
        /// How many cores serve its I/O queues at most, from the next start of the target on
        #[arg(long, help_heading = "Speed", value_name = "N", value_parser = within::<usize>(1, CORES_MOST as u64))]
        cores: Option<usize>,
    },
    /// Delete a function; the volumes stay
    #[command(after_help = "Example:\n  flashyard function delete vm1\n\n\
        While a virtual machine is connected this is refused without --yes: its guest would lose the disks as if they\n\
        were pulled out, and what it has not flushed.")]
    Delete {
        /// Its name
        name: String,
        /// Yes, also while a virtual machine is connected
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
}
