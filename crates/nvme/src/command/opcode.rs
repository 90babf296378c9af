//! Opcodes of the Admin command set, the NVM command set and of fabrics commands.
//!
//! Newtypes over the byte, so that an opcode nobody knows is still a value that can be logged and
//! refused.

/// Opcode of a command on the Admin queue (Base Specification, section 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdminOpcode(pub u8);

impl AdminOpcode {
    /// Delete I/O Submission Queue. Refused on fabrics.
    pub const DELETE_IO_SQ: Self = Self(0x00);
    /// Create I/O Submission Queue. Refused on fabrics.
    pub const CREATE_IO_SQ: Self = Self(0x01);
    /// Get Log Page.
    pub const GET_LOG_PAGE: Self = Self(0x02);
    /// Delete I/O Completion Queue. Refused on fabrics.
    pub const DELETE_IO_CQ: Self = Self(0x04);
    /// Create I/O Completion Queue. Refused on fabrics.
    pub const CREATE_IO_CQ: Self = Self(0x05);
    /// Identify.
    pub const IDENTIFY: Self = Self(0x06);
    /// Abort.
    pub const ABORT: Self = Self(0x08);
    /// Set Features.
    pub const SET_FEATURES: Self = Self(0x09);
    /// Get Features.
    pub const GET_FEATURES: Self = Self(0x0a);
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: Self = Self(0x0c);
    /// Namespace Management.
    pub const NAMESPACE_MANAGEMENT: Self = Self(0x0d);
    /// Firmware Commit.
    pub const FIRMWARE_COMMIT: Self = Self(0x10);
    /// Firmware Image Download.
    pub const FIRMWARE_DOWNLOAD: Self = Self(0x11);
    /// Device Self-test.
    pub const DEVICE_SELF_TEST: Self = Self(0x14);
    /// Namespace Attachment.
    pub const NAMESPACE_ATTACHMENT: Self = Self(0x15);
    /// Keep Alive.
    pub const KEEP_ALIVE: Self = Self(0x18);
    /// Directive Send.
    pub const DIRECTIVE_SEND: Self = Self(0x19);
    /// Directive Receive.
    pub const DIRECTIVE_RECEIVE: Self = Self(0x1a);
    /// Doorbell Buffer Config. Refused on fabrics.
    pub const DOORBELL_BUFFER_CONFIG: Self = Self(0x7c);
    /// Fabrics command; which one is in FCTYPE.
    pub const FABRICS: Self = Self(0x7f);
    /// Format NVM.
    pub const FORMAT_NVM: Self = Self(0x80);
    /// Security Send.
    pub const SECURITY_SEND: Self = Self(0x81);
    /// Security Receive.
    pub const SECURITY_RECEIVE: Self = Self(0x82);
    /// Sanitize.
    pub const SANITIZE: Self = Self(0x84);
    /// Get LBA Status.
    pub const GET_LBA_STATUS: Self = Self(0x86);
}

/// Opcode of a command on an I/O queue (NVM Command Set Specification, section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoOpcode(pub u8);

impl IoOpcode {
    /// Flush.
    pub const FLUSH: Self = Self(0x00);
    /// Write.
    pub const WRITE: Self = Self(0x01);
    /// Read.
    pub const READ: Self = Self(0x02);
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: Self = Self(0x04);
    /// Compare.
    pub const COMPARE: Self = Self(0x05);
    /// Write Zeroes.
    pub const WRITE_ZEROES: Self = Self(0x08);
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: Self = Self(0x09);
    /// Verify.
    pub const VERIFY: Self = Self(0x0c);
    /// Reservation Register.
    pub const RESERVATION_REGISTER: Self = Self(0x0d);
    /// Reservation Report.
    pub const RESERVATION_REPORT: Self = Self(0x0e);
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: Self = Self(0x11);
    /// Reservation Release.
    pub const RESERVATION_RELEASE: Self = Self(0x15);
    /// Cancel.
    pub const CANCEL: Self = Self(0x18);
    /// Copy.
    pub const COPY: Self = Self(0x19);
    /// Fabrics command; which one is in FCTYPE.
    pub const FABRICS: Self = Self(0x7f);
}

/// Type of a fabrics command: byte 4 of its submission queue entry (FCTYPE).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FabricsType(pub u8);

impl FabricsType {
    /// Property Set.
    pub const PROPERTY_SET: Self = Self(0x00);
    /// Connect.
    pub const CONNECT: Self = Self(0x01);
    /// Property Get.
    pub const PROPERTY_GET: Self = Self(0x04);
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: Self = Self(0x05);
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: Self = Self(0x06);
    /// Disconnect.
    pub const DISCONNECT: Self = Self(0x08);
}
