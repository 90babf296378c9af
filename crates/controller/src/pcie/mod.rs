//! An NVMe controller on PCIe, as registers, queues and pages (Base Specification, section 3; NVMe
//! over PCIe Transport Specification). Pure: whoever offers the function moves the bytes between
//! this and the memory of the guest.
//!
//! | module | holds |
//! | --- | --- |
//! | [`registers`] | CAP, CC, CSTS, the Admin queue: BAR 0 below the doorbells |
//! | [`config_space`] | the PCI configuration space with its capabilities |
//! | [`msix`] | the MSI-X table and its pending bits |
//! | [`queues`] | Create and Delete of I/O queues, doorbells, heads and tails, phase |
//! | [`prp`] | where the data of a command are: PRP entries and lists |
//! | [`shadow`] | shadow doorbells with event index |
//! | [`moderation`] | when an interrupt is due: interrupt coalescing |

pub mod config_space;
pub mod moderation;
pub mod msix;
pub mod prp;
pub mod queues;
pub mod registers;
pub mod shadow;

#[cfg(test)]
mod tests;

pub use config_space::{ConfigChange, ConfigSpace, Identity};
pub use moderation::{InterruptCoalescing, Moderation};
pub use msix::Msix;
pub use prp::Segment;
pub use queues::{
    Bounds, CompletionQueue, Doorbell, InvalidDoorbell, Need, NewQueue, Queues, Slot,
    SubmissionQueue,
};
pub use registers::{AdminQueues, BadAccess, Change, Registers};

/// Size of a memory page: CC.MPS is always 0.
pub const PAGE: u64 = 4096;
/// Where doorbells begin in BAR 0.
pub const DOORBELLS: u64 = 0x1000;
/// Size of BAR 0: registers, and doorbells of up to 1,535 I/O queues.
pub const BAR0_BYTES: u64 = 0x4000;
