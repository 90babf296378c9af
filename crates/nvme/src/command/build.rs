//! Building commands: what a host puts into a submission queue entry.

use super::{AdminOpcode, FabricsType, Fuse, IoOpcode, LbaRange, Sgl, SubmissionQueueEntry};

/// PSDT = 01b: data are described by an SGL, as fabrics demands.
const PSDT_SGL: u8 = 0x40;

/// Builders. Commands with data take the descriptor of it; the command identifier is set last, by
/// [`SubmissionQueueEntry::with_cid`].
impl SubmissionQueueEntry {
    fn command(opcode: u8, nsid: u32) -> Self {
        Self {
            opcode,
            flags: PSDT_SGL,
            nsid: nsid.into(),
            ..Self::default()
        }
    }

    fn fabrics(kind: FabricsType) -> Self {
        Self::command(AdminOpcode::FABRICS.0, u32::from(kind.0))
    }

    fn on_range(opcode: IoOpcode, nsid: u32, range: LbaRange, sgl: Option<Sgl>) -> Self {
        debug_assert!(
            range.blocks.wrapping_sub(1) <= 0xffff,
            "1 to 65,536 blocks fit a command"
        );
        let mut entry = Self::command(opcode.0, nsid);
        entry.cdw[0] = (range.slba as u32).into();
        entry.cdw[1] = ((range.slba >> 32) as u32).into();
        entry.cdw[2] = (range.blocks.wrapping_sub(1) & 0xffff).into();
        match sgl {
            Some(sgl) => entry.with_sgl(sgl),
            None => entry,
        }
    }

    /// The same with the command identifier.
    #[inline]
    #[must_use]
    pub fn with_cid(mut self, cid: u16) -> Self {
        self.cid = cid.into();
        self
    }

    /// The same with this data descriptor.
    #[inline]
    #[must_use]
    pub fn with_sgl(mut self, sgl: Sgl) -> Self {
        self.sgl1 = sgl.encode();
        self
    }

    /// The same with data described by PRPs.
    #[must_use]
    pub fn with_prps(mut self, prp1: u64, prp2: u64) -> Self {
        self.flags &= 0x3f;
        self.sgl1[..8].copy_from_slice(&prp1.to_le_bytes());
        self.sgl1[8..].copy_from_slice(&prp2.to_le_bytes());
        self
    }

    /// The same as part of a fused operation.
    #[must_use]
    pub fn with_fuse(mut self, fuse: Fuse) -> Self {
        let bits = match fuse {
            Fuse::Normal => 0,
            Fuse::First => 1,
            Fuse::Second => 2,
            Fuse::Reserved => 3,
        };
        self.flags = self.flags & !3 | bits;
        self
    }

    /// The same with Force Unit Access.
    #[must_use]
    pub fn with_fua(mut self) -> Self {
        self.cdw[2] = (self.cdw12() | 1 << 30).into();
        self
    }

    /// The same with command dword 10 to 15 replaced; for commands that have no builder.
    #[must_use]
    pub fn with_cdw(mut self, dword: usize, value: u32) -> Self {
        assert!((10..16).contains(&dword), "command dwords 10 to 15");
        self.cdw[dword - 10] = value.into();
        self
    }

    /// Any command, without data.
    pub fn raw(opcode: u8, nsid: u32) -> Self {
        Self::command(opcode, nsid)
    }

    /// Read.
    #[inline]
    pub fn read(nsid: u32, range: LbaRange, sgl: Sgl) -> Self {
        Self::on_range(IoOpcode::READ, nsid, range, Some(sgl))
    }

    /// Write.
    #[inline]
    pub fn write(nsid: u32, range: LbaRange, sgl: Sgl) -> Self {
        Self::on_range(IoOpcode::WRITE, nsid, range, Some(sgl))
    }

    /// Compare.
    pub fn compare(nsid: u32, range: LbaRange, sgl: Sgl) -> Self {
        Self::on_range(IoOpcode::COMPARE, nsid, range, Some(sgl))
    }

    /// Write Zeroes; with `deallocate` the blocks may be given back.
    pub fn write_zeroes(nsid: u32, range: LbaRange, deallocate: bool) -> Self {
        let mut entry = Self::on_range(IoOpcode::WRITE_ZEROES, nsid, range, None);
        if deallocate {
            entry.cdw[2] = (entry.cdw12() | 1 << 25).into();
        }
        entry
    }

    /// Flush.
    pub fn flush(nsid: u32) -> Self {
        Self::command(IoOpcode::FLUSH.0, nsid)
    }

    /// Dataset Management, Deallocate, of 1 to 256 ranges that are the command's data.
    pub fn deallocate(nsid: u32, ranges: u16, sgl: Sgl) -> Self {
        debug_assert!((1..=256).contains(&ranges), "1 to 256 ranges");
        Self::command(IoOpcode::DATASET_MANAGEMENT.0, nsid)
            .with_cdw(10, u32::from(ranges.wrapping_sub(1)) & 0xff)
            .with_cdw(11, 1 << 2)
            .with_sgl(sgl)
    }

    /// Identify.
    pub fn identify(cns: u8, nsid: u32, cntid: u16, csi: u8, sgl: Sgl) -> Self {
        Self::command(AdminOpcode::IDENTIFY.0, nsid)
            .with_cdw(10, u32::from(cns) | u32::from(cntid) << 16)
            .with_cdw(11, u32::from(csi) << 24)
            .with_sgl(sgl)
    }

    /// Get Log Page: `bytes` (a multiple of 4, not 0) from `offset` on. With `retain` the event
    /// that announced the log stays reported.
    pub fn get_log_page(
        id: u8,
        nsid: u32,
        offset: u64,
        bytes: u32,
        retain: bool,
        sgl: Sgl,
    ) -> Self {
        debug_assert!(bytes != 0 && bytes.is_multiple_of(4), "whole dwords");
        let numd = (bytes / 4).wrapping_sub(1);
        Self::command(AdminOpcode::GET_LOG_PAGE.0, nsid)
            .with_cdw(10, u32::from(id) | u32::from(retain) << 15 | numd << 16)
            .with_cdw(11, numd >> 16)
            .with_cdw(12, offset as u32)
            .with_cdw(13, (offset >> 32) as u32)
            .with_sgl(sgl)
    }

    /// Get Features. `select`: 0 current, 1 default, 2 saved, 3 supported capabilities.
    pub fn get_features(id: u8, select: u8, nsid: u32) -> Self {
        Self::command(AdminOpcode::GET_FEATURES.0, nsid)
            .with_cdw(10, u32::from(id) | u32::from(select & 7) << 8)
    }

    /// Set Features with the value of command dword 11.
    pub fn set_features(id: u8, nsid: u32, value: u32) -> Self {
        Self::command(AdminOpcode::SET_FEATURES.0, nsid)
            .with_cdw(10, u32::from(id))
            .with_cdw(11, value)
    }

    /// Abort command `cid` of queue `sqid`.
    pub fn abort(sqid: u16, cid: u16) -> Self {
        Self::command(AdminOpcode::ABORT.0, 0).with_cdw(10, u32::from(sqid) | u32::from(cid) << 16)
    }

    /// Asynchronous Event Request.
    pub fn async_event_request() -> Self {
        Self::command(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0)
    }

    /// Create I/O Completion Queue of so many entries at `address`; without a vector it does not
    /// interrupt.
    pub fn create_io_cq(qid: u16, entries: u16, address: u64, vector: Option<u16>) -> Self {
        let interrupts = u32::from(vector.unwrap_or(0)) << 16 | u32::from(vector.is_some()) << 1;
        Self::queue(AdminOpcode::CREATE_IO_CQ, qid, entries)
            .with_cdw(11, interrupts | 1)
            .with_prps(address, 0)
    }

    /// Create I/O Submission Queue of so many entries at `address`, that completes to `cqid`.
    pub fn create_io_sq(qid: u16, entries: u16, address: u64, cqid: u16) -> Self {
        Self::queue(AdminOpcode::CREATE_IO_SQ, qid, entries)
            .with_cdw(11, u32::from(cqid) << 16 | 1)
            .with_prps(address, 0)
    }

    /// Delete I/O Completion Queue.
    pub fn delete_io_cq(qid: u16) -> Self {
        Self::queue(AdminOpcode::DELETE_IO_CQ, qid, 1)
    }

    /// Delete I/O Submission Queue.
    pub fn delete_io_sq(qid: u16) -> Self {
        Self::queue(AdminOpcode::DELETE_IO_SQ, qid, 1)
    }

    fn queue(opcode: AdminOpcode, qid: u16, entries: u16) -> Self {
        let size = u32::from(entries.wrapping_sub(1));
        Self::raw(opcode.0, 0).with_cdw(10, size << 16 | u32::from(qid))
    }

    /// Doorbell Buffer Config: the pages of shadow doorbells and event indices.
    pub fn doorbell_buffer_config(shadow: u64, event_index: u64) -> Self {
        Self::raw(AdminOpcode::DOORBELL_BUFFER_CONFIG.0, 0).with_prps(shadow, event_index)
    }

    /// Keep Alive.
    pub fn keep_alive() -> Self {
        Self::command(AdminOpcode::KEEP_ALIVE.0, 0)
    }

    /// Connect; its 1,024 bytes of data ([`crate::fabrics::ConnectData`]) follow in the capsule.
    pub fn connect(connect: crate::fabrics::Connect) -> Self {
        let length = crate::fabrics::ConnectData::LEN as u32;
        Self::fabrics(FabricsType::CONNECT)
            .with_cdw(10, u32::from(connect.recfmt) | u32::from(connect.qid) << 16)
            .with_cdw(
                11,
                u32::from(connect.sqsize) | u32::from(connect.cattr) << 16,
            )
            .with_cdw(12, connect.kato)
            .with_sgl(Sgl::InCapsule { offset: 0, length })
    }

    /// Property Get of 4 or 8 bytes at `offset`.
    pub fn property_get(offset: u32, eight_bytes: bool) -> Self {
        Self::fabrics(FabricsType::PROPERTY_GET)
            .with_cdw(10, u32::from(eight_bytes))
            .with_cdw(11, offset)
    }

    /// Property Set of 4 or 8 bytes at `offset`.
    pub fn property_set(offset: u32, eight_bytes: bool, value: u64) -> Self {
        Self::fabrics(FabricsType::PROPERTY_SET)
            .with_cdw(10, u32::from(eight_bytes))
            .with_cdw(11, offset)
            .with_cdw(12, value as u32)
            .with_cdw(13, (value >> 32) as u32)
    }

    /// Disconnect this queue.
    pub fn disconnect() -> Self {
        Self::fabrics(FabricsType::DISCONNECT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const RANGE: LbaRange = LbaRange {
        slba: 0x0102_0304_0506_0708,
        blocks: 256,
    };
    const DATA: Sgl = Sgl::Transport { length: 0x2_0000 };

    /// Bytes 0 to 7 and 24 to 63; the ones between are zero.
    fn bytes(entry: SubmissionQueueEntry) -> ([u8; 8], [u8; 16], [u8; 24]) {
        let all = entry.with_cid(0xaabb);
        let all = all.as_bytes();
        assert_eq!(all[8..24], [0; 16]);
        let part = |from: usize, to: usize| &all[from..to];
        (
            part(0, 8).try_into().expect("8 bytes"),
            part(24, 40).try_into().expect("16 bytes"),
            part(40, 64).try_into().expect("24 bytes"),
        )
    }

    fn dwords(values: &[u32]) -> [u8; 24] {
        let mut out = [0; 24];
        for (to, value) in out.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    #[test]
    fn commands_with_a_range() {
        let head = |opcode, flags| [opcode, flags, 0xbb, 0xaa, 9, 0, 0, 0];
        let transport = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x5a];
        let range = [0x0506_0708, 0x0102_0304, 255];
        for (entry, opcode, flags, sgl, dw) in [
            (
                SubmissionQueueEntry::read(9, RANGE, DATA),
                2,
                0x40,
                transport,
                range,
            ),
            (
                SubmissionQueueEntry::write(9, RANGE, DATA).with_fua(),
                1,
                0x40,
                transport,
                [range[0], range[1], 0x4000_00ff],
            ),
            (
                SubmissionQueueEntry::compare(9, RANGE, DATA).with_fuse(Fuse::First),
                5,
                0x41,
                transport,
                range,
            ),
            (
                SubmissionQueueEntry::write_zeroes(9, RANGE, true),
                8,
                0x40,
                [0; 16],
                [range[0], range[1], 0x0200_00ff],
            ),
            (SubmissionQueueEntry::flush(9), 0, 0x40, [0; 16], [0; 3]),
        ] {
            assert_eq!(bytes(entry), (head(opcode, flags), sgl, dwords(&dw)));
        }
    }

    #[test]
    fn admin_commands() {
        let sgl = Sgl::Transport { length: 4096 };
        for (entry, opcode, nsid, dw) in [
            (
                SubmissionQueueEntry::identify(6, 0, 0x0102, 2, sgl),
                6,
                0,
                [0x0102_0006, 0x0200_0000, 0, 0],
            ),
            (
                SubmissionQueueEntry::get_log_page(0x70, 0, 0x1_0000_0400, 0x0008_0000, true, sgl),
                2,
                0,
                [0xffff_8070, 1, 0x400, 1],
            ),
            (
                SubmissionQueueEntry::get_features(0x0b, 1, 0),
                0x0a,
                0,
                [0x10b, 0, 0, 0],
            ),
            (
                SubmissionQueueEntry::set_features(7, 0, 0x0003_0003),
                9,
                0,
                [7, 0x0003_0003, 0, 0],
            ),
            (
                SubmissionQueueEntry::abort(1, 0x0203),
                8,
                0,
                [0x0203_0001, 0, 0, 0],
            ),
            (SubmissionQueueEntry::async_event_request(), 0x0c, 0, [0; 4]),
            (SubmissionQueueEntry::keep_alive(), 0x18, 0, [0; 4]),
            (
                SubmissionQueueEntry::property_get(0x1c, false),
                0x7f,
                4,
                [0, 0x1c, 0, 0],
            ),
            (
                SubmissionQueueEntry::property_set(0x14, false, 0x46_0001),
                0x7f,
                0,
                [0, 0x14, 0x46_0001, 0],
            ),
            (SubmissionQueueEntry::disconnect(), 0x7f, 8, [0; 4]),
        ] {
            let (head, _, rest) = bytes(entry);
            assert_eq!(head, [opcode, 0x40, 0xbb, 0xaa, nsid, 0, 0, 0]);
            assert_eq!(rest, dwords(&dw));
        }
    }
}
