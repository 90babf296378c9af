//! The log of I/O statistics (D0h, vendor specific): what came to a host's namespaces, and how long
//! it took. Its layout is that of the log with this number that volumes of Amazon EBS have, so
//! that tools which read that one can read this one: `nvme amzn stats`, exporters of metrics. What
//! it has beyond that stands in bytes which are reserved there.

use alloc::vec::Vec;
use core::fmt;

use crate::bytes::{Field, structure};

/// The first field of such a log.
const MAGIC: u32 = 0x3c23_b510;
/// Says that the bytes which are reserved in other logs of this form have a meaning: `FLYD`.
const EXTENSION_MAGIC: u32 = u32::from_le_bytes(*b"FLYD");
/// The version of those bytes.
const EXTENSION_VERSION: u32 = 1;

/// Bytes of a histogram.
const HISTOGRAM_LEN: usize = 8 + LatencyBin::LEN * StatisticsLog::BINS_MAX;
const READS_AT: usize = Head::LEN;
const WRITES_AT: usize = READS_AT + HISTOGRAM_LEN;

structure! {
    /// Everything before the histograms.
    struct Head: 512 {
        magic: u32 = 0,
        read_ops: u64 = 8,
        write_ops: u64 = 16,
        read_bytes: u64 = 24,
        write_bytes: u64 = 32,
        read_us: u64 = 40,
        write_us: u64 = 48,
        in_flight: u64 = 88,
        extension_magic: u32 = 96,
        extension_version: u32 = 100,
        read_waited_us: u64 = 104,
        write_waited_us: u64 = 112,
        read_waited_ops: u64 = 120,
        write_waited_ops: u64 = 128,
        nsid: u32 = 136,
        namespaces: u32 = 140,
    }
}

structure! {
    /// How many I/Os took how long.
    pub struct LatencyBin: 24 {
        /// The shortest, in microseconds.
        lower_us: u64 = 0,
        /// All are shorter than this, in microseconds.
        upper_us: u64 = 8,
        /// How many; as many as the field can say, if there are more.
        count: u32 = 16,
    }
}

/// The log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatisticsLog {
    /// Reads and compares.
    pub reads: IoStatistics,
    /// Writes that carry data.
    pub writes: IoStatistics,
    /// I/Os that wait for their turn or are at the device now.
    pub in_flight: u64,
    /// The namespace; 0 for all that the controller sees.
    pub nsid: u32,
    /// How many namespaces were counted.
    pub namespaces: u32,
}

/// I/Os of one direction, since their namespaces are served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IoStatistics {
    /// How many.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took, all together, in microseconds.
    pub time_us: u64,
    /// Of this, how long they waited for their turn; absent in logs of other targets.
    pub waited_us: Option<u64>,
    /// How many waited longer than the first bin of `latency` is wide; absent likewise.
    pub waited_ops: Option<u64>,
    /// How many took how long: at most [`StatisticsLog::BINS_MAX`] bins, in ascending order.
    pub latency: Vec<LatencyBin>,
}

/// Why bytes are not the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotStatistics {
    /// Fewer than [`StatisticsLog::LEN`] bytes.
    Short,
    /// They begin with something else.
    Magic(u32),
    /// A histogram of more bins than there is room for.
    Bins(u64),
}

impl fmt::Display for NotStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "it has fewer than {} bytes", StatisticsLog::LEN),
            Self::Magic(found) => {
                write!(f, "it begins with {found:#010x} instead of {MAGIC:#010x}")
            }
            Self::Bins(bins) => write!(
                f,
                "it says that a histogram has {bins} bins, and there is room for {}",
                StatisticsLog::BINS_MAX
            ),
        }
    }
}

impl core::error::Error for NotStatistics {}

impl StatisticsLog {
    /// Length in bytes.
    pub const LEN: usize = 4096;
    /// The most bins of a histogram.
    pub const BINS_MAX: usize = 64;

    /// The bytes of the log.
    ///
    /// # Panics
    /// When a histogram has more than [`Self::BINS_MAX`] bins.
    pub fn encode(&self, data: &mut [u8; Self::LEN]) {
        data.fill(0);
        let (reads, writes) = (&self.reads, &self.writes);
        let head = Head {
            magic: MAGIC,
            read_ops: reads.ops,
            write_ops: writes.ops,
            read_bytes: reads.bytes,
            write_bytes: writes.bytes,
            read_us: reads.time_us,
            write_us: writes.time_us,
            in_flight: self.in_flight,
            extension_magic: EXTENSION_MAGIC,
            extension_version: EXTENSION_VERSION,
            read_waited_us: reads.waited_us.unwrap_or(0),
            write_waited_us: writes.waited_us.unwrap_or(0),
            read_waited_ops: reads.waited_ops.unwrap_or(0),
            write_waited_ops: writes.waited_ops.unwrap_or(0),
            nsid: self.nsid,
            namespaces: self.namespaces,
        };
        let (first, rest) = data.split_first_chunk_mut().expect("it is longer");
        head.encode(first);
        put_bins(&reads.latency, rest, READS_AT - Head::LEN);
        put_bins(&writes.latency, rest, WRITES_AT - Head::LEN);
    }

    /// Reads the log, of this target or of another one with logs of this form.
    ///
    /// # Errors
    /// It is no such log.
    pub fn decode(data: &[u8]) -> Result<Self, NotStatistics> {
        let data = data
            .first_chunk::<{ Self::LEN }>()
            .ok_or(NotStatistics::Short)?;
        let head = Head::decode(data.first_chunk().expect("it is longer"));
        if head.magic != MAGIC {
            return Err(NotStatistics::Magic(head.magic));
        }
        let extended = head.extension_magic == EXTENSION_MAGIC;
        let own = |value: u64| extended.then_some(value);
        Ok(Self {
            reads: IoStatistics {
                ops: head.read_ops,
                bytes: head.read_bytes,
                time_us: head.read_us,
                waited_us: own(head.read_waited_us),
                waited_ops: own(head.read_waited_ops),
                latency: bins(data, READS_AT)?,
            },
            writes: IoStatistics {
                ops: head.write_ops,
                bytes: head.write_bytes,
                time_us: head.write_us,
                waited_us: own(head.write_waited_us),
                waited_ops: own(head.write_waited_ops),
                latency: bins(data, WRITES_AT)?,
            },
            in_flight: head.in_flight,
            nsid: if extended { head.nsid } else { 0 },
            namespaces: if extended { head.namespaces } else { 1 },
        })
    }
}

fn put_bins(bins: &[LatencyBin], data: &mut [u8], at: usize) {
    assert!(bins.len() <= StatisticsLog::BINS_MAX, "{} bins", bins.len());
    (bins.len() as u64).put(data, at);
    let places = data[at + 8..].as_chunks_mut().0.iter_mut();
    for (bin, place) in bins.iter().zip(places) {
        bin.encode(place);
    }
}

fn bins(data: &[u8], at: usize) -> Result<Vec<LatencyBin>, NotStatistics> {
    let count = u64::get(data, at);
    let bins = usize::try_from(count).ok();
    let bins = bins.filter(|bins| *bins <= StatisticsLog::BINS_MAX);
    let bins = bins.ok_or(NotStatistics::Bins(count))?;
    let places = data[at + 8..].as_chunks().0;
    Ok(places[..bins].iter().map(LatencyBin::decode).collect())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn log() -> StatisticsLog {
        let bin = |lower_us, upper_us, count| LatencyBin {
            lower_us,
            upper_us,
            count,
        };
        StatisticsLog {
            reads: IoStatistics {
                ops: 3,
                bytes: 12_288,
                time_us: 250,
                waited_us: Some(40),
                waited_ops: Some(1),
                latency: vec![bin(0, 7, 1), bin(7, 9, 2)],
            },
            writes: IoStatistics {
                ops: 7,
                waited_us: Some(0),
                waited_ops: Some(0),
                latency: vec![bin(0, u64::MAX, 7); StatisticsLog::BINS_MAX],
                ..IoStatistics::default()
            },
            in_flight: 5,
            nsid: 9,
            namespaces: 1,
        }
    }

    #[test]
    fn bytes_are_where_other_tools_look_for_them() {
        let mut data = [0xee; StatisticsLog::LEN];
        log().encode(&mut data);
        let u64_at = |at: usize| u64::get(&data, at);
        assert_eq!(u32::get(&data, 0), 0x3c23_b510);
        let totals = [8, 16, 24, 32, 40, 48].map(u64_at);
        assert_eq!(totals, [3, 7, 12_288, 0, 250, 0]);
        // Times over limits of a volume and of a machine, which are not known here.
        assert_eq!([56, 64, 72, 80].map(u64_at), [0; 4]);
        assert_eq!(u64_at(88), 5);
        assert_eq!(&data[96..100], b"FLYD");
        assert_eq!([512, 520, 528, 544, 552].map(u64_at), [2, 0, 7, 7, 9]);
        assert_eq!([u32::get(&data, 536), u32::get(&data, 560)], [1, 2]);
        assert_eq!([2056, 2064, 2072].map(u64_at), [64, 0, u64::MAX]);
        assert!(data[3600..].iter().all(|byte| *byte == 0));
        assert_eq!(StatisticsLog::decode(&data), Ok(log()));
    }

    #[test]
    fn a_log_of_another_target_says_nothing_of_waiting() {
        let mut data = [0; StatisticsLog::LEN];
        log().encode(&mut data);
        data[96..512].fill(0);
        let read = StatisticsLog::decode(&data).expect("it is one");
        assert_eq!(read.reads.waited_us, None);
        assert_eq!(read.writes.waited_ops, None);
        assert_eq!((read.reads.ops, read.nsid, read.namespaces), (3, 0, 1));
    }

    #[test]
    fn what_is_no_such_log_is_refused() {
        let mut data = [0; StatisticsLog::LEN];
        log().encode(&mut data);
        let short = StatisticsLog::decode(&data[..4095]);
        assert_eq!(short, Err(NotStatistics::Short));
        data[2056] = 65;
        assert_eq!(StatisticsLog::decode(&data), Err(NotStatistics::Bins(65)));
        data[512 + 7] = 0x80;
        let bins = (1 << 63) | 2;
        assert_eq!(StatisticsLog::decode(&data), Err(NotStatistics::Bins(bins)));
        data[0] = 0;
        let other = StatisticsLog::decode(&data);
        assert_eq!(other, Err(NotStatistics::Magic(0x3c23_b500)));
    }
}
