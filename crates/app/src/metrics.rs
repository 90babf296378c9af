//! All metrics, by name, kind and labels. What Prometheus gets (`service/metrics.rs`), the alert
//! rules and the dashboard (`generate/`) are made of them, so that none names what is not there.

use std::fmt;
use std::marker::PhantomData;

/// Before the name of every metric.
pub const PREFIX: &str = "flashyard";

/// One metric, with labels of these names.
#[derive(Debug)]
pub struct Metric<K, const N: usize> {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: [&'static str; N],
    kind: PhantomData<K>,
}

/// What only grows.
#[derive(Debug)]
pub struct Counter;

/// What is so at the moment.
#[derive(Debug)]
pub struct Gauge;

/// How times are spread.
#[derive(Debug)]
pub struct Times;

impl<const N: usize> fmt::Display for Metric<Counter, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_total", self.name)
    }
}

impl<const N: usize> fmt::Display for Metric<Gauge, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}", self.name)
    }
}

impl<const N: usize> Metric<Times, N> {
    /// How many took at most `le` seconds.
    pub fn buckets(&self) -> String {
        format!("{PREFIX}_{}_seconds_bucket", self.name)
    }

    pub fn sum(&self) -> String {
        format!("{PREFIX}_{}_seconds_sum", self.name)
    }

    pub fn count(&self) -> String {
        format!("{PREFIX}_{}_seconds_count", self.name)
    }
}

/// Names of series as Prometheus has them, and the labels of each, for tests.
#[cfg(test)]
trait HasSeries {
    fn series(&self) -> Vec<(String, Vec<&'static str>)>;
}

#[cfg(test)]
impl<const N: usize> HasSeries for Metric<Counter, N> {
    fn series(&self) -> Vec<(String, Vec<&'static str>)> {
        vec![(self.to_string(), self.labels.to_vec())]
    }
}

#[cfg(test)]
impl<const N: usize> HasSeries for Metric<Gauge, N> {
    fn series(&self) -> Vec<(String, Vec<&'static str>)> {
        vec![(self.to_string(), self.labels.to_vec())]
    }
}

#[cfg(test)]
impl<const N: usize> HasSeries for Metric<Times, N> {
    fn series(&self) -> Vec<(String, Vec<&'static str>)> {
        let own = self.labels.to_vec();
        let with_bound = [&own[..], &["le"]].concat();
        vec![
            (self.buckets(), with_bound),
            (self.sum(), own.clone()),
            (self.count(), own),
        ]
    }
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident, $count:literal, $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub const $constant: Metric<$kind, $count> = Metric {
            name: $name,
            help: $help,
            labels: [$($label),*],
            kind: PhantomData::<$kind>,
        };)*

        /// All series that there can be.
        #[cfg(test)]
        pub fn all_series() -> Vec<(String, Vec<&'static str>)> {
            [$($constant.series()),*].concat()
        }
    };
}

metrics! {
    BUILD_INFO: Gauge, 1, "build_info" ["version"]
        "Version of the target";
    RAN: Counter, 0, "ran_seconds" []
        "How long the target ran, in all its runs";
    STARTS: Counter, 0, "starts" []
        "Runs of the target";
    UNSAFE_SHUTDOWNS: Counter, 0, "unsafe_shutdowns" []
        "Runs that were cut off";
    OBJECTS: Gauge, 1, "objects" ["kind"]
        "Things that there are";
    CONNECTIONS: Gauge, 1, "connections" ["core"]
        "NVMe/TCP connections of a core";
    HEALTH_PROBLEMS: Gauge, 2, "health_problems" ["code", "muted"]
        "Things that are wrong, by code; muted ones too";
    HEALTHY: Gauge, 0, "healthy" []
        "1 if nothing is wrong that is not muted, else 0";
    IO_OPERATIONS: Counter, 2, "io_operations" ["tenant", "op"]
        "I/O commands of a tenant's hosts and guests";
    IO_BYTES: Counter, 2, "io_bytes" ["tenant", "op"]
        "Bytes of these";
    IO_ERRORS: Counter, 1, "io_errors" ["tenant"]
        "I/O commands that ended with an error";
    CONTROLLERS: Gauge, 1, "controllers" ["tenant"]
        "Controllers that a tenant's hosts have, and the guests of its functions";
    LATENCY_TARGET: Gauge, 1, "latency_target_seconds" ["tenant"]
        "What a tenant's latency-sensitive I/O is to take at most";
    PROMISE_RATIO: Gauge, 3, "promise_ratio" ["tenant", "device", "promise"]
        "What a tenant got in the last seconds over what it is promised; of a latency target the target over the latency";
    PROMISE_MISSED: Gauge, 3, "promise_missed" ["tenant", "device", "promise"]
        "1 if a tenant asked for what it is promised and did not get it in the last seconds, else 0";
    DRIVE_WRITE_AMPLIFICATION: Gauge, 1, "drive_write_amplification_ratio" ["device"]
        "Flash that an emulated drive wrote for each byte written";
    DRIVE_LATENESS: Gauge, 1, "drive_lateness_p99_seconds" ["device"]
        "How much later than due 99 of 100 completions of an emulated drive were";
    INJECTED_FAULTS: Counter, 2, "injected_faults" ["device", "fault"]
        "Faults that a device injected on purpose";
    IO_DURATION: Times, 3, "io_duration" ["tenant", "device", "op"]
        "Time of I/O at its device, in this run of the target: waiting for its turn, and served";
    IO_WAITED: Times, 3, "io_waited" ["tenant", "device", "op"]
        "Of this, waiting for its turn";
    IO_SERVED: Times, 3, "io_served" ["tenant", "device", "op"]
        "Of this, served by the device";
    POOL_BYTES: Gauge, 2, "pool_bytes" ["pool", "kind"]
        "Space of a pool, as `pool show` has it";
    VOLUME_SIZE: Gauge, 3, "volume_size_bytes" ["volume", "tenant", "place"]
        "Size of a volume as hosts see it";
    MEMBER_READ_ERRORS: Counter, 3, "array_member_read_errors" ["array", "member", "kind"]
        "Reads of a member of an array that failed, or gave what other members contradict";
    MEMBER_HEALED: Counter, 2, "array_member_healed" ["array", "member"]
        "Blocks of a member that were written again with what other members have";
    REBUILD_PROGRESS: Gauge, 1, "array_rebuild_progress_ratio" ["array"]
        "What of a rebuild is done, while there is one";
    UNRESOLVED_BLOCKS: Gauge, 1, "array_unresolved_blocks" ["array"]
        "Blocks about which copies disagree";
}
