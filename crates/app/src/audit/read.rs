//! Looks records up in the files of the audit log. Lines that are none, such as one that a crash
//! has cut off, are left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

use crate::control::{AuditAsk, AuditRecord, LIMIT_MAX, Listed};

/// A file is read up to here: more than one has.
const READ_MOST: u64 = 16 << 20;

/// The record in a line.
pub(super) fn record(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}

/// Those that are asked for, in the files of each series and behind them, the oldest first.
pub(super) fn read(
    series: &[Vec<File>],
    waiting: Vec<AuditRecord>,
    ask: &AuditAsk,
) -> io::Result<Listed<AuditRecord>> {
    let mut found = Found {
        records: BTreeMap::new(),
        ask,
        most: match ask.last {
            Some(last) => last,
            // One more than there may be: whether there is more.
            None => ask.limit.unwrap_or(LIMIT_MAX) + 1,
        },
    };
    found.take(waiting.into_iter());
    for files in series {
        match ask.last {
            Some(_) => found.newest_of(files)?,
            None => found.first_of(files)?,
        }
    }
    let mut rows: Vec<AuditRecord> = found.records.into_values().collect();
    let mut next = None;
    if ask.last.is_none() && rows.len() == found.most {
        rows.pop();
        next = rows.last().map(|record| record.number.to_string());
    }
    Ok(Listed { rows, next })
}

/// Records by number, the newest or the oldest of those that are asked for.
struct Found<'a> {
    records: BTreeMap<u64, AuditRecord>,
    ask: &'a AuditAsk,
    most: usize,
}

impl Found<'_> {
    fn take(&mut self, records: impl Iterator<Item = AuditRecord>) {
        for record in records.filter(|one| is_asked(self.ask, one)) {
            self.records.entry(record.number).or_insert(record);
            if self.records.len() > self.most {
                match self.ask.last {
                    Some(_) => self.records.pop_first(),
                    None => self.records.pop_last(),
                };
            }
        }
    }

    /// Numbers grow from file to file, so those before a file that begins so late are not needed.
    fn newest_of(&mut self, files: &[File]) -> io::Result<()> {
        for (at, file) in files.iter().enumerate().rev() {
            let oldest = self.records.first_key_value().map(|(number, _)| *number);
            let newer = first(files.get(at + 1))?;
            if self.is_full() && newer.is_some() && oldest >= newer {
                break;
            }
            self.take_all(file)?;
        }
        Ok(())
    }

    fn first_of(&mut self, files: &[File]) -> io::Result<()> {
        let after = self.ask.after.unwrap_or_default();
        for (at, file) in files.iter().enumerate() {
            let newest = self.records.last_key_value().map(|(number, _)| *number);
            let begin = first(Some(file))?;
            if self.is_full() && begin.is_some() && newest < begin {
                break;
            }
            if first(files.get(at + 1))?.is_some_and(|next| next <= after.saturating_add(1)) {
                continue;
            }
            self.take_all(file)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.records.len() == self.most
    }

    fn take_all(&mut self, file: &File) -> io::Result<()> {
        let bytes = content(file)?;
        self.take(bytes.split(|&byte| byte == b'\n').filter_map(record));
        Ok(())
    }
}

fn is_asked(ask: &AuditAsk, record: &AuditRecord) -> bool {
    let is_who = |who: &String| record.who == *who;
    let is_since = |since: &String| record.at >= *since;
    ask.after.is_none_or(|after| record.number > after)
        && ask.who.as_ref().is_none_or(is_who)
        && ask.since.as_ref().is_none_or(is_since)
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
