//! The store as a state machine.

mod apply;
mod cache;
mod check;
mod checkpoint;
mod collector;
mod flusher;
mod host;
mod io;
mod issue;
mod lane;
mod lookup;
mod map;
mod map_write;
mod read;
mod reads;
mod recovery;
mod replay;
mod scan;
mod segments;
mod state;
mod step;

pub use check::{Problem, Report};
pub use io::{
    Action, Io, IoError, IoOp, MOST_CHUNKS, MOST_TRIM, Outcome, Part, Refused, Request, Tag,
};
pub use recovery::OpenError;
pub use segments::Geometry;
pub use state::{MOST_VOLUMES, Options, Space, State, Stats, Store, Volume};
