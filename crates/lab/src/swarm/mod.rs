//! Whole lives of a target in the simulated world, each drawn from a seed: cores, limits, devices,
//! tenants and volumes; hosts that keep to the rules and hosts that break them; a network, devices
//! and power that fail; an operator who changes everything meanwhile.
//!
//! What is checked in every life: each command is answered once, or its association has ended; a
//! read returns what was written; flushed data survive a power cut; no tenant reads another
//! tenant's data; when all hosts have gone nothing of them is left, and a new one is served; a
//! shutdown ends; nothing panics, and nothing loops without progress.
//!
//! | module | holds |
//! | --- | --- |
//! | `plan` | what a seed decides |
//! | `life` | one life, from the start of the target to its end |
//! | `site`, `trouble` | the target and its volumes; what happens to them |
//! | `library`, `plain`, [`hostile`] | hosts |
//! | `judge`, `content`, `stamp` | which answers may be; what volumes may hold; what blocks are filled with |

mod content;
pub mod hostile;
mod judge;
mod library;
mod life;
mod panics;
mod plain;
mod plan;
mod site;
pub mod stamp;
mod trouble;

pub use life::{Life, examine, live};
pub use plan::{Fault, Plan, UnknownFault};
