//! Envelopes are opened by what sealed them and by nothing else, leave nothing of secrets in text
//! or memory, and bear any bytes.

mod parsers;

use std::fs;
use std::os::unix::fs::FileExt;

use flashyard_checksum::Crc32c;
use flashyard_keys::{ENVELOPE_BYTES, Envelope, KeyError, Secret, SecretKind, draw};

fn secret(kind: SecretKind, text: &str) -> Secret {
    Secret::new(kind, text.as_bytes().to_vec())
}

fn key_of(letter: &str) -> Secret {
    secret(SecretKind::Key, &letter.repeat(32))
}

#[test]
fn what_sealed_it_opens_it() {
    let key = draw().expect("there is chance");
    let phrase = |text| secret(SecretKind::Passphrase, text);
    for (right, wrong) in [
        (key_of("a"), key_of("b")),
        (phrase("open sesame"), phrase("open sesam")),
    ] {
        let sealed = Envelope::seal(&key, &right, b"device 1").expect("it can be sealed");
        assert_eq!(sealed.kind(), right.kind());
        let read = Envelope::decode(&sealed.encode()).expect("it was written");
        assert_eq!(read, sealed);
        let opened = read.open(&right, b"device 1").expect("it is the right one");
        assert_eq!(opened.bytes(), key.bytes());
        let refused = |secret, of: &[u8]| read.open(secret, of).err();
        assert_eq!(refused(&wrong, b"device 1"), Some(KeyError::WrongSecret));
        assert_eq!(refused(&right, b"device 2"), Some(KeyError::WrongSecret));
    }
    // The bytes of a key as a passphrase.
    let sealed = Envelope::seal(&key, &key_of("a"), b"").expect("it can be sealed");
    let other_kind = phrase(&"a".repeat(32));
    assert_eq!(
        sealed.open(&other_kind, b"").err(),
        Some(KeyError::WrongSecret)
    );
}

#[test]
fn every_bit_counts() {
    let key = draw().expect("there is chance");
    let sealed = Envelope::seal(&key, &key_of("a"), b"").expect("it can be sealed");
    let sealed = sealed.encode();
    for bit in 0..8 * ENVELOPE_BYTES {
        let mut bytes = sealed;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Envelope::decode(&bytes).is_err(), "bit {bit}");
    }
    for len in 0..ENVELOPE_BYTES {
        assert!(Envelope::decode(&sealed[..len]).is_err(), "{len} bytes");
    }
    // Who puts the checksum right is found by the authentication.
    for byte in 24..148 {
        let mut bytes = sealed;
        bytes[byte] ^= 1;
        let read = Envelope::decode(&sealed_anew(bytes)).expect("the checksum is right");
        let opened = read.open(&key_of("a"), b"");
        assert_eq!(opened.err(), Some(KeyError::WrongSecret), "byte {byte}");
    }
}

/// Gives it the checksum that is right for it.
fn sealed_anew(mut bytes: [u8; ENVELOPE_BYTES]) -> [u8; ENVELOPE_BYTES] {
    let crc = Crc32c::of(&bytes[..148]);
    bytes[148..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn what_it_cannot_be_is_named() {
    let key = draw().expect("there is chance");
    let sealed = Envelope::seal(&key, &key_of("a"), b"").expect("it can be sealed");
    let sealed = sealed.encode();
    let with = |at: usize, value: u32| {
        let mut bytes = sealed;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Envelope::decode(&sealed_anew(bytes))
    };
    assert_eq!(with(0, 0), Err(KeyError::Absent));
    assert_eq!(with(4, (152 << 16) | 2), Err(KeyError::Newer(2)));
    let cost = Err(KeyError::Damaged("its cost is impossible"));
    for (at, value) in [(8, 0), (8, 2), (8, 3), (12, 1)] {
        assert_eq!(with(at, value), cost, "{value} at {at}");
    }
    let costly = |numbers: [u32; 4]| {
        let mut bytes = sealed;
        for (at, number) in [8, 12, 16, 20].into_iter().zip(numbers) {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        Envelope::decode(&sealed_anew(bytes)).is_ok()
    };
    assert!(costly([2, 65536, 3, 1]));
    // A hostile disk cannot have us work without end, or take all memory.
    for numbers in [
        [2, 4 << 20, 3, 1],
        [2, 65536, 17, 1],
        [2, 65536, 0, 1],
        [2, 7, 1, 1],
        [2, 65536, 3, 17],
    ] {
        assert!(!costly(numbers), "{numbers:?}");
    }
}

#[test]
fn secrets_are_not_printed() {
    let secret = secret(SecretKind::Passphrase, "open sesame");
    assert_eq!(format!("{secret:?}"), "Secret(Passphrase, ..)");
    let key = draw().expect("there is chance");
    let sealed = Envelope::seal(&key, &key_of("a"), b"").expect("it can be sealed");
    let shown = format!("{key:?} {sealed:?}");
    let bytes: Vec<String> = key.bytes()[..4].iter().map(u8::to_string).collect();
    assert!(!shown.contains(&bytes.join(", ")), "{shown}");
}

#[test]
fn nothing_of_a_secret_or_a_key_is_left_in_memory() {
    // What is looked for is kept inverted, so that the search does not find itself.
    let phrase: Vec<u8> = (0..32).map(|at| !(b'A' + at * 7 % 50)).collect();
    let secret = {
        let mut plain = Vec::with_capacity(phrase.len());
        plain.extend(phrase.iter().map(|byte| !byte));
        Secret::new(SecretKind::Passphrase, plain)
    };
    let key = draw().expect("there is chance");
    let inverted: Vec<u8> = key.bytes().iter().map(|byte| !byte).collect();
    assert!(copies(&phrase) > 0, "the search finds what is there");
    assert!(copies(&inverted) > 0, "the search finds what is there");
    let sealed = Envelope::seal(&key, &secret, b"").expect("it can be sealed");
    drop(key);
    let opened = sealed.open(&secret, b"").expect("it is the right one");
    drop((opened, secret));
    assert_eq!((copies(&phrase), copies(&inverted)), (0, 0));
}

/// How often these bytes, inverted, are in the memory of this process.
fn copies(inverted: &[u8]) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let memory = fs::File::open("/proc/self/mem").expect("it is our own");
    let (mut found, mut piece) = (0, vec![0; 1 << 16]);
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let range = line.split(' ').next().and_then(|it| it.split_once('-'));
        let number = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
        let Some(range) = range else { continue };
        for at in range.clone().step_by(piece.len() - inverted.len()) {
            let len = piece.len().min((range.end - at) as usize);
            if memory.read_exact_at(&mut piece[..len], at).is_err() {
                continue;
            }
            let same = |it: &&[u8]| it.iter().zip(inverted).all(|(a, b)| *a == !*b);
            found += piece[..len].windows(inverted.len()).filter(same).count();
            piece.fill(0);
        }
    }
    found
}

#[test]
fn any_bytes_are_borne() {
    flashyard_corpus::try_all("envelope", 20_000, |bytes| {
        parsers::envelope(bytes);
        // The same with a checksum that is right, which mutations never have.
        if let Some(fixed) = bytes.first_chunk() {
            parsers::envelope(&sealed_anew(*fixed));
        }
    });
}
