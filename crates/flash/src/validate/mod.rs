//! Whether a drive does what theory and public figures say: twenty tests, each a few measurements against oracles.
//!
//! An oracle is a closed form of the profile's own numbers, or a figure that was published; none is fitted to the
//! model. Where the two differ by nature the row says so in its tolerance and its note: bounds of a queueing network
//! are met from one side, and greedy collection does a little better than the closed form for large blocks.

mod channel_power;
mod curves;
mod drives;
mod open_channel;
mod oracle;
mod power;
mod reads;
mod soundness;
mod variants;
mod writes;

use alloc::string::String;
use alloc::vec::Vec;

use flashyard_time::Duration;

use crate::Profile;
use crate::ssd::{Condition, Device};
use crate::workload::{Tally, Worker, closed_loop};

/// What the tests are about; test 1 is the first.
pub const TESTS: [&str; 20] = [
    "latency of an idle drive",
    "each stage as the bottleneck",
    "reads at rising queue depth",
    "reads that arrive at random",
    "overload and recovery",
    "sequential writes",
    "write amplification of greedy collection",
    "write amplification in order of age, of hot and cold data, with deallocation",
    "rate of fragmented writes",
    "DCT 983",
    "970 PRO",
    "CNEX open-channel drive",
    "scaled down, and made instead of written",
    "a read meets a busy die",
    "accounts of the dies",
    "determinism and invariants",
    "power cuts",
    "another simulator",
    "tail latency against load",
    "speed of simulation",
];

/// How much work the tests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Small drives and short spans: seconds in a build that is not optimised.
    Quick,
    /// 4 to 32 GiB, and spans that make the noise small: minutes.
    Full,
}

/// CPU time spent so far, for the one test that measures the model's own speed.
pub type CpuClock<'a> = &'a dyn Fn() -> Duration;

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// The test it belongs to, from 1 to 20; see [`TESTS`].
    pub number: u8,
    /// What is compared, with its unit.
    pub test: String,
    /// What it should be.
    pub oracle: f64,
    /// What it is.
    pub measured: f64,
    /// How much less and how much more than the oracle passes, as fractions of it.
    pub tolerance: (f64, f64),
    /// Where the oracle comes from, or what physics makes of the difference; may be empty.
    pub note: &'static str,
    /// Outside of the tolerance for the physical reason in the note, as far as is known; not a pass.
    pub explained: bool,
}

impl Row {
    /// Whether the measured value lies within the tolerance.
    pub fn pass(&self) -> bool {
        let (less, more) = self.tolerance;
        let slack = self.oracle.abs() * 1e-9;
        (self.oracle * (1.0 - less) - slack..=self.oracle * (1.0 + more) + slack)
            .contains(&self.measured)
    }

    /// Passes within `tolerance` on either side.
    fn near(test: impl Into<String>, oracle: f64, measured: f64, tolerance: f64) -> Self {
        Self::within(test, oracle, measured, (tolerance, tolerance))
    }

    fn within(test: impl Into<String>, oracle: f64, measured: f64, tolerance: (f64, f64)) -> Self {
        Self {
            number: 0,
            test: test.into(),
            oracle,
            measured,
            tolerance,
            note: "",
            explained: false,
        }
    }

    /// Passes when both are the same.
    fn exact(test: &'static str, oracle: u64, measured: u64) -> Self {
        Self::near(test, oracle as f64, measured as f64, 0.0)
    }

    fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// Says why the value is not within the tolerance, if it is not.
    fn unless_within(self, reason: &'static str) -> Self {
        if self.pass() {
            return self;
        }
        Self {
            note: reason,
            explained: true,
            ..self
        }
    }
}

/// The rows of all tests but the one that needs a clock.
pub fn run(extent: Extent) -> Vec<Row> {
    (1..=TESTS.len() as u8)
        .flat_map(|number| run_test(number, extent, None))
        .collect()
}

/// The rows of one test. A number without a test has none, nor has test 20 without a clock or in a build that is not
/// optimised.
pub fn run_test(number: u8, extent: Extent, clock: Option<CpuClock<'_>>) -> Vec<Row> {
    let bench = Bench::new(extent);
    let mut rows = match number {
        1 => reads::unloaded(&bench),
        2 => reads::bounds(&bench),
        3 => reads::queue_depths(&bench),
        4 => reads::random_arrivals(&bench),
        5 => reads::overload(&bench),
        6 => writes::sequential(&bench),
        7 => writes::greedy(&bench),
        8 => writes::by_age_and_kind(&bench),
        9 => writes::fragmented(&bench),
        10 => drives::dct983(&bench),
        11 => drives::pro970(&bench),
        12 => open_channel::cnex(&bench),
        13 => soundness::scaled_and_made(&bench),
        14 => reads::busy_die(&bench),
        15 => soundness::accounts(&bench),
        16 => soundness::determinism(&bench),
        17 => power::cuts(&bench),
        18 => drives::other_simulator(&bench),
        19 => curves::tails(&bench),
        20 => clock.map_or_else(Vec::new, |clock| soundness::speed(&bench, clock)),
        _ => Vec::new(),
    };
    for row in &mut rows {
        row.number = number;
    }
    rows
}

const FRAGMENTED: Condition = Condition::Fragmented(100);

/// What the tests share.
struct Bench {
    capacity: u64,
    /// A span for reads, and one for writes that collect.
    short: Duration,
    long: Duration,
    full: bool,
    profile: Profile,
}

impl Bench {
    fn new(extent: Extent) -> Self {
        let full = extent == Extent::Full;
        Self {
            capacity: if full { 8 << 30 } else { 1 << 30 },
            short: Duration::from_ms(if full { 1000 } else { 40 }),
            long: Duration::from_ms(if full { 10_000 } else { 1500 }),
            full,
            profile: shipped("dct983"),
        }
    }

    fn device(&self, profile: &Profile, condition: Condition) -> Device {
        Device::in_condition(profile, self.capacity, 1, condition)
            .expect("the capacity suits every profile that ships")
    }

    /// The same with drives of another capacity.
    fn with_capacity(&self, capacity: u64) -> Self {
        Self {
            capacity,
            profile: self.profile.clone(),
            ..*self
        }
    }

    /// The same with drives that have so much spare flash, in millionths of the capacity.
    fn with_spare(&self, spare_ppm: u64) -> Self {
        Self {
            profile: Profile {
                spare_ppm,
                ..self.profile.clone()
            },
            ..*self
        }
    }

    /// What one worker gets of a drive.
    fn load(
        &self,
        profile: &Profile,
        condition: Condition,
        worker: Worker,
        span: Duration,
    ) -> Tally {
        let mut device = self.device(profile, condition);
        closed_loop(&mut device, &[worker], span.scale(1, 2), span, 3).remove(0)
    }
}

fn shipped(name: &str) -> Profile {
    Profile::named(name).expect("it ships")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quick_row_passes_or_is_explained() {
        let rows = run(Extent::Quick);
        let failed: Vec<_> = rows
            .iter()
            .filter(|row| !row.pass() && !row.explained)
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");
        for number in 1..20 {
            let tested = rows.iter().any(|row| row.number == number);
            assert!(tested, "test {number} has no rows");
        }
    }

    #[test]
    fn a_row_can_fail() {
        let row = |oracle, measured, tolerance| Row::near("", oracle, measured, tolerance).pass();
        assert!(row(100.0, 101.0, 0.01));
        assert!(!row(100.0, 101.1, 0.01));
        assert!(!row(100.0, 98.9, 0.01));
        assert!(row(7.0, 7.0, 0.0));
        assert!(row(0.0, 0.0, 0.0));
        assert!(!row(0.0, 1.0, 0.0));
        assert!(!row(100.0, f64::NAN, 0.01));
    }
}
