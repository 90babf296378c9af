//! A device as it is written, in files, in the state store and in control messages: one flat table
//! whatever its kind. It is read first, so that an error names the key and what may stand there,
//! and becomes then what its kind has, or an error that names the key that is missing or too many.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::array::{ArraySpec, RebuildPriority, Redundancy};
use super::conditions::Conditions;
use super::crypt::{CryptSpec, KeyText};
use super::device::{ChannelsSpec, DeviceSpec, FlashSpec, Medium, RemoteSpec, Store};
use super::drive::{ConditionName, StoreName};
use super::error::{DeviceError, SpecError};
use super::fault::{FaultLayerSpec, FaultSpec};
use super::kind::{DeviceKind, LoadPoint};
use super::namespace_uuid::NamespaceUuid;
use super::partition::PartitionSpec;
use super::policy_name::PolicyName;
use super::rates::{Bandwidth, RatesSpec};
use super::size::Size;

/// Bytes per block when nobody says.
const BLOCK_SIZE: u32 = 4096;

/// All keys of a `[[device]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlatDevice {
    /// Unique among devices.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Size such as `8GiB`; needed for `null`, `memory`, `flash` and new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Bytes per block, 512 or 4096.
    #[serde(default = "default_block_size")]
    pub block_size: u32,
    /// File or block device, for the kinds `file`, `block` and `zoned`; for `flash` and
    /// `open-channel` with `store = "file"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `ADDR:PORT` of the other target, for `nvme-tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Subsystem of the other target, for `nvme-tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnqn: Option<String>,
    /// Namespace of the other target, for `nvme-tcp`; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// The device that a `fault` or `crypt` device stands before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Where the key or passphrase of a `crypt` device is; `device rekey` changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// Which device a `crypt` device or an `array` is: another one in its place is refused; noted
    /// when it is created if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<NamespaceUuid>,
    /// The faults that a `fault` device injects, as a list of tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<FaultSpec>>,
    /// The devices that an `array` is made of; those of a mirror follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<String>>,
    /// How an `array` bears the loss of a device; `none` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
    /// Copies of all data in an `array` with `redundancy = "mirror"`; 2 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Devices of each set of an `array` with parity; all of them if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// Whether each read of an `array` reads all copies and compares them; false if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_read: Option<bool>,
    /// What a rebuild of an `array` is beside the I/O of tenants; `auto` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_priority: Option<RebuildPriority>,
    /// What a rebuild of an `array` writes to each of its devices at most; any rate if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_limit: Option<Bandwidth>,
    /// Devices that take the place of one of an `array` that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spares: Option<Vec<String>>,
    /// The drive that a `flash` device emulates: the name of a profile, or a file that holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What was done to a `flash` drive before; empty if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionName>,
    /// Where the content of a `flash` or `open-channel` device is; in memory if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreName>,
    /// What chance in the condition of a `flash` drive, or in the faults of a `fault` device,
    /// follows from; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many times slower than its model a `flash` drive is; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilation: Option<u32>,
    /// Parallel units that the zones of a `zoned` device are dealt out to; as many as make sense if
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// What a partition was cut from, and what of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionSpec>,
    /// The algorithm of the switch in front of it.
    #[serde(default)]
    pub policy: PolicyName,
    /// What it can give at most, which guarantees are held against; as `device calibrate` measured
    /// it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<RatesSpec>,
    /// How long its reads take at several loads, the least load first; as `device calibrate`
    /// measured it if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<LoadPoint>,
    /// When and how it was measured by `device calibrate`. Kept by the target, not for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Conditions>,
    /// What is on it comes from users of this target, or nothing is on it: it may be zeroed for its
    /// next user without a question. Kept by the target, not for files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disposable: bool,
}

fn default_block_size() -> u32 {
    BLOCK_SIZE
}

impl FlatDevice {
    /// A device of a kind about which nothing else is said.
    pub fn new(name: String, kind: DeviceKind) -> Self {
        Self {
            name,
            kind,
            size: None,
            block_size: BLOCK_SIZE,
            path: None,
            address: None,
            subnqn: None,
            nsid: None,
            device: None,
            key: None,
            uuid: None,
            faults: None,
            devices: None,
            redundancy: None,
            copies: None,
            columns: None,
            safe_read: None,
            rebuild_priority: None,
            rebuild_limit: None,
            spares: None,
            profile: None,
            condition: None,
            store: None,
            seed: None,
            dilation: None,
            units: None,
            partition: None,
            policy: PolicyName::default(),
            capability: None,
            curve: Vec::new(),
            calibration: None,
            disposable: false,
        }
    }

    /// Takes the keys that the kind has.
    fn take_medium(&mut self) -> Result<Medium, DeviceError> {
        let kind = self.kind;
        let needs = |key| move || DeviceError::Needs(kind, key);
        Ok(match kind {
            DeviceKind::Null => Medium::Null {
                size: self.size.take().ok_or_else(needs("size"))?,
            },
            DeviceKind::Memory => Medium::Memory {
                size: self.size.take().ok_or_else(needs("size"))?,
            },
            DeviceKind::File => Medium::File {
                path: self.path.take().ok_or_else(needs("path"))?,
                size: self.size.take(),
            },
            DeviceKind::Block => Medium::Block {
                path: self.path.take().ok_or_else(needs("path"))?,
            },
            DeviceKind::Flash => Medium::Flash(FlashSpec {
                profile: self.profile.take().ok_or_else(needs("profile"))?,
                condition: self.condition.take(),
                store: self.take_store()?,
                seed: self.seed.take(),
                dilation: self.dilation.take(),
                size: self.size.take().ok_or_else(needs("size"))?,
            }),
            DeviceKind::OpenChannel => Medium::OpenChannel(ChannelsSpec {
                profile: self.profile.take(),
                store: match self.take_store()? {
                    Some(Store::Pattern) => return Err(DeviceError::Pattern),
                    store => store,
                },
                seed: self.seed.take(),
                dilation: self.dilation.take(),
                size: self.size.take().ok_or_else(needs("size"))?,
            }),
            DeviceKind::Zoned => Medium::Zoned {
                path: self.path.take().ok_or_else(needs("path"))?,
                units: self.units.take(),
            },
            DeviceKind::Partition => {
                Medium::Partition(self.partition.take().ok_or_else(needs("partition"))?)
            }
            DeviceKind::NvmeTcp => Medium::NvmeTcp(RemoteSpec {
                address: self.address.take().ok_or_else(needs("address"))?,
                subnqn: self.subnqn.take().ok_or_else(needs("subnqn"))?,
                nsid: self.nsid.take(),
            }),
            DeviceKind::Fault => Medium::Fault(FaultLayerSpec {
                device: self.device.take().ok_or_else(needs("device"))?,
                seed: self.seed.take(),
                faults: self.faults.take().unwrap_or_default(),
            }),
            DeviceKind::Crypt => Medium::Crypt(CryptSpec {
                device: self.device.take().ok_or_else(needs("device"))?,
                key: self.key.take().ok_or_else(needs("key"))?,
                uuid: self.uuid.take(),
            }),
            DeviceKind::Array => Medium::Array(ArraySpec {
                devices: self.devices.take().ok_or_else(needs("devices"))?,
                spares: self.spares.take().unwrap_or_default(),
                redundancy: self.redundancy.take(),
                copies: self.copies.take(),
                columns: self.columns.take(),
                safe_read: self.safe_read.take(),
                rebuild_priority: self.rebuild_priority.take().unwrap_or_default(),
                rebuild_limit: self.rebuild_limit.take(),
                uuid: self.uuid.take(),
            }),
        })
    }

    fn take_store(&mut self) -> Result<Option<Store>, DeviceError> {
        Ok(match self.store.take() {
            None => None,
            Some(StoreName::Memory) => Some(Store::Memory),
            Some(StoreName::Pattern) => Some(Store::Pattern),
            Some(StoreName::File) => match self.path.take() {
                Some(path) => Some(Store::File(path)),
                None => return Err(DeviceError::Needs(self.kind, "path")),
            },
        })
    }

    /// A key that the kind has not.
    fn left_over(&self) -> Option<&'static str> {
        let given = [
            ("profile", self.profile.is_some()),
            ("condition", self.condition.is_some()),
            ("store", self.store.is_some()),
            ("seed", self.seed.is_some()),
            ("dilation", self.dilation.is_some()),
            ("units", self.units.is_some()),
            ("partition", self.partition.is_some()),
            ("size", self.size.is_some()),
            ("path", self.path.is_some()),
            ("address", self.address.is_some()),
            ("subnqn", self.subnqn.is_some()),
            ("nsid", self.nsid.is_some()),
            ("device", self.device.is_some()),
            ("key", self.key.is_some()),
            ("uuid", self.uuid.is_some()),
            ("faults", self.faults.is_some()),
            ("devices", self.devices.is_some()),
            ("redundancy", self.redundancy.is_some()),
            ("copies", self.copies.is_some()),
            ("columns", self.columns.is_some()),
            ("safe_read", self.safe_read.is_some()),
            ("rebuild_priority", self.rebuild_priority.is_some()),
            ("rebuild_limit", self.rebuild_limit.is_some()),
            ("spares", self.spares.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(key, _)| key)
    }
}

impl TryFrom<FlatDevice> for DeviceSpec {
    type Error = SpecError;
    fn try_from(mut flat: FlatDevice) -> Result<Self, SpecError> {
        let medium = flat
            .take_medium()
            .and_then(|medium| match flat.left_over() {
                Some(key) => Err(DeviceError::HasNo(flat.kind, key)),
                None => Ok(medium),
            });
        match medium {
            Ok(medium) => Ok(Self {
                name: flat.name,
                block_size: flat.block_size,
                medium,
                policy: flat.policy,
                capability: flat.capability,
                curve: flat.curve,
                calibration: flat.calibration,
                disposable: flat.disposable,
            }),
            Err(error) => Err(SpecError::Device(flat.name, error)),
        }
    }
}

impl From<DeviceSpec> for FlatDevice {
    fn from(spec: DeviceSpec) -> Self {
        let kind = spec.kind();
        let mut flat = Self {
            block_size: spec.block_size,
            policy: spec.policy,
            capability: spec.capability,
            curve: spec.curve,
            calibration: spec.calibration,
            disposable: spec.disposable,
            ..Self::new(spec.name, kind)
        };
        flat.put_medium(spec.medium);
        flat
    }
}

impl FlatDevice {
    fn put_medium(&mut self, medium: Medium) {
        match medium {
            Medium::Null { size } | Medium::Memory { size } => self.size = Some(size),
            Medium::File { path, size } => (self.path, self.size) = (Some(path), size),
            Medium::Block { path } => self.path = Some(path),
            Medium::Flash(drive) => {
                self.profile = Some(drive.profile);
                self.condition = drive.condition;
                self.put_store(drive.store);
                (self.seed, self.dilation) = (drive.seed, drive.dilation);
                self.size = Some(drive.size);
            }
            Medium::OpenChannel(channels) => {
                self.profile = channels.profile;
                self.put_store(channels.store);
                (self.seed, self.dilation) = (channels.seed, channels.dilation);
                self.size = Some(channels.size);
            }
            Medium::Zoned { path, units } => (self.path, self.units) = (Some(path), units),
            Medium::Partition(cut) => self.partition = Some(cut),
            Medium::NvmeTcp(remote) => {
                self.address = Some(remote.address);
                self.subnqn = Some(remote.subnqn);
                self.nsid = remote.nsid;
            }
            Medium::Fault(layer) => {
                (self.device, self.seed) = (Some(layer.device), layer.seed);
                self.faults = Some(layer.faults).filter(|faults| !faults.is_empty());
            }
            Medium::Crypt(layer) => {
                (self.device, self.key) = (Some(layer.device), Some(layer.key));
                self.uuid = layer.uuid;
            }
            Medium::Array(array) => {
                (self.devices, self.redundancy) = (Some(array.devices), array.redundancy);
                self.spares = Some(array.spares).filter(|spares| !spares.is_empty());
                (self.copies, self.safe_read) = (array.copies, array.safe_read);
                self.columns = array.columns;
                self.rebuild_limit = array.rebuild_limit;
                let said = Some(array.rebuild_priority);
                self.rebuild_priority = said.filter(|it| *it != RebuildPriority::default());
                self.uuid = array.uuid;
            }
        }
    }

    fn put_store(&mut self, store: Option<Store>) {
        self.store = store.as_ref().map(Store::name);
        if let Some(Store::File(path)) = store {
            self.path = Some(path);
        }
    }
}
