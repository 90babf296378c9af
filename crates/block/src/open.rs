//! Errors of a device before its first I/O, sorted by who must act.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Largest device, in bytes: what a signed file offset can say.
pub const MAX_BYTES: u64 = i64::MAX as u64;

/// Why a device could not be made or opened. `Display` is one line that says what to do.
#[derive(Debug)]
pub enum OpenError {
    /// The configuration asks for something impossible: the user must change it.
    Config(String),
    /// The operating system refused the path: the administrator of the machine must act.
    System {
        /// The file or device.
        path: PathBuf,
        /// What was being done with it, as a verb ("open", "grow").
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The device's sectors are larger than the blocks asked for.
    Alignment {
        /// The file or device.
        path: PathBuf,
        /// What transfers must be multiples of, in bytes.
        alignment: u32,
        /// The block size asked for, in bytes.
        block_size: u32,
    },
}

impl OpenError {
    /// Whether another process has what was to be opened: a file that is locked, a block device
    /// that is mounted or opened exclusively (`EBUSY`). It may be free later.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::System { source, .. } if is_in_use(source))
    }
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock
    )
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::System {
                path,
                action,
                source,
            } => {
                write!(
                    f,
                    "cannot {action} {}: {source}{}",
                    path.display(),
                    advice(source)
                )
            }
            Self::Alignment {
                path,
                alignment,
                block_size,
            } => write!(
                f,
                "{} transfers in units of {alignment} bytes and cannot hold blocks of {block_size}: set block_size = {}",
                path.display(),
                alignment,
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Number of blocks of a device of `bytes` bytes, if it can be one at all.
pub fn geometry(block_size: u32, bytes: u64) -> Result<u64, OpenError> {
    if block_size != 512 && block_size != 4096 {
        return Err(OpenError::Config(format!(
            "block_size is {block_size}: it must be 512 or 4096"
        )));
    }
    if bytes > MAX_BYTES {
        return Err(OpenError::Config(format!(
            "size is {bytes} bytes: at most {MAX_BYTES} are possible"
        )));
    }
    let blocks = bytes / u64::from(block_size);
    if blocks == 0 {
        return Err(OpenError::Config(format!(
            "size is {bytes} bytes: at least one block of {block_size} is needed"
        )));
    }
    Ok(blocks)
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the path, or give a size to have the file made",
        io::ErrorKind::PermissionDenied => "; run as a user who may read and write it",
        _ if is_in_use(error) => "; another program uses it: stop that one first",
        io::ErrorKind::StorageFull => "; free space in its file system",
        io::ErrorKind::ReadOnlyFilesystem => "; its file system is mounted read-only",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system says of a locked file, and of a block device that another program uses.
    #[test]
    fn what_another_process_has_is_in_use() {
        const EBUSY: i32 = 16;
        const EAGAIN: i32 = 11;
        const ENOENT: i32 = 2;
        const EACCES: i32 = 13;
        for (errno, in_use) in [
            (EBUSY, true),
            (EAGAIN, true),
            (ENOENT, false),
            (EACCES, false),
        ] {
            let refused = OpenError::System {
                path: "/dev/nvme0n1".into(),
                action: "open",
                source: io::Error::from_raw_os_error(errno),
            };
            assert_eq!(refused.is_in_use(), in_use, "{refused}");
        }
        assert!(!OpenError::Config("it is in use".into()).is_in_use());
    }

    #[test]
    fn geometry_takes_whole_blocks_and_refuses_the_rest() {
        assert_eq!(geometry(512, 1024).ok(), Some(2));
        assert_eq!(geometry(4096, 8191).ok(), Some(1));
        assert_eq!(geometry(512, MAX_BYTES).ok(), Some(MAX_BYTES / 512));
        for (block_size, bytes) in [
            (0, 1 << 20),
            (1024, 1 << 20),
            (512, 511),
            (512, MAX_BYTES + 1),
            (4096, 0),
        ] {
            assert!(
                matches!(geometry(block_size, bytes), Err(OpenError::Config(_))),
                "{block_size} {bytes}"
            );
        }
    }

    #[test]
    fn messages_are_one_line_and_say_what_to_do() {
        let missing = OpenError::System {
            path: "/x".into(),
            action: "open",
            source: io::ErrorKind::NotFound.into(),
        };
        let sectors = OpenError::Alignment {
            path: "/dev/x".into(),
            alignment: 4096,
            block_size: 512,
        };
        for error in [missing.to_string(), sectors.to_string()] {
            assert!(!error.contains('\n'));
        }
        assert!(missing.to_string().contains("give a size"));
        assert!(sectors.to_string().contains("block_size = 4096"));
    }
}
