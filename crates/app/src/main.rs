//! The flashyard program.
fn main() {}
