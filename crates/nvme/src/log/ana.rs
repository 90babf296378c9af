//! Asymmetric Namespace Access log (0Ch): a header, then a descriptor of each group with its
//! namespaces behind it.

use crate::bytes::{Field, structure};

structure! {
    /// Header of the ANA log.
    pub struct AnaLogHeader: 16 {
        /// Change Count.
        change_count: u64 = 0,
        /// Number of ANA Group Descriptors.
        groups: u16 = 8,
    }
}

/// State of an ANA group on this controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnaState(pub u8);

impl AnaState {
    /// Optimized.
    pub const OPTIMIZED: Self = Self(0x1);
    /// Non-Optimized.
    pub const NON_OPTIMIZED: Self = Self(0x2);
    /// Inaccessible.
    pub const INACCESSIBLE: Self = Self(0x3);
    /// Persistent Loss.
    pub const PERSISTENT_LOSS: Self = Self(0x4);
    /// Change.
    pub const CHANGE: Self = Self(0xf);
}

impl Field for AnaState {
    fn get(from: &[u8], at: usize) -> Self {
        Self(from[at] & 0xf)
    }

    fn put(&self, to: &mut [u8], at: usize) {
        to[at] = self.0 & 0xf;
    }
}

structure! {
    /// Descriptor of an ANA group; `nsids` NSIDs of 4 bytes follow it unless only groups were asked
    /// for.
    pub struct AnaGroup: 32 {
        /// ANA Group ID, not 0.
        group: u32 = 0,
        /// Number of NSID Values that follow.
        nsids: u32 = 4,
        /// Change Count of this group.
        change_count: u64 = 8,
        /// State.
        state: AnaState = 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_both_ways() {
        let header = AnaLogHeader {
            change_count: 0x0102,
            groups: 3,
        };
        let mut data = [0xaa; 16];
        header.encode(&mut data);
        assert_eq!(data, [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(AnaLogHeader::decode(&data), header);

        let group = AnaGroup {
            group: 1,
            nsids: 2,
            change_count: 3,
            state: AnaState::CHANGE,
        };
        let mut data = [0xaa; 32];
        group.encode(&mut data);
        assert_eq!(
            data[..17],
            [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xf]
        );
        assert_eq!(data[17..], [0; 15]);
        data[16..].fill(0xff);
        assert_eq!(
            AnaGroup::decode(&data),
            group,
            "reserved bits do not matter"
        );
    }
}
