//! The memory behind buffers: pieces of 4 KiB to 2 MiB, each a power of two. Every core has a pool
//! of its own; taking and giving back is a pop and a push. A piece belongs to the pool that it was
//! taken from: dropped on another core it goes to a list that only its own pool empties,
//! and counts as in use until then or until its pool needs it. No piece is ever split or joined,
//! since no allocator that does not move what is in use can join all that is free. What is free and
//! of the wrong size is exchanged instead: its pages go back to the system (the address stays, bare
//! of memory), and as many are asked for where they are needed.
//!
//! The invariant, for each pool by itself and whatever other cores do: **a take succeeds if, and
//! only if, what is in use and the new piece together are within the bound** (or the system has no
//! memory). For a pool has `mapped = in use + free <= bound`. When there is no free piece of the
//! size and `mapped` has no room for one, free pieces lose their memory until it has: at the latest
//! when none is left and `mapped = in use`. So the memory of all cores is at most the sum of their
//! bounds, however sizes were mixed. (With transparent huge pages the system may add up to an arena
//! for each size.) Addresses are at most as many for each size.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// The smallest piece.
const SMALLEST: usize = 4096;
/// Number of sizes: each is twice the one before.
const CLASSES: usize = 10;
/// The largest piece, which is also what addresses are reserved by.
pub(crate) const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// Bound of a pool that never got one.
const DEFAULT_BOUND: usize = 64 << 20;
/// Pools that can exist in a process at a time, those of simulated cores included.
const POOLS: usize = 4096;
/// The name of a pool that has no name yet.
const UNNAMED: u16 = u16::MAX;

/// A piece of memory: it has one owner. It is initialised, with unknown content.
pub(crate) struct Piece {
    pub(crate) start: NonNull<u8>,
    /// The pool it belongs to.
    pub(crate) home: u16,
    pub(crate) class: u8,
}

// SAFETY: a piece is plain memory without ties to a thread.
unsafe impl Send for Piece {}

/// Bytes of a piece of this class.
#[inline]
pub(crate) const fn size_of_class(class: u8) -> usize {
    SMALLEST << class
}

/// Takes a piece of at least `len` bytes; `None` at the pool's bound, when `len` is more than
/// [`LARGEST`], or when the system has no memory.
#[inline]
pub(crate) fn take(len: usize) -> Option<Piece> {
    if len > LARGEST {
        return None;
    }
    let class = (len.max(SMALLEST).next_power_of_two() / SMALLEST).trailing_zeros() as u8;
    let piece = POOL.try_with(|pool| pool.borrow_mut().take(class)).ok()??;
    BALANCE.set(BALANCE.get() + size_of_class(class).cast_signed());
    Some(piece)
}

/// Gives a piece back.
#[inline]
pub(crate) fn give(piece: Piece) {
    BALANCE.set(BALANCE.get() - size_of_class(piece.class).cast_signed());
    // Without a pool the thread is ending.
    let is_home = POOL.try_with(|pool| pool.borrow_mut().give(&piece));
    if !is_home.unwrap_or(false) {
        send_home(piece.start, piece.home, piece.class);
    }
}

/// How many hold parts of a piece, and the pool it goes back to. Stands in the page before the
/// arena of the piece, so that counting needs no memory of its own; it is not read before a piece
/// is counted for the first time.
#[repr(C, align(8))]
struct Holders {
    count: AtomicU32,
    home: AtomicU16,
}

/// Begins to count the holders of a piece: there is one.
pub(crate) fn count(piece: &Piece) {
    let holders = holders(piece.start, piece.class);
    holders.home.store(piece.home, Ordering::Relaxed);
    holders.count.store(1, Ordering::Relaxed);
}

/// One more holds the counted piece of `class` around `place`.
#[inline]
pub(crate) fn hold(place: NonNull<u8>, class: u8) {
    // Only a holder adds a holder, so nothing has to be seen first.
    let before = holders(place, class).count.fetch_add(1, Ordering::Relaxed);
    assert!(before < u32::MAX / 2, "holders are fewer than bytes");
}

/// One fewer holds the counted piece of `class` around `place`. The last one gives it back.
#[inline]
pub(crate) fn let_go(place: NonNull<u8>, class: u8) {
    let holders = holders(place, class);
    if holders.count.fetch_sub(1, Ordering::Release) == 1 {
        // What the others did with it was before this.
        fence(Ordering::Acquire);
        give(Piece {
            start: start_of(place, class),
            home: holders.home.load(Ordering::Relaxed),
            class,
        });
    }
}

/// The counted piece of `class` around `place`, if `count` hold it and no more. Only those who are
/// these holders know that it stays so.
pub(crate) fn held_by(count: u32, place: NonNull<u8>, class: u8) -> Option<Piece> {
    let holders = holders(place, class);
    (holders.count.load(Ordering::Acquire) == count).then(|| Piece {
        start: start_of(place, class),
        home: holders.home.load(Ordering::Relaxed),
        class,
    })
}

/// Where the piece of `class` around `place` begins: pieces are aligned to their size.
#[inline]
pub(crate) fn start_of(place: NonNull<u8>, class: u8) -> NonNull<u8> {
    let inside = place.addr().get() % size_of_class(class);
    // SAFETY: a piece is aligned to its size, so its start is `inside` bytes before.
    unsafe { place.sub(inside) }
}

#[inline]
fn holders(place: NonNull<u8>, class: u8) -> &'static Holders {
    let start = start_of(place, class);
    let inside = start.addr().get() % LARGEST;
    let back = inside + SMALLEST - inside / SMALLEST * size_of::<Holders>();
    // SAFETY: an arena is aligned to `LARGEST`, and the page before it belongs to it and is never
    // unmapped. There `Holders`, which may be zero and are changed by atomics only, stand for each
    // of its pages.
    unsafe { start.sub(back).cast::<Holders>().as_ref() }
}

/// Sets the bound of this core's pool in bytes.
pub(crate) fn set_bound(bytes: usize) {
    POOL.with(|pool| pool.borrow_mut().set_bound(bytes));
}

/// What this thread took less what was given back on it, in bytes.
pub(crate) fn balance() -> isize {
    BALANCE.get()
}

thread_local! {
    /// The pool of the core that runs on this thread now.
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new(DEFAULT_BOUND)) };
    static BALANCE: Cell<isize> = const { Cell::new(0) };
}

/// Pieces that were given back away from home, for each pool.
static RETURNED: [Returned; POOLS] = [const { Returned(AtomicPtr::new(null_mut())) }; POOLS];

/// Apart from each other, since each is written to by many cores.
#[repr(align(64))]
struct Returned(AtomicPtr<Node>);

/// What stands in a piece that is on its way home.
struct Node {
    next: *mut Node,
    class: u8,
}

/// Leaves a piece where its pool finds it.
#[inline(never)]
fn send_home(start: NonNull<u8>, home: u16, class: u8) {
    let Returned(first) = &RETURNED[usize::from(home)];
    let node: NonNull<Node> = start.cast();
    let mut next = first.load(Ordering::Relaxed);
    loop {
        // SAFETY: a piece is longer than a node and aligned to pages, and has no other owner.
        unsafe { node.write(Node { next, class }) };
        let put =
            first.compare_exchange_weak(next, node.as_ptr(), Ordering::Release, Ordering::Relaxed);
        match put {
            Ok(_) => return,
            Err(other) => next = other,
        }
    }
}

/// Pools whose cores have ended, with their names and their memory, for those that begin.
static RETIRED: Mutex<Retired> = Mutex::new(Retired {
    pools: Vec::new(),
    names: 0,
});

struct Retired {
    pools: Vec<Pool>,
    /// How many names were given.
    names: usize,
}

/// The pool of a core.
pub(crate) struct Pool {
    /// [`UNNAMED`] until the first take.
    name: u16,
    /// Pieces that are not in use.
    free: [Vec<NonNull<u8>>; CLASSES],
    /// Addresses of pieces that have no memory.
    bare: [Vec<NonNull<u8>>; CLASSES],
    /// Bytes taken and not come home.
    in_use: usize,
    /// Bytes that have memory: those in use and those free.
    mapped: usize,
    bound: usize,
}

// SAFETY: the pieces that a pool owns are plain memory without ties to a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool with nothing in it.
    pub(crate) const fn new(bound: usize) -> Self {
        Self {
            name: UNNAMED,
            free: [const { Vec::new() }; CLASSES],
            bare: [const { Vec::new() }; CLASSES],
            in_use: 0,
            mapped: 0,
            bound,
        }
    }

    /// Makes this the pool that this thread takes from, until the guard is dropped.
    pub(crate) fn enter(&mut self) -> Entered<'_> {
        self.change_places();
        Entered(self)
    }

    /// Changes places with the pool that this thread takes from.
    fn change_places(&mut self) {
        POOL.with(|pool| std::mem::swap(&mut *pool.borrow_mut(), self));
    }

    #[inline]
    fn take(&mut self, class: u8) -> Option<Piece> {
        let size = size_of_class(class);
        if self.in_use + size > self.bound && !self.fits_after_all(size) {
            return None;
        }
        let start = match self.free[usize::from(class)].pop() {
            Some(start) => start,
            None => self.refill(class)?,
        };
        self.in_use += size;
        Some(Piece {
            start,
            home: self.name,
            class,
        })
    }

    /// False if it belongs to another pool.
    #[inline]
    fn give(&mut self, piece: &Piece) -> bool {
        let is_home = piece.home == self.name;
        if is_home {
            self.free[usize::from(piece.class)].push(piece.start);
            self.in_use -= size_of_class(piece.class);
        }
        is_home
    }

    /// Whether `size` is within the bound when all that was returned is counted.
    #[cold]
    fn fits_after_all(&mut self, size: usize) -> bool {
        self.collect();
        self.in_use + size <= self.bound
    }

    /// Takes in what was given back elsewhere.
    fn collect(&mut self) {
        let Some(Returned(first)) = RETURNED.get(usize::from(self.name)) else {
            return;
        };
        let mut next = first.swap(null_mut(), Ordering::Acquire);
        while let Some(node) = NonNull::new(next) {
            // SAFETY: the core that put it on the list wrote a node there, and gave up the piece.
            let Node { next: after, class } = unsafe { node.read() };
            self.free[usize::from(class)].push(node.cast());
            self.in_use -= size_of_class(class);
            next = after;
        }
    }

    /// A piece of `class`, of which none is free, and which is within the bound.
    #[cold]
    fn refill(&mut self, class: u8) -> Option<NonNull<u8>> {
        if self.name == UNNAMED {
            self.adopt()?;
        }
        self.collect();
        let (size, class) = (size_of_class(class), usize::from(class));
        if let Some(start) = self.free[class].pop() {
            return Some(start);
        }
        self.make_room(size);
        if self.bare[class].is_empty() {
            self.reserve(class)?;
        }
        let start = self.bare[class].pop()?;
        // SAFETY: this part of an arena has no owner. Populating is an optimisation (a first touch
        // costs 1.5 us a page): older kernels may not know it.
        unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_POPULATE_WRITE) };
        self.mapped += size;
        Some(start)
    }

    /// Takes memory from free pieces, from where the most of it is, until `size` more is within the
    /// bound.
    fn make_room(&mut self, size: usize) {
        while self.mapped + size > self.bound {
            let most = (0..CLASSES).max_by_key(|&class| self.free[class].len() << class);
            let Some((class, start)) =
                most.and_then(|class| Some((class, self.free[class].pop()?)))
            else {
                return;
            };
            let size = SMALLEST << class;
            // SAFETY: the piece is free, so its content is not read. If the system refuses
            // (memory that is locked) it keeps its pages, and nothing else is wrong.
            unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_DONTNEED) };
            self.bare[class].push(start);
            self.mapped -= size;
        }
    }

    /// Reserves addresses for pieces of `class`.
    fn reserve(&mut self, class: usize) -> Option<()> {
        let arena = map_arena()?;
        let starts = (0..LARGEST).step_by(SMALLEST << class).rev();
        // SAFETY: all of them lie in the arena.
        self.bare[class].extend(starts.map(|at| unsafe { arena.add(at) }));
        Some(())
    }

    fn set_bound(&mut self, bytes: usize) {
        self.bound = bytes.min(usize::MAX / 2);
        self.make_room(0);
    }

    /// Takes over the name and the memory of a pool that has come to an end, or gets a name of its
    /// own. `None` if there are none left.
    fn adopt(&mut self) -> Option<()> {
        let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
        retired.pools.iter_mut().for_each(Self::collect);
        let place = retired.pools.iter().position(|pool| pool.in_use == 0);
        if let Some(place) = place {
            let bound = self.bound;
            *self = retired.pools.swap_remove(place);
            drop(retired);
            self.set_bound(bound);
            return Some(());
        }
        if retired.names == POOLS {
            return None;
        }
        self.name = u16::try_from(retired.names).ok()?;
        retired.names += 1;
        Some(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.name != UNNAMED {
            let left = std::mem::replace(self, Self::new(0));
            let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
            retired.pools.push(left);
        }
    }
}

/// A pool in the place of the thread's own one, which is kept in its place.
pub(crate) struct Entered<'a>(&'a mut Pool);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.change_places();
    }
}

/// Reserves addresses, never returned, aligned to their number, and a page before them for
/// [`Holders`]. `None` when the system has none.
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
    let skip = (base.addr() + SMALLEST).next_multiple_of(LARGEST) - base.addr();
    // SAFETY: `skip` is at least a page and at most LARGEST, for the mapping is aligned to pages.
    // So all parts lie in it; the first and the last part are unmapped and never used, and what is
    // kept is the arena and the page before it.
    unsafe {
        let start = base.byte_add(skip);
        if skip > SMALLEST {
            libc::munmap(base, skip - SMALLEST);
        }
        if skip < LARGEST {
            libc::munmap(start.byte_add(LARGEST), LARGEST - skip);
        }
        NonNull::new(start.cast())
    }
}
