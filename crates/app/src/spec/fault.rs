//! What a user says of the faults that a `fault` device injects: as a table of a file, and in one
//! word on the command line.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use clap::ValueEnum;
use flashyard_block::fault::{FaultKind, FaultOn, FaultRule, Frequency, PARTS};
use flashyard_time::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::fault_error::FaultError;
use super::rates::Span;
use super::size::Size;
use crate::units::{RATE, UnitError};

/// Faults of one device at most.
pub(super) const MOST_FAULTS: usize = 64;
/// The most that the faults of a device delay an I/O. Hosts give one up after 30 s where nothing
/// else is set.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// A layer that injects faults before a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultLayerSpec {
    /// The device that it stands before.
    pub device: String,
    /// What chance follows from; 1 if not given.
    pub seed: Option<u64>,
    /// What goes wrong; nothing if there are none.
    pub faults: Vec<FaultSpec>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// What goes wrong.
    pub kind: FaultName,
    /// How often, by chance: of all blocks for `poison`, of all I/Os for the others; `0.1%` for
    /// silent faults and `100%` for `lying-flush`, `error`, `gone`, `hang` and `latency` if not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Instead of a rate: each time that so many have come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Which I/Os; `write` for `poison` and `misdirected`, all that are possible for the others if
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<FaultOnName>,
    /// Only I/Os that touch what lies from this byte of the device on; its start if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Size>,
    /// Only I/Os that touch what lies before this byte of the device; its end if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Size>,
    /// How much later an I/O begins at least, for `latency`, which needs it. With `spread`, and of
    /// all faults of a device together, 60 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Span>,
    /// How much more that may be, for `latency`; nothing if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Span>,
}

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FaultName {
    /// One bit of a block is flipped: on the medium for a write, on the way for a read.
    Poison,
    /// Only some of the 512-byte sectors of a write are written; it is acknowledged.
    Torn,
    /// A write is acknowledged and never done.
    Lost,
    /// An I/O is done elsewhere between `from` and `to`; what a write should have replaced stays.
    Misdirected,
    /// A read gives what blocks held before they were written last (the last 16 MiB of that).
    Stale,
    /// What a flush, or a write that is durable when it ends, promises stays in memory (at most 16
    /// MiB), and is lost when the target ends.
    LyingFlush,
    /// An I/O fails: Unrecovered Read Error, or Write Fault for all but reads.
    Error,
    /// The device is not there: Namespace Not Ready.
    Gone,
    /// An I/O does not end until the fault is taken away or the target ends.
    Hang,
    /// An I/O begins later.
    Latency,
}

/// Which I/Os a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FaultOnName {
    /// Reads.
    Read,
    /// Writes; for `error`, `gone`, `hang` and `latency` also what else changes blocks.
    Write,
    /// All of them, flushes too.
    All,
}

/// How often something happens, in parts of a billion; written such as `0.1%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Rate(pub u64);

impl FaultLayerSpec {
    /// Checks the faults, on a device with such blocks.
    pub(super) fn check(&self, block_size: u32) -> Result<(), FaultError> {
        if self.faults.len() > MOST_FAULTS {
            return Err(FaultError::TooMany(self.faults.len()));
        }
        for fault in &self.faults {
            fault.check(block_size)?;
        }
        let delays = self.faults.iter().flat_map(|it| [it.latency, it.spread]);
        let delays = delays.flatten().map(|span| span.0.as_us());
        let longest = delays.fold(0, u64::saturating_add);
        match longest > LONGEST_DELAY.as_us() {
            true => Err(FaultError::Delay(Duration::from_us(longest))),
            false => Ok(()),
        }
    }

    /// The faults as the layer takes them.
    pub fn rules(&self, block_size: u32) -> Vec<FaultRule> {
        let rules = self.faults.iter().map(|fault| fault.rule(block_size));
        rules.collect()
    }
}

impl FaultSpec {
    /// A fault about which nothing else is said.
    fn new(kind: FaultName) -> Self {
        Self {
            kind,
            rate: None,
            every: None,
            on: None,
            from: None,
            to: None,
            latency: None,
            spread: None,
        }
    }

    fn check(&self, block_size: u32) -> Result<(), FaultError> {
        let kind = self.kind;
        match (self.rate, self.every) {
            (Some(_), Some(_)) => return Err(FaultError::RateAndEvery(kind)),
            (Some(Rate(parts)), _) if parts == 0 || parts > PARTS.into() => {
                return Err(FaultError::Rate(kind));
            }
            (_, Some(0)) => return Err(FaultError::Every(kind)),
            _ => {}
        }
        if let Some(on) = self.on
            && !self.block_kind().possible_on().contains(&on.on())
        {
            return Err(FaultError::On(kind, on));
        }
        match (kind, self.latency.is_some(), self.spread.is_some()) {
            (FaultName::Latency, false, _) => Err(FaultError::NeedsLatency),
            (FaultName::Latency, true, _) | (_, false, false) => self.check_range(block_size),
            (_, true, _) => Err(FaultError::HasNo(kind, "latency")),
            (_, false, true) => Err(FaultError::HasNo(kind, "spread")),
        }
    }

    fn check_range(&self, block_size: u32) -> Result<(), FaultError> {
        let kind = self.kind;
        let bounds = [("from", self.from), ("to", self.to)];
        for (key, bound) in bounds {
            match bound {
                Some(_) if !self.block_kind().has_range() => {
                    return Err(FaultError::HasNo(kind, key));
                }
                Some(Size(bytes)) if !bytes.is_multiple_of(block_size.into()) => {
                    return Err(FaultError::Unaligned(kind, key, bytes, block_size));
                }
                _ => {}
            }
        }
        match (self.from.unwrap_or(Size(0)), self.to) {
            (from, Some(to)) if from >= to => Err(FaultError::Empty(kind, from.0, to.0)),
            _ => Ok(()),
        }
    }

    fn block_kind(&self) -> FaultKind {
        let span = |span: Option<Span>| span.map_or(Duration::ZERO, |span| span.0);
        match self.kind {
            FaultName::Poison => FaultKind::Poison,
            FaultName::Torn => FaultKind::Torn,
            FaultName::Lost => FaultKind::Lost,
            FaultName::Misdirected => FaultKind::Misdirected,
            FaultName::Stale => FaultKind::Stale,
            FaultName::LyingFlush => FaultKind::LyingFlush,
            FaultName::Error => FaultKind::Error,
            FaultName::Gone => FaultKind::Gone,
            FaultName::Hang => FaultKind::Hang,
            FaultName::Latency => FaultKind::Latency {
                fixed: span(self.latency),
                spread: span(self.spread),
            },
        }
    }

    /// As the layer takes it; it has been checked.
    fn rule(&self, block_size: u32) -> FaultRule {
        let mut rule = FaultRule::new(self.block_kind());
        let every = self.every.and_then(NonZeroU32::new);
        let every = every.map(|every| Frequency::Every(every.into()));
        let rate = self.rate.and_then(|rate| u32::try_from(rate.0).ok());
        if let Some(frequency) = every.or(rate.map(Frequency::Rate)) {
            rule = rule.at(frequency);
        }
        if let Some(on) = self.on {
            rule = rule.on(on.on());
        }
        if self.from.is_some() || self.to.is_some() {
            let block = |bound: Option<Size>| bound.map(|size| size.0 / u64::from(block_size));
            let from = block(self.from).unwrap_or(0);
            rule = rule.within(from..block(self.to).unwrap_or(u64::MAX));
        }
        rule
    }
}

impl FaultName {
    /// As it is written.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The I/Os that it can be for, as they are written.
    pub(super) fn possible_on(self) -> Vec<String> {
        let possible = FaultSpec::new(self).block_kind().possible_on();
        let all = FaultOnName::value_variants().iter();
        let names = all.filter(|name| possible.contains(&name.on()));
        names.map(|name| name.name()).collect()
    }
}

impl FaultOnName {
    fn on(self) -> FaultOn {
        match self {
            Self::Read => FaultOn::Reads,
            Self::Write => FaultOn::Writes,
            Self::All => FaultOn::All,
        }
    }

    /// As it is written.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// On the command line: `poison,rate=0.1%,on=read,from=1GiB,to=2GiB`.
impl FromStr for FaultSpec {
    type Err = FaultError;
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut words = text.split(',').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let kind = FaultName::from_str(kind, false);
        let kind = kind.map_err(|_| FaultError::Kind(text.to_owned()))?;
        let mut fault = Self::new(kind);
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| FaultError::Word(word.to_owned()))?;
            let wrong = |error| FaultError::Value(key.to_owned(), error);
            match key {
                "rate" => fault.rate = Some(value.parse().map_err(wrong)?),
                "from" => fault.from = Some(value.parse().map_err(wrong)?),
                "to" => fault.to = Some(value.parse().map_err(wrong)?),
                "latency" => fault.latency = Some(value.parse().map_err(wrong)?),
                "spread" => fault.spread = Some(value.parse().map_err(wrong)?),
                "every" => {
                    let number = value.parse();
                    fault.every = Some(number.map_err(|_| FaultError::Every(kind))?);
                }
                "on" => {
                    let on = FaultOnName::from_str(value, false);
                    fault.on = Some(on.map_err(|_| FaultError::NoSuchOn(kind, value.to_owned()))?);
                }
                key => return Err(FaultError::Key(key.to_owned())),
            }
        }
        Ok(fault)
    }
}

/// As it would be typed on the command line.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, every, .. } = self;
        f.write_str(&self.kind.name())?;
        if let Some(rate) = rate {
            write!(f, ",rate={rate}")?;
        }
        if let Some(every) = every {
            write!(f, ",every={every}")?;
        }
        if let Some(on) = self.on {
            write!(f, ",on={}", on.name())?;
        }
        for (key, bound) in [("from", self.from), ("to", self.to)] {
            if let Some(Size(bytes)) = bound {
                write!(f, ",{key}={bytes}")?;
            }
        }
        for (key, span) in [("latency", self.latency), ("spread", self.spread)] {
            if let Some(Span(span)) = span {
                write!(f, ",{key}={}us", span.as_us())?;
            }
        }
        Ok(())
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        RATE.parse(text).map(Self)
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(of: &mut SchemaGenerator) -> Schema {
        RATE.schema("string", of)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        RATE.read(value).map(Self)
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_percent = u64::from(PARTS) / 100;
        let (whole, parts) = (self.0 / of_percent, self.0 % of_percent);
        match format!("{parts:07}").trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            fraction => write!(f, "{whole}.{fraction}%"),
        }
    }
}

#[cfg(test)]
mod tests;
