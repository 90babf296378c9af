//! What copies of a range come to: block by block, what most of them hold. Pure.

/// What was decided of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vote {
    /// For each block the copy that has what it should hold; nothing where no content has more
    /// copies than each other one.
    pub(super) blocks: Vec<Option<usize>>,
    /// Copies that hold something else in a block that was decided.
    pub(super) wrong: Vec<bool>,
}

impl Vote {
    /// Whether every block was decided.
    pub(super) fn is_whole(&self) -> bool {
        self.blocks.iter().all(Option::is_some)
    }
}

/// Holds copies of the same length against each other.
pub(super) fn vote(copies: &[&[u8]], block: usize) -> Vote {
    let length = copies.first().map_or(0, |copy| copy.len());
    let mut found = Vote {
        blocks: Vec::with_capacity(length / block),
        wrong: vec![false; copies.len()],
    };
    for start in (0..length).step_by(block) {
        let part = |copy: usize| &copies[copy][start..start + block];
        let like = |copy: usize| {
            (0..copies.len())
                .filter(|it| part(*it) == part(copy))
                .count()
        };
        let best = (0..copies.len()).max_by_key(|copy| (like(*copy), std::cmp::Reverse(*copy)));
        let decided = best.filter(|best| {
            let others = (0..copies.len()).filter(|copy| part(*copy) != part(*best));
            others.into_iter().all(|copy| like(copy) < like(*best))
        });
        if let Some(best) = decided {
            for copy in 0..copies.len() {
                found.wrong[copy] |= part(copy) != part(best);
            }
        }
        found.blocks.push(decided);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_copies_decide_and_a_tie_does_not() {
        type Case = (
            &'static [&'static [u8]],
            &'static [Option<usize>],
            &'static [bool],
        );
        let cases: [Case; 7] = [
            (&[b"abcd"], &[Some(0), Some(0)], &[false]),
            (&[b"abcd", b"abcd"], &[Some(0), Some(0)], &[false, false]),
            (&[b"abcd", b"abxd"], &[Some(0), None], &[false, false]),
            (
                &[b"abcd", b"abxd", b"abcd"],
                &[Some(0), Some(0)],
                &[false, true, false],
            ),
            // Each block by itself: no copy has all of it.
            (
                &[b"xbcd", b"abxd", b"abcd"],
                &[Some(1), Some(0)],
                &[true, true, false],
            ),
            (&[b"ab", b"cd", b"ef"], &[None], &[false; 3]),
            (&[b"ab", b"cd", b"ab", b"cd"], &[None], &[false; 4]),
        ];
        for (copies, blocks, wrong) in cases {
            let found = vote(copies, 2);
            assert_eq!(
                (&*found.blocks, &*found.wrong),
                (blocks, wrong),
                "{copies:?}"
            );
        }
        assert!(vote(&[b"ab", b"ab"], 2).is_whole());
        assert!(!vote(&[b"ab", b"ax"], 2).is_whole());
    }
}
