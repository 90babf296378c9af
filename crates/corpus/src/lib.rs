//! For tests only: images of devices that earlier versions have written (`images/`).

mod image;

pub use image::Image;
