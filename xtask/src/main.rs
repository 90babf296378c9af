//! Project checks that are not tests: `cargo xtask tidy`.
fn main() {}
