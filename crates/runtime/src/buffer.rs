//! Memory that I/O moves through. A [`Buf`] is page-aligned and owned: its holder may use it, and
//! an operation in flight holds it until the kernel is done. Buffers come from the pool of the core
//! that takes them and return there wherever they are dropped; their addresses are never unmapped,
//! so a `Buf` may cross cores.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::memory::{self, Piece};

/// Alignment of every buffer, and the unit their sizes are rounded to.
pub const PAGE: usize = 4096;

/// An owned piece of memory of up to 2 MiB, page-aligned unless it is a [part](crate::Parts) of
/// another. Its content is whatever the last user left there.
pub struct Buf {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: u32,
    pub(crate) tenure: Tenure,
}

/// The part of a piece of the pool that a buffer holds.
#[derive(Clone, Copy)]
pub(crate) enum Tenure {
    /// All of it, alone.
    Whole { home: u16, class: u8 },
    /// A part of it, `room` times [`GRAIN`] long, or a view of it. The piece counts its holders.
    Counted { room: u16, class: u8 },
}

/// Parts of a buffer are multiples of this long: the smallest block.
pub(crate) const GRAIN: usize = 512;

// SAFETY: a buffer owns plain memory that is never unmapped and has no ties to a thread.
unsafe impl Send for Buf {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// Takes a buffer of `len` bytes (up to 2 MiB) from this core's pool. `None` in three cases:
    /// the buffers in use and this one, each rounded up to a power of two, are beyond the pool's
    /// bound (`uring::Config::buffer_bytes` or `sim::Config::buffer_bytes`); `len` is too large; or
    /// the system has no memory. There is no other reason, however sizes were mixed and wherever
    /// buffers are dropped.
    #[inline]
    pub fn take(len: usize) -> Option<Self> {
        let Piece { start, home, class } = memory::take(len)?;
        Some(Self {
            start,
            len: len as u32,
            tenure: Tenure::Whole { home, class },
        })
    }

    /// The same, filled with zeroes.
    pub fn take_zeroed(len: usize) -> Option<Self> {
        let mut buf = Self::take(len)?;
        buf.fill(0);
        Some(buf)
    }

    /// Shortens (or lengthens again, up to the capacity) what the buffer shows.
    ///
    /// # Panics
    /// When `len` is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "{len} bytes in a buffer of {}",
            self.capacity()
        );
        self.len = len as u32;
    }

    /// Bytes this buffer could hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        match self.tenure {
            Tenure::Whole { class, .. } => memory::size_of_class(class),
            Tenure::Counted { room, .. } => usize::from(room) * GRAIN,
        }
    }

    /// Bytes of all buffers this thread took, less those of buffers dropped on it (negative where
    /// buffers of other threads end). Sizes count as what they occupy: powers of two.
    pub fn balance() -> isize {
        memory::balance()
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.tenure.end(self.start);
    }
}

impl Tenure {
    /// Frees it. `start` is the start of the piece, or in the part that is held.
    #[inline]
    pub(crate) fn end(self, start: NonNull<u8>) {
        match self {
            Self::Whole { home, class } => memory::give(Piece { start, home, class }),
            Self::Counted { class, .. } => memory::let_go(start, class),
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer owns `capacity` initialised bytes from `start` on, which no other code
        // reads or writes, and `len` is at most that.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the exclusive borrow of the owner makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Buf({} of {} bytes)", self.len, self.capacity())
    }
}

/// What a read brought: a buffer, or a number of zeroes that were not written into a buffer.
#[derive(Debug)]
pub enum Data {
    /// Bytes in memory.
    Buf(Buf),
    /// This many zero bytes (unmapped blocks, a null device); sent from one shared page run.
    Zeroes(usize),
}

impl Data {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Zeroes(len) => *len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Received bytes in a piece of the core's shared receive ring (at most 16 KiB); goes back there
/// when dropped. Take what you need and drop it before waiting for anything.
pub struct Chunk {
    start: NonNull<u8>,
    len: u32,
    owner: Owner,
}

/// Where a chunk's memory goes when the chunk is dropped.
enum Owner {
    None,
    Ring { ring: Rc<dyn ChunkOwner>, id: u16 },
    Heap { capacity: usize },
}

/// Takes chunks back.
pub(crate) trait ChunkOwner {
    /// The memory of chunk `id` is free again.
    fn give_back(&self, id: u16);
}

impl Chunk {
    /// The end of a stream.
    pub(crate) fn empty() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            owner: Owner::None,
        }
    }

    /// Bytes on the heap (for the simulated world).
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let start = NonNull::new(bytes.as_mut_ptr()).expect("a vector's pointer is not null");
        Self {
            start,
            len: bytes.len() as u32,
            owner: Owner::Heap {
                capacity: bytes.capacity(),
            },
        }
    }

    /// The first `len` bytes of chunk `id` of a ring.
    ///
    /// # Safety
    /// `start` points to `len` initialised bytes that are not written to until `ring` got chunk
    /// `id` back, and that live as long as `ring`.
    pub(crate) unsafe fn of_ring(
        ring: Rc<dyn ChunkOwner>,
        id: u16,
        start: NonNull<u8>,
        len: u32,
    ) -> Self {
        Self {
            start,
            len,
            owner: Owner::Ring { ring, id },
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &self.owner {
            Owner::None => {}
            Owner::Ring { ring, id } => ring.give_back(*id),
            Owner::Heap { capacity } => {
                let (start, len) = (self.start.as_ptr(), self.len as usize);
                // SAFETY: these are the parts of the vector that `owned` took apart, put together
                // once.
                drop(unsafe { Vec::from_raw_parts(start, len, *capacity) });
            }
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: every constructor gives `len` initialised bytes that stay until the chunk is
        // dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Chunk({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_shows_what_was_asked_for() {
        let mut buf = Buf::take(5000).expect("the default bound is far");
        assert_eq!(
            (buf.len(), buf.capacity(), buf.as_ptr().addr() % PAGE),
            (5000, 8192, 0)
        );
        buf.fill(7);
        buf.set_len(8192);
        assert!(buf[..5000].iter().all(|&byte| byte == 7));
        buf.set_len(0);
        assert!(buf.is_empty());
        drop(buf);
        assert!(
            Buf::take_zeroed(100)
                .expect("there is room")
                .iter()
                .all(|&byte| byte == 0)
        );
        assert!(Buf::take((2 << 20) + 1).is_none());
    }

    #[test]
    #[should_panic(expected = "8193 bytes in a buffer of 8192")]
    fn a_buffer_cannot_be_longer_than_its_capacity() {
        Buf::take(5000)
            .expect("the default bound is far")
            .set_len(8193);
    }

    #[test]
    fn an_owned_chunk_keeps_its_bytes() {
        let chunk = Chunk::owned(vec![1, 2, 3]);
        assert_eq!(*chunk, [1, 2, 3]);
        assert!(Chunk::owned(Vec::new()).is_empty());
        assert!(Chunk::empty().is_empty());
    }
}
