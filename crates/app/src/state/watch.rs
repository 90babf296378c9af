//! For tests: what is to happen around each change of the store that this thread makes.

use std::cell::RefCell;

use super::StateError;

/// Hears of each change twice, before (`false`) and after it is on the disk; before it, it may say
/// that it fails.
pub type Watcher = Box<dyn FnMut(bool) -> bool>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Has `watcher` hear of all changes from now on; none ends it.
pub fn set(watcher: Option<Watcher>) {
    WATCHER.with_borrow_mut(|one| *one = watcher);
}

pub(super) fn step() -> Result<(), StateError> {
    let fails = WATCHER.with_borrow_mut(|one| one.as_mut().is_some_and(|one| one(false)));
    let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    match fails {
        true => Err(rusqlite::Error::SqliteFailure(full, None).into()),
        false => Ok(()),
    }
}

pub(super) fn done() {
    WATCHER.with_borrow_mut(|one| one.as_mut().map(|one| one(true)));
}
