//! What is on a disk of a test: pages that copies share until one of them is written to, so that a
//! copy of a whole disk for each of many power cuts costs next to nothing.

use std::ops::Range;
use std::rc::Rc;

/// Bytes of a page.
const PAGE: usize = 16 << 10;

/// So many bytes.
#[derive(Clone, Debug)]
pub struct Content {
    pages: Vec<Rc<[u8]>>,
    /// What pages are that were never written to.
    zeroes: Rc<[u8]>,
    len: usize,
}

impl Content {
    /// Nothing but zeroes.
    pub fn zeroes(len: usize) -> Self {
        let zeroes: Rc<[u8]> = [0; PAGE].into();
        Self {
            pages: vec![zeroes.clone(); len.div_ceil(PAGE)],
            zeroes,
            len,
        }
    }

    /// How many bytes.
    #[expect(clippy::len_without_is_empty, reason = "no disk is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether all of it is zero.
    pub fn is_blank(&self) -> bool {
        let is_blank = |page| Rc::ptr_eq(page, &self.zeroes) || **page == *self.zeroes;
        self.pages.iter().all(is_blank)
    }

    /// Copies what is at a place to all of `into`.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        for (page, within, part) in self.pieces(offset..offset + into.len()) {
            into[part].copy_from_slice(&self.pages[page][within]);
        }
    }

    /// Puts `bytes` at a place.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        for (page, within, part) in self.pieces(offset..offset + bytes.len()) {
            let page = &mut self.pages[page];
            match within.len() {
                PAGE => *page = bytes[part].into(),
                _ => Rc::make_mut(page)[within].copy_from_slice(&bytes[part]),
            }
        }
    }

    /// Makes a range zero.
    pub fn zero(&mut self, range: Range<usize>) {
        for (page, within, _) in self.pieces(range) {
            let page = &mut self.pages[page];
            match within.len() {
                PAGE => *page = self.zeroes.clone(),
                _ if Rc::ptr_eq(page, &self.zeroes) => {}
                _ => Rc::make_mut(page)[within].fill(0),
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
        for (page, bytes) in bytes.chunks(PAGE).enumerate() {
            if *bytes != content.zeroes[..bytes.len()] {
                content.write(page * PAGE, bytes);
            }
        }
        content
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let mut pages = self.pages.iter().zip(&other.pages);
        self.len == other.len && pages.all(|(one, other)| Rc::ptr_eq(one, other) || one == other)
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
                    content.write(start, &bytes);
                    plain[start..end].copy_from_slice(&bytes);
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
    #[should_panic(expected = "of 16384")]
    fn there_is_nothing_behind_the_end() {
        Content::zeroes(PAGE).write(PAGE - 1, &[1, 2]);
    }
}
