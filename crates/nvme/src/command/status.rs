//! The status field of a completion (Base Specification, section 4.2.3).

use core::fmt;

/// A status: code type, code, Command Retry Delay, More and Do Not Retry; without the phase tag.
///
/// Equality compares all of it; [`Status::is`] compares type and code only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// Status Code Type: the table a status code is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StatusCodeType {
    /// 0h.
    Generic = 0,
    /// 1h: a meaning that depends on the command.
    CommandSpecific = 1,
    /// 2h: the medium or the data failed.
    MediaAndDataIntegrity = 2,
    /// 3h: this path failed, another one may do.
    Path = 3,
    /// 4h to 6h.
    Reserved = 4,
    /// 7h.
    VendorSpecific = 7,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self::new($sct, $sc);)*

            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, stringify!($name)),)*];
        }
    };
}

statuses! {
    /// Success.
    SUCCESS = 0, 0x00;
    /// Invalid Command Opcode.
    INVALID_OPCODE = 0, 0x01;
    /// Invalid Field in Command.
    INVALID_FIELD = 0, 0x02;
    /// Command ID Conflict.
    COMMAND_ID_CONFLICT = 0, 0x03;
    /// Data Transfer Error.
    DATA_TRANSFER_ERROR = 0, 0x04;
    /// Commands Aborted due to Power Loss Notification.
    ABORTED_POWER_LOSS = 0, 0x05;
    /// Internal Error.
    INTERNAL_ERROR = 0, 0x06;
    /// Command Abort Requested.
    ABORT_REQUESTED = 0, 0x07;
    /// Command Aborted due to SQ Deletion.
    ABORTED_SQ_DELETION = 0, 0x08;
    /// Command Aborted due to Failed Fused Command.
    ABORTED_FAILED_FUSED = 0, 0x09;
    /// Command Aborted due to Missing Fused Command.
    ABORTED_MISSING_FUSED = 0, 0x0a;
    /// Invalid Namespace or Format.
    INVALID_NAMESPACE_OR_FORMAT = 0, 0x0b;
    /// Command Sequence Error.
    COMMAND_SEQUENCE_ERROR = 0, 0x0c;
    /// Invalid SGL Segment Descriptor.
    INVALID_SGL_SEGMENT = 0, 0x0d;
    /// Invalid Number of SGL Descriptors.
    INVALID_SGL_COUNT = 0, 0x0e;
    /// Data SGL Length Invalid.
    DATA_SGL_LENGTH_INVALID = 0, 0x0f;
    /// Metadata SGL Length Invalid.
    METADATA_SGL_LENGTH_INVALID = 0, 0x10;
    /// SGL Descriptor Type Invalid.
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11;
    /// Invalid Use of Controller Memory Buffer.
    INVALID_CMB_USE = 0, 0x12;
    /// PRP Offset Invalid.
    PRP_OFFSET_INVALID = 0, 0x13;
    /// Atomic Write Unit Exceeded.
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14;
    /// Operation Denied.
    OPERATION_DENIED = 0, 0x15;
    /// SGL Offset Invalid.
    SGL_OFFSET_INVALID = 0, 0x16;
    /// Host Identifier Inconsistent Format.
    HOST_IDENTIFIER_INCONSISTENT = 0, 0x18;
    /// Keep Alive Timer Expired.
    KEEP_ALIVE_EXPIRED = 0, 0x19;
    /// Keep Alive Timeout Invalid.
    KEEP_ALIVE_INVALID = 0, 0x1a;
    /// Command Aborted due to Preempt and Abort.
    ABORTED_PREEMPT = 0, 0x1b;
    /// Sanitize Failed.
    SANITIZE_FAILED = 0, 0x1c;
    /// Sanitize In Progress.
    SANITIZE_IN_PROGRESS = 0, 0x1d;
    /// Namespace is Write Protected.
    NAMESPACE_WRITE_PROTECTED = 0, 0x20;
    /// Command Interrupted: try again, after the Command Retry Delay if one is given.
    COMMAND_INTERRUPTED = 0, 0x21;
    /// Transient Transport Error: a data digest was wrong; try again.
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22;
    /// Command Prohibited by Command and Feature Lockdown.
    PROHIBITED_BY_LOCKDOWN = 0, 0x23;
    /// Admin Command Media Not Ready.
    ADMIN_MEDIA_NOT_READY = 0, 0x24;
    /// LBA Out of Range.
    LBA_OUT_OF_RANGE = 0, 0x80;
    /// Capacity Exceeded.
    CAPACITY_EXCEEDED = 0, 0x81;
    /// Namespace Not Ready.
    NAMESPACE_NOT_READY = 0, 0x82;
    /// Reservation Conflict.
    RESERVATION_CONFLICT = 0, 0x83;
    /// Format In Progress.
    FORMAT_IN_PROGRESS = 0, 0x84;

    /// Completion Queue Invalid.
    COMPLETION_QUEUE_INVALID = 1, 0x00;
    /// Invalid Queue Identifier.
    INVALID_QUEUE_IDENTIFIER = 1, 0x01;
    /// Invalid Queue Size.
    INVALID_QUEUE_SIZE = 1, 0x02;
    /// Abort Command Limit Exceeded.
    ABORT_LIMIT_EXCEEDED = 1, 0x03;
    /// Asynchronous Event Request Limit Exceeded.
    AER_LIMIT_EXCEEDED = 1, 0x05;
    /// Invalid Firmware Slot.
    INVALID_FIRMWARE_SLOT = 1, 0x06;
    /// Invalid Interrupt Vector.
    INVALID_INTERRUPT_VECTOR = 1, 0x08;
    /// Invalid Log Page.
    INVALID_LOG_PAGE = 1, 0x09;
    /// Invalid Format.
    INVALID_FORMAT = 1, 0x0a;
    /// Invalid Queue Deletion.
    INVALID_QUEUE_DELETION = 1, 0x0c;
    /// Feature Identifier Not Saveable.
    FEATURE_NOT_SAVEABLE = 1, 0x0d;
    /// Feature Not Changeable.
    FEATURE_NOT_CHANGEABLE = 1, 0x0e;
    /// Feature Not Namespace Specific.
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f;
    /// Namespace Not Attached.
    NAMESPACE_NOT_ATTACHED = 1, 0x1a;
    /// Invalid Controller Identifier.
    INVALID_CONTROLLER_IDENTIFIER = 1, 0x1f;
    /// ANA Attach Failed.
    ANA_ATTACH_FAILED = 1, 0x25;
    /// I/O Command Set Not Supported.
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29;
    /// Conflicting Attributes (I/O). Same code as Connect's Incompatible Format.
    CONFLICTING_ATTRIBUTES = 1, 0x80;
    /// Invalid Protection Information (I/O). Same code as Connect's Controller Busy.
    INVALID_PROTECTION_INFORMATION = 1, 0x81;
    /// Attempted Write to Read Only Range (I/O). Same code as Connect's Invalid Parameters.
    WRITE_TO_READ_ONLY_RANGE = 1, 0x82;
    /// Command Size Limit Exceeded (I/O). Same code as Connect's Restart Discovery.
    COMMAND_SIZE_LIMIT_EXCEEDED = 1, 0x83;
    /// Connect Incompatible Format: RECFMT is not supported.
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80;
    /// Connect Controller Busy: try later.
    CONNECT_CONTROLLER_BUSY = 1, 0x81;
    /// Connect Invalid Parameters; DW0 tells which ([`crate::fabrics::InvalidParameter`]).
    CONNECT_INVALID_PARAMETERS = 1, 0x82;
    /// Connect Restart Discovery.
    CONNECT_RESTART_DISCOVERY = 1, 0x83;
    /// Connect Invalid Host: this host may not use this subsystem.
    CONNECT_INVALID_HOST = 1, 0x84;
    /// Discovery Restart.
    DISCOVERY_RESTART = 1, 0x90;
    /// Authentication Required.
    AUTHENTICATION_REQUIRED = 1, 0x91;

    /// Write Fault.
    WRITE_FAULT = 2, 0x80;
    /// Unrecovered Read Error.
    UNRECOVERED_READ_ERROR = 2, 0x81;
    /// End-to-end Guard Check Error.
    GUARD_CHECK_ERROR = 2, 0x82;
    /// End-to-end Application Tag Check Error.
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83;
    /// End-to-end Reference Tag Check Error.
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84;
    /// Compare Failure.
    COMPARE_FAILURE = 2, 0x85;
    /// Access Denied.
    ACCESS_DENIED = 2, 0x86;
    /// Deallocated or Unwritten Logical Block.
    DEALLOCATED_BLOCK = 2, 0x87;

    /// Internal Path Error: retry on another path.
    INTERNAL_PATH_ERROR = 3, 0x00;
    /// Asymmetric Access Persistent Loss.
    ANA_PERSISTENT_LOSS = 3, 0x01;
    /// Asymmetric Access Inaccessible.
    ANA_INACCESSIBLE = 3, 0x02;
    /// Asymmetric Access Transition.
    ANA_TRANSITION = 3, 0x03;
    /// Controller Pathing Error.
    CONTROLLER_PATH_ERROR = 3, 0x60;
    /// Host Pathing Error: found by the host itself.
    HOST_PATH_ERROR = 3, 0x70;
    /// Command Aborted By Host: found by the host itself.
    ABORTED_BY_HOST = 3, 0x71;
}

impl Status {
    /// Bits of type and code.
    const CODE: u16 = 0x7ff;
    const MORE: u16 = 1 << 13;
    const DNR: u16 = 1 << 14;

    /// A status of the given Status Code Type (0 to 7) and Status Code.
    pub const fn new(sct: u8, sc: u8) -> Self {
        assert!(sct < 8, "a status code type has three bits");
        Self((sct as u16) << 8 | sc as u16)
    }

    /// From the completion's bits 31:17 of DW3, shifted down to bit 0.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits as in DW3 of the completion, shifted down to bit 0.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status Code.
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Status Code Type, as a number.
    pub const fn code_type_bits(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status Code Type.
    pub const fn code_type(self) -> StatusCodeType {
        match self.code_type_bits() {
            0 => StatusCodeType::Generic,
            1 => StatusCodeType::CommandSpecific,
            2 => StatusCodeType::MediaAndDataIntegrity,
            3 => StatusCodeType::Path,
            7 => StatusCodeType::VendorSpecific,
            _ => StatusCodeType::Reserved,
        }
    }

    /// Whether it is success, whatever the other bits.
    pub const fn is_success(self) -> bool {
        self.0 & Self::CODE == 0
    }

    /// Whether type and code are those of `other`; the retry and More bits do not matter.
    pub const fn is(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::CODE == 0
    }

    /// The same with Do Not Retry: the same command would fail again.
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// Do Not Retry.
    pub const fn dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// The same with More: the error log has an entry about it.
    pub const fn with_more(self) -> Self {
        Self(self.0 | Self::MORE)
    }

    /// More: the error log has an entry about it.
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// The same with a Command Retry Delay: 1 to 3 choose CRDT1 to CRDT3 of Identify Controller, 0
    /// is none.
    pub const fn with_crd(self, crd: u8) -> Self {
        assert!(crd < 4, "a command retry delay has two bits");
        Self(self.0 & !(3 << 11) | (crd as u16) << 11)
    }

    /// Command Retry Delay.
    pub const fn crd(self) -> u8 {
        (self.0 >> 11) as u8 & 3
    }

    /// The first name this crate knows for type and code.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES
            .iter()
            .find(|(status, _)| status.is(self))
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}h/{:02X}h", self.code_type_bits(), self.code())?;
        if let Some(name) = self.name() {
            write!(f, " {name}")?;
        }
        if self.dnr() {
            write!(f, " (do not retry)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self}")?;
        if self.crd() != 0 {
            write!(f, " crd={}", self.crd())?;
        }
        if self.more() {
            write!(f, " more")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn bits_of_every_part() {
        let status = Status::LBA_OUT_OF_RANGE.with_dnr();
        assert_eq!(status.bits(), 0x4080);
        assert!(status.dnr() && !status.more() && !status.is_success());
        assert!(status.is(Status::LBA_OUT_OF_RANGE) && status != Status::LBA_OUT_OF_RANGE);

        let status = Status::COMMAND_INTERRUPTED.with_crd(2).with_more();
        assert_eq!(status.bits(), 0x3021);
        assert_eq!(
            (status.crd(), status.more(), status.dnr()),
            (2, true, false)
        );
        assert_eq!(status.with_crd(0).crd(), 0);

        assert_eq!(Status::CONNECT_INVALID_HOST.bits(), 0x0184);
        assert_eq!(Status::COMPARE_FAILURE.bits(), 0x0285);
        assert_eq!(Status::ANA_TRANSITION.bits(), 0x0303);
        assert_eq!(Status::from_bits(0xffff).bits(), 0x7fff);
        assert_eq!(
            Status::from_bits(0xffff).code_type(),
            StatusCodeType::VendorSpecific
        );
    }

    #[test]
    fn text_names_what_is_known() {
        assert_eq!(
            format!("{}", Status::COMPARE_FAILURE.with_dnr()),
            "2h/85h COMPARE_FAILURE (do not retry)"
        );
        assert_eq!(
            format!("{:?}", Status::new(7, 0xc0).with_crd(1)),
            "Status(7h/C0h crd=1)"
        );
    }
}
