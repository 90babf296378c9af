//! The policies that a device can have. Most learn what they have to know of it; two need figures
//! of the device, and are made from what `device calibrate` has found out.

use flashyard_sched::flashfq::{Line, Model};
use flashyard_sched::gimbal::{Flaws, Tuning};
use flashyard_sched::reflex::{self, Point, READ_TOKENS};
use flashyard_sched::{Caps, Fair, Fifo, FlashFq, Gimbal, Policy, Reflex, Window};
use flashyard_time::Duration;

use super::Fault;
use super::fault::Refused;
use crate::spec::{DeviceSpec, LoadPoint, PolicyName, RatesSpec};

/// What a device gets at once when nobody chooses: more than any device can make use of, less than
/// the buffers there are.
const WINDOW: Window = Window {
    ios: 4096,
    bytes: 64 << 20,
};
/// Bytes of the I/O by which bandwidth is measured.
const LARGE: u64 = 128 << 10;
/// For how long FlashFQ waits for a tenant that has nothing queued.
const ANTICIPATION: Duration = Duration::from_us(100);
/// I/Os in flight that keep a device busy of which only rates are known.
const DEPTH: u64 = 64;

/// How to make the policy of a device, on whichever core.
#[derive(Clone, Debug, Default)]
pub struct PolicyPlan {
    name: PolicyName,
    facts: Option<Facts>,
}

/// What a device was found to do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// I/Os per second of 4 KiB and of 128 KiB.
    reads: [u64; 2],
    writes: [u64; 2],
    curve: Vec<LoadPoint>,
}

impl PolicyName {
    /// The policy as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Fair => "fair",
            Self::Gimbal => "gimbal",
            Self::GimbalReleased => "gimbal-released",
            Self::Reflex => "reflex",
            Self::FlashFq => "flashfq",
            Self::Caps => "caps",
        }
    }

    /// Whether it keeps guarantees. See the module of each in `flashyard_sched`.
    pub fn keeps_guarantees(self) -> bool {
        matches!(self, Self::Fair | Self::Reflex)
    }

    /// Whether it needs figures of the device.
    pub fn needs_figures(self) -> bool {
        matches!(self, Self::Reflex | Self::FlashFq)
    }
}

impl PolicyPlan {
    /// For a device whose policy needs no figures, or that was measured.
    pub fn of(spec: &DeviceSpec) -> Self {
        Self {
            name: spec.policy,
            facts: Facts::of(spec),
        }
    }

    /// Which one.
    pub fn name(&self) -> PolicyName {
        self.name
    }

    /// The policy, with nothing in it. One that needs figures that are missing is the default
    /// instead; that is refused before it comes to this, see `calibrate.rs`.
    pub fn make(&self) -> Box<dyn Policy> {
        match (self.name, &self.facts) {
            (PolicyName::Fifo, _) => Box::new(Fifo::new(WINDOW)),
            (PolicyName::Gimbal, _) => Box::new(Gimbal::new(Tuning::default(), Flaws::default())),
            (PolicyName::GimbalReleased, _) => {
                Box::new(Gimbal::new(Tuning::default(), Flaws::RELEASED))
            }
            (PolicyName::Caps, _) => Box::new(Caps::new()),
            (PolicyName::Reflex, Some(facts)) => Box::new(Reflex::new(facts.reflex())),
            (PolicyName::FlashFq, Some(facts)) => Box::new(FlashFq::new(facts.flashfq())),
            (PolicyName::Fair | PolicyName::Reflex | PolicyName::FlashFq, _) => {
                Box::new(Fair::new())
            }
        }
    }
}

/// What is to be known of the policy of a device without figures of the device.
pub(super) fn stand_in(spec: &DeviceSpec) -> Option<String> {
    check(spec)
        .err()
        .map(|why| format!("`fair` stands in: {why}"))
}

/// Refuses a policy that needs figures of the device when there are none.
pub(super) fn check(spec: &DeviceSpec) -> Result<(), Fault> {
    if !spec.policy.needs_figures() || Facts::of(spec).is_some() {
        return Ok(());
    }
    Err(Refused::NeedsFigures(spec.policy, spec.name.clone()).into())
}

impl Facts {
    /// All that has to be known; nothing when a part of it is not.
    fn of(spec: &DeviceSpec) -> Option<Self> {
        let RatesSpec {
            read_iops,
            write_iops,
            read_bandwidth,
            write_bandwidth,
            ..
        } = spec.capability?;
        let rates = |small: Option<u64>, bytes: Option<u64>| {
            let (small, large) = (small?, bytes? / LARGE);
            // Large I/O is not quicker than small I/O, whatever was measured or said.
            (small > 0 && large > 0).then_some([small, large.min(small)])
        };
        Some(Self {
            reads: rates(read_iops, read_bandwidth.map(u64::from))?,
            writes: rates(write_iops, write_bandwidth.map(u64::from))?,
            curve: spec.curve.clone(),
        })
    }

    /// What a write is worth, and the load that each latency allows. Loads are those of reads
    /// alone: ReFlex takes the mix not to matter when it is counted in tokens.
    fn reflex(&self) -> reflex::Calibration {
        let write_tokens = self.reads[0].saturating_mul(READ_TOKENS) / self.writes[0];
        let mut points: Vec<Point> = Vec::new();
        for point in &self.curve {
            let latency = Duration::from_ns(point.p95_ns);
            if points.last().is_none_or(|last| last.latency < latency) {
                let tokens = point.read_iops.saturating_mul(READ_TOKENS);
                points.push(Point { latency, tokens });
            }
        }
        points.push(Point {
            latency: Duration::MAX,
            tokens: self.reads[0].saturating_mul(READ_TOKENS),
        });
        reflex::Calibration::new(write_tokens, points)
    }

    /// Lines through the rates. The lead is one large write.
    fn flashfq(&self) -> Model {
        Model {
            depth: self.depth(),
            read: Line::through(self.reads[0], self.reads[1]),
            write: Line::through(self.writes[0], self.writes[1]),
            lead: Duration::from_secs(1) / self.writes[1],
            anticipation: ANTICIPATION,
        }
    }

    /// Reads in flight at nine tenths of what the device can do, by Little's law.
    fn depth(&self) -> u32 {
        let most = self.reads[0] / 10 * 9;
        let point = self
            .curve
            .iter()
            .rev()
            .find(|point| point.read_iops <= most);
        let depth = point.map_or(DEPTH, |point| {
            let ns = u128::from(point.read_iops) * u128::from(point.mean_ns);
            (ns / 1_000_000_000) as u64
        });
        depth.clamp(1, WINDOW.ios.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> DeviceSpec {
        let text = format!("name = \"d\"\nkind = \"null\"\nsize = \"1GiB\"\n{text}");
        toml::from_str(&text).expect("a device")
    }

    const RATES: &str = "read_iops = 400000, write_iops = 40000, read_bandwidth = \"3GB/s\"";

    #[test]
    fn a_policy_that_needs_figures_is_refused_without_them() {
        for policy in ["reflex", "flashfq"] {
            for known in [
                String::new(),
                format!("capability = {{ {RATES} }}"),
                format!("capability = {{ {RATES}, write_bandwidth = 100 }}"),
            ] {
                let spec = device(&format!("policy = \"{policy}\"\n{known}"));
                let why = check(&spec)
                    .expect_err("it does not know the writes")
                    .to_string();
                assert!(
                    why.contains(policy) && why.contains("device calibrate d"),
                    "{why}"
                );
            }
        }
        for policy in ["fifo", "fair", "gimbal", "gimbal-released", "caps"] {
            let spec = device(&format!("policy = \"{policy}\""));
            check(&spec).expect("it learns what it has to know");
            assert_eq!(spec.policy.name(), policy);
        }
    }

    #[test]
    fn policies_are_made_from_what_was_measured() {
        let spec = device(&format!(
            "policy = \"reflex\"\ncapability = {{ {RATES}, write_bandwidth = \"200MB/s\" }}\n\
             curve = [{{ read_iops = 200000, mean_ns = 90000, p50_ns = 80000, p95_ns = 120000, p99_ns = 1 }}, \
             {{ read_iops = 360000, mean_ns = 200000, p50_ns = 1, p95_ns = 500000, p99_ns = 1 }}]"
        ));
        check(&spec).expect("all is known");
        let facts = Facts::of(&spec).expect("all is known");
        let reflex = facts.reflex();
        assert_eq!(reflex.write_tokens(), 10 * READ_TOKENS);
        let rate = |us| reflex.rate(Some(Duration::from_us(us)));
        assert_eq!(rate(120), 20_000_000);
        assert_eq!(rate(500), 36_000_000);
        assert_eq!(reflex.rate(None), 40_000_000);
        let model = facts.flashfq();
        assert_eq!(model.depth, 72);
        assert_eq!(model.lead, Duration::from_secs(1) / (200_000_000 / LARGE));
        assert!(model.read.page < model.write.page);
        let bare = Facts {
            curve: Vec::new(),
            ..facts
        };
        assert_eq!(bare.flashfq().depth, DEPTH as u32);
        assert_eq!(bare.reflex().rate(Some(Duration::from_us(1))), 40_000_000);
    }
}
