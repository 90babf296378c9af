//! Emulated flash: drives that behave like real ones, as pure state machines in virtual time.
//!
//! [`ssd`] is a drive with a page map, a write buffer and garbage collection, [`channel`] one whose
//! chunks the host manages, [`ftl`] makes a block device of such chunks; [`profile`] says what they
//! are made of, and [`workload`] puts load on a drive in virtual time. Nothing here reads a clock,
//! and no data is kept: payload belongs to the owner of the drive. The laboratory holds the drives
//! against theory and public figures.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod channel;
mod die;
mod front;
pub mod ftl;
pub mod profile;
pub mod ssd;
pub mod workload;

pub use profile::{Profile, ProfileError, UNIT_BYTES};
