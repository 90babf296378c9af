//! A copy of the store that is kept elsewhere, and put back. Taken while the target runs, put back
//! while it does not.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::State;
use super::copy::{BESIDE, COPY, UNFINISHED, remove, write};
use super::error::StateError;
use super::opening;
use super::schema::STORE;

impl State {
    /// Writes all that the store has to a file that is not there yet. It is on disk, and was read
    /// back, when this returns.
    pub fn backup(&self, file: &Path) -> Result<(), StateError> {
        if file.exists() {
            return Err(StateError::BackupExists(file.to_owned()));
        }
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let folder = file.parent().unwrap_or(Path::new("/"));
        // SQLite does not say why a file cannot be made.
        File::create(&unfinished).map_err(|error| StateError::Backup(file.to_owned(), error))?;
        let written = write(&self.connection, &unfinished, file, folder);
        written.inspect_err(|_| {
            // Nothing can be done about one that stays.
            let _ = remove(&unfinished);
        })
    }
}

/// Puts a backup in the place of the store in a directory that no target uses. A store that is
/// there is kept beside it if it may be replaced, and where is given.
pub fn restore(
    directory: &Path,
    backup: &Path,
    may_replace: bool,
) -> Result<Option<PathBuf>, StateError> {
    readable(backup).map_err(|error| StateError::Backup(backup.to_owned(), error))?;
    let _lock = opening::lock(directory)?;
    let unfinished = directory.join(UNFINISHED);
    let io = |error| StateError::Io(directory.to_owned(), error);
    fs::copy(backup, &unfinished).map_err(io)?;
    let done = check(backup, &unfinished).and_then(|()| put(directory, may_replace));
    done.inspect_err(|_| {
        // The next backup or copy is written over it.
        let _ = remove(&unfinished);
    })
}

/// Whether it is a file that may be read: of a pipe that would wait without end.
fn readable(backup: &Path) -> io::Result<()> {
    if fs::metadata(backup)?.is_file() {
        return File::open(backup).map(drop);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is no regular file",
    ))
}

/// Refuses what is no sound store; one of an older version becomes one of this.
fn check(backup: &Path, copied: &Path) -> Result<(), StateError> {
    let mut connection = Connection::open(copied)?;
    opening::bring_up_to_date(&mut connection, false).map_err(|error| match error {
        StateError::Damaged(what) => StateError::NoBackup(backup.to_owned(), what),
        other => other,
    })?;
    drop(connection);
    let synced = File::open(copied).and_then(|file| file.sync_all());
    synced.map_err(|error| StateError::Io(copied.to_owned(), error))
}

/// At every moment the old store or the new one is in its place.
fn put(directory: &Path, may_replace: bool) -> Result<Option<PathBuf>, StateError> {
    let io = |error| StateError::Io(directory.to_owned(), error);
    let store = directory.join(STORE);
    let there = store.exists() || directory.join(COPY).exists();
    if there && !may_replace {
        return Err(StateError::InPlace(directory.to_owned()));
    }
    let mut number = 1;
    let old = |name: &str, number: u32| {
        let end = name.strip_prefix(STORE).unwrap_or_default();
        let name = name.strip_suffix(end).unwrap_or(name);
        directory.join(format!("{name}.old-{number}{end}"))
    };
    while old(STORE, number).exists() || old(COPY, number).exists() {
        number += 1;
    }
    let mut kept = None;
    for name in [COPY].iter().chain(&BESIDE) {
        if directory.join(name).exists() {
            fs::rename(directory.join(name), old(name, number)).map_err(io)?;
            kept = Some(old(name, number));
        }
    }
    if store.exists() {
        fs::hard_link(&store, old(STORE, number)).map_err(io)?;
        kept = Some(old(STORE, number));
    }
    fs::rename(directory.join(UNFINISHED), &store)
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(io)?;
    Ok(kept)
}
