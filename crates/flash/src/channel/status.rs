//! How commands of an open-channel device end.

use core::fmt;

/// How a command, or one of its addresses, ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    #[default]
    Success,
    /// A write that does not consist of whole write units, or a reset of what is not the first
    /// sector of a chunk.
    InvalidField,
    /// More chunks would be open than a parallel unit may have.
    TooManyOpen,
    /// No such address.
    OutOfRange,
    /// A read of what is not written, is being reset, or has too little written behind it to be
    /// read.
    Unwritten,
    /// A read of what cannot be corrected. The data are lost.
    Unreadable,
    /// The chunk is offline: it was bad from the factory, is worn out, or its reset has just
    /// failed.
    Offline,
    /// A reset of a chunk that may not be reset now: the capabilities forbid it, or it is written
    /// or reset already.
    InvalidReset,
    /// The write failed, or an earlier one of the same chunk did: the chunk is closed and ends
    /// where its write pointer is. What is not readable has to be written elsewhere.
    ClosedEarly,
    /// A write that is not at the write pointer, or to a chunk that is neither free nor open.
    OutOfOrder,
}

impl Status {
    /// Status code type and status code, of NVMe or of the Open-Channel SSD specification 2.0.
    pub fn code(self) -> (u8, u8) {
        match self {
            Self::Success => (0, 0x00),
            Self::InvalidField => (0, 0x02),
            Self::TooManyOpen => (0, 0x0C),
            Self::OutOfRange => (0, 0x80),
            Self::Unwritten => (2, 0x87),
            Self::Unreadable => (2, 0x81),
            Self::Offline => (2, 0xC0),
            Self::InvalidReset => (2, 0xC1),
            Self::ClosedEarly => (2, 0xF1),
            Self::OutOfOrder => (2, 0xF2),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "done",
            Self::InvalidField => "not whole write units, or not the first sector of a chunk",
            Self::TooManyOpen => "too many chunks of the parallel unit are open",
            Self::OutOfRange => "no such address",
            Self::Unwritten => "not written, or too little behind it",
            Self::Unreadable => "the data cannot be read any more",
            Self::Offline => "the chunk is offline",
            Self::InvalidReset => "the chunk may not be reset now",
            Self::ClosedEarly => "the chunk was closed early",
            Self::OutOfOrder => "not at the write pointer of a chunk that can be written",
        })
    }
}
