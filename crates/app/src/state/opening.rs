//! Opening the store: one owner, the settings of SQLite, tables of this version, and nothing that
//! is not sound.

use std::env;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, Transaction, ffi};
use uuid::Uuid;

use super::error::StateError;
use super::schema::{SCHEMA, SINCE_2, SINCE_3, SINCE_4, SINCE_5, STORE, VERSION};
use super::{content, copy};

/// How SQLite keeps the store: a change is on disk when it is acknowledged, and all of it is in one
/// file then.
const PRAGMAS: [(&str, &str); 2] = [("journal_mode", "TRUNCATE"), ("synchronous", "FULL")];

/// How the store of a target that runs is read: so many pages at a time, and how long it may have
/// the store for itself.
const PAGES: i32 = 256;
const PAUSE: Duration = Duration::from_millis(10);
const BUSY: Duration = Duration::from_secs(5);

/// Who may write here may do anything with the volumes.
pub(super) fn lock(directory: &Path) -> Result<File, StateError> {
    let io = |error| StateError::Directory(directory.to_owned(), error);
    let mut private = DirBuilder::new();
    private
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(io)?;
    let lock = File::create(directory.join("lock")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StateError::Locked(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// Opens the store's file, and creates it where there was none before.
pub(super) fn open(directory: &Path) -> Result<Connection, StateError> {
    let file = directory.join(STORE);
    let copy = copy::path(directory);
    let is_new = is_new(&file);
    let opened = || {
        if is_new && copy.is_some() {
            return Err(StateError::Damaged("it is gone or empty".into()));
        }
        let mut connection = Connection::open(&file)?;
        for (name, value) in PRAGMAS {
            let set = connection.pragma_update(None, name, value);
            set.map_err(content::unreadable)?;
        }
        bring_up_to_date(&mut connection, is_new)?;
        Ok(connection)
    };
    opened().map_err(|error| refused(directory, error))
}

/// What would be opened, brought up to date in memory.
pub(super) fn rehearse(directory: &Path) -> Result<Connection, StateError> {
    rehearse_within(directory, BUSY)
}

pub(super) fn rehearse_within(
    directory: &Path,
    longest: Duration,
) -> Result<Connection, StateError> {
    let file = directory.join(STORE);
    let is_new = is_new(&file);
    let read = || {
        let mut memory = Connection::open_in_memory()?;
        if is_new && copy::path(directory).is_some() {
            return Err(StateError::Damaged("it is gone or empty".into()));
        }
        if !is_new {
            let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
            match take(&file, read_only, longest, &mut memory) {
                Err(StateError::Sqlite(error)) if is_cut_off(&error) => {
                    let healed = Healed::new(directory)?;
                    let read_write = OpenFlags::SQLITE_OPEN_READ_WRITE;
                    take(&healed.file(), read_write, longest, &mut memory)?;
                }
                taken => taken?,
            }
        }
        bring_up_to_date(&mut memory, is_new)?;
        Ok(memory)
    };
    read().map_err(|error| refused(directory, error))
}

/// Copies a store to memory. A target that runs may be in the middle of a change, which is a
/// moment's work.
fn take(
    file: &Path,
    how: OpenFlags,
    longest: Duration,
    memory: &mut Connection,
) -> Result<(), StateError> {
    let until = Instant::now() + longest;
    let store = Connection::open_with_flags(file, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    store.busy_timeout(longest)?;
    let copying = Backup::new(&store, memory)?;
    loop {
        let step = copying.step(PAGES).map_err(content::unreadable)?;
        if step == StepResult::Done {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(StateError::Busy(file.to_owned()));
        }
        if step != StepResult::More {
            thread::sleep(PAUSE);
        }
    }
}

/// Whether a change was cut off whose beginning has to be taken back first: SQLite does that where
/// it may write.
fn is_cut_off(error: &rusqlite::Error) -> bool {
    let found = error.sqlite_error();
    found.is_some_and(|it| it.extended_code == ffi::SQLITE_READONLY_ROLLBACK)
}

/// A store in a place of its own, with what SQLite keeps beside it, so that a change that was cut
/// off is taken back there and nothing is changed where it was.
struct Healed(PathBuf);

impl Healed {
    fn new(directory: &Path) -> Result<Self, StateError> {
        let path = env::temp_dir().join(format!("flashyard-{}", Uuid::new_v4()));
        let io = |error| StateError::Io(path.clone(), error);
        DirBuilder::new().mode(0o700).create(&path).map_err(io)?;
        let healed = Self(path.clone());
        for name in [STORE, copy::JOURNAL] {
            fs::copy(directory.join(name), path.join(name)).map_err(io)?;
        }
        Ok(healed)
    }

    fn file(&self) -> PathBuf {
        self.0.join(STORE)
    }
}

impl Drop for Healed {
    fn drop(&mut self) {
        // What is left there is the system's to clean.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_new(file: &Path) -> bool {
    fs::metadata(file).map_or(true, |found| found.len() == 0)
}

/// A store that is damaged as one that is not opened.
fn refused(directory: &Path, error: StateError) -> StateError {
    match error {
        StateError::Damaged(what) => {
            let has_copy = copy::path(directory).is_some();
            StateError::Refused(directory.join(STORE), what, has_copy)
        }
        other => other,
    }
}

/// Makes the tables of a new store; adds to those of an older one; checks what is there.
pub(super) fn bring_up_to_date(
    connection: &mut Connection,
    is_new: bool,
) -> Result<(), StateError> {
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    match version.map_err(content::unreadable)? {
        0 if is_new => {
            let transaction = connection.transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.execute(
                "INSERT INTO target (id, uuid) VALUES (0, ?1)",
                [Uuid::new_v4().into_bytes()],
            )?;
            transaction.execute_batch(SINCE_2)?;
            transaction.execute_batch(SINCE_3)?;
            add_since_4(transaction)?;
        }
        0 => return Err(StateError::Damaged("it has no tables".into())),
        1 => {
            let transaction = connection.transaction().map_err(content::unreadable)?;
            content::verify_structure(&transaction)?;
            for more in [SINCE_2, SINCE_3] {
                let added = transaction.execute_batch(more);
                added.map_err(content::unreadable)?;
            }
            add_since_4(transaction).map_err(content::unreadable)?;
        }
        2 => {
            let transaction = connection.transaction().map_err(content::unreadable)?;
            content::verify(&transaction)?;
            let added = transaction.execute_batch(SINCE_3);
            added.map_err(content::unreadable)?;
            add_since_4(transaction).map_err(content::unreadable)?;
        }
        3 => {
            let transaction = connection.transaction().map_err(content::unreadable)?;
            content::verify(&transaction)?;
            add_since_4(transaction).map_err(content::unreadable)?;
        }
        4 => {
            let transaction = connection.transaction().map_err(content::unreadable)?;
            content::verify(&transaction)?;
            add_since_5(transaction).map_err(content::unreadable)?;
        }
        VERSION => content::verify(connection)?,
        newer => return Err(StateError::TooNew(newer)),
    }
    Ok(())
}

fn add_since_4(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(SINCE_4)?;
    add_since_5(transaction)
}

fn add_since_5(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(SINCE_5)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    content::seal(&transaction)?;
    transaction.commit()
}
