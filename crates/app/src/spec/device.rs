//! Something that stores blocks: what each kind of device has, and nothing else. `flat.rs` is how
//! it is written.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_nvme::Nqn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::array::ArraySpec;
use super::conditions::Conditions;
use super::crypt::CryptSpec;
use super::drive::{ConditionName, StoreName, is_file};
use super::error::{DILATION_MOST, DeviceError, PartitionError, SIZE_LEAST, SpecError, check_name};
use super::fault::{FaultLayerSpec, FaultSpec};
use super::flat::FlatDevice;
use super::kind::{DeviceKind, LoadPoint};
use super::partition::{PartitionSpec, Unlike};
use super::policy_name::PolicyName;
use super::rates::RatesSpec;
use super::size::Size;

/// Something that stores blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "FlatDevice", into = "FlatDevice")]
pub struct DeviceSpec {
    /// Unique among devices.
    pub name: String,
    /// Bytes per block, 512 or 4096.
    pub block_size: u32,
    /// What it stores them in.
    pub medium: Medium,
    /// The algorithm of the switch in front of it.
    pub policy: PolicyName,
    /// What it can give at most, which guarantees are held against; measured by `device calibrate`.
    pub capability: Option<RatesSpec>,
    /// How long its reads take at several loads, the least load first; measured by `device
    /// calibrate`.
    pub curve: Vec<LoadPoint>,
    /// When and how it was measured.
    pub calibration: Option<Conditions>,
    /// What is on it comes from users of this target, or nothing is on it: it may be zeroed for its
    /// next user without a question. Kept by the target, not for files.
    pub disposable: bool,
}

/// What a device stores blocks in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nothing: it reads as zeroes.
    Null {
        /// How large it says to be.
        size: Size,
    },
    /// Memory.
    Memory {
        /// How large it is.
        size: Size,
    },
    /// A regular file.
    File {
        /// Where it is.
        path: String,
        /// How large a new one is made.
        size: Option<Size>,
    },
    /// A kernel block device.
    Block {
        /// Where it is.
        path: String,
    },
    /// An emulated drive.
    Flash(FlashSpec),
    /// An emulated open-channel device, for partitions.
    OpenChannel(ChannelsSpec),
    /// A host-managed zoned block device of the kernel, for partitions.
    Zoned {
        /// Where it is.
        path: String,
        /// Parallel units that its zones are dealt out to; as many as make sense if not given.
        units: Option<u32>,
    },
    /// Parallel units of an open-channel or zoned device.
    Partition(PartitionSpec),
    /// A namespace of another target.
    NvmeTcp(RemoteSpec),
    /// Another device, with faults.
    Fault(FaultLayerSpec),
    /// Another device, encrypted.
    Crypt(CryptSpec),
    /// Several devices.
    Array(ArraySpec),
}

/// An emulated drive. What is not given is as [`DriveSpec`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSpec {
    /// How large it is.
    pub size: Size,
    /// The name of a profile, or a file that holds one.
    pub profile: String,
    /// What was done to it before; nothing if not given.
    pub condition: Option<ConditionName>,
    /// Where its content is; in memory if not given.
    pub store: Option<Store>,
    /// What chance in its condition follows from; 1 if not given.
    pub seed: Option<u64>,
    /// How many times slower than its model it is; 1 if not given.
    pub dilation: Option<u32>,
}

/// An emulated open-channel device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelsSpec {
    /// How large it is.
    pub size: Size,
    /// The name of a profile, or a file that holds one; see `service/partitions.rs` if not given.
    pub profile: Option<String>,
    /// Where its content is; in memory if not given, and never a pattern.
    pub store: Option<Store>,
    /// What chance follows from; 1 if not given.
    pub seed: Option<u64>,
    /// How many times slower than its model it is; 1 if not given.
    pub dilation: Option<u32>,
}

/// A namespace of another target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpec {
    /// Where the other target listens.
    pub address: Address,
    /// Its subsystem.
    pub subnqn: String,
    /// The namespace there; 1 if not given.
    pub nsid: Option<u32>,
}

/// Where the content of an emulated drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In memory, taken as it is written.
    Memory,
    /// In this file.
    File(String),
    /// Nowhere: reads give a pattern that follows from block and write.
    Pattern,
}

/// An emulated drive with all that holds where nothing is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSpec {
    /// The name of a profile, or a file that holds one.
    pub profile: String,
    /// What was done to it before.
    pub condition: Condition,
    /// Where its content is.
    pub store: StoreName,
    /// What chance follows from.
    pub seed: u64,
    /// How many times slower than its model it is.
    pub dilation: u32,
}

impl DeviceSpec {
    /// The device that a partition is.
    pub fn of_partition(name: String, cut: PartitionSpec, policy: PolicyName) -> Self {
        Self {
            name,
            block_size: 4096,
            medium: Medium::Partition(cut),
            policy,
            capability: None,
            curve: Vec::new(),
            calibration: None,
            disposable: false,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> DeviceKind {
        match self.medium {
            Medium::Null { .. } => DeviceKind::Null,
            Medium::Memory { .. } => DeviceKind::Memory,
            Medium::File { .. } => DeviceKind::File,
            Medium::Block { .. } => DeviceKind::Block,
            Medium::Flash(_) => DeviceKind::Flash,
            Medium::OpenChannel(_) => DeviceKind::OpenChannel,
            Medium::Zoned { .. } => DeviceKind::Zoned,
            Medium::Partition(_) => DeviceKind::Partition,
            Medium::NvmeTcp(_) => DeviceKind::NvmeTcp,
            Medium::Fault(_) => DeviceKind::Fault,
            Medium::Crypt(_) => DeviceKind::Crypt,
            Medium::Array(_) => DeviceKind::Array,
        }
    }

    /// The size that was given.
    pub fn size(&self) -> Option<Size> {
        match &self.medium {
            Medium::Null { size } | Medium::Memory { size } => Some(*size),
            Medium::File { size, .. } => *size,
            Medium::Flash(drive) => Some(drive.size),
            Medium::OpenChannel(channels) => Some(channels.size),
            Medium::Block { .. }
            | Medium::Zoned { .. }
            | Medium::Partition(_)
            | Medium::NvmeTcp(_)
            | Medium::Fault(_)
            | Medium::Crypt(_)
            | Medium::Array(_) => None,
        }
    }

    /// The file or block device that it is in.
    pub fn path(&self) -> Option<&String> {
        match &self.medium {
            Medium::File { path, .. } | Medium::Block { path } | Medium::Zoned { path, .. } => {
                Some(path)
            }
            Medium::Flash(FlashSpec { store, .. })
            | Medium::OpenChannel(ChannelsSpec { store, .. }) => match store {
                Some(Store::File(path)) => Some(path),
                _ => None,
            },
            _ => None,
        }
    }

    /// The drive of a `flash` device.
    pub fn drive(&self) -> Option<DriveSpec> {
        match &self.medium {
            Medium::Flash(drive) => Some(drive.complete()),
            _ => None,
        }
    }

    /// What a partition was cut from, and what of it.
    pub fn partition(&self) -> Option<&PartitionSpec> {
        match &self.medium {
            Medium::Partition(cut) => Some(cut),
            _ => None,
        }
    }

    /// The layer that a `fault` device is.
    pub fn fault_layer(&self) -> Option<&FaultLayerSpec> {
        match &self.medium {
            Medium::Fault(layer) => Some(layer),
            _ => None,
        }
    }

    /// The layer that a `crypt` device is.
    pub fn crypt(&self) -> Option<&CryptSpec> {
        match &self.medium {
            Medium::Crypt(layer) => Some(layer),
            _ => None,
        }
    }

    /// Changes what is said of a layer that encrypts; does nothing to a device of another kind.
    pub fn change_crypt(&mut self, change: impl FnOnce(&mut CryptSpec)) {
        if let Medium::Crypt(layer) = &mut self.medium {
            change(layer);
        }
    }

    /// The device that it is a layer before.
    pub fn layer_on(&self) -> Option<&str> {
        match &self.medium {
            Medium::Fault(layer) => Some(&layer.device),
            Medium::Crypt(layer) => Some(&layer.device),
            _ => None,
        }
    }

    /// The faults that it is to inject.
    pub fn faults(&self) -> &[FaultSpec] {
        self.fault_layer().map_or(&[], |layer| &layer.faults)
    }

    /// Has it inject other faults; a device of another kind has none.
    pub fn set_faults(&mut self, faults: Vec<FaultSpec>) {
        if let Medium::Fault(layer) = &mut self.medium {
            layer.faults = faults;
        }
    }

    /// The devices that it stands on, if it does.
    pub fn stands_on(&self) -> Vec<&str> {
        match &self.medium {
            Medium::Partition(cut) => vec![&cut.device],
            Medium::Array(array) => array.all().collect(),
            _ => self.layer_on().into_iter().collect(),
        }
    }

    /// Changes what an `array` device is made of; a device of another kind stays as it is.
    pub fn set_array(&mut self, change: impl FnOnce(&mut ArraySpec)) {
        if let Medium::Array(array) = &mut self.medium {
            change(array);
        }
    }

    /// The device that an `array` is.
    pub fn of_array(name: String, array: ArraySpec, block_size: u32, policy: PolicyName) -> Self {
        Self {
            name,
            block_size,
            medium: Medium::Array(array),
            policy,
            capability: None,
            curve: Vec::new(),
            calibration: None,
            disposable: false,
        }
    }

    /// What an `array` device is made of.
    pub fn array(&self) -> Option<&ArraySpec> {
        match &self.medium {
            Medium::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Checks what its keys say.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name("device", &self.name)?;
        self.check_values()
            .map_err(|error| SpecError::Device(self.name.clone(), error))
    }

    /// Checks the size of a new device, and the units that a partition was given. Those that are
    /// there already may be smaller.
    pub fn check_new(&self) -> Result<(), SpecError> {
        if let Some(Err(Unlike(key, given, said))) = self.partition().map(|cut| cut.asks_for(cut)) {
            let error = DeviceError::Partition(PartitionError::Given(key, said, given));
            return Err(SpecError::Device(self.name.clone(), error));
        }
        match self.size() {
            Some(Size(bytes)) if bytes < SIZE_LEAST => {
                let error = DeviceError::Small(bytes, self.block_size);
                Err(SpecError::Device(self.name.clone(), error))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what the target notes of a device, where a file says it: `unfinished` would have the
    /// partition deleted at the next start.
    pub fn check_of_file(&self) -> Result<(), SpecError> {
        let cut = self.partition();
        let noted = [
            ("disposable", self.disposable),
            ("partition.imported", cut.is_some_and(|cut| cut.imported)),
            (
                "partition.unfinished",
                cut.is_some_and(|cut| cut.unfinished),
            ),
        ];
        match noted.into_iter().find(|(_, is_said)| *is_said) {
            Some((key, _)) => {
                let error = DeviceError::Noted(key);
                Err(SpecError::Device(self.name.clone(), error))
            }
            None => Ok(()),
        }
    }

    fn check_values(&self) -> Result<(), DeviceError> {
        if !matches!(self.block_size, 512 | 4096) {
            return Err(DeviceError::BlockSize(self.block_size));
        }
        if let Some(size) = self.size()
            && (size.0 == 0 || !size.0.is_multiple_of(u64::from(self.block_size)))
        {
            return Err(DeviceError::Size(size.0, self.block_size));
        }
        let for_partitions = matches!(
            self.medium,
            Medium::OpenChannel(_) | Medium::Zoned { .. } | Medium::Partition(_)
        );
        if for_partitions && self.block_size != 4096 {
            return Err(DeviceError::SectorSize);
        }
        match &self.medium {
            Medium::Flash(drive) => check_drive(Some(&drive.profile), drive.dilation),
            Medium::OpenChannel(channels) => {
                check_drive(channels.profile.as_ref(), channels.dilation)
            }
            Medium::Partition(cut) => cut.check().map_err(DeviceError::Partition),
            Medium::NvmeTcp(remote) => remote.subnqn().map(drop),
            Medium::Fault(layer) => {
                let wrong = |error| DeviceError::Fault(Box::new(error));
                layer.check(self.block_size).map_err(wrong)
            }
            Medium::Array(array) => array.check(&self.name),
            _ => Ok(()),
        }
    }
}

impl RemoteSpec {
    /// The subsystem as protocols have it.
    pub fn subnqn(&self) -> Result<Nqn, DeviceError> {
        let wrong = |error| DeviceError::Subnqn(self.subnqn.clone(), error);
        Nqn::new(&self.subnqn).map_err(wrong)
    }
}

impl FlashSpec {
    /// With what holds where nothing is said.
    pub fn complete(&self) -> DriveSpec {
        DriveSpec {
            profile: self.profile.clone(),
            condition: self.condition.map_or(Condition::Empty, |name| name.0),
            store: self.store.as_ref().map_or(StoreName::Memory, Store::name),
            seed: self.seed.unwrap_or(1),
            dilation: self.dilation.unwrap_or(1),
        }
    }
}

impl Store {
    /// What it is called.
    pub fn name(&self) -> StoreName {
        match self {
            Self::Memory => StoreName::Memory,
            Self::File(_) => StoreName::File,
            Self::Pattern => StoreName::Pattern,
        }
    }
}

fn check_drive(profile: Option<&String>, dilation: Option<u32>) -> Result<(), DeviceError> {
    if let Some(profile) = profile
        && !is_file(profile)
        && Profile::named(profile).is_none()
    {
        return Err(DeviceError::Profile(profile.clone()));
    }
    match dilation {
        Some(dilation) if !(1..=DILATION_MOST).contains(&dilation) => {
            Err(DeviceError::Dilation(dilation))
        }
        _ => Ok(()),
    }
}
