//! The memory behind buffers: pieces of 4 KiB to 2 MiB, cut from 2 MiB arenas that are faulted in when mapped and
//! never unmapped. Every thread has a pool of its own; taking and giving back is a push and a pop. A thread that
//! gives back more than it takes passes the surplus on through a central pool, memory and account together.
//!
//! Accounts: a thread's `balance` is what it took less what was given back on it. What is in use in the process is
//! the sum of all balances less the central `CREDIT`.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The smallest piece.
const SMALLEST: usize = 4096;
/// Number of sizes: each is twice the one before.
const CLASSES: usize = 10;
/// The largest piece, which is also what is mapped at a time, at addresses divisible by it.
pub(crate) const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// A thread that has given back so much more than it took passes this much on.
const SPILL: isize = 4 << 20;
/// Bound of a thread that never set one.
const DEFAULT_BOUND: isize = 64 << 20;
/// At most so many pieces are fetched from the central pool at a time.
const FETCH: usize = 16;

/// A piece of memory: nobody else has it. It is initialised, with unknown content.
pub(crate) struct Piece {
    pub(crate) start: NonNull<u8>,
    pub(crate) class: u8,
}

// SAFETY: a piece is plain memory without ties to a thread.
unsafe impl Send for Piece {}

/// Bytes of a piece of this class.
pub(crate) fn size_of_class(class: u8) -> usize {
    SMALLEST << class
}

/// Takes a piece of at least `len` bytes; `None` at the thread's bound or when `len` is more than [`LARGEST`].
pub(crate) fn take(len: usize) -> Option<Piece> {
    if len > LARGEST {
        return None;
    }
    let class = (len.max(SMALLEST).next_power_of_two() / SMALLEST).trailing_zeros() as usize;
    POOL.try_with(|pool| pool.borrow_mut().take(class))
        .ok()
        .flatten()
}

/// Gives a piece back.
pub(crate) fn give(piece: Piece) {
    let (start, class) = (piece.start, piece.class as usize);
    let given = POOL.try_with(|pool| pool.borrow_mut().give(start, class));
    if given.is_err() {
        // The thread is ending and its pool is gone already.
        central().free[class].push(piece);
        CREDIT.fetch_add(size(class), Ordering::Relaxed);
    }
}

/// Sets this thread's bound in bytes.
pub(crate) fn set_bound(bytes: usize) {
    let bound = isize::try_from(bytes).unwrap_or(isize::MAX / 2);
    POOL.with(|pool| pool.borrow_mut().bound = bound);
}

/// What this thread took less what was given back here, in bytes.
pub(crate) fn balance() -> isize {
    POOL.with(|pool| pool.borrow().balance)
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
}

static CENTRAL: Mutex<Central> = Mutex::new(Central {
    free: [const { Vec::new() }; CLASSES],
});
static CREDIT: AtomicIsize = AtomicIsize::new(0);

/// Bytes of a piece, for the accounts.
#[inline]
const fn size(class: usize) -> isize {
    SMALLEST.cast_signed() << class
}

/// Memory between threads.
struct Central {
    free: [Vec<Piece>; CLASSES],
}

fn central() -> MutexGuard<'static, Central> {
    // Pushes and pops leave nothing half-done behind a panic.
    CENTRAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool of a thread.
struct Pool {
    free: [Vec<NonNull<u8>>; CLASSES],
    free_bytes: isize,
    balance: isize,
    bound: isize,
    mapped: isize,
    /// Bytes given back, and asked for in vain, since pieces were last joined: joining again before much has changed
    /// is mostly in vain.
    given_since_join: isize,
}

impl Pool {
    const fn new() -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            free_bytes: 0,
            balance: 0,
            bound: DEFAULT_BOUND,
            mapped: 0,
            given_since_join: 0,
        }
    }

    #[inline]
    fn take(&mut self, class: usize) -> Option<Piece> {
        if self.balance + size(class) > self.bound && !self.fetch_credit(class) {
            return None;
        }
        let start = match self.free[class].pop() {
            Some(start) => start,
            None => self.refill(class)?,
        };
        self.free_bytes -= size(class);
        self.balance += size(class);
        Some(Piece {
            start,
            class: class as u8,
        })
    }

    #[inline]
    fn give(&mut self, start: NonNull<u8>, class: usize) {
        self.add(start, class);
        self.balance -= size(class);
        self.given_since_join += size(class);
        if self.balance < -SPILL {
            self.spill();
        }
    }

    #[inline]
    fn add(&mut self, start: NonNull<u8>, class: usize) {
        self.free[class].push(start);
        self.free_bytes += size(class);
    }

    /// Takes over what other threads gave back of what this one took; whether `size` fits then.
    #[cold]
    fn fetch_credit(&mut self, class: usize) -> bool {
        let fetched = CREDIT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |credit| {
            (credit > 0).then(|| credit - credit.min(SPILL))
        });
        if let Ok(credit) = fetched {
            self.balance -= credit.min(SPILL);
        }
        self.balance + size(class) <= self.bound
    }

    /// A piece of `class` that is still counted as free.
    #[cold]
    fn refill(&mut self, class: usize) -> Option<NonNull<u8>> {
        if let Some(start) = self.split(class) {
            return Some(start);
        }
        self.fetch(class);
        if let Some(start) = self.free[class].pop().or_else(|| self.split(class)) {
            return Some(start);
        }
        if self.mapped < self.bound {
            if let Some(arena) = map_arena() {
                self.mapped += size(CLASSES - 1);
                self.add(arena, CLASSES - 1);
            }
        } else {
            if self.given_since_join < size(class).max(self.free_bytes / 8) {
                // A request that is made again and again is met in the end, even if nothing else goes on.
                self.given_since_join += size(class);
                return None;
            }
            self.join();
        }
        self.free[class].pop().or_else(|| self.split(class))
    }

    /// Halves the smallest larger piece until one of `class` comes out.
    fn split(&mut self, class: usize) -> Option<NonNull<u8>> {
        let from = (class + 1..CLASSES).find(|&larger| !self.free[larger].is_empty())?;
        let start = self.free[from].pop()?;
        for half in (class..from).rev() {
            // SAFETY: the piece at `start` is of class `half + 1`, so its second half lies inside of it.
            self.free[half].push(unsafe { start.add(SMALLEST << half) });
        }
        Some(start)
    }

    /// Fetches some pieces of `class`, or one larger, from the central pool.
    fn fetch(&mut self, class: usize) {
        let mut central = central();
        let Some(from) = (class..CLASSES).find(|&from| !central.free[from].is_empty()) else {
            return;
        };
        let wanted = if from == class { FETCH } else { 1 };
        for _ in 0..wanted {
            let Some(piece) = central.free[from].pop() else {
                return;
            };
            self.add(piece.start, from);
        }
    }

    /// Moves up to [`SPILL`] bytes of free memory to the central pool, with the account of it.
    #[cold]
    fn spill(&mut self) {
        let mut central = central();
        let mut moved = 0;
        for class in (0..CLASSES).rev() {
            while moved + size(class) <= SPILL {
                let Some(start) = self.free[class].pop() else {
                    break;
                };
                central.free[class].push(Piece {
                    start,
                    class: class as u8,
                });
                moved += size(class);
            }
        }
        self.free_bytes -= moved;
        self.balance += moved;
        CREDIT.fetch_add(moved, Ordering::Relaxed);
    }

    /// Joins free halves to whole pieces, from small to large.
    #[cold]
    fn join(&mut self) {
        self.given_since_join = 0;
        for class in 0..CLASSES - 1 {
            let size = SMALLEST << class;
            let mut starts = std::mem::take(&mut self.free[class]);
            starts.sort_unstable();
            let mut rest = starts.iter().copied().peekable();
            while let Some(start) = rest.next() {
                let first_half = start.addr().get() & size == 0;
                let other = start.addr().get() + size;
                match rest.next_if(|next| first_half && next.addr().get() == other) {
                    Some(_) => self.free[class + 1].push(start),
                    None => self.free[class].push(start),
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut central = central();
        for (class, starts) in self.free.iter_mut().enumerate() {
            let pieces = starts.drain(..).map(|start| Piece {
                start,
                class: class as u8,
            });
            central.free[class].extend(pieces);
        }
        CREDIT.fetch_sub(self.balance, Ordering::Relaxed);
    }
}

/// Maps an arena: zeroed, faulted in, aligned to its size, for ever. `None` when the system has no memory.
fn map_arena() -> Option<NonNull<u8>> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * LARGEST, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let skip = base.addr().next_multiple_of(LARGEST) - base.addr();
    // SAFETY: `skip` is less than LARGEST, so all three parts lie in the mapping of twice that size; the first
    // and the last part are unmapped and never used, the middle one is kept.
    unsafe {
        let start = base.byte_add(skip);
        if skip > 0 {
            libc::munmap(base, skip);
        }
        libc::munmap(start.byte_add(LARGEST), LARGEST - skip);
        // Populating is an optimisation (a first touch costs 1.5 us a page): older kernels may not know it.
        libc::madvise(start, LARGEST, libc::MADV_POPULATE_WRITE);
        NonNull::new(start.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` with a fresh pool of its own.
    fn on_thread(bound: usize, test: impl FnOnce() + Send + 'static) {
        let body = move || {
            set_bound(bound);
            test();
        };
        std::thread::spawn(body)
            .join()
            .expect("the test on the other thread passes");
    }

    #[test]
    fn pieces_do_not_overlap_and_are_aligned() {
        on_thread(8 << 20, || {
            let lens = [
                1,
                4096,
                4097,
                16 << 10,
                100_000,
                1 << 20,
                4096,
                2 << 20,
                5000,
            ];
            let pieces: Vec<Piece> = lens
                .iter()
                .map(|&len| take(len).expect("8 MiB hold these"))
                .collect();
            let mut ranges: Vec<_> = pieces
                .iter()
                .map(|piece| (piece.start.addr().get(), size_of_class(piece.class)))
                .collect();
            assert!(
                ranges
                    .iter()
                    .zip(lens)
                    .all(|((start, size), len)| { *size >= len && start % size == 0 })
            );
            ranges.sort_unstable();
            assert!(
                ranges
                    .windows(2)
                    .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
            );
            pieces.into_iter().for_each(give);
            assert_eq!(balance(), 0);
        });
    }

    #[test]
    fn the_bound_holds_and_small_pieces_join_again() {
        on_thread(LARGEST, || {
            let small: Vec<Piece> = std::iter::from_fn(|| take(4096)).collect();
            assert_eq!(small.len(), LARGEST / 4096);
            assert!(take(1).is_none());
            small.into_iter().for_each(give);
            let large = take(LARGEST).expect("the small ones were joined");
            assert!(take(1).is_none());
            give(large);
            assert!(take(LARGEST + 1).is_none());
        });
    }

    #[test]
    fn what_other_threads_drop_comes_back() {
        on_thread(16 << 20, || {
            for _ in 0..20 {
                let pieces: Vec<Piece> = std::iter::from_fn(|| take(64 << 10)).take(128).collect();
                assert_eq!(pieces.len(), 128, "the account was passed on");
                std::thread::spawn(|| pieces.into_iter().for_each(give))
                    .join()
                    .expect("dropping does not panic");
            }
        });
    }
}
