//! Files and block devices, with `O_DIRECT` where asked for and possible.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::rc::Rc;

use crate::driver::{Drive, FileId};
use crate::executor::Core;
use crate::op::Operation;
use crate::zone::{ZoneAction, Zoned, ZonesOp};
use crate::{Buf, ControlOp, ReadOp, Shared, WriteOp};

/// How to open. All false: read-only, must exist, through the page cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Create if missing.
    pub create: bool,
    /// Past the page cache where the file system can; [`FileInfo::direct`] tells whether it could.
    pub direct: bool,
    /// Refuse if another process holds it so (advisory lock, `O_EXCL` for block devices).
    pub exclusive: bool,
}

/// What kind of thing was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A kernel block device.
    Block,
}

/// Facts about an open file.
#[derive(Clone, Copy, Debug)]
pub struct FileInfo {
    /// Regular file or block device.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Whether transfers go past the page cache.
    pub direct: bool,
    /// Transfers' offsets and lengths must be multiples of this (1 when not direct; at least the
    /// logical block size on block devices).
    pub alignment: u32,
}

/// A file as its handle and operations share it; closed when the last of them lets go.
pub(crate) struct OpenFile {
    core: Rc<Core>,
    id: FileId,
    info: Cell<FileInfo>,
}

impl OpenFile {
    pub(crate) fn new(core: Rc<Core>, id: FileId, info: FileInfo) -> Rc<Self> {
        let info = Cell::new(info);
        Rc::new(Self { core, id, info })
    }

    /// The driver's name for it.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// What it is.
    pub(crate) fn info(&self) -> FileInfo {
        self.info.get()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.core.with_driver(|driver| driver.close_file(self.id));
    }
}

/// An open file. Transfers own their buffer and give it back.
pub struct File {
    open: Rc<OpenFile>,
}

impl File {
    pub(crate) fn new(core: Rc<Core>, id: FileId, info: FileInfo) -> Self {
        Self {
            open: OpenFile::new(core, id, info),
        }
    }

    /// Kind, size, alignment.
    pub fn info(&self) -> FileInfo {
        self.open.info()
    }

    /// Reads `buf.len()` bytes at `offset` (bytes); fewer only at the end of the file.
    pub fn read_at(&self, buf: Buf, offset: u64) -> ReadOp {
        let aligned = self.is_aligned(buf.len(), offset);
        ReadOp(self.start(
            aligned,
            Operation::Read {
                file: self.open.clone(),
                buf,
                offset,
                moved: 0,
            },
        ))
    }

    /// Writes `data` at `offset` (bytes). `durable`: finished only when it has reached the medium
    /// (`RWF_DSYNC`).
    pub fn write_at(&self, data: impl Into<Shared>, offset: u64, durable: bool) -> WriteOp {
        let data = data.into();
        let aligned = self.is_aligned(data.len(), offset);
        let file = self.open.clone();
        WriteOp(self.start(
            aligned,
            Operation::Write {
                file,
                data,
                offset,
                durable,
                moved: 0,
            },
        ))
    }

    /// Finishes when everything written before has reached the medium.
    pub fn sync(&self) -> ControlOp {
        ControlOp(self.start(
            true,
            Operation::Sync {
                file: self.open.clone(),
            },
        ))
    }

    /// Frees the space of a range; it reads as zeroes afterwards (hole punch; block devices:
    /// discard with zeroes guaranteed, an `Unsupported` error where the device cannot).
    pub fn punch(&self, offset: u64, len: u64) -> ControlOp {
        ControlOp(self.start(
            len > 0,
            Operation::Punch {
                file: self.open.clone(),
                offset,
                len,
            },
        ))
    }

    /// Makes a range read as zeroes without sending them; the space is kept where the file system
    /// can.
    pub fn zero(&self, offset: u64, len: u64) -> ControlOp {
        ControlOp(self.start(
            len > 0,
            Operation::Zero {
                file: self.open.clone(),
                offset,
                len,
            },
        ))
    }

    /// What it is as a zoned block device; nothing when it is none (slow path, done at once).
    pub fn zoned(&self) -> io::Result<Option<Zoned>> {
        let id = self.open.id;
        self.open.core.with_driver(|driver| driver.zoned(id))
    }

    /// Tells of at most `count` zones, from the one that begins at `start` (bytes) on; of fewer
    /// when there are no more, or the kernel likes to be asked again.
    pub fn report_zones(&self, start: u64, count: u32) -> ZonesOp {
        ZonesOp(self.start_zone(ZoneAction::Report { start, count }))
    }

    /// Erases the zone of `len` bytes at `start`.
    pub fn reset_zone(&self, start: u64, len: u64) -> ControlOp {
        ControlOp(self.start_zone(ZoneAction::Reset { start, len }))
    }

    /// Has the zone of `len` bytes at `start` take no more writes and be active no longer.
    pub fn finish_zone(&self, start: u64, len: u64) -> ControlOp {
        ControlOp(self.start_zone(ZoneAction::Finish { start, len }))
    }

    fn start_zone(&self, action: ZoneAction) -> crate::op::Flight {
        let file = self.open.clone();
        self.start(true, Operation::Zone { file, action })
    }

    /// The size of a regular file at this moment, in bytes; somebody else may have changed it (slow
    /// path, done at once).
    pub fn size(&self) -> io::Result<u64> {
        let id = self.open.id;
        self.open.core.with_driver(|driver| driver.size(id))
    }

    /// Grows or shrinks a regular file (slow path, done at once).
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        let id = self.open.id;
        self.open
            .core
            .with_driver(|driver| driver.set_size(id, size))?;
        self.open.info.set(FileInfo {
            size,
            ..self.info()
        });
        Ok(())
    }

    /// Some file systems take unaligned direct transfers and others refuse them: here all refuse.
    fn is_aligned(&self, len: usize, offset: u64) -> bool {
        let alignment = u64::from(self.info().alignment);
        (offset | len as u64).is_multiple_of(alignment)
    }

    fn start(&self, valid: bool, operation: Operation) -> crate::op::Flight {
        if valid {
            self.open.core.start(operation)
        } else {
            self.open
                .core
                .fail(operation, io::Error::from_raw_os_error(libc::EINVAL))
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("File").field(&self.info()).finish()
    }
}
