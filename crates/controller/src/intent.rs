//! What an I/O wants: to be answered soon, to be part of much, or only what nobody else needs.
//!
//! A tenant's configuration grants a class; it is a right and a cap. Below it the first of these
//! decides: what the command says (Access Latency and Access Frequency, CDW13), the priority class
//! of its queue (Connect, when weighted round robin was selected), and, if the host says nothing at
//! all, how the queue behaves: one that is deep or moves much is part of much. Nothing raises an
//! I/O beyond the grant.
//!
//! So a host that marks all it does as urgent gets its tenant's class for all of it, however deep
//! its queues are, and nothing beyond: it overtakes those whose class is lower, and pays for it
//! with its tenant's share.

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::command::AccessLatency;
use flashyard_sched::Class;

/// Commands in flight on a queue up to which it is one that waits for each answer.
const SHALLOW: u16 = 4;
/// Bytes of a command up to which it is a small one.
const SMALL: u32 = 32 << 10;
/// A queue is bulk from so many more large or deep commands than others on, and ceases to be at so
/// many.
const BULK_AT: u8 = 24;
const SHALLOW_AT: u8 = 8;
const MOST: u8 = 32;
/// Access Frequency: a speculative read, such as read-ahead.
const SPECULATIVE: u8 = 7;

/// What is known of the commands of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// What the host said of the queue when it connected.
    queue: Option<Class>,
    score: u8,
    bulk: bool,
}

impl Intent {
    /// A queue with this priority class (0 urgent to 3 low), if weighted round robin was selected.
    pub fn new(priority: Option<u8>) -> Self {
        Self {
            queue: priority.map(of_priority),
            score: 0,
            bulk: false,
        }
    }

    /// The class of a command of `bytes` that has come while `in_flight` others of its queue are
    /// in flight, for a tenant that was granted `granted`.
    #[inline]
    pub fn classify(
        &mut self,
        granted: Class,
        entry: &SubmissionQueueEntry,
        bytes: u32,
        in_flight: u16,
    ) -> Class {
        self.observe(bytes > SMALL || in_flight > SHALLOW);
        // Classes are ordered from the most urgent one.
        self.wanted(granted, entry).max(granted)
    }

    #[inline]
    fn wanted(self, granted: Class, entry: &SubmissionQueueEntry) -> Class {
        match entry.access_latency() {
            AccessLatency::Low => return Class::Latency,
            AccessLatency::Normal => return Class::Throughput,
            AccessLatency::Idle => return Class::Background,
            AccessLatency::None => {}
        }
        // Nobody waits for what is only guessed to be needed; but soon somebody may.
        if entry.access_frequency() == SPECULATIVE {
            return Class::Throughput;
        }
        match self.queue {
            Some(class) => class,
            None if self.bulk => Class::Throughput,
            None => granted,
        }
    }

    #[inline]
    fn observe(&mut self, large: bool) {
        if large {
            self.score = (self.score + 1).min(MOST);
            self.bulk |= self.score >= BULK_AT;
        } else {
            self.score = self.score.saturating_sub(1);
            self.bulk &= self.score > SHALLOW_AT;
        }
    }
}

fn of_priority(priority: u8) -> Class {
    match priority {
        0 | 1 => Class::Latency,
        2 => Class::Throughput,
        _ => Class::Background,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use flashyard_nvme::Sgl;
    use flashyard_nvme::command::LbaRange;

    use super::*;

    const CLASSES: [Class; 3] = [Class::Latency, Class::Throughput, Class::Background];

    fn read(dsm: u8) -> SubmissionQueueEntry {
        let range = LbaRange { slba: 0, blocks: 1 };
        SubmissionQueueEntry::read(1, range, Sgl::Transport { length: 4096 })
            .with_cdw(13, dsm.into())
    }

    #[test]
    fn commands_speak_before_queues_and_nothing_goes_beyond_the_grant() {
        use Class::{Background, Latency, Throughput};
        for (dsm, queue, wanted) in [
            (0x30, None, Latency),
            (0x30, Some(3), Latency),
            (0x20, Some(0), Throughput),
            (0x10, Some(0), Background),
            (0x07, None, Throughput),
            (0x37, Some(3), Latency),
            (0x01, Some(0), Latency),
            (0x00, Some(1), Latency),
            (0x00, Some(2), Throughput),
            (0x00, Some(3), Background),
        ] {
            for granted in CLASSES {
                let class = Intent::new(queue).classify(granted, &read(dsm), 4096, 0);
                assert_eq!(class, wanted.max(granted), "{dsm:#x} {queue:?} {granted:?}");
            }
        }
        for granted in CLASSES {
            let unmarked = Intent::new(None).classify(granted, &read(0), 4096, 0);
            assert_eq!(unmarked, granted, "without a mark it is what the tenant is");
        }
    }

    /// What a host says counts more than how it behaves, and never more than what was granted.
    #[test]
    fn a_host_that_marks_everything_urgent_has_its_grant_and_no_more() {
        for granted in CLASSES {
            for queue in [None, Some(0), Some(3)] {
                let mut intent = Intent::new(queue);
                for n in 0..1000_u32 {
                    let class = intent.classify(granted, &read(0x30), 1 << 20, 128);
                    assert_eq!(class, granted, "command {n} of {queue:?}");
                }
                // Its behaviour was seen all the same: what it does not mark is what its queue is.
                let unmarked = intent.classify(granted, &read(0), 1 << 20, 128);
                let of_queue = queue.map_or(Class::Throughput, of_priority);
                assert_eq!(unmarked, of_queue.max(granted));
            }
        }
    }

    #[test]
    fn a_queue_that_is_deep_or_moves_much_is_bulk_until_it_has_been_shallow_for_a_while() {
        let mut intent = Intent::new(None);
        let mut classes = |bytes, in_flight, times| -> Vec<_> {
            (0..times)
                .map(|_| intent.classify(Class::Latency, &read(0), bytes, in_flight))
                .collect()
        };
        assert_eq!(classes(4096, 3, 1000), [Class::Latency; 1000]);
        let deep = classes(4096, 128, 100);
        assert_eq!(deep[..23], [Class::Latency; 23]);
        assert_eq!(deep[23..], [Class::Throughput; 77]);
        let shallow = classes(4096, 0, 40);
        assert_eq!(shallow[..23], [Class::Throughput; 23]);
        assert_eq!(shallow[23..], [Class::Latency; 17]);
        assert_eq!(classes(128 << 10, 0, 40)[39], Class::Throughput);
        // A few large ones among many small ones change nothing.
        classes(4096, 0, 40);
        for _ in 0..100 {
            assert_eq!(classes(1 << 20, 0, 1), [Class::Latency]);
            assert_eq!(classes(4096, 1, 3), [Class::Latency; 3]);
        }
    }
}
