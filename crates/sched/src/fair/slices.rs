//! Reads and writes by turns, while latency-sensitive I/O is about; and what is done in the
//! background in turns of its own.
//!
//! A drive can let a read interrupt a program a few times; where many reads for throughput use
//! that up, a latency-sensitive one waits for the program's end. So the two are kept apart: for a
//! slice of time only one kind goes to the device, then that whose tenants are behind. Before reads
//! the drive is given time to program what it had taken.
//!
//! Background I/O beside both has one slice of sixteen. Its part is one of time because nobody
//! knows what it costs: it never has the device long enough to be measured.

use super::costs::Kind;

/// Length of a slice: long against what is in flight, short against what those wait who are
/// not latency-sensitive.
const SLICE_NS: u64 = 10_000_000;
/// Time between the last write and the first read: some programs.
const DRAIN_NS: u64 = 5_000_000;
/// A kind is about for so long after I/O of it last waited.
const ABOUT_NS: u64 = 20_000_000;
/// A slice that nobody has wanted for so long is over: longer than it takes a host to send the next
/// I/O.
const LULL_NS: u64 = 1_000_000;
/// The tag of those who do not wait.
const NOBODY: u64 = u64::MAX;
/// Of so many slices one is for the background.
const BACKGROUND_PART: u64 = 16;

/// Who may go in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// I/O for throughput of both kinds.
    Both,
    /// That of one kind.
    One(Kind),
    /// What is done in the background.
    Background,
}

/// What is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// The least tags of reads and of writes for throughput, beyond all others when there are none.
    pub(super) least: [u64; 2],
    /// What they cost is known: they can be kept apart.
    pub(super) known: bool,
    /// How many of them are with the device, by kind.
    pub(super) in_flight: [u32; 2],
    /// The kind of the next background I/O, and how many are with the device.
    pub(super) background: Option<Kind>,
    pub(super) background_in_flight: u32,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    turn: Turn,
    /// When the slice begins and ends, in nanoseconds; the past when there are none.
    begins: u64,
    ends: u64,
    /// When whoever's turn it is last wanted the device.
    wanted: u64,
    /// Until when I/O of each kind is taken to be about, of either, and of the background.
    about: [u64; 2],
    bulk_about: u64,
    background_about: u64,
    /// The background has its next slice then.
    background_due: u64,
    /// The kind that was let go last.
    last: Kind,
    /// How many times longer everything takes than on a usual drive.
    slowness: u64,
}

impl Slices {
    pub(super) fn new() -> Self {
        Self {
            turn: Turn::Both,
            begins: 0,
            ends: 0,
            wanted: 0,
            about: [0; 2],
            bulk_about: 0,
            background_about: 0,
            background_due: 0,
            last: Kind::Read,
            slowness: 1,
        }
    }

    /// Has what begins from now on last so many times longer.
    pub(super) fn stretch(&mut self, slowness: u64) {
        self.slowness = slowness;
    }

    /// Looks at what is there.
    #[inline]
    pub(super) fn turn(&mut self, now: u64, scene: &Scene) {
        let until = now + ABOUT_NS * self.slowness;
        for (about, &least) in self.about.iter_mut().zip(&scene.least) {
            if scene.known && least < NOBODY {
                *about = until;
            }
        }
        if scene.least != [NOBODY; 2] || scene.in_flight != [0; 2] {
            self.bulk_about = until;
        }
        if scene.background.is_some() {
            self.background_about = until;
        }
        let kinds = self.about.iter().all(|&until| until > now);
        let background = self.background_about > now && self.bulk_about > now;
        if !kinds && !background {
            self.ends = 0;
            return;
        }
        if self.is_wanted(scene) {
            self.wanted = now;
        }
        if now >= self.ends.min(self.lulled()) {
            self.begin(now, scene, kinds);
        }
    }

    /// Whether whoever's turn it is has something waiting or with the device.
    fn is_wanted(&self, scene: &Scene) -> bool {
        match self.turn {
            Turn::Both => true,
            Turn::One(kind) => {
                scene.least[kind as usize] < NOBODY || scene.in_flight[kind as usize] > 0
            }
            Turn::Background => scene.background.is_some() || scene.background_in_flight > 0,
        }
    }

    /// When the slice is over because nobody wants it.
    fn lulled(&self) -> u64 {
        self.wanted.max(self.begins) + LULL_NS * self.slowness
    }

    fn begin(&mut self, now: u64, scene: &Scene, kinds: bool) {
        let [reads, writes] = scene.least;
        let first = if writes < reads {
            Kind::Write
        } else {
            Kind::Read
        };
        let due = now >= self.background_due;
        let (turn, kind) = match scene.background.filter(|_| due) {
            Some(kind) => (Turn::Background, kind),
            None if kinds => (Turn::One(first), first),
            None => (Turn::Both, first),
        };
        let drain = match (self.last, kind) {
            (Kind::Write, Kind::Read) => {
                (now.saturating_sub(self.begins) / 2).min(DRAIN_NS * self.slowness)
            }
            _ => 0,
        };
        let slice = SLICE_NS * self.slowness;
        self.begins = now + drain;
        self.ends = self.begins + slice;
        self.wanted = self.begins;
        (self.turn, self.last) = (turn, kind);
        if turn == Turn::Background {
            self.background_due = self.begins + BACKGROUND_PART * slice;
        }
    }

    /// There are no slices.
    pub(super) fn stop(&mut self) {
        self.ends = 0;
    }

    /// Whether there are slices.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.ends > 0
    }

    /// Whether I/O of `kind` for throughput may go.
    #[inline]
    pub(super) fn admit(&self, now: u64, kind: Kind) -> bool {
        let turn = match self.turn {
            Turn::Both => true,
            Turn::One(one) => one == kind,
            Turn::Background => false,
        };
        self.ends == 0 || turn && now >= self.begins
    }

    /// Whether it is the background's turn.
    #[inline]
    pub(super) fn admit_background(&self, now: u64) -> bool {
        self.ends > 0 && self.turn == Turn::Background && now >= self.begins
    }

    /// When that changes.
    pub(super) fn changes(&self, now: u64) -> u64 {
        match self.ends {
            0 => u64::MAX,
            _ if now < self.begins => self.begins,
            ends => ends.min(self.lulled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I/O for throughput with these tags, some of it with the device.
    fn bulk(least: [u64; 2]) -> Scene {
        Scene {
            least,
            known: true,
            in_flight: [1; 2],
            background: None,
            background_in_flight: 0,
        }
    }

    #[test]
    fn there_are_slices_only_while_both_kinds_wait() {
        let mut slices = Slices::new();
        slices.turn(1, &bulk([5, NOBODY]));
        assert!(!slices.is_on() && slices.admit(1, Kind::Read) && slices.admit(1, Kind::Write));
        assert_eq!(slices.changes(1), u64::MAX);
        slices.turn(2, &bulk([5, 6]));
        assert!(slices.is_on() && slices.admit(2, Kind::Read) && !slices.admit(2, Kind::Write));
        // All writes are in flight for a moment; later there are none any more.
        slices.turn(3, &bulk([5, NOBODY]));
        assert!(slices.is_on());
        slices.turn(2 + ABOUT_NS, &bulk([5, NOBODY]));
        assert!(!slices.is_on() && slices.admit(2 + ABOUT_NS, Kind::Read));
    }

    #[test]
    fn who_is_behind_has_the_next_slice_and_reads_wait_for_programs() {
        let mut slices = Slices::new();
        let mut now = 1;
        slices.turn(now, &bulk([9, 8]));
        assert!(slices.admit(now, Kind::Write) && !slices.admit(now, Kind::Read));
        // Within a slice nothing changes.
        slices.turn(now + 1, &bulk([8, 9]));
        assert!(slices.admit(now + 1, Kind::Write));
        now += SLICE_NS;
        slices.turn(now, &bulk([8, 9]));
        let both = [Kind::Read, Kind::Write];
        assert!(both.iter().all(|&kind| !slices.admit(now, kind)));
        assert_eq!(slices.changes(now), now + DRAIN_NS);
        now += DRAIN_NS;
        assert!(slices.admit(now, Kind::Read) && !slices.admit(now, Kind::Write));
        now += SLICE_NS;
        slices.turn(now, &bulk([8, 9]));
        assert!(slices.admit(now, Kind::Read), "still behind");
        now += SLICE_NS;
        slices.turn(now, &bulk([9, 8]));
        assert!(slices.admit(now, Kind::Write), "writes need not wait");
        slices.stop();
        assert!(slices.admit(now, Kind::Read));
    }

    #[test]
    fn the_background_has_one_slice_of_sixteen_beside_others() {
        for (slowness, kind) in [(1, Kind::Read), (1, Kind::Write), (7, Kind::Write)] {
            let mut slices = Slices::new();
            slices.stretch(slowness);
            let mut scene = bulk([5, NOBODY]);
            scene.background = Some(kind);
            let (mut background, mut reads) = (0, 0);
            let step = 100_000;
            for now in (1..10_000_000_000).step_by(step as usize) {
                slices.turn(now, &scene);
                assert!(slices.is_on());
                background += u64::from(slices.admit_background(now)) * step;
                reads += u64::from(slices.admit(now, Kind::Read)) * step;
                assert!(!(slices.admit_background(now) && slices.admit(now, Kind::Read)));
            }
            let part = 10_000_000_000 / background;
            assert!((15..=18).contains(&part), "{kind:?}: {part}");
            // All else but the time that programs take.
            assert!(reads > 9_000_000_000, "{kind:?}: {reads}");
        }
        let mut alone = bulk([NOBODY; 2]);
        (alone.in_flight, alone.background) = ([0; 2], Some(Kind::Write));
        let mut slices = Slices::new();
        slices.turn(1, &alone);
        assert!(!slices.is_on(), "there is nobody to be kept apart from");
    }

    #[test]
    fn a_slice_that_nobody_wants_is_over_soon() {
        let mut slices = Slices::new();
        let mut now = 1;
        slices.turn(now, &bulk([9, 8]));
        assert!(slices.admit(now, Kind::Write));
        // The only write is with the device for a while, then there is none.
        now += 2 * LULL_NS;
        slices.turn(now, &bulk([9, NOBODY]));
        assert!(!slices.admit(now, Kind::Read));
        let scene = Scene {
            in_flight: [1, 0],
            ..bulk([9, NOBODY])
        };
        assert_eq!(slices.changes(now), now + LULL_NS);
        now += LULL_NS;
        slices.turn(now, &scene);
        // What little was written is given less time, too.
        assert_eq!(slices.changes(now), now + 3 * LULL_NS / 2);
        now += 3 * LULL_NS / 2;
        slices.turn(now, &scene);
        assert!(slices.admit(now, Kind::Read));
    }
}
