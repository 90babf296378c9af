//! Space that is kept for volumes, and quotas of those whose volumes they are.

use flashyard_logstore::format::superblock::Features;
use flashyard_logstore::{Form, Lineage, Options, Outcome, RESERVED_UNIT, Refused};
use flashyard_time::Rng;

use crate::device::CUTS;
use crate::load::Load;
use crate::model::Ask;
use crate::world::{FORMS, World, small};

impl World {
    /// Keeps so many MiB for a volume, durably.
    fn reserve(&mut self, lineage: Lineage, units: u32) -> Result<(), Refused> {
        let request = self.request();
        self.store.reserve(request, lineage, units)?;
        assert!(self.settle());
        assert_eq!(self.done.remove(&request), Some(Outcome::Success));
        Ok(())
    }

    /// Writes one chunk; false when there is no space for it.
    fn put(&mut self, lineage: Lineage, chunk: u64) -> bool {
        let full = self.model.full;
        let ask = Ask::Write {
            lineage,
            chunk,
            count: 1,
            durable: false,
        };
        self.ask(ask).expect("it is ready");
        assert!(self.settle());
        self.model.full == full
    }

    /// Writes chunks from `from` on until there is no space; how many were written.
    fn fill(&mut self, lineage: Lineage, from: u64, most: u64) -> u64 {
        (from..from + most)
            .find(|&chunk| !self.put(lineage, chunk))
            .map_or(most, |chunk| chunk - from)
    }

    fn trim(&mut self, lineage: Lineage, chunk: u64, count: u64) {
        let ask = Ask::Trim {
            lineage,
            chunk,
            count,
        };
        self.ask(ask).expect("it is ready");
        assert!(self.settle());
    }
}

/// A chunk takes its block, a page of the map two: a leaf, and what stands above leaves.
fn takes(chunks: u64) -> u64 {
    chunks + 2 * chunks.div_ceil(336) + 2 * 3
}

#[test]
fn what_is_reserved_is_there_when_others_have_filled_the_pool_and_after_any_cut() {
    for (seed, cut) in (0..).zip(CUTS) {
        let mut world = World::new(seed, small(), Options::default());
        let (kept, other) = (world.create(4000), world.create(4000));
        world.reserve(kept, 2).expect("it fits");
        let space = world.store.space();
        assert_eq!(space.reserved, 2 * RESERVED_UNIT);
        let filled = world.fill(other, 0, 4000);
        let space = world.store.space();
        assert!(space.used + space.reserved <= space.capacity);
        assert!(
            space.used + space.reserved + 4 > space.capacity,
            "{space:?}"
        );
        // It can be overwritten and read all the same.
        assert!(world.put(other, 0));
        assert!(world.cut(cut));
        assert!(world.read_all());
        let others = |world: &World| {
            let one = world.store.volumes().find(|one| one.lineage == kept);
            one.map(|one| one.reserved)
        };
        assert_eq!(others(&world), Some(2));
        assert!(!world.put(other, filled + 10), "it is kept for another one");
        let written = world.fill(kept, 0, 4000);
        assert!(takes(written) + 4 > 2 * RESERVED_UNIT, "{written}");
        world.check_all();
        // What is given up is there for others.
        world.trim(kept, 0, 200);
        world.reserve(kept, 0).expect("less is always possible");
        assert!(world.put(other, filled + 10));
        world.check_all();
    }
}

#[test]
fn a_reservation_that_does_not_fit_is_refused_with_what_is_free_and_changes_nothing() {
    let mut world = World::new(1, small(), Options::default());
    let (first, second) = (world.create(4000), world.create(4000));
    assert_eq!(world.store.superblock().features, Features::default());
    let all = world.store.reservable(first);
    let most = (all / RESERVED_UNIT) as u32;
    assert!(most > 3);
    assert_eq!(world.reserve(first, most + 1), Err(Refused::Space(all)));
    assert_eq!(world.reserve(first, most - 1), Ok(()));
    assert_eq!(world.store.superblock().features, Features::RESERVED);
    let free = all - u64::from(most - 1) * RESERVED_UNIT;
    assert_eq!(world.reserve(second, 2), Err(Refused::Space(free)));
    assert_eq!(
        world.store.space().reserved,
        u64::from(most - 1) * RESERVED_UNIT
    );
    let snapshot = world.snapshot(first).expect("nothing goes wrong");
    assert_eq!(world.reserve(snapshot, 1), Err(Refused::NoVolume));
    // A volume that is deleted keeps nothing.
    assert!(world.delete(second));
    assert!(world.delete(snapshot) && world.delete(first));
    assert_eq!(world.store.space().reserved, 0);
}

#[test]
fn a_quota_stops_new_data_of_its_owner_only_and_trims_and_deletes_make_room() {
    let mut world = World::new(2, small(), Options::default());
    let (first, second, other) = (world.create(900), world.create(900), world.create(900));
    for (lineage, owner) in [(first, 7), (second, 7), (other, 8)] {
        world.store.set_owner(lineage, Some(owner));
    }
    world.store.set_quota(7, Some(300));
    assert_eq!(world.fill(first, 0, 100), 100);
    let more = world.fill(second, 0, 900);
    assert!((270..=300).contains(&(takes(100) + takes(more))), "{more}");
    let owned = world.store.owned(7);
    assert!(owned.taken <= 300 && owned.quota == Some(300), "{owned:?}");
    // Overwrites, reads and others go on.
    assert!(world.put(first, 3) && world.put(second, 0));
    assert_eq!(world.fill(other, 0, 400), 400);
    assert!(!world.put(first, 200));
    world.trim(first, 0, 50);
    assert_eq!(world.fill(first, 200, 900), 50);
    assert!(world.delete(second));
    assert!(world.put(first, 500), "its space has come back");
    world.store.set_quota(7, None);
    assert_eq!(world.fill(first, 300, 400), 400);
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn what_snapshots_keep_counts_for_the_quota_and_the_reservation_of_their_volume() {
    let mut world = World::new(3, small(), Options::default());
    let (first, other) = (world.create(900), world.create(4000));
    world.store.set_owner(first, Some(1));
    world.store.set_quota(1, Some(280));
    world.reserve(first, 1).expect("it fits");
    assert_eq!(world.fill(first, 0, 140), 140);
    let snapshot = world.snapshot(first).expect("nothing goes wrong");
    // Overwriting takes space now.
    let over = world.fill(first, 0, 140);
    assert!(
        (260..=280).contains(&(takes(140) + takes(over))) && over < 140,
        "{over}"
    );
    world.fill(other, 0, 4000);
    assert!(world.delete(snapshot));
    assert_eq!(
        world.fill(first, 0, 140),
        140,
        "what only the snapshot had is free"
    );
    assert!(world.read_all());
    world.check_all();
}

#[test]
fn compressed_volumes_are_charged_what_they_store() {
    let codec = Form {
        chunk_shift: 14,
        codec: 1,
    };
    let mut world = World::new(4, small(), Options::default());
    let (packed, plain) = (world.create_formed(900, codec), world.create(900));
    for (lineage, owner) in [(packed, 1), (plain, 2)] {
        world.store.set_owner(lineage, Some(owner));
        world.store.set_quota(owner, Some(400));
    }
    let (of_packed, of_plain) = (world.fill(packed, 0, 900), world.fill(plain, 0, 900));
    assert!(
        of_packed * 4 > of_plain * 12 / 10,
        "{of_packed} and {of_plain}"
    );
    assert!(world.store.owned(1).taken <= 400);
    world.check_all();
    let one = world.store.volumes().find(|one| one.lineage == packed);
    let tally = one.expect("it is there").tally;
    let cost = (tally.sectors + tally.packed).div_ceil(8);
    assert_eq!(
        world.store.owned(1).taken,
        cost + 2 * 4,
        "a leaf and three inner pages"
    );
}

#[test]
fn refused_writes_of_an_owner_at_its_quota_cost_nobody_a_cut() {
    let mut world = World::new(5, small(), Options::default());
    let (first, other) = (world.create(900), world.create(900));
    world.store.set_owner(first, Some(1));
    world.store.set_quota(1, Some(100));
    world.fill(first, 0, 900);
    assert!(world.checkpoint());
    let before = world.store.stats().checkpoints;
    for chunk in 0..40 {
        assert!(world.put(other, chunk));
        assert!(!world.put(first, 300 + chunk));
        assert!(world.put(first, chunk), "an overwrite adds nothing");
    }
    assert_eq!(world.store.stats().checkpoints, before);
}

#[test]
fn writes_that_wait_at_a_quota_hold_up_nobody() {
    let mut world = World::new(6, small(), Options::default());
    let (first, other) = (world.create(900), world.create(900));
    world.store.set_owner(first, Some(1));
    world.store.set_quota(1, Some(50));
    assert_eq!(world.fill(first, 0, 40), 40);
    world.trim(first, 0, 20);
    let write = |lineage, chunk| Ask::Write {
        lineage,
        chunk,
        count: 16,
        durable: false,
    };
    // The trim is not in the map yet, so the first one waits for a cut; the second one does not.
    for ask in [write(first, 100), write(first, 200), write(other, 0)] {
        world.ask(ask).expect("it is ready");
    }
    let waits = |world: &World| world.model.in_flight();
    while waits(&world) == 3 {
        assert!(world.pump() && world.end_one());
    }
    assert_eq!(waits(&world), 2, "the other one is done first");
    assert!(world.settle());
    assert_eq!(world.model.full, 1, "there was room for one of them");
    assert!(world.read_all());
    world.check_all();
}

/// Whole lives: volumes with reservations and owners, loads, snapshots, cuts. In the end the pool
/// is filled by who has reserved nothing, and then everybody gets what was reserved.
#[test]
fn reservations_are_kept_through_whole_lives() {
    let mut kept = 0;
    for seed in 100..124 {
        let mut chance = Rng::new(seed);
        let options = Options {
            leaves: chance.below(40) as usize,
            at_once: 1 + chance.below(6) as usize,
            ..Options::default()
        };
        let mut world = World::new(seed, small(), options);
        let greedy = world.create(4000);
        let volumes: Vec<Lineage> = (0..3)
            .map(|_| {
                let form = FORMS[chance.below(FORMS.len() as u64) as usize];
                world.create_formed(600, form)
            })
            .collect();
        for _ in 0..3 {
            life(&mut world, &mut chance, &volumes);
        }
        for (owner, &volume) in (0..).zip(&volumes) {
            world.store.set_owner(volume, Some(owner));
        }
        world.fill(greedy, 0, 4000);
        let space = world.store.space();
        assert!(space.used + space.reserved <= space.capacity, "{space:?}");
        for &volume in &volumes {
            kept += world.gets_what_is_reserved(volume);
        }
        assert!(world.read_all());
        world.check_all();
    }
    assert!(kept > 1000, "{kept} chunks in reservations");
}

fn life(world: &mut World, chance: &mut Rng, volumes: &[Lineage]) {
    let volume = volumes[chance.below(3) as usize];
    match world.reserve(volume, chance.below(4) as u32) {
        Ok(()) | Err(Refused::Space(_)) => {}
        Err(why) => panic!("{why}"),
    }
    let load = Load {
        steps: 60 + chance.below(60),
        within: 1 + chance.below(600),
        most: 1 + chance.below(8),
        ..Load::MIXED
    };
    assert!(load.run(world));
    if chance.below(2) == 0 {
        world.snapshot(volume).expect("nothing goes wrong");
    }
    if chance.below(2) == 0 {
        world.cut_at = Some(world.writes + chance.below(60));
        load.run(world);
        world.cut_at = None;
        assert!(world.cut(CUTS[chance.below(4) as usize]));
        assert!(world.read_all());
    }
}

impl World {
    /// Writes chunks to a volume for as long as it has less than is reserved for it, in a pool that
    /// is full; how many.
    fn gets_what_is_reserved(&mut self, volume: Lineage) -> u64 {
        assert!(self.checkpoint());
        let one = self.store.volumes().find(|one| one.lineage == volume);
        let reserved = u64::from(one.expect("it is there").reserved) * RESERVED_UNIT;
        let owner = self.chance.next_u64() as u32;
        self.store.set_owner(volume, Some(owner));
        let chunk_blocks = u64::from(self.form(volume).chunk_blocks());
        let mut written = 0;
        for chunk in 0..600 {
            // One more sector for what is compressed, and what its leaf may take.
            let left = reserved.saturating_sub(self.store.owned(owner).taken);
            if left < chunk_blocks + 3 {
                break;
            }
            assert!(self.put(volume, chunk), "{left} blocks are reserved");
            written += 1;
        }
        written
    }
}
