//! What went wrong and how much was done: the error log and the counters of the SMART log.

use alloc::collections::VecDeque;

use flashyard_nvme::Status;
use flashyard_nvme::log::CriticalWarning;
use flashyard_time::Duration;

/// Entries that the error log keeps (ELPE, there zero-based).
pub const ERROR_LOG_ENTRIES: usize = 64;

/// A command that was answered with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandError {
    /// Queue of the command.
    pub sqid: u16,
    /// Its identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// What it was answered.
    pub status: Status,
    /// First LBA of the trouble; 0 if it has none.
    pub lba: u64,
    /// Its namespace; 0 if it has none.
    pub nsid: u32,
}

/// The newest errors of a controller.
#[derive(Clone, Debug, Default)]
pub struct ErrorLog {
    newest_first: VecDeque<CommandError>,
    count: u64,
}

impl ErrorLog {
    /// Adds an error; the oldest goes when there are too many.
    pub fn push(&mut self, error: CommandError) {
        self.newest_first.truncate(ERROR_LOG_ENTRIES - 1);
        self.newest_first.push_front(error);
        self.count += 1;
    }

    /// Errors since the controller was created.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Errors with their numbers (from 1), newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = (u64, &CommandError)> {
        self.newest_first
            .iter()
            .zip(0..)
            .map(|(error, age)| (self.count - age, error))
    }
}

/// What the SMART log counts for the subsystem, over restarts of the target where its owner keeps
/// the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes that hosts have read (by Read and Compare).
    pub bytes_read: u64,
    /// Bytes that hosts have written.
    pub bytes_written: u64,
    /// Read and Compare commands finished.
    pub read_commands: u64,
    /// Write commands finished.
    pub write_commands: u64,
    /// Time with I/O commands at work.
    pub busy: Duration,
    /// Time that the target has run.
    pub power_on: Duration,
    /// Starts of the target.
    pub power_cycles: u64,
    /// Associations that ended without a shutdown notification, and runs of the target that did not
    /// end in order.
    pub unsafe_shutdowns: u64,
    /// Reads, writes and integrity checks that the medium failed.
    pub media_errors: u64,
    /// How the media of the namespaces are.
    pub media: Media,
}

/// How the media are that the namespaces of a subsystem lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Media {
    /// How many of them there are, counted for each namespace.
    count: usize,
    /// Of these, such that take no writes any more because too much of them has failed.
    worn_out: usize,
    /// Percent of its spare that the one has which has the least.
    spare: u8,
}

impl Default for Media {
    /// Of no namespace.
    fn default() -> Self {
        Self {
            count: 0,
            worn_out: 0,
            spare: 100,
        }
    }
}

impl Media {
    /// Adds that of a namespace: percent of its spare that is left, and whether so much of it has
    /// failed that it takes no writes any more.
    pub fn add(&mut self, spare: u8, worn_out: bool) {
        self.count += 1;
        self.worn_out += usize::from(worn_out);
        self.spare = self.spare.min(spare);
    }

    /// Available Spare, percent.
    pub fn spare(&self) -> u8 {
        self.spare
    }

    /// Critical Warning, with spare being critical below `threshold`. Namespaces that are write
    /// protected because somebody wants them so are none.
    pub fn critical_warning(&self, threshold: u8) -> u8 {
        let mut warning = 0;
        if self.spare < threshold {
            warning |= CriticalWarning::SPARE;
        }
        if self.worn_out > 0 {
            warning |= CriticalWarning::RELIABILITY;
        }
        if self.worn_out > 0 && self.worn_out == self.count {
            warning |= CriticalWarning::READ_ONLY;
        }
        warning
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Spare, percent, and whether it is worn out.
    type Health = (u8, bool);

    #[test]
    fn what_media_warn_of() {
        let good = (100, false);
        let (spare, reliability) = (CriticalWarning::SPARE, CriticalWarning::RELIABILITY);
        let all = spare | reliability | CriticalWarning::READ_ONLY;
        let cases: [(&[Health], u8, u8); 6] = [
            (&[], 100, 0),
            (&[good, (10, false)], 10, 0),
            (&[(9, false), good], 9, spare),
            (&[good, (0, true)], 0, spare | reliability),
            (&[(0, true)], 0, all),
            (&[(0, true); 2], 0, all),
        ];
        for (namespaces, left, warning) in cases {
            let mut media = Media::default();
            for (spare, worn_out) in namespaces {
                media.add(*spare, *worn_out);
            }
            assert_eq!(media.spare(), left, "{namespaces:?}");
            assert_eq!(media.critical_warning(10), warning, "{namespaces:?}");
        }
    }

    #[test]
    fn the_error_log_keeps_the_newest() {
        let mut log = ErrorLog::default();
        for cid in 0..100 {
            log.push(CommandError {
                sqid: 1,
                cid,
                opcode: 2,
                status: Status::LBA_OUT_OF_RANGE,
                lba: 0,
                nsid: 1,
            });
        }
        let kept: Vec<_> = log
            .newest_first()
            .map(|(number, error)| (number, error.cid))
            .collect();
        assert_eq!(kept.len(), ERROR_LOG_ENTRIES);
        assert_eq!(kept[0], (100, 99));
        assert_eq!(kept[63], (37, 36));
        assert_eq!(log.count(), 100);
    }
}
