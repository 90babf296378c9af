//! What a peer does against the rules of NVMe/TCP, and how it is notified (TermReq).

use core::fmt;

use super::header::TermReq;
use super::protocol::offset;

/// Fatal Error Status (FES) of a TermReq.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FatalErrorStatus(pub u16);

impl FatalErrorStatus {
    /// Invalid PDU Header Field; FEI is the byte offset of the field.
    pub const INVALID_HEADER_FIELD: Self = Self(1);
    /// PDU Sequence Error.
    pub const SEQUENCE: Self = Self(2);
    /// Header Digest Error; FEI is the digest that was received.
    pub const HEADER_DIGEST: Self = Self(3);
    /// Data Transfer Out of Range.
    pub const OUT_OF_RANGE: Self = Self(4);
    /// Data Transfer Limit Exceeded (to a host: R2T Limit Exceeded).
    pub const LIMIT_EXCEEDED: Self = Self(5);
    /// Unsupported Parameter; FEI is the byte offset of the field.
    pub const UNSUPPORTED_PARAMETER: Self = Self(6);
}

/// A breach of the rules. The connection ends: send [`Violation::term_req`], read nothing more,
/// close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Fatal Error Status.
    pub fes: FatalErrorStatus,
    /// Fatal Error Information, as FES defines it; otherwise 0.
    pub fei: u32,
    /// What it was.
    pub kind: ViolationKind,
}

/// What kind of breach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViolationKind {
    /// TYPE is unknown or not for this end.
    PduType,
    /// FLAGS: digests other than negotiated, SUCCESS without LAST, LAST too early or missing.
    Flags,
    /// HLEN is not that of the type.
    HeaderLength,
    /// PDO points into the header, past the end, or is not aligned as negotiated.
    DataOffset,
    /// PLEN does not hold the header, or more than may be sent at once.
    PduLength,
    /// DATAL or R2TL is zero, or does not match PLEN.
    DataLength,
    /// The PDU is not allowed now.
    Sequence,
    /// The header digest is wrong.
    HeaderDigest,
    /// Data that were not asked for, or not in order.
    OutOfRange,
    /// More data in a PDU than MAXH2CDATA, or more R2Ts than MAXR2T.
    Limit,
    /// TTAG or CCCID of no transfer in flight.
    Tag,
    /// A parameter of ICReq or ICResp cannot be served.
    Parameter,
}

impl Violation {
    /// A field of the header, at this byte offset.
    #[cold]
    pub(super) const fn field(at: u32, kind: ViolationKind) -> Self {
        Self {
            fes: FatalErrorStatus::INVALID_HEADER_FIELD,
            fei: at,
            kind,
        }
    }

    /// FLAGS that do not fit.
    #[cold]
    pub(super) const fn flags() -> Self {
        Self::field(offset::FLAGS, ViolationKind::Flags)
    }

    /// A parameter of ICReq or ICResp, at this byte offset.
    pub(super) const fn parameter(at: u32) -> Self {
        Self {
            fes: FatalErrorStatus::UNSUPPORTED_PARAMETER,
            fei: at,
            kind: ViolationKind::Parameter,
        }
    }

    /// A PDU that is not allowed now. Also for callers who keep more state than the framer: a
    /// command before Connect, data for a command that awaits none.
    #[cold]
    pub const fn sequence() -> Self {
        Self {
            fes: FatalErrorStatus::SEQUENCE,
            fei: 0,
            kind: ViolationKind::Sequence,
        }
    }

    /// TTAG or CCCID of no transfer in flight.
    #[cold]
    pub const fn tag() -> Self {
        Self {
            fes: FatalErrorStatus::SEQUENCE,
            fei: 0,
            kind: ViolationKind::Tag,
        }
    }

    /// Data outside of what was asked for.
    #[cold]
    pub const fn out_of_range() -> Self {
        Self {
            fes: FatalErrorStatus::OUT_OF_RANGE,
            fei: 0,
            kind: ViolationKind::OutOfRange,
        }
    }

    /// More at once than was agreed.
    #[cold]
    pub const fn limit() -> Self {
        Self {
            fes: FatalErrorStatus::LIMIT_EXCEEDED,
            fei: 0,
            kind: ViolationKind::Limit,
        }
    }

    /// A header digest that does not match; `received` is what came.
    #[cold]
    pub(super) const fn header_digest(received: u32) -> Self {
        Self {
            fes: FatalErrorStatus::HEADER_DIGEST,
            fei: received,
            kind: ViolationKind::HeaderDigest,
        }
    }

    /// The TermReq that tells the peer.
    pub const fn term_req(&self) -> TermReq {
        TermReq {
            fes: self.fes,
            fei: self.fei,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ViolationKind::PduType => "PDU type is unknown or not for this end",
            ViolationKind::Flags => "PDU flags do not fit what was negotiated",
            ViolationKind::HeaderLength => "header length is not that of the PDU type",
            ViolationKind::DataOffset => "data offset is invalid",
            ViolationKind::PduLength => "PDU length is invalid",
            ViolationKind::DataLength => "data length is invalid",
            ViolationKind::Sequence => "PDU is not allowed now",
            ViolationKind::HeaderDigest => "header digest is wrong",
            ViolationKind::OutOfRange => "data outside of what was asked for",
            ViolationKind::Limit => "more at once than was agreed",
            ViolationKind::Tag => "transfer tag or command identifier of no transfer",
            ViolationKind::Parameter => "connection parameter is not supported",
        };
        write!(f, "{what} (FES {}, FEI {:#x})", self.fes.0, self.fei)
    }
}

impl core::error::Error for Violation {}
