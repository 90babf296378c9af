//! Rate pacing: one target rate that follows congestion, and a bucket of tokens each for reads and
//! writes.

use flashyard_time::{Duration, Time};

use super::Tuning;
use super::cost::ONE;
use super::monitor::Load;

/// Whose bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Write,
}

const SECOND: u64 = 1_000_000_000;

/// The target rate and its two buckets.
///
/// Refill is divided as the cost of a write says; what one bucket cannot hold goes to the other, so
/// that reads alone or writes alone get all of the rate.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Bytes per second.
    rate: u64,
    lowest: u64,
    highest: u64,
    growth: u64,
    capacity: i64,
    /// Bytes; less than none after an I/O longer than a bucket.
    tokens: [i64; 2],
    refilled: Time,
    /// What was too little for a byte: of the rate, in billionths, and of the reads' part.
    rest: u64,
    part: u64,
    completions: CompletionRate,
}

impl Pace {
    pub(super) fn new(tuning: &Tuning, raw_completion_rate: bool) -> Self {
        let capacity = i64::try_from(tuning.bucket_bytes).unwrap_or(i64::MAX);
        Self {
            rate: tuning.rate_initial,
            lowest: tuning.rate_lowest.max(1),
            highest: tuning.rate_highest,
            growth: tuning.growth,
            capacity,
            tokens: [capacity; 2],
            refilled: Time::ZERO,
            rest: 0,
            part: 0,
            completions: CompletionRate::new(tuning.completion_window, raw_completion_rate),
        }
    }

    /// The target rate in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that reads or writes may take now.
    pub(super) fn tokens(&self, side: Side) -> i64 {
        self.tokens[side as usize]
    }

    /// Adds what the rate gives since the last time, divided at this cost of writes.
    pub(super) fn refill(&mut self, now: Time, write_cost: u64) {
        let span = now.since(self.refilled).as_ns();
        self.refilled = self.refilled.max(now);
        // A product that does not fit is more than both buckets hold, anyway.
        let gained = self.rate.saturating_mul(span).saturating_add(self.rest);
        let bytes = gained / SECOND;
        self.rest = gained % SECOND;
        let parts = bytes.saturating_mul(write_cost).saturating_add(self.part);
        let reads = (parts / (write_cost + ONE)).min(bytes);
        self.part = parts % (write_cost + ONE);
        self.pour(reads.cast_signed(), (bytes - reads).cast_signed());
    }

    fn pour(&mut self, reads: i64, writes: i64) {
        let [read, write] = &mut self.tokens;
        let cap = self.capacity;
        *read = read.saturating_add(reads);
        *write = write
            .saturating_add(writes)
            .saturating_add((*read - cap).max(0));
        *read = read.saturating_add((*write - cap).max(0)).min(cap);
        *write = (*write).min(cap);
    }

    /// Takes tokens for an I/O, if there are enough: as many as it has bytes, or a full bucket.
    pub(super) fn take(&mut self, side: Side, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let tokens = &mut self.tokens[side as usize];
        let enough = *tokens >= bytes.min(self.capacity);
        if enough {
            *tokens -= bytes;
        }
        enough
    }

    /// How long it takes at the present rate and cost until there are enough tokens for an I/O.
    pub(super) fn wait(&self, side: Side, bytes: u64, write_cost: u64) -> Duration {
        let goal = i64::try_from(bytes).unwrap_or(i64::MAX).min(self.capacity);
        let lacking = goal.saturating_sub(self.tokens[side as usize]).max(0) as u64;
        let reads = (self.rate.saturating_mul(write_cost) / (write_cost + ONE)).max(1);
        let writes = self.rate.saturating_sub(reads).max(1);
        let (own, other) = match side {
            Side::Read => (reads, writes),
            Side::Write => (writes, reads),
        };
        let room = (self.capacity - self.tokens[1 - side as usize]).max(0) as u64;
        let alone = lacking.saturating_mul(SECOND) / own;
        // Once the other bucket is full, all of the rate comes here.
        let full = room.saturating_mul(SECOND) / other;
        let ns = if alone <= full {
            alone
        } else {
            let until_full = own.saturating_mul(full) / SECOND;
            full + lacking.saturating_sub(until_full).saturating_mul(SECOND) / self.rate
        };
        Duration::from_ns(ns + 1)
    }

    /// An I/O was given to the device.
    pub(super) fn dispatched(&mut self, now: Time) {
        self.completions.dispatched(now);
    }

    /// An I/O has ended.
    pub(super) fn ended(&mut self, now: Time, bytes: u64) {
        self.completions.ended(now, bytes);
    }

    /// Moves the target rate after `bytes` were done under this load.
    pub(super) fn steer(&mut self, load: Load, bytes: u64) {
        let rate = match load {
            Load::Overloaded => {
                self.tokens = self.tokens.map(|tokens| tokens.min(0));
                let done = self.completions.rate().unwrap_or(self.rate);
                self.rate.min(done).saturating_sub(bytes)
            }
            Load::Congested => self.rate.saturating_sub(bytes),
            Load::Avoiding => self.rate.saturating_add(bytes),
            Load::Underused => self.rate.saturating_add(bytes.saturating_mul(self.growth)),
        };
        self.rate = rate.max(self.lowest).min(self.highest);
    }
}

/// What the device completes, in windows of so many bytes.
#[derive(Clone, Debug)]
struct CompletionRate {
    window: u64,
    bytes: u64,
    /// Time of the window in which the device had something to do.
    busy: Duration,
    /// Up to when time was counted.
    mark: Time,
    in_flight: u32,
    rate: Option<u64>,
    /// The released code: nothing before the first window, which begins with the clock; idle time
    /// counts.
    raw: bool,
}

impl CompletionRate {
    fn new(window: u64, raw: bool) -> Self {
        Self {
            window,
            bytes: 0,
            busy: Duration::ZERO,
            mark: Time::ZERO,
            in_flight: 0,
            rate: raw.then_some(0),
            raw,
        }
    }

    fn dispatched(&mut self, now: Time) {
        if self.in_flight == 0 && !self.raw {
            self.mark = now;
        }
        self.in_flight += 1;
    }

    fn ended(&mut self, now: Time, bytes: u64) {
        assert!(self.in_flight > 0, "only a dispatched I/O completes");
        self.in_flight -= 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.busy += now.since(self.mark);
        self.mark = now;
        if self.bytes > self.window {
            let done = u128::from(self.bytes) * u128::from(SECOND);
            let rate = done / u128::from(self.busy.as_ns().max(1));
            self.rate = Some(u64::try_from(rate).unwrap_or(u64::MAX));
            self.bytes = 0;
            self.busy = Duration::ZERO;
        }
    }

    /// Bytes per second of the last whole window.
    fn rate(&self) -> Option<u64> {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const NINE: u64 = 9 * ONE;

    fn pace() -> Pace {
        Pace::new(&Tuning::default(), false)
    }

    fn drained() -> Pace {
        let mut pace = pace();
        assert!(pace.take(Side::Read, 256 * KIB) && pace.take(Side::Write, 256 * KIB));
        pace
    }

    #[test]
    fn refill_is_divided_by_the_cost_of_writes() {
        for (cost, read_parts) in [(NINE, 9), (ONE, 5)] {
            let mut pace = drained();
            // 1000 MiB/s for 100 us, in small steps
            for step in 1..=1000 {
                pace.refill(Time::from_ns(step * 100), cost);
            }
            assert_eq!(pace.tokens(Side::Read), 104_857 * read_parts / 10);
            assert!((pace.tokens(Side::Write) - 104_857 * (10 - read_parts) / 10).abs() <= 1);
        }
    }

    #[test]
    fn what_one_bucket_cannot_hold_goes_to_the_other() {
        let mut pace = pace();
        assert!(pace.take(Side::Write, 256 * KIB));
        pace.refill(Time::from_ns(100_000), NINE);
        assert_eq!(pace.tokens(Side::Write), 104_857);
        assert_eq!(pace.tokens(Side::Read), 256 * 1024);
        pace.refill(Time::MAX, NINE);
        assert_eq!(pace.tokens(Side::Write), 256 * 1024);
    }

    #[test]
    fn waiting_as_long_as_said_is_enough_and_not_much_too_long() {
        for side in [Side::Read, Side::Write] {
            for (reads, writes) in [(0, 0), (256, 0), (0, 256), (250, 3)] {
                for bytes in [4 * KIB, 128 * KIB, 1024 * KIB] {
                    let mut early = pace();
                    assert!(early.take(Side::Read, (256 - reads) * KIB));
                    assert!(early.take(Side::Write, (256 - writes) * KIB));
                    let mut late = early.clone();
                    let wait = early.wait(side, bytes, NINE);
                    late.refill(Time::ZERO + wait + Duration::from_ns(10), NINE);
                    assert!(late.take(side, bytes), "{side:?} {reads} {writes} {bytes}");
                    if wait > Duration::from_us(2) {
                        early.refill(Time::ZERO + wait - Duration::from_us(1), NINE);
                        assert!(
                            !early.take(side, bytes),
                            "{side:?} {reads} {writes} {bytes}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_io_longer_than_a_bucket_leaves_a_debt() {
        let mut pace = pace();
        assert!(pace.take(Side::Read, 1024 * KIB));
        assert_eq!(pace.tokens(Side::Read), -768 * 1024);
        assert!(!pace.take(Side::Read, 0));
    }

    #[test]
    fn the_rate_follows_the_load_within_its_bounds() {
        const MIB: u64 = 1 << 20;
        for (load, bytes, rate) in [
            (Load::Congested, MIB, 999 * MIB),
            (Load::Avoiding, MIB, 1001 * MIB),
            (Load::Underused, MIB, 1008 * MIB),
            (Load::Overloaded, MIB, 999 * MIB),
            (Load::Congested, u64::MAX, 50 * MIB),
            (Load::Underused, u64::MAX, 4096 * MIB),
        ] {
            let mut pace = pace();
            pace.steer(load, bytes);
            assert_eq!(pace.rate(), rate, "{load:?}");
        }
    }

    /// A second of rest, then 17 MiB in 100 ms.
    fn after_rest(raw: bool) -> Pace {
        let mut pace = Pace::new(&Tuning::default(), raw);
        let start = Time::ZERO + Duration::from_secs(1);
        for step in 0..17 {
            let at = start + Duration::from_ms(100).scale(step, 16);
            pace.dispatched(at);
            if step > 0 {
                pace.ended(at, 17 << 16);
            }
        }
        pace.ended(start + Duration::from_ms(100), 17 << 16);
        pace
    }

    #[test]
    fn overload_falls_back_to_what_the_busy_device_completes() {
        for (raw, least, most) in [(false, 169 << 20, 171 << 20), (true, 50 << 20, 50 << 20)] {
            let mut pace = after_rest(raw);
            pace.steer(Load::Overloaded, 4096);
            assert!(
                (least..=most).contains(&pace.rate()),
                "{raw}: {}",
                pace.rate()
            );
            assert_eq!(pace.tokens(Side::Read), 0);
        }
    }

    #[test]
    fn overload_before_the_first_window_is_harmless_but_in_the_released_code() {
        for (raw, rate) in [(false, (1000 << 20) - 4096), (true, 50 << 20)] {
            let mut pace = Pace::new(&Tuning::default(), raw);
            pace.steer(Load::Overloaded, 4096);
            assert_eq!(pace.rate(), rate);
        }
    }
}
