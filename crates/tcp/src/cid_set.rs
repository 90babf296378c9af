//! The command identifiers in use on a queue. Hosts choose them freely from 65,536 (Linux puts a
//! generation into the upper bits), so the set is a bitmap in segments that come into being when
//! first touched.

/// Identifiers per segment.
const SEGMENT: usize = 1024;
const WORDS: usize = SEGMENT / 64;

/// A set of command identifiers: at most 8 KiB, for most hosts a few hundred bytes.
#[derive(Default)]
pub(crate) struct CidSet {
    segments: Vec<Option<Box<[u64; WORDS]>>>,
}

impl CidSet {
    /// Adds `cid`; false if it was there.
    #[inline]
    pub(crate) fn insert(&mut self, cid: u16) -> bool {
        let (segment, word, bit) = place(cid);
        if segment >= self.segments.len() || self.segments[segment].is_none() {
            self.grow(segment);
        }
        let Some(words) = &mut self.segments[segment] else {
            return false;
        };
        let fresh = words[word] & bit == 0;
        words[word] |= bit;
        fresh
    }

    /// Takes `cid` out.
    #[inline]
    pub(crate) fn remove(&mut self, cid: u16) {
        let (segment, word, bit) = place(cid);
        if let Some(Some(words)) = self.segments.get_mut(segment) {
            words[word] &= !bit;
        }
    }

    #[cold]
    fn grow(&mut self, segment: usize) {
        if segment >= self.segments.len() {
            self.segments.resize_with(segment + 1, || None);
        }
        self.segments[segment] = Some(Box::new([0; WORDS]));
    }
}

#[inline]
fn place(cid: u16) -> (usize, usize, u64) {
    let cid = usize::from(cid);
    (cid / SEGMENT, cid % SEGMENT / 64, 1 << (cid % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn agrees_with_a_plain_set() {
        let (mut set, mut model) = (CidSet::default(), BTreeSet::new());
        let mut rng = Rng::new(7);
        for _ in 0..200_000 {
            let cid = rng.next_u64() as u16;
            if rng.chance(1, 2) {
                assert_eq!(set.insert(cid), model.insert(cid));
            } else {
                set.remove(cid);
                model.remove(&cid);
            }
        }
    }
}
