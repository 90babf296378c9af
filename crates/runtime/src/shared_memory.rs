//! Memory that another process has too and may change at any time: that of a virtual machine.
//!
//! Nothing here gives a reference to it. Bytes are copied in or out, by instructions that the
//! compiler neither repeats nor invents, so a copy may be torn but is then this process's own.
//!
//! A mapped file that becomes shorter kills who touches what is gone (SIGBUS). So only memory that
//! cannot become shorter is mapped: a memfd with `F_SEAL_SHRINK`, as QEMU makes it
//! (`memory-backend-memfd`), and not on huge pages, of which there may be none left when a hole is
//! filled again.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::remains::Remains;

/// Mapped memory, as one core has it.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    whole: Arc<Whole>,
}

/// Mapped memory for any core: it is mapped once, until no core has it any more.
#[derive(Clone)]
pub struct SharedMapping {
    whole: Arc<Whole>,
    writable: bool,
}

impl SharedMapping {
    /// The same memory for this core.
    pub fn mapping(&self) -> Mapping {
        let start = std::ptr::with_exposed_provenance_mut(self.whole.start);
        Mapping {
            start: NonNull::new(start).expect("nothing is mapped at 0"),
            len: self.whole.len,
            writable: self.writable,
            whole: self.whole.clone(),
        }
    }
}

/// One mapping, whoever has it. Its end is left to a thread: if it is the last one of its memory,
/// the kernel frees all pages of that, however little of it is mapped.
struct Whole {
    start: usize,
    len: usize,
    space: Space,
}

impl Drop for Whole {
    fn drop(&mut self) {
        let (start, len, space) = (self.start, self.len, self.space.clone());
        let remains = REMAINS.get_or_init(Remains::default);
        remains.leave(Area { start, len, space });
    }
}

/// What mappings of one owner take of this process's addresses, from when they are made until they
/// are unmapped, which is some time after their end.
#[derive(Clone, Default)]
pub struct Space(Arc<Taken>);

#[derive(Default)]
struct Taken {
    mappings: AtomicUsize,
    bytes: AtomicU64,
}

impl Space {
    /// Mappings.
    pub fn mappings(&self) -> usize {
        self.0.mappings.load(Ordering::Relaxed)
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Maps `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn map(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        writable: bool,
    ) -> Result<Mapping, Refused> {
        let mapping = Mapping::made(file, offset, len, writable, self)?;
        self.0.mappings.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(len, Ordering::Relaxed);
        Ok(mapping)
    }

    fn give_back(&self, len: usize) {
        self.0.mappings.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes.fetch_sub(len as u64, Ordering::Relaxed);
    }
}

/// Why memory is not mapped.
#[derive(Debug)]
pub enum Refused {
    /// It may become shorter while it is mapped.
    MayShrink,
    /// It is on huge pages.
    HugePages,
    /// The file is shorter than what is to be mapped, or that is empty or not made of whole pages.
    Range,
    /// The system refuses.
    System(io::Error),
}

impl<E: Into<io::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::System(error.into())
    }
}

const PAGE: u64 = 4096;
/// Type of a file system of huge pages.
const HUGETLBFS: i64 = 0x9584_58f6;

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, for an owner that has no other mapping.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        writable: bool,
    ) -> Result<Self, Refused> {
        Space::default().map(file, offset, len, writable)
    }

    fn made(
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        writable: bool,
        space: &Space,
    ) -> Result<Self, Refused> {
        let seals = fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Refused::MayShrink);
        }
        if rustix::fs::fstatfs(file)?.f_type == HUGETLBFS {
            return Err(Refused::HugePages);
        }
        let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        let end = offset.checked_add(len).ok_or(Refused::Range)?;
        let whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        if len == 0 || !whole || end > size {
            return Err(Refused::Range);
        }
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let len = usize::try_from(len).map_err(|_| Refused::Range)?;
        let (anywhere, shared) = (std::ptr::null_mut(), MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let start = unsafe { mmap(anywhere, len, protection, shared, file, offset)? };
        let start: NonNull<u8> = NonNull::new(start.cast()).ok_or(Refused::Range)?;
        let whole = Whole {
            start: start.expose_provenance().get(),
            len,
            space: space.clone(),
        };
        Ok(Self {
            start,
            len,
            writable,
            whole: Arc::new(whole),
        })
    }

    /// The same memory for other cores.
    pub fn share(&self) -> SharedMapping {
        SharedMapping {
            whole: self.whole.clone(),
            writable: self.writable,
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies `to.len()` bytes from `at` on out of it. False, and nothing is copied, if it does not
    /// reach so far.
    #[must_use]
    pub fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.place(at, to.len()) else {
            return false;
        };
        // SAFETY: `place` has checked that as many bytes as `to` has are mapped from `from` on, and
        // the mapping outlives the call. `to` is borrowed, and is not this mapping, to which
        // nothing has a reference.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies `from` into it, from `at` on. False, and nothing is copied, if it does not reach so
    /// far or is read-only.
    #[must_use]
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        let Some(to) = self.place(at, from.len()).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: as for `read`; the mapping is writable.
        unsafe { copy(from.as_ptr(), to, from.len()) };
        true
    }

    /// Makes `len` bytes from `at` on zero. False, and nothing is changed, if it does not reach so
    /// far or is read-only.
    #[must_use]
    pub fn zero(&self, at: usize, len: usize) -> bool {
        let Some(to) = self.place(at, len).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: `place` has checked that `len` bytes are mapped from `to` on; the mapping is
        // writable, and outlives the call.
        unsafe { zero(to, len) };
        true
    }

    /// The word at `at`, and everything that was written before it. `None` if it does not reach so
    /// far, or `at` is not a multiple of 4.
    pub fn load(&self, at: usize) -> Option<u32> {
        self.word(at).map(|word| word.load(Ordering::Acquire))
    }

    /// Writes the word at `at` after everything that was written before. False if it does not reach
    /// so far, is read-only, or `at` is not a multiple of 4.
    #[must_use]
    pub fn store(&self, at: usize, value: u32) -> bool {
        let word = self.word(at).filter(|_| self.writable);
        word.inspect(|word| word.store(value, Ordering::Release))
            .is_some()
    }

    fn word(&self, at: usize) -> Option<&AtomicU32> {
        let place = self.place(at, 4).filter(|_| at.is_multiple_of(4))?;
        // SAFETY: 4 mapped bytes at a multiple of 4, for as long as the mapping is borrowed; others
        // change them by stores of the processor, which an atomic allows.
        Some(unsafe { AtomicU32::from_ptr(place.cast()) })
    }

    /// Where `len` bytes from `at` on are, if they are within it.
    pub(crate) fn place(&self, at: usize, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        (end <= self.len).then(|| self.start.as_ptr().wrapping_add(at))
    }
}

/// A mapping that is not used any more, by its address.
struct Area {
    start: usize,
    len: usize,
    space: Space,
}

/// Freeing memory takes its time and always ends, so one thread does it for all.
static REMAINS: OnceLock<Remains> = OnceLock::new();

impl Drop for Area {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: this is the whole mapping, nothing borrows it, and it is unmapped once.
        let unmapped = unsafe { munmap(start, self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        self.space.give_back(self.len);
    }
}

/// Copies shorter than this are done word by word: string instructions take their time to begin.
const SHORT: usize = 256;

/// Copies `len` bytes, of which one side may be changed by others meanwhile. What they write is
/// read as any value.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of so many bytes, and they do not overlap.
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= SHORT {
        // SAFETY: the caller's promise. The direction flag is clear, as always between calls. The
        // compiler knows nothing of what is copied, so that it may change does not matter.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    let aligned = (from.addr() | to.addr()).is_multiple_of(8);
    let words = if aligned { len / 8 } else { 0 };
    // SAFETY: the caller's promise: every place is below `len`. Accesses are volatile, and every
    // value is one of an integer. Words are at multiples of 8.
    #[expect(clippy::cast_ptr_alignment, reason = "it was checked")]
    unsafe {
        for word in 0..words {
            let value = from.cast::<u64>().add(word).read_volatile();
            to.cast::<u64>().add(word).write_volatile(value);
        }
        for at in words * 8..len {
            to.add(at).write_volatile(from.add(at).read_volatile());
        }
    }
}

/// Makes `len` bytes zero that others may read meanwhile.
///
/// # Safety
/// `to` is valid for writes of so many bytes.
unsafe fn zero(to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= SHORT {
        // SAFETY: the caller's promise; see `copy`.
        unsafe {
            std::arch::asm!(
                "rep stosb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                in("al") 0u8,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    for at in 0..len {
        // SAFETY: the caller's promise.
        unsafe { to.add(at).write_volatile(0) };
    }
}

/// All stores before it are seen by others before any load behind it is made.
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// A file in memory that keeps its length, for another process to map.
///
/// # Errors
/// The system has no descriptors or no memory left.
pub fn memory_file(len: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("guest memory", flags)?;
    ftruncate(&file, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn bytes_go_in_and_come_out_at_every_alignment() {
        let file = memory_file(8192).expect("a memfd");
        let [one, other] =
            [true, false].map(|write| Mapping::new(file.as_fd(), 0, 8192, write).expect("mapped"));
        for at in 4080..4100 {
            for len in (0..40).chain([255, 256, 257, 1000]) {
                let bytes: Vec<u8> = (0..len).map(|byte| byte as u8 ^ at as u8).collect();
                assert!(one.write(at, &bytes));
                let mut read = vec![0; len];
                assert!(other.read(at, &mut read));
                assert_eq!(read, bytes, "{len} bytes at {at}");
            }
        }
        for (at, len) in [(0, 0), (3, 17), (1, 256), (4095, 4000)] {
            assert!(one.write(at, &vec![7; len + 1]) && one.zero(at, len));
            let mut read = vec![1; len + 1];
            assert!(other.read(at, &mut read));
            assert!(read[..len].iter().all(|byte| *byte == 0) && read[len] == 7);
        }
        assert!(!other.zero(0, 1) && !one.zero(8000, 193));
        assert!(one.store(8, 0x0102_0304));
        assert_eq!(other.load(8), Some(0x0102_0304));
    }

    /// Only the thread unmaps, whatever the length: the file may be large. Until then it counts.
    #[test]
    fn what_is_not_unmapped_yet_takes_addresses() {
        let (file, space) = (memory_file(1 << 30).expect("a memfd"), Space::default());
        let (go, gone) = std::sync::mpsc::channel::<()>();
        struct Slow(std::sync::mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        REMAINS.get_or_init(Remains::default).leave(Slow(gone));
        for len in [4096, 1 << 30] {
            drop(space.map(file.as_fd(), 0, len, true).expect("mapped"));
        }
        assert_eq!(space.mappings(), 2);
        assert_eq!(space.bytes(), 4096 + (1 << 30));
        drop(go);
        while space.mappings() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(space.bytes(), 0);
    }

    #[test]
    fn what_is_outside_or_read_only_is_refused() {
        let file = memory_file(8192).expect("a memfd");
        let memory = Mapping::new(file.as_fd(), 4096, 4096, true).expect("mapped");
        for (at, len) in [
            (4096, 1),
            (4090, 7),
            (usize::MAX, 1),
            (usize::MAX, usize::MAX),
        ] {
            let mut to = vec![0; len.min(8)];
            if len < 100 {
                assert!(!memory.read(at, &mut to) && !memory.write(at, &to), "{at}");
            }
            assert!(memory.load(at).is_none() && !memory.store(at, 0));
        }
        assert!(memory.read(4096, &mut []));
        assert!(memory.load(2).is_none(), "not aligned");
        let memory = Mapping::new(file.as_fd(), 0, 4096, false).expect("mapped");
        assert!(!memory.write(0, &[1]) && !memory.store(0, 1));
    }

    #[test]
    fn memory_that_may_shrink_or_is_too_short_is_refused() {
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&plain, 4096).expect("4 KiB");
        let refused = Mapping::new(plain.as_fd(), 0, 4096, true);
        assert!(matches!(refused, Err(Refused::MayShrink)));
        let socket = std::os::unix::net::UnixStream::pair().expect("sockets").0;
        let refused = Mapping::new(socket.as_fd(), 0, 4096, true);
        assert!(matches!(refused, Err(Refused::MayShrink)));
        let file = memory_file(8192).expect("a memfd");
        assert!(ftruncate(&file, 4096).is_err(), "sealed");
        for (offset, len) in [
            (0, 0),
            (0, 12_288),
            (4096, 8192),
            (1, 4096),
            (0, 1),
            (u64::MAX, 4096),
        ] {
            let refused = Mapping::new(file.as_fd(), offset, len, true);
            assert!(matches!(refused, Err(Refused::Range)), "{offset} {len}");
        }
    }
}
