//! Rates, bandwidths and spans of time, as they are written.

use std::borrow::Cow;
use std::str::FromStr;

use flashyard_sched::Rates;
use flashyard_time::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::{RATES, TenantError, ValueError};
use crate::units::{BANDWIDTH, IOS, SPAN, UnitError, ios_schema, read_ios};

/// Rates, of which each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatesSpec {
    /// Reads and writes per second together.
    #[serde(
        default,
        deserialize_with = "read_ios",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "ios_schema")]
    pub iops: Option<u64>,
    /// Reads per second.
    #[serde(
        default,
        deserialize_with = "read_ios",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "ios_schema")]
    pub read_iops: Option<u64>,
    /// Writes per second.
    #[serde(
        default,
        deserialize_with = "read_ios",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "ios_schema")]
    pub write_iops: Option<u64>,
    /// Bytes per second, both ways together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Bytes read per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<Bandwidth>,
    /// Bytes written per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<Bandwidth>,
}

/// Bytes per second, written such as `1GB/s` and shown as a number in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u64")]
pub struct Bandwidth(pub u64);

/// A span of time, written such as `500us` and shown as microseconds in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "u64")]
pub struct Span(pub Duration);

impl RatesSpec {
    /// As schedulers take them.
    pub fn rates(self) -> Rates {
        let bytes = |bandwidth: Option<Bandwidth>| bandwidth.map(|bandwidth| bandwidth.0);
        Rates {
            ios: self.iops,
            read_ios: self.read_iops,
            write_ios: self.write_iops,
            bytes: bytes(self.bandwidth),
            read_bytes: bytes(self.read_bandwidth),
            write_bytes: bytes(self.write_bandwidth),
        }
    }

    /// Each rate with its key, in the order in which they are written.
    pub fn all(self) -> [(&'static str, Option<u64>); 6] {
        let rates = self.rates();
        let values = [
            rates.ios,
            rates.read_ios,
            rates.write_ios,
            rates.bytes,
            rates.read_bytes,
            rates.write_bytes,
        ];
        std::array::from_fn(|rate| (RATES[rate], values[rate]))
    }

    /// Without the rates of these names.
    #[must_use]
    pub fn without(mut self, names: &[String]) -> Self {
        for name in names {
            match name.as_str() {
                "iops" => self.iops = None,
                "read_iops" => self.read_iops = None,
                "write_iops" => self.write_iops = None,
                "bandwidth" => self.bandwidth = None,
                "read_bandwidth" => self.read_bandwidth = None,
                "write_bandwidth" => self.write_bandwidth = None,
                _ => {}
            }
        }
        self
    }

    /// Of each rate the lesser; of one that is missing on either side, none.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        let rate = |a: Option<u64>, b: Option<u64>| Some(a?.min(b?));
        let bandwidth =
            |a: Option<Bandwidth>, b: Option<Bandwidth>| Some(Bandwidth(a?.0.min(b?.0)));
        Self {
            iops: rate(self.iops, other.iops),
            read_iops: rate(self.read_iops, other.read_iops),
            write_iops: rate(self.write_iops, other.write_iops),
            bandwidth: bandwidth(self.bandwidth, other.bandwidth),
            read_bandwidth: bandwidth(self.read_bandwidth, other.read_bandwidth),
            write_bandwidth: bandwidth(self.write_bandwidth, other.write_bandwidth),
        }
    }

    /// Whether no rate here is more than a limit lets through.
    pub(super) fn within(self, limit: Self) -> Result<(), TenantError> {
        let (owed, most) = (self.all(), limit.all());
        // A limit of both kinds together bounds each of them, and their sum.
        for (together, parts) in [(0, [1, 2]), (3, [4, 5])] {
            let sum = parts.iter().filter_map(|part| owed[*part].1).sum::<u64>();
            let parts_above = parts
                .iter()
                .find(|part| owed[**part].1 > most[**part].1 && most[**part].1.is_some());
            let above = parts_above.copied().or_else(|| {
                let all = owed[together].1.unwrap_or(0).max(sum);
                (most[together].1.is_some_and(|most| all > most)).then_some(together)
            });
            if let Some(above) = above {
                let (key, most) = most[above];
                return Err(TenantError::AboveLimit(key, most.unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// On the command line: `read_iops=20000,bandwidth=1GB/s`.
impl FromStr for RatesSpec {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut rates = Self::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ValueError::Rate(part.to_owned()))?;
            let (key, wrong) = (key.trim(), |error| ValueError::In(key.trim().into(), error));
            let ios = || IOS.parse(value).map(Some).map_err(wrong);
            let bandwidth = || value.parse().map(Some).map_err(wrong);
            match key {
                "iops" => rates.iops = ios()?,
                "read_iops" => rates.read_iops = ios()?,
                "write_iops" => rates.write_iops = ios()?,
                "bandwidth" => rates.bandwidth = bandwidth()?,
                "read_bandwidth" => rates.read_bandwidth = bandwidth()?,
                "write_bandwidth" => rates.write_bandwidth = bandwidth()?,
                other => return Err(ValueError::NoSuchRate(other.to_owned())),
            }
        }
        Ok(rates)
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        BANDWIDTH.parse(text).map(Self)
    }
}

impl FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        SPAN.parse(text).map(Self::from_ns)
    }
}

impl Span {
    /// Spans are whole microseconds: so they are kept and sent. Rounded up, so that what is not
    /// nothing does not become it.
    fn from_ns(ns: u64) -> Self {
        Self(Duration::from_us(ns.div_ceil(1_000).min(u64::MAX / 1_000)))
    }
}

impl JsonSchema for Bandwidth {
    fn schema_name() -> Cow<'static, str> {
        "Bandwidth".into()
    }

    fn json_schema(of: &mut SchemaGenerator) -> Schema {
        BANDWIDTH.schema("integer", of)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        BANDWIDTH.read(value).map(Self)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(of: &mut SchemaGenerator) -> Schema {
        SPAN.schema("integer", of)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        SPAN.read(value).map(Self::from_ns)
    }
}

impl From<Bandwidth> for u64 {
    fn from(bandwidth: Bandwidth) -> Self {
        bandwidth.0
    }
}

impl From<Span> for u64 {
    fn from(span: Span) -> Self {
        span.0.as_us()
    }
}
