//! Schedulers: they decide which queued I/O a device gets next. Pure decisions over ids; requests,
//! buffers and clocks stay with the switch that asks.
//!
//! Map: the words and the [`Policy`] trait are in `policy`, what a tenant is entitled to in
//! `share`, what its I/O has really cost in `cost`, what a device was measured to do in `figures`.
//! Each policy is one file or folder, and an entry of the `registry`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod caps;
mod cost;
mod fair;
mod fifo;
mod figures;
pub mod flashfq;
pub mod gimbal;
mod policy;
mod queues;
pub mod reflex;
mod registry;
mod roster;
mod share;

pub use caps::Caps;
pub use cost::Cost;
pub use fair::Fair;
pub use fifo::{Fifo, Window};
pub use figures::{Figures, Point, READ_TOKENS};
pub use flashfq::FlashFq;
pub use gimbal::Gimbal;
pub use policy::{Ask, Class, Credit, Gauge, IoId, Next, Op, Outcome, Policy, TenantId};
pub use reflex::Reflex;
pub use registry::{Known, Make, POLICIES, POLICY_NAMES, PolicyKind};
pub use roster::Roster;
pub use share::{Rates, Share};
