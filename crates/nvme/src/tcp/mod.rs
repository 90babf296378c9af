//! NVMe/TCP: the PDUs, and the rules of a connection, as functions of bytes.
//!
//! A connection begins with ICReq and ICResp ([`negotiate`]); from then on a [`Framer`] at each end turns the bytes
//! that arrive into checked headers and pieces of data, and `encode` of each header turns what is to be sent into
//! bytes. [`H2cTransfer`] and [`C2hTransfer`] hold what the data PDUs of one command must keep to. What a peer does
//! against the rules is a [`Violation`]: it ends the connection with a TermReq.
//!
//! Names and offsets are those of the NVM Express TCP Transport Specification.

mod digest;
mod framer;
mod header;
mod negotiate;
mod rules;
mod transfer;
mod violation;

pub use digest::Crc32c;
pub use framer::{Event, Framer};
pub use header::{
    C2HData, CapsuleCmd, CapsuleResp, H2CData, Header, ICReq, ICResp, MAX_HEADER, MAX_TERM_REQ,
    Outgoing, R2T, TermReq,
};
pub use negotiate::{Negotiated, Offer, accept_response, answer_request};
pub use rules::Limits;
pub use transfer::{C2hTransfer, H2cTransfer};
pub use violation::{FatalErrorStatus, Violation, ViolationKind};

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

    const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }

    const fn from_bits(bits: u8) -> Self {
        Self {
            header: bits & 1 != 0,
            data: bits & 2 != 0,
        }
    }
}

/// PDU types.
mod pdu_type {
    pub(super) const IC_REQ: u8 = 0x00;
    pub(super) const IC_RESP: u8 = 0x01;
    pub(super) const H2C_TERM_REQ: u8 = 0x02;
    pub(super) const C2H_TERM_REQ: u8 = 0x03;
    pub(super) const CAPSULE_CMD: u8 = 0x04;
    pub(super) const CAPSULE_RESP: u8 = 0x05;
    pub(super) const H2C_DATA: u8 = 0x06;
    pub(super) const C2H_DATA: u8 = 0x07;
    pub(super) const R2T: u8 = 0x09;
}

/// Bits of FLAGS in the common header.
mod flag {
    pub(super) const HEADER_DIGEST: u8 = 1;
    pub(super) const DATA_DIGEST: u8 = 1 << 1;
    pub(super) const LAST: u8 = 1 << 2;
    pub(super) const SUCCESS: u8 = 1 << 3;
}

/// Header lengths (HLEN) of the PDU types.
mod header_len {
    pub(super) const IC: usize = 128;
    pub(super) const CAPSULE_CMD: usize = 72;
    pub(super) const OTHERS: usize = 24;
}

/// Offsets of fields, as a TermReq reports them.
mod offset {
    pub(super) const TYPE: u32 = 0;
    pub(super) const FLAGS: u32 = 1;
    pub(super) const HLEN: u32 = 2;
    pub(super) const PDO: u32 = 3;
    pub(super) const PLEN: u32 = 4;
    pub(super) const DATAL: u32 = 16;
    pub(super) const R2TL: u32 = 16;
    pub(super) const PFV: u32 = 8;
    pub(super) const PDA: u32 = 10;
    pub(super) const DIGEST: u32 = 11;
    pub(super) const MAXH2CDATA: u32 = 12;
}
