//! Files and block devices, with `O_DIRECT` where asked for and possible.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::executor::Core;
use crate::flight::{Flight, ends_as};
use crate::handle::{FileId, FileInfo, Handle, OpenFile};
use crate::op::{Operation, Outcome, Way};
use crate::zone::{Zone, ZoneAction, Zoned};
use crate::{Buf, Lent, Shared};

/// An open file. Transfers own their buffer and give it back.
pub struct File {
    core: Rc<Core>,
    open: Rc<OpenFile>,
}

impl File {
    pub(crate) fn new(core: Rc<Core>, handle: Handle<FileId>, info: FileInfo) -> Self {
        let open = OpenFile::new(handle, info);
        Self { core, open }
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

    /// How offsets and pieces of memory that others change meanwhile have to be aligned for
    /// [`Self::lend_read`] and [`Self::lend_write`]; `None` if it takes none, as a simulated one.
    pub fn takes_lent(&self) -> Option<u32> {
        let alignment = self.info().alignment;
        (!self.core.is_simulated()).then_some(alignment)
    }

    /// Reads at `offset` (bytes) to memory that others change meanwhile; fewer bytes than it has
    /// only at the end of the file.
    pub fn lend_read(&self, memory: Lent, offset: u64) -> LentOp {
        self.lend(memory, offset, Way::Read)
    }

    /// Writes memory that others change meanwhile at `offset` (bytes): what is there when the
    /// kernel looks. `durable` as for [`Self::write_at`].
    pub fn lend_write(&self, memory: Lent, offset: u64, durable: bool) -> LentOp {
        self.lend(memory, offset, Way::Write { durable })
    }

    fn lend(&self, memory: Lent, offset: u64, way: Way) -> LentOp {
        let aligned = self.is_aligned(memory.len(), offset) && self.takes_lent().is_some();
        let (file, memory) = (self.open.clone(), Box::new(memory));
        LentOp(self.start(
            aligned,
            Operation::Lent {
                file,
                memory,
                offset,
                way,
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

    /// Its zone parameters; nothing when it is not a zoned block device (slow path, done at once).
    pub fn zoned(&self) -> io::Result<Option<Zoned>> {
        let id = self.open.id();
        self.core.with_driver(|driver| driver.zoned(id))
    }

    /// Reports at most `count` zones, from the one that begins at `start` (bytes) on. Fewer when
    /// there are no more, or when the kernel wants to be asked again.
    pub fn report_zones(&self, start: u64, count: u32) -> ZonesOp {
        ZonesOp(self.start_zone(ZoneAction::Report { start, count }))
    }

    /// Erases the zone of `len` bytes at `start`.
    pub fn reset_zone(&self, start: u64, len: u64) -> ControlOp {
        ControlOp(self.start_zone(ZoneAction::Reset { start, len }))
    }

    /// Finishes the zone of `len` bytes at `start`: it takes no more writes and is no longer
    /// active.
    pub fn finish_zone(&self, start: u64, len: u64) -> ControlOp {
        ControlOp(self.start_zone(ZoneAction::Finish { start, len }))
    }

    fn start_zone(&self, action: ZoneAction) -> Flight {
        let file = self.open.clone();
        self.start(true, Operation::Zone { file, action })
    }

    /// The size of a regular file at this moment, in bytes; another program may have changed it
    /// (slow path, done at once).
    pub fn size(&self) -> io::Result<u64> {
        let id = self.open.id();
        self.core.with_driver(|driver| driver.size(id))
    }

    /// Grows or shrinks a regular file (slow path, done at once).
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        let id = self.open.id();
        self.core.with_driver(|driver| driver.set_size(id, size))?;
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

    fn start(&self, valid: bool, operation: Operation) -> Flight {
        if valid {
            Flight::start(&self.core, operation)
        } else {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            Flight::fail(&self.core, operation, error)
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("File").field(&self.info()).finish()
    }
}

ends_as! {
    /// A file read: bytes moved, and the buffer back.
    #[must_use = "dropping it cancels the read"]
    ReadOp(Flight) -> (io::Result<usize>, Buf) {
        |(operation, result)| match operation {
            Operation::Read { buf, .. } => (result.map(Outcome::bytes), buf),
            _ => unreachable!("the operation is the one that was started"),
        }
    }
}

ends_as! {
    /// A file write: bytes moved, and the data back.
    #[must_use = "dropping it cancels the write"]
    WriteOp(Flight) -> (io::Result<usize>, Shared) {
        |(operation, result)| match operation {
            Operation::Write { data, .. } => (result.map(Outcome::bytes), data),
            _ => unreachable!("the operation is the one that was started"),
        }
    }
}

ends_as! {
    /// A transfer between a file and memory that others change meanwhile: bytes moved, and all that
    /// there were. The memory is given back.
    #[must_use = "dropping it cancels the transfer"]
    LentOp(Flight) -> (io::Result<usize>, usize) {
        |(operation, result)| match operation {
            Operation::Lent { memory, .. } => (result.map(Outcome::bytes), memory.len()),
            _ => unreachable!("the operation is the one that was started"),
        }
    }
}

ends_as! {
    /// A file operation without payload.
    #[must_use = "dropping it cancels the operation"]
    ControlOp(Flight) -> io::Result<()> {
        |(_, result)| result.map(drop)
    }
}

ends_as! {
    /// A report of zones.
    #[must_use = "dropping it discards the report"]
    ZonesOp(Flight) -> io::Result<Vec<Zone>> {
        |(_, result)| match result? {
            Outcome::Zones(zones) => Ok(zones),
            _ => unreachable!("a report brings zones"),
        }
    }
}
