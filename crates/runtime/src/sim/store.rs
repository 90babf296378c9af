//! Sparse bytes: what was never written reads as zero and takes no memory. Copies share their pages
//! until one of them writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes per page, the unit of sparseness.
const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Bytes at 64-bit offsets.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pages: BTreeMap<u64, Rc<Page>>,
}

impl Store {
    /// Bytes that take memory.
    pub(super) fn allocated(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Bytes that a write of `range` would allocate.
    pub(super) fn missing(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let pages = range.start / PAGE..(range.end - 1) / PAGE + 1;
        let present = self.pages.range(pages.clone()).count() as u64;
        (pages.end - pages.start - present) * PAGE
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        into.fill(0);
        for (page, within, part) in split(offset, into.len()) {
            if let Some(bytes) = self.pages.get(&page) {
                into[part].copy_from_slice(&bytes[within]);
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        for (page, within, part) in split(offset, from.len()) {
            let bytes = self
                .pages
                .entry(page)
                .or_insert_with(|| Rc::new([0; PAGE as usize]));
            Rc::make_mut(bytes)[within].copy_from_slice(&from[part]);
        }
    }

    /// Makes `range` read as zero; whole pages are given back.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.start >= whole.end {
            self.clear(range);
            return;
        }
        let gone: Vec<u64> = self
            .pages
            .range(whole.clone())
            .map(|(page, _)| *page)
            .collect();
        for page in gone {
            self.pages.remove(&page);
        }
        self.clear(range.start..whole.start * PAGE);
        self.clear(whole.end * PAGE..range.end);
    }

    /// Zeroes at most two partial pages.
    fn clear(&mut self, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start) as usize;
        for (page, within, _) in split(range.start, len) {
            if let Some(bytes) = self.pages.get_mut(&page) {
                Rc::make_mut(bytes)[within].fill(0);
            }
        }
    }
}

/// Cuts `len` bytes at `offset` into pages: page number, range within the page, range within the
/// whole.
fn split(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE) as usize;
        let n = (PAGE as usize - start).min(len - done);
        let part = done..done + n;
        done += n;
        Some((at / PAGE, start..start + n, part))
    })
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn agrees_with_a_plain_array() {
        const SIZE: usize = 40_000;
        let mut rng = Rng::new(1);
        let (mut store, mut model) = (Store::default(), vec![0_u8; SIZE]);
        for _ in 0..2000 {
            let start = rng.below(SIZE as u64) as usize;
            let end = start + rng.below((SIZE - start) as u64 + 1) as usize;
            if rng.chance(1, 3) {
                store.zero(start as u64..end as u64);
                model[start..end].fill(0);
            } else {
                let mut bytes = vec![0; end - start];
                rng.fill_bytes(&mut bytes);
                let (missing, before) =
                    (store.missing(start as u64..end as u64), store.allocated());
                store.write(start as u64, &bytes);
                assert_eq!(store.allocated(), before + missing);
                model[start..end].copy_from_slice(&bytes);
            }
            let mut seen = vec![1; SIZE];
            store.read(0, &mut seen);
            assert!(seen == model);
        }
        store.zero(0..SIZE as u64);
        assert!(store.allocated() <= PAGE, "all whole pages are given back");
    }

    #[test]
    fn copies_do_not_see_each_other() {
        let mut one = Store::default();
        one.write(10, b"before");
        let other = one.clone();
        one.write(10, b"after!");
        let mut seen = [0; 6];
        other.read(10, &mut seen);
        assert_eq!(&seen, b"before");
    }
}
