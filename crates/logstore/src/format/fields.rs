//! Numbers at fixed places of a record. Places are constants within the record's length.

/// A number of `N` bytes at `at`.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

/// 16 bits at a place.
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

/// 32 bits at a place.
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

/// 64 bits at a place.
pub fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

/// Bytes at a place.
pub fn get_bytes<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    get(bytes, at)
}

/// Puts the bytes of a number, or others, at a place.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Whether nothing was written in all of these bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_le_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}
