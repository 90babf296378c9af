//! What a tenant is owed and may have: guarantees, limits and a latency target, as they are
//! written.

use std::str::FromStr;

use flashyard_sched::{Rates, Share};
use flashyard_time::Duration;
use serde::{Deserialize, Serialize};

use super::TenantSpec;
use crate::units;

/// Weights go up to this.
const WEIGHT_MOST: u32 = 10_000;
/// A latency target lies between these: below is less than any flash, above is no target.
const TARGET_LEAST: Duration = Duration::from_us(10);
const TARGET_MOST: Duration = Duration::from_secs(10);

/// Rates, of which each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatesSpec {
    /// Reads and writes per second together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Reads per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Writes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "u64")]
pub struct Bandwidth(pub u64);

/// A span of time, written such as `500us` and shown as microseconds in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "u64")]
pub struct Span(pub Duration);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl TenantSpec {
    /// What the schedulers are told of it.
    pub fn share(&self) -> Share {
        Share {
            weight: self.weight,
            guarantee: self.guarantee.map_or(Rates::NONE, RatesSpec::rates),
            limit: self.limit.map_or(Rates::NONE, RatesSpec::rates),
            latency_target: self.latency_target.map(|span| span.0),
        }
    }

    /// The same without rates and targets that are given but say nothing.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        let said = |rates: &RatesSpec| *rates != RatesSpec::default();
        self.guarantee = self.guarantee.filter(said);
        self.limit = self.limit.filter(said);
        self.latency_target = self.latency_target.filter(|span| span.0 > Duration::ZERO);
        self
    }

    /// Checks weight, rates and target.
    pub(super) fn check_share(&self) -> Result<(), String> {
        let name = &self.name;
        if !(1..=WEIGHT_MOST).contains(&self.weight) {
            return Err(format!(
                "tenant `{name}`: weight {} is out of range: 1 to {WEIGHT_MOST}",
                self.weight
            ));
        }
        let (guarantee, limit) = (
            self.guarantee.unwrap_or_default(),
            self.limit.unwrap_or_default(),
        );
        for (what, rates) in [("guarantee", guarantee), ("limit", limit)] {
            if let Some((key, _)) = rates.all().into_iter().find(|(_, rate)| *rate == Some(0)) {
                return Err(format!(
                    "tenant `{name}`: {what} {key} is 0: leave it out, or give what is meant"
                ));
            }
        }
        guarantee
            .within(limit)
            .map_err(|what| format!("tenant `{name}`: {what}"))?;
        match self.latency_target {
            Some(Span(target)) if !(TARGET_LEAST..=TARGET_MOST).contains(&target) => Err(format!(
                "tenant `{name}`: latency_target is {target}; give 10us to 10s"
            )),
            _ => Ok(()),
        }
    }
}

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

    fn all(self) -> [(&'static str, Option<u64>); 6] {
        let rates = self.rates();
        [
            ("iops", rates.ios),
            ("read_iops", rates.read_ios),
            ("write_iops", rates.write_ios),
            ("bandwidth", rates.bytes),
            ("read_bandwidth", rates.read_bytes),
            ("write_bandwidth", rates.write_bytes),
        ]
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
    fn within(self, limit: Self) -> Result<(), String> {
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
                return Err(format!(
                    "its guarantee is above its limit of {} {}: raise the limit or lower the guarantee",
                    most[above].0,
                    most[above].1.unwrap_or_default()
                ));
            }
        }
        Ok(())
    }
}

/// On the command line: `read_iops=20000,bandwidth=1GB/s`.
impl FromStr for RatesSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut rates = Self::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is no rate: write it like read_iops=20000"))?;
            let number = || {
                value
                    .parse()
                    .map_err(|_| format!("`{value}` is no number of I/Os per second"))
            };
            match key.trim() {
                "iops" => rates.iops = Some(number()?),
                "read_iops" => rates.read_iops = Some(number()?),
                "write_iops" => rates.write_iops = Some(number()?),
                "bandwidth" => rates.bandwidth = Some(value.parse()?),
                "read_bandwidth" => rates.read_bandwidth = Some(value.parse()?),
                "write_bandwidth" => rates.write_bandwidth = Some(value.parse()?),
                other => {
                    let known = Self::default().all().map(|(key, _)| key).join(", ");
                    return Err(format!("there is no rate `{other}`: use {known}"));
                }
            }
        }
        Ok(rates)
    }
}

impl FromStr for Bandwidth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.trim().strip_suffix("/s").unwrap_or(text);
        units::parse_size(bytes)
            .map(Self)
            .map_err(|_| format!("`{text}` is no bandwidth: write it like 1GB/s or 200MiB/s"))
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        units::parse_span(text).map(Self)
    }
}

impl TryFrom<Written> for Bandwidth {
    type Error = String;
    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<Written> for Span {
    type Error = String;
    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(us) => Ok(Self(Duration::from_us(us.min(TARGET_MOST.as_us() + 1)))),
            Written::Text(text) => text.parse(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Config;

    const GOOD: &str = r#"
        [[tenant]]
        name = "db"
        class = "latency"
        weight = 2
        guarantee = { read_iops = 20000, write_bandwidth = "50MB/s" }
        limit = { iops = 40000, bandwidth = "1GB/s" }
        latency_target = "500us"
    "#;

    #[test]
    fn a_share_is_read_as_documented_and_survives_the_store() {
        let config = Config::parse(GOOD).expect("it is right");
        let share = config.tenants[0].share();
        assert_eq!(share.weight, 2);
        assert_eq!(share.guarantee.read_ios, Some(20_000));
        assert_eq!(share.guarantee.write_bytes, Some(50_000_000));
        assert_eq!(share.limit.ios, Some(40_000));
        assert_eq!(share.limit.bytes, Some(1_000_000_000));
        assert_eq!(share.latency_target, Some(Duration::from_us(500)));
        let written = serde_json::to_string(&config.tenants[0]).expect("plain data");
        let read: TenantSpec = serde_json::from_str(&written).expect("what was written");
        assert_eq!(read, config.tenants[0]);
    }

    #[test]
    fn every_mistake_is_named() {
        for (right, wrong, message) in [
            ("weight = 2", "weight = 0", "weight 0 is out of range"),
            ("weight = 2", "weight = 10001", "out of range"),
            ("weight = 2", "weight = -1", "invalid value: integer `-1`"),
            (
                "class = \"latency\"",
                "class = \"urgent\"",
                "unknown variant `urgent`",
            ),
            ("iops = 40000", "iops = 0", "limit iops is 0"),
            ("read_iops = 20000", "read_iops = 0", "read_iops is 0"),
            (
                "read_iops = 20000",
                "reads = 20000",
                "unknown field `reads`",
            ),
            (
                "read_iops = 20000",
                "read_iops = 40001",
                "above its limit of iops 40000",
            ),
            (
                "write_bandwidth = \"50MB/s\"",
                "bandwidth = \"2GB/s\"",
                "above its limit of bandwidth 1000000000",
            ),
            ("\"1GB/s\"", "\"fast\"", "no bandwidth"),
            ("\"500us\"", "\"5us\"", "give 10us to 10s"),
            ("\"500us\"", "\"soon\"", "not a span"),
        ] {
            assert!(GOOD.contains(right), "{right}");
            let error = Config::parse(&GOOD.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }

    #[test]
    fn rates_on_the_command_line() {
        let rates: RatesSpec = "read_iops=20000,bandwidth=1GB/s".parse().expect("good");
        assert_eq!(rates.read_iops, Some(20_000));
        assert_eq!(rates.bandwidth, Some(Bandwidth(1_000_000_000)));
        for wrong in ["", "20000", "iops=many", "speed=3", "bandwidth=3 parsec/s"] {
            assert!(wrong.parse::<RatesSpec>().is_err(), "{wrong}");
        }
    }
}
