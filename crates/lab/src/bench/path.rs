//! What lies between a switch and its drive: a distance, a narrow way, and times when writes stall.
//!
//! To the switch all of it is the drive: the latency that a policy is told contains it.

use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ssd::{Command, Completion, Op};
use flashyard_time::{Duration, EventQueue, Time};

/// A way to a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// How long a command is on its way, there and back together.
    pub distance: Duration,
    /// Commands that are let through in a second, one after another.
    pub ios_per_second: Option<u64>,
    /// Bytes that are let through in a second, of reads and of writes.
    pub bytes_per_second: Option<u64>,
    /// Times when writes do not get through.
    pub stall: Option<Stall>,
}

/// Writes that come in the last part of each period wait for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The period.
    pub every: Duration,
    /// How long its last part is.
    pub lasts: Duration,
}

/// The way to a drive with what is on it.
#[derive(Debug)]
pub(super) struct Road {
    /// Each holds from its instant on, until the next.
    paths: Vec<(Time, Path)>,
    begin: Time,
    /// When the narrow part lets the next one through.
    free: Time,
    there: EventQueue<Command>,
    back: EventQueue<Completion>,
}

/// What comes to the end of its way.
#[derive(Debug)]
pub(super) enum Arrived {
    AtDrive(Command),
    AtSwitch(Completion),
}

impl Path {
    /// When a command gets to the drive that could be let through at `at`.
    fn through(&self, begin: Time, free: &mut Time, at: Time, command: &Command) -> Time {
        let bytes = u64::from(command.units) * UNIT_BYTES;
        let second = Duration::from_secs(1);
        let for_one = self.ios_per_second.map(|rate| second.scale(1, rate.max(1)));
        let for_bytes = self
            .bytes_per_second
            .map(|rate| second.scale(bytes, rate.max(1)));
        let mut at = at;
        if let Some(takes) = for_one.max(for_bytes) {
            at = at.max(*free);
            *free = at + takes;
        }
        match self.stall {
            Some(stall) if command.op == Op::Write => stall.end(begin, at),
            _ => at,
        }
    }
}

impl Stall {
    /// When a write that comes at `at` goes on.
    fn end(&self, begin: Time, at: Time) -> Time {
        let since = at.since(begin).as_ns();
        let place = since.checked_rem(self.every.as_ns()).unwrap_or(0);
        let left = Duration::from_ns(self.every.as_ns() - place.min(self.every.as_ns()));
        if left <= self.lasts { at + left } else { at }
    }
}

impl Road {
    /// A road whose paths hold from these spans after `begin` on; nothing when there are none.
    pub(super) fn new(begin: Time, paths: &[(Duration, Path)]) -> Option<Self> {
        let paths: Vec<_> = paths
            .iter()
            .map(|&(after, path)| (begin + after, path))
            .collect();
        (!paths.is_empty()).then(|| Self {
            paths,
            begin,
            free: begin,
            there: EventQueue::with_capacity(256),
            back: EventQueue::with_capacity(256),
        })
    }

    fn path(&self, now: Time) -> Path {
        let holds = |(from, _): &&(Time, Path)| *from <= now;
        let found = self.paths.iter().take_while(holds).last();
        found.map_or(Path::default(), |&(_, path)| path)
    }

    /// A command leaves the switch.
    pub(super) fn send(&mut self, now: Time, command: Command) {
        let path = self.path(now);
        let there = now + path.distance / 2;
        let at = path.through(self.begin, &mut self.free, there, &command);
        self.there.push(at, command);
    }

    /// An answer leaves the drive.
    pub(super) fn answer(&mut self, completion: Completion) {
        let at = completion.at + self.path(completion.at).distance / 2;
        self.back.push(at, Completion { at, ..completion });
    }

    /// When something is at the end of its way.
    pub(super) fn next_time(&self) -> Option<Time> {
        let (there, back) = (self.there.next_time(), self.back.next_time());
        there.into_iter().chain(back).min()
    }

    /// What is at the end of its way at `now`, commands first.
    pub(super) fn arrive(&mut self, now: Time) -> Option<Arrived> {
        if let Some((_, command)) = self.there.pop_due(now) {
            return Some(Arrived::AtDrive(command));
        }
        let (_, completion) = self.back.pop_due(now)?;
        Some(Arrived::AtSwitch(completion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(op: Op, units: u32) -> Command {
        Command {
            tag: 0,
            op,
            start: 0,
            units,
        }
    }

    /// When commands that leave at these microseconds are with the drive.
    fn arrivals(paths: &[(Duration, Path)], sent: &[(u64, Op, u32)]) -> Vec<u64> {
        let begin = Time::ZERO + Duration::from_secs(7);
        let mut road = Road::new(begin, paths).expect("there is a path");
        for &(at, op, units) in sent {
            road.send(begin + Duration::from_us(at), command(op, units));
        }
        let mut arrived = Vec::new();
        while let Some(at) = road.next_time() {
            assert!(matches!(road.arrive(at), Some(Arrived::AtDrive(_))));
            arrived.push(at.since(begin).as_us());
        }
        arrived
    }

    #[test]
    fn half_of_the_distance_lies_before_the_drive() {
        let far = Path {
            distance: Duration::from_us(900),
            ..Path::default()
        };
        let later = Duration::from_ms(1);
        let paths = [(Duration::ZERO, far), (later, Path::default())];
        let sent = [(0, Op::Read, 1), (10, Op::Write, 1), (1000, Op::Read, 1)];
        assert_eq!(arrivals(&paths, &sent), [450, 460, 1000]);
    }

    #[test]
    fn a_narrow_way_lets_one_through_after_another() {
        let narrow = Path {
            ios_per_second: Some(10_000),
            bytes_per_second: Some(40_960_000),
            ..Path::default()
        };
        let sent = [(0, Op::Read, 1), (0, Op::Write, 8), (0, Op::Read, 1)];
        assert_eq!(arrivals(&[(Duration::ZERO, narrow)], &sent), [0, 100, 900]);
    }

    #[test]
    fn only_writes_stall_and_only_in_the_last_part_of_a_period() {
        let stalls = Path {
            stall: Some(Stall {
                every: Duration::from_ms(2),
                lasts: Duration::from_us(500),
            }),
            ..Path::default()
        };
        let sent = [
            (1400, Op::Write, 1),
            (1500, Op::Write, 1),
            (1600, Op::Read, 1),
            (3999, Op::Write, 1),
            (4000, Op::Write, 1),
        ];
        let found = arrivals(&[(Duration::ZERO, stalls)], &sent);
        assert_eq!(found, [1400, 1600, 2000, 4000, 4000]);
    }
}
