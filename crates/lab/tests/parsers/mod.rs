//! Any bytes as a trace of I/O. Used by the tests here and by the fuzz targets.

use flashyard_lab::load::{Trace, TraceError, blktrace};

/// Reads bytes as a trace in CSV.
pub(crate) fn csv(bytes: &[u8]) {
    examine(Trace::from_csv(bytes));
}

/// Reads bytes as a binary trace of Linux's blktrace.
pub(crate) fn binary(bytes: &[u8]) {
    examine(blktrace::read(bytes));
}

/// A trace that was read can be replayed on any drive.
fn examine(read: Result<Trace, TraceError>) {
    let trace = match read {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let records = trace.records();
    assert!(records.is_sorted_by_key(|record| record.at));
    let tenants = trace.tenants().into_iter();
    let of_tenants = tenants.map(|tenant| trace.of_tenant(tenant).records().len());
    assert_eq!(of_tenants.sum::<usize>(), records.len());
    for capacity in [65 << 20, (1 << 30) + 4095, 1 << 62] {
        let folded = trace.clone().folded(capacity);
        let mut ends = folded
            .records()
            .iter()
            .map(|one| one.offset + u64::from(one.bytes));
        assert!(ends.all(|end| end <= capacity));
    }
}
