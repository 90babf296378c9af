//! What the work of a tenant reaches alone.

use flashyard_time::Duration;

use super::scene::{Scene, Spans, Tenant};
use crate::bench::Results;
use crate::experiment::Refused;
use crate::load::Pattern;
use crate::measure::{Tally, f_util};
use crate::policies::{Switch, fifo};

/// Bytes per second of each kind of work of a scene when nothing else is done, whatever its depth.
pub(super) struct Alone(Vec<(Pattern, f64)>);

/// So many tenants of a kind reach what the kind can reach.
const TENANTS: usize = 16;

impl Alone {
    /// Measures every kind of work of a scene on its drive, in the same span.
    pub(super) fn measure(scene: &Scene, spans: Spans, seed: u64) -> Result<Self, Refused> {
        let mut alone = Self(Vec::new());
        for tenant in &scene.tenants {
            if alone.find(&tenant.pattern).is_none() {
                let scene = Scene {
                    tenants: vec![saturating(tenant); TENANTS],
                    ..scene.clone()
                };
                let switch = Switch {
                    policy: fifo(),
                    host: None,
                };
                let results = scene.run(switch, spans, Duration::ZERO, seed)?;
                let sum = results.workers.iter().map(Tally::bytes_per_second).sum();
                alone.0.push((tenant.pattern.clone(), sum));
            }
        }
        Ok(alone)
    }

    fn find(&self, pattern: &Pattern) -> Option<f64> {
        let found = self.0.iter().find(|(known, _)| known == pattern);
        found.map(|&(_, rate)| rate)
    }

    /// What the work of a tenant reaches, never zero.
    pub(super) fn of(&self, tenant: &Tenant) -> f64 {
        self.find(&tenant.pattern).unwrap_or(0.0).max(1.0)
    }

    /// The f-Util of every tenant of a scene, by weight: 1 is its part of what it has alone.
    pub(super) fn f_utils(&self, scene: &Scene, results: &Results) -> Vec<f64> {
        let weights = scene.weights();
        let each = scene.tenants.iter().zip(&results.workers);
        each.map(|(tenant, tally)| {
            let part = f64::from(tenant.weight) / weights;
            f_util(tally.bytes_per_second(), self.of(tenant) * part, 1)
        })
        .collect()
    }

    /// The sum of what each tenant has of the bandwidth that its work has alone.
    pub(super) fn use_of(&self, scene: &Scene, results: &Results) -> f64 {
        let each = scene.tenants.iter().zip(&results.workers);
        each.map(|(tenant, tally)| tally.bytes_per_second() / self.of(tenant))
            .sum()
    }
}

/// A tenant that does the same all the time, with enough in flight.
fn saturating(tenant: &Tenant) -> Tenant {
    let sizes = &tenant.pattern.sizes;
    let weights: u64 = sizes.iter().map(|&(_, weight)| u64::from(weight)).sum();
    let sum: u64 = sizes
        .iter()
        .map(|&(bytes, weight)| bytes * u64::from(weight))
        .sum();
    let depth = ((512 << 10) * weights / sum.max(1)).clamp(4, 32) as u32;
    Tenant {
        pattern: tenant.pattern.clone(),
        ..Tenant::closed(1, true, &[], depth)
    }
}
