//! Pieces of memory that another process changes at any time, lent to an operation: the kernel
//! moves data straight to and from them, and no code here has a reference to any of it. Whoever
//! lends memory can wait until all of it has come back.

use std::cell::Cell;
use std::rc::Rc;

use crate::shared_memory::Mapping;
use crate::sync::Notify;

/// What one owner has lent.
#[derive(Default)]
pub struct Loans {
    out: Cell<usize>,
    ended: Notify,
}

/// Some pieces of memory, one behind the other. Their mappings stay until it is dropped.
pub struct Lent {
    /// Nearly always the only one.
    first: Piece,
    rest: Vec<Piece>,
    len: usize,
    /// Behind the pieces, so that it is dropped after them.
    loans: Ended,
}

#[derive(Clone)]
struct Piece {
    mapping: Rc<Mapping>,
    at: usize,
    len: usize,
}

impl Loans {
    /// Lends `len` bytes of a mapping from `at` on; `None` if it does not reach so far.
    pub fn lend(self: &Rc<Self>, mapping: &Rc<Mapping>, at: usize, len: usize) -> Option<Lent> {
        let first = Piece::of(mapping, at, len)?;
        Some(Lent::new(self, first))
    }

    /// Finishes when nothing is lent.
    pub async fn returned(&self) {
        self.until(|| !self.are_out()).await;
    }

    /// Finishes when `done`, which is asked now and whenever something has come back.
    pub async fn until(&self, done: impl Fn() -> bool) {
        while !done() {
            self.ended.notified().await;
        }
    }

    /// Whether anything is lent.
    pub fn are_out(&self) -> bool {
        self.out.get() > 0
    }
}

impl Piece {
    fn of(mapping: &Rc<Mapping>, at: usize, len: usize) -> Option<Self> {
        mapping.place(at, len)?;
        let mapping = mapping.clone();
        Some(Self { mapping, at, len })
    }

    /// For the kernel only.
    fn iovec(&self, skipped: usize) -> libc::iovec {
        let place = self.mapping.place(self.at, self.len);
        let place = place.expect("it was checked when it was lent");
        libc::iovec {
            iov_base: place.wrapping_add(skipped).cast(),
            iov_len: self.len - skipped,
        }
    }
}

impl Lent {
    fn new(loans: &Rc<Loans>, first: Piece) -> Self {
        loans.out.set(loans.out.get() + 1);
        Self {
            len: first.len,
            first,
            rest: Vec::new(),
            loans: Ended(loans.clone()),
        }
    }

    /// Adds a piece behind the others. False, and nothing is added, if the mapping does not reach
    /// so far.
    #[must_use]
    pub fn push(&mut self, mapping: &Rc<Mapping>, at: usize, len: usize) -> bool {
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        if Rc::ptr_eq(&last.mapping, mapping) && last.at + last.len == at {
            if mapping.place(at, len).is_none() {
                return false;
            }
            last.len += len;
        } else {
            let Some(piece) = Piece::of(mapping, at, len) else {
                return false;
            };
            self.rest.push(piece);
        }
        self.len += len;
        true
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: it has a piece.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `at` on, as a loan of its own; `None` if there are not so many.
    pub fn part(&self, at: usize, len: usize) -> Option<Self> {
        let mut part: Option<Self> = None;
        let whole = self.each(at, len, |piece, from, _, count| match &mut part {
            None => {
                part = self.loans.0.lend(&piece.mapping, from, count);
                part.is_some()
            }
            Some(part) => part.push(&piece.mapping, from, count),
        });
        part.filter(|_| whole)
    }

    /// Copies `to.len()` bytes from `at` on out of it. False if it does not reach so far.
    #[must_use]
    pub fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let len = to.len();
        self.each(at, len, |piece, from, done, count| {
            piece.mapping.read(from, &mut to[done..done + count])
        })
    }

    /// Copies `from` into it, from `at` on. False if it does not reach so far, or is read-only.
    #[must_use]
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        self.each(at, from.len(), |piece, to, done, count| {
            piece.mapping.write(to, &from[done..done + count])
        })
    }

    /// Makes `len` bytes from `at` on zero. False if it does not reach so far, or is read-only.
    #[must_use]
    pub fn zero(&self, at: usize, len: usize) -> bool {
        self.each(at, len, |piece, to, _, count| piece.mapping.zero(to, count))
    }

    /// Does something with each piece of a range: where it is in its mapping, how much came before
    /// it, and how long it is.
    fn each(
        &self,
        at: usize,
        len: usize,
        mut act: impl FnMut(&Piece, usize, usize, usize) -> bool,
    ) -> bool {
        let (mut skip, mut done) = (at, 0);
        for piece in self.pieces() {
            let count = piece.len.saturating_sub(skip).min(len - done);
            if count > 0 {
                if !act(piece, piece.at + skip, done, count) {
                    return false;
                }
                done += count;
            }
            skip = skip.saturating_sub(piece.len);
        }
        done == len
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// What is left of it behind `moved` bytes, for the kernel: pointers that are valid as long as
    /// this is.
    pub(crate) fn iovecs(&self, moved: usize, to: &mut Vec<libc::iovec>) {
        to.clear();
        let mut skip = moved;
        for piece in self.pieces() {
            if skip < piece.len {
                to.push(piece.iovec(skip));
            }
            skip = skip.saturating_sub(piece.len);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let out = &self.loans.0.out;
        out.set(out.get() - 1);
    }
}

/// The last of a loan that is dropped: its mappings are held no more.
struct Ended(Rc<Loans>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.notify_all();
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Lent({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::shared_memory::memory_file;

    fn mapping() -> Rc<Mapping> {
        let file = memory_file(0x4000).expect("a memfd");
        Rc::new(Mapping::new(file.as_fd(), 0, 0x4000, true).expect("mapped"))
    }

    #[test]
    fn pieces_are_one_behind_the_other_whatever_part_is_taken() {
        let (one, other, loans) = (mapping(), mapping(), Rc::new(Loans::default()));
        let mut lent = loans.lend(&one, 0x2000, 0x1000).expect("it is there");
        // Neighbours are one piece.
        assert!(lent.push(&one, 0x3000, 0x1000) && lent.push(&other, 0x1000, 0x800));
        assert!(lent.push(&one, 0, 0x200));
        assert!(!lent.push(&one, 0x3001, 0x1000) && !lent.push(&other, 0x1800, 0x4000));
        assert_eq!((lent.len(), lent.rest.len()), (0x2a00, 2));
        let bytes: Vec<u8> = (0..0x2a00).map(|at| (at / 7) as u8).collect();
        assert!(lent.write(0, &bytes));
        let mut ends = vec![0; 0x200];
        assert!(one.read(0, &mut ends) && ends == bytes[0x2800..]);
        for (at, len) in [(0, 0x2a00), (0x1fff, 2), (0x2000, 0x800), (0x27ff, 0x201)] {
            let mut read = vec![0; len];
            assert!(lent.read(at, &mut read) && read == bytes[at..at + len]);
            let part = lent.part(at, len).expect("it is there");
            let mut read = vec![0; len];
            assert!(part.read(0, &mut read) && read == bytes[at..at + len]);
            let mut iovecs = Vec::new();
            part.iovecs(1, &mut iovecs);
            let total: usize = iovecs.iter().map(|iovec| iovec.iov_len).sum();
            assert_eq!(total, len - 1);
        }
        assert!(lent.part(0x2000, 0xa01).is_none() && !lent.zero(0x2a00, 1));
        assert!(loans.are_out());
        drop(lent);
        assert!(!loans.are_out());
    }
}
