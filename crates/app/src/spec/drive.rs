//! What a user says of an emulated drive.

use std::fmt;
use std::str::FromStr;

use flashyard_flash::ssd::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ValueError;

/// Where the content of an emulated drive is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ConditionName(pub Condition);

/// Whether a profile is named by the path of a file: names of profiles have neither slashes nor
/// dots.
pub fn is_file(profile: &str) -> bool {
    profile.contains(['/', '.'])
}

impl FromStr for ConditionName {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let unknown = |unknown| ValueError::Condition(text.to_owned(), unknown);
        text.parse().map(Self).map_err(unknown)
    }
}

impl TryFrom<String> for ConditionName {
    type Error = ValueError;
    fn try_from(text: String) -> Result<Self, ValueError> {
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
    use crate::spec::device::DriveSpec;
    use crate::spec::{Config, DeviceSpec};

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
            let error = Config::parse(&GOOD.replacen(right, wrong, 1))
                .expect_err(wrong)
                .to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
