//! A device made of several others: striped, mirrored, or both.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::error::DeviceError;
use super::namespace_uuid::NamespaceUuid;

/// Copies of a mirror where none are given.
const COPIES: u32 = 2;

/// How an array bears the loss of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Redundancy {
    /// Not at all: data are striped over all members (RAID 0).
    #[default]
    #[serde(alias = "raid0")]
    #[value(alias = "raid0")]
    None,
    /// By copies; data are striped over several mirrors if there are more members than copies (RAID
    /// 1, RAID 10).
    #[serde(alias = "raid1", alias = "raid10")]
    #[value(alias = "raid1", alias = "raid10")]
    Mirror,
}

/// A device made of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// The devices that it is made of; those of a mirror follow each other.
    pub devices: Vec<String>,
    /// Devices that take the place of one that fails.
    pub spares: Vec<String>,
    /// Nothing if not given.
    pub redundancy: Option<Redundancy>,
    /// Copies of a mirror; two if not given.
    pub copies: Option<u32>,
    /// Whether reads compare all copies; no if not given.
    pub safe_read: Option<bool>,
    /// Its identity, given when it was made.
    pub uuid: Option<NamespaceUuid>,
}

impl ArraySpec {
    /// An array that is on these devices already, which say what it is.
    pub fn found_on(devices: Vec<String>) -> Self {
        Self {
            devices,
            spares: Vec::new(),
            redundancy: None,
            copies: None,
            safe_read: None,
            uuid: None,
        }
    }

    /// Copies of all data.
    pub fn copies(&self) -> u32 {
        match self.redundancy.unwrap_or_default() {
            Redundancy::None => 1,
            Redundancy::Mirror => self.copies.unwrap_or(COPIES),
        }
    }

    /// All devices, the spares last.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let all = self.devices.iter().chain(&self.spares);
        all.map(String::as_str)
    }

    /// Checks numbers and names.
    pub(super) fn check(&self, name: &str) -> Result<(), DeviceError> {
        let mirror = self.redundancy.unwrap_or_default() == Redundancy::Mirror;
        if !mirror && (self.copies.is_some() || self.safe_read == Some(true)) {
            return Err(DeviceError::OneCopy);
        }
        if mirror && !(2..=4).contains(&self.copies()) {
            return Err(DeviceError::Copies(self.copies()));
        }
        if !mirror && !self.spares.is_empty() {
            return Err(DeviceError::SpareOfNone);
        }
        let copies = self.copies() as usize;
        if self.devices.is_empty() || !self.devices.len().is_multiple_of(copies) {
            return Err(DeviceError::Members(self.devices.len(), self.copies()));
        }
        let mut seen: Vec<&str> = self.all().collect();
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(DeviceError::Twice(twice[0].to_owned()));
        }
        match seen.contains(&name) {
            true => Err(DeviceError::Twice(name.to_owned())),
            false => Ok(()),
        }
    }
}
