//! A guest without a virtual machine: the client of a vfio-user socket, with memory of its own and
//! a small NVMe driver. For tests of functions, and to measure them (`polled`).

mod client;
mod guest;
mod polled;

pub use client::{ClientError, VfioClient};
pub use guest::{Guest, GuestError, GuestOptions, RAM_BASE};
pub use polled::{PolledFunction, PolledOptions, PolledQueue};
