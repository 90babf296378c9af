//! Keep Alive: an association whose host is silent for too long has ended (Base Specification,
//! section 3.9).

use flashyard_time::{Duration, Time};

/// Keep Alive Support: the granularity of the timer in units of 100 ms.
pub const KAS: u16 = 100;

const GRANULARITY_MS: u64 = KAS as u64 * 100;
/// What a discovery controller without a timer of its own gets, so that forgotten connections go
/// away.
const DISCOVERY_DEFAULT: Duration = Duration::from_secs(120);
/// For the way through the network: a host that counts traffic leaves up to a whole timeout between
/// two commands.
const SLACK: Duration = Duration::from_secs(1);
/// Looked at so late, the timer says nothing about the host: it was the target that did not run.
const LATE: Duration = Duration::from_secs(2);

/// The Keep Alive Timer of a controller. Any command restarts it (TBKAS).
#[derive(Clone, Debug)]
pub struct KeepAlive {
    timeout: Option<Duration>,
    restarted: Time,
}

/// The host was silent for too long: the association is to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expired;

impl KeepAlive {
    /// The timer of an I/O controller; `kato` in milliseconds as in Connect, 0 for none.
    pub fn new(kato: u32, now: Time) -> Self {
        Self {
            timeout: rounded(kato),
            restarted: now,
        }
    }

    /// The timer of a discovery controller: 0 is 120 s.
    pub fn for_discovery(kato: u32, now: Time) -> Self {
        Self {
            timeout: rounded(kato).or(Some(DISCOVERY_DEFAULT)),
            restarted: now,
        }
    }

    /// The timeout in milliseconds as the feature reports it, rounded; 0 for none.
    pub fn kato(&self) -> u32 {
        let ms = self.timeout.map_or(0, Duration::as_ms);
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// Sets the timeout, milliseconds; not 0.
    pub fn set(&mut self, kato: u32, now: Time) {
        self.timeout = rounded(kato);
        self.restarted = now;
    }

    /// A command has come.
    #[inline]
    pub fn on_traffic(&mut self, now: Time) {
        self.restarted = now;
    }

    /// When to call [`Self::poll`] next, if ever.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timeout.map(|timeout| self.restarted + timeout + SLACK)
    }

    /// Whether the timer has expired. To be asked after all that the host has sent was read: a
    /// target that comes late itself gives the host a little more time instead.
    pub fn poll(&mut self, now: Time) -> Option<Expired> {
        let deadline = self.next_wakeup()?;
        if now < deadline {
            return None;
        }
        if now.since(deadline) <= LATE {
            return Some(Expired);
        }
        // The next deadline is LATE from now. Near the origin of the clock the subtraction stops at
        // it, which only gives the host more time.
        let timeout = self.timeout?;
        self.restarted = now + LATE - timeout - SLACK;
        None
    }
}

/// Milliseconds rounded up to the granularity; `None` for 0.
fn rounded(kato: u32) -> Option<Duration> {
    (kato != 0)
        .then(|| Duration::from_ms(u64::from(kato).div_ceil(GRANULARITY_MS) * GRANULARITY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn timeouts_are_rounded_up() {
        for (kato, effective) in [
            (0, 0),
            (1, 10_000),
            (5_000, 10_000),
            (10_000, 10_000),
            (10_001, 20_000),
        ] {
            assert_eq!(KeepAlive::new(kato, at(0)).kato(), effective, "{kato}");
        }
        let longest = KeepAlive::new(u32::MAX, at(0)).kato();
        assert_eq!(longest, u32::MAX, "rounded up it does not fit the field");
        assert_eq!(KeepAlive::for_discovery(0, at(0)).kato(), 120_000);
        assert_eq!(KeepAlive::for_discovery(30_000, at(0)).kato(), 30_000);
    }

    #[test]
    fn traffic_restarts_the_timer() {
        let mut timer = KeepAlive::new(5_000, at(100));
        assert_eq!(timer.next_wakeup(), Some(at(111)));
        assert_eq!(timer.poll(at(110)), None);
        timer.on_traffic(at(110));
        assert_eq!(timer.poll(at(120)), None);
        assert_eq!(timer.poll(at(121)), Some(Expired));
    }

    #[test]
    fn without_a_timeout_nothing_expires() {
        let mut timer = KeepAlive::new(0, at(0));
        assert_eq!(timer.next_wakeup(), None);
        assert_eq!(timer.poll(Time::MAX), None);
    }

    #[test]
    fn a_target_that_did_not_run_does_not_blame_the_host() {
        let mut timer = KeepAlive::new(5_000, at(100));
        assert_eq!(timer.poll(at(150)), None, "39 s late");
        assert_eq!(timer.next_wakeup(), Some(at(152)));
        assert_eq!(timer.poll(at(152)), Some(Expired));
    }
}
