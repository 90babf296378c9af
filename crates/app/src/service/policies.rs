//! The policies that devices have. Most learn what they have to know of a device; some need figures
//! of it, which are made from what `device calibrate` has found out.

use flashyard_sched::{Figures, Known, Point, Policy, READ_TOKENS, Window};
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
/// How to make the policy of a device, on whichever core.
#[derive(Clone, Debug)]
pub struct PolicyPlan {
    name: PolicyName,
    known: Known,
}

/// What nobody has chosen.
impl Default for PolicyPlan {
    fn default() -> Self {
        Self::known(PolicyName::default(), None)
    }
}

impl PolicyPlan {
    /// For a device whose policy needs no figures, or that was measured.
    pub fn of(spec: &DeviceSpec) -> Self {
        Self::known(spec.policy, figures(spec))
    }

    fn known(name: PolicyName, figures: Option<Figures>) -> Self {
        let known = Known {
            window: WINDOW,
            figures,
        };
        Self { name, known }
    }

    /// Which one.
    pub fn name(&self) -> PolicyName {
        self.name
    }

    /// The policy, with nothing in it. One that needs figures that are missing is the default
    /// instead; that is refused before it comes to this, see `calibrate.rs`.
    pub fn make(&self) -> Box<dyn Policy> {
        let made = self.name.kind().make(&self.known);
        let other = || PolicyName::default().kind().make(&self.known);
        made.or_else(other).expect("the default needs no figures")
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
    if !spec.policy.kind().needs_figures() || figures(spec).is_some() {
        return Ok(());
    }
    Err(Refused::NeedsFigures(spec.policy, spec.name.clone()).into())
}

/// All that has to be known; nothing when a part of it is not.
fn figures(spec: &DeviceSpec) -> Option<Figures> {
    let RatesSpec {
        read_iops,
        write_iops,
        read_bandwidth,
        write_bandwidth,
        ..
    } = spec.capability?;
    let rates = |small: Option<u64>, bytes: Option<u64>| Some([small?, bytes? / LARGE]);
    let reads = rates(read_iops, read_bandwidth.map(u64::from))?;
    let writes = rates(write_iops, write_bandwidth.map(u64::from))?;
    let figures = Figures::new(reads, writes)?.with_curve(rising(&spec.curve));
    Some(match depth(reads[0], &spec.curve) {
        Some(depth) => figures.with_depth(depth),
        None => figures,
    })
}

/// The p95 of reads alone, as far as it grows with the load.
fn rising(curve: &[LoadPoint]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for point in curve {
        let latency = Duration::from_ns(point.p95_ns);
        if points.last().is_none_or(|last| last.latency < latency) {
            let tokens = point.read_iops.saturating_mul(READ_TOKENS);
            points.push(Point { latency, tokens });
        }
    }
    points
}

/// Reads in flight at nine tenths of what the device can do, by Little's law; none if that is not
/// known.
fn depth(reads: u64, curve: &[LoadPoint]) -> Option<u32> {
    let most = reads / 10 * 9;
    let point = curve.iter().rev().find(|point| point.read_iops <= most)?;
    let ns = u128::from(point.read_iops) * u128::from(point.mean_ns);
    let depth = (ns / 1_000_000_000) as u64;
    Some(depth.clamp(1, WINDOW.ios.into()) as u32)
}

#[cfg(test)]
mod tests {
    use flashyard_sched::flashfq::Model;
    use flashyard_sched::reflex;

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
        let all = figures(&spec).expect("all is known");
        let reflex = reflex::Calibration::from(&all);
        assert_eq!(reflex.write_tokens(), 10 * READ_TOKENS);
        let rate = |us| reflex.rate(Some(Duration::from_us(us)));
        assert_eq!(rate(120), 20_000_000);
        assert_eq!(rate(500), 36_000_000);
        assert_eq!(reflex.rate(None), 40_000_000);
        let model = Model::from(&all);
        assert_eq!(model.depth, 72);
        assert_eq!(model.lead, Duration::from_secs(1) / (200_000_000 / LARGE));
        assert!(model.read.page < model.write.page);
        let bare = DeviceSpec {
            curve: Vec::new(),
            ..spec
        };
        let bare = figures(&bare).expect("the rates are known");
        assert_eq!(bare.depth(), 64);
        let reflex = reflex::Calibration::from(&bare);
        assert_eq!(reflex.rate(Some(Duration::from_us(1))), 40_000_000);
    }
}
