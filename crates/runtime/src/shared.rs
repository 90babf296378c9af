//! Buffers with several holders: [`Shared`] data to be written, which all may read, and [`Parts`]
//! to read into, each with one owner. Both count their holders beside the memory itself, so neither
//! needs an allocation.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use crate::buffer::{GRAIN, Tenure};
use crate::memory::{self, Piece};
use crate::{Buf, Data};

/// A read-only view of a buffer, cheap to clone and to slice, so that the same bytes can go to
/// several places. The memory goes back to its pool, from any core, with the last view of it. A
/// buffer that is never cloned or sliced is not counted, and costs no more than a [`Buf`].
pub struct Shared {
    start: NonNull<u8>,
    len: u32,
    tenure: Cell<Tenure>,
}

// SAFETY: a view holds plain memory that is never unmapped and that is not written to; its holders
// are counted by atomics.
unsafe impl Send for Shared {}

impl From<Buf> for Shared {
    #[inline]
    fn from(buf: Buf) -> Self {
        let buf = ManuallyDrop::new(buf);
        Self {
            start: buf.start,
            len: buf.len,
            tenure: Cell::new(buf.tenure),
        }
    }
}

impl Shared {
    /// A view of `range` of what this one shows.
    ///
    /// # Panics
    /// When `range` is not within it.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} of {} bytes",
            self.len()
        );
        // An empty view begins where this one does: behind the end may be another piece.
        let skip = if range.is_empty() { 0 } else { range.start };
        Self {
            // SAFETY: the place lies in what this view shows.
            start: unsafe { self.start.add(skip) },
            len: range.len() as u32,
            tenure: Cell::new(self.hold()),
        }
    }

    /// One more holder of its memory.
    fn hold(&self) -> Tenure {
        let class = match self.tenure.get() {
            Tenure::Counted { class, .. } => class,
            Tenure::Whole { home, class } => {
                let start = self.start;
                memory::count(&Piece { start, home, class });
                class
            }
        };
        memory::hold(self.start, class);
        let tenure = Tenure::Counted { room: 0, class };
        self.tenure.set(tenure);
        tenure
    }

    /// The buffer to be written to again, if nothing else holds any of it and this shows it from
    /// its beginning on.
    pub fn try_into_buf(self) -> Result<Buf, Self> {
        let tenure = match self.tenure.get() {
            Tenure::Counted { class, .. } => match memory::held_by(1, self.start, class) {
                Some(piece) if piece.start == self.start => Tenure::Whole {
                    home: piece.home,
                    class,
                },
                _ => return Err(self),
            },
            whole @ Tenure::Whole { .. } => whole,
        };
        let this = ManuallyDrop::new(self);
        Ok(Buf {
            start: this.start,
            len: this.len,
            tenure,
        })
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        self.slice(0..self.len())
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        self.tenure.get().end(self.start);
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: whatever made the view showed `len` initialised bytes there, and no code writes
        // to them before the last view has gone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Shared({} bytes)", self.len)
    }
}

/// A buffer that is read into by several, each of which has a part of it for itself, and that comes
/// back whole.
pub struct Parts {
    /// Not used while there are parts; the tenure is counted.
    whole: Buf,
    /// Of a buffer that was a part itself: others hold its piece, too.
    is_part: bool,
    cut: usize,
}

impl Parts {
    /// Parts of `buf`, none cut off yet.
    pub fn of(buf: Buf) -> Self {
        let mut whole = buf;
        let is_part = matches!(whole.tenure, Tenure::Counted { .. });
        if let Tenure::Whole { home, class } = whole.tenure {
            let start = whole.start;
            memory::count(&Piece { start, home, class });
            whole.tenure = Tenure::Counted { room: 0, class };
        }
        Self {
            whole,
            is_part,
            cut: 0,
        }
    }

    /// Cuts off the next `len` bytes, whole blocks, as a buffer that cannot become longer than
    /// that.
    ///
    /// # Panics
    /// When fewer are left, or it is not a multiple of 512 that is more than 0.
    pub fn cut(&mut self, len: usize) -> Buf {
        assert!(
            len > 0 && len.is_multiple_of(GRAIN) && len <= self.whole.len as usize - self.cut,
            "{len} bytes behind {} of {}",
            self.cut,
            self.whole.len
        );
        let class = self.class();
        memory::hold(self.whole.start, class);
        // SAFETY: the place lies in the buffer.
        let start = unsafe { self.whole.start.add(self.cut) };
        self.cut += len;
        Buf {
            start,
            len: len as u32,
            tenure: Tenure::Counted {
                room: (len / GRAIN) as u16,
                class,
            },
        }
    }

    /// The whole, with what reads gave for all parts in their order: those that came back are where
    /// they belong, zeroes are filled in, and what came in another buffer is copied. If something
    /// may still write to a part that did not come back, such as the kernel, the whole is another
    /// buffer: `None` if there is none, or if the answers are not as long as the buffer.
    pub fn join(mut self, answers: &mut Vec<Data>) -> Option<Buf> {
        if answers.iter().map(Data::len).sum::<usize>() != self.whole.len as usize {
            return None;
        }
        let back = self
            .places(answers)
            .filter(|&(place, data)| is_at(data, place));
        let back = back.count();
        let class = self.class();
        let alone = match self.is_part {
            true => None,
            false => memory::held_by(1 + back as u32, self.whole.start, class),
        };
        if alone.is_none() && !(self.is_part && back == answers.len()) {
            return gather(answers);
        }
        let mut place = self.whole.start;
        for data in answers.drain(..) {
            let len = data.len();
            if !is_at(&data, place) {
                // SAFETY: `len` bytes from `place` lie in the buffer, and they have no other
                // holder: all that hold anything of it are the parts that came back, and this.
                let target = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len) };
                copy(&data, target);
            }
            // SAFETY: all answers together are as long as the buffer.
            place = unsafe { place.add(len) };
        }
        if let Some(Piece { home, class, .. }) = alone {
            self.whole.tenure = Tenure::Whole { home, class };
        }
        Some(self.whole)
    }

    /// Where each of the answers belongs.
    fn places<'a>(&self, answers: &'a [Data]) -> impl Iterator<Item = (NonNull<u8>, &'a Data)> {
        let mut next = self.whole.start;
        answers.iter().map(move |data| {
            let place = next;
            // SAFETY: all answers together are as long as the buffer.
            next = unsafe { next.add(data.len()) };
            (place, data)
        })
    }

    fn class(&self) -> u8 {
        let (Tenure::Whole { class, .. } | Tenure::Counted { class, .. }) = self.whole.tenure;
        class
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Parts({} of {} bytes)", self.cut, self.whole.len)
    }
}

/// Whether an answer is the part that begins at `place`: no two buffers do.
fn is_at(data: &Data, place: NonNull<u8>) -> bool {
    matches!(data, Data::Buf(buf) if !buf.is_empty() && buf.start == place)
}

/// All answers in a new buffer.
fn gather(answers: &mut Vec<Data>) -> Option<Buf> {
    let mut whole = Buf::take(answers.iter().map(Data::len).sum())?;
    let mut rest = &mut whole[..];
    for data in answers.drain(..) {
        let (target, behind) = rest.split_at_mut(data.len());
        copy(&data, target);
        rest = behind;
    }
    Some(whole)
}

fn copy(data: &Data, target: &mut [u8]) {
    match data {
        Data::Buf(buf) => target.copy_from_slice(buf),
        Data::Zeroes(_) => target.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    fn buf(bytes: &[u8]) -> Buf {
        let mut buf = Buf::take(bytes.len()).expect("the default bound is far");
        buf.copy_from_slice(bytes);
        buf
    }

    #[test]
    fn a_value_is_no_larger_than_a_buffer_was() {
        assert_eq!(
            [
                size_of::<Buf>(),
                size_of::<Shared>(),
                size_of::<Data>(),
                size_of::<Result<Data, u8>>()
            ],
            [16; 4]
        );
    }

    #[test]
    fn views_show_the_same_bytes_and_the_last_one_gives_them_back() {
        let before = Buf::balance();
        let data = Shared::from(buf(&[1, 2, 3, 4, 5]));
        let part = data.slice(1..4);
        let inner = part.slice(1..3);
        assert_eq!(
            (&*data, &*part, &*inner),
            (&[1, 2, 3, 4, 5][..], &[2, 3, 4][..], &[3, 4][..])
        );
        assert!(data.slice(5..5).is_empty());
        drop(data);
        let part = part.try_into_buf().expect_err("two hold it");
        drop(part);
        assert_eq!(*inner, [3, 4]);
        assert_ne!(Buf::balance(), before);
        let inner = inner
            .try_into_buf()
            .expect_err("it does not begin where the buffer does");
        drop(inner);
        assert_eq!(Buf::balance(), before);
    }

    #[test]
    fn a_buffer_is_writable_again_when_it_has_no_other_holder() {
        let data = Shared::from(buf(&[7; 4096]));
        drop(data.clone());
        let mut back = data.try_into_buf().expect("it has no other holder");
        back.fill(8);
        assert_eq!((back.len(), back.capacity()), (4096, 4096));
    }

    #[test]
    fn views_that_end_on_many_threads_give_the_buffer_back_once() {
        for round in 0..50 {
            let before = Buf::balance();
            let data = Shared::from(buf(&[round; 8192]));
            let threads: Vec<_> = (0..4)
                .map(|at| {
                    let view = data.slice(at * 2048..(at + 1) * 2048);
                    std::thread::spawn(move || {
                        assert!(view.iter().all(|byte| *byte == round));
                        (Buf::balance(), drop(view), Buf::balance())
                    })
                })
                .collect();
            drop(data);
            let gave = threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread that drops a view"));
            let given: isize = gave.map(|(before, (), after)| after - before).sum();
            assert_eq!(Buf::balance() + given, before, "round {round}");
        }
    }

    #[test]
    #[should_panic(expected = "3..6 of 5 bytes")]
    fn a_view_outside_is_refused() {
        drop(Shared::from(buf(&[0; 5])).slice(3..6));
    }

    /// Reads into parts of a buffer, as `kinds` says of each: 0 in place, 1 zeroes, 2 another
    /// buffer. Every part is some blocks of `round`.
    fn answers(parts: &mut Parts, kinds: &[(u64, usize)]) -> Vec<Data> {
        let answer = |&(kind, blocks): &(u64, usize)| {
            let mut part = parts.cut(blocks * GRAIN);
            part.fill(9);
            match kind {
                0 => Data::Buf(part),
                1 => Data::Zeroes(part.len()),
                _ => Data::Buf(buf(&vec![5; part.len()])),
            }
        };
        kinds.iter().map(answer).collect()
    }

    fn expected(kinds: &[(u64, usize)]) -> Vec<u8> {
        let part = |&(kind, blocks): &(u64, usize)| vec![[9, 0, 5][kind as usize]; blocks * GRAIN];
        kinds.iter().flat_map(part).collect()
    }

    #[test]
    fn parts_come_back_as_a_whole_in_its_place() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let before = Buf::balance();
            let kinds: Vec<_> = (0..=rng.below(8))
                .map(|_| (rng.below(3), 1 + rng.below(9) as usize))
                .collect();
            let whole = Buf::take(expected(&kinds).len()).expect("memory");
            let (start, capacity) = (whole.as_ptr(), whole.capacity());
            let mut parts = Parts::of(whole);
            let mut all = answers(&mut parts, &kinds);
            let mut whole = parts.join(&mut all).expect("as long as it was");
            assert_eq!(*whole, expected(&kinds));
            assert_eq!((whole.as_ptr(), whole.capacity()), (start, capacity));
            whole.set_len(capacity);
            drop(whole);
            assert_eq!(Buf::balance(), before);
        }
    }

    #[test]
    fn parts_have_parts() {
        for kinds in [[(0, 1), (0, 2)], [(1, 1), (0, 2)], [(0, 1), (2, 2)]] {
            let before = Buf::balance();
            let mut parts = Parts::of(Buf::take(4 * GRAIN).expect("memory"));
            let first = parts.cut(GRAIN);
            let mut inner = Parts::of(parts.cut(3 * GRAIN));
            let mut all = answers(&mut inner, &kinds);
            let second = inner.join(&mut all).expect("there is memory");
            assert_eq!((&*second, second.len()), (&expected(&kinds)[..], 3 * GRAIN));
            let whole = parts.join(&mut vec![Data::Buf(first), Data::Buf(second)]);
            assert_eq!(whole.expect("as long as it was")[GRAIN..], expected(&kinds));
            assert_eq!(Buf::balance(), before);
        }
    }

    #[test]
    fn a_part_that_is_still_held_is_not_written_to() {
        let mut parts = Parts::of(Buf::take(2 * GRAIN).expect("memory"));
        let (mut kept, mut first) = (parts.cut(GRAIN), parts.cut(GRAIN));
        kept.fill(1);
        first.fill(2);
        let kept_at = kept.as_ptr();
        let mut all = vec![Data::Zeroes(GRAIN), Data::Buf(first)];
        let whole = parts.join(&mut all).expect("there is memory");
        assert_ne!(whole.as_ptr(), kept_at);
        assert!(whole[..GRAIN].iter().all(|byte| *byte == 0));
        assert!(whole[GRAIN..].iter().all(|byte| *byte == 2));
        assert!(kept.iter().all(|byte| *byte == 1));
    }

    /// Reads into `buf`, cut into parts of parts by chance. Some children keep their part, and it
    /// is written to later, as by the kernel after a child gave up. What was answered is appended
    /// to `expected`.
    fn read(rng: &mut Rng, mut buf: Buf, kept: &mut Vec<Buf>, expected: &mut Vec<u8>) -> Data {
        let (len, value) = (buf.len(), rng.below(256) as u8);
        if len > GRAIN && rng.below(3) > 0 {
            let mut parts = Parts::of(buf);
            let mut answers = Vec::new();
            let mut left = len / GRAIN;
            while left > 0 {
                let blocks = 1 + rng.below(left as u64) as usize;
                let part = parts.cut(blocks * GRAIN);
                answers.push(read(rng, part, kept, expected));
                left -= blocks;
            }
            let whole = parts.join(&mut answers).expect("there is memory");
            write_to(kept);
            return Data::Buf(whole);
        }
        let kind = rng.below(5);
        buf.fill(value);
        let zeroes = kind == 1 || kind == 2;
        expected.resize(expected.len() + len, if zeroes { 0 } else { value });
        if kind == 0 {
            return Data::Buf(buf);
        }
        let other = self::buf(&vec![value; len]);
        if kind.is_multiple_of(2) {
            kept.push(buf);
        }
        match zeroes {
            true => Data::Zeroes(len),
            false => Data::Buf(other),
        }
    }

    fn write_to(kept: &mut [Buf]) {
        for part in kept {
            part.fill(0xEE);
        }
    }

    #[test]
    fn what_children_keep_is_never_seen_in_the_whole() {
        let (mut rng, mut in_place) = (Rng::new(7), 0);
        for round in 0..2000 {
            let before = Buf::balance();
            let (mut kept, mut expected) = (Vec::new(), Vec::new());
            let into = Buf::take(GRAIN * (1 + rng.below(16) as usize)).expect("memory");
            let start = into.as_ptr();
            let mut whole = Parts::of(into);
            let mut answers = Vec::new();
            let all = whole.cut(whole.whole.len());
            answers.push(read(&mut rng, all, &mut kept, &mut expected));
            let whole = whole.join(&mut answers).expect("there is memory");
            in_place += u32::from(whole.as_ptr() == start);
            write_to(&mut kept);
            assert_eq!(*whole, expected, "round {round}");
            drop((whole, kept));
            assert_eq!(Buf::balance(), before, "round {round}");
        }
        assert!(in_place > 500, "{in_place} came back where they were");
    }

    #[test]
    fn answers_of_another_length_are_no_whole() {
        let mut parts = Parts::of(Buf::take(2 * GRAIN).expect("memory"));
        let part = parts.cut(GRAIN);
        assert!(parts.join(&mut vec![Data::Buf(part)]).is_none());
    }

    #[test]
    #[should_panic(expected = "1024 bytes behind 512 of 1024")]
    fn parts_do_not_overlap() {
        let mut parts = Parts::of(Buf::take(2 * GRAIN).expect("memory"));
        let _first = parts.cut(GRAIN);
        parts.cut(2 * GRAIN);
    }
}
