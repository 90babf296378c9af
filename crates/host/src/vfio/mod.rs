//! A guest without a virtual machine: the client of a vfio-user socket, with memory of its own and
//! a small NVMe driver. For tests of functions, and to measure them.

mod client;
mod guest;

pub use client::{ClientError, VfioClient};
pub use guest::{Guest, GuestError, GuestOptions, RAM_BASE};
