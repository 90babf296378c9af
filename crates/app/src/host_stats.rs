//! `flashyard host-stats`: the log of I/O statistics that a host has read of its controller, for
//! people and programs. It needs no target.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flashyard_nvme::log::{IoStatistics, StatisticsLog};
use serde::Serialize;

use crate::cli::HostStatsArgs;
use crate::failure::{Failure, Invalid};
use crate::iostat::percentile;
use crate::json;
use crate::out::say;
use crate::table::Table;
use crate::units::{microseconds, size};

/// More is not read: a log is shorter.
const MOST_BYTES: u64 = 1 << 20;

/// The log for programs.
#[derive(Serialize)]
struct Statistics {
    /// Null for all that the controller sees.
    nsid: Option<u32>,
    namespaces: u32,
    in_flight: u64,
    read: Direction,
    write: Direction,
}

#[derive(Serialize)]
struct Direction {
    ios: u64,
    io_bytes: u64,
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    waited_us: Option<u64>,
    waited_ios: Option<u64>,
    buckets: Vec<Bucket>,
}

/// Null as a bound: there is none.
#[derive(Serialize)]
struct Bucket {
    from_us: u64,
    under_us: Option<u64>,
    took: u32,
}

/// Reads, and prints.
pub fn run(args: &HostStatsArgs) -> Result<(), Failure> {
    let data = read(&args.file).map_err(|error| Invalid::Unreadable(args.file.clone(), error))?;
    let log = StatisticsLog::decode(&data);
    let log = log.map_err(|why| Invalid::Statistics(args.file.clone(), why))?;
    let statistics = Statistics::of(&log);
    match args.json {
        true => json::print("", &statistics),
        false => say!("{}", statistics.text(args.histogram)),
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    match file.as_os_str() == "-" {
        true => io::stdin().take(MOST_BYTES).read_to_end(&mut data)?,
        false => File::open(file)?.take(MOST_BYTES).read_to_end(&mut data)?,
    };
    Ok(data)
}

impl Statistics {
    fn of(log: &StatisticsLog) -> Self {
        Self {
            nsid: (log.nsid > 0).then_some(log.nsid),
            namespaces: log.namespaces,
            in_flight: log.in_flight,
            read: Direction::of(&log.reads),
            write: Direction::of(&log.writes),
        }
    }

    fn text(&self, histogram: bool) -> String {
        let of = match self.nsid {
            Some(nsid) => format!("namespace {nsid}"),
            None => format!("namespaces: {}", self.namespaces),
        };
        let mut text = format!("{of}; in flight: {}\n\n", self.in_flight);
        let header = ["", "ios", "data", "mean", "p50", "p99", "waited", "in all"];
        let columns = header.map(|name| (name.to_uppercase(), !name.is_empty()));
        let mut table = Table::of(columns);
        table.row(self.read.cells("reads"));
        table.row(self.write.cells("writes"));
        text.push_str(&table.render());
        if histogram {
            text.push('\n');
            text.push_str(&self.histogram());
        }
        text
    }

    /// From the first bucket with any to the last.
    fn histogram(&self) -> String {
        let at = |direction: &Direction, at: usize| {
            let bucket = direction.buckets.get(at);
            bucket.map_or(0, |bucket| bucket.took)
        };
        let buckets = match self.read.buckets.is_empty() {
            true => &self.write.buckets,
            false => &self.read.buckets,
        };
        let filled = |bucket: &usize| at(&self.read, *bucket) + at(&self.write, *bucket) > 0;
        let all: Vec<usize> = (0..buckets.len()).filter(filled).collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return "no reads and no writes\n".to_owned();
        };
        let header = ["under", "reads", "writes"];
        let mut table = Table::of(header.map(|name| (name.to_uppercase(), true)));
        for (bucket, found) in buckets.iter().enumerate().take(last + 1).skip(*first) {
            let bound = found.under_us.map(|us| microseconds(us as f64));
            let counts = [&self.read, &self.write].map(|it| at(it, bucket).to_string());
            let cells = [bound.unwrap_or_else(|| "any".to_owned())];
            table.row(cells.into_iter().chain(counts).collect());
        }
        table.render()
    }
}

impl Direction {
    fn of(io: &IoStatistics) -> Self {
        let counts: Vec<u64> = io.latency.iter().map(|bin| bin.count.into()).collect();
        let bound = |us: u64| (us < u64::MAX).then_some(us);
        let uppers = io.latency.iter().map(|bin| bound(bin.upper_us));
        let bounds: Vec<Option<f64>> = uppers.map(|us| us.map(|us| us as f64)).collect();
        let buckets = io.latency.iter().map(|bin| Bucket {
            from_us: bin.lower_us,
            under_us: bound(bin.upper_us),
            took: bin.count,
        });
        Self {
            ios: io.ops,
            io_bytes: io.bytes,
            mean_us: (io.ops > 0).then(|| io.time_us as f64 / io.ops as f64),
            p50_us: percentile(&counts, &bounds, 0.5),
            p99_us: percentile(&counts, &bounds, 0.99),
            waited_us: io.waited_us,
            waited_ios: io.waited_ops,
            buckets: buckets.collect(),
        }
    }

    /// A row: what waited for its turn, and for how long in all.
    fn cells(&self, name: &str) -> Vec<String> {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), microseconds);
        let waited = self.waited_ios.map(|ios| ios.to_string());
        vec![
            name.to_owned(),
            self.ios.to_string(),
            size(self.io_bytes),
            time(self.mean_us),
            time(self.p50_us),
            time(self.p99_us),
            waited.unwrap_or_else(|| "-".to_owned()),
            time(self.waited_us.map(|us| us as f64)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use flashyard_nvme::log::LatencyBin;

    use super::*;

    fn log() -> StatisticsLog {
        let bin = |lower_us, upper_us, count| LatencyBin {
            lower_us,
            upper_us,
            count,
        };
        StatisticsLog {
            reads: IoStatistics {
                ops: 4,
                bytes: 16 << 10,
                time_us: 4_800,
                waited_us: Some(4_000),
                waited_ops: Some(2),
                latency: vec![
                    bin(0, 7, 0),
                    bin(7, 9, 2),
                    bin(9, 2_000, 0),
                    bin(2_000, u64::MAX, 2),
                ],
            },
            in_flight: 1,
            namespaces: 3,
            ..StatisticsLog::default()
        }
    }

    #[test]
    fn a_log_as_tables() {
        let text = Statistics::of(&log()).text(true);
        let want = "\
namespaces: 3; in flight: 1

        IOS    DATA     MEAN   P50      P99  WAITED   IN ALL
reads     4  16 KiB  1.20 ms  9 us  2.00 ms       2  4.00 ms
writes    0     0 B        -     -        -       -        -

  UNDER  READS  WRITES
   9 us      2       0
2.00 ms      0       0
    any      2       0
";
        assert_eq!(text, want);
        let empty = Statistics::of(&StatisticsLog::default());
        assert!(empty.text(true).ends_with("no reads and no writes\n"));
        let one = Statistics::of(&StatisticsLog { nsid: 7, ..log() });
        assert!(one.text(false).starts_with("namespace 7; in flight: 1\n"));
    }
}
