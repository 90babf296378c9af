//! The world, behind one face: a single-threaded executor per core with two drivers. `uring` runs
//! on the real machine over io_uring; `sim` runs any number of simulated machines in one thread, in
//! virtual time, by seed. Everything above (block stack, engine, host library) is written once
//! against [`Rt`] and runs in both.
//!
//! Map: [`Rt`] in `rt` and the turn in `executor`; tasks in `task` and `pool`, their wakers in
//! `wake`, timers in `timer`, `sleep` and `timeout`; sockets in `net`; files and block devices in
//! `file`, zones of those in `zone`; page-aligned buffers in `buffer` with their memory in
//! `memory`, and what is sent in `gather`; waiting for each other within a core in `sync`, between
//! cores in `channel`; operations in flight in `op`, receives that need none in `direct`, and the
//! boundary to the drivers in `driver`.

mod buffer;
pub mod channel;
mod direct;
mod driver;
mod executor;
mod file;
mod gather;
mod memory;
mod net;
mod op;
mod pool;
mod rt;
mod shared;
pub mod sim;
mod sleep;
pub mod sync;
mod task;
mod timeout;
mod timer;
pub mod uring;
mod wake;
mod zone;

pub use buffer::{Buf, Chunk, Data, PAGE};
pub use file::{File, FileInfo, FileKind, OpenOptions};
pub use gather::Gather;
pub use net::{Detached, RecvIntoBothOp, RecvIntoOp, RecvOp, SendOp, TcpListener, TcpStream};
pub use op::{ControlOp, ReadOp, WriteOp};
pub use pool::CommandPool;
pub use rt::Rt;
pub use shared::{Parts, Shared};
pub use sleep::{Sleep, TurnEnd};
pub use task::Task;
pub use zone::{Zone, ZoneKind, ZoneModel, ZoneState, Zoned, ZonesOp};
