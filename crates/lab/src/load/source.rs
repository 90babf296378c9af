//! Generates the I/O of a worker from its description, one at a time.

use std::sync::Arc;

use flashyard_flash::UNIT_BYTES;
use flashyard_sched::Op;
use flashyard_time::{Duration, Rng};

use super::trace::Trace;
use super::zipf::Zipf;
use super::{Access, Arrivals, Pace, Pattern, ReplayPace, Work};

/// An I/O to be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) op: Op,
    /// The first unit of [`UNIT_BYTES`].
    pub(crate) start: u64,
    /// How many; never zero, for a flush one.
    pub(crate) units: u32,
}

/// What a worker issues next and when.
#[derive(Debug)]
pub(crate) struct Source {
    gaps: Gaps,
    drafts: Drafts,
}

#[derive(Debug)]
enum Gaps {
    /// The next comes when one is done.
    None,
    Constant(Duration),
    Poisson(Duration, Rng),
    /// As recorded, divided by hundredths.
    Recorded(u32),
}

#[derive(Debug)]
enum Drafts {
    Drawn(Drawn),
    Replay { trace: Arc<Trace>, next: usize },
}

#[derive(Debug)]
struct Drawn {
    reads_per_mille: u32,
    /// Lengths in units, and the weight of all up to and with it.
    sizes: Vec<(u32, u64)>,
    ops: Rng,
    addresses: Rng,
    walk: Walk,
    /// The region in units.
    first: u64,
    count: u64,
}

#[derive(Debug)]
enum Walk {
    /// The next unit of reads and of writes.
    Sequential([u64; 2]),
    Random,
    /// Items of so many units.
    Zipf(Zipf, u64),
}

impl Source {
    /// A source for work that was checked against `capacity`.
    pub(crate) fn new(work: &Work, capacity: u64, chance: &Rng) -> Self {
        match work {
            Work::Drawn { pace, pattern } => Self {
                gaps: match *pace {
                    Pace::Closed { .. } => Gaps::None,
                    Pace::Open {
                        gap,
                        arrivals: Arrivals::Constant,
                        ..
                    } => Gaps::Constant(gap),
                    Pace::Open {
                        gap,
                        arrivals: Arrivals::Poisson,
                        ..
                    } => Gaps::Poisson(gap, chance.split(0)),
                },
                drafts: Drafts::Drawn(Drawn::new(pattern, capacity, chance)),
            },
            Work::Replay { trace, pace } => Self {
                gaps: match *pace {
                    ReplayPace::Closed { .. } => Gaps::None,
                    ReplayPace::Recorded { speed_percent, .. } => Gaps::Recorded(speed_percent),
                },
                drafts: Drafts::Replay {
                    trace: trace.clone(),
                    next: 0,
                },
            },
        }
    }

    /// Whether I/O comes at instants of its own.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.gaps, Gaps::None)
    }

    /// The time to the next I/O, after the one before or the start; nothing when there is none, or
    /// in a closed loop.
    pub(crate) fn gap(&mut self) -> Option<Duration> {
        match &mut self.gaps {
            Gaps::None => None,
            Gaps::Constant(gap) => Some(*gap),
            Gaps::Poisson(mean, chance) => Some(chance.exponential(*mean)),
            Gaps::Recorded(speed) => {
                let Drafts::Replay { trace, next } = &self.drafts else {
                    return None;
                };
                let at = trace.records().get(*next)?.at;
                let before = next
                    .checked_sub(1)
                    .map_or(Duration::ZERO, |last| trace.records()[last].at);
                Some((at - before).scale(100, u64::from(*speed)))
            }
        }
    }

    /// The next I/O; nothing when all that was recorded is issued.
    pub(crate) fn draft(&mut self) -> Option<Draft> {
        match &mut self.drafts {
            Drafts::Drawn(drawn) => Some(drawn.draft()),
            Drafts::Replay { trace, next } => {
                let record = trace.records().get(*next)?;
                *next += 1;
                Some(record.draft())
            }
        }
    }
}

impl Drawn {
    fn new(pattern: &Pattern, capacity: u64, chance: &Rng) -> Self {
        let region = pattern.region(capacity);
        let count = (region.end - region.start) / UNIT_BYTES;
        let mut sum = 0;
        let sizes = pattern.sizes.iter().map(|&(bytes, weight)| {
            sum += u64::from(weight);
            ((bytes / UNIT_BYTES) as u32, sum)
        });
        Self {
            reads_per_mille: pattern.reads_per_mille,
            sizes: sizes.collect(),
            ops: chance.split(1),
            addresses: chance.split(2),
            walk: match pattern.access {
                Access::Sequential => Walk::Sequential([0; 2]),
                Access::Random => Walk::Random,
                Access::Zipf { theta_per_mille } => {
                    let item = pattern.longest() / UNIT_BYTES;
                    Walk::Zipf(Zipf::new(count / item, theta_per_mille), item)
                }
            },
            first: region.start / UNIT_BYTES,
            count,
        }
    }

    fn draft(&mut self) -> Draft {
        let op = match self.reads_per_mille {
            0 => Op::Write,
            1000.. => Op::Read,
            reads if self.ops.chance(u64::from(reads), 1000) => Op::Read,
            _ => Op::Write,
        };
        let units = self.size();
        let wide = u64::from(units);
        let place = match &mut self.walk {
            Walk::Sequential(cursors) => {
                let cursor = &mut cursors[usize::from(op == Op::Write)];
                if *cursor + wide > self.count {
                    *cursor = 0;
                }
                *cursor += wide;
                *cursor - wide
            }
            Walk::Random => self.addresses.below(self.count / wide) * wide,
            Walk::Zipf(zipf, item) => zipf.draw(&mut self.addresses) * *item,
        };
        Draft {
            op,
            start: self.first + place,
            units,
        }
    }

    fn size(&mut self) -> u32 {
        if let [(only, _)] = self.sizes[..] {
            return only;
        }
        let (_, total) = self.sizes[self.sizes.len() - 1];
        let drawn = self.ops.below(total);
        let place = self.sizes.partition_point(|&(_, sum)| sum <= drawn);
        self.sizes[place].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 20;

    fn drafts(pattern: Pattern, count: usize) -> Vec<Draft> {
        let work = Work::Drawn {
            pace: Pace::Closed { depth: 1 },
            pattern,
        };
        let mut source = Source::new(&work, CAPACITY, &Rng::new(1));
        (0..count)
            .map(|_| source.draft().expect("it never ends"))
            .collect()
    }

    #[test]
    fn sequential_addresses_follow_each_other_and_begin_again() {
        let pattern = Pattern::sequential(0, 8192).within(16_384..40_960);
        let starts: Vec<_> = drafts(pattern, 5).iter().map(|draft| draft.start).collect();
        assert_eq!(starts, [4, 6, 8, 4, 6]);
    }

    #[test]
    fn addresses_stay_in_their_region_and_are_aligned_to_the_length() {
        for access in [
            Access::Random,
            Access::Zipf {
                theta_per_mille: 1200,
            },
        ] {
            let pattern = Pattern {
                access,
                ..Pattern::random(50, 16_384).within(65_536..524_288)
            };
            for draft in drafts(pattern, 1000) {
                assert!(
                    draft.start >= 16 && draft.start + 4 <= 128 && draft.start.is_multiple_of(4)
                );
            }
        }
    }

    #[test]
    fn shares_of_sizes_and_reads_are_kept() {
        let pattern = Pattern {
            sizes: vec![(4096, 3), (131_072, 1)],
            ..Pattern::random(70, 4096)
        };
        let drafts = drafts(pattern, 20_000);
        let large = drafts.iter().filter(|draft| draft.units == 32).count();
        let reads = drafts.iter().filter(|draft| draft.op == Op::Read).count();
        assert!((4_700..=5_300).contains(&large), "{large}");
        assert!((13_700..=14_300).contains(&reads), "{reads}");
    }

    #[test]
    fn gaps_are_as_described() {
        let mean = Duration::from_us(10);
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let pace = Pace::Open {
                gap: mean,
                arrivals,
                most: 1,
            };
            let work = Work::Drawn {
                pace,
                pattern: Pattern::random(100, 4096),
            };
            let mut source = Source::new(&work, CAPACITY, &Rng::new(4));
            let sum: Duration = (0..10_000).map(|_| source.gap().expect("it is open")).sum();
            assert!(
                (97_000..=103_000).contains(&sum.as_us()),
                "{arrivals:?}: {sum}"
            );
        }
    }
}
