//! The metadata of a pool: which volumes there are and which extents belong to which. Pure.

use std::fmt;

use super::runs::{Run, Runs};
use crate::pool::copies::COPY_BYTES;
use crate::pool::error::PoolError;
use crate::pool::names::check_name;

/// Unit in which space is given out, in bytes.
pub(super) const EXTENT_BYTES: u64 = 1 << 20;
/// Where extent 0 begins, in bytes.
pub(super) const DATA_START: u64 = 2 * COPY_BYTES;

/// Volumes of one pool.
pub(in crate::pool) const MAX_VOLUMES: usize = 1024;
/// Runs of all volumes of one pool together.
pub(in crate::pool) const MAX_RUNS: usize = 32 * 1024;
/// Runs of clean extents that are remembered.
pub(in crate::pool) const MAX_CLEAN_RUNS: usize = 8 * 1024;

/// Why fields that were read cannot be the state of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pool) enum Contradiction {
    /// A run of extents behind the end of the device.
    Outside(Run),
    /// A run that begins with an extent of another volume.
    TwoOwners(Run),
    /// More volumes or runs than a pool can have.
    TooMany,
    /// Two volumes have the same name or UUID.
    SameName,
    /// A volume's name is invalid.
    Name(PoolError),
    /// This volume has another size than its extents, or no UUID.
    Size(String),
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(run) => write!(
                f,
                "the run of {} extents at {} leaves the device",
                run.count, run.start
            ),
            Self::TwoOwners(run) => write!(f, "extent {} belongs to two owners", run.start),
            Self::TooMany => f.write_str("there are more volumes or runs than a pool can have"),
            Self::SameName => f.write_str("two volumes have the same name or UUID"),
            Self::Name(error) => error.fmt(f),
            Self::Size(name) => write!(
                f,
                "volume {name} has a size that does not fit its extents, or no UUID"
            ),
        }
    }
}

/// The state of a pool, as both copies on the device hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Metadata {
    pub(super) uuid: [u8; 16],
    /// Grows with every change.
    pub(super) generation: u64,
    pub(super) block_size: u32,
    /// Number of extents behind [`DATA_START`].
    pub(super) extents: u64,
    pub(super) volumes: Vec<Record>,
    /// Free extents that are known to read as zeroes.
    pub(super) clean: Runs,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Record {
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    /// Size in blocks; the last extent may be used in part.
    pub(super) blocks: u64,
    /// Its extents in the order of its blocks.
    pub(super) runs: Vec<Run>,
}

impl Metadata {
    /// A pool without volumes on a device of `bytes` bytes, of which nothing is known to be zero.
    pub(super) fn new(uuid: [u8; 16], block_size: u32, bytes: u64) -> Result<Self, PoolError> {
        let extents = extents_of_device(bytes);
        if extents == 0 {
            return Err(PoolError::TooSmall {
                bytes,
                least: DATA_START + EXTENT_BYTES,
            });
        }
        Ok(Self {
            uuid,
            generation: 0,
            block_size,
            extents,
            volumes: Vec::new(),
            clean: Runs::default(),
        })
    }

    pub(super) fn volume(&self, name: &str) -> Result<&Record, PoolError> {
        let found = self.volumes.iter().find(|volume| volume.name == name);
        found.ok_or_else(|| PoolError::NotFound(name.into()))
    }

    /// Extents that belong to no volume.
    pub(super) fn free(&self) -> Runs {
        Runs::below(self.extents).without(&self.taken())
    }

    /// Adds a volume; gives those of its extents that may hold old data.
    pub(super) fn add(
        &mut self,
        name: &str,
        uuid: [u8; 16],
        bytes: u64,
    ) -> Result<Runs, PoolError> {
        check_name(name)?;
        if self.volumes.iter().any(|volume| volume.name == name) {
            return Err(PoolError::Exists(name.into()));
        }
        if uuid == [0; 16] || self.volumes.iter().any(|volume| volume.uuid == uuid) {
            return Err(PoolError::UuidTaken);
        }
        if self.volumes.len() >= MAX_VOLUMES {
            return Err(PoolError::TooManyVolumes);
        }
        let blocks = self.blocks(bytes)?;
        self.volumes.push(Record {
            uuid,
            name: name.into(),
            blocks: 0,
            runs: Vec::new(),
        });
        self.extend(self.volumes.len() - 1, blocks)
    }

    /// Makes a volume larger; gives those of its new extents that may hold old data.
    pub(super) fn grow(&mut self, name: &str, bytes: u64) -> Result<Runs, PoolError> {
        let blocks = self.blocks(bytes)?;
        let present = self.volume(name)?.blocks;
        if blocks < present {
            let bytes = present * u64::from(self.block_size);
            return Err(PoolError::Shrink {
                name: name.into(),
                bytes,
            });
        }
        let found = self.volumes.iter().position(|volume| volume.name == name);
        self.extend(found.expect("it was found before"), blocks)
    }

    /// Renames a volume.
    pub(super) fn rename(&mut self, name: &str, new: &str) -> Result<(), PoolError> {
        check_name(new)?;
        if self.volumes.iter().any(|volume| volume.name == new) {
            return Err(PoolError::Exists(new.into()));
        }
        let found = self.volumes.iter_mut().find(|volume| volume.name == name);
        let volume = found.ok_or_else(|| PoolError::NotFound(name.into()))?;
        new.clone_into(&mut volume.name);
        Ok(())
    }

    /// Gives the volume of UUID `from` another UUID and name.
    pub(super) fn identify(
        &mut self,
        from: [u8; 16],
        uuid: [u8; 16],
        name: &str,
    ) -> Result<(), PoolError> {
        check_name(name)?;
        let found = self.volumes.iter().position(|volume| volume.uuid == from);
        let place = found.ok_or_else(|| PoolError::NotFound(name.into()))?;
        let mut others = self.volumes.iter().enumerate();
        if let Some((_, other)) =
            others.find(|(at, other)| *at != place && (other.uuid == uuid || other.name == name))
        {
            return Err(match other.uuid == uuid {
                true => PoolError::UuidTaken,
                false => PoolError::Exists(name.into()),
            });
        }
        if uuid == [0; 16] {
            return Err(PoolError::UuidTaken);
        }
        self.volumes[place].uuid = uuid;
        name.clone_into(&mut self.volumes[place].name);
        Ok(())
    }

    /// Removes a volume; gives its extents back.
    pub(super) fn remove(&mut self, name: &str) -> Result<Runs, PoolError> {
        let uuid = self.volume(name)?.uuid;
        let found = self.volumes.iter().position(|volume| volume.uuid == uuid);
        let record = self.volumes.remove(found.expect("it was found before"));
        Ok(Runs::new(record.runs).expect("a volume's runs do not overlap"))
    }

    /// Free extents that read as zeroes now.
    pub(super) fn add_clean(&mut self, runs: &Runs) {
        let new = runs.without(&self.clean);
        let both = self.clean.as_slice().iter().chain(new.as_slice()).copied();
        let all = Runs::new(both).expect("what is new is not in what is known");
        let most = all.as_slice().iter().copied().take(MAX_CLEAN_RUNS);
        self.clean = Runs::new(most).expect("a part of a set has no overlaps");
    }

    /// Why this cannot be the state of a pool, if it cannot.
    pub(super) fn validate(&self) -> Result<(), Contradiction> {
        self.validate_volumes()?;
        let all = self
            .volumes
            .iter()
            .flat_map(|volume| volume.runs.iter())
            .chain(self.clean.as_slice());
        let limit = self.extents;
        if let Some(run) = all.clone().find(|run| {
            run.start
                .checked_add(run.count)
                .is_none_or(|end| end > limit)
        }) {
            return Err(Contradiction::Outside(*run));
        }
        Runs::new(all.copied())
            .map(drop)
            .map_err(Contradiction::TwoOwners)
    }

    fn validate_volumes(&self) -> Result<(), Contradiction> {
        if self.volumes.len() > MAX_VOLUMES || self.runs() > MAX_RUNS {
            return Err(Contradiction::TooMany);
        }
        let mut names: Vec<&str> = self
            .volumes
            .iter()
            .map(|volume| volume.name.as_str())
            .collect();
        let mut uuids: Vec<[u8; 16]> = self.volumes.iter().map(|volume| volume.uuid).collect();
        names.sort_unstable();
        uuids.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1])
            || uuids.windows(2).any(|pair| pair[0] == pair[1])
        {
            return Err(Contradiction::SameName);
        }
        for volume in &self.volumes {
            check_name(&volume.name).map_err(Contradiction::Name)?;
            let held = volume
                .runs
                .iter()
                .try_fold(0u64, |sum, run| sum.checked_add(run.count));
            let needed = volume
                .blocks
                .checked_mul(u64::from(self.block_size))
                .map(extents_for);
            if volume.blocks == 0 || held != needed || needed.is_none() || volume.uuid == [0; 16] {
                return Err(Contradiction::Size(volume.name.clone()));
            }
        }
        Ok(())
    }

    fn taken(&self) -> Runs {
        let runs = self
            .volumes
            .iter()
            .flat_map(|volume| volume.runs.iter().copied());
        Runs::new(runs).expect("validated: no two volumes share an extent")
    }

    fn runs(&self) -> usize {
        self.volumes.iter().map(|volume| volume.runs.len()).sum()
    }

    fn blocks(&self, bytes: u64) -> Result<u64, PoolError> {
        // More than any device has; refused here so that no sum below can wrap.
        if bytes == 0 || bytes > crate::MAX_BYTES {
            return Err(PoolError::Size(bytes));
        }
        Ok(bytes.div_ceil(u64::from(self.block_size)))
    }

    fn extend(&mut self, index: usize, blocks: u64) -> Result<Runs, PoolError> {
        let volume = &self.volumes[index];
        let held: u64 = volume.runs.iter().map(|run| run.count).sum();
        let needed = extents_for(blocks * u64::from(self.block_size)) - held;
        let free = self.free();
        let near = volume.runs.last().map(|run| run.end());
        let Some(chosen) = free.choose(needed, near) else {
            let (needed, free) = (
                needed.saturating_mul(EXTENT_BYTES),
                free.count() * EXTENT_BYTES,
            );
            return Err(PoolError::Full { needed, free });
        };
        let volume = &mut self.volumes[index];
        volume.blocks = blocks;
        for run in &chosen {
            match volume.runs.last_mut() {
                Some(last) if last.end() == run.start => last.count += run.count,
                _ => volume.runs.push(*run),
            }
        }
        if self.runs() > MAX_RUNS {
            return Err(PoolError::Fragmented);
        }
        let chosen = Runs::new(chosen).expect("chosen extents are distinct");
        let dirty = chosen.without(&self.clean);
        self.clean = self.clean.without(&chosen);
        Ok(dirty)
    }
}

/// Number of extents that fit a device.
pub(super) fn extents_of_device(bytes: u64) -> u64 {
    bytes.saturating_sub(DATA_START) / EXTENT_BYTES
}

fn extents_for(bytes: u64) -> u64 {
    bytes.div_ceil(EXTENT_BYTES)
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool(extents: u64) -> Metadata {
        Metadata::new([1; 16], 4096, DATA_START + extents * EXTENT_BYTES).unwrap()
    }

    #[test]
    fn any_sequence_of_changes_keeps_extents_apart_and_loses_none() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut pool = pool(50);
            for step in 1..200u64 {
                let name = format!("v{}", rng.below(8));
                let bytes = 1 + rng.below(20 * MIB);
                let before = pool.clone();
                let mut uuid = [0; 16];
                uuid[..8].copy_from_slice(&step.to_le_bytes());
                let result = match rng.below(3) {
                    0 => pool.add(&name, uuid, bytes),
                    1 => pool.grow(&name, bytes),
                    _ => pool
                        .remove(&name)
                        .inspect(|extents| pool.add_clean(extents)),
                };
                if result.is_err() {
                    // A failed change is thrown away by the caller.
                    pool = before;
                }
                assert_eq!(pool.validate(), Ok(()), "seed {seed} step {step}");
                let held: u64 = pool
                    .volumes
                    .iter()
                    .flat_map(|volume| &volume.runs)
                    .map(|run| run.count)
                    .sum();
                assert_eq!(held + pool.free().count(), 50);
            }
        }
    }

    #[test]
    fn changes_that_cannot_be_are_refused_with_the_reason() {
        let mut pool = pool(10);
        pool.add("a", [1; 16], 5 * MIB).unwrap();
        let name = |name: &str| Err(PoolError::Name(name.into()));
        for bad in ["", ".x", "-x", "a b", "a/b", "\u{e9}"] {
            assert_eq!(pool.clone().add(bad, [2; 16], MIB), name(bad));
        }
        assert_eq!(
            pool.clone().add("a", [2; 16], MIB),
            Err(PoolError::Exists("a".into()))
        );
        assert_eq!(
            pool.clone().add("b", [1; 16], MIB),
            Err(PoolError::UuidTaken)
        );
        assert_eq!(
            pool.clone().add("b", [0; 16], MIB),
            Err(PoolError::UuidTaken)
        );
        assert_eq!(pool.clone().add("b", [2; 16], 0), Err(PoolError::Size(0)));
        assert_eq!(
            pool.clone().add("b", [2; 16], u64::MAX),
            Err(PoolError::Size(u64::MAX))
        );
        let full = Err(PoolError::Full {
            needed: 6 * MIB,
            free: 5 * MIB,
        });
        assert_eq!(pool.clone().add("b", [2; 16], 5 * MIB + 1), full);
        assert_eq!(
            pool.clone().grow("c", MIB),
            Err(PoolError::NotFound("c".into()))
        );
        pool.clone().rename("a", "b").unwrap();
        for (name, new, why) in [
            ("a", "a", PoolError::Exists("a".into())),
            ("a", "-x", PoolError::Name("-x".into())),
            ("b", "c", PoolError::NotFound("b".into())),
        ] {
            assert_eq!(pool.clone().rename(name, new), Err(why));
        }
        let shrink = Err(PoolError::Shrink {
            name: "a".into(),
            bytes: 5 * MIB,
        });
        assert_eq!(pool.clone().grow("a", MIB), shrink);
        assert_eq!(
            Metadata::new([1; 16], 512, DATA_START)
                .unwrap_err()
                .to_string(),
            "a pool needs 3145728 bytes, the device has 2097152"
        );
    }

    #[test]
    fn the_largest_pool_fits_its_place() {
        let mut pool = pool(4 * MAX_RUNS as u64);
        for volume in 0..MAX_VOLUMES {
            let mut uuid = [1; 16];
            uuid[..8].copy_from_slice(&(volume as u64).to_le_bytes());
            let per_volume = (MAX_RUNS / MAX_VOLUMES) as u64;
            let first = volume as u64 * per_volume;
            let runs = (first..first + per_volume)
                .map(|run| Run {
                    start: 4 * run,
                    count: 1,
                })
                .collect();
            let blocks = per_volume * EXTENT_BYTES / 4096;
            pool.volumes.push(Record {
                uuid,
                name: format!("{volume:x>64}"),
                blocks,
                runs,
            });
        }
        let clean = (0..MAX_RUNS as u64).map(|run| Run {
            start: 4 * run + 2,
            count: 1,
        });
        pool.add_clean(&Runs::new(clean).unwrap());
        assert_eq!(pool.validate(), Ok(()));
        assert!(crate::superblock::encode(&pool).len() as u64 <= COPY_BYTES);
        assert_eq!(
            pool.clone().add("one-more", [9; 16], 1),
            Err(PoolError::TooManyVolumes)
        );
        assert_eq!(
            pool.grow(&format!("{:x>64}", 0), 40 << 20),
            Err(PoolError::Fragmented)
        );
    }
}
