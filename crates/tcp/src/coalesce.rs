//! When the answers that have gathered on a connection go out. Pure: the caller gives the time.
//!
//! All answers of one turn of the core go out together in any case. Beyond that answers are held
//! back until a window of them is full, which costs the host fewer packets and wake-ups; how large
//! it is the host may say, and if it says nothing it is large only on a deep queue. What is held
//! goes at once when one of these holds: an answer of a latency-sensitive command, a failure or
//! anything that is not an answer is among it; nothing else of the queue is in flight, so nothing
//! more would come; a quarter of the queue is held, since with flow control the host gets its
//! places back only with answers; it has become large; or old. Answers are gathered in the order in
//! which they end, so none waits for a particular other one.

use flashyard_time::{Duration, Time};

/// Nothing is held longer.
const MOST_AGE: Duration = Duration::from_us(50);
/// Nor when it is so much.
const MOST_BYTES: usize = 64 << 10;
/// Most answers that the adaptive rule holds. A send of its own costs some two I/Os, so eight save
/// most of that; waiting for more costs a queue of 128 up to a fifth
/// (docs/experiments/priority-window.md).
const MOST_ADAPTIVE: u16 = 8;

/// How many answers go to a host at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalescing {
    /// All of a turn, and more the deeper the queue is.
    #[default]
    Adaptive,
    /// This many, 1 to 128. With 1 each goes in a packet of its own, as by a target that does not
    /// coalesce.
    Window(u8),
}

/// What is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It goes with the end of the turn.
    AtOnce,
    /// An answer that may wait, at this time; so many others of its queue are in flight.
    Answer { now: Time, in_flight: u16 },
}

/// When to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// There is nothing.
    Never,
    /// With the end of this turn.
    Now,
    /// Not before, unless more comes.
    At(Time),
}

/// What has gathered since the last time that something was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coalescer {
    rule: Coalescing,
    /// A quarter of the queue.
    most: u16,
    since: Option<Time>,
    answers: u16,
    bytes: usize,
    due: bool,
}

impl Default for Coalescer {
    /// Nothing, on a connection that is no queue yet.
    fn default() -> Self {
        Self {
            rule: Coalescing::Adaptive,
            most: 1,
            since: None,
            answers: 0,
            bytes: 0,
            due: false,
        }
    }
}

impl Coalescer {
    /// From now on by this rule, on a queue of so many entries.
    pub(crate) fn set_rule(&mut self, rule: Coalescing, entries: u16) {
        self.rule = rule;
        self.most = (entries / 4).max(1);
    }

    /// Whether each answer is sent alone.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.rule == Coalescing::Window(1)
    }

    /// Something has come. True if the sender has to look again: it is due, or the first.
    #[inline]
    pub(crate) fn push(&mut self, what: Pushed, bytes: usize) -> bool {
        let first = self.since.is_none();
        self.bytes += bytes;
        let due = match what {
            Pushed::AtOnce => {
                self.since.get_or_insert(Time::ZERO);
                true
            }
            Pushed::Answer { now, in_flight } => {
                self.since.get_or_insert(now);
                self.answers += 1;
                in_flight == 0 || self.answers >= self.window(in_flight) || self.bytes >= MOST_BYTES
            }
        };
        self.due |= due;
        first || due
    }

    /// When what has gathered is to be sent.
    #[inline]
    pub(crate) fn due(&self, now: Time) -> Due {
        match self.since {
            None => Due::Never,
            Some(_) if self.due => Due::Now,
            Some(since) if now.since(since) >= MOST_AGE => Due::Now,
            Some(since) => Due::At(since + MOST_AGE),
        }
    }

    /// Everything has been taken.
    #[inline]
    pub(crate) fn taken(&mut self) {
        self.since = None;
        self.answers = 0;
        self.bytes = 0;
        self.due = false;
    }

    #[inline]
    fn window(&self, in_flight: u16) -> u16 {
        let wanted = match self.rule {
            Coalescing::Window(window) => u16::from(window),
            // A window is worth its wait only when it is soon full.
            Coalescing::Adaptive => (in_flight.saturating_add(self.answers) / 8).min(MOST_ADAPTIVE),
        };
        wanted.clamp(1, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::from_ns(1_000_000);

    fn coalescer(rule: Coalescing) -> Coalescer {
        let mut coalescer = Coalescer::default();
        coalescer.set_rule(rule, 128);
        coalescer
    }

    fn answer(in_flight: u16) -> Pushed {
        Pushed::Answer { now: T0, in_flight }
    }

    #[test]
    fn a_window_is_sent_when_it_is_full() {
        let mut coalescer = coalescer(Coalescing::Window(8));
        assert_eq!(coalescer.due(T0), Due::Never);
        assert!(coalescer.push(answer(100), 24), "the first arms the timer");
        for _ in 0..6 {
            assert!(!coalescer.push(answer(100), 24));
            assert_eq!(coalescer.due(T0), Due::At(T0 + MOST_AGE));
        }
        assert!(coalescer.push(answer(100), 24));
        assert_eq!(coalescer.due(T0), Due::Now);
        coalescer.taken();
        assert_eq!(coalescer.due(T0), Due::Never);
    }

    /// The hazards of held answers, one by one: each would stall a host.
    #[test]
    fn nothing_is_held_that_somebody_waits_for() {
        for (what, bytes) in [
            (Pushed::AtOnce, 24),
            (answer(0), 24),
            (answer(50), MOST_BYTES),
        ] {
            let mut coalescer = coalescer(Coalescing::Window(64));
            coalescer.push(answer(100), 24);
            assert!(coalescer.push(what, bytes), "{what:?}");
            assert_eq!(coalescer.due(T0), Due::Now, "{what:?}");
        }
        let mut old = coalescer(Coalescing::Window(64));
        old.push(answer(100), 24);
        let nearly = T0 + MOST_AGE - Duration::from_ns(1);
        let late = Pushed::Answer {
            now: nearly,
            in_flight: 99,
        };
        old.push(late, 24);
        assert_eq!(old.due(nearly), Due::At(T0 + MOST_AGE), "the oldest counts");
        assert_eq!(old.due(T0 + MOST_AGE), Due::Now);
        // A window larger than the queue can fill, or than flow control can bear.
        let mut short = Coalescer::default();
        short.set_rule(Coalescing::Window(128), 32);
        assert!((0..7).all(|n| short.push(answer(20 - n), 24) == (n == 0)));
        assert!(short.push(answer(1), 24));
    }

    #[test]
    fn the_adaptive_rule_holds_nothing_on_a_shallow_queue() {
        for in_flight in 0..7 {
            let mut coalescer = coalescer(Coalescing::Adaptive);
            assert!(coalescer.push(answer(in_flight), 24));
            assert_eq!(coalescer.due(T0), Due::Now, "{in_flight}");
        }
        let mut deep = coalescer(Coalescing::Adaptive);
        let pushed = (1..127).find(|n| deep.push(answer(127 - n), 24) && deep.due);
        assert_eq!(pushed, Some(8));
    }
}
