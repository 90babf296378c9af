//! The content of blocks: words that say which tenant and which write they are of, and which block
//! they belong to. A word of zeroes belongs to no tenant.

/// One for each tenant; any two differ in four bits, so damage to the data of one never looks like
/// another.
const CODES: [u8; TENANTS] = [0x17, 0x2b, 0x4d, 0x8e];
/// As many tenants can be distinguished.
pub const TENANTS: usize = 4;
/// What a block is torn into by a power cut.
pub const SECTOR: usize = 512;

/// The word of a block: write number `write` of `tenant`.
pub fn word(tenant: usize, write: u32, lba: u64) -> u64 {
    let low = (lba & 0xffff) << 32 | u64::from(write);
    let code = CODES[tenant];
    u64::from(code) << 56 | u64::from(check(code, low)) << 48 | low
}

fn check(code: u8, low: u64) -> u8 {
    let mixed = (low ^ u64::from(code)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// Which tenant's word it is, if any.
pub fn owner(word: u64) -> Option<usize> {
    let (code, low) = ((word >> 56) as u8, word & 0xffff_ffff_ffff);
    let tenant = CODES.iter().position(|known| *known == code)?;
    (check(code, low) == (word >> 48) as u8).then_some(tenant)
}

/// The write that a word comes from, and the lower part of its block's number.
pub fn origin(word: u64) -> (u32, u16) {
    (word as u32, (word >> 32) as u16)
}

/// Fills the blocks from `lba` on.
pub fn fill(bytes: &mut [u8], block_size: usize, tenant: usize, write: u32, lba: u64) {
    for (block, lba) in bytes.chunks_mut(block_size).zip(lba..) {
        let word = word(tenant, write, lba).to_le_bytes();
        for place in block.chunks_exact_mut(size_of::<u64>()) {
            place.copy_from_slice(&word);
        }
    }
}

/// The word that a sector is full of; nothing when it is full of several.
pub fn read(sector: &[u8]) -> Option<u64> {
    let (words, rest) = sector.as_chunks::<{ size_of::<u64>() }>();
    let first = *words.first()?;
    (rest.is_empty() && words.iter().all(|word| *word == first)).then(|| u64::from_le_bytes(first))
}

/// Another tenant whose words are in `bytes`: two alike in a row, which chance does not make.
pub fn stranger(bytes: &[u8], tenant: usize) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
    let twice = words.windows(2).filter(|pair| pair[0] == pair[1]);
    twice
        .filter_map(|pair| owner(u64::from_le_bytes(pair[0])))
        .find(|owner| *owner != tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_its_owner_and_its_write() {
        let word = word(2, 77, 0x1_2345);
        assert_eq!((owner(word), origin(word)), (Some(2), (77, 0x2345)));
        assert_eq!(owner(0), None);
        for bit in 0..64 {
            let other = owner(word ^ 1 << bit);
            assert!(other.is_none_or(|other| other == 2), "bit {bit}");
        }
    }

    #[test]
    fn a_stranger_is_found_wherever_it_is() {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes, 512, 1, 5, 8);
        assert_eq!(read(&bytes[512..1024]), Some(word(1, 5, 9)));
        assert_eq!(read(&bytes[508..1020]), None);
        assert_eq!(stranger(&bytes, 1), None);
        let foreign = word(3, 9, 0).to_le_bytes();
        bytes[2000..2008].copy_from_slice(&foreign);
        assert_eq!(stranger(&bytes, 1), None, "one may be chance");
        bytes[2008..2016].copy_from_slice(&foreign);
        assert_eq!(stranger(&bytes, 1), Some(3));
    }
}
