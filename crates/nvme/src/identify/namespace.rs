//! Identify Namespace: for the NVM command set (CNS 00h and 05h) and independent of it (CNS 08h).

use crate::bytes::{Field, structure};

structure! {
    /// Identify Namespace data structure (CNS 00h). All zero for a namespace that is not active.
    pub struct IdentifyNamespace: 4096 {
        /// Namespace Size, logical blocks.
        nsze: u64 = 0,
        /// Namespace Capacity, logical blocks.
        ncap: u64 = 8,
        /// Namespace Utilization, logical blocks.
        nuse: u64 = 16,
        /// Namespace Features.
        nsfeat: u8 = 24,
        /// Number of LBA Formats, zero-based.
        nlbaf: u8 = 25,
        /// Formatted LBA Size: bits 3:0 the format in use.
        flbas: u8 = 26,
        /// Metadata Capabilities.
        mc: u8 = 27,
        /// End-to-end Data Protection Capabilities.
        dpc: u8 = 28,
        /// End-to-end Data Protection Type Settings.
        dps: u8 = 29,
        /// Multi-path I/O and Sharing: bit 0 shared.
        nmic: u8 = 30,
        /// Reservation Capabilities.
        rescap: u8 = 31,
        /// Format Progress Indicator.
        fpi: u8 = 32,
        /// Deallocate Logical Block Features: bits 2:0 what reads return (1 zeroes), bit 3 Write
        /// Zeroes deallocates.
        dlfeat: u8 = 33,
        /// Namespace Atomic Write Unit Normal, logical blocks, zero-based.
        nawun: u16 = 34,
        /// Namespace Atomic Write Unit Power Fail, logical blocks, zero-based.
        nawupf: u16 = 36,
        /// Namespace Atomic Compare and Write Unit, logical blocks, zero-based.
        nacwu: u16 = 38,
        /// Namespace Optimal I/O Boundary, logical blocks.
        noiob: u16 = 46,
        /// NVM Capacity, bytes.
        nvmcap: u128 = 48,
        /// Namespace Preferred Write Granularity, logical blocks, zero-based.
        npwg: u16 = 64,
        /// Namespace Preferred Write Alignment, logical blocks, zero-based.
        npwa: u16 = 66,
        /// Namespace Preferred Deallocate Granularity, logical blocks, zero-based.
        npdg: u16 = 68,
        /// Namespace Preferred Deallocate Alignment, logical blocks, zero-based.
        npda: u16 = 70,
        /// Namespace Optimal Write Size, logical blocks, zero-based.
        nows: u16 = 72,
        /// Maximum Single Source Range Length of Copy, logical blocks.
        mssrl: u16 = 74,
        /// Maximum Copy Length, logical blocks.
        mcl: u32 = 76,
        /// Maximum Source Range Count of Copy, zero-based.
        msrc: u8 = 80,
        /// ANA Group Identifier.
        anagrpid: u32 = 92,
        /// Namespace Attributes: bit 0 write protected.
        nsattr: u8 = 99,
        /// NVM Set Identifier.
        nvmsetid: u16 = 100,
        /// Endurance Group Identifier.
        endgid: u16 = 102,
        /// Namespace Globally Unique Identifier, big-endian.
        nguid: [u8; 16] = 104,
        /// IEEE Extended Unique Identifier, big-endian.
        eui64: [u8; 8] = 120,
        /// LBA formats.
        lbaf: [LbaFormat; 16] = 128,
    }
}

impl IdentifyNamespace {
    /// NSFEAT: thin provisioning.
    pub const NSFEAT_THIN: u8 = 1;
    /// NSFEAT: NAWUN, NAWUPF and NACWU hold for this namespace.
    pub const NSFEAT_ATOMICITY: u8 = 1 << 1;
    /// NSFEAT: NGUID and EUI64 are never used again.
    pub const NSFEAT_UNIQUE_IDS: u8 = 1 << 3;
    /// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS are reported.
    pub const NSFEAT_OPTIMAL_SIZES: u8 = 1 << 4;
    /// DLFEAT: deallocated blocks read as zeroes.
    pub const DLFEAT_ZEROES: u8 = 1;
    /// DLFEAT: Write Zeroes may deallocate.
    pub const DLFEAT_WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
    /// NMIC: may be attached to more than one controller.
    pub const NMIC_SHARED: u8 = 1;
    /// NSATTR: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1;

    /// The LBA format in use; `None` if FLBAS points past the 16 formats that are looked at.
    pub fn format(&self) -> Option<LbaFormat> {
        // FLBAS bits 6:5 are the upper bits of the index when there are more than 16 formats.
        if self.nlbaf >= 16 && self.flbas & 0x60 != 0 {
            return None;
        }
        self.lbaf.get(usize::from(self.flbas & 0xf)).copied()
    }

    /// Bytes of a logical block; `None` if the format in use is not one of 512 B to 2 GiB.
    pub fn block_size(&self) -> Option<u32> {
        let lbads = self.format()?.lbads;
        (9..=31).contains(&lbads).then(|| 1 << lbads)
    }
}

/// An LBA Format: how big a logical block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LbaFormat {
    /// Metadata Size, bytes.
    pub ms: u16,
    /// LBA Data Size, 2^n bytes; below 9 the format is not available.
    pub lbads: u8,
    /// Relative Performance: 0 best to 3 degraded.
    pub rp: u8,
}

impl Field for [LbaFormat; 16] {
    fn get(from: &[u8], at: usize) -> Self {
        core::array::from_fn(|i| {
            let [ms0, ms1, lbads, rp] = Field::get(from, at + i * 4);
            LbaFormat {
                ms: u16::from_le_bytes([ms0, ms1]),
                lbads,
                rp: rp & 3,
            }
        })
    }

    fn put(&self, to: &mut [u8], at: usize) {
        for (i, format) in self.iter().enumerate() {
            let [ms0, ms1] = format.ms.to_le_bytes();
            [ms0, ms1, format.lbads, format.rp & 3].put(to, at + i * 4);
        }
    }
}

structure! {
    /// I/O Command Set specific Identify Namespace for the NVM command set (CNS 05h, CSI 0).
    pub struct IdentifyNamespaceNvm: 4096 {
        /// Logical Block Storage Tag Mask.
        lbstm: u64 = 0,
        /// Protection Information Capabilities.
        pic: u8 = 8,
    }
}

structure! {
    /// I/O Command Set Independent Identify Namespace (CNS 08h).
    pub struct IdentifyNamespaceIndependent: 4096 {
        /// Common Namespace Features: bit 3 unique ids, bit 4 rotational medium.
        nsfeat: u8 = 0,
        /// Multi-path I/O and Sharing: bit 0 shared.
        nmic: u8 = 1,
        /// Reservation Capabilities.
        rescap: u8 = 2,
        /// Format Progress Indicator.
        fpi: u8 = 3,
        /// ANA Group Identifier.
        anagrpid: u32 = 4,
        /// Namespace Attributes: bit 0 write protected.
        nsattr: u8 = 8,
        /// NVM Set Identifier.
        nvmsetid: u16 = 10,
        /// Endurance Group Identifier.
        endgid: u16 = 12,
        /// Namespace Status: bit 0 ready.
        nstat: u8 = 14,
    }
}

impl IdentifyNamespaceIndependent {
    /// NSTAT: ready.
    pub const NSTAT_READY: u8 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_bytes_both_ways() {
        let mut lbaf = [LbaFormat::default(); 16];
        lbaf[0] = LbaFormat {
            ms: 0x0102,
            lbads: 12,
            rp: 1,
        };
        let namespace = IdentifyNamespace {
            nsze: 0x0102_0304_0506_0708,
            ncap: 2,
            nuse: 3,
            dlfeat: 9,
            nawupf: 0x0a0b,
            anagrpid: 1,
            nsattr: 1,
            nguid: *b"0123456789abcdef",
            eui64: *b"ABCDEFGH",
            lbaf,
            ..IdentifyNamespace::default()
        };
        let mut data = [0xaa; 4096];
        namespace.encode(&mut data);
        assert_eq!(IdentifyNamespace::decode(&data), namespace);
        for (at, bytes) in [
            (0, &[8u8, 7, 6, 5, 4, 3, 2, 1, 2][..]),
            (16, &[3]),
            (33, &[9, 0, 0, 0x0b, 0x0a]),
            (92, &[1, 0, 0, 0, 0, 0, 0, 1]),
            (104, b"0123456789abcdefABCDEFGH"),
            (128, &[2, 1, 12, 1, 0, 0, 0, 0]),
        ] {
            assert_eq!(&data[at..at + bytes.len()], bytes, "at {at}");
        }
        assert!(data[132..].iter().all(|b| *b == 0));
        assert_eq!(namespace.block_size(), Some(4096));
    }

    #[test]
    fn a_hostile_format_is_no_block_size() {
        let mut namespace = IdentifyNamespace::default();
        assert_eq!(namespace.block_size(), None);
        namespace.lbaf[3].lbads = 32;
        namespace.flbas = 3;
        assert_eq!(namespace.block_size(), None);
        namespace.lbaf[3].lbads = 9;
        assert_eq!(namespace.block_size(), Some(512));
        (namespace.nlbaf, namespace.flbas) = (63, 0x23);
        assert_eq!(namespace.block_size(), None);
    }

    #[test]
    fn independent_bytes() {
        let namespace = IdentifyNamespaceIndependent {
            nmic: 1,
            anagrpid: 7,
            nstat: 1,
            ..Default::default()
        };
        let mut data = [0xaa; 4096];
        namespace.encode(&mut data);
        assert_eq!(data[..16], [0, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(IdentifyNamespaceIndependent::decode(&data), namespace);
        let nvm = IdentifyNamespaceNvm { lbstm: 1, pic: 2 };
        nvm.encode(&mut data);
        assert_eq!(data[..10], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    }
}
