//! `flashyard device`: what can be typed about devices.

use clap::{Args, Subcommand};

use super::reach::Reach;
use crate::options::whole;
use crate::spec::{
    Address, ConditionName, DeviceKind, FaultSpec, KeyText, PolicyName, Size, StoreName,
};

/// `flashyard device`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard device create ram0 --kind memory --size 1GiB\n  flashyard device list"
)]
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
#[expect(
    clippy::large_enum_variant,
    reason = "there is one in the life of a command"
)]
pub enum DeviceCommand {
    /// List all devices
    #[command(after_help = "Example:\n  flashyard device list")]
    List,
    /// Show one device
    #[command(
        after_help = "Examples:\n  flashyard device show ssd0\n  flashyard device show ssd0 --json"
    )]
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
        flashyard device create far0 --kind nvme-tcp --address 127.0.0.1:4420 --subnqn nqn.2026-11.dev.flashyard:db\n  \
        flashyard device create bad0 --kind fault --device ram0 --fault poison,rate=0.1% --fault latency,latency=5ms\n  \
        flashyard device create safe0 --kind crypt --device disk0 --key file:/etc/flashyard/safe0.key\n  \
        flashyard device create safe1 --kind crypt --device disk1 --key passphrase-file:/etc/flashyard/safe1"
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// What it is
        #[arg(long, help_heading = "Device")]
        kind: DeviceKind,
        /// Size (null, memory, flash, new files)
        #[arg(long, help_heading = "Device")]
        size: Option<Size>,
        /// Bytes per block: 512 or 4096
        #[arg(long, help_heading = "Device", default_value_t = 4096, value_parser = whole::<u32>("device", "block_size"))]
        block_size: u32,
        /// File or block device
        #[arg(long, help_heading = "Device")]
        path: Option<String>,
        /// Address of another target
        #[arg(long, help_heading = "Another target", value_name = "HOST:PORT")]
        address: Option<Address>,
        /// Subsystem of another target
        #[arg(long, help_heading = "Another target", value_name = "NQN")]
        subnqn: Option<String>,
        /// Namespace of another target
        #[arg(long, help_heading = "Another target", value_parser = whole::<u32>("volume", "nsid"))]
        nsid: Option<u32>,
        /// Drive to emulate: dct983, 970pro, ... or a file that holds a profile
        #[arg(long, help_heading = "Emulated drive", value_name = "NAME|FILE")]
        profile: Option<String>,
        /// What was done to that drive before: empty, clean, fragmented, or fragmented=NN% of it
        /// [default: empty]
        #[arg(long, help_heading = "Emulated drive")]
        condition: Option<ConditionName>,
        /// Where its content is [default: memory]
        #[arg(long, help_heading = "Emulated drive")]
        store: Option<StoreName>,
        /// What chance in its condition or its faults follows from [default: 1]
        #[arg(long, help_heading = "Emulated drive", value_name = "N", value_parser = whole::<u64>("device", "seed"))]
        seed: Option<u64>,
        /// Make it this many times slower, so that the rest of the machine counts for less
        /// [default: 1]
        #[arg(long, help_heading = "Emulated drive", value_name = "N", value_parser = whole::<u32>("device", "dilation"))]
        dilation: Option<u32>,
        /// Parallel units to deal the zones of a zoned device out to [default: up to 16, of 32
        /// zones each]
        #[arg(long, help_heading = "Zoned device", value_name = "N", value_parser = whole::<u32>("device", "units"))]
        units: Option<u32>,
        /// Device to encrypt, or to inject faults before
        #[arg(long, help_heading = "Layers", value_name = "NAME")]
        device: Option<String>,
        /// Where the key is: file:PATH, command:PROGRAM ARGUMENT... or credential:NAME (of
        /// systemd), which give 32 bytes of chance or more; the same after `passphrase-` for a
        /// passphrase, such as passphrase-file:PATH
        #[arg(long, help_heading = "Encryption", value_name = "PLACE")]
        key: Option<KeyText>,
        /// Encrypt a device that holds something: that is lost
        #[arg(long, help_heading = "Encryption")]
        force: bool,
        /// Fault to inject, such as poison,rate=0.1%,on=read,from=1GiB,to=2GiB; can be given again
        #[arg(
            long,
            help_heading = "Faults on purpose",
            value_name = "FAULT[,KEY=VALUE]..."
        )]
        fault: Vec<FaultSpec>,
        /// Scheduling policy of the switch in front of it
        #[arg(long, help_heading = "Sharing", default_value = "fair")]
        policy: PolicyName,
    },
    /// Measure what a device can give, which guarantees are held against
    #[command(
        after_help = "Examples:\n  flashyard device calibrate ssd0\n  flashyard device calibrate disk0 --destroy\n\n\
        No data are lost unless --destroy is given. An emulated drive is measured by a copy of its model, a device\n\
        with a pool in a volume that is made for that and deleted again, a device that a volume has whole by reading what\n\
        is on it. A device that nothing uses is only measured with --destroy, for nothing is known to be on it to be read.\n\
        Each load is repeated until two runs agree. It takes 10 to 20 seconds, in which the device is busy; Ctrl-C ends it."
    )]
    Calibrate {
        /// Its name
        name: String,
        /// Write over what is on it, which is lost; only while nothing uses it
        #[arg(long, help_heading = "Measurement")]
        destroy: bool,
    },
    /// Change the policy of a device, or the faults that it injects, while it is used
    #[command(
        after_help = "Examples:\n  flashyard device set ssd0 --policy fair\n  \
        flashyard device set bad0 --fault lost,every=1000 --fault hang,on=write\n  \
        flashyard device set bad0 --no-faults\n\n\
        No I/O fails by a change of the policy. Faults are replaced as a whole; one that stays as it was goes on counting."
    )]
    Set {
        /// Its name
        name: String,
        /// What is to change
        #[command(flatten)]
        change: DeviceSetArgs,
    },
    /// Open a device that could not be opened at the start, with what stands on it
    #[command(after_help = "Example:\n  flashyard device start safe0\n\n\
        Of use when a disk was away then, or the key of an encrypted device: it is fetched once more.")]
    Start {
        /// Its name
        name: String,
    },
    /// Change the key or passphrase of an encrypted device, while it is used
    #[command(
        after_help = "Examples:\n  flashyard device rekey safe0 --key file:/etc/flashyard/new.key\n  \
        flashyard device rekey safe0 --key credential:safe0\n\n\
        The key that data are encrypted with stays, and is encrypted anew: no data are rewritten. Whoever has the former\n\
        key or passphrase and a copy of the first mebibyte of the device from before can still read it."
    )]
    Rekey {
        /// Its name
        name: String,
        /// Where the new key or passphrase is, as for `device create`
        #[arg(long, help_heading = "Encryption", value_name = "PLACE")]
        key: KeyText,
    },
    /// Delete a device that nothing uses; what it stores stays on it. A partition is deleted with
    /// `partition delete`
    #[command(
        after_help = "Examples:\n  flashyard device delete ssd0\n  flashyard device delete safe0 --erase --yes"
    )]
    Delete {
        /// Its name
        name: String,
        /// Forget the key of an encrypted device: no one can read what is on it
        #[arg(long, help_heading = "Encryption")]
        erase: bool,
        /// Do not ask: with --erase all data on it are lost
        #[arg(long, help_heading = "Encryption", requires = "erase")]
        yes: bool,
    },
}

/// What can be changed of a device.
#[derive(Args, Debug)]
#[group(required = true)]
pub struct DeviceSetArgs {
    /// The algorithm of the switch in front of it
    #[arg(long, help_heading = "Sharing", conflicts_with_all = ["fault", "no_faults"])]
    pub policy: Option<PolicyName>,
    /// Fault to inject from now on, of a device of kind `fault`; can be given again
    #[arg(
        long,
        help_heading = "Faults on purpose",
        value_name = "FAULT[,KEY=VALUE]...",
        conflicts_with = "no_faults"
    )]
    pub fault: Vec<FaultSpec>,
    /// Inject no faults any more
    #[arg(long, help_heading = "Faults on purpose")]
    pub no_faults: bool,
}
