//! Verification of what is on a device, read-only.

use flashyard_runtime::Rt;

use super::copies::Start;
use super::error::PoolError;
use super::facts::Report;
use super::mapped;
use super::raw::{self, Metadata};
use crate::SharedDevice;
use crate::superblock::{self, Decoded, Found};

/// Looks at a pool of any kind without changing it. Of a raw pool it verifies both copies of the
/// metadata; of a mapped one its superblocks, log, map and accounting.
///
/// Fails only when the device cannot be read at all.
pub async fn check(rt: &Rt, device: SharedDevice) -> Result<Report, PoolError> {
    let found: Found<Metadata> = superblock::find(&Start(&*device)).await?;
    let newer = |copy: &Decoded<Metadata>| *copy == Decoded::Newer(mapped::VERSION);
    match found.copies.iter().any(newer) {
        true => mapped::check(rt, device).await,
        false => Ok(raw::check(&*device, found)),
    }
}
