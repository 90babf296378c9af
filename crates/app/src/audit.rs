//! The audit log: who has changed something, or was refused. A record is in the file before its
//! request is answered, and on disk if the request was carried out, as the change itself is.
//!
//! Where the file cannot be written, changes go on: what helps a full disk is a change too
//! (`volume delete`), and the state store, which is beside the file, refuses what it cannot keep.
//! Nothing is lost silently: what is not written is in health (`AUDIT_NOT_WRITTEN`), on standard
//! error, and kept in memory, as far as there is room, until it can be written. That a sync has
//! failed is told by the system once, and what was written before may be lost: so records are kept
//! until a sync behind them, and written again if it fails. Whoever reads takes one of each number.
//! Records are numbered over all runs, so one that was lost leaves a gap.

mod denied;
mod file;
mod read;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::control::{AuditAsk, AuditRecord, Listed, Means};
use crate::out;
use crate::units;
use denied::{Admission, Denials};
use file::{Files, Series};

pub use denied::Caller;

/// Records that wait for a file that cannot be written; then the oldest are lost.
const WAITING_MOST: usize = 1024;

/// What became of what somebody may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It reached what it was about, whatever came of it.
    CarriedOut,
    /// It was refused before, and has changed nothing.
    Refused,
}

/// Writes and reads the log; none in memory.
pub struct Audit {
    writer: Option<Mutex<Writer>>,
    denials: Denials,
    /// What was known last of a writer that waits for its disk.
    last_trouble: Mutex<Option<String>>,
}

struct Writer {
    /// In the order of [`Series::ALL`].
    files: [Files; 3],
    /// The number of the next record; not known where the file could not be read yet.
    next: Option<u64>,
    /// Those that are not known to be on disk.
    waiting: VecDeque<(Series, AuditRecord)>,
    waiting_most: usize,
    /// So many of them, from the first on, are in the files.
    written: usize,
    /// One of them has to be on disk before it is answered.
    sync_wanted: bool,
    /// Why the last try to write failed.
    trouble: Option<io::Error>,
}

impl Audit {
    /// The log in a state directory. That it cannot be opened is trouble, and keeps no target from
    /// starting.
    pub fn open(directory: &Path) -> Self {
        let mut writer = Writer {
            files: Series::ALL.map(|series| Files::new(directory, series)),
            next: None,
            waiting: VecDeque::new(),
            waiting_most: WAITING_MOST,
            written: 0,
            sync_wanted: false,
            trouble: None,
        };
        writer.write_waiting(false);
        if let Some(error) = &writer.trouble {
            out::note(format_args!("the audit log cannot be read: {error}"));
        }
        Self {
            writer: Some(Mutex::new(writer)),
            denials: Denials::default(),
            last_trouble: Mutex::default(),
        }
    }

    /// None: of a target that lives in memory only.
    pub fn none() -> Self {
        Self {
            writer: None,
            denials: Denials::default(),
            last_trouble: Mutex::default(),
        }
    }

    /// Keeps a record; it gets its number and its time here.
    pub fn record(&self, record: AuditRecord, outcome: Outcome) {
        if let Some(mut writer) = self.lock() {
            writer.add(Series::Asked, record, outcome);
        }
    }

    /// Leave to record that somebody was denied something: there may be any number of these, so
    /// only some are. Waits for nothing.
    pub fn admit(&self, caller: Caller, now: Instant) -> Option<Admission> {
        self.writer.as_ref()?;
        self.denials.admit(caller, now)
    }

    /// Keeps a record of that, and how many there were before it that were not.
    pub fn record_denied(&self, record: AuditRecord, admission: &Admission) {
        let Some(mut writer) = self.lock() else {
            return;
        };
        let (series, left_out) = (admission.series(), admission.left_out);
        if left_out > 0 {
            let detail = format!("{left_out} requests more were refused than are recorded");
            writer.add(series, of_target("limit", "", detail), Outcome::Refused);
        }
        writer.add(series, record, Outcome::Refused);
    }

    /// The records that are asked for, the oldest first.
    pub fn read(&self, ask: &AuditAsk) -> io::Result<Listed<AuditRecord>> {
        let Some(mut writer) = self.lock() else {
            return Ok(Vec::new().into());
        };
        writer.write_waiting(false);
        let mut files = Vec::new();
        for series in &writer.files {
            files.push(series.to_read()?);
        }
        let waiting = writer.waiting.iter().skip(writer.written);
        let waiting = waiting.map(|(_, record)| record.clone());
        let waiting = waiting.collect();
        // Whoever reads long keeps nobody from writing.
        drop(writer);
        read::read(&files, waiting, ask)
    }

    /// Why records are not written, if they are not; tries it once more before. Who waits for a
    /// disk holds up nobody else who asks this.
    pub fn trouble(&self) -> Option<String> {
        let last = || {
            let last = self.last_trouble.lock();
            last.unwrap_or_else(PoisonError::into_inner)
        };
        let mut writer = match self.writer.as_ref()?.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(writer)) => writer.into_inner(),
            Err(TryLockError::WouldBlock) => return last().clone(),
        };
        if writer.trouble.is_some() {
            writer.write_waiting(false);
        }
        let waiting = writer.waiting.len();
        let trouble = writer.trouble.as_ref();
        let trouble = trouble.map(|trouble| format!("{trouble}; {waiting} records wait in memory"));
        last().clone_from(&trouble);
        trouble
    }

    fn lock(&self) -> Option<MutexGuard<'_, Writer>> {
        let writer = self.writer.as_ref()?.lock();
        Some(writer.unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the target does by itself: at the start, or because of a signal.
pub fn of_target(from: &str, operation: &str, detail: String) -> AuditRecord {
    AuditRecord {
        number: 0,
        at: String::new(),
        by: Means::Target,
        who: "target".to_owned(),
        uid: None,
        from: from.to_owned(),
        operation: operation.to_owned(),
        object: "target".to_owned(),
        change: String::new(),
        code: None,
        detail,
        duration_us: 0,
    }
}

impl Writer {
    fn add(&mut self, series: Series, mut record: AuditRecord, outcome: Outcome) {
        record.at = now();
        let was_well = self.trouble.is_none();
        self.keep(series, record);
        self.write_waiting(outcome == Outcome::CarriedOut);
        let Some(error) = &self.trouble else { return };
        if was_well {
            out::note(format_args!(
                "the audit log cannot be written: {error}; its records are on standard error until it can be"
            ));
        }
        if let Some((_, record)) = self.waiting.back() {
            out::note(format_args!("audit: {}", file::line(record).trim_end()));
        }
        if self.waiting.len() > self.waiting_most {
            self.waiting.pop_front();
        }
    }

    fn keep(&mut self, series: Series, mut record: AuditRecord) {
        record.number = self.next.unwrap_or_default();
        self.next = self.next.map(|next| next + 1);
        self.waiting.push_back((series, record));
    }

    /// Writes what waits, as far as it can be.
    fn write_waiting(&mut self, is_synced: bool) {
        self.sync_wanted |= is_synced;
        self.trouble = self.try_to_write().err();
        if self.trouble.is_some() {
            self.written = 0;
            self.files.iter_mut().for_each(Files::give_up);
        }
    }

    fn try_to_write(&mut self) -> io::Result<()> {
        if self.next.is_none() {
            self.go_on()?;
        }
        for (series, record) in self.waiting.iter().skip(self.written) {
            self.files[*series as usize].append(record)?;
            self.written += 1;
        }
        if self.sync_wanted || self.written >= self.waiting_most {
            for files in &mut self.files {
                files.sync()?;
            }
            self.waiting.clear();
            (self.written, self.sync_wanted) = (0, false);
        }
        Ok(())
    }

    /// Finds out where the log ends, and has what waits be behind it.
    fn go_on(&mut self) -> io::Result<()> {
        let (mut last, mut torn) = (None, Vec::new());
        for (files, series) in self.files.iter().zip(Series::ALL) {
            let found = files.look()?;
            last = last.max(found.last);
            torn.extend(found.is_torn.then_some(series));
        }
        self.next = Some(last.map_or(1, |last| last + 1));
        let waiting = std::mem::take(&mut self.waiting);
        for series in torn {
            let detail = "the last line was cut off by a crash, and is left out";
            out::note(format_args!("audit log: {detail}"));
            let mut record = of_target("start", "", detail.to_owned());
            record.at = now();
            self.keep(series, record);
        }
        for (series, record) in waiting {
            self.keep(series, record);
        }
        Ok(())
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    units::utc(since.unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests;
