//! Commands and completions: the 64-byte submission queue entry, the 16-byte completion queue entry
//! and their parts.

mod build;
mod completion;
mod opcode;
mod sgl;
mod status;
mod submission;

pub use completion::CompletionQueueEntry;
pub use opcode::{AdminOpcode, FabricsType, IoOpcode};
pub use sgl::Sgl;
pub use status::{Status, StatusCodeType};
pub use submission::{AccessLatency, Fuse, LbaRange, Psdt, SubmissionQueueEntry};
