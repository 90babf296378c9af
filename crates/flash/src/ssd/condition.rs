//! Preconditioning of a drive: empty, written in order, or brought to the steady state of random
//! writes.
//!
//! The steady state of uniformly random writes is set, not written. Ordered by age, the superblock
//! of rank `r` has a valid fraction of `q^r`, where `q` makes the sum the capacity; the form is the
//! limit for large blocks. Which units are valid is dealt at random. The tests compare the write
//! amplification that follows with that of a drive really written to.

use core::fmt;
use core::str::FromStr;

use flashyard_time::Rng;

use super::map::{NONE, Use};
use super::{BuildError, Device};
use crate::Profile;

/// Fractional bits of the factor between the valid fractions of one rank and the next.
const FRACTION_BITS: u32 = 48;

/// The preconditioning of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing was written.
    Empty,
    /// Everything was written once, in order.
    Clean,
    /// Everything was written, then so many percent of the addresses at random until the steady
    /// state. More than 100 count as 100.
    Fragmented(u8),
}

/// A word that names no [`Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCondition;

impl FromStr for Condition {
    type Err = UnknownCondition;

    /// `empty`, `clean`, `fragmented`, or `fragmented=50%` with a whole number from 0 to 100.
    fn from_str(word: &str) -> Result<Self, UnknownCondition> {
        match word {
            "empty" => return Ok(Self::Empty),
            "clean" => return Ok(Self::Clean),
            "fragmented" => return Ok(Self::Fragmented(100)),
            _ => {}
        }
        let percent = word
            .strip_prefix("fragmented=")
            .and_then(|rest| rest.strip_suffix('%'))
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .filter(|percent| *percent <= 100);
        percent.map(Self::Fragmented).ok_or(UnknownCondition)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Clean => f.write_str("clean"),
            Self::Fragmented(100..) => f.write_str("fragmented"),
            Self::Fragmented(percent) => write!(f, "fragmented={percent}%"),
        }
    }
}

impl fmt::Display for UnknownCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a condition is `empty`, `clean`, `fragmented` or `fragmented=50%`")
    }
}

impl core::error::Error for UnknownCondition {}

impl Device {
    /// A drive of `capacity` bytes in a given condition. See [`Device::new`].
    pub fn in_condition(
        profile: &Profile,
        capacity: u64,
        seed: u64,
        condition: Condition,
    ) -> Result<Self, BuildError> {
        let mut device = Self::new(profile, capacity, seed)?;
        match condition {
            Condition::Empty => {}
            Condition::Clean => device.fill(0),
            Condition::Fragmented(percent) => device.fill(u32::from(percent.min(100))),
        }
        Ok(device)
    }

    /// Maps every unit, `percent` of them as random writes leave them.
    fn fill(&mut self, percent: u32) {
        let layout = &self.layout;
        let full = layout.logical.div_ceil(layout.superblock_units);
        let most = layout.superblocks - layout.reserve;
        let closed = full + ((u64::from(most - full) * u64::from(percent)) / 100) as u32;
        let factor = factor(layout.superblock_units, closed, layout.logical);
        let chance = Rng::new(self.seed).split(1);
        self.deal_addresses(percent, &mut chance.split(0));
        self.deal_units(closed, factor, &mut chance.split(1));
        for superblock in 0..closed {
            self.map.uses[superblock as usize] = Use::Closed;
            self.map.opened[superblock as usize] = u64::from(closed - superblock);
        }
        self.map.openings = u64::from(closed);
        self.map.free.retain(|&superblock| superblock >= closed);
        let programs = closed * (self.layout.superblock_units / self.layout.program_units);
        for program in 0..programs {
            self.map.set_programmed(program);
        }
        for unit in 0..self.layout.physical() {
            let logical = self.map.logical_of[unit as usize];
            if logical != NONE {
                self.map.place(logical, unit);
            }
        }
        self.reset_collector(None);
    }

    /// Leaves the addresses in `physical_of` in the order in which they are dealt: `percent` of
    /// them shuffled.
    fn deal_addresses(&mut self, percent: u32, chance: &mut Rng) {
        let addresses = &mut self.map.physical_of;
        for (place, address) in addresses.iter_mut().enumerate() {
            *address = place as u32;
        }
        if percent == 100 {
            return chance.shuffle(addresses);
        }
        // Every address that is drawn changes places with the one drawn before it: a random cycle
        // of them.
        let mut last = None;
        for place in 0..addresses.len() {
            if !chance.chance(u64::from(percent), 100) {
                continue;
            }
            if let Some(earlier) = last {
                let spread = chance.below(place as u64 + 1) as usize;
                addresses.swap(
                    place,
                    if spread.is_multiple_of(2) {
                        earlier
                    } else {
                        spread
                    },
                );
            }
            last = Some(place);
        }
    }

    /// Gives each closed superblock its share of the addresses, in random units of it.
    fn deal_units(&mut self, closed: u32, factor: u64, chance: &mut Rng) {
        let units = u64::from(self.layout.superblock_units);
        let mut excess =
            total(self.layout.superblock_units, closed, factor) - u64::from(self.layout.logical);
        let mut share = 1 << FRACTION_BITS;
        let mut dealt = 0;
        for superblock in 0..closed {
            let mut wanted = valid(units, share);
            if excess > 0 && wanted > 0 {
                wanted -= 1;
                excess -= 1;
            }
            let first = superblock as usize * units as usize;
            for place in 0..units {
                if chance.below(units - place) < wanted {
                    self.map.logical_of[first + place as usize] = self.map.physical_of[dealt];
                    dealt += 1;
                    wanted -= 1;
                }
            }
            share = next(share, factor);
        }
        assert_eq!(
            dealt,
            self.map.physical_of.len(),
            "every address is dealt once"
        );
    }
}

/// The least factor with which `closed` superblocks hold `logical` valid units.
fn factor(units: u32, closed: u32, logical: u32) -> u64 {
    let (mut least, mut most) = (0, 1 << FRACTION_BITS);
    while least < most {
        let middle = u64::midpoint(least, most);
        if total(units, closed, middle) < u64::from(logical) {
            least = middle + 1;
        } else {
            most = middle;
        }
    }
    least
}

/// Valid units of `closed` superblocks.
fn total(units: u32, closed: u32, factor: u64) -> u64 {
    let mut share = 1 << FRACTION_BITS;
    (0..closed)
        .map(|_| {
            let valid = valid(u64::from(units), share);
            share = next(share, factor);
            valid
        })
        .sum()
}

/// `share` of `units`, rounded up, so that an excess is less than one per superblock.
fn valid(units: u64, share: u64) -> u64 {
    (u128::from(units) * u128::from(share)).div_ceil(1 << FRACTION_BITS) as u64
}

fn next(share: u64, factor: u64) -> u64 {
    ((u128::from(share) * u128::from(factor)) >> FRACTION_BITS) as u64
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn device(condition: Condition) -> Device {
        let profile = Profile::named("dct983").expect("it ships");
        Device::in_condition(&profile, 1 << 30, 7, condition).expect("1 GiB fits")
    }

    #[test]
    fn every_condition_is_sound_and_maps_everything() {
        for percent in [0, 1, 30, 99, 100, 255] {
            let device = device(Condition::Fragmented(percent));
            device
                .check()
                .unwrap_or_else(|wrong| panic!("{percent} %: {wrong}"));
            assert!(
                device.map.physical_of.iter().all(|&unit| unit != NONE),
                "{percent} %"
            );
        }
        assert_eq!(device(Condition::Clean).map.physical_of[..3], [0, 1, 2]);
        device(Condition::Empty)
            .check()
            .expect("an empty drive is sound");
    }

    #[test]
    fn conditions_have_names() {
        for word in [
            "empty",
            "clean",
            "fragmented",
            "fragmented=0%",
            "fragmented=50%",
        ] {
            let condition: Condition = word.parse().expect("it names one");
            assert_eq!(condition.to_string(), word);
        }
        assert_eq!("fragmented=100%".parse(), Ok(Condition::Fragmented(100)));
        for word in [
            "",
            "dirty",
            "fragmented=",
            "fragmented=101%",
            "fragmented=+5%",
            "fragmented=5",
        ] {
            assert_eq!(word.parse::<Condition>(), Err(UnknownCondition), "{word}");
        }
    }

    #[test]
    fn a_fragmented_drive_has_only_its_reserve_left() {
        let device = device(Condition::Fragmented(100));
        assert_eq!(device.map.free.len() as u32, device.layout.reserve);
        assert_eq!(device.collector.headroom, 0);
        let valid = &device.map.valid;
        assert!(valid[0] > device.layout.superblock_units * 99 / 100);
        assert!(
            valid
                .iter()
                .take(300)
                .is_sorted_by(|newer, older| newer >= older)
        );
    }

    #[test]
    fn the_seed_decides() {
        let profile = Profile::named("dct983").expect("it ships");
        let map = |seed| {
            let built = Device::in_condition(&profile, 256 << 20, seed, Condition::Fragmented(50));
            built.expect("256 MiB fit").map.physical_of
        };
        assert_eq!(map(1), map(1));
        assert_ne!(map(1), map(2));
    }
}
