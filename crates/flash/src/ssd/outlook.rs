//! What a drive run by a real clock has to look up at little cost: when the next completion is due,
//! and how much garbage collection has moved.

use flashyard_time::Time;

use super::Device;
use crate::Profile;
use crate::die::Lane;

impl Device {
    /// What the drive is made of.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Units moved by garbage collection since the drive was built, as in [`Device::stats`].
    pub fn moved_units(&self) -> u64 {
        self.stats.moved_units
    }

    /// No command is complete before this instant, unless one is submitted before; nothing when
    /// none is in flight, whatever the drive does for itself. To look at the drive then, and not at
    /// every event, changes nothing.
    pub fn next_completion(&self) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(Time::from_ns(self.clock));
        }
        if self.outstanding() == 0 {
            return None;
        }
        let events = &self.dies.events;
        // A completion is an event ahead already, or will follow from one by the time that every
        // completion takes.
        let exit = self.front.read_exit.min(self.front.write_exit);
        let follows = events
            .next_time()
            .map(|next| next.saturating_add(exit.min(self.front.flush)));
        [
            follows,
            events.next_of(Lane::ReadDone),
            events.next_of(Lane::WriteDone),
            events.next_rare(),
        ]
        .into_iter()
        .flatten()
        .min()
        .map(Time::from_ns)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use flashyard_time::Rng;

    use super::*;
    use crate::ssd::{Command, Condition, Op};

    /// Keeps commands of all kinds in flight, and looks at the drive when `next` says so. How often
    /// it looked.
    fn run(device: &mut Device, next: fn(&Device) -> Option<Time>) -> u64 {
        let mut chance = Rng::new(3);
        let (mut done, mut looks, mut issued) = (Vec::new(), 0, 0);
        let mut issue = |device: &mut Device, now, tag| {
            let op = match chance.below(20) {
                0 => Op::Flush,
                1 => Op::WriteThrough,
                2 => Op::Deallocate,
                3..10 => Op::Write,
                _ => Op::Read,
            };
            let start = chance.below(device.capacity() / crate::UNIT_BYTES - 8);
            let units = 1 + chance.below(8) as u32;
            let command = Command {
                tag,
                op,
                start,
                units,
            };
            device.submit(now, command).expect("it is on the drive");
        };
        let begin = device.now();
        for tag in 0..16 {
            issue(device, begin, tag);
        }
        while let Some(at) = next(device) {
            looks += 1;
            device.advance(at, &mut done);
            for completion in done.drain(..) {
                assert_eq!(completion.at, at, "it is not reported late");
                if issued < 5_000 {
                    issued += 1;
                    issue(device, at, completion.tag);
                }
            }
        }
        looks
    }

    #[test]
    fn polling_only_when_due_misses_nothing() {
        // Where a completion takes no time of its own, every event may bring one.
        for (name, saves) in [("dct983", 2), ("970pro", 1)] {
            let profile = Profile::named(name).expect("it ships");
            let build = || {
                Device::in_condition(&profile, 256 << 20, 1, Condition::Fragmented(100))
                    .expect("the size fits")
            };
            let (mut often, mut rarely) = (build(), build());
            let all = run(&mut often, |device| match device.outstanding() {
                0 => None,
                _ => device.next_event(),
            });
            let needed = run(&mut rarely, Device::next_completion);
            assert_eq!(often.digest(), rarely.digest(), "{name}");
            assert!(needed * saves <= all, "{name}: {needed} of {all} looks");
        }
    }
}
