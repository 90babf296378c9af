//! Traces, changed by chance.

mod parsers;

use flashyard_corpus::try_all;

#[test]
fn no_trace_in_csv_panics() {
    try_all("trace_csv", 10_000, parsers::csv);
}

#[test]
fn no_binary_trace_panics() {
    try_all("blktrace", 10_000, parsers::binary);
}
