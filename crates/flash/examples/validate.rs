//! Prints every comparison of the model with theory and published figures, and fails when one does.

use std::process::ExitCode;

use flashyard_flash::validate::{Extent, run};

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rows = run(if quick { Extent::Quick } else { Extent::Full });
    println!(
        "{:48} {:>16} {:>16} {:>14}  pass",
        "test", "oracle", "measured", "tolerance"
    );
    for row in &rows {
        let (less, more) = row.tolerance;
        let tolerance = format!("-{:.1} +{:.1} %", less * 100.0, more * 100.0);
        println!(
            "{:48} {:>16.3} {:>16.3} {:>14}  {}",
            row.test,
            row.oracle,
            row.measured,
            tolerance,
            if row.pass() { "yes" } else { "NO" }
        );
    }
    ExitCode::from(u8::from(
        !rows.iter().all(flashyard_flash::validate::Row::pass),
    ))
}
