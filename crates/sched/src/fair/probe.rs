//! What a probe has seen, tick by tick, and whether that is a rate that lasts.

use super::costs::{Kind, SIZES};

/// The rate of reads lasts when three ticks in a row differ by no more than so many parts of a
/// hundred.
const READS_STEADY_PERCENT: u64 = 6;
/// The rate of writes lasts when the last four ticks differ from the four before by no more: what a
/// drive grants moves for a tenth of a second after the load has changed.
const WRITES_STEADY_PERCENT: u64 = 3;
/// Where the rate differs more, because there are few I/Os in a tick, the mean of eight ticks is
/// taken after so many.
const READS_PATIENCE: u32 = 12;
const WRITES_PATIENCE: u32 = 36;
/// A rate that is what the cost says, in millionths.
const EXACT: u64 = 1_000_000;
/// Ticks in a row that must tell the same.
pub(super) const STEADY: u32 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    pub(super) ticks: u32,
    /// Ticks in a row in which the device was not full.
    pub(super) idle: u32,
    /// What was charged for each size of the kind.
    pub(super) charged: [u64; SIZES],
    /// Charged time over real time of the last ticks, in millionths.
    pub(super) last: [u64; 8],
}

impl Probe {
    /// Whether the rate is taken though it differs, or the probe given up.
    pub(super) fn is_late(&self, kind: Kind) -> bool {
        let patience = match kind {
            Kind::Read => READS_PATIENCE,
            Kind::Write => WRITES_PATIENCE,
        };
        self.ticks >= patience
    }

    /// Whether the rate is one that lasts, and the rate: charged time over real time, in
    /// millionths. One that is as it was `known` to be needs no further proof.
    pub(super) fn lasts(&self, kind: Kind, known: bool) -> (bool, u64) {
        let mean = |ticks: &[u64]| ticks.iter().sum::<u64>() / ticks.len() as u64;
        let last = mean(&self.last[4..]);
        let as_known = last.abs_diff(EXACT) * 100 <= EXACT * WRITES_STEADY_PERCENT;
        if known && as_known && self.ticks > STEADY {
            return (true, last);
        }
        match kind {
            Kind::Read => {
                let last = &self.last[5..];
                let least = last.iter().fold(u64::MAX, |least, &tick| least.min(tick));
                let most = last.iter().fold(0, |most, &tick| most.max(tick));
                let steady = (most - least) * 100 <= most * READS_STEADY_PERCENT;
                if self.is_late(kind) {
                    (true, mean(&self.last))
                } else {
                    (self.ticks > 3 && steady, mean(last))
                }
            }
            Kind::Write => {
                let before = mean(&self.last[..4]);
                let steady = before.abs_diff(last) * 100 <= last * WRITES_STEADY_PERCENT;
                (self.ticks > 8 && steady || self.is_late(kind), last)
            }
        }
    }
}
