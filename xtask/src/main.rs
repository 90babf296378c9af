//! Chores of the project: `cargo xtask tidy` checks what is not a test, `cargo xtask bench`
//! measures.

mod bench;
mod edges;
mod imports;
mod mask;
mod pages;
mod source;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the workspace");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["bench", binary] => bench::run(Path::new(binary), &root.join("docs/performance.md")),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy            check dependency edges, purity of crates and the state of files\n\
                 \x20      cargo xtask bench BINARY    measure a build; the table goes into docs/performance.md"
            );
            ExitCode::from(2)
        }
    }
}
