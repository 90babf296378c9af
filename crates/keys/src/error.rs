//! Why a secret cannot be had, or a key not be unwrapped. `Display` is one line that says what to
//! do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::secret::{LEAST_KEY, MOST};

/// Why a key cannot be unwrapped or wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The secret does not open it, or what is stored was changed by somebody who also put the
    /// checksum right.
    WrongSecret,
    /// It is no envelope.
    Absent,
    /// What is stored is damaged.
    Damaged(&'static str),
    /// It was written by a later program, in this version.
    Newer(u16),
    /// The machine has no memory for the derivation of a key.
    Memory,
    /// OpenSSL has failed.
    Library,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongSecret => {
                f.write_str("the key or passphrase is wrong: give the one that opens it")
            }
            Self::Absent => f.write_str("there is no encrypted key"),
            Self::Damaged(what) => write!(f, "the encrypted key is damaged: {what}"),
            Self::Newer(version) => write!(
                f,
                "the encrypted key was made by a later version (layout {version}): use that version"
            ),
            Self::Memory => f.write_str(
                "there is no memory to derive a key from the passphrase: free 64 MiB and try again",
            ),
            Self::Library => f.write_str("OpenSSL has failed: see to the installation"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Why a secret cannot be had.
#[derive(Debug)]
pub enum SourceError {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// Everybody may read the file.
    Exposed(PathBuf),
    /// There are no credentials: not started by systemd, or it was given none.
    NoCredentials(String),
    /// The command cannot be started.
    Start(String, io::Error),
    /// The command has failed.
    Command(String, ExitStatus),
    /// The command has not ended in this time.
    Slow(String, Duration),
    /// A key has fewer bytes than it needs.
    Short(String, usize),
    /// A passphrase is empty.
    Empty(String),
    /// It is longer than any secret.
    Long(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => {
                write!(f, "cannot read the key file {}: {error}", path.display())
            }
            Self::Exposed(path) => write!(
                f,
                "everybody may read or write the key file {0}: chmod 600 {0}",
                path.display()
            ),
            Self::NoCredentials(name) => write!(
                f,
                "there is no credential `{name}`: the service needs LoadCredential={name}:... or LoadCredentialEncrypted={name}:..."
            ),
            Self::Start(line, error) => write!(f, "cannot start `{line}`: {error}"),
            Self::Command(line, status) => {
                write!(
                    f,
                    "`{line}` gave no key: {status}; run it by hand to see why"
                )
            }
            Self::Slow(line, longest) => write!(
                f,
                "`{line}` has not ended in {} s and was killed",
                longest.as_secs()
            ),
            Self::Short(whence, bytes) => write!(
                f,
                "{whence} gave {bytes} bytes; a key has {LEAST_KEY} at least: use `head -c 32 /dev/urandom`, or say that it is a passphrase"
            ),
            Self::Empty(whence) => write!(f, "{whence} gave an empty passphrase"),
            Self::Long(whence) => write!(f, "{whence} gave more than {MOST} bytes"),
        }
    }
}

impl std::error::Error for SourceError {}
