//! NVMe/TCP: what the target does with a connection.
//!
//! A connection is two tasks. The receiving one ([`serve`]) is straight-line: ICReq with a
//! deadline, Connect with a deadline, then the commands of the queue it became, Admin or I/O. The
//! sending one ([`send`]) sends what has gathered in the outbox, once per turn of the executor. An
//! I/O command is a future in a pool: one that need not wait is finished before the next is looked
//! at.
//!
//! | module | holds |
//! | --- | --- |
//! | `connection` | what the tasks of a connection share; how it begins and ends; its deadlines |
//! | `input` | received bytes, from the core's ring, from a large buffer, or left over |
//! | `outbox` | PDUs to be sent |
//! | `owed` | what a peer owes, and since when |
//! | `connect` | the Connect command: becoming a queue |
//! | `fabrics`, `payload` | fabrics commands; where the data of a command are |
//! | `admin` | the Admin queue: a controller and its events |
//! | `io`, `session` | the I/O queue: what its commands share; from bytes to commands |
//! | `command`, `fused`, `reply` | commands at work, and their answers |
//! | `queue`, `cid_set` | queue pair rules: depth, identifiers, head pointer |
//! | `transfer` | write data on their way |
//! | `hold` | when gathered answers go out |
//! | `waiting`, `budget` | commands that were not issued yet; memory that waits for a peer |

mod admin;
mod budget;
mod cid_set;
mod command;
mod connect;
mod connection;
mod fabrics;
mod fused;
mod hold;
mod input;
mod io;
mod namespaces;
mod outbox;
mod owed;
mod payload;
mod queue;
mod quota;
mod reply;
mod session;
mod transfer;
mod waiting;

pub(crate) use connection::{Connection, send, serve};
pub use hold::Coalescing;
pub(crate) use namespaces::Namespace;
pub(crate) use quota::{MemoryQuota, Pool};
pub(crate) use waiting::{Elsewhere, Waiting, Withdrawn};
