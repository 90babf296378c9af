//! The bytes of a device's layout, in the frame of [`flashyard_block::superblock`], little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 20 | the frame, with magic `FLSHUNIT` |
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

use flashyard_block::superblock::{Content, Reader, Writer};

use super::layout::{
    Contradiction, Layout, MAX_NAME, MAX_PARTITIONS, MAX_SPANS, MAX_UNITS, Record, Span, Unit,
};

/// Bytes before the partitions.
const HEADER: usize = 64;

impl Content for Layout {
    type Contradiction = Contradiction;
    const MAGIC: [u8; 8] = *b"FLSHUNIT";
    const VERSION: u32 = 1;
    /// Names, spans and units at their bounds.
    const MAX_BYTES: usize =
        HEADER + MAX_PARTITIONS * (28 + MAX_NAME + MAX_SPANS * 12) + MAX_UNITS * 8;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&self, fields: &mut Writer) {
        fields.count(self.partitions.len());
        fields.u64(self.generation);
        fields.bytes(&self.uuid);
        fields.u32(self.groups);
        fields.u32(self.pus);
        fields.u64(self.next_key);
        for record in &self.partitions {
            fields.bytes(&record.uuid);
            fields.u32(record.over_provisioning);
            fields.count(record.name.len());
            fields.bytes(record.name.as_bytes());
            fields.count(record.spans.len());
            for span in &record.spans {
                fields.u64(span.key);
                fields.count(span.units.len());
                for &(group, pu) in &span.units {
                    fields.u32(group);
                    fields.u32(pu);
                }
            }
        }
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let partitions = fields.count(MAX_PARTITIONS)?;
        let generation = fields.u64()?;
        let uuid = fields.array()?;
        let (groups, pus) = (fields.u32()?, fields.u32()?);
        let units = u64::from(groups) * u64::from(pus);
        let next_key = fields.u64()?;
        if !(1..=MAX_UNITS as u64).contains(&units) {
            return None;
        }
        let partitions: Option<Vec<Record>> = (0..partitions).map(|_| record(fields)).collect();
        Some(Self {
            uuid,
            generation,
            groups,
            pus,
            next_key,
            partitions: partitions?,
        })
    }

    fn check(&self) -> Result<(), Contradiction> {
        self.validate()
    }
}

fn record(fields: &mut Reader<'_>) -> Option<Record> {
    let uuid = fields.array()?;
    let over_provisioning = fields.u32()?;
    let length = fields.count(MAX_NAME)?;
    let name = fields.text(length)?;
    let spans = fields.count(MAX_SPANS)?;
    let spans: Option<Vec<Span>> = (0..spans).map(|_| span(fields)).collect();
    Some(Record {
        uuid,
        name,
        over_provisioning,
        spans: spans?,
    })
}

fn span(fields: &mut Reader<'_>) -> Option<Span> {
    let key = fields.u64()?;
    let units = fields.count(MAX_UNITS)?;
    let units: Option<Vec<Unit>> = (0..units)
        .map(|_| Some((fields.u32()?, fields.u32()?)))
        .collect();
    Some(Span { key, units: units? })
}

#[cfg(test)]
mod tests {
    use flashyard_block::superblock::{Decoded, decode, encode, seal};
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
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let layout = sample();
        let mut bytes = encode(&layout);
        bytes.extend([0xAA; 100]);
        assert_eq!(decode(&bytes), Decoded::Valid(layout));
        assert_eq!(decode::<Layout>(&[0; 4096]), Decoded::Absent);
        assert_eq!(decode::<Layout>(&[]), Decoded::Absent);
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
            let noticed = |bytes: &[u8]| !matches!(decode::<Layout>(bytes), Decoded::Valid(_));
            assert!(noticed(&changed), "byte {at}");
            assert!(noticed(&bytes[..at]), "cut at {at}");
        }
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(decode::<Layout>(&sealed(later)), Decoded::Newer(2));
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
            match decode::<Layout>(&sealed(bytes)) {
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
