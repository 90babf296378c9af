//! Kinds of which the device gives nothing back for a while, though it has some: others do not wait
//! for them, and they are not made up for what they missed.

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
            let patience = LATENCIES * (own.latency / own.ios.max(1));
            let silent = now - own.heard > (TICKS * tick).max(patience);
            *back = own.silent && !silent;
            own.silent = silent;
        }
        back
    }

    #[inline]
    pub(super) fn is(&self, kind: super::costs::Kind) -> bool {
        self.kinds[kind as usize].silent
    }
}
