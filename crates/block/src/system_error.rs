//! Translates errors of the operating system into errors of a block I/O.

use std::io::{self, ErrorKind};

use crate::IoError;

/// Linux error numbers that have no stable [`ErrorKind`].
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ENOLINK: i32 = 67;
const ENOMEDIUM: i32 = 123;
const ECANCELED: i32 = 125;

/// `fault`: what an error of the medium is called for this operation ([`IoError::Read`] or
/// [`IoError::Write`]).
pub(crate) fn io_error(error: &io::Error, fault: IoError) -> IoError {
    match error.raw_os_error() {
        Some(ENXIO | ENODEV | ENOLINK | ENOMEDIUM) => return IoError::NotReady,
        Some(ECANCELED) => return IoError::Aborted,
        _ => {}
    }
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            IoError::NoSpace
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => IoError::WriteProtected,
        ErrorKind::OutOfMemory
        | ErrorKind::WouldBlock
        | ErrorKind::ResourceBusy
        | ErrorKind::Interrupted => IoError::Busy,
        ErrorKind::Unsupported => IoError::Unsupported,
        // Our own arguments are checked before, so this is a bug below us; the data may be fine.
        ErrorKind::InvalidInput => IoError::Internal,
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_the_host_can_do() {
        // Numbers of Linux: EIO, ENOSPC, EDQUOT, EROFS, ENODEV, EAGAIN, EOPNOTSUPP, EINVAL,
        // ECANCELED, EREMOTEIO.
        let cases = [
            (5, IoError::Write),
            (28, IoError::NoSpace),
            (122, IoError::NoSpace),
            (30, IoError::WriteProtected),
            (19, IoError::NotReady),
            (11, IoError::Busy),
            (95, IoError::Unsupported),
            (22, IoError::Internal),
            (125, IoError::Aborted),
            (121, IoError::Write),
        ];
        for (number, expected) in cases {
            assert_eq!(
                io_error(&io::Error::from_raw_os_error(number), IoError::Write),
                expected,
                "{number}"
            );
        }
    }
}
