//! What a drive does alone, measured in advance, for policies that need a calibration.
//!
//! The comparison of Gimbal's authors calibrates every scheme on the fragmented drive, and not
//! again for a clean one; so does this.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::{Figures, Point, READ_TOKENS};
use flashyard_time::Duration;

use super::fifo;
use crate::bench::Setup;
use crate::experiment::Refused;
use crate::load::{Pace, Pattern, Worker};
use crate::measure::{Tally, percentile_us};

/// A fragmented drive as it was measured, one kind of I/O at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// I/Os per second of reads at random and alone, of 4 KiB and of 128 KiB.
    pub reads: [u64; 2],
    /// The same of writes; those of 128 KiB one after another.
    pub writes: [u64; 2],
    /// The least number of reads of 4 KiB in flight that gives 95 % of their rate.
    pub depth: u32,
    /// Mean latency of I/Os of 4 KiB, half of them writes, with the least number in flight that
    /// gives 95 % of their rate.
    knee: Duration,
    /// The p95 of reads at some loads, nine in ten of the I/Os reads.
    curve: Vec<Point>,
}

const SMALL: u64 = 4096;
const LARGE: u64 = 128 << 10;
const DEPTHS: [u32; 6] = [16, 32, 64, 128, 256, 512];
const QUICK_DEPTHS: [u32; 1] = [128];
/// Percent of the drive's tokens at which the p95 of reads is measured.
const LOADS: [u64; 8] = [10, 20, 30, 40, 50, 60, 80, 100];
const QUICK_LOADS: [u64; 1] = [40];

/// A drive to be measured again and again from the same state.
struct Subject<'a> {
    profile: &'a Profile,
    capacity: u64,
    seed: u64,
    span: Duration,
    quick: bool,
}

impl Calibration {
    /// Measures a fragmented drive of `capacity` bytes; `quick` for hardly any time.
    pub fn measure(
        profile: &Profile,
        capacity: u64,
        seed: u64,
        quick: bool,
    ) -> Result<Self, Refused> {
        let subject = Subject {
            profile,
            capacity,
            seed,
            span: Duration::from_ms(if quick { 8 } else { 300 }),
            quick,
        };
        let (most, depth, _) = subject.saturation(100)?;
        let (_, _, knee) = subject.saturation(50)?;
        let reads = [most, subject.rate(Pattern::random(100, LARGE), 64)?];
        let writes = [
            subject.rate(Pattern::random(0, SMALL), 128)?,
            subject.rate(Pattern::sequential(0, LARGE), 32)?,
        ];
        Ok(Self {
            reads,
            writes,
            depth,
            knee,
            curve: subject.curve(reads[0], write_tokens(reads, writes))?,
        })
    }

    /// For policies that have to be told; none when it does nothing of a kind.
    pub fn figures(&self) -> Option<Figures> {
        let figures = Figures::new(self.reads, self.writes)?;
        Some(
            figures
                .with_depth(self.depth)
                .with_curve(self.curve.clone()),
        )
    }

    /// For Parda: the latency that hosts steer for.
    pub fn knee(&self) -> Duration {
        self.knee
    }

    /// Bytes per second of one kind of I/O alone: of the measured length that is nearer.
    pub fn bandwidth(&self, reads: bool, bytes: u64) -> u64 {
        let rates = if reads { self.reads } else { self.writes };
        if bytes < LARGE / 4 {
            rates[0] * SMALL
        } else {
            rates[1] * LARGE
        }
    }
}

/// Tokens of a write of 4 KiB: as many times those of a read as reads are faster.
fn write_tokens(reads: [u64; 2], writes: [u64; 2]) -> u64 {
    reads[0] * READ_TOKENS / writes[0]
}

impl Subject<'_> {
    /// The highest rate of I/Os of 4 KiB with so many percent of reads, the least depth that gives
    /// 95 % of it, and the mean latency there.
    fn saturation(&self, reads_percent: u32) -> Result<(u64, u32, Duration), Refused> {
        let depths: &[u32] = if self.quick { &QUICK_DEPTHS } else { &DEPTHS };
        let pattern = || Pattern::random(reads_percent, SMALL);
        let measure = |&depth: &u32| self.run(pattern(), Pace::Closed { depth });
        let tallies = depths.iter().map(measure).collect::<Result<Vec<_>, _>>()?;
        let most = tallies.iter().map(Tally::iops).fold(1.0, f64::max);
        let enough = tallies.iter().position(|tally| tally.iops() >= 0.95 * most);
        let place = enough.unwrap_or(depths.len() - 1);
        let latency = Duration::from_ns(tallies[place].total().mean());
        Ok((most as u64, depths[place], latency))
    }

    /// I/Os per second when so many are always in flight; never zero.
    fn rate(&self, pattern: Pattern, depth: u32) -> Result<u64, Refused> {
        let tally = self.run(pattern, Pace::Closed { depth })?;
        Ok((tally.iops() as u64).max(1))
    }

    /// The p95 of reads at some loads, of which each later one is higher.
    fn curve(&self, reads: u64, write_tokens: u64) -> Result<Vec<Point>, Refused> {
        let mut curve: Vec<Point> = Vec::new();
        let most = reads * READ_TOKENS;
        let tokens_of_ten = 9 * READ_TOKENS + write_tokens;
        let loads: &[u64] = if self.quick { &QUICK_LOADS } else { &LOADS };
        for &load in loads {
            let tokens = most * load / 100;
            let pace = Pace::poisson(tokens * 10 / tokens_of_ten);
            let tally = self.run(Pattern::random(90, SMALL), pace)?;
            let p95_us = percentile_us(&tally.reads.total, 950_000).unwrap_or(0.0);
            let latency = Duration::from_ns((p95_us * 1e3) as u64);
            if curve.last().is_none_or(|last| last.latency < latency) {
                curve.push(Point { latency, tokens });
            }
        }
        Ok(curve)
    }

    fn run(&self, pattern: Pattern, pace: Pace) -> Result<Tally, Refused> {
        let device = Device::in_condition(
            self.profile,
            self.capacity,
            self.seed,
            Condition::Fragmented(100),
        );
        let device = device.map_err(|error| Refused::Conflict(error.to_string()))?;
        let worker = Worker::new("alone", 1, pace, pattern);
        let setup = Setup::new(device, fifo(), vec![worker]).seeded(self.seed);
        let mut results = setup.measured(self.span / 2, self.span).run()?;
        Ok(results.workers.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::reflex;

    use super::*;

    #[test]
    fn a_drive_is_found_to_be_what_its_profile_says() {
        let profile = Profile::named("dct983").expect("it ships");
        let drive = Calibration::measure(&profile, 1 << 30, 1, true).expect("it fits");
        let [small, large] = drive.reads;
        assert!((380_000..460_000).contains(&small), "{drive:?}");
        assert!((10_000..26_000).contains(&large), "{drive:?}");
        assert!(drive.writes[0] < small / 3, "{drive:?}");
        let figures = drive.figures().expect("it reads and writes");
        let reflex = reflex::Calibration::from(&figures);
        assert!(reflex.rate(None) == small * 100);
        let tight = reflex.rate(Some(Duration::from_us(300)));
        assert!(tight < small * 90, "{drive:?}");
    }
}
