//! The runtime: a single-threaded executor per core with two drivers. `uring` runs on the real
//! machine over io_uring; `sim` runs any number of simulated machines in one thread, in virtual
//! time, by seed. Everything above (block stack, engine, host library) is written once against
//! [`Rt`] and runs in both.
//!
//! Map: [`Rt`] in `rt` and the turn in `executor`; tasks in `task` and `pool`, their wakers in
//! `wake`, timers in `timer`, `sleep` and `timeout`; sockets in `net`; files and block devices in
//! `file`, zones of those in `zone`; unix sockets and event counters in `unix`, memory shared with
//! other processes in `shared_memory`, which a core looks at by `watch`
//! and lends to operations by `lent`, and the end of all that in
//! `remains` (simulated machines: `done`); page-aligned buffers in
//! `buffer` with their memory in `memory`, and what is sent in `gather`; waiting for each other
//! within a core in `sync`, between cores in `channel`.
//!
//! Below the executor: `handle` holds open sockets and files; `op` defines operations, `table`
//! keeps those in flight and `ticket` names them; `direct` keeps receives that need no place in the
//! table; `driver` is the boundary to the drivers. Above it, an operation's future is a `flight`.

mod buffer;
pub mod channel;
mod descriptor;
mod direct;
mod done;
mod driver;
mod executor;
mod file;
mod flight;
mod gather;
mod handle;
mod lent;
mod memory;
mod net;
mod op;
mod pool;
mod remains;
mod rt;
mod shared;
pub mod shared_memory;
pub mod sim;
mod sleep;
pub mod sync;
mod table;
mod task;
mod ticket;
mod timeout;
mod timer;
pub mod unix;
pub mod uring;
mod wake;
mod watch;
mod zone;

pub use buffer::{Buf, Chunk, Data, PAGE};
pub use file::{ControlOp, File, LentOp, ReadOp, WriteOp, ZonesOp};
pub use gather::Gather;
pub use handle::{FileInfo, FileKind, OpenOptions};
pub use lent::{Lent, Loans};
pub use net::{Detached, RecvIntoBothOp, RecvIntoOp, RecvOp, SendOp, TcpListener, TcpStream};
pub use pool::CommandPool;
pub use rt::Rt;
pub use shared::{Parts, Shared};
pub use sleep::{Sleep, TurnEnd};
pub use task::Task;
pub use watch::{Watch, Watched};
pub use zone::{Zone, ZoneKind, ZoneModel, ZoneState, Zoned};
