//! Files that nobody but their owner may read: tokens and private keys.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why such a file is not used.
#[derive(Debug)]
pub(super) enum PrivateError {
    /// It cannot be read.
    Unreadable(io::Error),
    /// Others may read it, or write it.
    Open,
}

/// What is in a file. Who may read it is asked of the file that is read, whatever its path leads to
/// meanwhile.
pub(super) fn read_private(path: &Path) -> Result<Vec<u8>, PrivateError> {
    let mut file = File::open(path).map_err(PrivateError::Unreadable)?;
    let about = file.metadata().map_err(PrivateError::Unreadable)?;
    if about.mode() & 0o077 != 0 {
        return Err(PrivateError::Open);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(PrivateError::Unreadable)?;
    Ok(bytes)
}

/// The same of a file of text.
pub(super) fn read_private_text(path: &Path) -> Result<String, PrivateError> {
    let no_text = |_| PrivateError::Unreadable(io::ErrorKind::InvalidData.into());
    String::from_utf8(read_private(path)?).map_err(no_text)
}
