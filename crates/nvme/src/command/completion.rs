//! The completion queue entry: 16 bytes (Base Specification, section 4.2).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Status;
use crate::Allowance;

/// A completion queue entry as on the wire. The phase tag is always 0 on fabrics.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CompletionQueueEntry {
    dw0: U32,
    dw1: U32,
    sqhd: U16,
    sqid: U16,
    cid: U16,
    status: U16,
}

impl CompletionQueueEntry {
    /// A completion of command `cid` with `status`; everything else 0.
    #[inline]
    pub fn new(cid: u16, status: Status) -> Self {
        Self {
            cid: cid.into(),
            status: (status.bits() << 1).into(),
            ..Self::default()
        }
    }

    /// The same with the command specific DW0.
    #[inline]
    pub fn with_dw0(mut self, dw0: u32) -> Self {
        self.dw0 = dw0.into();
        self
    }

    /// The same with the command specific DW0 and DW1 as one 64-bit value (Property Get).
    #[inline]
    pub fn with_value(mut self, value: u64) -> Self {
        self.dw0 = (value as u32).into();
        self.dw1 = ((value >> 32) as u32).into();
        self
    }

    /// The same with the submission queue's head and identifier (the latter reserved on fabrics).
    #[inline]
    pub fn with_queue(mut self, sqhd: u16, sqid: u16) -> Self {
        self.sqhd = sqhd.into();
        self.sqid = sqid.into();
        self
    }

    /// The same, retiring up to four more commands that succeeded: their identifiers in DW0 and
    /// DW1, and how many in the queue identifier, which is reserved on fabrics. Only for hosts that
    /// have asked for it (Completion Coalescing, C0h).
    ///
    /// # Panics
    /// When there are more than four.
    #[inline]
    pub fn with_retired(self, more: &[u16]) -> Self {
        assert!(more.len() <= Self::MORE, "DW0 and DW1 have eight bytes");
        let shift = |(n, cid): (usize, &u16)| u64::from(*cid) << (16 * n);
        let value = more.iter().enumerate().map(shift).sum();
        let mut entry = self.with_value(value);
        entry.sqid = (more.len() as u16).into();
        entry
    }

    /// The further commands that it retires; nothing if it says that there are more than it has
    /// room for.
    #[inline]
    pub fn retired(&self) -> Option<impl Iterator<Item = u16>> {
        let (count, value) = (usize::from(self.sqid()), self.value());
        (count <= Self::MORE).then(|| (0..count).map(move |n| (value >> (16 * n)) as u16))
    }

    /// Further commands that a completion can retire.
    pub const MORE: usize = 4;
    /// Where an [`Allowance`] begins in the queue identifier.
    const ALLOWANCE: u32 = 3;

    /// The same, telling what the host may have outstanding. Only for hosts that have asked for it
    /// (Command Credits, C1h).
    #[inline]
    pub fn with_allowance(mut self, allowance: Allowance) -> Self {
        let count = self.sqid() & ((1 << Self::ALLOWANCE) - 1);
        self.sqid = (allowance.code() << Self::ALLOWANCE | count).into();
        self
    }

    /// What the host may have outstanding.
    #[inline]
    pub fn allowance(&self) -> Allowance {
        Allowance::from_code(self.sqid() >> Self::ALLOWANCE)
    }

    /// Command specific DW0.
    #[inline]
    pub fn dw0(&self) -> u32 {
        self.dw0.get()
    }

    /// Command specific DW1.
    #[inline]
    pub fn dw1(&self) -> u32 {
        self.dw1.get()
    }

    /// DW0 and DW1 as one 64-bit value (Property Get).
    #[inline]
    pub fn value(&self) -> u64 {
        u64::from(self.dw1()) << 32 | u64::from(self.dw0())
    }

    /// Submission Queue Head Pointer; FFFFh in a Connect answer when SQ flow control is off.
    #[inline]
    pub fn sqhd(&self) -> u16 {
        self.sqhd.get()
    }

    /// Submission Queue Identifier; reserved on fabrics.
    #[inline]
    pub fn sqid(&self) -> u16 {
        self.sqid.get()
    }

    /// Command Identifier.
    #[inline]
    pub fn cid(&self) -> u16 {
        self.cid.get()
    }

    /// Status, without the phase tag.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_bits(self.status.get() >> 1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn bytes_both_ways() {
        let entry = CompletionQueueEntry::new(0xabcd, Status::INVALID_OPCODE.with_dnr())
            .with_value(0x1122_3344_5566_7788)
            .with_queue(0x0102, 0x0304);
        let bytes = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 2, 1, 4, 3, 0xcd, 0xab, 0x02, 0x80,
        ];
        assert_eq!(entry.as_bytes(), bytes);
        let read = CompletionQueueEntry::read_from_bytes(&bytes).expect("16 bytes");
        assert_eq!(read, entry);
        assert_eq!(read.value(), 0x1122_3344_5566_7788);
        assert_eq!(
            (read.cid(), read.sqhd(), read.sqid()),
            (0xabcd, 0x0102, 0x0304)
        );
        assert_eq!(read.status(), Status::INVALID_OPCODE.with_dnr());
    }

    #[test]
    fn further_commands_both_ways() {
        let all = [0xffff, 0, 0x1234, 7];
        for count in 0..=4 {
            let entry = CompletionQueueEntry::new(9, Status::SUCCESS)
                .with_queue(3, 0)
                .with_retired(&all[..count]);
            let retired: Vec<_> = entry.retired().expect("up to four").collect();
            assert_eq!(retired, all[..count]);
            assert_eq!((entry.cid(), entry.sqhd()), (9, 3));
        }
        let more = CompletionQueueEntry::new(9, Status::SUCCESS).with_queue(0, 5);
        assert!(more.retired().is_none());
    }

    #[test]
    fn an_allowance_and_further_commands_do_not_disturb_each_other() {
        for count in 0..=4 {
            for allowance in [
                Allowance::Silent,
                Allowance::Units(384),
                Allowance::Unbounded,
            ] {
                let entry = CompletionQueueEntry::new(9, Status::SUCCESS)
                    .with_queue(3, 0)
                    .with_retired(&[5, 6, 7, 8][..count])
                    .with_allowance(allowance);
                assert_eq!((entry.allowance(), entry.cid()), (allowance, 9));
                let bare = entry.with_allowance(Allowance::Silent);
                let retired: Vec<_> = bare.retired().expect("up to four").collect();
                assert_eq!(retired, [5, 6, 7, 8][..count]);
                // To a host that has not asked, what stands there is no number of commands.
                assert_eq!(entry.retired().is_none(), allowance != Allowance::Silent);
            }
        }
    }

    #[test]
    fn a_phase_tag_is_ignored() {
        let mut bytes = [0; 16];
        bytes[14] = 1;
        let read = CompletionQueueEntry::read_from_bytes(&bytes).expect("16 bytes");
        assert!(read.status().is_success());
    }
}
