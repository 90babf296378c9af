//! Looks records up in the files of the audit log. Lines that are none, such as one that a crash
//! has cut off, are left out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

use crate::control::{AuditAsk, AuditRecord, LIMIT_MAX, Listed};

/// A file is read up to here: more than one has.
const READ_MOST: u64 = 16 << 20;

/// The record in a line.
pub(super) fn record(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}

/// Those that are asked for, in `files` and behind them, the oldest first.
pub(super) fn read(
    files: &[File],
    waiting: Vec<AuditRecord>,
    ask: &AuditAsk,
) -> io::Result<Listed<AuditRecord>> {
    match ask.last {
        Some(last) => newest(files, waiting, ask, last).map(Listed::from),
        None => part(files, waiting, ask),
    }
}

fn is_asked(ask: &AuditAsk, record: &AuditRecord) -> bool {
    let is_who = |who: &String| record.who == *who;
    let is_since = |since: &String| record.at >= *since;
    ask.after.is_none_or(|after| record.number > after)
        && ask.who.as_ref().is_none_or(is_who)
        && ask.since.as_ref().is_none_or(is_since)
}

/// The newest.
fn newest(
    files: &[File],
    waiting: Vec<AuditRecord>,
    ask: &AuditAsk,
    last: usize,
) -> io::Result<Vec<AuditRecord>> {
    let asked = waiting.into_iter().rev();
    let mut found: Vec<AuditRecord> = asked
        .filter(|record| is_asked(ask, record))
        .take(last)
        .collect();
    for file in files.iter().rev() {
        if found.len() >= last {
            break;
        }
        let bytes = content(file)?;
        let lines = bytes.rsplit(|&byte| byte == b'\n');
        let asked = lines.filter_map(record).filter(|one| is_asked(ask, one));
        found.extend(asked.take(last - found.len()));
    }
    found.reverse();
    Ok(found)
}

/// A part of them all, and what the next one is behind.
fn part(
    files: &[File],
    waiting: Vec<AuditRecord>,
    ask: &AuditAsk,
) -> io::Result<Listed<AuditRecord>> {
    let limit = ask.limit.unwrap_or(LIMIT_MAX);
    let mut rows: Vec<AuditRecord> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        // One more than there may be: whether there is more.
        let room = (limit + 1).saturating_sub(rows.len());
        if room == 0 {
            break;
        }
        let after = ask.after.unwrap_or_default();
        if first(files.get(at + 1))?.is_some_and(|next| next <= after + 1) {
            continue;
        }
        let bytes = content(file)?;
        let lines = bytes.split(|&byte| byte == b'\n');
        let asked = lines.filter_map(record).filter(|one| is_asked(ask, one));
        rows.extend(asked.take(room));
    }
    rows.extend(waiting.into_iter().filter(|record| is_asked(ask, record)));
    let next = match rows.len() > limit {
        true => {
            rows.truncate(limit);
            rows.last().map(|record| record.number.to_string())
        }
        false => None,
    };
    Ok(Listed { rows, next })
}

/// The number of the first record in a file.
fn first(file: Option<&File>) -> io::Result<Option<u64>> {
    let Some(mut file) = file else {
        return Ok(None);
    };
    file.rewind()?;
    let mut line = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut line)?;
    Ok(record(&line).map(|record| record.number))
}

/// All of a file, if it is no longer than any that was written here.
pub(super) fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(READ_MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
