//! A scene by chance: what a seed decides about a device, the way to it, and its tenants.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::Class;
use flashyard_time::{Duration, Rng};

use super::scene::{Scene, Tenant};
use crate::bench::{Path, Stall};
use crate::load::{Arrivals, Pace, Pattern, Phases};

/// Phases, one after another, in each of which neither the tenants nor the way to the drive
/// change.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) profile: Profile,
    pub(super) capacity: u64,
    pub(super) condition: Condition,
    /// Everybody who is there at some time.
    pub(super) tenants: Vec<Tenant>,
    pub(super) phases: Vec<Phase>,
}

/// See [`Story`].
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) path: Path,
    /// Which tenants are there.
    pub(super) present: Vec<bool>,
}

/// Halves of all seeds: a policy may be tuned on the one, and is judged by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Seen,
    Unseen,
}

impl Half {
    pub(super) fn of(seed: u64) -> Self {
        match Rng::new(seed).split(0x4A1F).chance(1, 2) {
            true => Self::Seen,
            false => Self::Unseen,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Unseen => "unseen",
        }
    }
}

const KIB: u64 = 1024;
const GIB: u64 = 1 << 30;
/// Tenants of one kind at most, and of all kinds.
const MOST_TENANTS: u64 = 64;

impl Story {
    /// What a seed decides.
    pub(super) fn draw(seed: u64) -> Self {
        let chance = Rng::new(seed);
        let (profile, capacity) = drive(&mut chance.split(1));
        let mut rng = chance.split(2);
        let tenants = tenants(&mut rng);
        let changes = rng.chance(2, 5);
        // What a drive that begins clean can do changes by itself, so it has one phase.
        let condition = match changes || rng.chance(2, 3) {
            true => Condition::Fragmented(100),
            false => Condition::Clean,
        };
        let first = Phase {
            path: path(&mut rng, !changes),
            present: vec![true; tenants.len()],
        };
        let phases = match changes {
            true => change(&mut rng, first, &tenants),
            false => vec![first],
        };
        Self {
            profile,
            capacity,
            condition,
            tenants,
            phases,
        }
    }

    /// A phase as a scene of its own, with the places of its tenants.
    pub(super) fn scene(&self, phase: &Phase) -> (Scene, Vec<usize>) {
        let present = |&place: &usize| phase.present[place];
        let places: Vec<usize> = (0..self.tenants.len()).filter(present).collect();
        let scene = Scene {
            profile: self.profile.clone(),
            capacity: self.capacity,
            condition: self.condition,
            paths: vec![(Duration::ZERO, phase.path)],
            tenants: places
                .iter()
                .map(|&place| self.tenants[place].clone())
                .collect(),
        };
        (scene, places)
    }
}

fn one_of<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    *rng.pick(items).expect("there is something to pick from")
}

/// A drive that can be built, and its capacity.
fn drive(rng: &mut Rng) -> (Profile, u64) {
    let base = Profile::named("dct983").expect("it ships");
    loop {
        let read = rng.range(25_000..120_000);
        let program = rng.range(200_000..2_500_000);
        let at_once = one_of(rng, &[1, 3]);
        let dies = one_of(rng, &[1, 2, 4]);
        let mut profile = Profile {
            name: "drawn".into(),
            channels: one_of(rng, &[2, 4, 8]),
            dies_per_channel: dies,
            planes: one_of(rng, &[1, 2]),
            pages_per_program: at_once,
            read_lower_ns: read,
            read_middle_ns: read + read / 8,
            read_upper_ns: read + read / 4,
            program_ns: program,
            program_upper_ns: program * if at_once == 1 { rng.range(1..3) } else { 1 },
            erase_ns: rng.range(2_000_000..10_000_000),
            command_ns: rng.range(1_000..4_000),
            link_bytes_per_second: rng.range(1_000..3_500) * 1_000_000,
            spare_ppm: rng.range(70_000..280_000),
            gc_reads: one_of(rng, &[16, 32, 64]),
            read_bypass: one_of(rng, &[1, 8, 8, 64]),
            suspends: one_of(rng, &[0, 1, 3]),
            programming_dies: one_of(rng, &[4096, 4096, 4]),
            ..base.clone()
        };
        let all_dies = profile.channels * profile.dies_per_channel;
        let row = all_dies * profile.planes * profile.page_bytes * profile.pages_per_program;
        profile.buffer_bytes = row * rng.range(2..8);
        let capacity = one_of(rng, &[GIB, 2 * GIB, 4 * GIB]);
        if profile.check().is_ok() && Device::new(&profile, capacity, 1).is_ok() {
            return (profile, capacity);
        }
    }
}

/// Two to sixty-four tenants, in groups of which each does one thing.
fn tenants(rng: &mut Rng) -> Vec<Tenant> {
    let groups = rng.range(2..6);
    let most = one_of(rng, &[2, 4, 8, MOST_TENANTS / 5]);
    let weights: &[u32] = one_of(rng, &[&[1][..], &[1, 2, 4], &[1, 8]]);
    let mut tenants = Vec::new();
    for group in 0..groups {
        // Readers and writers both, as a rule.
        let kind = group_of(rng, group % 2 == 0);
        for place in 0..rng.range(1..most + 1) {
            let weight = weights[place as usize % weights.len()];
            tenants.push(Tenant {
                weight,
                ..kind.clone()
            });
        }
    }
    tenants
}

fn group_of(rng: &mut Rng, reads: bool) -> Tenant {
    let sizes: &[u64] = one_of(
        rng,
        &[
            &[4][..],
            &[4],
            &[16],
            &[64],
            &[128],
            &[4, 16],
            &[16, 64],
            &[4, 128],
        ],
    );
    let sizes: Vec<u64> = sizes.iter().map(|size| size * KIB).collect();
    let deepest = if sizes.contains(&(128 * KIB)) { 8 } else { 128 };
    let depth = one_of(rng, &[1, 2, 4, 8, 16, 32, 32, 64, 128]).min(deepest);
    let mut tenant = Tenant::closed(1, reads, &sizes, depth);
    if rng.chance(1, 8) {
        tenant.pattern.reads_per_mille = 700;
    }
    if sizes.len() == 1 && rng.chance(1, 6) {
        tenant = tenant.in_order();
    }
    match rng.below(12) {
        0 if reads && depth <= 4 => tenant.class = Class::Latency,
        1 => tenant.class = Class::Background,
        2 => tenant.limit.bytes = Some(rng.range(1..50) * 1_000_000),
        3 => tenant.guarantee.bytes = Some(rng.range(1..5) * 1_000_000),
        4 | 5 => {
            // Turns divide what is left out and what is measured.
            let turn = Duration::from_ms(one_of(rng, &[50, 100, 125, 250]));
            let on = turn.scale(rng.range(1..5), 5);
            tenant.phases = Some(Phases { on, off: turn - on });
            tenant.pace = Pace::Open {
                gap: Duration::from_us(rng.range(50..2000)),
                arrivals: Arrivals::Constant,
                most: 256,
            };
        }
        _ => {}
    }
    tenant
}

/// What lies before the drive. Stalls belong to a whole run.
fn path(rng: &mut Rng, may_stall: bool) -> Path {
    let mut path = Path::default();
    match rng.below(8) {
        0 | 1 => path.distance = Duration::from_us(rng.range(50..2000)),
        2 => path.bytes_per_second = Some(rng.range(50..800) * 1_000_000),
        3 => path.ios_per_second = Some(rng.range(5..100) * 1000),
        4 if may_stall => {
            path.stall = Some(Stall {
                every: Duration::from_ms(one_of(rng, &[250, 500, 1000])),
                lasts: Duration::from_ms(rng.range(20..125)),
            });
        }
        _ => {}
    }
    path
}

/// A first phase and one that differs from it: another way to the drive, or tenants that leave or
/// join.
fn change(rng: &mut Rng, mut first: Phase, tenants: &[Tenant]) -> Vec<Phase> {
    let mut second = first.clone();
    if rng.chance(1, 3) {
        second.path = path(rng, false);
    } else {
        let away = if rng.chance(1, 2) {
            &mut first
        } else {
            &mut second
        };
        // The first one stays, and one of the other kind, so that somebody competes.
        for place in 2..tenants.len() {
            away.present[place] = rng.chance(1, 2);
        }
    }
    vec![first, second]
}

/// The longest I/O of a tenant.
pub(super) fn longest(pattern: &Pattern) -> u64 {
    let sizes = pattern.sizes.iter().map(|&(bytes, _)| bytes);
    sizes.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_every_draw_can_be_run() {
        let (mut seen, mut most) = (0, 0);
        for seed in 1..=200 {
            let story = Story::draw(seed);
            assert_eq!(format!("{story:?}"), format!("{:?}", Story::draw(seed)));
            assert!((2..=64).contains(&story.tenants.len()), "{seed}");
            most = most.max(story.tenants.len());
            for phase in &story.phases {
                let (scene, places) = story.scene(phase);
                assert!(places.len() >= 2, "{seed}");
                for worker in scene.workers() {
                    assert_eq!(worker.check(scene.capacity), Ok(()), "{seed}");
                }
            }
            seen += u32::from(Half::of(seed) == Half::Seen);
        }
        assert!((80..=120).contains(&seen), "{seen}");
        assert!(most > 30, "{most}");
    }
}
