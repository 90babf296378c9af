//! Opening files and block devices, and learning what they demand: slow-path calls outside of the
//! ring.

use std::fs::{File, OpenOptions as StdOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::handle::{FileId, FileInfo, FileKind, Handle, OpenOptions, Owner};

/// Alignment of direct transfers where the kernel does not tell.
const USUAL_ALIGNMENT: u32 = 4096;

impl FileId {
    /// The file descriptor.
    pub(super) fn fd(self) -> RawFd {
        self.0.cast_signed()
    }
}

impl Handle<FileId> {
    /// What `file` has open.
    pub(super) fn file(file: File) -> Self {
        Self {
            id: FileId(file.as_raw_fd().cast_unsigned()),
            owner: Owner::Other(Box::new(Opened(file))),
        }
    }
}

/// Opens, past the page cache if that was asked for and is possible.
pub(super) fn open(path: &Path, options: OpenOptions) -> io::Result<(Handle<FileId>, FileInfo)> {
    let kind = kind_at(path)?;
    let (file, alignment) = if options.direct {
        open_direct(path, options, kind)?
    } else {
        (open_with(path, options, kind, 0)?, None)
    };
    if kind.is_none() {
        sync_directory_of(path)?;
    }
    if options.exclusive && kind != Some(FileKind::Block) {
        lock(&file, path)?;
    }
    let kind = kind_of(&file.metadata()?).ok_or_else(|| unusable(path))?;
    let size = (&file).seek(SeekFrom::End(0))?;
    let least = if kind == FileKind::Block {
        logical_block_size(&file)?
    } else {
        1
    };
    let info = FileInfo {
        kind,
        size,
        direct: alignment.is_some(),
        alignment: alignment.unwrap_or(1).max(least),
    };
    Ok((Handle::file(file), info))
}

/// Opens with `O_DIRECT` and gives the alignment; without, where the file system takes no direct
/// transfers.
fn open_direct(
    path: &Path,
    options: OpenOptions,
    kind: Option<FileKind>,
) -> io::Result<(File, Option<u32>)> {
    match open_with(path, options, kind, libc::O_DIRECT) {
        Ok(file) => match direct_alignment(&file) {
            // Accepted and ignored, as by tmpfs. An exclusive handle has to go before the next one.
            Some(0) => {
                drop(file);
                Ok((open_with(path, options, kind, 0)?, None))
            }
            known => Ok((file, Some(known.unwrap_or(USUAL_ALIGNMENT)))),
        },
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((open_with(path, options, kind, 0)?, None))
        }
        Err(error) => Err(error),
    }
}

fn open_with(
    path: &Path,
    options: OpenOptions,
    kind: Option<FileKind>,
    flags: libc::c_int,
) -> io::Result<File> {
    // On a block device O_EXCL means: no other opener has it so, and it is not mounted.
    let exclusive = options.exclusive && kind == Some(FileKind::Block);
    StdOptions::new()
        .read(true)
        .write(options.write)
        .create(options.create && options.write)
        .mode(0o600)
        .custom_flags(flags | if exclusive { libc::O_EXCL } else { 0 })
        .open(path)
}

/// Makes the name of a new file durable: syncing the file promises its content only.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// What is at `path`, if anything is; an error if it cannot be used (opening a pipe would wait for
/// ever).
fn kind_at(path: &Path) -> io::Result<Option<FileKind>> {
    match path.metadata() {
        Ok(metadata) => kind_of(&metadata).map(Some).ok_or_else(|| unusable(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn kind_of(metadata: &std::fs::Metadata) -> Option<FileKind> {
    if metadata.is_file() {
        Some(FileKind::File)
    } else if metadata.file_type().is_block_device() {
        Some(FileKind::Block)
    } else {
        None
    }
}

fn unusable(path: &Path) -> io::Error {
    let text = format!(
        "{} is neither a regular file nor a block device",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn lock(file: &File, path: &Path) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => {
            let text = format!("{} is in use by another process", path.display());
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        }
        std::fs::TryLockError::Error(error) => error,
    })
}

/// Alignment of direct transfers' offsets (`STATX_DIOALIGN`): 0 when they are not supported, `None`
/// when the kernel does not tell.
fn direct_alignment(file: &File) -> Option<u32> {
    // SAFETY: all zeroes is a valid value of this plain struct; the path is an empty C string and
    // the struct outlives the call.
    let (result, facts) = unsafe {
        let mut facts: libc::statx = std::mem::zeroed();
        let result = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut facts,
        );
        (result, facts)
    };
    if result != 0 || facts.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    // Memory is always page-aligned here; files that demand more get no direct transfers.
    let usable = facts.stx_dio_mem_align as usize <= crate::PAGE;
    Some(if usable {
        facts.stx_dio_offset_align
    } else {
        0
    })
}

/// Bytes per sector of a block device.
fn logical_block_size(file: &File) -> io::Result<u32> {
    let mut size: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int, to where `size` is.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut size) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The size of a regular file or block device at this moment. Nothing reads or writes at the
/// position that this changes.
pub(super) fn size(file: FileId) -> io::Result<u64> {
    // SAFETY: the call takes no pointers.
    let size = unsafe { libc::lseek(file.fd(), 0, libc::SEEK_END) };
    u64::try_from(size).map_err(|_| io::Error::last_os_error())
}

/// Sets the size of a regular file.
pub(super) fn set_size(file: FileId, size: u64) -> io::Result<()> {
    let size = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes no pointers.
    match unsafe { libc::ftruncate(file.fd(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An open file, which may have a lock. Its end gives the lock back and closes. Closing alone
/// leaves the lock until the last reference to the open file goes: the kernel's worker of a flush
/// lets go of its own a moment after the completion, and a child process holds one until it runs
/// its program. An open of the file in that moment would be refused.
struct Opened(File);

impl Drop for Opened {
    fn drop(&mut self) {
        // Fails only where there are no locks, and then there is none to give back.
        let _unlocked = self.0.unlock();
    }
}
