//! Project checks that are not tests: `cargo xtask tidy`.

mod edges;
mod mask;
mod source;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["tidy"] {
        return tidy::run();
    }
    eprintln!(
        "usage: cargo xtask tidy    check dependency edges, purity of crates and the state of files"
    );
    ExitCode::from(2)
}
