//! What tests of more than one crate set up: folders for their files. For tests only.

mod scratch;

pub use scratch::Scratch;
