//! NVMe as bytes: every structure a host and a controller exchange, the framing of NVMe/TCP,
//! and the messages of vfio-user.
//!
//! Nothing here does I/O, keeps time or allocates on the path of a command. Both ends use the same
//! types: a target decodes what a host encodes and the reverse. The names are those of the NVMe
//! Base, NVM Command Set and NVMe/TCP Transport specifications.
//!
//! | module | holds |
//! | --- | --- |
//! | [`command`] | submission and completion queue entries, SGL descriptors, opcodes, status codes, builders |
//! | [`fabrics`] | Connect, Property Get/Set, and the layouts of the controller properties |
//! | [`identify`] | the data structures of the Identify command |
//! | [`log`] | log pages, the discovery log among them |
//! | [`feature`] | Get/Set Features identifiers and values |
//! | [`aer`] | asynchronous events |
//! | [`Allowance`] | what a host may have outstanding, a vendor feature of this project |
//! | [`dsm`] | Dataset Management ranges |
//! | [`nqn`] | NVMe Qualified Names |
//! | [`tcp`] | NVMe/TCP: PDUs, digests, framing as a state machine, negotiation, R2T bookkeeping |
//! | [`vfio_user`] | vfio-user: the messages that bring an NVMe function to a virtual machine |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod aer;
mod bytes;
pub mod command;
mod credit;
pub mod dsm;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod tcp;
pub mod vfio_user;

pub use command::{AdminOpcode, CompletionQueueEntry, IoOpcode, Sgl, Status, SubmissionQueueEntry};
pub use credit::Allowance;
pub use nqn::Nqn;
