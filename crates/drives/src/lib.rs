//! Drives whose flash translation layer runs in this program: an emulated SSD (`flash`), and
//! partitions of exclusive flash units (`open_channel`), on an emulated open-channel device or on
//! the zones of a real zoned drive.
//!
//! The models and translation layers themselves are in [`flashyard_flash`], which knows no clock
//! and no disk. Here is what runs them by the clock of a core, and what keeps their content.

mod backing;
mod clock;
pub mod flash;
pub mod open_channel;
mod zoned;

pub use flash::{FlashDevice, FlashOptions, FlashStats};
