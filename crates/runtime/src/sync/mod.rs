//! Synchronisation within one core: no atomics, no locks, no allocation once the lists have grown
//! to their usual length. Every future here may be dropped at any moment: a waiter that leaves
//! passes on what it was given.

mod notify;
pub mod oneshot;
mod semaphore;
mod wait_list;

pub use notify::Notify;
pub use semaphore::Semaphore;
