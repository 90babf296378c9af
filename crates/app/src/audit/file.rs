//! The files of the audit log: a line of JSON for each record, the newest in `audit.log`. A file
//! that is full becomes `audit.log.1`, that one `audit.log.2`, and so on; the last is deleted.
//!
//! Records of requests that were denied have files of their own, those of unknown callers apart
//! from those of known ones: so nobody pushes out what somebody was allowed to do, and a stranger
//! nothing but strangers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::read::{content, record};
use crate::control::AuditRecord;

/// As long as a file gets.
const BYTES_MOST: u64 = 8 << 20;

/// Which records are in files together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// Of what was carried out, or refused to somebody who might have asked it.
    Asked,
    /// Of what a known caller may not ask.
    Denied,
    /// Of what an unknown caller has asked.
    Unknown,
}

impl Series {
    pub(super) const ALL: [Self; 3] = [Self::Asked, Self::Denied, Self::Unknown];

    fn name(self) -> &'static str {
        match self {
            Self::Asked => "audit.log",
            Self::Denied => "audit-denied.log",
            Self::Unknown => "audit-unknown.log",
        }
    }

    /// How many full files are kept beside the one that is written.
    fn kept(self) -> usize {
        match self {
            Self::Asked => 9,
            Self::Denied | Self::Unknown => 1,
        }
    }
}

/// The files of a series in a state directory.
pub(super) struct Files {
    directory: PathBuf,
    series: Series,
    /// The one that is written; after a failure it is opened anew.
    open: Option<File>,
    bytes: u64,
    /// What was written last, and is not known to be on disk.
    tail: Option<Tail>,
    pub(super) bytes_most: u64,
}

/// The end of a file, from where it may not be on disk.
struct Tail {
    /// Device and inode.
    file: (u64, u64),
    begin: u64,
}

/// What was there.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The highest number of a record.
    pub(super) last: Option<u64>,
    /// The last line has no end.
    pub(super) is_torn: bool,
}

/// A record as it is written.
pub(super) fn line(record: &AuditRecord) -> String {
    serde_json::to_string(record).expect("a record is plain data") + "\n"
}

impl Files {
    /// Those in a directory.
    pub(super) fn new(directory: &Path, series: Series) -> Self {
        Self {
            directory: directory.to_owned(),
            series,
            open: None,
            bytes: 0,
            tail: None,
            bytes_most: BYTES_MOST,
        }
    }

    /// Finds where the log ends.
    pub(super) fn look(&self) -> io::Result<Found> {
        let mut found = Found::default();
        let mut with_records = 0;
        for (at, file) in self.to_read()?.iter().rev().enumerate() {
            let bytes = content(file)?;
            found.is_torn |= at == 0 && bytes.last().is_some_and(|&last| last != b'\n');
            let records = bytes.split(|&byte| byte == b'\n').filter_map(record);
            let highest = records.map(|record| record.number).max();
            found.last = found.last.max(highest);
            with_records += usize::from(highest.is_some());
            // Records that are written again may begin a file: the highest is in the one before.
            if with_records == 2 {
                break;
            }
        }
        Ok(found)
    }

    /// Those that are there, the oldest first.
    pub(super) fn to_read(&self) -> io::Result<Vec<File>> {
        let mut files = Vec::new();
        for number in (0..=self.series.kept()).rev() {
            match File::open(self.path(number)) {
                Ok(file) => files.push(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    /// Writes a record behind the others. After a failure all must be [given
    /// up](Self::give_up).
    pub(super) fn append(&mut self, record: &AuditRecord) -> io::Result<()> {
        let line = line(record);
        let is_full = |files: &Self| files.bytes + line.len() as u64 > files.bytes_most;
        let mut file = match self.open.take() {
            Some(file) => file,
            None => self.open_newest()?,
        };
        if is_full(self) && self.bytes > 0 {
            file.sync_all()?;
            drop(file);
            self.tail = None;
            self.rotate()?;
            file = self.open_newest()?;
        }
        if self.tail.is_none() {
            let about = file.metadata()?;
            self.tail = Some(Tail {
                file: (about.dev(), about.ino()),
                begin: self.bytes,
            });
        }
        file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        self.open = Some(file);
        Ok(())
    }

    /// What was written is on disk when this returns.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let (Some(file), Some(_)) = (&self.open, &self.tail) {
            file.sync_data()?;
        }
        self.tail = None;
        Ok(())
    }

    /// What is not known to be on disk is written again: the file is opened anew, without that.
    pub(super) fn give_up(&mut self) {
        self.open = None;
    }

    /// Opens the newest file, and ends a line that was cut off.
    fn open_newest(&mut self) -> io::Result<File> {
        let path = self.path(0);
        let is_new = !path.exists();
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        if is_new {
            File::open(&self.directory)?.sync_all()?;
        }
        let about = file.metadata()?;
        self.bytes = about.len();
        // Tries without end do not fill the disk, or push out other records.
        if let Some(tail) = &self.tail
            && tail.file == (about.dev(), about.ino())
            && tail.begin < self.bytes
        {
            file.set_len(tail.begin)?;
            self.bytes = tail.begin;
        }
        self.tail = None;
        if self.bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                self.bytes += 1;
            }
        }
        Ok(file)
    }

    /// Gives each file the next number. A crash in the middle leaves out a number, and loses
    /// nothing.
    fn rotate(&self) -> io::Result<()> {
        for number in (0..self.series.kept()).rev() {
            match fs::rename(self.path(number), self.path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self, number: usize) -> PathBuf {
        let name = self.series.name();
        self.directory.join(match number {
            0 => name.to_owned(),
            number => format!("{name}.{number}"),
        })
    }
}
