//! How values with units are written, in files and on the command line alike: sizes (`8GiB`),
//! bandwidths (`1GB/s`), numbers of I/Os (`20k`), spans of time (`500us`); and sizes and rates as
//! people read them. A value without a unit is in the base unit: bytes, bytes per second, I/Os,
//! microseconds; that is also how JSON and the state store have it.

use std::fmt;
use std::fmt::Write as _;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde_json::Value;

/// How values of one kind are written.
#[derive(Debug, PartialEq, Eq)]
pub struct Grammar {
    /// What such a value is called.
    what: &'static str,
    /// What to write instead of something wrong.
    like: &'static str,
    /// Units and what they are worth; no unit is one, and so is nothing.
    units: &'static [(&'static str, u64)],
    /// What may follow the unit.
    suffix: &'static str,
}

/// Bytes. `K` and `KiB` are 1024 bytes; `KB` is 1000.
pub static SIZE: Grammar = Grammar {
    what: "a size",
    like: "4096, 512KiB, 8GiB or 1.5TB",
    units: &BYTES,
    suffix: "",
};

/// Bytes per second, in the units of sizes.
pub static BANDWIDTH: Grammar = Grammar {
    what: "a bandwidth",
    like: "1GB/s or 200MiB/s",
    units: &BYTES,
    suffix: "/s",
};

/// Numbers of I/Os. `k` is 1000.
pub static IOS: Grammar = Grammar {
    what: "a number of I/Os per second",
    like: "20000, 20k or 1.5M",
    units: &[("", 1), ("k", 1_000), ("m", 1_000_000)],
    suffix: "",
};

/// Nanoseconds, written in microseconds if no unit is given.
pub static SPAN: Grammar = Grammar {
    what: "a span of time",
    like: "500us, 2ms or 1.5s",
    units: &[
        ("", 1_000),
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ],
    suffix: "",
};

/// Seconds, of what people wait for.
pub static LASTING: Grammar = Grammar {
    what: "a time",
    like: "90s, 30m, 8h or 7d",
    units: &[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)],
    suffix: "",
};

/// Parts of a billion, written in percent.
pub static RATE: Grammar = Grammar {
    what: "a rate",
    like: "0.1%, 5% or 100%",
    units: &[("%", 10_000_000)],
    suffix: "",
};

const BYTES: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
];

/// What is not written as values of its kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    grammar: &'static Grammar,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grammar { what, like, .. } = self.grammar;
        write!(f, "`{}` is not {what}: write it like {like}", self.text)
    }
}

impl std::error::Error for UnitError {}

impl fmt::Display for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, such as {}", self.what, self.like)
    }
}

impl Grammar {
    /// Reads a number, perhaps with a fraction of at most nine digits, and its unit. Below the
    /// smallest unit nothing is left of a fraction, but a fraction of the smallest is refused.
    pub fn parse(&'static self, text: &str) -> Result<u64, UnitError> {
        self.scaled(text).ok_or_else(|| self.wrong(text))
    }

    /// How a value is written in JSON: a number or text in requests, `answered` in answers.
    pub fn schema(&self, answered: &str, of: &SchemaGenerator) -> Schema {
        match of.contract().is_serialize() {
            true => json_schema!({ "type": answered }),
            false => json_schema!({
                "description": format!("{self}, or a number in the base unit"),
                "type": ["integer", "string"],
                "minimum": 0,
            }),
        }
    }

    /// Reads a value as it stands in a file, in JSON or in the state store: a number in the base
    /// unit, or text.
    pub fn read<'de, D: Deserializer<'de>>(&'static self, value: D) -> Result<u64, D::Error> {
        value.deserialize_any(self)
    }

    fn wrong(&'static self, text: impl ToString) -> UnitError {
        UnitError {
            text: text.to_string(),
            grammar: self,
        }
    }

    fn scaled(&self, text: &str) -> Option<u64> {
        let text = text.trim();
        let text = text.strip_suffix(self.suffix).unwrap_or(text);
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let scale = self.units.iter().find(|(name, _)| *name == unit)?.1;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
            return None;
        }
        let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
        let fraction_of_ten = fraction.parse::<u128>().ok()? * u128::from(scale);
        if scale == 1 && fraction_of_ten > 0 {
            return None;
        }
        let part = fraction_of_ten / 10_u128.pow(fraction.len() as u32);
        whole.checked_add(u64::try_from(part).ok()?)
    }
}

impl Visitor<'_> for &'static Grammar {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
        Err(E::custom(self.wrong(value)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        self.parse(text).map_err(E::custom)
    }
}

/// How a number of I/Os is written in JSON.
pub fn ios_schema(of: &mut SchemaGenerator) -> Schema {
    IOS.schema("integer", of)
}

/// For keys that may be missing and count I/Os.
pub fn read_ios<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    IOS.read(value).map(Some)
}

/// A size for people, exact where a binary unit divides it: `8 GiB`, `1.50 MiB`.
pub fn size(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (bytes.max(1).ilog2() / 10).min(5);
    let unit = 1_u64 << (10 * power);
    let name = NAMES[power as usize];
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.2} {name}", bytes as f64 / unit as f64)
    }
}

/// A bandwidth for people, in decimal units as drives are sold: `3.98 GB/s`.
pub fn bandwidth(bytes_per_second: f64) -> String {
    let mut text = String::new();
    let (value, name) = match bytes_per_second {
        rate if rate >= 1e9 => (rate / 1e9, "GB/s"),
        rate if rate >= 1e6 => (rate / 1e6, "MB/s"),
        rate => (rate / 1e3, "KB/s"),
    };
    write!(text, "{value:.2} {name}").expect("a string takes everything");
    text
}

/// A time for people: `12 us`, `1.50 ms`.
pub fn microseconds(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A figure of a promise for people, in the unit that answers name beside it.
pub fn figure(value: u64, unit: &str) -> String {
    match unit {
        "bytes_per_second" => bandwidth(value as f64),
        "us" => microseconds(value as f64),
        _ => format!("{value}/s"),
    }
}

/// Whether it is a moment in UTC as [`utc`] writes it, or only the date of one: what is compared as
/// text has to be written in one way.
pub fn is_moment(text: &str) -> bool {
    let form = "0000-00-00T00:00:00Z";
    let is_like = |(one, like): (u8, u8)| match like {
        b'0' => one.is_ascii_digit(),
        other => one == other,
    };
    let has_length = text.len() == form.len() || text.len() == "0000-00-00".len();
    has_length && text.bytes().zip(form.bytes()).all(is_like)
}

/// A moment in UTC, such as `2026-11-22T20:41:04Z`, so many seconds after the beginning of 1970.
pub fn utc(seconds: u64) -> String {
    // Years begin in March here, so that a leap day is the last day of one; 400 years always have
    // as many days.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + next;
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Keys of a configuration that are sizes.
pub const SIZES: [&str; 5] = ["size", "chunk", "reserve", "max_transfer", "in_capsule"];

/// The value of a key of a configuration for people, with its unit; nothing is its default.
pub fn shown(key: &str, value: Option<&Value>) -> String {
    let is_quota = key.starts_with("quota.");
    let key = key.rsplit('.').next().unwrap_or(key);
    match (value, value.and_then(Value::as_u64)) {
        (None | Some(Value::Null), _) => "(default)".to_owned(),
        (_, Some(bytes)) if is_quota || SIZES.contains(&key) => size(bytes),
        (_, Some(bytes)) if key.ends_with("bandwidth") => bandwidth(bytes as f64),
        (_, Some(bytes)) if ["from", "to"].contains(&key) => size(bytes),
        (_, Some(us)) if ["latency_target", "latency", "spread"].contains(&key) => {
            microseconds(us as f64)
        }
        (Some(Value::Object(keys)), _) => {
            let keys = keys.iter();
            let within = if key == "quota" { "quota." } else { "" };
            let shown = |key: &str, value| shown(&format!("{within}{key}"), Some(value));
            let keys: Vec<String> = keys
                .map(|(key, value)| format!("{key} {}", shown(key, value)))
                .collect();
            keys.join(", ")
        }
        (Some(Value::String(text)), _) => text.clone(),
        (Some(Value::Array(all)), _) => {
            let all: Vec<String> = all.iter().map(|one| shown("", Some(one))).collect();
            format!("[{}]", all.join(", "))
        }
        (Some(other), _) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn values_are_read_with_their_units() {
        let table: [(&'static Grammar, &str, u64); 19] = [
            (&SIZE, "4096", 4096),
            (&SIZE, "512B", 512),
            (&SIZE, "4k", 4096),
            (&SIZE, "8GiB", 8 << 30),
            (&SIZE, "8 GiB", 8 << 30),
            (&SIZE, "1.5MiB", 3 << 19),
            (&SIZE, "1GB", 1_000_000_000),
            (&SIZE, "2T", 2 << 40),
            (&SIZE, "1.0", 1),
            (&BANDWIDTH, "1GB/s", 1_000_000_000),
            (&BANDWIDTH, "200MiB", 200 << 20),
            (&BANDWIDTH, "1000", 1000),
            (&IOS, "20000", 20_000),
            (&IOS, "20k", 20_000),
            (&IOS, "20K", 20_000),
            (&IOS, "1.5M", 1_500_000),
            (&SPAN, "500us", 500_000),
            (&SPAN, "500", 500_000),
            (&SPAN, "1.5s", 1_500_000_000),
        ];
        for (grammar, text, value) in table {
            assert_eq!(grammar.parse(text), Ok(value), "{text}");
            if let Ok(number) = text.parse::<u64>() {
                let read = grammar.read(serde_json::json!(number));
                assert_eq!(read.expect("the same"), value, "{text}");
            }
            let read = grammar.read(serde_json::json!(text));
            assert_eq!(read.ok(), grammar.parse(text).ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_what_is() {
        let size = "is not a size: write it like 4096, 512KiB, 8GiB or 1.5TB";
        let table: [(&'static Grammar, &str, &str); 21] = [
            (&SIZE, "", size),
            (&SIZE, "GiB", size),
            (&SIZE, "-1", size),
            (&SIZE, "-1GiB", size),
            (&SIZE, "1.", size),
            (&SIZE, ".5", size),
            (&SIZE, "1.5", size),
            (&SIZE, "1.5B", size),
            (&SIZE, "1..2", size),
            (&SIZE, "8 GiBs", size),
            (&SIZE, "8GiB/s", size),
            (&SIZE, "99999999999PiB", size),
            (&SIZE, "1e9", size),
            (&SIZE, "0x10", size),
            (
                &BANDWIDTH,
                "fast",
                "is not a bandwidth: write it like 1GB/s",
            ),
            (&BANDWIDTH, "-5", "is not a bandwidth: write it like 1GB/s"),
            (
                &IOS,
                "-5",
                "is not a number of I/Os per second: write it like 20000, 20k",
            ),
            (
                &IOS,
                "1.5",
                "is not a number of I/Os per second: write it like 20000, 20k",
            ),
            (
                &IOS,
                "20KiB",
                "is not a number of I/Os per second: write it like 20000, 20k",
            ),
            (
                &SPAN,
                "soon",
                "is not a span of time: write it like 500us, 2ms",
            ),
            (
                &SPAN,
                "1.5ns",
                "is not a span of time: write it like 500us, 2ms",
            ),
        ];
        for (grammar, text, message) in table {
            let error = grammar.parse(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` {message}")), "{error}");
            let number: Option<serde_json::Value> = serde_json::from_str(text).ok();
            for value in number.into_iter().chain([serde_json::json!(text)]) {
                let read = grammar.read(value).expect_err(text).to_string();
                assert!(read == error || text == "1e9", "{read}");
            }
        }
    }

    #[test]
    fn people_read_sizes_in_the_largest_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(8 << 30), "8 GiB");
        assert_eq!(size(3 << 19), "1.50 MiB");
        assert_eq!(bandwidth(3.98e9), "3.98 GB/s");
    }
}
