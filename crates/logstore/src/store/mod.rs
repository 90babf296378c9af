//! The store as a state machine.

mod accounts;
mod apply;
mod cache;
mod check;
mod checkpoint;
mod collector;
mod diff;
mod differ;
mod flusher;
mod growth;
mod host;
mod io;
mod issue;
mod lane;
mod layers;
mod lookup;
mod map;
mod map_write;
mod merge;
mod payers;
mod read;
mod reads;
mod recovery;
mod replay;
mod room;
mod scan;
mod scrub;
mod scrubber;
mod segments;
mod snapshot;
mod split;
mod state;
mod step;
mod verify;

pub use accounts::Owned;
pub use check::{Problem, Report};
pub use differ::{Difference, MOST_RANGES};
pub use io::{
    Action, Io, IoError, IoOp, MOST_BLOCKS, MOST_TRIM, Outcome, Part, Read, Refused, Request, Tag,
};
pub use payers::Parts;
pub use recovery::OpenError;
pub use room::RESERVED_UNIT;
pub use scrubber::Scrubbed;
pub use segments::{Geometry, Growth};
pub use state::{
    MOST_SNAPSHOTS, MOST_VOLUMES, Options, ReadOnly, Space, State, Stats, Store, Tally, Volume,
};
