//! What can go wrong with an encrypted device. `Display` is one line that says what to do.

use std::fmt;

use flashyard_codec::cipher::CipherError;
use flashyard_keys::KeyError;

use super::DATA_START;
use crate::IoError;
use crate::superblock::Unusable;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CryptError {
    /// There is no header on the device.
    Absent,
    /// Neither copy of the header can be used; what is wrong with each.
    Damaged([String; 2]),
    /// The header was made by a later Flashyard, in this version of its layout.
    Newer(u32),
    /// The device holds something; its name.
    Occupied(&'static str),
    /// What its key is in.
    Key(KeyError),
    /// OpenSSL does not encrypt.
    Cipher(CipherError),
    /// The device has this many bytes.
    TooSmall(u64),
    /// The device has blocks of this many bytes, which cannot be encrypted.
    BlockSize(u32),
    /// The header is that of a device with other blocks or more of them.
    Geometry(String),
    /// The device failed.
    Device {
        /// What was being done, as "reading the header".
        action: &'static str,
        /// What the device said.
        error: IoError,
    },
}

impl fmt::Display for CryptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str(
                "there is no encrypted device: it was erased, or another device is in its place",
            ),
            Self::Damaged([first, second]) => write!(
                f,
                "both copies of the header with the key are unusable (first: {first}; second: {second}): restore the device from a backup"
            ),
            Self::Newer(version) => write!(
                f,
                "the header was made by a later version (layout {version}): use that version"
            ),
            Self::Occupied(what) => write!(
                f,
                "the device holds {what}: choose another one, or force it if that may be destroyed"
            ),
            Self::Key(error) => error.fmt(f),
            Self::Cipher(error) => write!(f, "{error}: see to the installation of OpenSSL"),
            Self::TooSmall(bytes) => write!(
                f,
                "an encrypted device needs more than {DATA_START} bytes, the device has {bytes}"
            ),
            Self::BlockSize(bytes) => write!(
                f,
                "blocks of {bytes} bytes cannot be encrypted: use 512 or 4096"
            ),
            Self::Geometry(what) => f.write_str(what),
            Self::Device { action, error } => {
                write!(f, "{action} failed: {error:?}; see to the device")
            }
        }
    }
}

impl std::error::Error for CryptError {}

impl From<KeyError> for CryptError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<CipherError> for CryptError {
    fn from(error: CipherError) -> Self {
        Self::Cipher(error)
    }
}

impl From<Unusable> for CryptError {
    fn from(why: Unusable) -> Self {
        match why {
            Unusable::Absent => Self::Absent,
            Unusable::Unfinished(copies) | Unusable::Damaged(copies) => Self::Damaged(copies),
            Unusable::Newer(version) => Self::Newer(version),
        }
    }
}
