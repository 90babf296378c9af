//! The drives and spans that the tests share.

use flashyard_time::Duration;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_flash::workload::{Tally, Worker, closed_loop};

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

pub(super) const FRAGMENTED: Condition = Condition::Fragmented(100);

/// What the tests share.
pub(super) struct Bench {
    pub(super) capacity: u64,
    /// A span for reads, and one for writes that collect.
    pub(super) short: Duration,
    pub(super) long: Duration,
    pub(super) full: bool,
    pub(super) profile: Profile,
}

impl Bench {
    pub(super) fn new(extent: Extent) -> Self {
        let full = extent == Extent::Full;
        Self {
            capacity: if full { 8 << 30 } else { 1 << 30 },
            short: Duration::from_ms(if full { 1000 } else { 40 }),
            long: Duration::from_ms(if full { 10_000 } else { 1500 }),
            full,
            profile: shipped("dct983"),
        }
    }

    pub(super) fn device(&self, profile: &Profile, condition: Condition) -> Device {
        Device::in_condition(profile, self.capacity, 1, condition)
            .expect("the capacity suits every profile that ships")
    }

    /// The same with drives of another capacity.
    pub(super) fn with_capacity(&self, capacity: u64) -> Self {
        Self {
            capacity,
            profile: self.profile.clone(),
            ..*self
        }
    }

    /// The same with drives that have so much spare flash, in millionths of the capacity.
    pub(super) fn with_spare(&self, spare_ppm: u64) -> Self {
        Self {
            profile: Profile {
                spare_ppm,
                ..self.profile.clone()
            },
            ..*self
        }
    }

    /// What one worker gets of a drive.
    pub(super) fn load(
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

/// A profile that ships with the program.
pub(super) fn shipped(name: &str) -> Profile {
    Profile::named(name).expect("it ships")
}
