//! What is written is what is read, and damage is no more than that.

use flashyard_flash::Profile;
use flashyard_flash::channel::{Device, Options};

use super::*;

fn image() -> Image {
    let profile = Profile::named("cnex").expect("it ships");
    let device = Device::new(&profile, 1 << 30, 1, Options::default()).expect("it fits");
    Image::new([7; 16], device.geometry().clone())
}

/// Changes every bit of `bytes` of a piece in turn.
fn every_change(piece: &[u8], bytes: usize, mut test: impl FnMut(&[u8])) {
    for at in 0..bytes {
        let mut changed = piece.to_vec();
        changed[at] ^= 1 << (at % 8);
        test(&changed);
    }
}

#[test]
fn a_header_is_whole_or_nothing() {
    let image = image();
    let mut piece = vec![0xAA; PIECE];
    image.encode_header(&mut piece);
    let shape = Shape::of(image.geometry());
    assert_eq!(decode_header(&piece), Header::Valid([7; 16], shape, 2));
    every_change(&piece, PIECE, |piece| {
        assert!(!matches!(decode_header(piece), Header::Valid(..)));
    });
    assert_eq!(decode_header(&[0; PIECE]), Header::Blank);
    assert_eq!(decode_header(&[1; PIECE]), Header::Foreign);
    for (version, expected) in [
        (1, Header::Valid([7; 16], shape, 1)),
        (3, Header::Newer(3)),
        (0, Header::Newer(0)),
    ] {
        put(&mut piece, 8, version);
        put(&mut piece, 12, 0);
        let sum = checksum(&[&piece]);
        put(&mut piece, 12, sum);
        assert_eq!(decode_header(&piece), expected);
    }
}

#[test]
fn heads_and_records_belong_to_their_place() {
    let image = image();
    let mut piece = vec![0xAA; PIECE];
    for fate in [
        Fate::InUse,
        Fate::Closed(48),
        Fate::Settled(32),
        Fate::Offline,
    ] {
        let head = Head {
            epoch: 9,
            resets: 4,
            fate,
        };
        image.encode_head(5, &head, &[], &mut piece);
        assert_eq!(image.decode_head(5, &piece), Some(head));
        assert_eq!(image.decode_head(6, &piece), None);
    }
    every_change(&piece, HEAD_BYTES, |piece| {
        assert_eq!(image.decode_head(5, piece), None);
    });
    let record = Record {
        chunk: 5,
        unit: 3,
        epoch: 9,
        durable: 2,
        data: 77,
        metadata: (0..16).map(|sector| [sector, 100 + sector]).collect(),
        sums: (0..16).map(|sector| 200 + sector).collect(),
    };
    image.encode_record(&record, &mut piece);
    assert_eq!(image.decode_record(5, 3, &piece), Some(record.clone()));
    assert_eq!(image.decode_record(5, 2, &piece), None);
    assert_eq!(image.decode_record(4, 3, &piece), None);
    every_change(&piece, RECORD_BYTES + 16 * 20, |piece| {
        assert_eq!(image.decode_record(5, 3, piece), None);
    });
    let other = Image::new([8; 16], image.geometry().clone());
    assert_eq!(other.decode_record(5, 3, &piece), None, "of another file");
    let first = Image::of_version([7; 16], image.geometry().clone(), 1);
    assert_eq!(
        first.decode_record(5, 3, &piece),
        None,
        "of another version"
    );
    first.encode_record(&record, &mut piece);
    let without = Record {
        sums: Vec::new(),
        ..record
    };
    assert_eq!(first.decode_record(5, 3, &piece), Some(without));
    assert_eq!(image.decode_head(5, &[]), None);
    assert_eq!(image.decode_record(5, 3, &[0; PIECE]), None);
}

#[test]
fn a_head_has_the_records_of_its_chunk_or_none() {
    let image = image();
    let units = image.units();
    let mut bodies = Vec::new();
    let mut records = Vec::new();
    for unit in 0..units {
        let record = Record {
            chunk: 5,
            unit,
            epoch: 9,
            durable: unit / 2,
            data: 77 + unit,
            metadata: (0..16).map(|sector| [sector, u64::from(unit)]).collect(),
            sums: (0..16).map(|sector| sector + unit).collect(),
        };
        let mut piece = vec![0; PIECE];
        image.encode_record(&record, &mut piece);
        bodies.extend_from_slice(image.body(&piece));
        records.push(record);
    }
    let head = Head {
        epoch: 9,
        resets: 1,
        fate: Fate::Settled(16 * units),
    };
    let mut pieces = vec![0xAA; image.head_pieces() as usize * PIECE];
    image.encode_head(5, &head, &bodies, &mut pieces);
    assert_eq!(image.decode_head(5, &pieces), Some(head));
    assert_eq!(image.decode_table(5, 9, units, &pieces), Some(records));
    assert_eq!(
        image.decode_table(5, 8, units, &pieces),
        None,
        "of another life"
    );
    assert_eq!(image.decode_table(5, 9, units - 1, &pieces), None);
    assert_eq!(image.decode_table(5, 9, u32::MAX, &pieces), None);
    let end = bodies.len();
    every_change(&pieces[HEAD_BYTES..], 4 + end, |changed| {
        let pieces = [&pieces[..HEAD_BYTES], changed].concat();
        assert_eq!(image.decode_table(5, 9, units, &pieces), None);
    });
}

#[test]
fn no_two_things_have_the_same_place() {
    for version in [1, 2] {
        let new = image();
        let image = Image::of_version([7; 16], new.geometry().clone(), version);
        let (chunks, units) = (image.chunks(), image.units());
        let mut taken = vec![(0, HEADERS)];
        for chunk in 0..chunks {
            taken.push((image.head(chunk), image.head_pieces()));
            for unit in 0..units {
                taken.push((image.record(chunk, unit), image.unit_pieces()));
            }
        }
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0, "version {version}");
        }
        let last = taken.last().expect("there are chunks");
        assert_eq!(last.0 + last.1, image.pieces());
        assert_eq!(image.sector(0, 15), image.record(0, 1) - 1);
        assert_eq!(image.pieces(), new.pieces());
    }
    let image = image();
    let address = image.geometry().address(flashyard_flash::channel::Place {
        group: 1,
        pu: 2,
        chunk: 3,
        sector: 20,
    });
    let expected = (8 + 2) * image.geometry().chunks + 3;
    assert_eq!(
        image.chunk_of(address.expect("it is there")),
        Some((expected, 20))
    );
    assert_eq!(image.chunk_of(u64::MAX), None);
}
