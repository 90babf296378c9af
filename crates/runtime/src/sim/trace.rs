//! The trace of a world as one number: every event is mixed in, so that two runs with the same
//! digest did the same things in the same order.

use flashyard_time::Time;

/// A running digest.
#[derive(Debug)]
pub(super) struct Trace {
    digest: u64,
    events: u64,
}

/// What happened. The numbers are part of the digest.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Mark {
    Turn = 1,
    Pick,
    Submit,
    Reap,
    Parcel,
    Connect,
    Answer,
    Close,
    Fault,
    DiskStart,
    DiskEnd,
    PowerCut,
    Random,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self {
            digest: 0x9E37_79B9_7F4A_7C15,
            events: 0,
        }
    }

    /// Mixes an event in: when, what, which, how much.
    pub(super) fn note(&mut self, now: Time, mark: Mark, which: u64, size: u64) {
        self.events += 1;
        for word in [now.as_ns(), mark as u64, which, size] {
            self.digest = mix(self.digest ^ word);
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

/// A bijection in which every bit of the input changes half of the output (the finalizer of
/// splitmix64).
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}
