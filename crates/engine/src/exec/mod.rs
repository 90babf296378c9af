//! Commands at work, whatever front end they came by. A front end checks a command (`controller`),
//! makes a [`Command`] of it and starts it; the command takes its share of memory, waits for its
//! turn in the switch, has its data fetched, does its I/O, and is answered through [`Front`].
//!
//! | module | holds |
//! | --- | --- |
//! | `front` | the trait that a front end implements, once for each I/O queue |
//! | `queue` | what the commands of a queue share: tenant, namespaces, memory, who waits |
//! | `command` | plain reads and writes |
//! | `rare`, `fused` | all other commands; pairs |
//! | `namespaces` | the namespaces as one queue sees them |
//! | `budget` | memory of a queue at the grace of its host |

mod budget;
mod command;
mod front;
mod fused;
mod namespaces;
mod queue;
mod rare;

pub use budget::{Budget, Held};
pub use command::{Command, HostData, Work, execute, start};
pub use front::{End, Failure, Front, Success};
pub use fused::{HalfData, Pair};
pub use namespaces::Namespace;
pub use queue::Queue;
