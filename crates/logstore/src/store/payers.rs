//! Who has caused what the store does at the device: volumes, each to a part. A batch is of those
//! whose data it has, a page of the map of who wrote what it points at, and what garbage collection
//! moves of those whose overwrites have made the garbage.
//!
//! Of garbage collection each volume causes first of all what is moved of its own data, up to so
//! many times the garbage that it has made in the same victims: so much it would cause by itself.
//! Who overwrites in order leaves nothing to be moved, and causes nothing, even where its data lie
//! among those of others. What is left is data that lie in others' way, and is divided by garbage.

use alloc::vec::Vec;

use crate::entry::Lineage;

/// What is moved of a volume's own data is its own doing up to so many times its garbage: more is
/// worth moving in a full pool only.
const MOST_OWN: u64 = 4;

/// Parts are counted in so many to the sector.
const SCALE: u64 = 1 << 10;

/// Volumes with the part that each has, by volume.
pub type Parts = Vec<(Lineage, u64)>;

/// What a victim has of a volume, in sectors.
#[derive(Clone, Copy, Debug)]
struct Found {
    lineage: Lineage,
    victim: u32,
    live: u64,
    dead: u64,
}

impl Found {
    fn add(&mut self, sectors: u64, lives: bool) {
        match lives {
            true => self.live += sectors,
            false => self.dead += sectors,
        }
    }

    /// What of the live data is moved by the volume's own doing.
    fn own(&self) -> u64 {
        self.live.min(MOST_OWN * self.dead)
    }
}

/// What is known of who causes work.
#[derive(Debug, Default)]
pub(super) struct Payers {
    /// What the present victims have of each volume.
    found: Vec<Found>,
    /// Who causes the present round of garbage collection.
    pub collection: Parts,
    /// Leaves that were written lately, by whose records they were.
    pub map: Parts,
    /// Leaves that have changed because of garbage collection only.
    moved: u64,
}

impl Payers {
    /// A record of a victim. They come volume by volume.
    pub fn found(&mut self, lineage: Lineage, victim: u32, sectors: u32, lives: bool) {
        let same = self.found.iter_mut().rev();
        let mut same = same.take_while(|found| found.lineage == lineage);
        let place = u64::from(sectors);
        match same.find(|found| found.victim == victim) {
            Some(found) => found.add(place, lives),
            None => {
                let mut found = Found {
                    lineage,
                    victim,
                    live: 0,
                    dead: 0,
                };
                found.add(place, lives);
                self.found.push(found);
            }
        }
    }

    /// All records of the victims are known.
    pub fn divide(&mut self) {
        self.collection.clear();
        self.found.sort_by_key(|found| found.victim);
        for victim in self.found.chunk_by(|one, other| one.victim == other.victim) {
            let garbage: u64 = victim.iter().map(|found| found.dead).sum();
            let rest: u64 = victim.iter().map(|found| found.live - found.own()).sum();
            for found in victim.iter().filter(|found| found.dead > 0) {
                // The list of a victim is read, too, where nothing lives.
                let part = SCALE * found.own() + SCALE * (rest + 1) * found.dead / garbage;
                add(&mut self.collection, found.lineage, part);
            }
        }
        self.found.clear();
    }

    /// A leaf of a volume is written: because hosts wrote there, or only because of moves.
    pub fn leaf(&mut self, lineage: Lineage, by_host: bool) {
        let payer = match by_host {
            true => Some(lineage),
            false => self.next_of_collection(),
        };
        let Some(payer) = payer else {
            return;
        };
        add(&mut self.map, payer, 1);
    }

    /// One of those who cause garbage collection, each as often as its part says.
    fn next_of_collection(&mut self) -> Option<Lineage> {
        let all: u64 = self.collection.iter().map(|(_, part)| *part).sum();
        self.moved += 1;
        // Steps of the golden section fall evenly everywhere.
        let place = self.moved.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut at = ((u128::from(place) * u128::from(all)) >> 64) as u64;
        let mut parts = self.collection.iter();
        let found = parts.find(|(_, part)| {
            let here = at < *part;
            at = at.saturating_sub(*part);
            here
        });
        found.map(|(lineage, _)| *lineage)
    }

    /// A checkpoint begins: what was written long ago counts less and less.
    pub fn age(&mut self) {
        self.map.retain_mut(|(_, count)| {
            *count /= 2;
            *count > 0
        });
    }

    /// A volume is gone.
    pub fn forget(&mut self, lineage: Lineage) {
        for parts in [&mut self.map, &mut self.collection] {
            parts.retain(|(known, _)| *known != lineage);
        }
    }
}

fn add(parts: &mut Parts, lineage: Lineage, part: u64) {
    match parts.binary_search_by_key(&lineage, |(known, _)| *known) {
        Ok(at) => parts[at].1 += part,
        Err(at) => parts.insert(at, (lineage, part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCE: Lineage = Lineage(1);
    const ORDER: Lineage = Lineage(2);
    const COLD: Lineage = Lineage(3);

    /// Who pays for victims with so much of volumes that lives, and does not.
    fn divided(victims: &[&[(Lineage, u32, u32)]]) -> Vec<(Lineage, f64)> {
        let mut payers = Payers::default();
        for lineage in [CHANCE, ORDER, COLD] {
            for (victim, found) in (0..).zip(victims) {
                for &(_, live, dead) in found.iter().filter(|found| found.0 == lineage) {
                    payers.found(lineage, victim, live, true);
                    payers.found(lineage, victim, dead, false);
                }
            }
        }
        payers.divide();
        let all: u64 = payers.collection.iter().map(|(_, part)| part).sum();
        let parts = payers.collection.iter();
        parts
            .map(|&(lineage, part)| (lineage, part as f64 / all as f64))
            .collect()
    }

    fn part(victims: &[&[(Lineage, u32, u32)]], of: Lineage) -> f64 {
        let parts = divided(victims);
        let part = parts.iter().find(|(lineage, _)| *lineage == of);
        part.map_or(0.0, |(_, part)| *part)
    }

    #[test]
    fn who_overwrites_by_chance_pays_and_who_overwrites_in_order_does_not() {
        // Of both half of the victims; of what was written in order nothing lives.
        let found: &[_] = &[(CHANCE, 4000, 4000), (ORDER, 0, 8000)];
        assert!(part(&[found], CHANCE) > 0.999, "{:?}", divided(&[found]));
        // Also where it lies in the way of others, and has left garbage elsewhere.
        let other: &[_] = &[(CHANCE, 1000, 7000), (ORDER, 8000, 0)];
        let all = [found, other];
        assert!(part(&all, CHANCE) > 0.999, "{:?}", divided(&all));
        // Alone it pays the same.
        assert_eq!(divided(&[&[(CHANCE, 4000, 4000)]]), [(CHANCE, 1.0)]);
    }

    #[test]
    fn data_that_nobody_overwrites_are_paid_by_who_made_the_garbage() {
        let found: &[_] = &[(CHANCE, 2000, 4000), (COLD, 6000, 0)];
        assert_eq!(divided(&[found]), [(CHANCE, 1.0)]);
        // A few blocks of much that is cold do not make it all its own.
        let found: &[_] = &[(CHANCE, 2000, 4000), (COLD, 6000, 8)];
        assert!(part(&[found], COLD) < 0.02, "{:?}", divided(&[found]));
    }

    #[test]
    fn empty_victims_are_paid_by_whose_garbage_they_were() {
        let found: &[_] = &[(CHANCE, 0, 1000), (ORDER, 0, 3000)];
        assert_eq!(divided(&[found]), [(CHANCE, 0.25), (ORDER, 0.75)]);
    }

    #[test]
    fn leaves_that_only_moves_have_changed_are_divided_like_the_moves() {
        let mut payers = Payers::default();
        payers.leaf(COLD, false);
        assert!(payers.map.is_empty(), "nobody is known to have caused it");
        for (lineage, live, dead) in [(CHANCE, 3000, 3000), (ORDER, 1000, 1000)] {
            payers.found(lineage, 0, live, true);
            payers.found(lineage, 0, dead, false);
        }
        payers.divide();
        (0..1000).for_each(|_| payers.leaf(COLD, false));
        (0..10).for_each(|_| payers.leaf(COLD, true));
        let counts: Vec<_> = payers.map.iter().map(|(_, count)| *count).collect();
        assert!(counts[0].abs_diff(750) < 5 && counts[1].abs_diff(250) < 5);
        assert_eq!(counts[2], 10);
        payers.forget(CHANCE);
        (0..4).for_each(|_| payers.age());
        assert_eq!(payers.map, [(ORDER, counts[1] / 16)]);
    }
}
