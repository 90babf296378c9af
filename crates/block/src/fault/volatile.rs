//! A volatile write cache before a device, which a flush that lies leaves as it is. What is in it
//! is lost when the layer is closed or the program ends.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::{Buf, Data, Rt};

use super::kept::Kept;
use crate::io::Done;
use crate::{Info, Io, IoError, IoFuture, SharedDevice, Tag};

/// Bytes that the cache holds at most. What does not fit goes to the device at once.
const MOST: usize = 16 << 20;

pub(super) struct Volatile {
    pub rt: Rt,
    pub device: SharedDevice,
    block_size: u32,
    /// Writes are kept.
    on: Cell<bool>,
    kept: RefCell<Kept>,
    /// Held while anything that is kept goes to the device: neither this nor what follows in its
    /// place overtakes the other.
    turn: Semaphore,
}

impl Volatile {
    /// An empty cache that keeps nothing yet.
    pub fn new(rt: &Rt, device: SharedDevice) -> Rc<Self> {
        let block_size = device.info().block_size;
        Rc::new(Self {
            rt: rt.clone(),
            device,
            block_size,
            on: Cell::new(false),
            kept: RefCell::new(Kept::new(block_size, MOST)),
            turn: Semaphore::new(1),
        })
    }

    /// Whether writes are kept from now on.
    pub fn set(&self, on: bool) {
        self.on.set(on);
    }

    /// Whether all I/O goes straight to the device.
    pub fn is_idle(&self) -> bool {
        !self.on.get() && self.kept.borrow().is_empty()
    }

    /// Bytes that would be lost now.
    pub fn bytes(&self) -> u64 {
        self.kept.borrow().bytes()
    }

    /// Loses what is kept.
    pub fn lose(&self) {
        self.on.set(false);
        self.kept.borrow_mut().clear();
    }

    /// Keeps a write although its end is a promise; gives it back when there is no room.
    pub fn keep(&self, io: Io) -> Result<(), Io> {
        match io {
            Io::Write { lba, data, .. }
                if self.on.get() && self.kept.borrow_mut().try_put(lba, &data) =>
            {
                Ok(())
            }
            io => Err(io),
        }
    }

    /// Does an I/O that lies on the device, and keeps what it promises.
    pub fn submit(self: &Rc<Self>, tag: Tag, io: Io) -> IoFuture {
        if self.is_idle() {
            return self.device.submit(tag, io);
        }
        let io = match io {
            io @ Io::Write { .. } if !promises(&self.device.info(), &io) => match self.keep(io) {
                Ok(()) => return IoFuture::ended(Ok(())),
                Err(io) => io,
            },
            io => io,
        };
        let range = self.range(&io);
        let kept = self.kept.borrow().range(range.clone());
        if kept.is_empty() && !matches!(io, Io::Flush) {
            return self.device.submit(tag, io);
        }
        let cache = Rc::clone(self);
        lasting(&self.rt, async move {
            if let Io::Read { lba, into } = io {
                let read = cache.device.submit(tag, Io::Read { lba, into }).await?;
                return patch(read.data, lba, &kept).map(Done::from);
            }
            let _turn = cache.turn().await;
            cache.write_back(tag, range).await?;
            cache.device.submit(tag, io).await
        })
    }

    /// Has what is kept of a range on its way to the device, and forgets it when it is there.
    async fn write_back(self: &Rc<Self>, tag: Tag, range: Range<u64>) -> Result<(), IoError> {
        let kept = self.kept.borrow().range(range);
        let device = Rc::clone(&self.device);
        let writes = kept.clone().into_iter().map(move |(lba, block)| {
            let Some(mut data) = Buf::take(block.len()) else {
                return IoFuture::ended(Err(IoError::Busy));
            };
            data.copy_from_slice(&block);
            let (data, fua) = (data.into(), false);
            device.submit(tag, Io::Write { lba, data, fua })
        });
        IoFuture::in_batches(&self.rt, writes).await?;
        self.kept.borrow_mut().forget(&kept);
        Ok(())
    }

    /// The blocks that have to be on the device before an I/O.
    fn range(&self, io: &Io) -> Range<u64> {
        match io.blocks(self.block_size) {
            Ok(blocks) if !matches!(io, Io::Flush) => io.lba()..io.lba().saturating_add(blocks),
            _ => 0..u64::MAX,
        }
    }

    async fn turn(self: &Rc<Self>) -> Turn {
        self.turn.acquire(1).await;
        Turn(Rc::clone(self))
    }
}

/// Given back when dropped.
struct Turn(Rc<Volatile>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turn.release(1);
    }
}

/// Whether the end of an I/O says that data are on the medium.
pub(super) fn promises(info: &Info, io: &Io) -> bool {
    match io {
        Io::Flush => true,
        Io::Write { fua, .. } => *fua || !info.volatile_cache,
        _ => false,
    }
}

/// A future that runs to its end even when it is dropped: it has issued something.
pub(super) fn lasting(
    rt: &Rt,
    future: impl Future<Output = Result<Done, IoError>> + 'static,
) -> IoFuture {
    let mut all = IoFuture::all(rt);
    all.push(IoFuture::boxed(future));
    all.into_io()
}

/// What was read, as a buffer; [`IoError::Busy`] when there is none.
pub(super) fn into_buf(data: Data) -> Result<Buf, IoError> {
    match data {
        Data::Buf(buf) => Ok(buf),
        Data::Zeroes(len) => Buf::take_zeroed(len).ok_or(IoError::Busy),
    }
}

/// What was read from block `lba` on, with these blocks in their places.
pub(super) fn patch(data: Data, lba: u64, blocks: &[(u64, Rc<[u8]>)]) -> Result<Data, IoError> {
    let mut buf = into_buf(data)?;
    for (place, block) in blocks {
        let start = (place - lba) as usize * block.len();
        buf[start..start + block.len()].copy_from_slice(block);
    }
    Ok(Data::Buf(buf))
}
