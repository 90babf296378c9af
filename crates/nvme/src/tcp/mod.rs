//! NVMe/TCP: the PDUs, and the rules of a connection, as functions of bytes.
//!
//! A connection begins with ICReq and ICResp ([`negotiate`]); from then on a [`Framer`] at each end
//! turns the bytes that arrive into checked headers and pieces of data, and `encode` of each header
//! turns what is to be sent into bytes. [`H2cTransfer`] and [`C2hTransfer`] hold what the data PDUs
//! of one command must keep to. What a peer does against the rules is a [`Violation`]: it ends the
//! connection with a TermReq.
//!
//! Names and offsets are those of the NVM Express TCP Transport Specification.

mod digest;
mod framer;
mod header;
mod negotiate;
mod protocol;
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
pub use protocol::{Digests, Role};
pub use rules::Limits;
pub use transfer::{C2hTransfer, H2cTransfer};
pub use violation::{FatalErrorStatus, Violation, ViolationKind};
