//! Prints every comparison of the model with theory and published figures, and fails when one does
//! not hold. `--quick` takes small drives; numbers take only the tests that have them.

use std::process::ExitCode;

use flashyard_flash::validate::{Extent, Row, TESTS, run_test};
use flashyard_time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let extent = if quick { Extent::Quick } else { Extent::Full };
    let wanted: Vec<u8> = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let mut passed = true;
    for (number, about) in (1..).zip(TESTS) {
        if !wanted.is_empty() && !wanted.contains(&number) {
            continue;
        }
        let before = cpu_time();
        let rows = run_test(number, extent, Some(&cpu_time));
        let spent = (cpu_time() - before).as_secs_f64();
        println!("{number:2}  {about} ({spent:.1} s of CPU time)");
        rows.iter().for_each(print);
        passed &= rows.iter().all(Row::pass);
    }
    ExitCode::from(u8::from(!passed))
}

fn print(row: &Row) {
    let (less, more) = row.tolerance;
    let tolerance = format!("-{:.1} +{:.1} %", less * 100.0, more * 100.0);
    println!(
        "      {:54} {:>16.3} {:>16.3} {:>18}  {}  {}",
        row.test,
        row.oracle,
        row.measured,
        tolerance,
        if row.pass() { "yes" } else { "NO " },
        row.note
    );
}

/// CPU time of this thread; zero where the kernel does not tell.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_ns(first.unwrap_or(0))
}
