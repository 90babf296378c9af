//! The UUID that hosts know a volume by, as it is written; that of an encrypted device is written
//! likewise.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::IdentityError;

/// The UUID of a namespace.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct NamespaceUuid(pub Uuid);

/// The UUID of the volume that a calibration writes to. A pool deletes what it finds under it, so
/// no volume of a user may have it.
pub const CALIBRATION_UUID: Uuid = Uuid::from_bytes(*b"calibration-temp");

/// How the UUIDs of copies begin that are not volumes: not yet, or not any more. No volume of a
/// user may have such a one, for pools delete what no move knows.
const COPY_UUID: [u8; 10] = *b"copy-move-";

/// A UUID for the copy that a volume is moved by.
pub fn new_copy_uuid() -> Uuid {
    let mut bytes = Uuid::new_v4().into_bytes();
    bytes[..COPY_UUID.len()].copy_from_slice(&COPY_UUID);
    Uuid::from_bytes(bytes)
}

/// Whether a volume in a pool is such a copy.
pub fn is_copy_uuid(uuid: &[u8; 16]) -> bool {
    uuid.starts_with(&COPY_UUID)
}

impl FromStr for NamespaceUuid {
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        match Uuid::parse_str(text) {
            Ok(CALIBRATION_UUID) => Err(IdentityError::ReservedUuid(CALIBRATION_UUID)),
            Ok(uuid) if is_copy_uuid(uuid.as_bytes()) => Err(IdentityError::ReservedUuid(uuid)),
            Ok(uuid) if !uuid.is_nil() => Ok(Self(uuid)),
            _ => Err(IdentityError::Uuid(text.to_owned())),
        }
    }
}

impl TryFrom<String> for NamespaceUuid {
    type Error = IdentityError;
    fn try_from(text: String) -> Result<Self, IdentityError> {
        text.parse()
    }
}

impl fmt::Display for NamespaceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<NamespaceUuid> for String {
    fn from(uuid: NamespaceUuid) -> Self {
        uuid.to_string()
    }
}
