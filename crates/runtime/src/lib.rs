//! The world, behind one face: a single-threaded executor per core with two drivers. `uring` runs on the real
//! machine over io_uring; `sim` runs any number of simulated machines in one thread, in virtual time, by seed.
//! Everything above (block stack, engine, host library) is written once against [`Rt`] and runs in both.
//!
//! Map: [`Rt`] and tasks in `executor`; sockets in `net`; files and block devices in `file`; page-aligned
//! buffers and what is sent in `buffer`; waiting for each other within a core in `sync`; between cores in
//! `channel`; operations and the boundary to the drivers in `op` and `driver`.

mod buffer;
pub mod channel;
mod driver;
mod executor;
mod file;
mod net;
mod op;
pub mod sim;
pub mod sync;
pub mod uring;

pub use buffer::{Buf, Chunk, Data, Gather, PAGE};
pub use executor::{CommandPool, Rt, Sleep, Task, TurnEnd};
pub use file::{File, FileInfo, FileKind, OpenOptions};
pub use net::{Detached, TcpListener, TcpStream};
pub use op::{ControlOp, RecvIntoOp, RecvOp, SendOp, TransferOp};
