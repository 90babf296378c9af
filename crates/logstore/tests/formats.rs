//! Formats: what is written is read again, every changed bit is found, and no bytes whatever cause
//! more than an error.

use flashyard_logstore::format::batch::{Header, Lane, Place, Record, RecordKind};
use flashyard_logstore::format::fields::put;
use flashyard_logstore::format::footer::{Batch, Item, Trailer};
use flashyard_logstore::format::page::{self, FANOUT, Head, PageKind};
use flashyard_logstore::format::rows::{LABEL, PageRef, Row, SegmentRow, VolumeRow};
use flashyard_logstore::format::superblock::{
    Features, Grown, LogEntry, SUPERBLOCK, Superblock, Tail,
};
use flashyard_logstore::format::{BLOCK, Block, FormatError, block_sum, chunk_sum};
use flashyard_logstore::{Entry, Form, LEAF_CHUNKS, Lineage, Secret};
use flashyard_time::Rng;

const SECRET: Secret = Secret(*b"0123456789abcdef");
const FIRST: u64 = 8000;
const PLACE: Place = Place {
    segment: 5,
    generation: 9,
    block: 17,
};

/// Records as a lane writes them: data lie one after another behind the header.
fn records(chance: &mut Rng, count: usize) -> Vec<Record> {
    let mut address = FIRST + (u64::from(PLACE.block) + 1) * 8;
    let mut record = |kind: u64| {
        let mut record = Record {
            kind: RecordKind::Trim,
            lineage: Lineage(1 + chance.below(1 << 20) as u32),
            epoch: chance.below(1 << 24) as u32,
            chunk: chance.below(1 << 39),
            count: 1,
            address: 0,
            sectors: 0,
            codec: 0,
            crc: chance.next_u64() as u32,
        };
        match kind {
            0 => record.count = 1 + chance.below(1 << 30),
            1 => record.kind = RecordKind::Lost,
            kind => {
                let kinds = [RecordKind::Write, RecordKind::Move, RecordKind::Void];
                record.kind = kinds[kind as usize % 3];
                // As it is, or compressed: only the former begins at a whole block.
                let packed = chance.below(2) == 0;
                (record.sectors, record.codec) = match packed {
                    true => (1 + chance.below(6) as u32, 1 + chance.below(2) as u8),
                    false => (8, 0),
                };
                record.address = if packed {
                    address
                } else {
                    address.next_multiple_of(8)
                };
                address = record.address + u64::from(record.sectors);
            }
        }
        record
    };
    (0..count as u64).map(|n| record(n % 2 + n % 7)).collect()
}

fn header(records: &[Record]) -> Header {
    let first = FIRST + (u64::from(PLACE.block) + 1) * 8;
    let ends = records.iter().filter(|record| record.sectors > 0);
    let end = ends
        .map(|record| record.address + u64::from(record.sectors))
        .max();
    let data = (end.unwrap_or(first) - first).div_ceil(8);
    Header {
        lane: Lane::User,
        incarnation: 3,
        sequence: 77,
        place: PLACE,
        blocks: 1 + data as u32,
        row: 1,
        before: 0x1234_5678,
        watermark: 70,
    }
}

/// Flips bits of `bytes`, each of the first ones and others by chance, and wants each to be found.
fn flips_are_found(bytes: &mut [u8], all_of: usize, is_good: impl Fn(&[u8]) -> bool) {
    let mut chance = Rng::new(4);
    assert!(is_good(bytes));
    let others = (0..400).map(|_| chance.below(8 * bytes.len() as u64) as usize);
    for bit in (0..8 * all_of).chain(others.collect::<Vec<_>>()) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_good(bytes), "bit {bit} was flipped and nobody saw it");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn block(bytes: &[u8]) -> &Block {
    bytes.try_into().expect("a block")
}

fn decode_header(bytes: &[u8]) -> Result<(Header, u64, Vec<Record>), FormatError> {
    let mut records = Vec::new();
    Header::decode(SECRET, block(bytes), PLACE, FIRST, &mut records)
        .map(|(header, checksum)| (header, checksum, records))
}

#[test]
fn a_batch_header_is_read_as_it_was_written_and_every_flipped_bit_is_found() {
    let mut chance = Rng::new(1);
    for count in [0, 1, 2, 63, 70] {
        let records = records(&mut chance, count);
        let header = header(&records);
        let mut bytes = [0xff; BLOCK];
        let checksum = header.encode(SECRET, &records, &mut bytes);
        assert_eq!(
            decode_header(&bytes),
            Ok((header, checksum, records.clone()))
        );
        let all = if count == 2 { BLOCK } else { 100 };
        flips_are_found(&mut bytes, all, |bytes| decode_header(bytes).is_ok());
    }
}

#[test]
fn a_header_of_another_pool_or_place_is_refused() {
    let mut bytes = [0; BLOCK];
    let header = header(&[]);
    header.encode(Secret::NONE, &[], &mut bytes);
    assert_eq!(decode_header(&bytes), Err(FormatError::Checksum));
    for change in 0..3 {
        let mut other = header;
        match change {
            0 => other.place.segment += 1,
            1 => other.place.generation -= 1,
            _ => other.place.block += 1,
        }
        other.encode(SECRET, &[], &mut bytes);
        assert_eq!(decode_header(&bytes), Err(FormatError::Elsewhere));
    }
    assert_eq!(decode_header(&[0; BLOCK]), Err(FormatError::Absent));
}

#[test]
fn sealed_headers_with_any_content_cause_no_more_than_an_error() {
    let mut chance = Rng::new(2);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let records = records(&mut chance, 2);
        let mut bytes = [0; BLOCK];
        header(&records).encode(SECRET, &records, &mut bytes);
        for _ in 0..=chance.below(3) {
            let at = 12 + chance.below(310) as usize;
            bytes[at] = chance.next_u64() as u8;
        }
        let count = usize::from(u16::from_le_bytes([bytes[14], bytes[15]]));
        let end = (256 + 32 * count).min(BLOCK);
        let checksum = SECRET.checksum(&bytes[8..end]);
        put(&mut bytes, 0, checksum.to_le_bytes());
        accepted += u32::from(decode_header(&bytes).is_ok());
    }
    assert!(accepted > 100, "some changes are sound: {accepted}");
}

#[test]
fn a_footer_is_read_as_it_was_written_and_every_flipped_bit_is_found() {
    let mut chance = Rng::new(3);
    for batches in [0u32, 1, 3, 40] {
        let mut items = Vec::new();
        for number in 0..batches {
            let records = records(&mut chance, number as usize % 9);
            items.push(Item::Batch(Batch {
                block: number,
                blocks: 1,
                records: records.len() as u32,
                sequence: u64::from(number) + 5,
                checksum: chance.next_u64(),
            }));
            items.extend(records.into_iter().map(Item::Record));
        }
        let encoded: Vec<u8> = items.iter().flat_map(Item::encode).collect();
        let place = Place {
            block: 4095,
            ..PLACE
        };
        let trailer = Trailer::new(Lane::Latency, 3, 44, 55);
        let mut bytes = trailer.encode(SECRET, place, &encoded);
        let decode = |bytes: &[u8]| {
            let (body, last) = bytes.split_at(bytes.len() - BLOCK);
            let trailer = Trailer::decode(SECRET, block(last), place)?;
            assert_eq!((trailer.lane, trailer.watermark), (Lane::Latency, 44));
            assert_eq!(trailer.before, 55);
            trailer.items(body)
        };
        assert_eq!(decode(&bytes), Ok(items));
        let all = if batches == 1 { bytes.len() } else { 0 };
        flips_are_found(&mut bytes, all, |bytes| decode(bytes).is_ok());
    }
}

fn superblock(chance: &mut Rng) -> Superblock {
    let page = |chance: &mut Rng| PageRef {
        block: 1 + chance.below(1 << 35),
        copy: chance.below(1 << 35),
        crc: chance.next_u64() as u32,
        birth: chance.below(1 << 24) as u32,
    };
    let row = [1, 2, 4, 16][chance.below(4) as usize];
    let grown = (chance.below(2) == 0).then_some(Grown {
        segment_page: 890,
        catalogue_page: 9,
        unused: (520, 2),
    });
    let mut features = Features::of_row(row);
    if grown.is_some() {
        features = features.with(Features::GROWN);
    }
    Superblock {
        pool: *b"pool-pool-pool-p",
        secret: SECRET,
        generation: chance.next_u64(),
        parent: chance.next_u64(),
        segments: 1000,
        segment_blocks: 4096,
        first_block: 256,
        row,
        incarnation: 12,
        incarnations: (0..chance.below(65) as u32).map(|n| (n, 9)).collect(),
        next_lineage: 5,
        pages: 900,
        segment_pages: 8,
        catalogue_pages: 64,
        tails: [1, 2, 3].map(|n| Tail {
            checksum: n << 40,
            watermark: n,
        }),
        features: match chance.below(2) {
            0 => features,
            _ => features.with(Features::SNAPSHOTS),
        },
        grown,
        directory: (0..chance.below(193)).map(|_| page(chance)).collect(),
        log: (0..chance.below(513) as u32)
            .map(|n| LogEntry {
                segment: n,
                generation: n + 1,
                incarnation: n % 3,
                from: n % 99,
                end: (n % 2 == 0).then_some(100),
            })
            .collect(),
    }
}

#[test]
fn a_superblock_is_read_as_it_was_written_and_every_flipped_bit_is_found() {
    let mut chance = Rng::new(5);
    for _ in 0..20 {
        let superblock = superblock(&mut chance);
        let bytes = superblock.encode(2);
        assert_eq!(Superblock::decode(&bytes, 2), Ok(superblock));
        assert_eq!(Superblock::decode(&bytes, 1), Err(FormatError::Elsewhere));
    }
    let mut bytes = superblock(&mut chance).encode(0);
    flips_are_found(&mut bytes, 260, |bytes| {
        Superblock::decode(bytes, 0).is_ok()
    });
}

#[test]
fn what_has_grown_has_to_fit_the_rest() {
    let mut chance = Rng::new(6);
    let good = Grown {
        segment_page: 890,
        catalogue_page: 9,
        unused: (520, 2),
    };
    let bad = [
        (0, 9, (520, 2)),
        (893, 9, (520, 2)),
        (u32::MAX, 9, (520, 2)),
        (890, 0, (520, 2)),
        (890, 837, (520, 2)),
        (10, 9, (520, 2)),
        (890, 9, (999, 2)),
        (890, 9, (u32::MAX, 2)),
        (890, 9, (3, 2)),
    ];
    let bad = bad.map(|(segment_page, catalogue_page, unused)| Grown {
        segment_page,
        catalogue_page,
        unused,
    });
    let mut superblock = superblock(&mut chance);
    superblock.features = superblock.features.with(Features::GROWN);
    superblock.log.resize(
        9,
        LogEntry {
            segment: 4,
            generation: 1,
            incarnation: 1,
            from: 0,
            end: None,
        },
    );
    superblock.log[4].segment = 4;
    superblock.grown = Some(good);
    assert!(Superblock::decode(&superblock.encode(0), 0).is_ok());
    for grown in bad {
        superblock.grown = Some(grown);
        let refused = Err(FormatError::Field("what has grown"));
        assert_eq!(
            Superblock::decode(&superblock.encode(0), 0),
            refused,
            "{grown:?}"
        );
    }
}

#[test]
fn features_that_this_program_does_not_know_are_refused() {
    for (version, features, expected) in [
        (1, 1, FormatError::Field("padding")),
        (2, 0, FormatError::Field("version")),
        (2, 1 << 31 | 1, FormatError::Features(1 << 31)),
        (3, 0, FormatError::Newer(3)),
    ] {
        let mut bytes = superblock(&mut Rng::new(7)).encode(0);
        bytes[67] = version;
        put(&mut bytes, 168, u32::to_le_bytes(features));
        let checksum = Secret::NONE.checksum(&bytes[8..]);
        put(&mut bytes, 0, checksum.to_le_bytes());
        assert_eq!(Superblock::decode(&bytes, 0), Err(expected));
    }
}

#[test]
fn sealed_superblocks_with_any_content_cause_no_more_than_an_error() {
    let mut chance = Rng::new(6);
    for _ in 0..1_000 {
        let mut bytes = superblock(&mut chance).encode(0);
        for _ in 0..=chance.below(4) {
            let within = [300, SUPERBLOCK as u64 - 16][chance.below(2) as usize];
            bytes[16 + chance.below(within) as usize] = chance.next_u64() as u8;
        }
        let checksum = Secret::NONE.checksum(&bytes[8..]);
        put(&mut bytes, 0, checksum.to_le_bytes());
        if let Ok(decoded) = Superblock::decode(&bytes, 0) {
            assert_eq!(decoded.encode(0).len(), SUPERBLOCK);
        }
    }
    for length in [0, 1, BLOCK, SUPERBLOCK - 1] {
        let decoded = Superblock::decode(&vec![0x5a; length], 0);
        assert_eq!(decoded, Err(FormatError::Absent));
    }
}

#[test]
fn rows_are_read_as_they_were_written() {
    fn round<R: Row + PartialEq + std::fmt::Debug>(row: &R) {
        let mut page = [0; BLOCK];
        row.put(&mut page, R::PER_PAGE - 1);
        assert_eq!(R::get(&page, R::PER_PAGE - 1).as_ref(), Ok(row));
    }
    let mut chance = Rng::new(7);
    for _ in 0..200 {
        round(&PageRef {
            block: 1 + chance.below((1 << 36) - 1),
            copy: chance.below(1 << 36),
            crc: chance.next_u64() as u32,
            birth: chance.below(1 << 24) as u32,
        });
        round(&SegmentRow {
            generation: chance.next_u64() as u32,
            used: chance.below(2) == 1,
            suspect: chance.below(2) == 1,
            live: chance.next_u64() as u32,
            end: chance.next_u64() as u32,
            age: chance.next_u64(),
        });
        let form = Form {
            chunk_shift: [12, 14][chance.below(2) as usize],
            codec: chance.below(3) as u8,
        };
        let (mapped, packed) = (
            chance.below(1 << 40),
            chance.below(2) * chance.below(1 << 40),
        );
        let sectors = match packed {
            0 => mapped * u64::from(form.chunk_sectors()),
            _ => chance.next_u64(),
        };
        round(&VolumeRow {
            lineage: Lineage(1 + chance.below(1 << 23) as u32),
            deleting: chance.below(2) == 1,
            epoch: chance.next_u64() as u32,
            data: Lineage((1 << 23) + chance.below(1 << 23) as u32),
            parent: (chance.below(2) == 1).then_some(Lineage((1 << 24) - 1)),
            chunks: chance.below(1 << 40),
            root: chance.next_u64() as u32,
            shared: chance.next_u64(),
            made: chance.next_u64(),
            reserved: chance.next_u64() as u32,
            mapped,
            sectors,
            packed,
            form,
            label: [chance.next_u64() as u8; LABEL],
        });
    }
    round(&PageRef::default());
}

#[test]
fn rows_of_any_bytes_cause_no_more_than_an_error() {
    let mut chance = Rng::new(8);
    for _ in 0..5_000 {
        let mut bytes = [0; 256];
        for _ in 0..chance.below(12) {
            bytes[chance.below(256) as usize] = chance.next_u64() as u8;
        }
        let _ = PageRef::decode(&bytes[..PageRef::BYTES]);
        let _ = SegmentRow::decode(&bytes[..SegmentRow::BYTES]);
        let _ = VolumeRow::decode(&bytes[..VolumeRow::BYTES]);
    }
}

#[test]
fn pages_of_the_map_are_read_as_they_were_written_and_every_flipped_bit_is_found() {
    let mut chance = Rng::new(9);
    let head = Head {
        kind: PageKind::Leaf,
        level: 0,
        lineage: 3,
        birth: 1,
        index: 4,
        page: 99,
    };
    let mut leaf = [0; BLOCK];
    head.encode(&mut leaf);
    for place in 0..LEAF_CHUNKS as usize {
        let entry = match chance.below(8) {
            0 => Entry::UNMAPPED,
            1 => Entry::LOST,
            _ => Entry::stored(chance.below(1 << 40), 8, chance.below(4096) as u32, 7),
        };
        page::set_leaf_entry(&mut leaf, place, entry);
        assert_eq!(page::leaf_entry(&leaf, place), entry);
    }
    assert_eq!(head.check(&leaf), Ok(()));
    assert_eq!(page::check_leaf(&leaf), Ok(()));
    let other = Head { index: 5, ..head };
    assert_eq!(other.check(&leaf), Err(FormatError::Elsewhere));
    // The checksum stands where the page is referred to.
    let crc = block_sum(&leaf);
    flips_are_found(&mut leaf, 64, |bytes| block_sum(bytes) == crc);

    let head = Head {
        kind: PageKind::Inner,
        level: 1,
        ..head
    };
    let children = core::array::from_fn(|_| chance.below(1000) as u32);
    let mut inner = [0xff; BLOCK];
    page::encode_inner(&head, &children, &mut inner);
    let mut read = [0; FANOUT];
    assert_eq!(page::decode_inner(&head, &inner, 1000, &mut read), Ok(()));
    assert_eq!(read, children);
    let refused = page::decode_inner(&head, &inner, 10, &mut read);
    assert_eq!(refused, Err(FormatError::Field("page number")));
}

#[test]
fn a_chunk_of_another_volume_or_place_does_not_verify() {
    let data = [7; BLOCK];
    let sum = chunk_sum(Lineage(1), 2, &data);
    assert_ne!(sum, chunk_sum(Lineage(2), 2, &data));
    assert_ne!(sum, chunk_sum(Lineage(1), 3, &data));
    assert_eq!(sum, chunk_sum(Lineage(1), 2, &data));
}
