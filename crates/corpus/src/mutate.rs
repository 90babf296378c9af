//! Inputs and what becomes of them by chance, as a fuzzer changes them; the same for the same seed.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use flashyard_time::Rng;

/// Bytes of an input at most.
const MOST: usize = 64 << 10;
/// Values at which sums and lengths go wrong.
const EDGES: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// The committed inputs of `target`, in the order of their names.
///
/// # Panics
/// When there are none.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("inputs")
        .join(target);
    let listed = fs::read_dir(&folder);
    let listed = listed.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path| fs::read(path).expect("it was listed");
    let inputs: Vec<Vec<u8>> = paths.iter().map(read).collect();
    assert!(!inputs.is_empty(), "{target} has no inputs");
    inputs
}

/// Gives `body` every input of `target`, and `rounds` mutations of them, so many times more as the
/// variable `FLASHYARD_ROUNDS` says. When it panics, the input is printed, so that it can become
/// one of those that are committed.
pub fn try_all(target: &str, rounds: u64, mut body: impl FnMut(&[u8])) {
    let inputs = inputs(target);
    let mut tried = |what: &str, input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(input))) {
            eprintln!("{target}, {what}: {}", input.escape_ascii());
            resume_unwind(panic);
        }
    };
    for (number, input) in inputs.iter().enumerate() {
        tried(&format!("input {number}"), input);
    }
    let times = std::env::var("FLASHYARD_ROUNDS").map_or(1, |times| {
        let times = times.parse::<u64>();
        times.expect("FLASHYARD_ROUNDS is a number")
    });
    for seed in 0..rounds * times {
        tried(&format!("seed {seed}"), &mutated(&inputs, seed));
    }
}

/// One of `inputs`, changed in some places.
pub fn mutated(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = rng.pick(inputs).cloned().unwrap_or_default();
    for _ in 0..=rng.below(4) {
        let other = rng.pick(inputs).map_or(&[][..], Vec::as_slice);
        change(&mut bytes, other, &mut rng);
    }
    bytes.truncate(MOST);
    bytes
}

/// Changes one place of `bytes`, or takes something from `other`.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    // What is text would mostly be none any more.
    if rng.below(3) > 0 && bytes.is_ascii() && change_number(bytes, rng) {
        return;
    }
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let len = 1 + rng.below(16) as usize;
    let end = bytes.len().min(at + len);
    match rng.below(9) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        3 => {
            let from = rng.below(other.len() as u64 + 1) as usize;
            let until = other.len().min(from + 4 * len);
            bytes.splice(at..at, other[from..until].iter().copied());
        }
        4 => drop(bytes.splice(at..at, vec![rng.below(256) as u8; len])),
        5 | 6 => put_edge(&mut bytes[at..], rng),
        7 => {
            for byte in &mut bytes[at..end] {
                *byte = rng.below(256) as u8;
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
    }
}

/// Gives a number in text another value, or repeats or removes a line; false when there is none.
fn change_number(bytes: &mut Vec<u8>, rng: &mut Rng) -> bool {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    if rng.below(4) == 0 {
        let begins = bytes[..at].iter().rposition(|&byte| byte == b'\n');
        let begins = begins.map_or(0, |end| end + 1);
        let len = bytes[begins..].iter().position(|&byte| byte == b'\n');
        let line = begins..len.map_or(bytes.len(), |len| begins + len + 1);
        let repeated = bytes[line.clone()].repeat(rng.below(3) as usize);
        bytes.splice(line, repeated);
        return true;
    }
    let Some(first) = bytes[at..].iter().position(u8::is_ascii_digit) else {
        return false;
    };
    let first = at + first;
    let digits = bytes[first..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let end = first + digits.count();
    let value = match rng.below(3) {
        0 => rng.pick(&EDGES).copied().unwrap_or_default(),
        1 => 1 << rng.below(64),
        _ => rng.below(100),
    };
    bytes.splice(first..end, value.to_string().into_bytes());
    true
}

/// Writes a number of 1, 2, 4 or 8 bytes at which something may overflow.
fn put_edge(bytes: &mut [u8], rng: &mut Rng) {
    let value = rng.pick(&EDGES).copied().unwrap_or_default();
    let value = value.wrapping_add(rng.below(3)).wrapping_sub(1);
    let width = 1 << rng.below(4);
    for (byte, new) in bytes.iter_mut().zip(value.to_le_bytes()).take(width) {
        *byte = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_mutation_and_seeds_differ() {
        let inputs = [
            b"a = 1\nb = 20\n".to_vec(),
            b"another one".to_vec(),
            Vec::new(),
        ];
        let all: Vec<_> = (0..500).map(|seed| mutated(&inputs, seed)).collect();
        let again: Vec<_> = (0..500).map(|seed| mutated(&inputs, seed)).collect();
        assert_eq!(all, again);
        let mut distinct = all;
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 250, "{}", distinct.len());
    }
}
