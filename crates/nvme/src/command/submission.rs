//! The submission queue entry: 64 bytes (Base Specification, section 4.1), read in place.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{AdminOpcode, FabricsType, IoOpcode, Sgl};

/// A submission queue entry as on the wire. Any 64 bytes are one; what they mean is asked by the
/// accessors, and the accessors of a field are right only for commands that have it.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SubmissionQueueEntry {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) cid: U16,
    pub(super) nsid: U32,
    pub(super) cdw2: U32,
    pub(super) cdw3: U32,
    pub(super) metadata: U64,
    pub(super) sgl1: [u8; 16],
    pub(super) cdw: [U32; 6],
}

/// How the entry takes part in a fused operation (FUSE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuse {
    /// Not fused.
    Normal,
    /// The first of two.
    First,
    /// The second of two.
    Second,
    /// 11b.
    Reserved,
}

/// How data is described (PSDT). Fabrics allows SGLs only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Psdt {
    /// 00b: PRPs.
    Prp,
    /// 01b: SGL, metadata in one buffer.
    Sgl,
    /// 10b: SGL, metadata by SGL.
    SglMetadataSgl,
    /// 11b.
    Reserved,
}

/// How fast the host wants its data (Access Latency, CDW13 bits 5:4 of Read and Write).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessLatency {
    /// Nothing said.
    None,
    /// Longer latency is acceptable.
    Idle,
    /// Typical.
    Normal,
    /// As small as possible.
    Low,
}

/// A range of logical blocks, never empty, whose end does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LbaRange {
    /// First logical block.
    pub slba: u64,
    /// Count of blocks, 1 to 65,536 in a Read or Write.
    pub blocks: u32,
}

impl LbaRange {
    /// Whether the range ends within a namespace of `size` blocks; cannot wrap.
    #[inline]
    pub fn is_within(self, size: u64) -> bool {
        self.slba <= size && u64::from(self.blocks) <= size - self.slba
    }
}

impl SubmissionQueueEntry {
    /// Length in bytes.
    pub const LEN: usize = 64;

    /// The opcode byte.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The opcode, on the Admin queue.
    #[inline]
    pub fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.opcode)
    }

    /// The opcode, on an I/O queue.
    #[inline]
    pub fn io_opcode(&self) -> IoOpcode {
        IoOpcode(self.opcode)
    }

    /// Whether it is a fabrics command (opcode 7Fh).
    #[inline]
    pub fn is_fabrics(&self) -> bool {
        self.opcode == AdminOpcode::FABRICS.0
    }

    /// Type of a fabrics command.
    #[inline]
    pub fn fabrics_type(&self) -> FabricsType {
        FabricsType(self.nsid.as_bytes()[0])
    }

    /// FUSE, bits 1:0 of byte 1.
    #[inline]
    pub fn fuse(&self) -> Fuse {
        match self.flags & 3 {
            0 => Fuse::Normal,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// PSDT, bits 7:6 of byte 1.
    #[inline]
    pub fn psdt(&self) -> Psdt {
        match self.flags >> 6 {
            0 => Psdt::Prp,
            1 => Psdt::Sgl,
            2 => Psdt::SglMetadataSgl,
            _ => Psdt::Reserved,
        }
    }

    /// Command Identifier.
    #[inline]
    pub fn cid(&self) -> u16 {
        self.cid.get()
    }

    /// Namespace Identifier.
    #[inline]
    pub fn nsid(&self) -> u32 {
        self.nsid.get()
    }

    /// Command Dword 2.
    #[inline]
    pub fn cdw2(&self) -> u32 {
        self.cdw2.get()
    }

    /// Command Dword 3.
    #[inline]
    pub fn cdw3(&self) -> u32 {
        self.cdw3.get()
    }

    /// Metadata Pointer.
    #[inline]
    pub fn metadata_pointer(&self) -> u64 {
        self.metadata.get()
    }

    /// The raw SGL descriptor 1 (or PRP entries).
    #[inline]
    pub fn sgl1(&self) -> &[u8; 16] {
        &self.sgl1
    }

    /// The SGL descriptor 1.
    #[inline]
    pub fn sgl(&self) -> Sgl {
        Sgl::parse(&self.sgl1)
    }

    /// PRP Entry 1.
    #[inline]
    pub fn prp1(&self) -> u64 {
        crate::bytes::Field::get(&self.sgl1, 0)
    }

    /// PRP Entry 2.
    #[inline]
    pub fn prp2(&self) -> u64 {
        crate::bytes::Field::get(&self.sgl1, 8)
    }

    /// Command Dword 10.
    #[inline]
    pub fn cdw10(&self) -> u32 {
        self.cdw[0].get()
    }

    /// Command Dword 11.
    #[inline]
    pub fn cdw11(&self) -> u32 {
        self.cdw[1].get()
    }

    /// Command Dword 12.
    #[inline]
    pub fn cdw12(&self) -> u32 {
        self.cdw[2].get()
    }

    /// Command Dword 13.
    #[inline]
    pub fn cdw13(&self) -> u32 {
        self.cdw[3].get()
    }

    /// Command Dword 14.
    #[inline]
    pub fn cdw14(&self) -> u32 {
        self.cdw[4].get()
    }

    /// Command Dword 15.
    #[inline]
    pub fn cdw15(&self) -> u32 {
        self.cdw[5].get()
    }
}

/// Read, Write, Compare, Write Zeroes, Verify (NVM Command Set, section 3.3).
impl SubmissionQueueEntry {
    /// The first LBA that an I/O command names; `None` for those whose CDW10 and CDW11 are
    /// something else.
    pub fn starting_lba(&self) -> Option<u64> {
        match self.io_opcode() {
            IoOpcode::READ
            | IoOpcode::WRITE
            | IoOpcode::WRITE_UNCORRECTABLE
            | IoOpcode::COMPARE
            | IoOpcode::WRITE_ZEROES
            | IoOpcode::VERIFY => Some(u64::from(self.cdw11()) << 32 | u64::from(self.cdw10())),
            _ => None,
        }
    }

    /// Starting LBA and count; `None` if the end would pass 2^64.
    #[inline]
    pub fn lba_range(&self) -> Option<LbaRange> {
        let slba = u64::from(self.cdw11()) << 32 | u64::from(self.cdw10());
        let blocks = (self.cdw12() & 0xffff) + 1;
        slba.checked_add(u64::from(blocks))
            .map(|_| LbaRange { slba, blocks })
    }

    /// Force Unit Access (CDW12 bit 30).
    #[inline]
    pub fn fua(&self) -> bool {
        self.cdw12() & 1 << 30 != 0
    }

    /// Limited Retry (CDW12 bit 31).
    #[inline]
    pub fn limited_retry(&self) -> bool {
        self.cdw12() & 1 << 31 != 0
    }

    /// Protection Information field, PRACT and PRCHK (CDW12 bits 29:26).
    #[inline]
    pub fn prinfo(&self) -> u8 {
        (self.cdw12() >> 26) as u8 & 0xf
    }

    /// Deallocate (Write Zeroes, CDW12 bit 25).
    #[inline]
    pub fn deac(&self) -> bool {
        self.cdw12() & 1 << 25 != 0
    }

    /// Directive Type (CDW12 bits 23:20).
    #[inline]
    pub fn directive_type(&self) -> u8 {
        (self.cdw12() >> 20) as u8 & 0xf
    }

    /// Directive Specific value (CDW13 bits 31:16).
    #[inline]
    pub fn directive_specific(&self) -> u16 {
        (self.cdw13() >> 16) as u16
    }

    /// Access Latency hint (CDW13 bits 5:4).
    #[inline]
    pub fn access_latency(&self) -> AccessLatency {
        match self.cdw13() >> 4 & 3 {
            0 => AccessLatency::None,
            1 => AccessLatency::Idle,
            2 => AccessLatency::Normal,
            _ => AccessLatency::Low,
        }
    }

    /// Access Frequency hint (CDW13 bits 3:0); 7 is a speculative read, 6 a one-time read.
    #[inline]
    pub fn access_frequency(&self) -> u8 {
        self.cdw13() as u8 & 0xf
    }
}

/// Admin commands.
impl SubmissionQueueEntry {
    /// Identify: Controller or Namespace Structure (CDW10 bits 7:0).
    pub fn cns(&self) -> u8 {
        self.cdw10() as u8
    }

    /// Identify: Controller Identifier (CDW10 bits 31:16).
    pub fn identify_cntid(&self) -> u16 {
        (self.cdw10() >> 16) as u16
    }

    /// Identify: Command Set Identifier (CDW11 bits 31:24).
    pub fn identify_csi(&self) -> u8 {
        (self.cdw11() >> 24) as u8
    }

    /// Get Log Page: identifier (CDW10 bits 7:0).
    pub fn log_id(&self) -> u8 {
        self.cdw10() as u8
    }

    /// Get Log Page: Log Specific Parameter (CDW10 bits 14:8).
    pub fn log_lsp(&self) -> u8 {
        (self.cdw10() >> 8) as u8 & 0x7f
    }

    /// Get Log Page: Retain Asynchronous Event (CDW10 bit 15).
    pub fn log_rae(&self) -> bool {
        self.cdw10() & 1 << 15 != 0
    }

    /// Get Log Page: bytes asked for, from the zero-based count of dwords NUMDU:NUMDL.
    pub fn log_bytes(&self) -> u64 {
        let numd = u64::from(self.cdw11() & 0xffff) << 16 | u64::from(self.cdw10() >> 16);
        (numd + 1) * 4
    }

    /// Get Log Page: Log Page Offset in bytes (or an index, see [`Self::log_offset_is_index`]).
    pub fn log_offset(&self) -> u64 {
        u64::from(self.cdw13()) << 32 | u64::from(self.cdw12())
    }

    /// Get Log Page: Offset Type (CDW14 bit 23): the offset is an index of a list.
    pub fn log_offset_is_index(&self) -> bool {
        self.cdw14() & 1 << 23 != 0
    }

    /// Get Log Page: Command Set Identifier (CDW14 bits 31:24).
    pub fn log_csi(&self) -> u8 {
        (self.cdw14() >> 24) as u8
    }

    /// Get/Set Features: identifier (CDW10 bits 7:0).
    pub fn feature_id(&self) -> u8 {
        self.cdw10() as u8
    }

    /// Get Features: Select (CDW10 bits 10:8).
    pub fn feature_select(&self) -> u8 {
        (self.cdw10() >> 8) as u8 & 7
    }

    /// Set Features: Save (CDW10 bit 31).
    pub fn feature_save(&self) -> bool {
        self.cdw10() & 1 << 31 != 0
    }

    /// Abort: queue of the command to abort (CDW10 bits 15:0).
    pub fn abort_sqid(&self) -> u16 {
        self.cdw10() as u16
    }

    /// Abort: identifier of the command to abort (CDW10 bits 31:16).
    pub fn abort_cid(&self) -> u16 {
        (self.cdw10() >> 16) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry whose every byte is its own offset.
    fn counted() -> SubmissionQueueEntry {
        let bytes: [u8; 64] = core::array::from_fn(|i| i as u8);
        SubmissionQueueEntry::read_from_bytes(&bytes).expect("64 bytes")
    }

    #[test]
    fn every_field_is_at_its_place() {
        let entry = counted();
        assert_eq!(
            (entry.opcode(), entry.cid(), entry.nsid()),
            (0, 0x0302, 0x0706_0504)
        );
        assert_eq!((entry.cdw2(), entry.cdw3()), (0x0b0a_0908, 0x0f0e_0d0c));
        assert_eq!(entry.metadata_pointer(), 0x1716_1514_1312_1110);
        assert_eq!(entry.sgl1()[0], 24);
        assert_eq!(entry.prp1(), 0x1f1e_1d1c_1b1a_1918);
        assert_eq!(entry.prp2(), 0x2726_2524_2322_2120);
        let dwords = [
            entry.cdw10(),
            entry.cdw11(),
            entry.cdw12(),
            entry.cdw13(),
            entry.cdw14(),
            entry.cdw15(),
        ];
        assert_eq!(
            dwords,
            [
                0x2b2a_2928,
                0x2f2e_2d2c,
                0x3332_3130,
                0x3736_3534,
                0x3b3a_3938,
                0x3f3e_3d3c
            ]
        );
        assert_eq!(entry.fabrics_type(), FabricsType::PROPERTY_GET);
    }

    #[test]
    fn flags_of_every_value() {
        let mut entry = counted();
        for (flags, fuse, psdt) in [
            (0x00, Fuse::Normal, Psdt::Prp),
            (0x41, Fuse::First, Psdt::Sgl),
            (0x82, Fuse::Second, Psdt::SglMetadataSgl),
            (0xff, Fuse::Reserved, Psdt::Reserved),
        ] {
            entry.flags = flags;
            assert_eq!((entry.fuse(), entry.psdt()), (fuse, psdt));
        }
    }

    #[test]
    fn fields_of_reads_and_writes() {
        let entry = counted().with_cdw(10, 1).with_cdw(11, 2);
        let read = entry.with_cdw(12, 0xc650_0007).with_cdw(13, 0xabcd_0027);
        assert_eq!(
            read.lba_range(),
            Some(LbaRange {
                slba: 0x2_0000_0001,
                blocks: 8
            })
        );
        assert!(read.fua() && read.limited_retry() && read.deac());
        assert_eq!(
            (
                read.prinfo(),
                read.directive_type(),
                read.directive_specific()
            ),
            (1, 5, 0xabcd)
        );
        assert_eq!(
            (read.access_latency(), read.access_frequency()),
            (AccessLatency::Normal, 7)
        );
        assert_eq!(
            entry.with_cdw(12, 0xffff).lba_range().map(|r| r.blocks),
            Some(65536)
        );
    }

    #[test]
    fn ranges_cannot_wrap() {
        let end = counted()
            .with_cdw(10, u32::MAX)
            .with_cdw(11, u32::MAX)
            .with_cdw(12, 0);
        assert_eq!(end.lba_range(), None);
        let range = |slba, blocks| LbaRange { slba, blocks };
        assert!(range(0, 8).is_within(8) && range(7, 1).is_within(8));
        for bad in [
            range(8, 1),
            range(1, 8),
            range(u64::MAX - 1, 1),
            range(u64::MAX, 65536),
        ] {
            assert!(!bad.is_within(8), "{bad:?}");
        }
    }

    #[test]
    fn fields_of_admin_commands() {
        let entry = counted();
        assert_eq!(
            (entry.cns(), entry.identify_cntid(), entry.identify_csi()),
            (0x28, 0x2b2a, 0x2f)
        );
        assert_eq!(
            (entry.log_id(), entry.log_lsp(), entry.log_rae()),
            (0x28, 0x29, false)
        );
        assert_eq!(entry.log_bytes(), (0x2d2c_2b2a + 1) * 4);
        assert_eq!(
            (entry.log_offset(), entry.log_csi()),
            (0x3736_3534_3332_3130, 0x3b)
        );
        assert!(!entry.log_offset_is_index() && entry.with_cdw(14, 1 << 23).log_offset_is_index());
        let most = entry.with_cdw(10, u32::MAX).with_cdw(11, u32::MAX);
        assert_eq!(
            (most.log_bytes(), most.log_rae(), most.log_lsp()),
            (1 << 34, true, 0x7f)
        );
        assert_eq!(
            (
                entry.feature_id(),
                entry.feature_select(),
                most.feature_save()
            ),
            (0x28, 1, true)
        );
        assert_eq!((entry.abort_sqid(), entry.abort_cid()), (0x2928, 0x2b2a));
    }
}
