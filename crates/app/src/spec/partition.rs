//! What a user says of a partition of an open-channel or zoned device.

use flashyard_drives::open_channel::{Unit, Wanted};
use serde::{Deserialize, Serialize};

use super::error::{MOST_NUMBERS, PartitionError};

/// Flash beyond the capacity when nobody says, in percent of the capacity.
const OVER_PROVISIONING: &str = "20%";

/// Which parallel units of which device a partition has, and how much of them it shows. One of
/// `channels`, `units` and `count` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionSpec {
    /// The open-channel or zoned device.
    pub device: String,
    /// Whole channels, such as `0-3,7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<String>,
    /// Single units, such as `0.0,1.0`: the channel and the number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    /// So many units, on as few channels as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Flash beyond the capacity, such as `20%` of it.
    #[serde(default = "default_op")]
    pub op: String,
    /// What it has been given, each time that it was created or grew. Kept by the target, not for
    /// files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// It is being created or deleted: when that is cut off, nothing of it is to be left. Kept by
    /// the target, not for files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

fn default_op() -> String {
    OVER_PROVISIONING.to_owned()
}

impl PartitionSpec {
    /// The units that are wanted.
    pub fn wanted(&self) -> Result<Wanted, PartitionError> {
        match (&self.channels, &self.units, self.count) {
            (Some(channels), None, None) => Ok(Wanted::Channels(numbers(channels)?)),
            (None, Some(units), None) => Ok(Wanted::Units(parse_units(units)?)),
            (None, None, Some(count)) => Ok(Wanted::Count(count)),
            _ => Err(PartitionError::Wanted),
        }
    }

    /// Flash beyond the capacity, in thousandths of the capacity.
    pub fn over_provisioning(&self) -> Result<u32, PartitionError> {
        let bad = || PartitionError::OverProvisioning(self.op.clone());
        let percent = self.op.strip_suffix('%').ok_or_else(bad)?.trim();
        let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
        if tenths.len() != 1 {
            return Err(bad());
        }
        let parse = |text: &str| text.parse::<u32>().map_err(|_| bad());
        let thousandths = parse(whole)?.checked_mul(10).ok_or_else(bad)?;
        thousandths.checked_add(parse(tenths)?).ok_or_else(bad)
    }

    /// Checks everything that can be checked without the device.
    pub fn check(&self) -> Result<(), PartitionError> {
        self.over_provisioning()?;
        self.wanted()?;
        self.given
            .iter()
            .try_for_each(|units| parse_units(units).map(drop))
    }
}

/// Units as they are written: `0.0,1.0`.
pub fn parse_units(text: &str) -> Result<Vec<Unit>, PartitionError> {
    let unit = |word: &str| {
        let bad = || PartitionError::Unit(word.to_owned());
        let (group, pu) = word.trim().split_once('.').ok_or_else(bad)?;
        let parse = |text: &str| text.parse().map_err(|_| bad());
        Ok((parse(group)?, parse(pu)?))
    };
    let units: Result<Vec<Unit>, PartitionError> =
        text.split(',').take(MOST_NUMBERS + 1).map(unit).collect();
    units.and_then(bounded)
}

/// Units as they are written.
pub fn show_units(units: &[Unit]) -> String {
    let words: Vec<String> = units
        .iter()
        .map(|(group, pu)| format!("{group}.{pu}"))
        .collect();
    words.join(",")
}

/// Numbers and ranges, such as `0-3,7`.
fn numbers(text: &str) -> Result<Vec<u32>, PartitionError> {
    let mut found = Vec::new();
    for word in text.split(',') {
        let bad = || PartitionError::Channels(word.to_owned());
        let parse = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(bad());
        }
        found.extend((first..=last).take(MOST_NUMBERS + 1));
        found = bounded(found)?;
    }
    Ok(found)
}

fn bounded<T>(list: Vec<T>) -> Result<Vec<T>, PartitionError> {
    match list.len() {
        0..=MOST_NUMBERS => Ok(list),
        _ => Err(PartitionError::TooMany),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<PartitionSpec, String> {
        let spec: PartitionSpec = toml::from_str(text).map_err(|error| error.to_string())?;
        let checked = spec.check().map_err(|error| error.to_string());
        checked.map(|()| spec)
    }

    #[test]
    fn units_are_named_in_three_ways() {
        let wanted = |text: &str| {
            spec(text).and_then(|spec| spec.wanted().map_err(|error| error.to_string()))
        };
        let channels = wanted("device = \"o\"\nchannels = \"0-2, 7\"");
        assert_eq!(channels, Ok(Wanted::Channels(vec![0, 1, 2, 7])));
        let units = wanted("device = \"o\"\nunits = \"0.1,3.0\"");
        assert_eq!(units, Ok(Wanted::Units(vec![(0, 1), (3, 0)])));
        assert_eq!(wanted("device = \"o\"\ncount = 4"), Ok(Wanted::Count(4)));
        assert_eq!(show_units(&[(0, 1), (3, 0)]), "0.1,3.0");
    }

    #[test]
    fn over_provisioning_is_in_percent() {
        let op = |op: &str| {
            spec(&format!("device = \"o\"\ncount = 4\nop = \"{op}\""))?
                .over_provisioning()
                .map_err(|error| error.to_string())
        };
        assert_eq!(op("20%"), Ok(200));
        assert_eq!(op("7.5%"), Ok(75));
        for bad in ["20", "%", "-1%", "7.55%", "4294967295%", "1.x%"] {
            assert!(op(bad).is_err(), "{bad}");
        }
        let default = spec("device = \"o\"\ncount = 4").expect("right");
        assert_eq!(default.over_provisioning(), Ok(200));
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, told) in [
            ("", "name either"),
            ("count = 4\nchannels = \"0\"", "name either"),
            ("channels = \"3-1\"", "no range"),
            ("channels = \"a\"", "no channel"),
            ("channels = \"0-4294967295\"", "no device's"),
            ("units = \"3\"", "no parallel unit"),
            ("units = \"1.0,,\"", "no parallel unit"),
        ] {
            let error = spec(&format!("device = \"o\"\n{text}")).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
