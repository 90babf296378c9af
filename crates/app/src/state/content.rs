//! What is in the store, held against a checksum that every change writes with itself. SQLite
//! notices damage to the structure of its file, not to what is in the records; and no record may be
//! served that is not what was stored.

use crc_fast::{CrcAlgorithm, Digest};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

use super::StateError;

/// Everything that is covered, in an order that does not depend on the file. The schema is part of
/// it: it says which numbers are given next, and what a missing value means.
const COVERED: [&str; 10] = [
    "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name",
    "SELECT name, seq FROM sqlite_sequence ORDER BY name",
    "SELECT * FROM target ORDER BY id",
    "SELECT * FROM device ORDER BY name",
    "SELECT * FROM pool ORDER BY name",
    "SELECT * FROM tenant ORDER BY id",
    "SELECT * FROM volume ORDER BY name",
    "SELECT * FROM counted ORDER BY tenant",
    "SELECT * FROM document ORDER BY name",
    "SELECT * FROM function ORDER BY name",
];

/// How many of them stores of a version have.
fn covered_in(version: i64) -> usize {
    match version {
        2 => 8,
        3 => 9,
        _ => COVERED.len(),
    }
}

/// Refuses a store, of version 2 or later, that is not sound in itself, or not what was stored.
pub(super) fn verify(connection: &Connection) -> Result<(), StateError> {
    verify_structure(connection)?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let covered = covered_in(version.map_err(unreadable)?);
    verify_digest_of(connection, &COVERED[..covered])
}

/// Refuses a store that is not sound in itself.
pub(super) fn verify_structure(connection: &Connection) -> Result<(), StateError> {
    let check = "PRAGMA integrity_check(1)";
    let found: rusqlite::Result<String> = connection.query_row(check, [], |row| row.get(0));
    match found.map_err(unreadable)?.as_str() {
        "ok" => Ok(()),
        trouble => Err(StateError::Damaged(trouble.to_owned())),
    }
}

/// Refuses content that is not what was stored.
pub(super) fn verify_digest(connection: &Connection) -> Result<(), StateError> {
    verify_digest_of(connection, &COVERED)
}

fn verify_digest_of(connection: &Connection, covered: &[&str]) -> Result<(), StateError> {
    let stored: [u8; 8] = connection
        .query_row("SELECT digest FROM content", [], |row| row.get(0))
        .map_err(unreadable)?;
    if stored
        != digest(connection, covered)
            .map_err(unreadable)?
            .to_le_bytes()
    {
        let what = "its records are not what was stored".to_owned();
        return Err(StateError::Damaged(what));
    }
    Ok(())
}

/// Writes the checksum of what is there now; to be done in the transaction of each change.
pub(super) fn seal(connection: &Connection) -> rusqlite::Result<()> {
    let digest = digest(connection, &COVERED)?.to_le_bytes();
    connection.execute(
        "INSERT INTO content (id, digest) VALUES (0, ?1) ON CONFLICT (id) DO UPDATE SET digest = ?1",
        [digest],
    )?;
    Ok(())
}

/// The same as a program of an earlier version did.
#[cfg(test)]
pub(super) fn seal_as(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    let digest = digest(connection, &COVERED[..covered_in(version)])?;
    let sql = "INSERT INTO content (id, digest) VALUES (0, ?1)";
    connection.execute(sql, [digest.to_le_bytes()])?;
    Ok(())
}

/// What an error means while the store is checked: damage, unless the machine is the reason.
pub(super) fn unreadable(error: rusqlite::Error) -> StateError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure,
        ) => StateError::Sqlite(error),
        _ => StateError::Damaged(error.to_string()),
    }
}

fn digest(connection: &Connection, covered: &[&str]) -> rusqlite::Result<u64> {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for (place, sql) in covered.iter().enumerate() {
        // Not one that was prepared before: it has as many columns as there were then, and a store
        // of an earlier version has got more of them since.
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            digest.update(&[place as u8]);
            for column in 0..columns {
                add(&mut digest, row.get_ref(column)?);
            }
        }
    }
    Ok(digest.finalize())
}

/// A value with its type and length, so that no two rows look alike.
fn add(digest: &mut Digest, value: ValueRef<'_>) {
    let mut add = |kind: u8, bytes: &[u8]| {
        digest.update(&[kind]);
        digest.update(&(bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    match value {
        ValueRef::Null => add(0, &[]),
        ValueRef::Integer(number) => add(1, &number.to_le_bytes()),
        ValueRef::Real(number) => add(2, &number.to_le_bytes()),
        ValueRef::Text(text) => add(3, text),
        ValueRef::Blob(bytes) => add(4, bytes),
    }
}
