//! Schedulers: which queued I/O a device sees next. Pure decisions over ids; requests, buffers and clocks stay
//! with the switch that asks.
//!
//! Map: the words and the [`Policy`] trait are in `policy`, what a tenant is owed in `share`; each policy is one file or
//! folder: [`Fifo`], [`Gimbal`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod fair;
mod fifo;
pub mod gimbal;
mod policy;
mod queues;
mod roster;
mod share;

pub use fair::Fair;
pub use fifo::{Fifo, Window};
pub use gimbal::Gimbal;
pub use policy::{Class, Credit, Gauge, Io, IoId, Next, Op, Outcome, Policy, TenantId};
pub use share::{Rates, Share};
