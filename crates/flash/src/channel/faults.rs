//! Injected failures: by chance, from a seed, or as they were reported of real drives.

use alloc::vec::Vec;

use flashyard_time::Rng;

/// How often what fails, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Chunks that are offline from the factory.
    pub bad_chunks: u32,
    /// Programs that fail and close their chunk.
    pub writes: u32,
    /// Resets that fail and take their chunk offline.
    pub resets: u32,
    /// Sectors that cannot be corrected when they are read; the next read of the same may succeed.
    pub reads: u32,
}

/// What fails once, the next time it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program of the write unit that begins with this sector.
    Write(u64),
    /// The reset of the chunk that begins with this sector.
    Reset(u64),
    /// A read of this sector.
    Read(u64),
}

/// The faults of a device.
#[derive(Debug)]
pub(super) struct FaultSource {
    rates: Faults,
    writes: Rng,
    resets: Rng,
    reads: Rng,
    /// Faults reported, by number of unit.
    reported: Vec<(Kind, u32)>,
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Reset,
    Read,
}

const ALL: u64 = 1_000_000;

impl FaultSource {
    pub fn new(rates: Faults, seed: u64) -> Self {
        let chance = Rng::new(seed).split(2);
        Self {
            rates,
            writes: chance.split(0),
            resets: chance.split(1),
            reads: chance.split(2),
            reported: Vec::new(),
        }
    }

    /// Which of `chunks` chunks are bad from the factory.
    pub fn bad_chunks(rates: Faults, seed: u64, chunks: u32) -> impl Iterator<Item = u32> {
        let mut chance = Rng::new(seed).split(3);
        (0..chunks).filter(move |_| chance.chance(u64::from(rates.bad_chunks), ALL))
    }

    /// Has `kind` fail at `unit` once.
    pub fn tell(&mut self, kind: Kind, unit: u32) {
        self.reported.push((kind, unit));
    }

    /// Whether `kind` fails at `unit` now.
    pub fn strikes(&mut self, kind: Kind, unit: u32) -> bool {
        if !self.reported.is_empty()
            && let Some(place) = self
                .reported
                .iter()
                .position(|&reported| reported == (kind, unit))
        {
            self.reported.swap_remove(place);
            return true;
        }
        let (rate, chance) = match kind {
            Kind::Write => (self.rates.writes, &mut self.writes),
            Kind::Reset => (self.rates.resets, &mut self.resets),
            Kind::Read => (self.rates.reads, &mut self.reads),
        };
        rate > 0 && chance.chance(u64::from(rate), ALL)
    }
}
