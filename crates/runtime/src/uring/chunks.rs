//! The receive ring: chunks of memory that the kernel fills when data come, for any connection.
//! Idle connections therefore hold none. (`io_uring_setup_buf_ring(3)`.) Beside it, a stack of
//! chunks for receives past the io_uring.

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::Chunk;
use crate::buffer::ChunkOwner;

/// Bytes of a chunk. Small ones stay in the processor's cache.
pub(super) const CHUNK: usize = 16 << 10;
/// The number of this ring among the buffer groups of the io_uring.
pub(super) const GROUP: u16 = 0;

/// The ring's memory: a page run of entries, then the chunks. Shared with the kernel until the
/// io_uring is gone.
pub(super) struct ChunkRing {
    base: NonNull<u8>,
    bytes: usize,
    /// Number of entries, a power of two.
    entries: u16,
    chunks: u16,
    /// Where the next free chunk is entered.
    tail: Cell<u16>,
    /// How many chunks the kernel has.
    available: Cell<u16>,
}

impl ChunkRing {
    /// Maps and registers a ring.
    pub(super) fn new(submitter: &Submitter<'_>, chunks: u16) -> io::Result<Rc<Self>> {
        let chunks = chunks.clamp(1, 1 << 15);
        let entries = chunks.next_power_of_two();
        let bytes = Self::entry_bytes(entries) + usize::from(chunks) * CHUNK;
        let ring = Rc::new(Self {
            base: map(bytes)?,
            bytes,
            entries,
            chunks,
            tail: Cell::new(0),
            available: Cell::new(0),
        });
        // SAFETY: the ring's memory is page-aligned, holds `entries` entries, and the kernel keeps
        // the pages for as long as the registration lasts, whatever becomes of our mapping.
        unsafe {
            let start = ring.base.addr().get() as u64;
            submitter.register_buf_ring_with_flags(start, entries, GROUP, 0)?;
        }
        (0..chunks).for_each(|id| ring.give_back(id));
        Ok(ring)
    }

    /// The first `len` bytes of chunk `id`, which the kernel has just filled and handed over.
    pub(super) fn filled(self: &Rc<Self>, id: u16, len: usize) -> Chunk {
        assert!(
            id < self.chunks && len <= CHUNK,
            "the kernel hands out what it was given"
        );
        self.available.set(self.available.get() - 1);
        // SAFETY: the kernel took the chunk out of the ring, so it is not written to until it is
        // given back; it lies inside of the mapping, which lives as long as the ring.
        unsafe { Chunk::of_ring(self.clone(), id, self.chunk(id), len as u32) }
    }

    /// How many chunks the kernel has.
    pub(super) fn available(&self) -> u16 {
        self.available.get()
    }

    fn entry_bytes(entries: u16) -> usize {
        (usize::from(entries) * size_of::<BufRingEntry>()).next_multiple_of(crate::PAGE)
    }

    /// Where chunk `id` is.
    fn chunk(&self, id: u16) -> NonNull<u8> {
        let offset = Self::entry_bytes(self.entries) + usize::from(id) * CHUNK;
        // SAFETY: the mapping holds the entries and then `chunks` chunks, and `id` is less than
        // that.
        unsafe { self.base.add(offset) }
    }
}

impl ChunkOwner for ChunkRing {
    fn give_back(&self, id: u16) {
        let tail = self.tail.get();
        let place = usize::from(tail & (self.entries - 1));
        // SAFETY: `place` is inside of the entries; the kernel reads an entry only after the tail
        // has passed it, so it is not read now. The tail lies in the first entry's reserved
        // field, which is aligned for it.
        unsafe {
            let entries = self.base.cast::<BufRingEntry>();
            let entry = entries.add(place).as_mut();
            entry.set_addr(self.chunk(id).addr().get() as u64);
            entry.set_len(CHUNK as u32);
            entry.set_bid(id);
            let kernel_tail = BufRingEntry::tail(entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(kernel_tail).store(tail.wrapping_add(1), Ordering::Release);
        }
        self.tail.set(tail.wrapping_add(1));
        self.available.set(self.available.get() + 1);
    }
}

impl Drop for ChunkRing {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and no chunk is left that points into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Chunks that the kernel does not know of. The one used last is used first: it is in the
/// processor's cache.
pub(super) struct ChunkStack {
    base: NonNull<u8>,
    free: RefCell<Vec<u16>>,
}

impl ChunkStack {
    /// How many there are.
    const CHUNKS: u16 = 64;
    const BYTES: usize = Self::CHUNKS as usize * CHUNK;

    /// Maps them.
    pub(super) fn new() -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            base: map(Self::BYTES)?,
            free: RefCell::new((0..Self::CHUNKS).rev().collect()),
        }))
    }

    /// Takes a chunk; its memory is the caller's alone.
    pub(super) fn take(&self) -> Option<u16> {
        self.free.borrow_mut().pop()
    }

    /// Puts a chunk back that was taken and not filled.
    pub(super) fn put(&self, id: u16) {
        self.free.borrow_mut().push(id);
    }

    /// Where the `CHUNK` bytes of chunk `id` are.
    pub(super) fn start(&self, id: u16) -> *mut u8 {
        assert!(id < Self::CHUNKS, "chunks come from `take`");
        // SAFETY: the mapping holds `CHUNKS` chunks.
        unsafe { self.base.add(usize::from(id) * CHUNK) }.as_ptr()
    }

    /// The first `len` bytes of chunk `id`, which was taken and filled.
    pub(super) fn filled(self: &Rc<Self>, id: u16, len: usize) -> Chunk {
        assert!(
            id < Self::CHUNKS && len <= CHUNK,
            "chunks come from `take` and are filled to their end at most"
        );
        // SAFETY: the chunk lies in the mapping, which lives as long as the stack and began as
        // zeroes; it was taken, so it has no other writer until it is given back.
        unsafe {
            let start = self.base.add(usize::from(id) * CHUNK);
            Chunk::of_ring(self.clone(), id, start, len as u32)
        }
    }
}

impl ChunkOwner for ChunkStack {
    fn give_back(&self, id: u16) {
        self.put(id);
    }
}

impl Drop for ChunkStack {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and no chunk is left that points into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), Self::BYTES) };
    }
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
