//! Reads the binary traces of Linux's `blktrace`: the files of each CPU, one behind the other, or
//! what `blkparse -d` makes of them.
//!
//! A record is 48 bytes, in the byte order of the machine that wrote it, and what it carries beyond
//! that. Only what was queued (`Q`) counts: that is what programs asked for, before the kernel
//! merged and delayed it. (`include/uapi/linux/blktrace_api.h`)

use std::io::Read;

use flashyard_sched::Op;
use flashyard_time::Duration;

use super::trace::{MOST_RECORDS, Record, Trace, TraceError};

/// The upper three bytes of the magic number; the lowest is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;
/// The action of an I/O that was queued, in the lower half of `action`.
const QUEUED: u32 = 1;
/// Categories, in the upper half of `action`.
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
const SECTOR_BYTES: u64 = 512;

/// Reads a trace. The device of a record is its tenant, counted in the order in which devices
/// appear.
pub fn read(mut input: impl Read) -> Result<Trace, TraceError> {
    let (mut records, mut devices) = (Vec::new(), Vec::new());
    let mut offset = 0;
    while let Some(bytes) = next_record(&mut input, offset)? {
        let header = Header::parse(&bytes).map_err(|what| TraceError::Offset(offset, what))?;
        let extra = u64::from(header.extra_bytes);
        let skipped = std::io::copy(&mut (&mut input).take(extra), &mut std::io::sink())?;
        if skipped < extra {
            return Err(TraceError::Offset(offset, "the file ends within a record"));
        }
        if let Some(op) = header.queued() {
            if records.len() == MOST_RECORDS {
                return Err(TraceError::TooLong);
            }
            let record = header.record(op, tenant(&mut devices, header.device));
            records.push(record.map_err(|what| TraceError::Offset(offset, what))?);
        }
        offset += RECORD_BYTES as u64 + extra;
    }
    Trace::new(records)
}

/// What of a record is needed here.
struct Header {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    extra_bytes: u16,
}

impl Header {
    fn parse(bytes: &[u8; RECORD_BYTES]) -> Result<Self, &'static str> {
        let little = u32::from_le_bytes(part(bytes, 0));
        let swapped = match (
            little & !0xFF == MAGIC,
            little.swap_bytes() & !0xFF == MAGIC,
        ) {
            (true, _) => false,
            (_, true) => true,
            _ => return Err("no record of blktrace begins here"),
        };
        let word = |at| {
            let word = u32::from_le_bytes(part(bytes, at));
            if swapped { word.swap_bytes() } else { word }
        };
        let long = |at| {
            let long = u64::from_le_bytes(part(bytes, at));
            if swapped { long.swap_bytes() } else { long }
        };
        if word(0) & 0xFF != VERSION {
            return Err("the record is of another version than 7");
        }
        let extra = u16::from_le_bytes(part(bytes, 46));
        Ok(Self {
            time_ns: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            device: word(36),
            extra_bytes: if swapped { extra.swap_bytes() } else { extra },
        })
    }

    /// What was queued, when something was.
    fn queued(&self) -> Option<Op> {
        if self.action & NOTIFY != 0 || self.action & 0xFFFF != QUEUED {
            return None;
        }
        match self.bytes {
            0 => (self.action & FLUSH != 0).then_some(Op::Flush),
            _ if self.action & DISCARD != 0 => Some(Op::Deallocate),
            _ if self.action & WRITE != 0 => Some(Op::Write),
            _ => Some(Op::Read),
        }
    }

    fn record(&self, op: Op, tenant: u32) -> Result<Record, &'static str> {
        // The sector of an empty flush means nothing.
        let sector = if op == Op::Flush { 0 } else { self.sector };
        let offset = sector
            .checked_mul(SECTOR_BYTES)
            .ok_or("the sector is beyond any drive")?;
        Record::checked(
            Duration::from_ns(self.time_ns),
            op,
            offset,
            u64::from(self.bytes),
            tenant,
        )
    }
}

/// The next record; nothing at the end of the file.
fn next_record(
    input: &mut impl Read,
    offset: u64,
) -> Result<Option<[u8; RECORD_BYTES]>, TraceError> {
    let mut bytes = [0; RECORD_BYTES];
    let mut filled = 0;
    while filled < RECORD_BYTES {
        match input.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(TraceError::Offset(offset, "the file ends within a record")),
            Ok(more) => filled += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(bytes))
}

/// The place of `device` among those seen, one more for each new one; a trace of nonsense has one
/// for all of the rest.
fn tenant(devices: &mut Vec<u32>, device: u32) -> u32 {
    const MOST_DEVICES: usize = 256;
    let known = devices.iter().position(|known| *known == device);
    let place = known.unwrap_or_else(|| {
        if devices.len() < MOST_DEVICES {
            devices.push(device);
        }
        devices.len() - 1
    });
    place as u32
}

fn part<const N: usize>(bytes: &[u8; RECORD_BYTES], at: usize) -> [u8; N] {
    let part = bytes[at..at + N].try_into();
    part.expect("the fields lie within the record")
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    /// A record as the kernel writes it on a little-endian machine.
    fn record(time_ns: u64, sector: u64, bytes: u32, action: u32, extra: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend((MAGIC | VERSION).to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(time_ns.to_le_bytes());
        record.extend(sector.to_le_bytes());
        for word in [bytes, action, 4711, 0x0080_0000, 0] {
            record.extend(word.to_le_bytes());
        }
        record.extend(0_u16.to_le_bytes());
        record.extend((extra.len() as u16).to_le_bytes());
        record.extend(extra);
        record
    }

    const READ: u32 = 1 << 16;
    const QUEUE: u32 = 1 << 20;

    fn sample() -> Vec<u8> {
        [
            record(1_000, 0, 0, NOTIFY | 1, b"process"),
            record(9_000, 16, 4096, READ | QUEUE | QUEUED, b""),
            record(5_000, 8, 8192, WRITE | QUEUE | QUEUED, b"xy"),
            record(9_500, 16, 4096, READ | 8, b""),
            record(9_900, u64::MAX, 0, WRITE | FLUSH | QUEUED, b""),
            record(9_950, 0, 512, DISCARD | WRITE | QUEUED, b""),
        ]
        .concat()
    }

    #[test]
    fn what_was_queued_is_read_in_order_of_time() {
        let trace = read(&sample()[..]).expect("it is sound");
        let seen: Vec<_> = trace
            .records()
            .iter()
            .map(|r| (r.at.as_ns(), r.op, r.offset, r.bytes))
            .collect();
        assert_eq!(
            seen,
            [
                (0, Op::Write, 4096, 8192),
                (4_000, Op::Read, 8192, 4096),
                (4_900, Op::Flush, 0, 0),
                (4_950, Op::Deallocate, 0, 512),
            ]
        );
    }

    #[test]
    fn the_other_byte_order_is_understood() {
        let mut bytes = record(7, 8, 4096, READ | QUEUED, b"");
        for (at, wide) in [
            (0, 4),
            (4, 4),
            (8, 8),
            (16, 8),
            (24, 4),
            (28, 4),
            (36, 4),
            (44, 2),
            (46, 2),
        ] {
            bytes[at..at + wide].reverse();
        }
        let trace = read(&bytes[..]).expect("it is sound");
        assert_eq!(trace.records()[0].offset, 4096);
    }

    #[test]
    fn errors_name_their_place() {
        let cut = &sample()[..100];
        assert!(matches!(
            read(cut),
            Err(TraceError::Offset(55, "the file ends within a record"))
        ));
        let nonsense = [0_u8; 48];
        assert!(matches!(read(&nonsense[..]), Err(TraceError::Offset(0, _))));
        let far = record(0, u64::MAX, 4096, READ | QUEUED, b"");
        assert!(matches!(
            read(&far[..]),
            Err(TraceError::Offset(0, "the sector is beyond any drive"))
        ));
        assert!(matches!(read(&[][..]), Err(TraceError::Empty)));
    }

    #[test]
    fn damaged_files_give_errors_and_nothing_else() {
        let mut chance = Rng::new(1);
        for _ in 0..2_000 {
            let mut bytes = sample();
            for _ in 0..chance.range(1..6) {
                let place = chance.below(bytes.len() as u64) as usize;
                bytes[place] = chance.next_u64() as u8;
            }
            bytes.truncate(chance.range(1..bytes.len() as u64 + 1) as usize);
            let _ = read(&bytes[..]).map(|trace| trace.folded(1 << 30));
        }
    }
}
