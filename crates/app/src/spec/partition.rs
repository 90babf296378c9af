//! What a user says of a partition of an open-channel or zoned device.

use flashyard_drives::open_channel::{Unit, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{MOST_NUMBERS, PartitionError};

/// Flash beyond the capacity when nobody says, in percent of the capacity.
const OVER_PROVISIONING: &str = "20%";

/// Which parallel units of which device a partition has, and how much of them it shows. One of
/// `channels`, `units` and `count` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The units that it has been given, each time that it was created or grew, as `export` writes
    /// them; chosen by the keys above if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// It was on the device before this target knew of it, so what is on it may not have come from
    /// users of this target. Kept by the target, not for files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
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

    /// A partition that is on `device`: of so much over-provisioning, in thousandths, given these
    /// units each time.
    pub fn found(device: &str, over_provisioning: u32, spans: &[Vec<Unit>]) -> Self {
        let op = match over_provisioning % 10 {
            0 => format!("{}%", over_provisioning / 10),
            tenth => format!("{}.{tenth}%", over_provisioning / 10),
        };
        Self {
            device: device.to_owned(),
            channels: None,
            units: spans.first().map(|units| show_units(units)),
            count: None,
            op,
            given: spans.iter().map(|units| show_units(units)).collect(),
            imported: true,
            unfinished: false,
        }
    }

    /// Whether this asks for the partition that is `there`, which may have grown since, or how the
    /// first key differs.
    pub fn asks_for(&self, there: &Self) -> Result<(), Unlike> {
        let unlike = |key, is: &str, said: &str| Err(Unlike(key, is.to_owned(), said.to_owned()));
        if self.device != there.device {
            return unlike("partition.device", &there.device, &self.device);
        }
        if self.over_provisioning().ok() != there.over_provisioning().ok() {
            return unlike("partition.op", &there.op, &self.op);
        }
        if !there.given.starts_with(&self.given) {
            let (is, said) = (there.given.join(" "), self.given.join(" "));
            return unlike("partition.given", &is, &said);
        }
        // What it was given when it was created is what these keys have chosen.
        let Some(first) = there.given.first() else {
            return Ok(());
        };
        let mut units = parse_units(first).unwrap_or_default();
        units.sort_unstable();
        match (self.wanted(), &self.channels, &self.units, self.count) {
            (Ok(Wanted::Channels(mut wanted)), Some(said), ..) => {
                let mut channels: Vec<u32> = units.iter().map(|unit| unit.0).collect();
                channels.dedup();
                wanted.sort_unstable();
                match wanted == channels {
                    true => Ok(()),
                    false => unlike("partition.channels", &show_numbers(&channels), said),
                }
            }
            (Ok(Wanted::Units(mut wanted)), _, Some(said), _) => {
                wanted.sort_unstable();
                match wanted == units {
                    true => Ok(()),
                    false => unlike("partition.units", first, said),
                }
            }
            (Ok(Wanted::Count(wanted)), .., Some(said)) if wanted as usize != units.len() => {
                unlike(
                    "partition.count",
                    &units.len().to_string(),
                    &said.to_string(),
                )
            }
            _ => Ok(()),
        }
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

/// A key that says otherwise: what is there, and what was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlike(pub &'static str, pub String, pub String);

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

fn show_numbers(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    words.join(",")
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
    fn a_partition_is_asked_for_by_whatever_names_its_first_units() {
        let first = vec![(0, 0), (1, 0), (0, 1), (1, 1)];
        let there = PartitionSpec::found("o", 75, &[first, vec![(4, 0)]]);
        assert_eq!(there.op, "7.5%");
        assert_eq!(there.given, ["0.0,1.0,0.1,1.1", "4.0"]);
        let asked = |text: &str| {
            let spec = spec(&format!("device = \"o\"\nop = \"7.5%\"\n{text}"));
            spec.expect("right").asks_for(&there)
        };
        for same in [
            "channels = \"0-1\"",
            "channels = \"1,0\"",
            "units = \"1.1,0.0,0.1,1.0\"",
            "count = 4",
            "count = 4\ngiven = [\"0.0,1.0,0.1,1.1\"]",
            "count = 4\ngiven = [\"0.0,1.0,0.1,1.1\", \"4.0\"]",
        ] {
            assert_eq!(asked(same), Ok(()), "{same}");
        }
        for (other, key) in [
            ("channels = \"0-2\"", "partition.channels"),
            ("units = \"0.0,1.0\"", "partition.units"),
            ("count = 5", "partition.count"),
            ("count = 4\ngiven = [\"4.0\"]", "partition.given"),
        ] {
            let Err(Unlike(found, ..)) = asked(other) else {
                panic!("{other} asks for another one");
            };
            assert_eq!(found, key);
        }
        let more = spec("device = \"o\"\ncount = 4").expect("right");
        let unlike = Unlike("partition.op", "7.5%".into(), "20%".into());
        assert_eq!(more.asks_for(&there), Err(unlike));
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
        for (text, message) in [
            ("", "name either"),
            ("count = 4\nchannels = \"0\"", "name either"),
            ("channels = \"3-1\"", "no range"),
            ("channels = \"a\"", "no channel"),
            ("channels = \"0-4294967295\"", "no device's"),
            ("units = \"3\"", "no parallel unit"),
            ("units = \"1.0,,\"", "no parallel unit"),
        ] {
            let error = spec(&format!("device = \"o\"\n{text}")).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
