//! Why the state store could not do what was asked.

use std::path::PathBuf;

use super::schema::VERSION;

/// Why the store could not do what was asked.
#[derive(Debug)]
pub enum StateError {
    /// Another flashyard runs on this state directory.
    Locked(PathBuf),
    /// Another program has had the store for itself all the time.
    Busy(PathBuf),
    /// The store was written by a newer flashyard.
    TooNew(i64),
    /// What was given as the state directory cannot be one.
    Directory(PathBuf, std::io::Error),
    /// A file in the directory could not be used.
    Io(PathBuf, std::io::Error),
    /// SQLite refused; the disk may be full or the file damaged.
    Sqlite(rusqlite::Error),
    /// It is not sound, or not what was stored.
    Damaged(String),
    /// A damaged store that was to be opened: its file, what is wrong, and whether a copy may take
    /// its place.
    Refused(PathBuf, String, bool),
    /// What was given as a backup can be neither read nor written.
    Backup(PathBuf, std::io::Error),
    /// A file that a backup was to be written to is there already.
    BackupExists(PathBuf),
    /// A file that is no sound backup, and why.
    NoBackup(PathBuf, String),
    /// A backup was to be put where a store is.
    InPlace(PathBuf),
    /// A device of this name is noted already: it is there, or another command makes it.
    DeviceExists(String),
    /// The tenant has as many volumes as it can have.
    NoNumber(String),
    /// Another volume of the tenant has this namespace number.
    NumberTaken {
        /// The tenant.
        tenant: String,
        /// The number.
        nsid: u32,
    },
    /// Namespace numbers end before this one.
    NumberTooGreat {
        /// The number.
        nsid: u32,
        /// The greatest there can be.
        most: u32,
    },
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked(path) => {
                write!(
                    f,
                    "another flashyard uses the state in {}: stop it, or choose --state",
                    path.display()
                )
            }
            Self::Busy(file) => write!(
                f,
                "another program changes {} all the time: see which one it is, and ask again",
                file.display()
            ),
            Self::TooNew(version) => {
                write!(
                    f,
                    "the state store has version {version}, this program knows {VERSION}: use a newer flashyard"
                )
            }
            Self::Directory(path, error) => write!(
                f,
                "cannot keep the state in {}: {error}; choose another --state",
                path.display()
            ),
            Self::Backup(path, error) => write!(
                f,
                "cannot use {} as a backup: {error}; give another file",
                path.display()
            ),
            Self::DeviceExists(name) => write!(
                f,
                "there is a device `{name}` already, or another command is making it: `flashyard device list` shows all"
            ),
            Self::Io(path, error) => write!(f, "cannot use {}: {error}", path.display()),
            Self::Sqlite(error) => write!(
                f,
                "the state store failed: {error}; check free space and permissions"
            ),
            Self::Damaged(what) => write!(
                f,
                "the state store is damaged ({what}): stop the target; the next start tells what can be done"
            ),
            Self::Refused(file, what, true) => write!(
                f,
                "{} is damaged ({what}) and nothing was changed: add --restore-state to start from its copy, which has \
                 every change that was acknowledged",
                file.display()
            ),
            Self::Refused(file, what, false) => write!(
                f,
                "{} is damaged ({what}), there is no sound copy, and nothing was changed: restore it from a backup, or \
                 move the state directory away to begin with an empty inventory",
                file.display()
            ),
            Self::BackupExists(file) => write!(
                f,
                "{} is there already: give another name, or remove it",
                file.display()
            ),
            Self::NoBackup(file, what) => write!(
                f,
                "{} is no sound backup ({what}), and nothing was changed: take another one",
                file.display()
            ),
            Self::InPlace(directory) => write!(
                f,
                "{} has a state store: say --yes to put the backup in its place, which keeps it beside that, or choose --state",
                directory.display()
            ),
            Self::NoNumber(tenant) => write!(
                f,
                "tenant `{tenant}` has as many volumes as a tenant can have: delete one, or use another tenant"
            ),
            Self::NumberTaken { tenant, nsid } => write!(
                f,
                "another volume of tenant `{tenant}` has nsid {nsid}: `flashyard volume list` shows all"
            ),
            Self::NumberTooGreat { nsid, most } => {
                write!(f, "nsid {nsid} is out of range: 1 to {most}")
            }
        }
    }
}

impl std::error::Error for StateError {}

impl From<rusqlite::Error> for StateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}
