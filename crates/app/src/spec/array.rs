//! A device made of several others: striped, mirrored, or both.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::error::DeviceError;
use super::namespace_uuid::NamespaceUuid;

/// Copies of a mirror where none are given.
const COPIES: u32 = 2;

/// How an array bears the loss of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Redundancy {
    /// Not at all: data are striped over all members (RAID 0).
    #[default]
    None,
    /// By copies; data are striped over several mirrors if there are more members than copies (RAID
    /// 1, RAID 10).
    Mirror,
}

/// Why a word is no redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRedundancy {
    /// One by parity, as which it was given: there is none yet.
    Parity(String),
    /// None at all.
    Unknown(String),
}

impl FromStr for Redundancy {
    type Err = NoRedundancy;

    /// Also by the names that users know from elsewhere.
    fn from_str(text: &str) -> Result<Self, NoRedundancy> {
        match text.to_ascii_lowercase().as_str() {
            "none" | "raid0" => Ok(Self::None),
            "mirror" | "raid1" | "raid10" => Ok(Self::Mirror),
            "parity" | "double-parity" | "raid4" | "raid5" | "raid6" | "raid50" | "raid60" => {
                Err(NoRedundancy::Parity(text.to_owned()))
            }
            _ => Err(NoRedundancy::Unknown(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Redundancy {
    type Error = NoRedundancy;

    fn try_from(text: String) -> Result<Self, NoRedundancy> {
        text.parse()
    }
}

impl fmt::Display for NoRedundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parity(text) => write!(
                f,
                "`{text}` needs parity, which is not there yet: use `mirror`, which bears the loss of a device and keeps two copies"
            ),
            Self::Unknown(text) => write!(
                f,
                "`{text}` is no redundancy: use `none` (raid0) or `mirror` (raid1, raid10)"
            ),
        }
    }
}

impl std::error::Error for NoRedundancy {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundancy_has_the_names_that_users_know() {
        for (texts, means) in [
            (["none", "raid0", "RAID0"], Redundancy::None),
            (["mirror", "raid1", "raid10"], Redundancy::Mirror),
        ] {
            for text in texts {
                assert_eq!(text.parse(), Ok(means), "{text}");
            }
        }
        for text in ["parity", "double-parity", "raid5", "RAID6"] {
            let why = text.parse::<Redundancy>().unwrap_err();
            assert_eq!(why, NoRedundancy::Parity(text.into()));
            assert!(why.to_string().contains("use `mirror`"), "{why}");
        }
        let why = "raid".parse::<Redundancy>().unwrap_err().to_string();
        assert!(why.contains("`none` (raid0) or `mirror`"), "{why}");
    }
}
