//! Recorded I/O, to be replayed: read from CSV, or by [`super::blktrace`].

use std::io::BufRead;
use std::{fmt, io};

use flashyard_flash::UNIT_BYTES;
use flashyard_sched::Op;
use flashyard_time::Duration;

use super::MOST_BYTES;
use super::source::Draft;

/// The most records of a trace: half a gigabyte of memory.
pub(super) const MOST_RECORDS: usize = 16 << 20;
/// The longest line of CSV that can make sense.
const MOST_LINE: usize = 4096;
/// The longest trace: even a hundred times as slow its instants stay far from where the clock ends.
const MOST_SPAN: Duration = Duration::from_secs(366 * 86_400);
/// Where addresses end.
const MOST_OFFSET: u64 = 1 << 62;

/// One I/O of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, since the first of the trace.
    pub at: Duration,
    /// Where, in bytes.
    pub offset: u64,
    /// How long; 0 for a flush only.
    pub bytes: u32,
    /// By whom; 0 when the trace does not say.
    pub tenant: u32,
    /// Read, write, flush or deallocate.
    pub op: Op,
}

/// I/O in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    records: Vec<Record>,
}

/// Why a trace cannot be used.
#[derive(Debug)]
pub enum TraceError {
    /// It cannot be read.
    Io(io::Error),
    /// A line of CSV, counted from one, and what is wrong with it.
    Line(u64, &'static str),
    /// A place in a binary trace, in bytes, and what is wrong there.
    Offset(u64, &'static str),
    /// There are more than 16,777,216 records.
    TooLong,
    /// From the first to the last is more than a year.
    TooWide,
    /// There is no I/O in it.
    Empty,
}

impl Trace {
    /// Orders `records` by time and lets the first begin at zero.
    pub fn new(mut records: Vec<Record>) -> Result<Self, TraceError> {
        records.sort_by_key(|record| record.at);
        let begin = records.first().ok_or(TraceError::Empty)?.at;
        for record in &mut records {
            record.at = record.at - begin;
        }
        if records.last().is_some_and(|last| last.at > MOST_SPAN) {
            return Err(TraceError::TooWide);
        }
        Ok(Self { records })
    }

    /// Reads lines `time,op,offset,bytes` or `time,op,offset,bytes,tenant`: microseconds with up to
    /// three decimals; `read`, `write`, `flush` or `discard`, or their first letters; bytes; and a
    /// number. The first line may name the columns. Empty lines and those that begin with `#` mean
    /// nothing.
    pub fn from_csv(mut input: impl BufRead) -> Result<Self, TraceError> {
        let mut records = Vec::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if limited_line(&mut input, &mut line).map_err(TraceError::Io)? == 0 {
                break;
            }
            let wrong = |what| TraceError::Line(number, what);
            if line.len() > MOST_LINE {
                return Err(wrong("it is longer than 4096 bytes"));
            }
            let text = std::str::from_utf8(&line).map_err(|_| wrong("it is not UTF-8"))?;
            let text = text.trim();
            let heading =
                number == 1 && text.starts_with(|first: char| first.is_ascii_alphabetic());
            if text.is_empty() || text.starts_with('#') || heading {
                continue;
            }
            if records.len() == MOST_RECORDS {
                return Err(TraceError::TooLong);
            }
            records.push(parse(text).map_err(wrong)?);
        }
        Self::new(records)
    }

    /// The I/Os in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The tenants in it, in order.
    pub fn tenants(&self) -> Vec<u32> {
        let mut tenants: Vec<_> = self.records.iter().map(|record| record.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }

    /// What one tenant did, at the times of the whole.
    pub fn of_tenant(&self, tenant: u32) -> Self {
        let own = |record: &&Record| record.tenant == tenant;
        Self {
            records: self.records.iter().filter(own).copied().collect(),
        }
    }

    /// The same with addresses folded onto a drive of `capacity` bytes: each modulo the capacity,
    /// and moved down where its end would lie beyond.
    ///
    /// # Panics
    /// When the capacity is smaller than the longest I/O there can be.
    pub fn folded(mut self, capacity: u64) -> Self {
        assert!(
            capacity >= MOST_BYTES + UNIT_BYTES,
            "no drive is that small"
        );
        let capacity = capacity / UNIT_BYTES * UNIT_BYTES;
        for record in &mut self.records {
            record.offset %= capacity;
            record.offset = record.offset.min(capacity - u64::from(record.bytes));
        }
        self
    }

    /// The first byte that is beyond all it touches, in whole units.
    pub(super) fn end(&self) -> u64 {
        let ends = self.records.iter().map(|record| {
            let draft = record.draft();
            (draft.start + u64::from(draft.units)) * UNIT_BYTES
        });
        ends.max().unwrap_or(0)
    }
}

impl Record {
    /// A record that keeps the bounds; or what is wrong.
    pub(super) fn checked(
        at: Duration,
        op: Op,
        offset: u64,
        bytes: u64,
        tenant: u32,
    ) -> Result<Self, &'static str> {
        if offset > MOST_OFFSET {
            return Err("the offset is beyond any drive");
        }
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|&bytes| u64::from(bytes) <= MOST_BYTES);
        let bytes = bytes.ok_or("an I/O is longer than 64 MiB")?;
        if bytes == 0 && op != Op::Flush {
            return Err("an I/O has no length");
        }
        Ok(Self {
            at,
            offset,
            bytes,
            tenant,
            op,
        })
    }

    /// The units that it touches, were it only in part.
    pub(super) fn draft(&self) -> Draft {
        let start = self.offset / UNIT_BYTES;
        let end = (self.offset + u64::from(self.bytes)).div_ceil(UNIT_BYTES);
        Draft {
            op: self.op,
            start,
            units: ((end - start) as u32).max(1),
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the trace cannot be read: {error}"),
            Self::Line(line, what) => write!(f, "line {line} of the trace: {what}"),
            Self::Offset(offset, what) => write!(f, "byte {offset} of the trace: {what}"),
            Self::TooLong => write!(
                f,
                "the trace has more than {MOST_RECORDS} I/Os; take a part of it"
            ),
            Self::TooWide => {
                f.write_str("the trace is longer than a year; are its times microseconds?")
            }
            Self::Empty => f.write_str("there is no I/O in the trace"),
        }
    }
}

impl std::error::Error for TraceError {}

/// Reads a line, or its beginning when it is too long. Returns how many bytes were read.
fn limited_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    io::Read::take(input, MOST_LINE as u64 + 1).read_until(b'\n', line)
}

fn parse(line: &str) -> Result<Record, &'static str> {
    let mut fields = line.split(',').map(str::trim);
    let mut field = || {
        fields
            .next()
            .ok_or("it needs time, operation, offset and bytes")
    };
    let at = microseconds(field()?).ok_or("the time is not in microseconds")?;
    let op = match field()?.to_ascii_lowercase().as_str() {
        "r" | "read" => Op::Read,
        "w" | "write" => Op::Write,
        "f" | "flush" => Op::Flush,
        "d" | "discard" => Op::Deallocate,
        _ => return Err("the operation is none of read, write, flush, discard"),
    };
    let offset = field()?.parse().map_err(|_| "the offset is not a number")?;
    let bytes = field()?.parse().map_err(|_| "the length is not a number")?;
    let tenant = match fields.next() {
        Some(tenant) => tenant.parse().map_err(|_| "the tenant is not a number")?,
        None => 0,
    };
    if fields.next().is_some() {
        return Err("it has more than five fields");
    }
    Record::checked(at, op, offset, bytes, tenant)
}

/// Whole microseconds and up to three decimals.
fn microseconds(text: &str) -> Option<Duration> {
    let digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let nanos: u64 = format!("{decimals:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole
        .checked_mul(1000)?
        .checked_add(nanos)
        .map(Duration::from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_read() {
        let text = "time_us,op,offset,bytes,tenant\n# two tenants\n10.5,read,4096,8192,1\n\n10,W,0,512\n12,flush,0,0,2\n";
        let trace = Trace::from_csv(text.as_bytes()).expect("it is sound");
        let [first, second, third] = trace.records() else {
            panic!("three records: {trace:?}");
        };
        assert_eq!(
            (first.at, first.op, first.tenant),
            (Duration::ZERO, Op::Write, 0)
        );
        assert_eq!(
            (second.at, second.offset, second.bytes),
            (Duration::from_ns(500), 4096, 8192)
        );
        assert_eq!((third.at, third.op), (Duration::from_us(2), Op::Flush));
        assert_eq!(
            second.draft(),
            Draft {
                op: Op::Read,
                start: 1,
                units: 2
            }
        );
        assert_eq!(
            first.draft(),
            Draft {
                op: Op::Write,
                start: 0,
                units: 1
            }
        );
        assert_eq!(trace.tenants(), [0, 1, 2]);
        assert_eq!(trace.of_tenant(1).records().len(), 1);
    }

    #[test]
    fn errors_name_their_line() {
        let long = format!("1,read,0,{}", "4".repeat(5000));
        for (text, line, what) in [
            ("1,read,0", 1, "it needs time, operation, offset and bytes"),
            (
                "1,read,0,4096\n-1,read,0,4096",
                2,
                "the time is not in microseconds",
            ),
            ("1.2345,read,0,4096", 1, "the time is not in microseconds"),
            (
                "99999999999999999999,read,0,4096",
                1,
                "the time is not in microseconds",
            ),
            (
                "1,erase,0,4096",
                1,
                "the operation is none of read, write, flush, discard",
            ),
            ("1,read,x,4096", 1, "the offset is not a number"),
            (
                "1,read,18446744073709551615,4096",
                1,
                "the offset is beyond any drive",
            ),
            ("1,read,0,0", 1, "an I/O has no length"),
            ("1,read,0,4294967296", 1, "an I/O is longer than 64 MiB"),
            ("1,read,0,4096,1,1", 1, "it has more than five fields"),
            (long.as_str(), 1, "it is longer than 4096 bytes"),
        ] {
            match Trace::from_csv(text.as_bytes()) {
                Err(TraceError::Line(found, message)) => {
                    assert_eq!((found, message), (line, what), "{text}")
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(
            Trace::from_csv(&b"\xff\xfe,"[..]),
            Err(TraceError::Line(1, _))
        ));
        let wide = &b"0,read,0,4096\n31622400000001,read,0,4096"[..];
        assert!(matches!(Trace::from_csv(wide), Err(TraceError::TooWide)));
        assert!(matches!(
            Trace::from_csv(&b"time,op\n"[..]),
            Err(TraceError::Empty)
        ));
    }

    #[test]
    fn folded_addresses_lie_on_the_drive() {
        let capacity = 128 << 20;
        let record = |offset, bytes| {
            Record::checked(Duration::ZERO, Op::Write, offset, bytes, 0).expect("within bounds")
        };
        let trace = Trace::new(vec![
            record(capacity - 512, 8192),
            record(capacity * 7 + 4096, 4096),
            record(MOST_OFFSET, MOST_BYTES),
        ]);
        let folded = trace.expect("it is not empty").folded(capacity);
        assert!(folded.end() <= capacity);
        assert_eq!(folded.records()[1].offset, 4096);
    }
}
