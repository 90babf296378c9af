//! The bytes of a pool's metadata, in the frame of [`crate::superblock`], little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 20 | the frame, with magic `FLSHPOOL` |
//! | 20 | 4 | block size in bytes |
//! | 24 | 8 | generation |
//! | 32 | 16 | UUID of the pool |
//! | 48 | 8 | number of extents |
//! | 56 | 4 | number of volumes |
//! | 60 | 4 | number of runs of clean extents |
//! | 64 | | volumes: UUID (16), blocks (8), number of runs (4), length of the name (4), name, runs |
//! | | | clean runs |
//!
//! A run is its first extent and its number of extents, 8 bytes each.

use super::metadata::{
    Contradiction, EXTENT_BYTES, MAX_CLEAN_RUNS, MAX_RUNS, MAX_VOLUMES, Metadata, Record,
};
use super::runs::{Run, Runs};
use crate::pool::copies::COPY_BYTES;
use crate::pool::names::MAX_NAME;
use crate::superblock::{Content, Reader, Writer};

impl Content for Metadata {
    type Contradiction = Contradiction;
    const MAGIC: [u8; 8] = *b"FLSHPOOL";
    const VERSION: u32 = 1;
    const MAX_BYTES: usize = COPY_BYTES as usize;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&self, fields: &mut Writer) {
        fields.u32(self.block_size);
        fields.u64(self.generation);
        fields.bytes(&self.uuid);
        fields.u64(self.extents);
        fields.count(self.volumes.len());
        fields.count(self.clean.as_slice().len());
        for volume in &self.volumes {
            fields.bytes(&volume.uuid);
            fields.u64(volume.blocks);
            fields.count(volume.runs.len());
            fields.count(volume.name.len());
            fields.bytes(volume.name.as_bytes());
            put_runs(fields, &volume.runs);
        }
        put_runs(fields, self.clean.as_slice());
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let block_size = fields.u32().filter(|size| [512, 4096].contains(size))?;
        let generation = fields.u64()?;
        let uuid = fields.array()?;
        let extents = fields
            .u64()
            .filter(|&extents| extents <= crate::MAX_BYTES / EXTENT_BYTES)?;
        let volumes = fields.count(MAX_VOLUMES)?;
        let clean = fields.count(MAX_CLEAN_RUNS)?;
        let volumes: Option<Vec<Record>> = (0..volumes).map(|_| volume(fields)).collect();
        Some(Self {
            uuid,
            generation,
            block_size,
            extents,
            volumes: volumes?,
            clean: Runs::new(runs(fields, clean)?).ok()?,
        })
    }

    fn check(&self) -> Result<(), Contradiction> {
        self.validate()
    }
}

fn put_runs(fields: &mut Writer, runs: &[Run]) {
    for run in runs {
        fields.u64(run.start);
        fields.u64(run.count);
    }
}

fn volume(fields: &mut Reader<'_>) -> Option<Record> {
    let uuid = fields.array()?;
    let blocks = fields.u64()?;
    let count = fields.count(MAX_RUNS)?;
    let name_length = fields.count(MAX_NAME)?;
    Some(Record {
        uuid,
        name: fields.text(name_length)?,
        blocks,
        runs: runs(fields, count)?,
    })
}

fn runs(fields: &mut Reader<'_>, count: usize) -> Option<Vec<Run>> {
    (0..count)
        .map(|_| {
            let run = Run {
                start: fields.u64()?,
                count: fields.u64()?,
            };
            run.start.checked_add(run.count)?;
            (run.count > 0).then_some(run)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;
    use crate::superblock::{Decoded, decode, encode, seal};

    fn sample() -> Metadata {
        let mut metadata = Metadata::new([7; 16], 512, 1 << 30).unwrap();
        metadata.generation = 9;
        metadata.add("first", [1; 16], 100 << 20).unwrap();
        metadata.add("second", [2; 16], (3 << 20) - 5).unwrap();
        metadata.grow("first", 101 << 20).unwrap();
        let freed = metadata.remove("second").unwrap();
        metadata.add_clean(&freed);
        metadata.add("a.b-c_D", [3; 16], 1).unwrap();
        metadata
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_encoded_is_decoded_whatever_lies_behind_it() {
        let metadata = sample();
        let mut bytes = encode(&metadata);
        assert_eq!(decode(&bytes), Decoded::Valid(metadata.clone()));
        bytes.resize(COPY_BYTES as usize, 0xee);
        assert_eq!(decode(&bytes), Decoded::Valid(metadata));
    }

    #[test]
    fn the_layout_does_not_move() {
        let metadata = Metadata::new([7; 16], 4096, 64 << 20).unwrap();
        let mut expected = Vec::from(*b"FLSHPOOL");
        expected.extend([1, 0, 0, 0, 64, 0, 0, 0]);
        // The checksum was worked out by another program.
        expected.extend([0xbf, 0xb3, 0x50, 0x70]);
        expected.extend([0, 16, 0, 0]);
        expected.extend([0; 8]);
        expected.extend([7; 16]);
        expected.extend([62, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0; 8]);
        assert_eq!(encode(&metadata), expected);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let bytes = encode(&sample());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    !matches!(decode::<Metadata>(&changed), Decoded::Valid(_)),
                    "byte {at} bit {bit}"
                );
            }
            assert!(
                !matches!(decode::<Metadata>(&bytes[..at]), Decoded::Valid(_)),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn a_later_version_is_not_taken_for_damage() {
        let mut bytes = encode(&sample());
        bytes[8] = 2;
        assert_eq!(decode::<Metadata>(&sealed(bytes)), Decoded::Newer(2));
    }

    #[test]
    fn hostile_content_with_a_right_checksum_is_refused_or_consistent() {
        let original = encode(&sample());
        let (mut refused, mut accepted) = (0, 0);
        for seed in 0..20_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = original.clone();
            for _ in 0..=rng.below(3) {
                let at = 20 + rng.below(bytes.len() as u64 - 20) as usize;
                bytes[at] = [0, 1, 0x7f, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            }
            match decode::<Metadata>(&sealed(bytes)) {
                Decoded::Valid(metadata) => {
                    accepted += 1;
                    assert_eq!(metadata.validate(), Ok(()));
                    // Whatever was accepted can be worked on.
                    let mut changed = metadata.clone();
                    let _refused_or_done = changed.add("new", [9; 16], 5 << 20);
                    assert_eq!(decode(&encode(&metadata)), Decoded::Valid(metadata));
                }
                Decoded::Damaged(_) => refused += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(refused > 1000 && accepted > 100, "{refused} {accepted}");
    }
}
