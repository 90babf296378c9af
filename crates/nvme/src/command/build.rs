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

    /// Get Log Page: `bytes` (a multiple of 4, not 0) from `offset` on. With `retain` the event that announced the
    /// log stays reported.
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
