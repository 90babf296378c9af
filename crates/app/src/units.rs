//! Sizes as people write them (`4096`, `8GiB`), and sizes and rates as people read them.

use std::fmt::{self, Write as _};

use flashyard_time::Duration;

/// What is not written as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// Not a size.
    Size(String),
    /// Not a span of time.
    Span(String),
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(text) => write!(
                f,
                "`{text}` is not a size: write it like 4096, 512KiB, 8GiB or 1.5TB"
            ),
            Self::Span(text) => write!(
                f,
                "`{text}` is not a span of time: write it like 500us, 2ms or 1.5s"
            ),
        }
    }
}

impl std::error::Error for UnitError {}

const SIZE_UNITS: [(&str, u64); 17] = [
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

/// Reads a size in bytes: a number, perhaps with a fraction, and a unit (`K`, `KiB` are 1024; `KB`
/// is 1000).
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    parse_scaled(text, &SIZE_UNITS).ok_or_else(|| UnitError::Size(text.to_owned()))
}

const SPAN_UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// Reads a span of time: a number, perhaps with a fraction, and a unit from `ns` to `s`.
pub fn parse_span(text: &str) -> Result<Duration, UnitError> {
    parse_scaled(text, &SPAN_UNITS)
        .map(Duration::from_ns)
        .ok_or_else(|| UnitError::Span(text.to_owned()))
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

/// `number` with an optional fraction of at most nine digits, times the unit that follows it.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let part = match fraction {
        "" if number.ends_with('.') => return None,
        "" => 0,
        digits => {
            let divisor = 10_u128.pow(digits.len() as u32);
            u64::try_from(digits.parse::<u128>().ok()? * u128::from(scale) / divisor).ok()?
        }
    };
    whole.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let table = [
            ("4096", 4096),
            ("512B", 512),
            ("4k", 4096),
            ("8GiB", 8 << 30),
            ("8 GiB", 8 << 30),
            ("1.5MiB", 3 << 19),
            ("1GB", 1_000_000_000),
            ("2T", 2 << 40),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "GiB",
            "-1",
            "1.",
            ".5",
            "1..2",
            "8 GiBs",
            "99999999999PiB",
            "1e9",
            "0x10",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
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
