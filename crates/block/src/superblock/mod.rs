//! Framed, checksummed metadata of a device, stored at two places.
//!
//! A change is written to the copy that is not the newest, made durable, and then written to the
//! other one. So a power cut at any write leaves at least one copy whole, with the state before or
//! after the change; and between changes both copies are equal, so that losing one of them loses
//! nothing.
//!
//! Map: `frame` is the bytes of one copy around its [`Content`], which `fields` reads and writes;
//! `copies` is both copies at their [`Places`], and which of them counts; `report` tells what is
//! wrong with them.

mod copies;
mod fields;
mod frame;
mod report;

pub use copies::{
    Found, Newest, Other, Places, Prepared, Raw, Reads, Unusable, WritablePlaces, commit, find,
    prepare, repair,
};
pub use fields::{Reader, Writer};
pub use frame::{Content, Decoded, decode, encode, seal};
pub use report::{COPY_NAMES, CopyReport, Repair, repairs};
