//! Why an array cannot be made, opened or changed.

use std::fmt;

use super::assembly::NoRecord;
use super::geometry::{MAX_COPIES, MAX_MEMBERS, MAX_SPANS};
use super::rows::MAX_COLUMNS;
use crate::IoError;

/// See the module. `Display` is one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayError {
    /// So many members cannot be sets of so many copies.
    Members(usize, usize),
    /// So many members cannot be rows with so many columns of parity.
    Columns(usize, usize),
    /// There is nothing to compare where there is parity.
    SafeRead,
    /// So many devices are no sets of so many columns.
    Groups(usize, usize),
    /// More members or parts than an array can have.
    TooMany,
    /// A device has not the block size of the others: its name, its block size, theirs.
    BlockSize(String, u32, u32),
    /// A device is too small: its name, its size and the least, in bytes.
    TooSmall(String, u64, u64),
    /// A device holds something: its name, and what.
    Occupied(String, String),
    /// No device at hand is a member; what each of them is.
    NoMember(Vec<String>),
    /// Two devices are members of different arrays.
    Foreign(String, String),
    /// Two devices say that they are the same member.
    Twin(String, String),
    /// Two members were used apart from each other.
    Diverged(String, String),
    /// A member was made by a later program: its name and the version of its layout.
    Newer(String, u32),
    /// A part of the data is on none of the members at hand; those that are missing.
    NoCopy(Vec<String>),
    /// No member of a set that has later data than these is at hand.
    AllOld(Vec<String>),
    /// Members that are missing may have gone on without those at hand.
    MayBeOld(Vec<String>),
    /// There is no such member.
    NotAMember(String),
    /// The device is a member already.
    IsMember(String),
    /// A member cannot be taken away: others lack what it has.
    Needed(String),
    /// A member is being rebuilt: one at a time in a set.
    Rebuilding(String),
    /// I/O that was given to a device while it was a member has not ended: its name.
    Unfinished(String),
    /// A device failed: its name, what was being done, what the device said.
    Device(String, &'static str, IoError),
    /// The array is being closed.
    Closed,
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(members, copies) => write!(
                f,
                "{members} devices cannot be sets of {copies} copies: give a multiple of the copies (1 to {MAX_COPIES}), and at least one set"
            ),
            Self::Columns(members, parity) => write!(
                f,
                "{members} devices cannot have parity for the loss of {parity}: give {} to {MAX_COLUMNS}",
                parity + 2
            ),
            Self::SafeRead => f.write_str(
                "safe_read compares copies, and with parity there are none: leave it out, since mapped pools verify what they read",
            ),
            Self::Groups(members, columns) => write!(
                f,
                "{members} devices cannot be sets of {columns}, which all sets of an array with parity have: give {columns} or a multiple of that"
            ),
            Self::TooMany => write!(
                f,
                "an array has at most {MAX_MEMBERS} members and {MAX_SPANS} parts: use a second pool"
            ),
            Self::BlockSize(name, own, others) => write!(
                f,
                "device {name} has blocks of {own} bytes and the others of {others}: all members have the same block_size"
            ),
            Self::TooSmall(name, bytes, least) => write!(
                f,
                "device {name} has {bytes} bytes and {least} are needed: use a larger one"
            ),
            Self::Occupied(name, what) => write!(
                f,
                "device {name} holds {what}: choose another one, or force it if that may be destroyed"
            ),
            Self::NoMember(notes) => write!(
                f,
                "none of the devices is a member of an array ({}): see to the devices, or create the array",
                notes.join("; ")
            ),
            Self::Foreign(one, other) => write!(
                f,
                "devices {one} and {other} are members of different arrays: name those of one array"
            ),
            Self::Twin(one, other) => write!(
                f,
                "devices {one} and {other} say that they are the same member: one is a copy of the other, so leave the copy out"
            ),
            Self::Diverged(one, other) => write!(
                f,
                "members {one} and {other} were used apart from each other and have different data: choose one, open the array \
                 without the other one as degraded, then replace that"
            ),
            Self::Newer(name, version) => write!(
                f,
                "device {name} was made by a later version (layout {version}): use that version"
            ),
            Self::NoCopy(missing) => write!(
                f,
                "a part of the data is on none of the devices at hand: bring {} back",
                either(missing)
            ),
            Self::AllOld(old) => write!(
                f,
                "{} older than the other members, which are too few without: bring {} back as it was used last, and not as an \
                 image of before",
                are(old),
                either(old)
            ),
            Self::MayBeOld(missing) => write!(
                f,
                "{} missing, and may have later data: bring it back, or if it was not used without the others start the array as \
                 degraded",
                are(missing)
            ),
            Self::NotAMember(name) => write!(
                f,
                "device {name} is not a member of the array: show lists those there are"
            ),
            Self::IsMember(name) => {
                write!(f, "device {name} is a member already: name another one")
            }
            Self::Needed(name) => write!(
                f,
                "member {name} has data that no other member has: replace it instead"
            ),
            Self::Rebuilding(name) => write!(
                f,
                "member {name} is being rebuilt: wait until that is done, or replace it"
            ),
            Self::Unfinished(name) => write!(
                f,
                "device {name} still has I/O from when it was a member, which may change it when it ends: wait until it has ended; if \
                 it hangs for good, take the device away and start the target again"
            ),
            Self::Device(name, action, error) => {
                write!(
                    f,
                    "{action} device {name} failed: {error:?}; see to the device"
                )
            }
            Self::Closed => f.write_str("the array is being closed: try again when it is open"),
        }
    }
}

impl std::error::Error for ArrayError {}

impl fmt::Display for NoRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it is no member of an array"),
            Self::Pool => f.write_str("it holds a pool of its own, and is no member of an array"),
            Self::Damaged([first, second]) => write!(
                f,
                "both copies of its superblock are unusable (first: {first}; second: {second})"
            ),
            Self::Newer(version) => {
                write!(f, "it was made by a later version (layout {version})")
            }
            Self::Unreadable(error) => write!(f, "it cannot be read ({error:?})"),
        }
    }
}

fn either(missing: &[String]) -> String {
    match missing {
        [] => "a member".to_owned(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

fn are(missing: &[String]) -> String {
    match missing {
        [one] => format!("member {one} is"),
        several => format!("members {} are", several.join(", ")),
    }
}
