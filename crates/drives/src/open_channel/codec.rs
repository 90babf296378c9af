//! The bytes of a device's layout, little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 8 | magic `FLSHUNIT` |
//! | 8 | 4 | version of this layout |
//! | 12 | 4 | length of all of it |
//! | 16 | 4 | CRC32C of all of it, these four bytes taken as zero |
//! | 20 | 4 | number of partitions |
//! | 24 | 8 | generation |
//! | 32 | 16 | UUID of the device |
//! | 48 | 4 | channels |
//! | 52 | 4 | parallel units of each |
//! | 56 | 8 | the key of the next span |
//! | 64 | | partitions: UUID (16), over-provisioning in thousandths (4), length of the name (4), name, number of spans (4), spans |
//!
//! A span is its key (8), the number of its units (4), and of each unit the channel and its number
//! there (4 each).

use super::layout::{Layout, MAX_NAME, MAX_PARTITIONS, MAX_SPANS, MAX_UNITS, Record, Span, Unit};

/// How a copy begins.
pub(super) const MAGIC: [u8; 8] = *b"FLSHUNIT";
/// The version written, and the only one read.
const VERSION: u32 = 1;
const CHECKSUM: std::ops::Range<usize> = 16..20;
const HEADER: usize = 64;
/// Bytes of a layout at most: names, spans and units at their bounds.
pub(super) const MAX_BYTES: usize =
    HEADER + MAX_PARTITIONS * (28 + MAX_NAME + MAX_SPANS * 12) + MAX_UNITS * 8;

/// What a copy on a device turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// There never was one.
    Absent,
    /// There was one, and it is not what was written.
    Damaged(String),
    /// Whole, but of a later version.
    Newer(u32),
    /// Whole and consistent.
    Valid(Layout),
}

/// The bytes of `layout`, at most [`MAX_BYTES`].
pub(super) fn encode(layout: &Layout) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put(&mut bytes, VERSION);
    bytes.extend_from_slice(&[0; 8]);
    put(&mut bytes, layout.partitions.len() as u32);
    bytes.extend_from_slice(&layout.generation.to_le_bytes());
    bytes.extend_from_slice(&layout.uuid);
    put(&mut bytes, layout.groups);
    put(&mut bytes, layout.pus);
    bytes.extend_from_slice(&layout.next_key.to_le_bytes());
    for record in &layout.partitions {
        bytes.extend_from_slice(&record.uuid);
        put(&mut bytes, record.over_provisioning);
        put(&mut bytes, record.name.len() as u32);
        bytes.extend_from_slice(record.name.as_bytes());
        put(&mut bytes, record.spans.len() as u32);
        for span in &record.spans {
            bytes.extend_from_slice(&span.key.to_le_bytes());
            put(&mut bytes, span.units.len() as u32);
            for &(group, pu) in &span.units {
                put(&mut bytes, group);
                put(&mut bytes, pu);
            }
        }
    }
    assert!(
        bytes.len() <= MAX_BYTES,
        "the bounds on partitions, spans and units keep a copy small"
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
    let mut header = Reader(&bytes[MAGIC.len()..]);
    let (Some(version), Some(length), Some(expected)) = (header.u32(), header.u32(), header.u32())
    else {
        return damaged("it is cut short");
    };
    let whole = bytes.get(..length as usize);
    let Some(bytes) = whole.filter(|bytes| bytes.len() >= HEADER) else {
        return damaged("its length is impossible");
    };
    if checksum(bytes) != expected {
        return damaged("its checksum is wrong");
    }
    if version != VERSION {
        return Decoded::Newer(version);
    }
    let Some(layout) = Reader(&bytes[CHECKSUM.end..]).layout() else {
        return damaged("its lists do not fit its length");
    };
    match layout.validate() {
        Ok(()) => Decoded::Valid(layout),
        Err(why) => Decoded::Damaged(why),
    }
}

fn put(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CHECKSUM.start]);
    digest.update(&[0; 4]);
    digest.update(&bytes[CHECKSUM.end..]);
    digest.finalize() as u32
}

/// Takes fields off the front; `None` when there are not enough bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn layout(mut self) -> Option<Layout> {
        let partitions = self.count(MAX_PARTITIONS)?;
        let generation = self.u64()?;
        let uuid = self.bytes()?;
        let (groups, pus) = (self.u32()?, self.u32()?);
        let units = u64::from(groups) * u64::from(pus);
        let next_key = self.u64()?;
        if !(1..=MAX_UNITS as u64).contains(&units) {
            return None;
        }
        let partitions: Option<Vec<Record>> = (0..partitions).map(|_| self.record()).collect();
        let partitions = partitions?;
        self.0.is_empty().then_some(Layout {
            uuid,
            generation,
            groups,
            pus,
            next_key,
            partitions,
        })
    }

    fn record(&mut self) -> Option<Record> {
        let uuid = self.bytes()?;
        let over_provisioning = self.u32()?;
        let length = self.count(MAX_NAME)?;
        let name = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        let spans = self.count(MAX_SPANS)?;
        let spans: Option<Vec<Span>> = (0..spans).map(|_| self.span()).collect();
        Some(Record {
            uuid,
            name,
            over_provisioning,
            spans: spans?,
        })
    }

    fn span(&mut self) -> Option<Span> {
        let key = self.u64()?;
        let units = self.count(MAX_UNITS)?;
        let units: Option<Vec<Unit>> = (0..units)
            .map(|_| Some((self.u32()?, self.u32()?)))
            .collect();
        Some(Span { key, units: units? })
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count <= most).then_some(count)
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
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::super::layout::Wanted;
    use super::*;

    fn sample() -> Layout {
        let mut layout = Layout::new([7; 16], 16, 8);
        layout
            .add("db", [1; 16], &Wanted::Channels(vec![0, 1]), 200)
            .expect("it is free");
        layout
            .add("logs", [2; 16], &Wanted::Count(4), 70)
            .expect("there are enough");
        layout
            .grow("db", &Wanted::Channels(vec![5]))
            .expect("it is free");
        layout
    }

    /// With the right checksum.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let layout = sample();
        let mut bytes = encode(&layout);
        bytes.extend([0xAA; 100]);
        assert_eq!(decode(&bytes), Decoded::Valid(layout));
        assert_eq!(decode(&[0; 4096]), Decoded::Absent);
        assert_eq!(decode(&[]), Decoded::Absent);
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let bytes = encode(&Layout::new([7; 16], 16, 8));
        assert_eq!(bytes.len(), HEADER);
        assert_eq!(&bytes[..16], b"FLSHUNIT\x01\0\0\0\x40\0\0\0");
        assert_eq!(bytes[20..32], [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            bytes[48..64],
            [16, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let bytes = encode(&sample());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            let noticed = |bytes: &[u8]| !matches!(decode(bytes), Decoded::Valid(_));
            assert!(noticed(&changed), "byte {at}");
            assert!(noticed(&bytes[..at]), "cut at {at}");
        }
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(decode(&sealed(later)), Decoded::Newer(2));
    }

    #[test]
    fn hostile_content_with_a_right_checksum_is_refused_or_consistent() {
        let original = encode(&sample());
        let (mut refused, mut accepted) = (0, 0);
        for seed in 0..5000 {
            let mut rng = Rng::new(seed);
            let mut bytes = original.clone();
            let at = 20 + rng.below(bytes.len() as u64 - 20) as usize;
            bytes[at] = [0, 1, 0x7f, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            match decode(&sealed(bytes)) {
                Decoded::Valid(layout) => {
                    accepted += 1;
                    assert_eq!(decode(&encode(&layout)), Decoded::Valid(layout));
                }
                Decoded::Damaged(_) => refused += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(refused > 100 && accepted > 100, "{refused} {accepted}");
    }
}
