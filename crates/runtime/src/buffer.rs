//! Memory that I/O moves through. A [`Buf`] is page-aligned and owned: whoever holds it may use it, and an
//! operation in flight holds it until the kernel is done. Buffers come from a pool of the thread that takes
//! them and return to the pool of the thread that drops them; their memory is never unmapped, so a `Buf` may
//! cross cores.

use std::ops::{Deref, DerefMut, Range};

/// Alignment of every buffer, and the unit their sizes are rounded to.
pub const PAGE: usize = 4096;

/// An owned, page-aligned piece of memory of up to 1 MiB. Its content is whatever the last user left there.
#[derive(Debug)]
pub struct Buf {
    pub(crate) bytes: Vec<u8>,
}

impl Buf {
    /// Takes a buffer of `len` bytes (1 byte to 2 MiB) from this thread's pool; `None` when the pool has
    /// reached its bound, which is set by `uring::Config::buffer_bytes` or `sim::Config`.
    pub fn take(len: usize) -> Option<Self> {
        let _ = len;
        unimplemented!()
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
        let _ = len;
        unimplemented!()
    }

    /// Bytes this buffer could hold.
    pub fn capacity(&self) -> usize {
        unimplemented!()
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// What a read brought: a buffer, or so many zeroes that nobody had to write down.
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

/// Received bytes in a piece of the core's shared receive ring (at most 16 KiB); goes back there when dropped.
/// Take what you need and drop it before waiting for anything.
#[derive(Debug)]
pub struct Chunk {
    pub(crate) bytes: Vec<u8>,
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An ordered list of pieces to be sent in one call: small copied bytes (headers) and owned payload. Keeps its
/// allocations when cleared, so a connection uses two of them in turn for ever.
#[derive(Debug, Default)]
pub struct Gather {}

impl Gather {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy of `bytes` (meant for headers; merged with a directly preceding copy).
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let _ = bytes;
        unimplemented!()
    }

    /// Appends `range` of `data`, which is kept until the list is cleared.
    pub fn push_data(&mut self, data: Data, range: Range<usize>) {
        let _ = (data, range);
        unimplemented!()
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pieces in all: each becomes one iovec (at most 1024 are sent by one call; more are sent by several).
    pub fn pieces(&self) -> usize {
        unimplemented!()
    }

    /// Forgets everything and gives the payload back to the pool.
    pub fn clear(&mut self) {
        unimplemented!()
    }
}
