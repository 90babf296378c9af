//! The bytes of a pool's metadata, little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 8 | magic `FLSHPOOL` |
//! | 8 | 4 | version of this layout |
//! | 12 | 4 | length of all of it |
//! | 16 | 4 | CRC32C of all of it, these four bytes taken as zero |
//! | 20 | 4 | block size in bytes |
//! | 24 | 8 | generation |
//! | 32 | 16 | UUID of the pool |
//! | 48 | 8 | number of extents |
//! | 56 | 4 | number of volumes |
//! | 60 | 4 | number of runs of clean extents |
//! | 64 | | volumes: UUID (16), blocks (8), number of runs (4), length of the name (4), name, runs |
//! | | | clean runs |
//!
//! A run is its first extent and its number of extents, 8 bytes each. Magic, version, length and
//! checksum keep their places in every later version.

use super::metadata::{
    COPY_BYTES, EXTENT_BYTES, MAX_CLEAN_RUNS, MAX_NAME, MAX_RUNS, MAX_VOLUMES, Metadata, Record,
};
use super::runs::{Run, Runs};

/// How a copy begins.
pub(super) const MAGIC: [u8; 8] = *b"FLSHPOOL";
/// The version written, and the only one read.
pub(super) const VERSION: u32 = 1;

const CHECKSUM: std::ops::Range<usize> = 16..20;
const HEADER: usize = 64;

/// What a copy on a device turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// There never was one.
    Absent,
    /// There was one, and it is not what was written.
    Damaged(String),
    /// Whole, but of a later version of this layout.
    Newer(u32),
    /// Whole and consistent.
    Valid(Metadata),
}

/// The bytes of `metadata`, at most [`COPY_BYTES`].
pub(super) fn encode(metadata: &Metadata) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&metadata.block_size.to_le_bytes());
    bytes.extend_from_slice(&metadata.generation.to_le_bytes());
    bytes.extend_from_slice(&metadata.uuid);
    bytes.extend_from_slice(&metadata.extents.to_le_bytes());
    put_count(&mut bytes, metadata.volumes.len());
    put_count(&mut bytes, metadata.clean.as_slice().len());
    for volume in &metadata.volumes {
        bytes.extend_from_slice(&volume.uuid);
        bytes.extend_from_slice(&volume.blocks.to_le_bytes());
        put_count(&mut bytes, volume.runs.len());
        put_count(&mut bytes, volume.name.len());
        bytes.extend_from_slice(volume.name.as_bytes());
        put_runs(&mut bytes, &volume.runs);
    }
    put_runs(&mut bytes, metadata.clean.as_slice());
    assert!(
        bytes.len() as u64 <= COPY_BYTES,
        "the bounds on volumes and runs keep a copy small"
    );
    let length = bytes.len() as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What the bytes at the place of a copy are.
pub(super) fn decode(bytes: &[u8]) -> Decoded {
    if !bytes.starts_with(&MAGIC) {
        return Decoded::Absent;
    }
    let damaged = |what: &str| Decoded::Damaged(what.into());
    let mut header = Reader {
        rest: &bytes[MAGIC.len()..],
    };
    let (Some(version), Some(length), Some(expected)) = (header.u32(), header.u32(), header.u32())
    else {
        return damaged("it is cut short");
    };
    let Some(bytes) = bytes
        .get(..length as usize)
        .filter(|bytes| bytes.len() >= HEADER)
    else {
        return damaged("its length is impossible");
    };
    if checksum(bytes) != expected {
        return damaged("its checksum is wrong");
    }
    if version != VERSION {
        return Decoded::Newer(version);
    }
    let Some(metadata) = (Reader {
        rest: &bytes[CHECKSUM.end..],
    })
    .metadata() else {
        return damaged("its lists do not fit its length");
    };
    match metadata.validate() {
        Ok(()) => Decoded::Valid(metadata),
        Err(why) => Decoded::Damaged(why),
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_runs(bytes: &mut Vec<u8>, runs: &[Run]) {
    for run in runs {
        bytes.extend_from_slice(&run.start.to_le_bytes());
        bytes.extend_from_slice(&run.count.to_le_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CHECKSUM.start]);
    digest.update(&[0; 4]);
    digest.update(&bytes[CHECKSUM.end..]);
    digest.finalize() as u32
}

/// Takes fields off the front; `None` when there are not enough bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn metadata(mut self) -> Option<Metadata> {
        let block_size = self.u32().filter(|size| [512, 4096].contains(size))?;
        let generation = self.u64()?;
        let uuid = self.bytes()?;
        let extents = self
            .u64()
            .filter(|&extents| extents <= crate::MAX_BYTES / EXTENT_BYTES)?;
        let volumes = self.count(MAX_VOLUMES)?;
        let clean = self.count(MAX_CLEAN_RUNS)?;
        let volumes = (0..volumes)
            .map(|_| self.volume())
            .collect::<Option<Vec<_>>>()?;
        let clean = Runs::new(self.runs(clean)?).ok()?;
        self.rest.is_empty().then_some(Metadata {
            uuid,
            generation,
            block_size,
            extents,
            volumes,
            clean,
        })
    }

    fn volume(&mut self) -> Option<Record> {
        let uuid = self.bytes()?;
        let blocks = self.u64()?;
        let runs = self.count(MAX_RUNS)?;
        let name_length = self.count(MAX_NAME)?;
        let name = std::str::from_utf8(self.take(name_length)?)
            .ok()?
            .to_owned();
        Some(Record {
            uuid,
            name,
            blocks,
            runs: self.runs(runs)?,
        })
    }

    fn runs(&mut self, count: usize) -> Option<Vec<Run>> {
        (0..count)
            .map(|_| {
                let run = Run {
                    start: self.u64()?,
                    count: self.u64()?,
                };
                run.start.checked_add(run.count)?;
                (run.count > 0).then_some(run)
            })
            .collect()
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        self.u32()
            .map(|count| count as usize)
            .filter(|&count| count <= most)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (front, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(front)
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

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

    /// With a checksum that is right for whatever the bytes are.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
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
                    !matches!(decode(&changed), Decoded::Valid(_)),
                    "byte {at} bit {bit}"
                );
            }
            assert!(
                !matches!(decode(&bytes[..at]), Decoded::Valid(_)),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = encode(&sample());
        bytes[8] = 2;
        assert_eq!(decode(&sealed(bytes)), Decoded::Newer(2));
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
            match decode(&sealed(bytes)) {
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
