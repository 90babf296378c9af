//! How an open-channel device behaves beyond its profile.

use super::Faults;
use crate::die::Order;

/// How a device behaves beyond its profile. The default is hardware of the first generation:
/// first come, first served, no buffer, no failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// In which order a die serves what waits for it.
    pub dies: DieOrder,
    /// In which order a channel serves its dies.
    pub channels: ChannelOrder,
    /// A write is complete once the die has its data, before they are programmed.
    pub buffered: bool,
    /// What is complete but not programmed is programmed even when the power goes.
    pub buffer_protected: bool,
    /// A free chunk may be reset.
    pub reset_free: bool,
    /// An open chunk may be reset.
    pub reset_open: bool,
    /// Chunks of a parallel unit that may be open at once; 0 for any number.
    pub open_chunks_per_pu: u32,
    /// Resets after which a chunk goes offline; 0 for any number.
    pub endurance: u32,
    /// Variation of the program time, in thousandths, equally likely in both directions. Without
    /// it, dies that write without pause run in lockstep, and meet each other on their channel less
    /// than real ones do.
    pub program_spread: u16,
    /// Random failures.
    pub faults: Faults,
}

/// In which order a die serves what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DieOrder {
    /// What came first.
    Fifo,
    /// Reads before programs and erases that have not begun; so many in a row.
    ReadPriority {
        /// Reads that may overtake what else waits, at least one.
        bypass: u16,
    },
    /// As [`DieOrder::ReadPriority`], and a read suspends a program or erase in flight.
    Suspend {
        /// Reads that may overtake what else waits, at least one.
        bypass: u16,
        /// How often one program or erase may be suspended.
        suspends: u8,
    },
}

/// In which order a channel serves its dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelOrder {
    /// What came first, all of its data at once.
    Fifo,
    /// Data of reads first, between pieces of 16 KiB.
    ReadsFirst,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dies: DieOrder::Fifo,
            channels: ChannelOrder::Fifo,
            buffered: false,
            buffer_protected: false,
            reset_free: false,
            reset_open: true,
            open_chunks_per_pu: 0,
            endurance: 0,
            program_spread: 0,
            faults: Faults::default(),
        }
    }
}

impl Options {
    pub(super) fn order(&self) -> Order {
        let (die_in_turn, bypass, suspends) = match self.dies {
            DieOrder::Fifo => (true, 1, 0),
            DieOrder::ReadPriority { bypass } => (false, bypass.max(1), 0),
            DieOrder::Suspend { bypass, suspends } => (false, bypass.max(1), suspends),
        };
        Order {
            die_in_turn,
            channel_in_turn: self.channels == ChannelOrder::Fifo,
            bypass,
            suspends,
        }
    }
}
