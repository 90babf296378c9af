//! Commands at work, whatever front end they came by. A front end checks a command (`controller`),
//! makes a [`Command`] of it and starts it; the command takes its share of memory, waits for its
//! turn in the switch, has its data fetched, does its I/O, and is answered through [`Front`].
//!
//! | module | holds |
//! | --- | --- |
//! | `front` | the trait that a front end implements, once for each I/O queue |
//! | `queue` | what the commands of a queue share: tenant, namespaces, memory, who waits |
//! | `command` | plain reads and writes |
//! | `lent` | those whose data stay in the memory of their host |
//! | `rare`, `fused` | all other commands; pairs |

mod command;
mod front;
mod fused;
mod lent;
mod queue;
mod rare;

pub use command::{Command, Work, execute, start};
pub use front::{End, Failure, Front, HostData, Success};
pub use fused::{HalfData, Pair};
pub use queue::{Namespace, Queue};
