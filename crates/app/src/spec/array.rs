//! A device made of several others: striped, mirrored, both, or with parity.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use clap::ValueEnum;
use flashyard_block::array::{self, MAX_COLUMNS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::DeviceError;
use super::namespace_uuid::NamespaceUuid;
use super::rates::Bandwidth;

/// Copies of a mirror where none are given.
const COPIES: u32 = 2;

/// Slower rebuilds are refused: 1 TiB takes 12 days at this.
const LEAST_REBUILD: Bandwidth = Bandwidth(1_000_000);

/// How an array bears the loss of a member.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Redundancy {
    /// Not at all: data are striped over all members (RAID 0).
    #[default]
    None,
    /// By copies; data are striped over several mirrors if there are more members than copies (RAID
    /// 1, RAID 10).
    Mirror,
    /// By parity, for the loss of one member of three or more: for mapped pools (RAID 5).
    Parity,
    /// By parity, for the loss of any two members of four or more: for mapped pools (RAID 6).
    DoubleParity,
}

/// A word that is no redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRedundancy(String);

impl FromStr for Redundancy {
    type Err = NoRedundancy;

    /// Also by the names that users know from elsewhere.
    fn from_str(text: &str) -> Result<Self, NoRedundancy> {
        match text.to_ascii_lowercase().as_str() {
            "none" | "raid0" => Ok(Self::None),
            "mirror" | "raid1" | "raid10" => Ok(Self::Mirror),
            "parity" | "raid5" => Ok(Self::Parity),
            "double-parity" | "raid6" => Ok(Self::DoubleParity),
            _ => Err(NoRedundancy(text.to_owned())),
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
        write!(
            f,
            "`{}` is no redundancy: use `none` (raid0), `mirror` (raid1, raid10), `parity` (raid5) or `double-parity` (raid6)",
            self.0
        )
    }
}

impl std::error::Error for NoRedundancy {}

/// What a rebuild is beside the I/O of tenants.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum RebuildPriority {
    /// High while one more failure would lose data, else low.
    #[default]
    Auto,
    /// It gets what tenants leave, and under the policy `fair` a 32nd at least.
    Low,
    /// It has the share of a tenant of weight 1.
    High,
}

impl From<RebuildPriority> for array::RebuildPriority {
    fn from(priority: RebuildPriority) -> Self {
        match priority {
            RebuildPriority::Auto => Self::Auto,
            RebuildPriority::Low => Self::Low,
            RebuildPriority::High => Self::High,
        }
    }
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
    /// Devices of each set that has parity; all if not given.
    pub columns: Option<u32>,
    /// Whether reads compare all copies; no if not given.
    pub safe_read: Option<bool>,
    /// What a rebuild is beside the I/O of tenants.
    pub rebuild_priority: RebuildPriority,
    /// Bytes a second that a rebuild writes to each device at most.
    pub rebuild_limit: Option<Bandwidth>,
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
            columns: None,
            safe_read: None,
            rebuild_priority: RebuildPriority::default(),
            rebuild_limit: None,
            uuid: None,
        }
    }

    /// Members of each set: the copies of all data, or the columns of parity.
    pub fn copies(&self) -> u32 {
        match self.redundancy.unwrap_or_default() {
            Redundancy::None => 1,
            Redundancy::Mirror => self.copies.unwrap_or(COPIES),
            Redundancy::Parity | Redundancy::DoubleParity => {
                self.columns.unwrap_or(self.devices.len() as u32)
            }
        }
    }

    /// How many members may be lost by parity; 0 where there is none.
    pub fn parity(&self) -> u32 {
        match self.redundancy.unwrap_or_default() {
            Redundancy::None | Redundancy::Mirror => 0,
            Redundancy::Parity => 1,
            Redundancy::DoubleParity => 2,
        }
    }

    /// Bytes a second that a rebuild writes to each device at most.
    pub fn rebuild_bytes(&self) -> Option<NonZeroU64> {
        self.rebuild_limit
            .and_then(|limit| NonZeroU64::new(limit.0))
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
        self.check_rebuild()?;
        if mirror && !(2..=4).contains(&self.copies()) {
            return Err(DeviceError::Copies(self.copies()));
        }
        if !mirror && self.parity() == 0 && !self.spares.is_empty() {
            return Err(DeviceError::SpareOfNone);
        }
        if self.parity() == 0 && self.columns.is_some() {
            return Err(DeviceError::NoColumns);
        }
        // One that is there lists a device more while another one is replaced.
        if self.uuid.is_none() {
            self.check_count()?;
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

    /// Checks how many devices there are.
    fn check_count(&self) -> Result<(), DeviceError> {
        let least = self.parity() + 2;
        let (devices, copies) = (self.devices.len(), self.copies());
        if self.parity() > 0 && !(least as usize..=MAX_COLUMNS).contains(&(copies as usize)) {
            return Err(DeviceError::Columns(copies as usize, least));
        }
        match devices > 0 && devices.is_multiple_of(copies as usize) {
            true => Ok(()),
            false if self.parity() == 0 => Err(DeviceError::Members(devices, copies)),
            false => Err(DeviceError::Sets(devices, copies)),
        }
    }

    /// Checks what it says of rebuilds.
    pub fn check_rebuild(&self) -> Result<(), DeviceError> {
        let is_rebuilt = self.redundancy.unwrap_or_default() != Redundancy::None;
        if !is_rebuilt && self.rebuild_priority != RebuildPriority::default() {
            return Err(DeviceError::NothingToRebuild("rebuild_priority"));
        }
        match self.rebuild_limit {
            Some(_) if !is_rebuilt => Err(DeviceError::NothingToRebuild("rebuild_limit")),
            Some(limit) if limit < LEAST_REBUILD => Err(DeviceError::RebuildLimit(limit)),
            _ => Ok(()),
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
            (["parity", "raid5", "RAID5"], Redundancy::Parity),
            (
                ["double-parity", "raid6", "Double-Parity"],
                Redundancy::DoubleParity,
            ),
        ] {
            for text in texts {
                assert_eq!(text.parse(), Ok(means), "{text}");
            }
        }
        let why = "raid".parse::<Redundancy>().unwrap_err().to_string();
        assert!(why.contains("`none` (raid0), `mirror`"), "{why}");
    }

    #[test]
    fn sets_are_whole_but_while_a_device_is_replaced() {
        let of = |count: usize, redundancy, columns| ArraySpec {
            redundancy: Some(redundancy),
            columns,
            ..ArraySpec::found_on((0..count).map(|at| format!("d{at}")).collect())
        };
        let (mirror, parity) = (Redundancy::Mirror, Redundancy::Parity);
        for (array, expected) in [
            (of(4, mirror, None), Ok(())),
            (of(3, mirror, None), Err(DeviceError::Members(3, 2))),
            (of(2, mirror, Some(2)), Err(DeviceError::NoColumns)),
            (of(10, parity, Some(5)), Ok(())),
            (of(20, parity, Some(5)), Ok(())),
            (of(11, parity, Some(5)), Err(DeviceError::Sets(11, 5))),
            (of(4, parity, Some(2)), Err(DeviceError::Columns(2, 3))),
        ] {
            assert_eq!(array.check("a"), expected, "{array:?}");
            let uuid = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11".parse();
            let there = ArraySpec {
                uuid: Some(uuid.expect("a UUID")),
                ..array
            };
            let is_count = !matches!(expected, Err(DeviceError::NoColumns));
            assert_eq!(there.check("a").is_ok(), is_count, "{there:?}");
        }
    }

    #[test]
    fn parity_is_over_as_many_devices_as_it_needs_and_rows_can_have() {
        for (redundancy, least) in [(Redundancy::Parity, 3), (Redundancy::DoubleParity, 4)] {
            for count in 1..=17 {
                let devices = (0..count).map(|at| format!("d{at}")).collect();
                let array = ArraySpec {
                    redundancy: Some(redundancy),
                    spares: vec!["spare".into()],
                    ..ArraySpec::found_on(devices)
                };
                let expected = match (least..=16).contains(&count) {
                    true => Ok(()),
                    false => Err(DeviceError::Columns(count, least as u32)),
                };
                assert_eq!(array.check("a"), expected);
                let compared = ArraySpec {
                    safe_read: Some(true),
                    ..array
                };
                assert_eq!(compared.check("a"), Err(DeviceError::OneCopy));
            }
        }
    }
}
