//! What an error of a block device is in a completion, and whether the host should try again.

use flashyard_block::IoError;
use flashyard_nvme::Status;

/// Which of the three Command Retry Delays of Identify Controller goes with "busy".
const BUSY_RETRY_DELAY: u8 = 1;

/// The status for `error`. Do Not Retry only where trying again cannot help.
pub(crate) fn of(error: IoError) -> Status {
    match error {
        IoError::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        IoError::Read => Status::UNRECOVERED_READ_ERROR,
        IoError::Write => Status::WRITE_FAULT,
        IoError::Integrity => Status::GUARD_CHECK_ERROR,
        IoError::NoSpace => Status::CAPACITY_EXCEEDED,
        IoError::WriteProtected => Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
        IoError::Aborted => Status::ABORT_REQUESTED,
        IoError::Miscompare => Status::COMPARE_FAILURE.with_dnr(),
        IoError::Unsupported => Status::INVALID_OPCODE.with_dnr(),
        IoError::NotReady => Status::NAMESPACE_NOT_READY,
        IoError::Busy => Status::COMMAND_INTERRUPTED.with_crd(BUSY_RETRY_DELAY),
        IoError::Internal => Status::INTERNAL_ERROR,
    }
}

/// Whether `error` means that the medium has lost something (counted in the SMART log).
pub(crate) fn is_media_error(error: IoError) -> bool {
    matches!(error, IoError::Read | IoError::Write | IoError::Integrity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_errors_say_so_and_passing_ones_do_not() {
        let table = [
            (IoError::OutOfRange, 0x080, true),
            (IoError::Read, 0x281, false),
            (IoError::Write, 0x280, false),
            (IoError::Integrity, 0x282, false),
            (IoError::NoSpace, 0x081, false),
            (IoError::WriteProtected, 0x020, true),
            (IoError::Aborted, 0x007, false),
            (IoError::Miscompare, 0x285, true),
            (IoError::Unsupported, 0x001, true),
            (IoError::NotReady, 0x082, false),
            (IoError::Busy, 0x021, false),
            (IoError::Internal, 0x006, false),
        ];
        for (error, code, dnr) in table {
            let status = of(error);
            assert_eq!(status.bits() & 0x7ff, code, "{error:?}");
            assert_eq!(status.dnr(), dnr, "{error:?}");
        }
        assert_eq!(of(IoError::Busy).crd(), 1);
    }
}
