//! What tests of more than one crate set up: folders for their files and, with the feature
//! `target`, a target with its tenants and hosts. For tests only. Tests of the crates below the
//! engine do without that feature, so that nothing above them has to compile.

#[cfg(feature = "target")]
mod client;
mod scratch;
#[cfg(feature = "target")]
mod site;

#[cfg(feature = "target")]
pub use client::{Client, PATIENCE};
#[cfg(feature = "target")]
pub use flashyard_host::raw::{Identity, Incoming};
pub use scratch::Scratch;
#[cfg(feature = "target")]
pub use site::{
    BLOCK, Bench, NO_DIGESTS, PREFIX, Site, memory, options, pattern, subnqn, target, tenant,
    tenants,
};
