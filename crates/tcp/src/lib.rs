//! The front end for NVMe/TCP: [`listen`] takes hosts in for a core of the target, and serves them.
//!
//! A connection is two tasks (`serve`). The receiving one is straight-line: ICReq with a
//! deadline, Connect with a deadline, then the commands of the queue it became, Admin or I/O. The
//! sending one sends what has gathered in the outbox, once per turn of the executor. An
//! I/O command is a future in a pool: one that need not wait is finished before the next is looked
//! at.
//!
//! | module | holds |
//! | --- | --- |
//! | `serve` | the two tasks of a connection |
//! | `connection` | what the tasks of a connection share; how it begins and ends; its deadlines |
//! | `input` | received bytes, from the core's ring, from a large buffer, or left over |
//! | `outbox` | answers, and all other PDUs to be sent |
//! | `owed` | what a peer owes, and since when |
//! | `connect` | the Connect command: becoming a queue |
//! | `fabrics` | fabrics commands |
//! | `admin` | the Admin queue: a controller and its events |
//! | `io`, `session` | the I/O queue: its side of execution; from bytes to commands |
//! | `fused` | halves of pairs as they arrive |
//! | `capsule` | queue pair rules: depth, identifiers, head pointer; where the data of a command are |
//! | `transfer` | write data on their way |
//! | `coalesce` | when gathered answers go out |
#![forbid(unsafe_code)]

mod admin;
mod capsule;
mod coalesce;
mod connect;
mod connection;
mod fabrics;
mod fused;
mod input;
mod io;
mod outbox;
mod owed;
mod serve;
mod session;
mod transfer;

pub use serve::{listen, listen_on};
