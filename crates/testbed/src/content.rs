//! What is on a disk of a test: pages that copies share until one of them is written to, so that a
//! copy of a whole disk for each of many power cuts costs next to nothing.

use std::ops::Range;
use std::rc::Rc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// So many bytes.
#[derive(Clone, Debug)]
pub struct Content {
    pages: Vec<Page>,
    /// What pages are that were never written to.
    zeroes: Page,
    len: usize,
}

/// A part of what was written at once.
#[derive(Clone, Debug)]
struct Page {
    of: Rc<[u8]>,
    from: usize,
}

impl Page {
    fn bytes(&self) -> &[u8] {
        &self.of[self.from..self.from + PAGE]
    }

    fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.of, &other.of) && self.from == other.from
    }

    /// For changes that no copy sees.
    fn own(&mut self) -> &mut [u8] {
        if self.of.len() > PAGE || Rc::get_mut(&mut self.of).is_none() {
            *self = self.bytes().into();
        }
        Rc::get_mut(&mut self.of).expect("nobody else has it")
    }
}

impl From<&[u8]> for Page {
    fn from(bytes: &[u8]) -> Self {
        let of = bytes.into();
        Self { of, from: 0 }
    }
}

impl Content {
    /// Nothing but zeroes.
    pub fn zeroes(len: usize) -> Self {
        let zeroes = Page::from(&[0; PAGE][..]);
        Self {
            pages: vec![zeroes.clone(); len.div_ceil(PAGE)],
            zeroes,
            len,
        }
    }

    /// How many bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Whether all of it is zero.
    pub fn is_blank(&self) -> bool {
        let mut pages = self.pages.iter();
        pages.all(|page| page.is(&self.zeroes) || page.bytes() == self.zeroes.bytes())
    }

    /// Copies what is at a place to all of `into`.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        for (page, within, part) in self.pieces(offset..offset + into.len()) {
            into[part].copy_from_slice(&self.pages[page].bytes()[within]);
        }
    }

    /// Puts a part of `bytes` at a place. Whole pages are not copied.
    pub fn write(&mut self, offset: usize, bytes: &Rc<[u8]>, part: Range<usize>) {
        for (page, within, piece) in self.pieces(offset..offset + part.len()) {
            let page = &mut self.pages[page];
            let from = part.start + piece.start;
            match within.len() {
                PAGE => {
                    let of = Rc::clone(bytes);
                    *page = Page { of, from };
                }
                len => page.own()[within].copy_from_slice(&bytes[from..from + len]),
            }
        }
    }

    /// Makes a range zero.
    pub fn zero(&mut self, range: Range<usize>) {
        for (page, within, _) in self.pieces(range) {
            let page = &mut self.pages[page];
            match within.len() {
                PAGE => *page = self.zeroes.clone(),
                _ if page.is(&self.zeroes) => {}
                _ => page.own()[within].fill(0),
            }
        }
    }

    /// A range of it.
    pub fn part(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        self.part(0..self.len)
    }

    /// The parts of a range that lie in one page each: which page, where in it, and where in the
    /// range.
    fn pieces(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + use<> {
        assert!(range.end <= self.len, "{range:?} of {}", self.len);
        let mut at = range.start;
        std::iter::from_fn(move || {
            let (page, start) = (at / PAGE, at % PAGE);
            let len = (PAGE - start).min(range.end.checked_sub(at)?);
            let part = at - range.start..at - range.start + len;
            at += len;
            (len > 0).then_some((page, start..start + len, part))
        })
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        let mut content = Self::zeroes(bytes.len());
        for (page, bytes) in content.pages.iter_mut().zip(bytes.chunks(PAGE)) {
            if *bytes != content.zeroes.bytes()[..bytes.len()] {
                page.own()[..bytes.len()].copy_from_slice(bytes);
            }
        }
        content
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let mut pages = self.pages.iter().zip(&other.pages);
        let same = |(one, other): (&Page, &Page)| one.is(other) || one.bytes() == other.bytes();
        self.len == other.len && pages.all(same)
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn copies_are_as_plain_arrays_are() {
        const LEN: usize = 5 * PAGE + 512;
        let mut rng = Rng::new(1);
        let mut both = vec![(Content::zeroes(LEN), vec![0; LEN])];
        for _ in 0..3000 {
            let start = rng.below(LEN as u64) as usize;
            let end = start + rng.below((LEN - start) as u64 + 1) as usize;
            let which = rng.below(both.len() as u64) as usize;
            let (content, plain) = &mut both[which];
            match rng.below(4) {
                0 => {
                    content.zero(start..end);
                    plain[start..end].fill(0);
                }
                1 => {
                    let mut bytes = vec![0; end - start];
                    rng.fill_bytes(&mut bytes);
                    plain[start..end].copy_from_slice(&bytes);
                    // With something before it and behind it.
                    let whole: Rc<[u8]> = [&[1], &bytes[..], &[2, 3]].concat().into();
                    content.write(start, &whole, 1..1 + bytes.len());
                }
                2 => {
                    let mut bytes = vec![1; end - start];
                    content.read(start, &mut bytes);
                    assert!(bytes == plain[start..end]);
                }
                _ => {
                    let copy = (content.clone(), plain.clone());
                    both.insert(0, copy);
                    both.truncate(4);
                }
            }
            let (content, plain) = &both[0];
            assert!(content.bytes() == *plain);
            assert!(Content::from(plain.clone()) == *content);
            assert_eq!(content.is_blank(), plain.iter().all(|byte| *byte == 0));
            let (other, other_plain) = &both[both.len() - 1];
            assert_eq!(content == other, plain == other_plain);
        }
    }

    #[test]
    #[should_panic(expected = "of 4096")]
    fn there_is_nothing_behind_the_end() {
        Content::zeroes(PAGE).write(PAGE - 1, &[1, 2].into(), 0..2);
    }
}
