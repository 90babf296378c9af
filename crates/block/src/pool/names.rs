//! The names of volumes.

use super::error::PoolError;

/// Bytes of a volume's name.
pub(super) const MAX_NAME: usize = 64;

/// Refuses what cannot name a volume.
pub(super) fn check_name(name: &str) -> Result<(), PoolError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let good = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(plain)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if good {
        Ok(())
    } else {
        Err(PoolError::Name(name.chars().take(MAX_NAME).collect()))
    }
}
