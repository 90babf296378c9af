//! For tests only: images of devices that earlier versions have written (`images/`), inputs that
//! parsers have to bear (`inputs/`, a folder for each), and seeded mutations of these.
//!
//! The folders of inputs are corpora of libFuzzer too: see `fuzz/`.

mod image;
mod mutate;

pub use image::Image;
pub use mutate::{inputs, mutated, try_all};
