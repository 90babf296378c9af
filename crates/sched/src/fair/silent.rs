//! Kinds of which the device gives nothing back for a while, though it has some: others do not wait
//! for them, and they are not made up for what they missed.

use super::costs::Kind;

/// A kind is silent after so many ticks and so many of its mean latencies: as many as are with the
/// device come back within one.
const TICKS: u64 = 2;
const LATENCIES: u64 = 2;
/// Part of the mean that a tick forgets.
const FADE: u64 = 8;

/// Which kinds are silent.
#[derive(Debug, Default)]
pub(super) struct Silent {
    kinds: [Answers; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// When the last tick with an answer ended, or with nothing at the device.
    heard: u64,
    /// Sums over ticks, fading.
    ios: u64,
    latency: u64,
    silent: bool,
}

impl Answers {
    /// For how long a kind may give nothing back.
    fn patience(&self, tick: u64) -> u64 {
        (TICKS * tick).max(LATENCIES * (self.latency / self.ios.max(1)))
    }
}

impl Silent {
    /// A tick of some length has ended; what of each kind is with the device, and has come back in
    /// it: the number and the sum of latencies. Says which kinds have just come back.
    pub(super) fn tick(
        &mut self,
        now: u64,
        tick: u64,
        in_flight: [u32; 2],
        answers: [(u64, u64); 2],
    ) -> [bool; 2] {
        let mut back = [false; 2];
        for (kind, back) in back.iter_mut().enumerate() {
            let own = &mut self.kinds[kind];
            let (ios, latency) = answers[kind];
            if ios > 0 {
                own.ios = own.ios - own.ios / FADE + ios;
                own.latency = own.latency - own.latency / FADE + latency;
            }
            if ios > 0 || in_flight[kind] == 0 {
                own.heard = now;
            }
            let silent = now > own.heard + own.patience(tick);
            *back = own.silent && !silent;
            own.silent = silent;
        }
        back
    }

    /// When a kind that is not silent is, if nothing comes back of it.
    #[inline]
    pub(super) fn due(&self, kind: Kind, tick: u64) -> u64 {
        let own = &self.kinds[kind as usize];
        match own.silent {
            true => u64::MAX,
            false => own.heard + own.patience(tick) + 1,
        }
    }

    #[inline]
    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kinds[kind as usize].silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 5_000_000;

    #[test]
    fn a_kind_is_silent_that_gives_nothing_back_for_as_long_as_it_takes_twice() {
        // Their mean latency, and after how many ticks without an answer.
        for (latency, ticks) in [(100_000, 3), (6_000_000, 3), (22_000_000, 9)] {
            let mut silent = Silent::default();
            let mut now = 0;
            let mut tick = |in_flight, writes: u64| {
                now += TICK;
                let back = silent.tick(
                    now,
                    TICK,
                    [1, in_flight],
                    [(9, 9), (writes, writes * latency)],
                );
                assert!(!silent.is(Kind::Read) && !back[0]);
                (silent.is(Kind::Write), back[1])
            };
            (0..20).for_each(|_| assert_eq!(tick(4, 8), (false, false)));
            (1..ticks).for_each(|_| assert_eq!(tick(4, 0), (false, false), "{latency}"));
            assert_eq!(tick(4, 0), (true, false), "{latency}");
            assert_eq!(tick(4, 0), (true, false));
            assert_eq!(tick(4, 1), (false, true), "it is back");
            assert_eq!(tick(4, 1), (false, false));
            // With nothing at the device there is nothing to be heard.
            (0..100).for_each(|_| assert_eq!(tick(0, 0), (false, false)));
        }
    }
}
