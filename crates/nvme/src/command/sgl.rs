//! SGL descriptors: where the data of a command is (Base Specification, SGL section; NVMe/TCP, data
//! transfer).

use crate::bytes::Field;

/// The SGL descriptor 1 of a command (bytes 24 to 39), by its type.
///
/// NVMe/TCP uses two forms: data that follows in the capsule, and data that the transport moves in
/// data PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sgl {
    /// Type 0, subtype 1 (01h): Data Block with an offset: the data are in the capsule, `offset`
    /// bytes after ICDOFF.
    InCapsule {
        /// Offset into the in-capsule data, bytes.
        offset: u64,
        /// Length, bytes.
        length: u32,
    },
    /// Type 5, subtype Ah (5Ah): Transport SGL Data Block: the data travel in H2CData or C2HData
    /// PDUs.
    Transport {
        /// Length, bytes.
        length: u32,
    },
    /// Type 0, subtype 0 (00h): Data Block with a memory address. Meaningful on PCIe only; on
    /// fabrics a descriptor of zeroes is what a command without data carries.
    Address {
        /// Memory address.
        address: u64,
        /// Length, bytes.
        length: u32,
    },
    /// Type 4, subtype 0 or Fh (40h, 4Fh): Keyed Data Block, an RDMA form.
    Keyed {
        /// The identifier byte.
        identifier: u8,
    },
    /// Type 2 or 3 (Segment, Last Segment), type 1 (Bit Bucket) and everything else: not supported
    /// here.
    Other {
        /// The identifier byte: type in bits 7:4, subtype in bits 3:0.
        identifier: u8,
    },
}

impl Sgl {
    const ADDRESS: u8 = 0x00;
    const IN_CAPSULE: u8 = 0x01;
    const KEYED: u8 = 0x40;
    const KEYED_INVALIDATE: u8 = 0x4f;
    const TRANSPORT: u8 = 0x5a;

    /// Reads a descriptor. Reserved bytes are ignored.
    #[inline]
    pub fn parse(raw: &[u8; 16]) -> Self {
        let address: u64 = Field::get(raw, 0);
        let length: u32 = Field::get(raw, 8);
        let identifier = raw[15];
        match identifier {
            Self::IN_CAPSULE => Self::InCapsule {
                offset: address,
                length,
            },
            Self::TRANSPORT => Self::Transport { length },
            Self::ADDRESS => Self::Address { address, length },
            Self::KEYED | Self::KEYED_INVALIDATE => Self::Keyed { identifier },
            _ => Self::Other { identifier },
        }
    }

    /// Writes the descriptor. [`Sgl::Keyed`] and [`Sgl::Other`] write the identifier only.
    #[inline]
    pub fn encode(self) -> [u8; 16] {
        let (address, length, identifier) = match self {
            Self::InCapsule { offset, length } => (offset, length, Self::IN_CAPSULE),
            Self::Transport { length } => (0, length, Self::TRANSPORT),
            Self::Address { address, length } => (address, length, Self::ADDRESS),
            Self::Keyed { identifier } | Self::Other { identifier } => (0, 0, identifier),
        };
        let mut raw = [0; 16];
        address.put(&mut raw, 0);
        length.put(&mut raw, 8);
        raw[15] = identifier;
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_both_ways() {
        let table: [(Sgl, [u8; 16]); 4] = [
            (
                Sgl::InCapsule {
                    offset: 0,
                    length: 0x1000,
                },
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 1],
            ),
            (
                Sgl::Transport { length: 0x2_0200 },
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0x5a],
            ),
            (
                Sgl::Address {
                    address: 0x0102_0304_0506_0708,
                    length: 1,
                },
                [8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                Sgl::Other { identifier: 0x30 },
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x30],
            ),
        ];
        for (sgl, raw) in table {
            assert_eq!(sgl.encode(), raw);
            assert_eq!(Sgl::parse(&raw), sgl);
        }
    }

    #[test]
    fn reserved_bytes_are_ignored_and_unknown_types_kept() {
        let mut raw = Sgl::Transport { length: 7 }.encode();
        raw[12..15].fill(0xff);
        assert_eq!(Sgl::parse(&raw), Sgl::Transport { length: 7 });
        for identifier in 0..=255u8 {
            raw[15] = identifier;
            let known = [0x00, 0x01, 0x40, 0x4f, 0x5a].contains(&identifier);
            assert_eq!(matches!(Sgl::parse(&raw), Sgl::Other { .. }), !known);
        }
    }
}
