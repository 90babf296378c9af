//! What a user says of an emulated drive.

use std::fmt;
use std::str::FromStr;

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use serde::{Deserialize, Serialize};

use super::{DeviceKind, DeviceSpec};

/// Most that a drive can be slowed down: a read of a tenth of a millisecond then takes a tenth of a
/// second.
pub const DILATION_MOST: u32 = 1_000;

/// An emulated drive: a `flash` device's part of its specification, complete.
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

/// Where the content of an emulated drive is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum StoreName {
    /// In memory, taken as it is written.
    #[default]
    Memory,
    /// In a file, given as `path`.
    File,
    /// Nowhere: reads give a pattern that follows from block and write.
    Pattern,
}

/// A condition by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ConditionName(pub Condition);

impl DeviceSpec {
    /// The drive of a `flash` device; nothing of any other, or without a profile.
    pub fn drive(&self) -> Option<DriveSpec> {
        let profile = self
            .profile
            .clone()
            .filter(|_| self.kind == DeviceKind::Flash)?;
        Some(DriveSpec {
            profile,
            condition: self.condition.map_or(Condition::Empty, |name| name.0),
            store: self.store.unwrap_or_default(),
            seed: self.seed.unwrap_or(1),
            dilation: self.dilation.unwrap_or(1),
        })
    }

    /// Checks what the keys of an emulated drive say; whether they may be there is checked with all
    /// others.
    pub(super) fn check_drive(&self) -> Result<(), String> {
        let name = &self.name;
        if let Some(profile) = &self.profile
            && !is_file(profile)
            && Profile::named(profile).is_none()
        {
            return Err(format!(
                "device `{name}`: there is no profile `{profile}`: use one of {}, or the path of a file, such as ./{profile}.toml",
                Profile::names().collect::<Vec<_>>().join(", ")
            ));
        }
        match self.dilation {
            Some(dilation) if !(1..=DILATION_MOST).contains(&dilation) => Err(format!(
                "device `{name}`: dilation is {dilation}; it must be from 1 (as fast as its model) to {DILATION_MOST}"
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a profile is named by the path of a file: names of profiles have neither slashes nor
/// dots.
pub fn is_file(profile: &str) -> bool {
    profile.contains(['/', '.'])
}

impl StoreName {
    /// The store as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Pattern => "pattern",
        }
    }
}

impl FromStr for ConditionName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = |unknown| format!("`{text}` is no condition: {unknown}");
        text.parse().map(Self).map_err(unknown)
    }
}

impl TryFrom<String> for ConditionName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ConditionName> for String {
    fn from(name: ConditionName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for ConditionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::Config;

    use super::*;

    const GOOD: &str = r#"
        [[device]]
        name = "ssd0"
        kind = "flash"
        size = "8GiB"
        profile = "dct983"
        condition = "fragmented=30%"
        store = "file"
        path = "/srv/ssd0.img"
        seed = 7
        dilation = 10
    "#;

    #[test]
    fn a_drive_is_read_with_what_it_is_if_nothing_is_said() {
        let config = Config::parse(GOOD).expect("it is right");
        let expected = DriveSpec {
            profile: "dct983".into(),
            condition: Condition::Fragmented(30),
            store: StoreName::File,
            seed: 7,
            dilation: 10,
        };
        assert_eq!(config.devices[0].drive(), Some(expected));
        let written = serde_json::to_string(&config.devices[0]).expect("plain data");
        let read: DeviceSpec = serde_json::from_str(&written).expect("what was written");
        assert_eq!(read, config.devices[0]);

        let short =
            "[[device]]\nname = \"s\"\nkind = \"flash\"\nsize = \"1GiB\"\nprofile = \"ideal\"";
        let config = Config::parse(short).expect("it is right");
        let expected = DriveSpec {
            profile: "ideal".into(),
            condition: Condition::Empty,
            store: StoreName::Memory,
            seed: 1,
            dilation: 1,
        };
        assert_eq!(config.devices[0].drive(), Some(expected));
    }

    #[test]
    fn every_mistake_is_named() {
        let table = [
            ("profile = \"dct983\"", "", "needs `profile`"),
            (
                "profile = \"dct983\"",
                "profile = \"dct984\"",
                "no profile `dct984`: use one of dct983, ",
            ),
            ("size = \"8GiB\"", "", "needs `size`"),
            (
                "fragmented=30%",
                "fragmented=130%",
                "`fragmented=130%` is no condition: a condition is `empty`",
            ),
            (
                "store = \"file\"",
                "store = \"tape\"",
                "unknown variant `tape`, expected one of `memory`, `file`, `pattern`",
            ),
            ("store = \"file\"", "", "has no `path`"),
            ("path = \"/srv/ssd0.img\"", "", "needs `path`"),
            ("dilation = 10", "dilation = 0", "dilation is 0; it must be"),
            (
                "dilation = 10",
                "dilation = 1001",
                "from 1 (as fast as its model) to 1000",
            ),
            ("dilation = 10", "nsid = 1", "has no `nsid`"),
            (
                "kind = \"flash\"",
                "kind = \"file\"",
                "a file device has no `profile`",
            ),
        ];
        for (right, wrong, message) in table {
            let error = Config::parse(&GOOD.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
