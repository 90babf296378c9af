//! A disk for tests: it has latency, records the order of events, and can fail.

use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::ops::{Deref, DerefMut, Range};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use flashyard_block::{
    Device, DeviceExt, Done, Info, Io, IoError, IoFuture, Limits, SharedDevice, Tag,
};
use flashyard_runtime::sync::oneshot;
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::Rng;

use crate::Content;

/// Runs a test's main task on a core of the real machine.
pub fn run<F: Future + 'static>(main: impl FnOnce(Rt) -> F) -> F::Output {
    let config = Config {
        buffer_bytes: 64 << 20,
        ..Config::default()
    };
    uring::run(config, main).expect("this machine has io_uring")
}

/// What happened to the medium, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes arrived in the disk's cache.
    Write {
        /// Where, in bytes.
        offset: usize,
        /// Which.
        bytes: Rc<[u8]>,
    },
    /// A range became zero in the disk's cache.
    Zero {
        /// From where, in bytes.
        offset: usize,
        /// How many.
        len: usize,
    },
    /// All before is on the medium.
    Flush,
}

impl Event {
    /// The bytes that it changes.
    pub(crate) fn range(&self) -> Range<usize> {
        match self {
            Self::Write { offset, bytes } => *offset..offset + bytes.len(),
            Self::Zero { offset, len } => *offset..offset + len,
            Self::Flush => 0..0,
        }
    }

    /// Lets the part of it happen that is in `range`.
    pub(crate) fn apply_part(&self, content: &mut Content, range: Range<usize>) {
        match self {
            Self::Write { offset, bytes } => {
                let part = range.start - offset..range.end - offset;
                content.write(range.start, bytes, part);
            }
            Self::Zero { .. } => content.zero(range),
            Self::Flush => {}
        }
    }
}

/// A disk with a volatile cache. All is done some polls after it was asked for, at completion and
/// not before.
#[derive(Clone)]
pub struct Disk {
    block_size: u32,
    content: Rc<RefCell<Content>>,
    events: Rc<RefCell<Vec<Event>>>,
    rng: Rc<RefCell<Rng>>,
    /// Polls that an I/O takes at most.
    slow: u64,
    /// Where I/O runs that no task waits for any more.
    kernel: Option<Rt>,
    /// Operations that change something still succeed this many times.
    changes_left: Rc<Cell<u64>>,
}

impl Disk {
    /// A disk of `content`.
    pub fn new(block_size: u32, content: impl Into<Content>, seed: u64) -> Self {
        let content = Rc::new(RefCell::new(content.into()));
        let rng = Rc::new(RefCell::new(Rng::new(seed)));
        let changes_left = Rc::new(Cell::new(u64::MAX));
        Self {
            block_size,
            content,
            events: Rc::default(),
            rng,
            slow: 4,
            kernel: None,
            changes_left,
        }
    }

    /// The same disk, as the trait object that users hold.
    pub fn shared(&self) -> SharedDevice {
        Rc::new(self.clone())
    }

    /// The same disk, slow, and finishing what it has begun even if the future is dropped, as a
    /// kernel does.
    pub fn behind_a_kernel(self, rt: &Rt) -> Self {
        Self {
            slow: 60,
            kernel: Some(rt.clone()),
            ..self
        }
    }

    /// Fails with a write fault after `count` more changes.
    pub fn fail_after(&self, count: u64) {
        self.changes_left.set(count);
    }

    /// What is on it, its cache included.
    pub fn content(&self) -> Content {
        self.content.borrow().clone()
    }

    /// The same, to be looked at and changed in place.
    pub fn bytes(&self) -> Bytes<'_> {
        let content = self.content.borrow_mut();
        Bytes {
            all: content.bytes(),
            content,
            changed: false,
        }
    }

    /// What happened until now.
    pub fn events(&self) -> Vec<Event> {
        self.events.borrow().clone()
    }

    /// How many events there are.
    pub fn happened(&self) -> usize {
        self.events.borrow().len()
    }

    fn act(&self, io: Io) -> Result<Done, IoError> {
        let blocks = io.blocks(self.block_size)?;
        let len = (blocks * u64::from(self.block_size)) as usize;
        let offset = self.place(io.lba(), len)?;
        match io {
            Io::Read { mut into, .. } => {
                self.content.borrow().read(offset, &mut into);
                return Ok(Data::Buf(into).into());
            }
            Io::Write { data, .. } => {
                let bytes = data[..].into();
                self.change(Event::Write { offset, bytes })?;
            }
            Io::Zero { .. } => self.change(Event::Zero { offset, len })?,
            Io::Flush => self.change(Event::Flush)?,
            Io::CompareAndWrite(_) => return Err(IoError::Unsupported),
        }
        Ok(Done::EMPTY)
    }

    /// How long the next I/O takes. Behind a kernel some take much longer than most.
    fn polls(&self) -> u64 {
        let mut rng = self.rng.borrow_mut();
        let most = if self.kernel.is_some() && rng.below(8) == 0 {
            20 * self.slow
        } else {
            self.slow
        };
        rng.below(most + 1)
    }

    fn change(&self, event: Event) -> Result<(), IoError> {
        let left = self.changes_left.get();
        self.changes_left
            .set(left.checked_sub(1).ok_or(IoError::Write)?);
        apply(&mut self.content.borrow_mut(), &event);
        self.events.borrow_mut().push(event);
        Ok(())
    }

    fn place(&self, lba: u64, len: usize) -> Result<usize, IoError> {
        let offset = lba
            .checked_mul(u64::from(self.block_size))
            .ok_or(IoError::OutOfRange)?;
        let end = offset.checked_add(len as u64).ok_or(IoError::OutOfRange)?;
        if end <= self.content.borrow().size() as u64 {
            Ok(offset as usize)
        } else {
            Err(IoError::OutOfRange)
        }
    }
}

impl Device for Disk {
    fn info(&self) -> Info {
        Info {
            block_size: self.block_size,
            blocks: self.content.borrow().size() as u64 / u64::from(self.block_size),
            volatile_cache: true,
            read_only: false,
            deallocate: true,
            limits: Limits {
                atomic_write: 1,
                ..Limits::default()
            },
        }
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        if let Io::CompareAndWrite(_) = io {
            return IoFuture::ready(Err(IoError::Unsupported));
        }
        let disk = self.clone();
        let polls = self.polls();
        let io = async move {
            yields(polls).await;
            disk.act(io)
        };
        let Some(rt) = &self.kernel else {
            return IoFuture::boxed(io);
        };
        let (sender, receiver) = oneshot::channel();
        rt.spawn(async move { drop(sender.send(io.await)) })
            .detach();
        IoFuture::boxed(async move { receiver.await.expect("the kernel answers") })
    }
}

/// All bytes of a [`Disk`]. It takes no I/O meanwhile, and has what was changed in them then.
pub struct Bytes<'a> {
    content: RefMut<'a, Content>,
    all: Vec<u8>,
    changed: bool,
}

impl Deref for Bytes<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Bytes<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.changed = true;
        &mut self.all
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        if self.changed {
            *self.content = std::mem::take(&mut self.all).into();
        }
    }
}

/// Lets `event` happen to `content`.
pub fn apply(content: &mut Content, event: &Event) {
    event.apply_part(content, event.range());
}

/// Yields to the executor `count` times.
pub async fn yields(count: u64) {
    for _ in 0..count {
        Yield(false).await;
    }
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A buffer with `len` times `value`.
pub fn filled(len: usize, value: u8) -> Buf {
    let mut buf = Buf::take(len).expect("tests need few buffers");
    buf.fill(value);
    buf
}

/// Reads `len` bytes at block `lba`.
pub async fn read(device: &dyn Device, lba: u64, len: usize) -> Result<Vec<u8>, IoError> {
    match device.read(Tag::default(), lba, filled(len, 0xa5)).await? {
        Data::Buf(buf) => Ok(buf.to_vec()),
        Data::Zeroes(len) => Ok(vec![0; len]),
    }
}

/// Writes `len` times `value` at block `lba`.
pub async fn write(device: &dyn Device, lba: u64, len: usize, value: u8) -> Result<(), IoError> {
    device
        .write(Tag::default(), lba, filled(len, value), false)
        .await
}

/// Flushes.
pub async fn flush(device: &dyn Device) -> Result<(), IoError> {
    device.flush(Tag::default()).await
}

/// Random I/O against an array in memory, over the first 2 MiB of a device that reads as zeroes
/// there.
pub async fn behaves_as_an_array(device: &dyn Device, seed: u64, rounds: usize) {
    let info = device.info();
    let block = info.block_size as usize;
    let blocks = info.blocks.min((2 << 20) / block as u64);
    let mut model = vec![0u8; blocks as usize * block];
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let lba = rng.below(blocks);
        let count = 1 + rng.below((blocks - lba).min(64 * 4096 / block as u64));
        let range = lba as usize * block..(lba + count) as usize * block;
        let tag = Tag::default();
        match rng.below(7) {
            0 | 1 => {
                let value = rng.below(256) as u8;
                let fua = rng.below(4) == 0;
                device
                    .write(tag, lba, filled(range.len(), value), fua)
                    .await
                    .unwrap();
                model[range].fill(value);
            }
            2 => {
                device
                    .write_zeroes(tag, lba, count, rng.below(2) == 0)
                    .await
                    .unwrap();
                model[range].fill(0);
            }
            3 => {
                device.deallocate(tag, lba, count).await.unwrap();
                model[range].fill(0);
            }
            4 => {
                let (mut old, new) = (filled(range.len(), 0), filled(range.len(), round as u8));
                old.copy_from_slice(&model[range.clone()]);
                let same = rng.below(2) == 0;
                old[range.len() - 1] ^= u8::from(!same);
                let outcome = device.compare_and_write(tag, lba, old, new, false).await;
                assert_eq!(
                    outcome,
                    if same {
                        Ok(())
                    } else {
                        Err(IoError::Miscompare)
                    }
                );
                if same {
                    model[range].fill(round as u8);
                }
            }
            5 => flush(device).await.unwrap(),
            _ => assert!(
                read(device, lba, range.len()).await.unwrap() == model[range],
                "round {round}"
            ),
        }
    }
    assert!(read(device, 0, model.len()).await.unwrap() == model);
}

/// Every kind of I/O that is not wholly on the device gets the same answer.
pub async fn refuses_what_is_not_there(device: &dyn Device) {
    let info = device.info();
    let block = info.block_size as usize;
    for (lba, len) in [
        (info.blocks, block),
        (info.blocks - 1, 2 * block),
        (u64::MAX, block),
        (u64::MAX, 4 * block),
    ] {
        let tag = Tag::default();
        let blocks = (len / block) as u64;
        assert_eq!(read(device, lba, len).await, Err(IoError::OutOfRange));
        assert_eq!(write(device, lba, len, 1).await, Err(IoError::OutOfRange));
        assert_eq!(
            device.deallocate(tag, lba, blocks).await,
            Err(IoError::OutOfRange)
        );
        assert_eq!(
            device.write_zeroes(tag, lba, blocks, false).await,
            Err(IoError::OutOfRange)
        );
        let both = device
            .compare_and_write(tag, lba, filled(len, 0), filled(len, 0), false)
            .await;
        assert_eq!(both, Err(IoError::OutOfRange));
    }
    assert_eq!(
        device.deallocate(Tag::default(), 1, u64::MAX).await,
        Err(IoError::OutOfRange)
    );
    assert_eq!(read(device, 0, block / 2).await, Err(IoError::OutOfRange));
}
