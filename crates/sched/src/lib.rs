//! Schedulers: they decide which queued I/O a device gets next. Pure decisions over ids; requests,
//! buffers and clocks stay with the switch that asks.
//!
//! Map: the words and the [`Policy`] trait are in `policy`, what a tenant is entitled to in
//! `share`, what its I/O has really cost in `cost`; each policy is one file or folder: [`Fifo`],
//! [`Caps`], [`Gimbal`], [`Reflex`], [`FlashFq`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod caps;
mod cost;
mod fair;
mod fifo;
pub mod flashfq;
pub mod gimbal;
mod policy;
mod queues;
pub mod reflex;
mod roster;
mod share;

pub use caps::Caps;
pub use cost::Cost;
pub use fair::Fair;
pub use fifo::{Fifo, Window};
pub use flashfq::FlashFq;
pub use gimbal::Gimbal;
pub use policy::{Ask, Class, Credit, Gauge, IoId, Next, Op, Outcome, Policy, TenantId};
pub use reflex::Reflex;
pub use roster::Roster;
pub use share::{Rates, Share};
