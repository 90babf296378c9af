//! Sets of extents as sorted runs, and allocation from them. Pure; memory follows the number of
//! runs, never the size of a device.

use std::ops::Range;

/// Extents `start` to before `start + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::pool) struct Run {
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Run {
    /// The extent behind it. The code that makes a run ensures that this does not wrap.
    pub(super) fn end(self) -> u64 {
        self.start + self.count
    }
}

/// A set of extents: runs in order, none empty, none touching another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// The set of `runs`, or a run that overlaps another.
    pub(super) fn new(runs: impl IntoIterator<Item = Run>) -> Result<Self, Run> {
        let mut sorted: Vec<Run> = runs.into_iter().filter(|run| run.count > 0).collect();
        sorted.sort_unstable();
        let mut merged: Vec<Run> = Vec::with_capacity(sorted.len());
        for run in sorted {
            match merged.last_mut() {
                Some(last) if last.end() > run.start => return Err(run),
                Some(last) if last.end() == run.start => last.count += run.count,
                _ => merged.push(run),
            }
        }
        Ok(Self(merged))
    }

    /// All extents below `end`.
    pub(super) fn below(end: u64) -> Self {
        Self(if end > 0 {
            vec![Run {
                start: 0,
                count: end,
            }]
        } else {
            Vec::new()
        })
    }

    pub(super) fn as_slice(&self) -> &[Run] {
        &self.0
    }

    /// Number of extents.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// Whether all of these extents, at least one, are in this set.
    pub(super) fn contains(&self, extents: &Range<u64>) -> bool {
        let run = self.run_at(extents.start);
        run.is_some_and(|run| !extents.is_empty() && extents.end <= run.end())
    }

    /// What is in this set and not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len());
        let mut holes = other.0.as_slice();
        for run in &self.0 {
            let mut start = run.start;
            while let Some((hole, behind)) = holes.split_first() {
                if hole.start >= run.end() {
                    break;
                }
                if hole.start > start {
                    left.push(Run {
                        start,
                        count: hole.start - start,
                    });
                }
                start = start.max(hole.end());
                if hole.end() > run.end() {
                    // This hole reaches into the runs behind.
                    break;
                }
                holes = behind;
            }
            if start < run.end() {
                left.push(Run {
                    start,
                    count: run.end() - start,
                });
            }
        }
        Self(left)
    }

    /// Chooses `count` extents: from `near` on if that is free, then the first run that is long
    /// enough, and only if there is none the first ones there are. `None` when the set is too
    /// small.
    pub(super) fn choose(&self, count: u64, near: Option<u64>) -> Option<Vec<Run>> {
        if count > self.count() {
            return None;
        }
        let mut rest = self.clone();
        let mut missing = count;
        let mut chosen = Vec::new();
        while missing > 0 {
            let start = match near {
                Some(near) if chosen.is_empty() && rest.run_at(near).is_some() => near,
                _ => rest.first_fit(missing),
            };
            let run = rest
                .run_at(start)
                .expect("an extent of the set lies in one of its runs");
            let taken = Run {
                start,
                count: missing.min(run.end() - start),
            };
            missing -= taken.count;
            rest = rest.without(&Self(vec![taken]));
            chosen.push(taken);
        }
        Some(chosen)
    }

    fn run_at(&self, extent: u64) -> Option<Run> {
        let behind = self.0.partition_point(|run| run.start <= extent);
        let run = *self.0.get(behind.checked_sub(1)?)?;
        (extent < run.end()).then_some(run)
    }

    fn first_fit(&self, count: u64) -> u64 {
        let fitting = self.0.iter().find(|run| run.count >= count);
        fitting
            .or(self.0.first())
            .expect("the set is large enough, so not empty")
            .start
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const EXTENTS: u64 = 60;

    fn some(rng: &mut Rng) -> (Runs, Vec<bool>) {
        let density = rng.below(10);
        let present: Vec<bool> = (0..EXTENTS).map(|_| rng.below(10) < density).collect();
        (set(&present), present)
    }

    fn set(present: &[bool]) -> Runs {
        let single = |extent| Run {
            start: extent as u64,
            count: 1,
        };
        Runs::new(
            (0..present.len())
                .filter(|&extent| present[extent])
                .map(single),
        )
        .unwrap()
    }

    #[test]
    fn differences_are_those_of_sets() {
        let mut rng = Rng::new(3);
        for _ in 0..3000 {
            let ((a, in_a), (b, in_b)) = (some(&mut rng), some(&mut rng));
            let without: Vec<bool> = in_a.iter().zip(&in_b).map(|(a, b)| *a && !*b).collect();
            assert_eq!(a.without(&b), set(&without));
            let start = rng.below(EXTENTS);
            let range = start..start + rng.below(EXTENTS - start + 1);
            let inside = &in_a[range.start as usize..range.end as usize];
            let all = !inside.is_empty() && inside.iter().all(|&present| present);
            assert_eq!(a.contains(&range), all, "{range:?} of {a:?}");
            assert_eq!(
                a.count(),
                in_a.iter().filter(|&&present| present).count() as u64
            );
        }
    }

    #[test]
    fn chosen_extents_are_free_distinct_and_as_many_as_asked() {
        let mut rng = Rng::new(4);
        for _ in 0..3000 {
            let (free, _) = some(&mut rng);
            let count = rng.below(EXTENTS);
            let near = (rng.below(2) == 0).then(|| rng.below(EXTENTS));
            let Some(chosen) = free.choose(count, near) else {
                assert!(count > free.count());
                continue;
            };
            let whole = free.as_slice().iter().any(|run| run.count >= count);
            assert!(
                !whole || near.is_some() || chosen.len() <= 1,
                "one run was long enough"
            );
            let chosen = Runs::new(chosen).expect("no extent twice");
            assert_eq!(chosen.count(), count);
            assert_eq!(chosen.without(&free).count(), 0);
        }
    }

    #[test]
    fn overlaps_are_found_and_neighbours_joined() {
        let run = |start, count| Run { start, count };
        assert_eq!(Runs::new([run(5, 2), run(6, 1)]), Err(run(6, 1)));
        assert_eq!(
            Runs::new([run(5, 2), run(0, 5), run(9, 0)])
                .unwrap()
                .as_slice(),
            [run(0, 7)]
        );
        assert_eq!(Runs::below(10).choose(3, Some(4)), Some(vec![run(4, 3)]));
        assert_eq!(
            Runs::below(10).choose(3, Some(9)),
            Some(vec![run(9, 1), run(0, 2)])
        );
    }
}
