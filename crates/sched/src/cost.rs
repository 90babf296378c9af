//! What I/O has really cost below a switch.

use core::ops::{AddAssign, Sub};

/// Bytes that devices have moved for a tenant: for its I/O, and for what it has caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read.
    pub read: u64,
    /// Bytes written, parity and copies included.
    pub written: u64,
    /// How many of both were upkeep: garbage collection and metadata, which no I/O has asked for.
    pub upkeep: u64,
}

impl Cost {
    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.read + self.written == 0
    }

    /// So many parts of all of it; nothing where there are no parts.
    #[must_use]
    pub fn part(self, part: u64, all: u64) -> Self {
        let of =
            |whole: u64| (u128::from(whole) * u128::from(part) / u128::from(all.max(1))) as u64;
        Self {
            read: of(self.read),
            written: of(self.written),
            upkeep: of(self.upkeep),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.read += more.read;
        self.written += more.written;
        self.upkeep += more.upkeep;
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self {
            read: self.read - less.read,
            written: self.written - less.written,
            upkeep: self.upkeep - less.upkeep,
        }
    }
}
