//! What `--verify` writes and expects to read. Every block says who wrote it, where and how often:
//! seed, logical block address and generation, then numbers that follow from the three. So a block
//! that was lost, moved, torn, mixed or is too old differs from what is expected, and says how.

/// The first bytes of every block that we wrote.
const MAGIC: u64 = u64::from_le_bytes(*b"flshyrd1");
/// Most blocks of the pattern's map, 4 bytes each.
const MAX_CHUNKS: u64 = 64 << 20;
/// In the map: an I/O to the chunk is in flight.
const BUSY: u32 = 1 << 31;

/// Which generation every chunk (a piece of the size of an I/O) holds, as far as we know.
#[derive(Debug)]
pub(super) struct Map {
    chunks: Vec<u32>,
}

/// What was found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What was expected.
    Good,
    /// Zeroes, where no run of ours is known to have written.
    Unwritten,
    /// Anything else.
    Bad,
}

impl Map {
    /// A map for the first `chunks` of a job's share, or as many as fit it.
    pub(super) fn new(chunks: u64) -> Self {
        Self {
            chunks: vec![0; chunks.min(MAX_CHUNKS) as usize],
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Claims `chunk` or the next one that is free; gives it with its generation. `None` when all
    /// are busy.
    pub(super) fn claim(&mut self, chunk: u64) -> Option<(u64, u32)> {
        let len = self.chunks.len();
        let free = (0..len)
            .map(|step| (chunk as usize + step) % len)
            .find(|at| self.chunks[*at] & BUSY == 0)?;
        let generation = self.chunks[free];
        self.chunks[free] |= BUSY;
        Some((free as u64, generation))
    }

    /// Ends the claim. `generation`: what the chunk holds now, 0 if that is not known.
    pub(super) fn release(&mut self, chunk: u64, generation: u32) {
        self.chunks[chunk as usize] = generation & !BUSY;
    }
}

/// Fills `data` with the pattern of the blocks from `lba` on.
pub(super) fn fill(data: &mut [u8], block_size: usize, seed: u64, lba: u64, generation: u32) {
    for (block, lba) in data.chunks_exact_mut(block_size).zip(lba..) {
        let mut number = start(seed, lba, generation);
        let head = [MAGIC, seed, lba, u64::from(generation)];
        for (index, word) in block.as_chunks_mut().0.iter_mut().enumerate() {
            let value = head
                .get(index)
                .copied()
                .unwrap_or_else(|| next(&mut number));
            *word = value.to_le_bytes();
        }
    }
}

/// Looks at the blocks from `lba` on. `generation` 0: not known, so any that is whole will do.
pub(super) fn check(data: &[u8], block_size: usize, seed: u64, lba: u64, generation: u32) -> Found {
    let mut found = Found::Good;
    for (block, lba) in data.chunks_exact(block_size).zip(lba..) {
        match check_block(block, seed, lba, generation) {
            Found::Bad => return Found::Bad,
            Found::Unwritten => found = Found::Unwritten,
            Found::Good => {}
        }
    }
    found
}

fn check_block(block: &[u8], seed: u64, lba: u64, expected: u32) -> Found {
    let mut words = block
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let mut head = [0; 4];
    for (place, word) in head.iter_mut().zip(&mut words) {
        *place = word;
    }
    if expected == 0 && head == [0; 4] && words.clone().all(|word| word == 0) {
        return Found::Unwritten;
    }
    let generation = u32::try_from(head[3]).unwrap_or(0);
    let ours = head[..3] == [MAGIC, seed, lba] && generation != 0;
    if !ours || (expected != 0 && generation != expected) {
        return Found::Bad;
    }
    let mut number = start(seed, lba, generation);
    if words.all(|word| word == next(&mut number)) {
        Found::Good
    } else {
        Found::Bad
    }
}

fn start(seed: u64, lba: u64, generation: u32) -> u64 {
    seed ^ lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(generation).rotate_left(40)
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 42;

    #[test]
    fn what_was_written_is_what_is_expected() {
        let mut data = vec![0; 4096];
        fill(&mut data, 512, SEED, 1000, 3);
        assert_eq!(check(&data, 512, SEED, 1000, 3), Found::Good);
        assert_eq!(
            check(&data, 512, SEED, 1000, 0),
            Found::Good,
            "any generation"
        );
        assert_eq!(check(&data, 512, SEED, 1000, 4), Found::Bad, "too old");
        assert_eq!(check(&data, 512, SEED, 1001, 3), Found::Bad, "elsewhere");
        assert_eq!(
            check(&data, 512, SEED + 1, 1000, 3),
            Found::Bad,
            "another writer's"
        );
    }

    #[test]
    fn one_wrong_byte_is_seen() {
        let mut data = vec![0; 1024];
        fill(&mut data, 512, SEED, 7, 1);
        for at in 0..data.len() {
            data[at] ^= 0x10;
            assert_eq!(check(&data, 512, SEED, 7, 0), Found::Bad, "byte {at}");
            data[at] ^= 0x10;
        }
    }

    #[test]
    fn zeroes_are_lost_only_where_something_was_written() {
        let data = vec![0; 512];
        assert_eq!(check(&data, 512, SEED, 0, 0), Found::Unwritten);
        assert_eq!(check(&data, 512, SEED, 0, 1), Found::Bad);
    }

    #[test]
    fn a_chunk_is_claimed_once() {
        let mut map = Map::new(3);
        assert_eq!(map.claim(1), Some((1, 0)));
        assert_eq!(map.claim(1), Some((2, 0)));
        assert_eq!(map.claim(2), Some((0, 0)));
        assert_eq!(map.claim(0), None);
        map.release(2, 9);
        assert_eq!(map.claim(0), Some((2, 9)));
    }
}
