//! The best fixed rates for a scene: what a switch could do that knew everything in advance.
//!
//! Every tenant's I/O leaves evenly spaced at the same fraction of its share: of what its work has
//! alone, by weight, within its limit and not below its guarantee. What a tenant cannot use lets
//! the fraction be higher for all. The fraction is sought at which the least of the *deep* tenants
//! has most: of those that by themselves, with what they have in flight, reach five times their
//! share, or four fifths of what their work can reach. Tenants that ask for little get more when
//! the device is less full. They may cost a part of the sum (the claim): of the fractions up to
//! there that keep the rest of it, the one counts at which the least of all tenants has most of
//! what it could use.

use flashyard_sched::{Class, TenantId};
use flashyard_time::Duration;

use super::alone::Alone;
use super::scene::{Scene, Spans, Tenant};
use crate::experiment::Refused;
use crate::load::Pace;
use crate::measure::Tally;
use crate::policies::{Paced, Switch, fifo};

/// The best fixed rates of a scene.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    /// The fraction of its share that everybody is given; nothing when no rate is best.
    pub(super) fraction: Option<f64>,
    /// Bytes per second of each tenant's work alone, and what each has at these rates.
    pub(super) alone: Vec<f64>,
    pub(super) got: Vec<f64>,
}

/// What came of a fraction.
#[derive(Clone)]
struct Tried {
    fraction: f64,
    got: Vec<f64>,
}

/// What is known of each tenant before rates are tried.
struct Facts {
    alone: Vec<f64>,
    /// Its part of that by weight.
    shares: Vec<f64>,
    /// What it reaches by itself, with what it has in flight.
    solo: Vec<f64>,
}

/// A tenant is deep that alone reaches so many times its share, or this part of what its work can
/// reach: whose share is more than a fifth can never reach five times as much.
const DEEP: f64 = 5.0;
const DEEP_PART: f64 = 0.8;
/// Fractions that are tried, each twice the one before.
const FIRST: f64 = 0.35;
const DOUBLINGS: usize = 6;
/// Around the best of them, smaller and smaller steps.
#[expect(clippy::approx_constant, reason = "four digits are enough to step by")]
const STEPS: [f64; 3] = [1.4142, 1.1892, 1.0905];

/// Seeks the best fixed rates of a scene; `claim` is the part of the sum, in percent, that may be
/// given up for tenants that ask for little. `quick` tries one fraction.
pub(super) fn best(
    scene: &Scene,
    spans: Spans,
    claim: u64,
    seed: u64,
    quick: bool,
) -> Result<Best, Refused> {
    let facts = Facts::find(scene, spans, seed)?;
    let deep = facts.deep(scene);
    let attempt = |fraction: f64| {
        let got = run(scene, paced(scene, &facts, fraction), spans, seed)?;
        Ok::<_, Refused>(Tried { fraction, got })
    };
    let mut tried = vec![attempt(f64::INFINITY)?];
    let top = if deep.is_empty() {
        for fraction in fractions(quick) {
            tried.push(attempt(fraction)?);
        }
        0
    } else {
        seek(&mut tried, quick, &attempt, |got| facts.least(got, &deep))?
    };
    let found = claimed(scene, &facts, &tried, top, claim);
    Ok(Best {
        fraction: Some(found.fraction).filter(|fraction| fraction.is_finite()),
        got: found.got.clone(),
        alone: facts.alone,
    })
}

/// The place of the fraction at which `least` is greatest. What is tried on the way is kept.
fn seek(
    tried: &mut Vec<Tried>,
    quick: bool,
    attempt: &dyn Fn(f64) -> Result<Tried, Refused>,
    least: impl Fn(&[f64]) -> f64,
) -> Result<usize, Refused> {
    let mut best = (0, -1.0);
    for fraction in fractions(quick) {
        tried.push(attempt(fraction)?);
        let value = least(&tried[tried.len() - 1].got);
        if value > best.1 {
            best = (tried.len() - 1, value);
        }
        // Nobody can have less than half of a rate that is met, and more at a higher one.
        if value < fraction / 2.0 && best.1 > value {
            break;
        }
    }
    for step in if quick { &[][..] } else { &STEPS } {
        let middle = tried[best.0].fraction;
        for fraction in [middle / step, middle * step] {
            tried.push(attempt(fraction)?);
            let value = least(&tried[tried.len() - 1].got);
            if value > best.1 {
                best = (tried.len() - 1, value);
            }
        }
    }
    let top = tried[best.0].fraction;
    for part in if quick { &[][..] } else { &[0.95, 0.9] } {
        tried.push(attempt(top * part)?);
    }
    Ok(best.0)
}

fn fractions(quick: bool) -> impl Iterator<Item = f64> {
    let count = if quick { 1 } else { DOUBLINGS };
    (0..count).map(|place| FIRST * f64::from(1 << place))
}

/// Of what was tried up to the fraction at `top`, what is best for those that ask for little.
fn claimed<'a>(
    scene: &Scene,
    facts: &Facts,
    tried: &'a [Tried],
    top: usize,
    claim: u64,
) -> &'a Tried {
    let judged: Vec<usize> = (0..scene.tenants.len())
        .filter(|&place| is_judged(&scene.tenants[place]))
        .collect();
    let satisfied = |one: &Tried| {
        let part = |&place: &usize| one.got[place] / facts.usable(scene, place);
        judged.iter().map(part).fold(f64::INFINITY, f64::min)
    };
    let kept = facts.sum(&tried[top].got) * (1.0 - claim as f64 / 100.0);
    let mut found = &tried[top];
    for one in tried {
        let allowed = one.fraction <= tried[top].fraction && facts.sum(&one.got) >= kept;
        if allowed && satisfied(one) > satisfied(found) {
            found = one;
        }
    }
    found
}

/// Whether what a tenant has is held against a policy: in the background nothing is promised, and
/// of latency-sensitive I/O the latency is.
pub(super) fn is_judged(tenant: &Tenant) -> bool {
    tenant.class == Class::Throughput
}

impl Facts {
    fn find(scene: &Scene, spans: Spans, seed: u64) -> Result<Self, Refused> {
        let known = Alone::measure(scene, spans, seed)?;
        let alone: Vec<f64> = scene.tenants.iter().map(|one| known.of(one)).collect();
        let weights = scene.weights();
        let share = |(tenant, alone): (&Tenant, &f64)| alone * f64::from(tenant.weight) / weights;
        let shares = scene.tenants.iter().zip(&alone).map(share).collect();
        let mut solo: Vec<f64> = Vec::new();
        for (place, tenant) in scene.tenants.iter().enumerate() {
            let does_the_same = |other: &Tenant| {
                (&other.pattern, other.pace, other.phases)
                    == (&tenant.pattern, tenant.pace, tenant.phases)
            };
            let before = scene.tenants[..place].iter().position(does_the_same);
            let reached = match before {
                Some(before) => solo[before],
                None => {
                    let scene = Scene {
                        tenants: vec![tenant.clone()],
                        ..scene.clone()
                    };
                    run(&scene, free(), spans, seed)?[0]
                }
            };
            solo.push(reached);
        }
        Ok(Self {
            alone,
            shares,
            solo,
        })
    }

    /// The tenants whose least decides.
    fn deep(&self, scene: &Scene) -> Vec<usize> {
        let is_deep = |&place: &usize| {
            let tenant = &scene.tenants[place];
            let plain = !tenant.limit.any() && !tenant.guarantee.any();
            let closed = matches!(tenant.pace, Pace::Closed { .. });
            let enough = (DEEP * self.shares[place]).min(DEEP_PART * self.alone[place]);
            is_judged(tenant) && plain && closed && self.solo[place] >= enough
        };
        (0..scene.tenants.len()).filter(is_deep).collect()
    }

    /// The least that some tenants have of their shares.
    fn least(&self, got: &[f64], places: &[usize]) -> f64 {
        let each = places.iter().map(|&place| got[place] / self.shares[place]);
        each.fold(f64::INFINITY, f64::min)
    }

    /// What a tenant could use of its share.
    fn usable(&self, scene: &Scene, place: usize) -> f64 {
        let limit = scene.tenants[place].limit.bytes;
        let limit = limit.map_or(f64::INFINITY, |limit| limit as f64);
        self.shares[place].min(self.solo[place]).min(limit).max(1.0)
    }

    fn sum(&self, got: &[f64]) -> f64 {
        got.iter()
            .zip(&self.alone)
            .map(|(got, alone)| got / alone)
            .sum()
    }
}

fn free() -> Switch {
    Switch {
        policy: fifo(),
        host: None,
    }
}

/// Everybody at this fraction of its share; where it is infinite, everybody as fast as it can
/// within its limit.
fn paced(scene: &Scene, facts: &Facts, fraction: f64) -> Switch {
    let rate = |(tenant, share): (&Tenant, &f64)| {
        let limit = tenant.limit.bytes.unwrap_or(u64::MAX);
        let guarantee = tenant.guarantee.bytes.unwrap_or(0);
        ((share * fraction) as u64).max(guarantee).min(limit)
    };
    let rates = scene.tenants.iter().zip(&facts.shares).map(rate);
    let policy = Box::new(Paced::new((1..).map(TenantId).zip(rates)));
    Switch { policy, host: None }
}

/// Bytes per second of each tenant.
fn run(scene: &Scene, switch: Switch, spans: Spans, seed: u64) -> Result<Vec<f64>, Refused> {
    let results = scene.run(switch, spans, Duration::ZERO, seed)?;
    let rates = results.workers.iter().map(Tally::bytes_per_second);
    Ok(rates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fraction: f64, got: &[f64]) -> Tried {
        let got = got.to_vec();
        Tried { fraction, got }
    }

    fn scene(tenants: Vec<Tenant>) -> Scene {
        Scene {
            profile: flashyard_flash::Profile::named("dct983").expect("it ships"),
            capacity: 1 << 30,
            condition: flashyard_flash::ssd::Condition::Clean,
            paths: Vec::new(),
            tenants,
        }
    }

    #[test]
    fn the_fraction_is_found_at_which_the_least_has_most() {
        for peak in [0.2, 0.5, 1.0, 1.34, 7.0] {
            let attempt = |fraction: f64| {
                let got = fraction.min(peak - (fraction - peak) / 3.0).max(0.0);
                Ok(tried(fraction, &[got]))
            };
            let mut all = vec![tried(f64::INFINITY, &[0.0])];
            let found = seek(&mut all, false, &attempt, |got| got[0]).expect("nothing is refused");
            let ratio = all[found].got[0] / peak;
            assert!((0.94..=1.0).contains(&ratio), "{ratio} for {peak}");
        }
    }

    #[test]
    fn who_has_a_limit_is_not_given_more() {
        let reader = Tenant::closed(1, true, &[4096], 32);
        let mut limited = reader.clone();
        limited.limit.bytes = Some(10_000_000);
        let scene = scene(vec![limited, reader]);
        let spans = Spans {
            warm_up: Duration::from_ms(5),
            measured: Duration::from_ms(10),
        };
        let facts = Facts::find(&scene, spans, 1).expect("the scene is sound");
        let free = paced(&scene, &facts, f64::INFINITY);
        let got = run(&scene, free, spans, 1).expect("the scene is sound");
        assert!((9e6..11e6).contains(&got[0]) && got[1] > 1e8, "{got:?}");
    }

    #[test]
    fn who_reaches_what_the_device_does_is_deep_however_large_its_share() {
        let tenant = Tenant::closed(1, true, &[4096], 16);
        let scene = scene(vec![tenant; 3]);
        let facts = |shares: [f64; 3], solo: [f64; 3]| Facts {
            alone: vec![100.0; 3],
            shares: shares.to_vec(),
            solo: solo.to_vec(),
        };
        let known = facts([80.0, 10.0, 10.0], [95.0, 60.0, 40.0]);
        assert_eq!(known.deep(&scene), [0, 1]);
        let known = facts([50.0, 25.0, 25.0], [75.0, 81.0, 79.0]);
        assert_eq!(known.deep(&scene), [1]);
    }

    #[test]
    fn those_that_ask_for_little_may_cost_no_more_than_the_claim() {
        let tenant = Tenant::closed(1, true, &[4096], 1);
        let scene = scene(vec![tenant; 2]);
        let facts = Facts {
            alone: vec![100.0, 100.0],
            shares: vec![50.0, 50.0],
            solo: vec![100.0, 10.0],
        };
        let all = [
            tried(f64::INFINITY, &[98.0, 2.0]),
            tried(1.0, &[85.0, 5.0]),
            tried(0.5, &[60.0, 8.0]),
        ];
        let found = |claim| claimed(&scene, &facts, &all, 0, claim).fraction;
        let all = [found(40), found(15), found(5)].map(f64::to_bits);
        assert_eq!(all, [0.5, 1.0, f64::INFINITY].map(f64::to_bits));
        // The first reaches by itself what the device does.
        assert_eq!(facts.deep(&scene), [0]);
    }
}
