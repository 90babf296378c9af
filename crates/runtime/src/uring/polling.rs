//! Decides whether a core that has run out of work polls or sleeps at once. A poll that finds
//! something saves a sleep and the time the kernel takes to wake a sleeper; a poll that finds
//! nothing wastes processor time. So the core polls where the next event usually comes within a
//! poll. It keeps two estimates for that: one with an I/O at a device, whose end does not depend on
//! the hosts, and one without, when only hosts can bring something.
//!
//! Each kind of waiting has a budget of time for polls in vain. Such a poll is paid from it; a wait
//! that ends within the length of a poll, polled or not, adds to it. A small share of all time is
//! added, too: after a pause the core polls again, and learns.
//!
//! Hosts have to be quick nearly always, since a load with pauses has quick moments, too, such as
//! the data of a write by R2T. Devices have to be quick more often than not, and are polled only
//! while hosts are quick: where the next command takes long anyway, saving a few microseconds for
//! this one gains nothing.

use flashyard_time::{Duration, Time};

/// So many short waits for hosts earn one poll in vain.
const SHORT_FOR_HOSTS: u64 = 8;
/// So many short waits for devices do.
const SHORT_FOR_DEVICES: u64 = 1;
/// Of all time, one part in so many goes to polls in vain.
const SHARE: u64 = 256;
/// A budget holds so many polls in vain: what a busy core misses in a row before it sleeps.
const MOST: u64 = 8;

/// What a core without work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The end of an I/O at a device, real or emulated; and of course for hosts as well.
    Device,
    /// For hosts, and for other cores.
    Hosts,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Polling {
    /// The longest poll.
    poll: Duration,
    device: Budget,
    hosts: Budget,
    wait: Option<Wait>,
}

/// The time in which the core has had nothing to do.
#[derive(Debug)]
struct Wait {
    /// Since when the core has been at it.
    began: Time,
    /// What was submitted before has been handed over, which takes its time.
    handed_over: bool,
    awaited: Awaited,
    polls: bool,
    /// Whether the poll is paid for if it finds nothing.
    paid: bool,
}

impl Polling {
    /// For polls of at most `poll`.
    pub(super) fn new(poll: Duration, now: Time) -> Self {
        Self {
            poll,
            device: Budget::full(poll, poll / SHORT_FOR_DEVICES, now),
            hosts: Budget::full(poll, poll / SHORT_FOR_HOSTS, now),
            wait: None,
        }
    }

    /// Whether a core without work polls at `now`. `up_from`: when it has to be awake in any case.
    pub(super) fn polls(&mut self, now: Time, awaited: Awaited, up_from: Time) -> bool {
        if now >= up_from {
            return true;
        }
        let wait = match self.wait.take() {
            Some(wait) if wait.handed_over => wait,
            Some(wait) => Wait {
                began: now,
                handed_over: true,
                ..wait
            },
            None => self.begin(now, awaited, up_from),
        };
        let polls = wait.polls && now.since(wait.began) < self.poll;
        self.wait = Some(wait);
        polls
    }

    /// There was work at `now`. `from_outside`: for something came that was waited for.
    pub(super) fn worked(&mut self, now: Time, from_outside: bool) {
        let Some(wait) = self.wait.take() else { return };
        let poll = self.poll;
        let short = now.since(wait.began) <= poll;
        let budget = self.budget(wait.awaited);
        if short && from_outside {
            budget.earn(budget.earned);
        } else if !short && wait.paid {
            budget.pay(poll);
        }
    }

    fn begin(&mut self, now: Time, awaited: Awaited, up_from: Time) -> Wait {
        let poll = self.poll;
        let near = up_from <= now + poll;
        let quick_hosts = self.hosts.holds(poll, now);
        let quick = awaited == Awaited::Hosts || self.device.holds(poll, now);
        let paid = !near && quick && quick_hosts;
        Wait {
            began: now,
            handed_over: false,
            awaited,
            polls: near || paid,
            paid,
        }
    }

    fn budget(&mut self, awaited: Awaited) -> &mut Budget {
        match awaited {
            Awaited::Device => &mut self.device,
            Awaited::Hosts => &mut self.hosts,
        }
    }
}

/// Time for polls in vain.
#[derive(Debug)]
struct Budget {
    left: Duration,
    most: Duration,
    /// What a short wait adds.
    earned: Duration,
    /// Until when its share of the time is in it.
    shared: Time,
}

impl Budget {
    fn full(poll: Duration, earned: Duration, now: Time) -> Self {
        let most = poll * MOST;
        Self {
            left: most,
            most,
            earned,
            shared: now,
        }
    }

    fn earn(&mut self, time: Duration) {
        self.left = (self.left + time).min(self.most);
    }

    fn pay(&mut self, time: Duration) {
        self.left = self.left - time;
    }

    /// Whether `time` is in it, with what has been added by `now`.
    fn holds(&mut self, time: Duration, now: Time) -> bool {
        let share = now.since(self.shared) / SHARE;
        self.shared += share * SHARE;
        self.earn(share);
        self.left >= time
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const POLL: Duration = Duration::from_us(60);

    /// What became of a load.
    #[derive(Debug, Default)]
    struct Tally {
        waits: u64,
        polled: u64,
        /// Waits for which the core was awake when they ended.
        caught: u64,
        in_vain: Duration,
        lasted: Duration,
    }

    impl Tally {
        /// Part of the time that went to polls in vain, in thousandths.
        fn waste(&self) -> u64 {
            self.in_vain.as_ns() * 1000 / self.lasted.as_ns()
        }
    }

    /// A core whose waits are given by their lengths.
    struct Bench {
        polling: Polling,
        now: Time,
    }

    impl Bench {
        /// A core that has been up for long, and has nothing left for polls in vain.
        fn spent() -> Self {
            let now = Time::from_ns(1 << 40);
            let mut bench = Self {
                polling: Polling::new(POLL, now),
                now,
            };
            for _ in 0..100 {
                bench.wait(Awaited::Hosts, Duration::from_us(61), true);
                bench.wait(Awaited::Device, Duration::from_us(61), true);
            }
            bench
        }

        /// One wait with nothing else ahead; how long the core polled.
        fn wait(&mut self, awaited: Awaited, gap: Duration, from_outside: bool) -> Duration {
            let began = self.now;
            let polls = self.polling.polls(began, awaited, Time::MAX);
            assert_eq!(self.polling.polls(began, awaited, Time::MAX), polls);
            if polls {
                assert!(self.polling.polls(
                    began + POLL - Duration::from_ns(1),
                    awaited,
                    Time::MAX
                ));
            }
            assert!(!self.polling.polls(began + POLL, awaited, Time::MAX));
            self.now += gap;
            self.polling.worked(self.now, from_outside);
            if polls { gap.min(POLL) } else { Duration::ZERO }
        }

        /// Waits for hosts, of the lengths that `gap` gives in microseconds.
        fn run(&mut self, waits: u64, mut gap: impl FnMut(u64) -> u64) -> Tally {
            let mut tally = Tally::default();
            for number in 0..waits {
                let gap = Duration::from_us(gap(number));
                let polled = self.wait(Awaited::Hosts, gap, true);
                tally.waits += 1;
                tally.polled += u64::from(polled > Duration::ZERO);
                tally.caught += u64::from(polled == gap);
                if polled < gap {
                    tally.in_vain += polled;
                }
                tally.lasted += gap;
            }
            tally
        }
    }

    #[test]
    fn where_every_wait_is_short_the_core_polls_always() {
        for gap in [1, 10, 40, 60] {
            let tally = Bench::spent().run(20_000, |_| gap);
            assert!(tally.caught > 19_970, "{gap} us: {tally:?}");
        }
    }

    #[test]
    fn a_paced_load_costs_next_to_no_polls() {
        for gap in [61, 95, 300, 990, 10_000] {
            let tally = Bench::spent().run(20_000, |_| gap);
            assert!(tally.waste() <= 4, "{gap} us: {tally:?}");
            assert_eq!(tally.caught, 0);
        }
    }

    #[test]
    fn a_full_load_after_a_paced_one_is_polled_for_within_twenty_waits() {
        let mut bench = Bench::spent();
        bench.run(1000, |_| 1000);
        let tally = bench.run(20, |_| 15);
        assert!(tally.caught > 0, "{tally:?}");
        let tally = bench.run(1000, |_| 15);
        assert_eq!(tally.caught, 1000);
    }

    #[test]
    fn after_a_pause_the_core_polls_at_once() {
        let mut bench = Bench::spent();
        bench.run(1, |_| 500_000);
        let tally = bench.run(8, |_| 15);
        assert_eq!(tally.caught, 8);
    }

    #[test]
    fn a_busy_core_bears_eight_long_waits_in_a_row_and_one_in_twenty_for_ever() {
        let mut bench = Bench::spent();
        bench.run(200, |_| 10);
        let tally = bench.run(8, |_| 200);
        assert_eq!(tally.polled, 8);
        let mut bench = Bench::spent();
        bench.run(200, |_| 10);
        let tally = bench.run(20_000, |number| if number % 20 == 19 { 5000 } else { 10 });
        assert_eq!(tally.polled, 20_000);
    }

    #[test]
    fn arrivals_at_random_are_polled_for_where_they_are_dense() {
        // Mean gap in us; the least part of them that is met by a poll, in percent; the most that
        // goes to polls in vain, in thousandths of the time.
        for (mean, least, most) in [(10, 99, 20), (15, 95, 80), (100, 0, 45), (1000, 0, 5)] {
            let mut rng = Rng::new(mean);
            let gaps = |_| {
                let uniform = (rng.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
                1 + (-uniform.ln() * mean as f64) as u64
            };
            let tally = Bench::spent().run(50_000, gaps);
            let polled = tally.polled * 100 / tally.waits;
            assert!(polled >= least, "{mean} us: {tally:?}");
            assert!(tally.waste() <= most, "{mean} us: {tally:?}");
        }
    }

    /// A load of one I/O after the other: how often the core polls for the device, and how often
    /// for the next command.
    fn one_by_one(mut device: impl FnMut(u64) -> u64, host: u64) -> (u64, u64) {
        let mut bench = Bench::spent();
        let (mut for_device, mut for_host) = (0, 0);
        for number in 0..5000 {
            let gap = Duration::from_us(device(number));
            let polled = bench.wait(Awaited::Device, gap, true);
            for_device += u64::from(polled > Duration::ZERO);
            let polled = bench.wait(Awaited::Hosts, Duration::from_us(host), true);
            for_host += u64::from(polled > Duration::ZERO);
        }
        (for_device, for_host)
    }

    #[test]
    fn devices_and_hosts_are_polled_for_where_each_is_quick_and_none_where_hosts_are_not() {
        let (device, host) = one_by_one(|_| 40, 15);
        assert!(device > 4950 && host > 4950, "both: {device} {host}");
        let (device, host) = one_by_one(|_| 150, 15);
        assert!(device < 100 && host > 4950, "hosts: {device} {host}");
        let (device, host) = one_by_one(|_| 40, 900);
        assert!(device < 400 && host < 400, "a pause: {device} {host}");
    }

    #[test]
    fn a_device_is_polled_for_if_it_is_quick_more_often_than_not() {
        let (device, _) = one_by_one(|number| if number % 5 < 3 { 45 } else { 80 }, 15);
        assert!(device > 4950, "three of five: {device}");
        let (device, _) = one_by_one(|number| if number % 5 < 2 { 45 } else { 80 }, 15);
        assert!(device < 4000, "two of five: {device}");
    }

    #[test]
    fn while_a_device_always_has_io_hosts_that_no_io_waits_for_do_not_matter() {
        let mut bench = Bench::spent();
        let mut polled = 0;
        for _ in 0..20_000 {
            let spent = bench.wait(Awaited::Device, Duration::from_us(20), true);
            polled += u64::from(spent > Duration::ZERO);
        }
        assert!(polled > 19_000, "{polled}");
    }

    #[test]
    fn the_cores_own_work_earns_no_polls() {
        let mut bench = Bench::spent();
        let mut polled = Duration::ZERO;
        let began = bench.now;
        for number in 0..10_000 {
            let gap = if number % 2 == 0 { 5 } else { 995 };
            polled += bench.wait(Awaited::Hosts, Duration::from_us(gap), false);
        }
        let lasted = bench.now.since(began);
        assert!(polled * 100 < lasted, "{polled} of {lasted}");
    }

    #[test]
    fn a_precise_timer_keeps_the_core_awake_when_it_is_near_and_costs_no_budget() {
        let mut bench = Bench::spent();
        for _ in 0..1000 {
            let began = bench.now;
            let up_from = began + Duration::from_us(40);
            for us in [0, 39, 40, 100] {
                let now = began + Duration::from_us(us);
                assert!(bench.polling.polls(now, Awaited::Device, up_from));
            }
            bench.now = began + Duration::from_us(101);
            bench.polling.worked(bench.now, false);
        }
        assert!(bench.wait(Awaited::Device, POLL, true) > Duration::ZERO);
        let far = bench.now + Duration::from_ms(1);
        let mut bench = Bench::spent();
        assert!(!bench.polling.polls(bench.now, Awaited::Device, far));
        assert!(bench.polling.polls(far, Awaited::Device, far));
    }

    #[test]
    fn a_poll_begins_when_everything_has_been_handed_over() {
        let mut polling = Polling::new(POLL, Time::ZERO);
        let at = |us| Time::ZERO + Duration::from_us(us);
        assert!(polling.polls(at(0), Awaited::Device, Time::MAX));
        assert!(polling.polls(at(25), Awaited::Device, Time::MAX));
        assert!(polling.polls(at(84), Awaited::Device, Time::MAX));
        assert!(!polling.polls(at(85), Awaited::Device, Time::MAX));
    }

    #[test]
    fn without_a_poll_the_core_never_polls_and_with_the_longest_it_always_does() {
        let mut never = Polling::new(Duration::ZERO, Time::ZERO);
        let mut always = Polling::new(Duration::MAX, Time::ZERO);
        for ms in 0..10_000 {
            let now = Time::ZERO + Duration::from_ms(ms);
            assert!(!never.polls(now, Awaited::Hosts, Time::MAX));
            assert!(always.polls(now, Awaited::Hosts, Time::MAX));
            if ms % 3 == 0 {
                never.worked(now, true);
                always.worked(now, true);
            }
        }
    }
}
