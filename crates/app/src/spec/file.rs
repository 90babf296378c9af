//! Reading a configuration file.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::{Document, SpecError};

/// Why a configuration file says nothing.
#[derive(Debug)]
pub enum FileError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// It says what cannot be.
    Wrong(PathBuf, SpecError),
}

impl Document {
    /// What a file says. Paths in it are beside it.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| FileError::Unreadable(path.to_owned(), error))?;
        let folder = path
            .canonicalize()
            .ok()
            .and_then(|path| path.parent().map(Path::to_owned))
            .unwrap_or_default();
        Self::parse(&text, &folder).map_err(|error| FileError::Wrong(path.to_owned(), error))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Wrong(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FileError {}
