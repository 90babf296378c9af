//! Little-endian fields at fixed offsets of a larger structure.
//!
//! The 4 KiB structures of Identify and the log pages are sparse: a table of offsets is closer to the specification
//! than a struct with hundreds of reserved fields. Offsets here are constants of ours, so a bad one is a bug.

/// Reads the `N` bytes at `at`.
pub(crate) fn array<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

/// Reads a 16-bit field.
pub(crate) fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(from, at))
}

/// Reads a 32-bit field.
pub(crate) fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(from, at))
}

/// Reads a 64-bit field.
pub(crate) fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(from, at))
}

/// Reads a 128-bit field.
pub(crate) fn u128_at(from: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array(from, at))
}

/// Writes `value` at `at`.
pub(crate) fn put<const N: usize>(to: &mut [u8], at: usize, value: [u8; N]) {
    to[at..at + N].copy_from_slice(&value);
}

/// Writes a 16-bit field.
pub(crate) fn put_u16(to: &mut [u8], at: usize, value: u16) {
    put(to, at, value.to_le_bytes());
}

/// Writes a 32-bit field.
pub(crate) fn put_u32(to: &mut [u8], at: usize, value: u32) {
    put(to, at, value.to_le_bytes());
}

/// Writes a 64-bit field.
pub(crate) fn put_u64(to: &mut [u8], at: usize, value: u64) {
    put(to, at, value.to_le_bytes());
}

/// Writes a 128-bit field.
pub(crate) fn put_u128(to: &mut [u8], at: usize, value: u128) {
    put(to, at, value.to_le_bytes());
}
