//! What a tenant is owed and may have: guarantees, limits and a latency target.

use flashyard_sched::{Rates, Share};
use flashyard_time::Duration;

use super::TenantSpec;
use super::error::{TenantError, WEIGHT_MOST};
use super::rates::{RatesSpec, Span};

/// The shortest latency target: below is less than any flash.
const TARGET_LEAST: Duration = Duration::from_us(10);
/// The longest.
const TARGET_MOST: Duration = Duration::from_secs(10);

/// How a tenant changes: what is taken from it first, before others are given more; then the rest.
pub struct Stages {
    /// Less than it has, and than it is to have.
    pub first: Option<TenantSpec>,
    /// As it is to be.
    pub then: Option<TenantSpec>,
}

impl TenantSpec {
    /// What the schedulers know of it.
    pub fn share(&self) -> Share {
        Share {
            weight: self.weight,
            guarantee: self.guarantee.map_or(Rates::NONE, RatesSpec::rates),
            limit: self.limit.map_or(Rates::NONE, RatesSpec::rates),
            latency_target: self.latency_target.map(|span| span.0),
        }
    }

    /// The same without rates, targets and quotas that are given but say nothing.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        let said = |rates: &RatesSpec| *rates != RatesSpec::default();
        self.guarantee = self.guarantee.filter(said);
        self.limit = self.limit.filter(said);
        self.latency_target = self.latency_target.filter(|span| span.0 > Duration::ZERO);
        self.quota.retain(|_, size| size.0 > 0);
        self
    }

    /// The change from this to what is wanted. Of each rate that it is guaranteed it has the lesser
    /// of the two first.
    pub fn stages(&self, wanted: Self) -> Stages {
        let before = self.guarantee.unwrap_or_default();
        let after = wanted.guarantee.unwrap_or_default();
        let lesser = before.lesser(after);
        if lesser == before {
            // Nothing is taken away.
            return Stages {
                first: None,
                then: Some(wanted),
            };
        }
        let first = Self {
            guarantee: (lesser != RatesSpec::default()).then_some(lesser),
            ..wanted.clone()
        };
        Stages {
            first: Some(first),
            then: (lesser != after).then_some(wanted),
        }
    }

    /// Checks weight, rates and target.
    pub(super) fn check_share(&self) -> Result<(), TenantError> {
        if !(1..=WEIGHT_MOST).contains(&self.weight) {
            return Err(TenantError::Weight(self.weight));
        }
        let (guarantee, limit) = (
            self.guarantee.unwrap_or_default(),
            self.limit.unwrap_or_default(),
        );
        for (what, rates) in [("guarantee", guarantee), ("limit", limit)] {
            if let Some((key, _)) = rates.all().into_iter().find(|(_, rate)| *rate == Some(0)) {
                return Err(TenantError::Nothing(what, key));
            }
        }
        guarantee.within(limit)?;
        match self.latency_target {
            Some(Span(target)) if !(TARGET_LEAST..=TARGET_MOST).contains(&target) => {
                Err(TenantError::LatencyTarget(target))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Bandwidth;
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
            (
                "weight = 2",
                "weight = -1",
                "weight is -1: give a whole number, 1 to 10000",
            ),
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
            ("\"1GB/s\"", "\"fast\"", "not a bandwidth"),
            ("\"500us\"", "\"5us\"", "give 10us to 10s"),
            ("\"500us\"", "\"1ns\"", "give 10us to 10s"),
            ("\"500us\"", "\"11s\"", "give 10us to 10s"),
            ("\"500us\"", "\"soon\"", "not a span"),
        ] {
            assert!(GOOD.contains(right), "{right}");
            let error = Config::parse(&GOOD.replacen(right, wrong, 1))
                .expect_err(wrong)
                .to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }

    /// A target of zero is none: what is asked of a running target has to arrive as it was typed.
    #[test]
    fn a_span_is_sent_as_it_was_read() {
        for (text, us) in [
            ("0us", 0),
            ("1ns", 1),
            ("1500ns", 2),
            ("500us", 500),
            ("67108864us", 67_108_864),
        ] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.0, Duration::from_us(us), "{text}");
            let sent = serde_json::to_string(&span).expect("plain data");
            let read: Span = serde_json::from_str(&sent).expect("it was written");
            assert_eq!(read, span, "{text}");
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

    fn tenant(guarantee: &str) -> TenantSpec {
        let text = format!("name = \"t\"\n{guarantee}");
        toml::from_str(&text).expect("a tenant")
    }

    #[test]
    fn less_comes_before_more() {
        let none = tenant("");
        let reads = tenant("guarantee = { read_iops = 1000 }");
        let fewer = tenant("guarantee = { read_iops = 400 }");
        let both = tenant("guarantee = { read_iops = 400, write_iops = 50 }");
        let named = tenant("guarantee = { read_iops = 1000 }\nweight = 7");
        let table = [
            (&none, &reads, None, Some(&reads)),
            (&reads, &none, Some(&none), None),
            (&reads, &fewer, Some(&fewer), None),
            (&fewer, &reads, None, Some(&reads)),
            (&fewer, &both, None, Some(&both)),
            (&reads, &both, Some(&fewer), Some(&both)),
            (&both, &reads, Some(&fewer), Some(&reads)),
            (&reads, &named, None, Some(&named)),
        ];
        for (present, wanted, first, then) in table {
            let found = present.stages(wanted.clone());
            assert_eq!((found.first.as_ref(), found.then.as_ref()), (first, then));
        }
    }
}
