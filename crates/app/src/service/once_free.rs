//! Waiting for a file or block device that is in use to be let go.

use std::thread;
use std::time::{Duration, Instant};

use super::Fault;

/// How long at start: a target that was killed has its own files and devices until the kernel has
/// ended what it had asked for.
pub(super) const AT_START: Duration = Duration::from_secs(3);
/// How long while the target runs. A block device that this target has closed, to bring it to
/// another core say, is free a moment later: the kernel's worker of a flush, or of zeroes, holds it
/// until after the completion, and nothing tells when it lets go.
pub(super) const WHILE_RUNNING: Duration = Duration::from_millis(300);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// What `open` says as soon as nothing else has the file or device, or after `longest` that it is
/// in use.
pub(super) fn once_free<T>(
    longest: Duration,
    mut open: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let until = Instant::now() + longest;
    loop {
        match open() {
            Err(fault) if fault.is_in_use_elsewhere() && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use flashyard_block::OpenError;

    use super::*;

    const EBUSY: i32 = 16;
    const ENOENT: i32 = 2;
    /// Far longer than a busy machine takes for three tries.
    const LONG: Duration = Duration::from_mins(10);

    /// What comes of openings that meet these errors, one after the other, and then nothing in the
    /// way; and how often it was tried.
    fn tried(longest: Duration, errors: &[i32]) -> (Result<(), Fault>, usize) {
        let mut tries = 0;
        let outcome = once_free(longest, || {
            tries += 1;
            match errors.get(tries - 1) {
                Some(errno) => Err(OpenError::System {
                    path: "/dev/nvme0n1".into(),
                    action: "open",
                    source: io::Error::from_raw_os_error(*errno),
                }
                .into()),
                None => Ok(()),
            }
        });
        (outcome, tries)
    }

    #[test]
    fn only_what_is_in_use_is_waited_for() {
        assert!(matches!(tried(LONG, &[]), (Ok(()), 1)));
        assert!(matches!(tried(LONG, &[EBUSY, EBUSY]), (Ok(()), 3)));
        let (outcome, tries) = tried(LONG, &[EBUSY, ENOENT, EBUSY]);
        assert!(!outcome.unwrap_err().is_in_use_elsewhere());
        assert_eq!(tries, 2);
        let (outcome, tries) = tried(Duration::ZERO, &[EBUSY, EBUSY]);
        assert!(outcome.unwrap_err().is_in_use_elsewhere());
        assert_eq!(tries, 1);
    }
}
