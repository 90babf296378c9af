//! A size as it is written in files, on the command line and in JSON.

use serde::{Deserialize, Serialize};

use crate::units::{self, UnitError};

/// A size in bytes, written with its unit in files and shown as bytes in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "WrittenSize", into = "u64")]
pub struct Size(pub u64);

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl std::str::FromStr for Size {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        units::parse_size(text).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenSize {
    Bytes(u64),
    Text(String),
}

impl TryFrom<WrittenSize> for Size {
    type Error = UnitError;
    fn try_from(written: WrittenSize) -> Result<Self, UnitError> {
        match written {
            WrittenSize::Bytes(bytes) => Ok(Self(bytes)),
            WrittenSize::Text(text) => text.parse(),
        }
    }
}
