//! `flashyard pool` and `flashyard volume`: what can be typed about the space that tenants use.

use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};

use super::reach::Reach;
use crate::options::whole;
use crate::spec::{
    Bandwidth, CompressionName, Eui64, KeyText, NamespaceUuid, Nguid, RebuildPriority, Redundancy,
    Size, VolumeKind,
};
use crate::units::UnitError;

/// `flashyard pool`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard pool create fast --device ssd0\n  flashyard pool list"
)]
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
    #[command(after_help = "Example:\n  flashyard pool list")]
    List,
    /// Show one pool
    #[command(after_help = "Example:\n  flashyard pool show fast")]
    Show {
        /// Its name
        name: String,
    },
    /// Create a pool on a device (a device that already holds a pool is refused)
    #[command(
        after_help = "Examples:\n  flashyard pool create fast --device ssd0\n  \
        flashyard pool create thin --device ssd1 --kind mapped\n  \
        flashyard pool create vault --device ssd2 --kind mapped --key file:/etc/flashyard/vault.key\n  \
        flashyard pool create safe --devices ssd0,ssd1 --redundancy mirror\n  \
        flashyard pool create wide --devices ssd0,ssd1,ssd2,ssd3 --redundancy mirror --spare ssd4\n  \
        flashyard pool create much --devices ssd0,ssd1,ssd2,ssd3 --redundancy parity --kind mapped\n\n\
        Several devices become one, a device of kind `array` that is called like the pool and goes with it. `none` stripes the data\n\
        over all of them (RAID 0), `mirror` keeps copies (RAID 1), and stripes over several mirrors if there are more devices than\n\
        copies (RAID 10). `parity` bears the loss of one of three to sixteen devices (RAID 5), `double-parity` of two of four to\n\
        sixteen (RAID 6), both for mapped pools.\n\n\
        A raw pool gives space of the device to volumes, with nothing between. In a mapped pool volumes take the space\n\
        that is written and may be larger than it together; every block is verified when it is read. It needs 32 MiB. With a\n\
        key what they store is encrypted, each volume with a key of its own that is forgotten when it is deleted.",
        group(ArgGroup::new("rebuild").multiple(true)
            .args(["rebuild_priority", "rebuild_limit"]).requires("devices"))
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// The device to divide
        #[arg(
            long,
            help_heading = "Place",
            required_unless_present = "devices",
            conflicts_with = "devices"
        )]
        device: Option<String>,
        /// Several devices to divide as one, with commas between them; those of a mirror follow
        /// each other
        #[arg(
            long,
            help_heading = "Place",
            value_name = "A,B",
            value_delimiter = ','
        )]
        devices: Vec<String>,
        /// How it bears the loss of a device: none (raid0), mirror (raid1, raid10), parity (raid5)
        /// or double-parity (raid6) [default: none]
        #[arg(
            long,
            help_heading = "Several devices",
            requires = "devices",
            value_parser = Redundancy::from_str
        )]
        redundancy: Option<Redundancy>,
        /// Copies of all data in a mirror [default: 2]
        #[arg(long, help_heading = "Several devices", value_name = "N", requires = "devices", value_parser = whole::<u32>("device", "copies"))]
        copies: Option<u32>,
        /// Devices of each set that has parity, if they are several sets [default: all]
        #[arg(long, help_heading = "Several devices", value_name = "N", requires = "devices", value_parser = whole::<u32>("device", "columns"))]
        columns: Option<u32>,
        /// Read and compare all copies with each read
        #[arg(long, help_heading = "Several devices", requires = "devices")]
        safe_read: bool,
        /// What a rebuild gets
        #[command(flatten)]
        rebuild: RebuildArgs,
        /// Device that takes the place of one that fails; can be given again
        #[arg(
            long,
            help_heading = "Several devices",
            value_name = "DEVICE",
            requires = "devices"
        )]
        spare: Vec<String>,
        /// Bytes per block of the devices: 512 or 4096
        #[arg(long, help_heading = "Several devices", requires = "devices", default_value_t = 4096, value_parser = whole::<u32>("device", "block_size"))]
        block_size: u32,
        /// How its volumes are kept [default: raw]
        #[arg(long, help_heading = "What to do")]
        kind: Option<VolumeKind>,
        /// Encrypt all volumes; where the key is: file:PATH, command:PROGRAM, credential:NAME, or
        /// one of these after passphrase-
        #[arg(long, help_heading = "Encryption", value_name = "PLACE")]
        key: Option<KeyText>,
        /// What its volumes have that do not say it
        #[command(flatten)]
        defaults: PoolDefaultArgs,
        /// Even if the device holds something: all of it is lost
        #[arg(long, help_heading = "Confirmation")]
        force: bool,
    },
    /// Change what new volumes of a mapped pool have that do not say it, or what a rebuild of a
    /// pool of several devices gets
    #[command(
        after_help = "Examples:\n  flashyard pool set thin --compression lz4\n  \
        flashyard pool set thin --compression none --chunk 0\n  \
        flashyard pool set safe --rebuild-priority low --rebuild-limit 50MB/s\n  \
        flashyard pool set safe --rebuild-limit none",
        group(ArgGroup::new("change").required(true).multiple(true)
            .args(["compression", "chunk", "rebuild_priority", "rebuild_limit"])),
        group(ArgGroup::new("rebuild").multiple(true)
            .args(["rebuild_priority", "rebuild_limit"]).conflicts_with("defaults")),
        group(ArgGroup::new("defaults").multiple(true).args(["compression", "chunk"]))
    )]
    Set {
        /// Its name
        name: String,
        /// What is to change
        #[command(flatten)]
        defaults: PoolDefaultArgs,
        /// What a rebuild gets
        #[command(flatten)]
        rebuild: RebuildArgs,
    },
    /// Take over a pool that is on a device and that the target does not know, after its state was
    /// lost
    #[command(
        after_help = "Examples:\n  flashyard pool import fast --device ssd0 --list\n  \
        flashyard pool import fast --device ssd0 --tenant db\n\n\
        Names, UUIDs and sizes of its volumes are in the pool. A mapped pool also has their tenants, namespace numbers and\n\
        identifiers: volumes whose tenants are there become theirs, as they were. Of a raw pool, with --tenant all\n\
        its volumes become that tenant's, numbered by name; else give them one by one with `volume import`."
    )]
    Import {
        /// What it is called from now on: letters, digits, `-`, `_`, `.`
        name: String,
        /// The device that it is on
        #[arg(
            long,
            help_heading = "Place",
            required_unless_present = "devices",
            conflicts_with = "devices"
        )]
        device: Option<String>,
        /// The devices that it is on, in any order, with commas between them
        #[arg(
            long,
            help_heading = "Place",
            value_name = "A,B",
            value_delimiter = ',',
            conflicts_with = "list"
        )]
        devices: Vec<String>,
        /// No device that is missing was used without these
        #[arg(long, help_heading = "Place", requires = "devices")]
        degraded: bool,
        /// Bytes per block of the devices: 512 or 4096
        #[arg(long, help_heading = "Place", requires = "devices", default_value_t = 4096, value_parser = whole::<u32>("device", "block_size"))]
        block_size: u32,
        /// Who gets all volumes that the target does not know, with what is in them
        #[arg(long, help_heading = "Owner")]
        tenant: Option<String>,
        /// Where the key or passphrase of an encrypted pool is, as for `pool create`
        #[arg(
            long,
            help_heading = "Encryption",
            value_name = "PLACE",
            conflicts_with = "list"
        )]
        key: Option<KeyText>,
        /// Only show what is in it
        #[arg(long, help_heading = "What to do", conflicts_with = "tenant")]
        list: bool,
    },
    /// Open a pool that could not be opened at the start, with its volumes
    #[command(
        after_help = "Examples:\n  flashyard pool start safe\n  flashyard pool start safe --degraded\n\n\
        A mirror of which a device is missing is not opened by itself if that device may have been used without the others: both\n\
        would have data that the other one lacks. --degraded says that it was not. Data that only the missing device has are lost then.\n\
        The key of an encrypted pool is fetched once more. A pool on a device that is not open itself needs `device start`."
    )]
    Start {
        /// Its name
        name: String,
        /// No device that is missing was used without those that are there
        #[arg(long, help_heading = "Confirmation")]
        degraded: bool,
    },
    /// Have a pool use what its device has grown by: a file or disk that was made larger
    #[command(
        after_help = "Example:\n  truncate -s +1G /srv/ssd0.img\n  flashyard pool grow fast\n\n\
        A pool of several devices grows by more of them: `flashyard pool add`."
    )]
    Grow {
        /// Its name
        name: String,
    },
    /// Grow a pool of several devices by more of them, or give it spares
    #[command(
        after_help = "Examples:\n  flashyard pool add safe --devices ssd4,ssd5\n  flashyard pool add safe --spare ssd6"
    )]
    Add {
        /// Its name
        name: String,
        /// Devices to grow by, with commas between them; as many as copies, or a multiple
        #[arg(
            long,
            help_heading = "Devices",
            value_name = "A,B",
            value_delimiter = ',',
            required_unless_present = "spare",
            conflicts_with = "spare"
        )]
        devices: Vec<String>,
        /// Device that takes the place of one that fails; can be given again
        #[arg(long, help_heading = "Devices", value_name = "DEVICE")]
        spare: Vec<String>,
        /// Even if a device holds something: all of it is lost
        #[arg(long, help_heading = "Confirmation")]
        force: bool,
    },
    /// Have another device take the place of one, while the pool is used
    #[command(
        after_help = "Examples:\n  flashyard pool replace safe --device ssd1 --with ssd7\n  \
        flashyard pool replace safe --device ssd1\n\n\
        Without --with the device itself comes back after it had failed, and gets what it lacks. A device that works is\n\
        used until the new one has everything."
    )]
    Replace {
        /// Its name
        name: String,
        /// The device that goes
        #[arg(long, help_heading = "Devices")]
        device: String,
        /// The device that comes
        #[arg(long, help_heading = "Devices", value_name = "DEVICE")]
        with: Option<String>,
        /// Even if that holds something: all of it is lost
        #[arg(long, help_heading = "Confirmation")]
        force: bool,
    },
    /// Take a spare, or a device that was replaced, out of a pool
    #[command(after_help = "Example:\n  flashyard pool remove safe --device ssd6")]
    Remove {
        /// Its name
        name: String,
        /// The device that goes
        #[arg(long, help_heading = "Devices")]
        device: String,
    },
    /// Read all copies of everything in the background, and repair what differs
    #[command(
        after_help = "Examples:\n  flashyard pool scrub safe\n  flashyard pool scrub safe --stop\n\n\
        `pool show` has how far it is, and what it found."
    )]
    Scrub {
        /// Its name
        name: String,
        /// End it
        #[arg(long, help_heading = "What to do")]
        stop: bool,
    },
    /// Change the key or passphrase of an encrypted pool, while it is used
    #[command(
        after_help = "Examples:\n  flashyard pool rekey vault --key file:/etc/flashyard/new.key\n  \
        flashyard pool rekey vault --key credential:vault\n\n\
        The keys that data are encrypted with stay: no data are rewritten. Whoever has the former key or passphrase and a copy\n\
        of the first two mebibytes of the device from before can still read what it had then."
    )]
    Rekey {
        /// Its name
        name: String,
        /// Where the new key or passphrase is, as for `pool create`
        #[arg(long, help_heading = "Encryption", value_name = "PLACE")]
        key: KeyText,
    },
    /// Delete a pool without volumes
    #[command(
        after_help = "Examples:\n  flashyard pool delete fast\n  flashyard pool delete vault --erase --yes\n\n\
        A pool that could not be opened stays on its device. --erase deletes an encrypted one there as well, without its key: all\n\
        keys of its volumes are overwritten, and the volumes go with it. No one can read them again."
    )]
    Delete {
        /// Its name
        name: String,
        /// Overwrite all keys of an encrypted pool, even if it cannot be opened; its volumes go
        /// with it then
        #[arg(long, help_heading = "Encryption")]
        erase: bool,
        /// Do not ask: with --erase all data in it are lost
        #[arg(long, help_heading = "Encryption", requires = "erase")]
        yes: bool,
    },
}

/// `flashyard volume`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard volume create orders --pool fast --size 2GiB --tenant db\n  flashyard volume list"
)]
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
    /// List all volumes, or those of a tenant or in a pool
    #[command(
        after_help = "Examples:\n  flashyard volume list\n  flashyard volume list --tenant db --pool fast\n  \
        flashyard volume list --json"
    )]
    List {
        /// Only those of this tenant
        #[arg(long, help_heading = "What to show", value_name = "NAME")]
        tenant: Option<String>,
        /// Only those in this pool
        #[arg(long, help_heading = "What to show", value_name = "NAME")]
        pool: Option<String>,
    },
    /// Show one volume
    #[command(after_help = "Example:\n  flashyard volume show orders")]
    Show {
        /// Its name
        name: String,
    },
    /// Create a volume and attach it to its tenant's subsystem
    #[command(
        after_help = "Examples:\n  flashyard volume create orders --pool fast --size 2GiB --tenant db\n  \
        flashyard volume create docs --pool safe --kind mapped --size 1TiB --tenant db\n  \
        flashyard volume create logs --pool safe --size 1TiB --tenant db --compression lz4\n  \
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
            help_heading = "Place",
            conflicts_with = "device",
            required_unless_present = "device",
            requires = "size"
        )]
        pool: Option<String>,
        /// The device to give away whole
        #[arg(long, help_heading = "Place", conflicts_with = "size")]
        device: Option<String>,
        /// How it is kept: as its pool keeps volumes [default: that]
        #[arg(long, help_heading = "Place", conflicts_with = "device")]
        kind: Option<VolumeKind>,
        /// How it is compressed, in a mapped pool [default: none]
        #[arg(long, help_heading = "Data", conflicts_with = "device")]
        compression: Option<CompressionName>,
        /// What is stored as a whole, 4KiB or 16KiB, in a mapped pool [default: 16KiB if it is
        /// compressed, else 4KiB]
        #[arg(
            long,
            help_heading = "Data",
            value_name = "SIZE",
            conflicts_with = "device"
        )]
        chunk: Option<Size>,
        /// Its size
        #[arg(long, help_heading = "Place")]
        size: Option<Size>,
        /// Space of its mapped pool that no other volume can have [default: none]
        #[arg(
            long,
            help_heading = "Place",
            value_name = "SIZE",
            conflicts_with = "device"
        )]
        reserve: Option<Size>,
        /// Who it belongs to
        #[arg(long, help_heading = "Owner")]
        tenant: String,
        /// Give the device away with the data on it, which the tenant can read then
        #[arg(long, help_heading = "Content", conflicts_with_all = ["pool", "erase"])]
        keep: bool,
        /// Zero the device first, whatever is on it
        #[arg(long, help_heading = "Content", conflicts_with = "pool")]
        erase: bool,
        /// UUID of its namespace [default: a new one]
        #[arg(long, help_heading = "Identity")]
        uuid: Option<NamespaceUuid>,
        /// NGUID of its namespace, 32 hexadecimal digits [default: the bytes of the UUID]
        #[arg(long, help_heading = "Identity", value_name = "HEX")]
        nguid: Option<Nguid>,
        /// EUI64 of its namespace, 16 hexadecimal digits [default: none]
        #[arg(long, help_heading = "Identity", value_name = "HEX")]
        eui64: Option<Eui64>,
        /// Number of its namespace in the tenant's subsystem, 1 to 1024 [default: the next free
        /// one]
        #[arg(long, help_heading = "Identity", value_name = "N", value_parser = whole::<u32>("volume", "nsid"))]
        nsid: Option<u32>,
        /// Refuse writes from the beginning
        #[arg(long, help_heading = "Content")]
        read_only: bool,
        /// Even if its tenant is promised more there than the device can give, or than its policy
        /// keeps
        #[arg(long, help_heading = "Confirmation")]
        force: bool,
    },
    /// Make a volume that begins as a snapshot
    Clone(super::CloneArgs),
    /// Give a volume that is in a pool, and that the target does not know, to a tenant with its
    /// content
    #[command(
        after_help = "Examples:\n  flashyard volume import orders --pool fast --tenant db --nsid 3\n  \
        flashyard volume import orders --pool fast --tenant db --uuid 2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\n\n\
        It keeps its UUID, and by it hosts know the disk. Its number in the tenant's subsystem, and an NGUID or EUI64\n\
        that it was given, are not in the pool: say them if hosts are to find them as they were. With --uuid it may\n\
        have another name in the pool: it is called as you say from now on."
    )]
    Import {
        /// Its name in the pool; with --uuid the name that it gets
        name: String,
        /// The pool that it is in
        #[arg(long, help_heading = "Place")]
        pool: String,
        /// Who gets it, and may read what is in it
        #[arg(long, help_heading = "Owner")]
        tenant: String,
        /// UUID that it has in the pool
        #[arg(long, help_heading = "Identity")]
        uuid: Option<NamespaceUuid>,
        /// Number of its namespace in the tenant's subsystem, 1 to 1024 [default: the next free
        /// one]
        #[arg(long, help_heading = "Identity", value_name = "N", value_parser = whole::<u32>("volume", "nsid"))]
        nsid: Option<u32>,
        /// NGUID of its namespace, 32 hexadecimal digits [default: the bytes of its UUID]
        #[arg(long, help_heading = "Identity", value_name = "HEX")]
        nguid: Option<Nguid>,
        /// EUI64 of its namespace, 16 hexadecimal digits [default: none]
        #[arg(long, help_heading = "Identity", value_name = "HEX")]
        eui64: Option<Eui64>,
        /// Refuse writes from the beginning
        #[arg(long, help_heading = "Content")]
        read_only: bool,
    },
    /// Grow a volume, keep space for it, or refuse or take writes; connected hosts see it at once
    #[command(
        after_help = "Examples:\n  flashyard volume set orders --size 4GiB\n  \
        flashyard volume set orders --reserve 1GiB\n  \
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
    /// Bring a volume to another pool while it is used, or give it to another tenant
    #[command(after_help = "Examples:\n  flashyard volume move orders --to slow\n  \
        flashyard volume move orders --to slow --background\n  \
        flashyard volume move orders --cancel\n  \
        flashyard volume move logs --to-settings --compression zstd\n  \
        flashyard volume move logs --to-settings --compression none --chunk 4KiB --background\n  \
        flashyard volume move orders --tenant lab --yes\n\n\
        To another pool: hosts go on reading and writing, and notice nothing but latency. Until all is copied the volume\n\
        is where it was, so a failure of the other pool harms nothing. It goes on after a restart of the target. A volume that is a\n\
        whole device goes as well; the device is zeroed behind it, and free then.\n\n\
        To other settings: the same within its mapped pool, which needs space for both until all is copied. A volume with\n\
        snapshots, and a clone, stays as it is.\n\n\
        To another tenant: the hosts that have it now lose it, and what they were writing has finished before the other\n\
        tenant's hosts see it; unmount it before. UUID, NGUID and EUI64 stay. Nothing is erased: the other tenant reads\n\
        all of it.")]
    Move {
        /// Its name
        name: String,
        /// What is to become of it.
        #[command(flatten)]
        goal: MoveGoalArgs,
        /// Do not wait until it is there; `volume show` says how far it is
        #[arg(
            long,
            help_heading = "To another pool or settings",
            conflicts_with_all = ["tenant", "cancel"]
        )]
        background: bool,
        /// How its data are compressed from now on [default: as they are]
        #[arg(
            long,
            help_heading = "To another pool or settings",
            requires = "to_settings"
        )]
        compression: Option<CompressionName>,
        /// What is stored and compressed as a whole from now on: 4KiB or 16KiB [default: as it is]
        #[arg(
            long,
            help_heading = "To another pool or settings",
            value_name = "SIZE",
            requires = "to_settings"
        )]
        chunk: Option<Size>,
        /// Number of its namespace there [default: the next free one]
        #[arg(long, help_heading = "To another tenant", value_name = "N", requires = "tenant", value_parser = whole::<u32>("volume", "nsid"))]
        nsid: Option<u32>,
        /// Even if that tenant is promised more there than the device can give, or than its policy
        /// keeps
        #[arg(long, help_heading = "Confirmation")]
        force: bool,
        /// Yes, the other tenant may read its data
        #[arg(long, help_heading = "Confirmation", requires = "tenant")]
        yes: bool,
    },
    /// Delete a volume and everything in it; a device that it has whole is zeroed
    #[command(after_help = "Example:\n  flashyard volume delete orders --yes")]
    Delete {
        /// Its name
        name: String,
        /// Yes, its data may be lost
        #[arg(long, help_heading = "Confirmation")]
        yes: bool,
    },
}

/// Where `flashyard volume move` brings a volume.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct MoveGoalArgs {
    /// The pool that it goes to
    #[arg(
        long,
        help_heading = "To another pool or settings",
        value_name = "POOL"
    )]
    pub to: Option<String>,
    /// It stays in its mapped pool, and is kept there with these settings
    #[arg(long, help_heading = "To another pool or settings")]
    pub to_settings: bool,
    /// Have it stay where it is
    #[arg(long, help_heading = "To another pool or settings")]
    pub cancel: bool,
    /// Who is to have it
    #[arg(long, help_heading = "To another tenant")]
    pub tenant: Option<String>,
}

/// What `flashyard volume set` can change, one at a time.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct VolumeChangeArgs {
    /// The new size, not less than the present one
    #[arg(long, help_heading = "Change")]
    pub size: Option<Size>,
    /// The space of its mapped pool that no other volume can have; 0 is none
    #[arg(long, help_heading = "Change", value_name = "SIZE")]
    pub reserve: Option<Size>,
    /// Whether writes are refused
    #[arg(long, help_heading = "Change")]
    pub read_only: Option<OnOff>,
}

/// What new volumes of a mapped pool have that do not say it.
#[derive(Args, Clone, Debug, Default)]
pub struct PoolDefaultArgs {
    /// How new volumes are compressed that do not say it [default: none]
    #[arg(long, help_heading = "New volumes")]
    pub compression: Option<CompressionName>,
    /// Their chunks, 4KiB or 16KiB; 0 is 16KiB where they are compressed, else 4KiB [default: 0]
    #[arg(long, help_heading = "New volumes", value_name = "SIZE")]
    pub chunk: Option<Size>,
}

/// What the rebuild of a pool of several devices gets beside tenants.
#[derive(Args, Clone, Copy, Debug)]
pub struct RebuildArgs {
    /// What a rebuild is beside tenants, where I/O waits at the switch [default: auto]
    #[arg(long, help_heading = "Several devices", value_name = "PRIORITY")]
    pub rebuild_priority: Option<RebuildPriority>,
    /// What a rebuild writes to each device at most, such as `50MB/s`, or `none` [default: none]
    #[arg(long, help_heading = "Several devices", value_name = "BANDWIDTH", value_parser = parse_rebuild_limit)]
    pub rebuild_limit: Option<Bandwidth>,
}

impl RebuildArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.rebuild_priority.is_some() || self.rebuild_limit.is_some()
    }
}

fn parse_rebuild_limit(text: &str) -> Result<Bandwidth, UnitError> {
    match text {
        "none" => Ok(Bandwidth(0)),
        limit => limit.parse(),
    }
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOff {
    /// It is so.
    On,
    /// It is not.
    Off,
}
