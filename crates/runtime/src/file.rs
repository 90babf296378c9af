//! Files and block devices, with `O_DIRECT` where asked for and possible.

use crate::{Buf, ControlOp, TransferOp};

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
    /// Transfers' offsets and lengths must be multiples of this (1 when not direct; at least the logical block
    /// size on block devices).
    pub alignment: u32,
}

/// An open file. Transfers own their buffer and give it back.
#[derive(Debug)]
pub struct File {}

impl File {
    /// Kind, size, alignment.
    pub fn info(&self) -> FileInfo {
        unimplemented!()
    }

    /// Reads `buf.len()` bytes at `offset` (bytes); fewer only at the end of the file.
    pub fn read_at(&self, buf: Buf, offset: u64) -> TransferOp {
        let _ = (buf, offset);
        unimplemented!()
    }

    /// Writes `buf` at `offset` (bytes). `durable`: finished only when it has reached the medium (`RWF_DSYNC`).
    pub fn write_at(&self, buf: Buf, offset: u64, durable: bool) -> TransferOp {
        let _ = (buf, offset, durable);
        unimplemented!()
    }

    /// Finishes when everything written before has reached the medium.
    pub fn sync(&self) -> ControlOp {
        unimplemented!()
    }

    /// Frees the space of a range; it reads as zeroes afterwards (hole punch; block devices: discard with
    /// zeroes guaranteed, an `Unsupported` error where the device cannot).
    pub fn punch(&self, offset: u64, len: u64) -> ControlOp {
        let _ = (offset, len);
        unimplemented!()
    }

    /// Makes a range read as zeroes without sending them, space kept.
    pub fn zero(&self, offset: u64, len: u64) -> ControlOp {
        let _ = (offset, len);
        unimplemented!()
    }

    /// Grows or shrinks a regular file (slow path, done at once).
    pub fn set_size(&self, size: u64) -> std::io::Result<()> {
        let _ = size;
        unimplemented!()
    }
}
