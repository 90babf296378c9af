//! Columns that several experiments have, named alike in all of them.

use crate::report::{Column, Unit};

pub(super) const POLICY: Column = column("policy", "policy", Unit::None);
pub(super) const PROFILE: Column = column("profile", "profile", Unit::None);
pub(super) const CONDITION: Column = column("condition", "condition", Unit::None);
pub(super) const WORKER: Column = column("worker", "worker", Unit::None);
pub(super) const KIND: Column = column("kind", "kind", Unit::None);
pub(super) const READS: Column = column("reads_percent", "reads", Unit::Percent);
pub(super) const BANDWIDTH: Column = column("bytes_per_second", "bandwidth", Unit::BytesPerSecond);
pub(super) const IOPS: Column = column("iops", "IOPS", Unit::Iops);
pub(super) const OFFERED: Column = column("offered_iops", "offered", Unit::Iops);
pub(super) const LOST: Column = column("lost", "lost", Unit::None);
pub(super) const F_UTIL: Column = column("f_util", "f-Util", Unit::Ratio);
pub(super) const MEAN: Column = column("mean_us", "mean", Unit::Micros);
pub(super) const P50: Column = column("p50_us", "p50", Unit::Micros);
pub(super) const P99: Column = column("p99_us", "p99", Unit::Micros);
pub(super) const P999: Column = column("p999_us", "p99.9", Unit::Micros);
pub(super) const MAX: Column = column("max_us", "max", Unit::Micros);

/// A column of one experiment only, or one of those above.
pub(super) const fn column(name: &'static str, heading: &'static str, unit: Unit) -> Column {
    Column {
        name,
        heading,
        unit,
    }
}
