//! Constants of the protocol: ends, digests, PDU types, flags, lengths and offsets.

use super::digest::Crc32c;

/// Which end of a connection something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The target's end: takes ICReq, CapsuleCmd, H2CData, H2CTermReq.
    Controller,
    /// The host's end: takes ICResp, CapsuleResp, C2HData, R2T, C2HTermReq.
    Host,
}

/// Which digests a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// CRC32C behind every header.
    pub header: bool,
    /// CRC32C behind every data section.
    pub data: bool,
}

impl Digests {
    /// Bytes of a header digest.
    #[inline]
    pub const fn header_len(self) -> usize {
        if self.header { Crc32c::LEN } else { 0 }
    }

    /// Bytes of a data digest.
    #[inline]
    pub const fn data_len(self) -> usize {
        if self.data { Crc32c::LEN } else { 0 }
    }

    pub(super) const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }

    pub(super) const fn from_bits(bits: u8) -> Self {
        Self {
            header: bits & 1 != 0,
            data: bits & 2 != 0,
        }
    }
}

/// PDU types.
pub(super) mod pdu_type {
    pub(in crate::tcp) const IC_REQ: u8 = 0x00;
    pub(in crate::tcp) const IC_RESP: u8 = 0x01;
    pub(in crate::tcp) const H2C_TERM_REQ: u8 = 0x02;
    pub(in crate::tcp) const C2H_TERM_REQ: u8 = 0x03;
    pub(in crate::tcp) const CAPSULE_CMD: u8 = 0x04;
    pub(in crate::tcp) const CAPSULE_RESP: u8 = 0x05;
    pub(in crate::tcp) const H2C_DATA: u8 = 0x06;
    pub(in crate::tcp) const C2H_DATA: u8 = 0x07;
    pub(in crate::tcp) const R2T: u8 = 0x09;
}

/// Bits of FLAGS in the common header.
pub(super) mod flag {
    pub(in crate::tcp) const HEADER_DIGEST: u8 = 1;
    pub(in crate::tcp) const DATA_DIGEST: u8 = 1 << 1;
    pub(in crate::tcp) const LAST: u8 = 1 << 2;
    pub(in crate::tcp) const SUCCESS: u8 = 1 << 3;
}

/// Header lengths (HLEN) of the PDU types.
pub(super) mod header_len {
    pub(in crate::tcp) const IC: usize = 128;
    pub(in crate::tcp) const CAPSULE_CMD: usize = 72;
    pub(in crate::tcp) const OTHERS: usize = 24;
}

/// Offsets of fields, as a TermReq reports them.
pub(super) mod offset {
    pub(in crate::tcp) const TYPE: u32 = 0;
    pub(in crate::tcp) const FLAGS: u32 = 1;
    pub(in crate::tcp) const HLEN: u32 = 2;
    pub(in crate::tcp) const PDO: u32 = 3;
    pub(in crate::tcp) const PLEN: u32 = 4;
    pub(in crate::tcp) const DATAL: u32 = 16;
    pub(in crate::tcp) const R2TL: u32 = 16;
    pub(in crate::tcp) const PFV: u32 = 8;
    pub(in crate::tcp) const PDA: u32 = 10;
    pub(in crate::tcp) const DIGEST: u32 = 11;
    pub(in crate::tcp) const MAXH2CDATA: u32 = 12;
}
