//! What tests of more than one crate set up: folders for their files; with the feature `device`,
//! devices with a pace and disks that lose power; with the feature `target`, a target with its
//! tenants and hosts. For tests, and the paced device for the laboratory, too. Tests of the crates
//! below do without those features, so that nothing above them has to compile.

#[cfg(feature = "target")]
mod client;
#[cfg(feature = "device")]
mod content;
#[cfg(feature = "device")]
pub mod cut;
#[cfg(feature = "device")]
mod disk;
#[cfg(feature = "hostile")]
pub mod hostile;
mod loop_device;
#[cfg(feature = "device")]
mod paced;
mod scratch;
#[cfg(feature = "target")]
mod site;

#[cfg(feature = "target")]
pub use client::{Client, PATIENCE};
#[cfg(feature = "device")]
pub use content::Content;
#[cfg(feature = "device")]
pub use disk::{
    Bytes, Disk, Event, apply, behaves_as_an_array, filled, flush, read, refuses_what_is_not_there,
    run, write, yields,
};
#[cfg(feature = "target")]
pub use flashyard_host::raw::{Identity, Incoming};
pub use loop_device::Loop;
#[cfg(feature = "device")]
pub use paced::Paced;
pub use scratch::Scratch;
#[cfg(feature = "target")]
pub use site::{
    BLOCK, Bench, NO_DIGESTS, PREFIX, Site, memory, options, pattern, subnqn, target, tenant,
    tenants,
};
