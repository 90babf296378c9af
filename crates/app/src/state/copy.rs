//! The copy of the store: a second file with the same content, so that a damaged store loses
//! nothing. It is renewed when the target has started, after each request that has changed
//! something, and when the target ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::content;
use super::error::StateError;
use super::schema::STORE;

/// The copy, in the state directory.
pub(super) const COPY: &str = "state.copy.db";
/// A copy that is being made.
pub(super) const UNFINISHED: &str = "state.copy.db.new";
/// Where a damaged store goes when the copy takes its place.
const DAMAGED: &str = "state.db.damaged";
/// What SQLite keeps beside a store, which belongs to that file and no other.
pub(super) const BESIDE: [&str; 3] = [JOURNAL, "state.db-wal", "state.db-shm"];
/// How to take back a change that was cut off.
pub(super) const JOURNAL: &str = "state.db-journal";

/// The copy's path, if there is one.
pub(super) fn path(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(COPY);
    path.exists().then_some(path)
}

/// Makes the copy anew. It takes the place of the old one when it is on disk and has been read
/// back.
pub(super) fn renew(connection: &Connection, directory: &Path) -> Result<(), StateError> {
    let (unfinished, copy) = (directory.join(UNFINISHED), directory.join(COPY));
    write(connection, &unfinished, &copy, directory)
}

/// Writes all that a store has to a file of `folder`, first under another name.
pub(super) fn write(
    connection: &Connection,
    unfinished: &Path,
    file: &Path,
    folder: &Path,
) -> Result<(), StateError> {
    let io = |error| StateError::Io(unfinished.to_owned(), error);
    remove(unfinished).map_err(io)?;
    connection.execute("VACUUM INTO ?1", [unfinished.to_string_lossy()])?;
    check(unfinished)?;
    File::open(unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(unfinished, file))
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(io)
}

/// Puts the copy in the place of a damaged store, which is kept beside it.
pub(super) fn restore(directory: &Path) -> Result<(), StateError> {
    let (copy, store) = (directory.join(COPY), directory.join(STORE));
    check(&copy)?;
    let io = |error| StateError::Io(store.clone(), error);
    let unfinished = directory.join(UNFINISHED);
    fs::copy(&copy, &unfinished)
        .and_then(|_| File::open(&unfinished)?.sync_all())
        .map_err(io)?;
    if store.exists() {
        fs::rename(&store, directory.join(DAMAGED)).map_err(io)?;
    }
    for beside in BESIDE {
        remove(&directory.join(beside)).map_err(io)?;
    }
    fs::rename(&unfinished, &store)
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(io)
}

/// Reads a copy, and changes nothing.
fn check(path: &Path) -> Result<(), StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    content::verify(&connection)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
