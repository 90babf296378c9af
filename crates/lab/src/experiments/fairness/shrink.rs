//! A scene made small that still shows what a large one showed, and in words.

use core::fmt;

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::{Class, Rates};

use super::draw::Story;
use super::scene::Tenant;
use crate::bench::Path;
use crate::experiment::Refused;
use crate::load::Pace;

/// Judgements of smaller scenes at most.
const MOST: usize = 40;

/// The smallest story that is found for which `least` is at most `bound`, and its least.
pub(super) fn shrink(
    story: Story,
    bound: f64,
    mut least: impl FnMut(&Story) -> Result<f64, Refused>,
) -> Result<Story, Refused> {
    let mut story = story;
    let mut left = MOST;
    'smaller: loop {
        for candidate in simpler(&story) {
            if left == 0 {
                break 'smaller;
            }
            left -= 1;
            if least(&candidate)? <= bound {
                story = candidate;
                continue 'smaller;
            }
        }
        break;
    }
    Ok(story)
}

/// Stories that differ from one in one thing, in which they are simpler.
fn simpler(story: &Story) -> Vec<Story> {
    let mut found = Vec::new();
    for phase in story.phases.iter().filter(|_| story.phases.len() > 1) {
        let alone = Story {
            phases: vec![phase.clone()],
            ..story.clone()
        };
        found.push(kept(&alone, |place| phase.present[place]).unwrap_or(alone));
    }
    let half = story.tenants.len() / 2;
    found.extend(kept(story, |place| place < half));
    found.extend(kept(story, |place| place >= half));
    found.extend(kept(story, |place| place % 2 == 0));
    let usual = Profile::named("dct983").expect("it ships");
    if story.profile != usual {
        found.push(Story {
            profile: usual,
            capacity: 4 << 30,
            condition: Condition::Fragmented(100),
            ..story.clone()
        });
    }
    let mut plain = story.clone();
    for phase in &mut plain.phases {
        phase.path = Path::default();
    }
    if plain
        .phases
        .iter()
        .zip(&story.phases)
        .any(|(one, other)| one.path != other.path)
    {
        found.push(plain);
    }
    found.extend(CHANGES.iter().filter_map(|change| changed(story, *change)));
    found
}

/// The story with some of its tenants, if two are left of which both are there all the time or
/// come and go.
fn kept(story: &Story, keeps: impl Fn(usize) -> bool) -> Option<Story> {
    let places: Vec<usize> = (0..story.tenants.len())
        .filter(|&place| keeps(place))
        .collect();
    let mut smaller = story.clone();
    smaller.tenants = places
        .iter()
        .map(|&place| story.tenants[place].clone())
        .collect();
    for phase in &mut smaller.phases {
        phase.present = places.iter().map(|&place| phase.present[place]).collect();
    }
    let enough = |present: &Vec<bool>| present.iter().filter(|there| **there).count() >= 2;
    let fits = smaller.phases.iter().all(|phase| enough(&phase.present));
    (fits && places.len() < story.tenants.len()).then_some(smaller)
}

/// What makes a tenant simpler.
const CHANGES: [fn(&mut Tenant); 5] = [
    |tenant| tenant.weight = 1,
    |tenant| (tenant.limit, tenant.guarantee) = (Rates::NONE, Rates::NONE),
    |tenant| tenant.class = Class::Throughput,
    |tenant| tenant.pattern.sizes.truncate(1),
    |tenant| {
        if tenant.phases.take().is_some() {
            tenant.pace = Pace::Closed { depth: 32 };
        }
    },
];

/// The story with all tenants made simpler, if that changes one.
fn changed(story: &Story, change: fn(&mut Tenant)) -> Option<Story> {
    let mut simpler = story.clone();
    simpler.tenants.iter_mut().for_each(change);
    (simpler.tenants != story.tenants).then_some(simpler)
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile {
            name,
            channels,
            dies_per_channel,
            program_ns,
            read_lower_ns,
            ..
        } = &self.profile;
        let (read, program) = (read_lower_ns / 1000, program_ns / 1000);
        write!(
            f,
            "`{name}` of {channels} x {dies_per_channel} dies (reads {read} us, programs {program} us), {}",
            self.condition
        )?;
        for (phase, number) in self.phases.iter().zip(1..) {
            write!(f, "; phase {number}: {}", Way(phase.path))?;
            for (tenants, count) in grouped(&self.tenants, &phase.present) {
                write!(f, ", {count} of {}", Words(tenants))?;
            }
        }
        Ok(())
    }
}

/// Tenants that do the same, and how many there are.
fn grouped<'a>(tenants: &'a [Tenant], present: &[bool]) -> Vec<(&'a Tenant, u32)> {
    let mut groups: Vec<(&Tenant, u32)> = Vec::new();
    for (tenant, _) in tenants.iter().zip(present).filter(|(_, there)| **there) {
        match groups.iter_mut().find(|(known, _)| *known == tenant) {
            Some((_, count)) => *count += 1,
            None => groups.push((tenant, 1)),
        }
    }
    groups
}

struct Way(Path);

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us away", self.0.distance.as_us())?;
        if let Some(rate) = self.0.bytes_per_second {
            write!(f, ", at most {} MB/s", rate / 1_000_000)?;
        }
        if let Some(rate) = self.0.ios_per_second {
            write!(f, ", at most {rate} IOPS")?;
        }
        if let Some(stall) = self.0.stall {
            let (lasts, every) = (stall.lasts.as_ms(), stall.every.as_ms());
            write!(f, ", writes stall for {lasts} of {every} ms")?;
        }
        Ok(())
    }
}

struct Words<'a>(&'a Tenant);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tenant {
            pattern, weight, ..
        } = self.0;
        let sizes: Vec<String> = pattern
            .sizes
            .iter()
            .map(|(bytes, _)| (bytes >> 10).to_string())
            .collect();
        let reads = pattern.reads_per_mille / 10;
        write!(f, "{} KiB, {reads} % reads", sizes.join(" or "))?;
        match self.0.pace {
            Pace::Closed { depth } => write!(f, ", QD {depth}")?,
            Pace::Open { gap, .. } => write!(f, ", each {} us", gap.as_us())?,
        }
        if let Some(phases) = self.0.phases {
            let (on, off) = (phases.on.as_ms(), phases.off.as_ms());
            write!(f, " for {on} ms, then none for {off}")?;
        }
        if *weight != 1 {
            write!(f, ", weight {weight}")?;
        }
        match self.0.class {
            Class::Latency => write!(f, ", for latency")?,
            Class::Throughput => {}
            Class::Background => write!(f, ", in the background")?,
        }
        if let Some(limit) = self.0.limit.bytes {
            write!(f, ", limit {} MB/s", limit / 1_000_000)?;
        }
        if let Some(guarantee) = self.0.guarantee.bytes {
            write!(f, ", guarantee {} MB/s", guarantee / 1_000_000)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_shrinks_to_what_it_is_about() {
        for seed in 1..50 {
            let story = Story::draw(seed);
            let writes = |tenant: &Tenant| tenant.pattern.reads_per_mille < 1000;
            if !story.tenants.iter().any(writes) {
                continue;
            }
            let least = |story: &Story| match story.tenants.iter().any(writes) {
                true => Ok(0.1),
                false => Ok(1.0),
            };
            let small = shrink(story, 0.5, least).expect("nothing is refused");
            assert!(small.tenants.len() <= 3, "{seed}: {small}");
            assert_eq!(small.phases.len(), 1, "{seed}: {small}");
            assert!(small.tenants.iter().any(writes), "{seed}: {small}");
            assert!(small.tenants.iter().all(|tenant| tenant.weight == 1));
            assert_eq!(small.profile.name, "dct983");
        }
    }
}
