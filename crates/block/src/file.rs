//! Devices on a regular file or a kernel block device.
//!
//! Transfers go past the page cache where the file system can do that in units of the block size,
//! and through it where not; both are correct, the first is faster. Flush and forced unit access
//! mean that the medium has the data. Deallocate punches holes. A kernel block device whose sectors
//! are larger than the blocks asked for is refused: the blocks would share sectors, and each write
//! would have to read its neighbours first.
//!
//! After a failed flush it is unknown which of the earlier writes the medium holds. The device then
//! refuses writes and flushes with [`IoError::Write`] until it is opened again; reads go on.
//!
//! A file that is truncated while it is used has lost what lay behind its new end. That is noticed
//! by a read that reaches there, by the next flush, and by a look at its [health](Device::health).
//! From then on writes and flushes are refused as after a failed flush, and reads behind that end
//! give [`IoError::Read`], until the file is opened again with its full size. A write behind the
//! end makes the file longer again. So only a write that ends at the end of the device hides the
//! cut, and only if it comes before the cut is noticed.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flashyard_runtime::{
    Buf, Data, File, FileInfo, FileKind, Lent, OpenOptions, Rt, Shared, ZoneModel,
};

use crate::gate::{Gate, Span};
use crate::open::{OpenError, geometry};
use crate::range::{locate, locate_io};
use crate::system_error::io_error;
use crate::{Device, Done, Health, Info, Io, IoError, IoFuture, LentIo, Limits, Tag, Way};

/// Unit of file system allocation that is worth respecting, in bytes.
const PAGE: u32 = 4096;

/// Zeroes are written in pieces of this many bytes where nothing better is supported.
const ZERO_PIECE: usize = 1 << 20;

/// Options of a device on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// 512 or 4096.
    pub block_size: u32,
    /// Size in bytes. The file is made (sparse) or grown to it, never shrunk. `None`: it must
    /// exist, and its size counts.
    pub size: Option<u64>,
    /// Refuse writes.
    pub read_only: bool,
}

/// See the module.
pub struct FileDevice {
    inner: Rc<Inner>,
}

struct Inner {
    file: File,
    path: PathBuf,
    block_size: u32,
    blocks: Cell<u64>,
    /// Where the file was found to end though the device does not.
    cut: Cell<Option<u64>>,
    read_only: bool,
    kind: FileKind,
    direct: bool,
    /// Cleared when the file system or device says that it cannot.
    punches: Cell<bool>,
    zeroes: Cell<bool>,
    /// The file was made by this opening, and nothing was asked to be written since: it is one
    /// hole.
    blank: Cell<bool>,
    gate: Rc<Gate>,
}

impl FileDevice {
    /// Opens (and makes or grows) a regular file. The file is locked against a second user.
    pub async fn open(rt: &Rt, path: &Path, options: FileOptions) -> Result<Self, OpenError> {
        if let Some(size) = options.size {
            geometry(options.block_size, size)?;
        }
        let create = options.size.is_some() && !options.read_only;
        let mut file = open(rt, path, options.read_only, create, true)?;
        if file.info().kind == FileKind::File && !suits(file.info(), options.block_size) {
            // The first handle's lock has to go before the second one's.
            drop(file);
            file = open(rt, path, options.read_only, create, false)?;
        }
        let info = file.info();
        if info.kind != FileKind::File {
            return Err(OpenError::Config(format!(
                "{} is a block device: set kind = \"block\"",
                path.display()
            )));
        }
        let size = match options.size {
            Some(size) => fit(&file, path, size, options.read_only).await?,
            None => info.size,
        };
        let device = Self::new(rt, file, path, options.block_size, size, options.read_only)?;
        device.inner.blank.set(info.size == 0);
        Ok(device)
    }

    /// Opens a kernel block device (a disk, a partition, a loop device), whole and exclusively.
    pub fn open_block(
        rt: &Rt,
        path: &Path,
        block_size: u32,
        read_only: bool,
    ) -> Result<Self, OpenError> {
        let file = open(rt, path, read_only, false, true)?;
        let info = file.info();
        if info.kind != FileKind::Block {
            return Err(OpenError::Config(format!(
                "{} is a regular file: set kind = \"file\"",
                path.display()
            )));
        }
        let zoned = file.zoned().map_err(|source| OpenError::System {
            path: path.into(),
            action: "ask for the zones of",
            source,
        })?;
        if zoned.is_some_and(|zoned| zoned.model == ZoneModel::HostManaged) && !read_only {
            return Err(OpenError::Config(format!(
                "{} takes writes in order only, zone by zone: set kind = \"zoned\"",
                path.display()
            )));
        }
        Self::new(rt, file, path, block_size, info.size, read_only)
    }

    /// Grows a regular file, and the device with it, to `bytes` bytes.
    pub async fn grow(&self, bytes: u64) -> Result<(), OpenError> {
        let inner = &self.inner;
        let blocks = geometry(inner.block_size, bytes)?;
        if blocks < inner.blocks.get() || inner.kind != FileKind::File || inner.read_only {
            let path = inner.path.display();
            return Err(OpenError::Config(format!(
                "{path} cannot be resized: only a writable file can, and only grow"
            )));
        }
        fit(&inner.file, &inner.path, bytes, false).await?;
        inner.blocks.set(blocks);
        Ok(())
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Writes `buf` at block `lba`, and gives it back in any case: for code that keeps its own
    /// memory.
    pub async fn put(&self, lba: u64, buf: Buf) -> (Result<(), IoError>, Buf) {
        let inner = &self.inner;
        let place = inner
            .writable()
            .and_then(|()| locate(&inner.info(), lba, buf.len()));
        let offset = match place {
            Ok(offset) => offset,
            Err(error) => return (Err(error), buf),
        };
        let (outcome, data) = inner.file.write_at(buf, offset, false).await;
        let buf = own(data);
        let outcome = match outcome {
            Ok(bytes) if bytes < buf.len() => inner.finish(offset, &buf, bytes).await,
            Ok(_) => Ok(()),
            Err(error) => Err(io_error(&error, IoError::Write)),
        };
        (outcome, buf)
    }

    /// Fills `buf` from block `lba` on, and gives it back in any case.
    pub async fn take(&self, lba: u64, buf: Buf) -> (Result<(), IoError>, Buf) {
        let inner = &self.inner;
        match inner.locate_read(lba, buf.len()) {
            Ok(offset) => {
                let (outcome, buf) = whole(inner.file.read_at(buf, offset).await, IoError::Read);
                if outcome.is_err() {
                    inner.look_at_end();
                }
                (outcome, buf)
            }
            Err(error) => (Err(error), buf),
        }
    }

    fn new(
        rt: &Rt,
        file: File,
        path: &Path,
        block_size: u32,
        size: u64,
        read_only: bool,
    ) -> Result<Self, OpenError> {
        let info = file.info();
        let blocks = geometry(block_size, size)?;
        if !suits(info, block_size) {
            return Err(OpenError::Alignment {
                path: path.into(),
                alignment: info.alignment,
                block_size,
            });
        }
        let inner = Inner {
            file,
            path: path.into(),
            block_size,
            blocks: Cell::new(blocks),
            cut: Cell::new(None),
            read_only,
            kind: info.kind,
            direct: info.direct,
            punches: Cell::new(true),
            zeroes: Cell::new(true),
            blank: Cell::new(false),
            gate: Gate::new(rt),
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
    }

    fn begin_read(&self, lba: u64, into: Buf) -> IoFuture {
        let inner = self.inner.clone();
        match inner.locate_read(lba, into.len()) {
            Ok(offset) => {
                let span = span(offset, into.len() as u64);
                let start = move || inner.read(offset, into);
                self.inner.gate.pass(span, false, start)
            }
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    /// Everything that changes the content.
    fn begin_change(&self, io: Io) -> IoFuture {
        let inner = self.inner.clone();
        let place = inner
            .writable()
            .and_then(|()| locate_io(&inner.info(), &io));
        let (offset, len) = match place {
            Ok(place) => place,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let (gate, span) = (&self.inner.gate, span(offset, len));
        match io {
            Io::Write { data, fua, .. } => {
                let start = move || inner.write(offset, data, fua);
                gate.pass(span, fua && self.inner.direct, start)
            }
            Io::Zero { .. } if len == 0 => IoFuture::ended(Ok(())),
            Io::Zero { how, .. } => gate.pass(span, false, move || {
                IoFuture::boxed(inner.zero(offset, len, how.frees()))
            }),
            Io::CompareAndWrite(pair) => {
                let (fua, reader) = (pair.fua(), inner.clone());
                let read = move |into| reader.read(offset, into);
                let write = move |data| inner.write(offset, data, fua);
                gate.compare_and_write(span, fua && self.inner.direct, pair, (read, write))
            }
            Io::Read { .. } | Io::Flush => unreachable!("neither changes anything"),
        }
    }
}

impl Device for FileDevice {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn is_page_cached(&self) -> bool {
        !self.is_direct()
    }

    fn takes_lent(&self) -> Option<u32> {
        self.inner.file.takes_lent()
    }

    fn submit_lent(&self, _: Tag, io: LentIo) -> IoFuture {
        let (inner, bytes) = (self.inner.clone(), io.memory.len());
        let place = match io.way {
            Way::Read => inner.locate_read(io.lba, bytes),
            Way::Write { .. } => inner
                .writable()
                .and_then(|()| locate(&inner.info(), io.lba, bytes)),
        };
        match place {
            Ok(offset) => {
                let durable = io.way == Way::Write { fua: true } && inner.direct;
                let start = move || inner.lend(offset, io.memory, io.way);
                self.inner
                    .gate
                    .pass(span(offset, bytes as u64), durable, start)
            }
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        match io {
            Io::Read { lba, into } => self.begin_read(lba, into),
            Io::Flush if self.inner.read_only => IoFuture::ended(Ok(())),
            Io::Flush => self.inner.clone().flush(),
            io => self.begin_change(io),
        }
    }

    fn take_growth(&self) -> Result<(), IoError> {
        let inner = &self.inner;
        let size = inner.file.size();
        let size = size.map_err(|error| io_error(&error, IoError::Read))?;
        let blocks = size / u64::from(inner.block_size);
        if blocks > inner.blocks.get() {
            inner.blocks.set(blocks);
            inner.blank.set(false);
        }
        Ok(())
    }

    /// Looks whether the file is as long as it was, too.
    fn health(&self) -> Health {
        self.inner.look_at_end();
        Health::default()
    }

    fn is_blank(&self) -> bool {
        self.inner.blank.get()
    }
}

impl Inner {
    fn info(&self) -> Info {
        Info {
            block_size: self.block_size,
            blocks: self.blocks.get(),
            // Whether a disk's cache is volatile is not known for files and often wrong for disks.
            volatile_cache: true,
            read_only: self.read_only,
            deallocate: self.punches.get() && !self.read_only,
            limits: Limits {
                write_granularity: PAGE / self.block_size,
                optimal_write: PAGE / self.block_size,
                atomic_write: 1,
                deallocate_granularity: PAGE / self.block_size,
            },
        }
    }

    /// Whether a write may begin. From then on the device is no longer blank.
    fn writable(&self) -> Result<(), IoError> {
        self.blank.set(false);
        self.look_if_doubtful();
        if self.read_only {
            Err(IoError::WriteProtected)
        } else {
            self.gate.durability.check()
        }
    }

    /// Where a read is, if nothing of it is lost.
    fn locate_read(&self, lba: u64, len: usize) -> Result<u64, IoError> {
        self.look_if_doubtful();
        let offset = locate(&self.info(), lba, len)?;
        let end = offset + len as u64;
        match self.cut.get() {
            Some(cut) if end > cut => Err(IoError::Read),
            _ => Ok(offset),
        }
    }

    fn read(&self, offset: u64, into: Buf) -> IoFuture {
        IoFuture::read(
            self.file.read_at(into, offset),
            |outcome, buf| match outcome {
                Ok(bytes) if bytes == buf.len() => Ok(Data::Buf(buf).into()),
                // The file was truncated: the gate is notified.
                Ok(_) => Err(IoError::Read),
                Err(error) => Err(io_error(&error, IoError::Read)),
            },
        )
    }

    /// Looks whether the file is as long as the device.
    fn look_at_end(&self) {
        let device = self.blocks.get() * u64::from(self.block_size);
        if self.kind == FileKind::File
            && let Ok(size) = self.file.size()
            && size < self.cut.get().unwrap_or(device)
        {
            self.cut.set(Some(size));
            self.gate.durability.give_up();
        }
    }

    /// Looks whether the file is as long as the device if a read has failed.
    #[inline]
    fn look_if_doubtful(&self) {
        if self.gate.take_failed_read() {
            self.look_at_end();
        }
    }

    /// Through the page cache, forced unit access is a write and a shared flush: a synchronous
    /// write of its own would swallow the report of other lost writes.
    fn write(self: Rc<Self>, offset: u64, data: Shared, fua: bool) -> IoFuture {
        let write = IoFuture::write(
            self.file.write_at(data, offset, fua && self.direct),
            |outcome, data| moved(outcome, data.len(), IoError::Write),
        );
        self.forced(write, fua)
    }

    /// A write that was issued, and what forced unit access takes beyond it.
    fn forced(self: Rc<Self>, write: IoFuture, fua: bool) -> IoFuture {
        if !fua || self.direct {
            return write;
        }
        IoFuture::boxed(async move {
            write.await?;
            self.flush().await
        })
    }

    /// As [`Self::read`] and [`Self::write`].
    fn lend(self: Rc<Self>, offset: u64, memory: Lent, way: Way) -> IoFuture {
        let fua = match way {
            Way::Read => {
                let read = self.file.lend_read(memory, offset);
                return IoFuture::lent(read, |outcome, all| moved(outcome, all, IoError::Read));
            }
            Way::Write { fua } => fua,
        };
        let write = self.file.lend_write(memory, offset, fua && self.direct);
        let write = IoFuture::lent(write, |outcome, all| moved(outcome, all, IoError::Write));
        self.forced(write, fua)
    }

    /// Writes what a short write has left of `buf`, which shows why it was short.
    async fn finish(&self, offset: u64, buf: &[u8], written: usize) -> Result<(), IoError> {
        let whole = written - written % self.block_size as usize;
        let mut rest = Buf::take(buf.len() - whole).ok_or(IoError::Busy)?;
        rest.copy_from_slice(&buf[whole..]);
        match self.file.write_at(rest, offset + whole as u64, false).await {
            (Ok(bytes), rest) if bytes == rest.len() => Ok(()),
            (Ok(_), _) => Err(IoError::NoSpace),
            (Err(error), _) => Err(io_error(&error, IoError::Write)),
        }
    }

    fn flush(self: Rc<Self>) -> IoFuture {
        self.look_at_end();
        let inner = self.clone();
        self.gate
            .flush(move || IoFuture::control(inner.file.sync(), written))
    }

    /// Makes a range zero in the cheapest way that is supported.
    async fn zero(self: Rc<Self>, offset: u64, len: u64, free: bool) -> Result<Done, IoError> {
        for punch in [free, !free] {
            let able = if punch { &self.punches } else { &self.zeroes };
            if !able.get() {
                continue;
            }
            let file = &self.file;
            let outcome = if punch {
                file.punch(offset, len)
            } else {
                file.zero(offset, len)
            }
            .await;
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => able.set(false),
                outcome => return written(outcome).map(|()| Done::EMPTY),
            }
        }
        self.write_zero_bytes(offset, len).await?;
        Ok(Done::EMPTY)
    }

    async fn write_zero_bytes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let piece = len.min(ZERO_PIECE as u64) as usize;
        let mut zeroes = Buf::take_zeroed(piece).ok_or(IoError::Busy)?;
        let mut done = 0;
        while done < len {
            zeroes.set_len((len - done).min(piece as u64) as usize);
            let (outcome, written) = self.file.write_at(zeroes, offset + done, false).await;
            let bytes = outcome.map_err(|error| io_error(&error, IoError::Write))?;
            if bytes != written.len() {
                return Err(IoError::Write);
            }
            done += bytes as u64;
            zeroes = own(written);
        }
        Ok(())
    }
}

fn span(offset: u64, len: u64) -> Span {
    Span {
        start: offset,
        end: offset + len,
    }
}

/// A buffer that came back from a write and has no other holder.
fn own(data: Shared) -> Buf {
    let buf = data.try_into_buf();
    buf.unwrap_or_else(|_| unreachable!("it was written alone"))
}

/// A transfer is whole or has failed, for which `failure` stands when nothing better is known.
fn moved(outcome: io::Result<usize>, all: usize, failure: IoError) -> Result<(), IoError> {
    match outcome {
        Ok(bytes) if bytes == all => Ok(()),
        Ok(_) => Err(failure),
        Err(error) => Err(io_error(&error, failure)),
    }
}

/// The same with the buffer.
fn whole((outcome, buf): (io::Result<usize>, Buf), failure: IoError) -> (Result<(), IoError>, Buf) {
    (moved(outcome, buf.len(), failure), buf)
}

fn written(outcome: io::Result<()>) -> Result<(), IoError> {
    outcome.map_err(|error| io_error(&error, IoError::Write))
}

/// Opens what is there; only if nothing is, and `create`, makes a file.
fn open(
    rt: &Rt,
    path: &Path,
    read_only: bool,
    create: bool,
    direct: bool,
) -> Result<File, OpenError> {
    let present = OpenOptions {
        write: !read_only,
        create: false,
        direct,
        exclusive: true,
    };
    let opened = match rt.open(path, present) {
        Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
            rt.open(path, OpenOptions { create, ..present })
        }
        opened => opened,
    };
    opened.map_err(|source| OpenError::System {
        path: path.into(),
        action: "open",
        source,
    })
}

/// Whether a device of such blocks can be made of whole transfers.
fn suits(info: FileInfo, block_size: u32) -> bool {
    block_size.is_multiple_of(info.alignment.max(1))
}

/// Makes the file at least `size` bytes long, for good, and gives the size of the device.
async fn fit(file: &File, path: &Path, size: u64, read_only: bool) -> Result<u64, OpenError> {
    let present = file.info().size;
    if present > size {
        let path = path.display();
        return Err(OpenError::Config(format!(
            "{path} has {present} bytes already, more than the size {size}: give its size, or remove it if it is not needed"
        )));
    }
    if present < size {
        if read_only {
            let path = path.display();
            return Err(OpenError::Config(format!(
                "{path} has only {present} bytes of {size} and is opened read-only"
            )));
        }
        let failed = |source| OpenError::System {
            path: path.into(),
            action: "grow",
            source,
        };
        file.set_size(size).map_err(failed)?;
        file.sync().await.map_err(failed)?;
    }
    Ok(size)
}
