//! Content that takes no memory: each block follows from its address and from which write wrote it
//! last.
//!
//! A block begins with its address and the number of that write, both as little-endian 64 bits; the
//! rest is a stream of numbers seeded by the two. So a reader can tell, without having seen the
//! writes, that a block is whole, that it is the block asked for, and that it is no older than
//! another read of it. Blocks never written, or deallocated, are zero.

use flashyard_time::Rng;

/// Bytes of a number.
const WORD: usize = 8;

/// Fills `block` with what the `write`th write, counted from 1, leaves at `lba`.
pub fn fill(lba: u64, write: u64, block: &mut [u8]) {
    let mut words = words(lba, write);
    for piece in block.chunks_mut(WORD) {
        let word = words.next().expect("there is no end of words");
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// The number of the write that `block`, read at `lba`, is of; 0 when it is all zero. `None` when
/// no write left this there.
pub fn written_by(lba: u64, block: &[u8]) -> Option<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let write = u64::from_le_bytes(block.get(WORD..2 * WORD)?.try_into().ok()?);
    matches(lba, write, block).then_some(write)
}

/// Whether `block` is what the `write`th write leaves at `lba`; the 0th leaves zeroes.
pub(super) fn matches(lba: u64, write: u64, block: &[u8]) -> bool {
    if write == 0 {
        return block.iter().all(|&byte| byte == 0);
    }
    let mut pieces = block.chunks(WORD).zip(words(lba, write));
    pieces.all(|(piece, word)| *piece == word.to_le_bytes()[..piece.len()])
}

fn words(lba: u64, write: u64) -> impl Iterator<Item = u64> {
    let mut stream = Rng::new(lba).split(write);
    [lba, write]
        .into_iter()
        .chain(std::iter::from_fn(move || Some(stream.next_u64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_which_write_it_is_of() {
        let mut block = [0; 512];
        assert_eq!(written_by(9, &block), Some(0));
        fill(9, 4, &mut block);
        assert_eq!(written_by(9, &block), Some(4));
        assert_eq!(written_by(8, &block), None, "of another place");
        for byte in [0, 8, 100, 511] {
            let mut broken = block;
            broken[byte] ^= 1;
            assert_eq!(written_by(9, &broken), None, "byte {byte}");
        }
        let mut torn = block;
        fill(9, 5, &mut block);
        torn[256..].copy_from_slice(&block[256..]);
        assert_eq!(written_by(9, &torn), None);
    }
}
