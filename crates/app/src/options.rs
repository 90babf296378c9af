//! What options of the command line are read as, and why a word is none of it.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use flashyard_nvme::Nqn;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_nvme::nqn::InvalidNqn;

use crate::spec::allowed;
use crate::units::{self, UnitError};

/// More I/Os per second than anything does.
const RATE_MOST: u64 = 100_000_000;

/// Why a word is not what an option takes.
#[derive(Debug)]
pub enum OptionError {
    /// Not a whole number, or one that cannot be: what it is, and what may be.
    Number(String, String),
    /// Not an NQN.
    Nqn(InvalidNqn),
    /// Not a value with its unit.
    Unit(UnitError),
    /// More I/Os per second than anything does, or none.
    Rate,
    /// Not the size of a block.
    Block,
    /// Not a number of completions.
    Window,
    /// Not a time.
    Seconds,
    /// Not a time between lines.
    Interval,
    /// Not a range of seeds.
    Seeds,
    /// Not a key with its value.
    Setting,
    /// Not a moment.
    Moment,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text, allowed) => write!(f, "`{text}` cannot be: give {allowed}"),
            Self::Nqn(error) => {
                write!(f, "{error}; a name looks like nqn.2026-11.dev.flashyard:db")
            }
            Self::Unit(error) => error.fmt(f),
            Self::Rate => write!(f, "give 1 to {RATE_MOST} I/Os per second"),
            Self::Block => f.write_str("a block is a multiple of 512 bytes, at most 1 MiB"),
            Self::Window => write!(
                f,
                "give 1 to {} completions, or `adaptive`",
                CompletionCoalescing::MOST
            ),
            Self::Seconds => f.write_str("give seconds, such as 5 or 0.5"),
            Self::Interval => f.write_str("give seconds, 0.1 to 86400"),
            Self::Seeds => f.write_str("write it like 0..20000, the smaller number first"),
            Self::Moment => f.write_str(
                "write it like 2026-11-23, 2026-11-23T19:20:01Z or, for that long ago, 8h",
            ),
            Self::Setting => f.write_str("write it like profile=970pro"),
        }
    }
}

impl std::error::Error for OptionError {}

/// Seeds from the first up to the end, which is not one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// After the last.
    pub end: u64,
}

/// A whole number, as the key of this name is in a configuration file.
pub fn whole<T: FromStr>(
    section: &'static str,
    key: &'static str,
) -> impl Fn(&str) -> Result<T, OptionError> + Clone {
    move |text| {
        let wrong = |_| OptionError::Number(text.to_owned(), allowed(section, key));
        text.parse().map_err(wrong)
    }
}

/// A whole number from the least to the most.
pub fn within<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, OptionError> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|it| (least..=most).contains(it));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        let allowed = || format!("a whole number, {least} to {most}");
        number.ok_or_else(|| OptionError::Number(text.to_owned(), allowed()))
    }
}

/// A moment in UTC, or how long ago it was.
pub fn moment(text: &str) -> Result<String, OptionError> {
    if units::is_moment(text) {
        return Ok(text.to_owned());
    }
    let ago = units::LASTING
        .parse(text)
        .map_err(|_| OptionError::Moment)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.unwrap_or_default().as_secs();
    Ok(units::utc(now.saturating_sub(ago)))
}

/// I/Os to start per second.
pub fn rate(text: &str) -> Result<u64, OptionError> {
    let rate = units::IOS.parse(text).map_err(OptionError::Unit)?;
    let known = (1..=RATE_MOST).contains(&rate);
    known.then_some(rate).ok_or(OptionError::Rate)
}

/// The name of a subsystem or host.
pub fn nqn(text: &str) -> Result<Nqn, OptionError> {
    Nqn::new(text).map_err(OptionError::Nqn)
}

/// Bytes of a read or write.
pub fn block(text: &str) -> Result<u32, OptionError> {
    let size = units::SIZE.parse(text).map_err(OptionError::Unit)?;
    match u32::try_from(size) {
        Ok(size) if size % 512 == 0 && (512..=1 << 20).contains(&size) => Ok(size),
        _ => Err(OptionError::Block),
    }
}

/// Completions that may be coalesced; 0 leaves it to the target.
pub fn window(text: &str) -> Result<u8, OptionError> {
    match text.parse() {
        _ if text == "adaptive" => Ok(0),
        Ok(window) if (1..=CompletionCoalescing::MOST).contains(&window) => Ok(window),
        _ => Err(OptionError::Window),
    }
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<f64, OptionError> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err(OptionError::Seconds),
    }
}

/// Seconds between lines.
pub fn interval(text: &str) -> Result<f64, OptionError> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(OptionError::Interval),
    }
}

/// `A..B`.
pub fn seeds(text: &str) -> Result<Seeds, OptionError> {
    let parsed = text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse().ok()?, end.parse().ok()?);
        (first < end).then_some(Seeds { first, end })
    });
    parsed.ok_or(OptionError::Seeds)
}

/// `KEY=VALUE`.
pub fn setting(text: &str) -> Result<(String, String), OptionError> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err(OptionError::Setting),
    }
}
