//! Shadow doorbells: when a guest rings, and that none of its moves is missed, whatever comes
//! first.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use flashyard_time::Rng;

use crate::pcie::queues::Doorbell;
use crate::pcie::shadow::{EventIndex, offset, rings};

#[test]
fn doorbells_have_their_places() {
    assert_eq!(offset(Doorbell::Tail(3)), 24);
    assert_eq!(offset(Doorbell::Head(3)), 28);
}

/// A guest that always moves by as much, up to all that its queue holds, and a function that looks
/// after each move.
#[test]
fn while_the_function_is_awake_its_guest_does_not_ring() {
    for entries in [2u16, 3, 8, 64, 1024] {
        for by in 1..entries.min(70) {
            let mut index = EventIndex::default();
            let mut event = index.asleep(0) as u16;
            let (mut tail, mut rung) = (0, 0);
            for number in 0..500 {
                let new = (tail + by) % entries;
                let is_rung = rings(event, new, tail);
                assert!(is_rung || number > 0, "asleep, the first move rings");
                rung += u32::from(is_rung && number > 0);
                if let Some(moved) = index.awake((tail, new), entries) {
                    event = moved as u16;
                }
                tail = new;
            }
            assert_eq!(rung, 0, "of {entries} by {by}");
        }
    }
}

/// Moves of any length: a long one behind short ones may ring, once.
#[test]
fn guests_that_move_by_chance_ring_seldom() {
    for entries in [8u16, 64, 129, 1024] {
        let (mut index, mut rng) = (EventIndex::default(), Rng::new(entries.into()));
        let mut event = index.asleep(0) as u16;
        let (mut tail, mut rung) = (0, 0);
        for _ in 0..10_000 {
            let by = 1 + rng.below(u64::from(entries) - 2) as u16;
            let new = (tail + by) % entries;
            rung += u32::from(rings(event, new, tail));
            if let Some(moved) = index.awake((tail, new), entries) {
                event = moved as u16;
            }
            tail = new;
        }
        assert!(rung < 200, "{rung} of {entries}");
    }
}

#[test]
fn a_sleeping_function_is_rung_for_at_every_move() {
    for seen in [0u16, 1, 5, 62, 1023] {
        for by in 1..1024 {
            let event = EventIndex::default().asleep(seen) as u16;
            let new = (seen + by) % 1024;
            assert!(rings(event, new, seen) || by == 0, "{seen} by {by}");
        }
    }
}

/// What both sides have in common, and what each has written that the other does not see yet: a
/// processor may keep its stores back until a fence, and let loads go before them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Machine {
    tail: u16,
    event: u16,
    kept_tail: Option<u16>,
    kept_event: Option<u16>,
    /// The guest: which of its steps is next, and how many moves are left.
    guest: u8,
    moves: u8,
    /// The function.
    function: Function,
    seen: u16,
    doorbell: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Function {
    Awake,
    IndexWritten,
    Fenced,
    Asleep,
}

impl Machine {
    fn guest_sees_tail(&self) -> u16 {
        self.kept_tail.unwrap_or(self.tail)
    }

    /// All that can happen next.
    fn next(&self, fences: bool) -> Vec<Self> {
        let mut all = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        // Stores become visible at any time.
        if let Some(tail) = self.kept_tail {
            step(&|it| (it.tail, it.kept_tail) = (tail, None));
        }
        if let Some(event) = self.kept_event {
            step(&|it| (it.event, it.kept_event) = (event, None));
        }
        match self.guest {
            0 if self.moves > 0 && self.kept_tail.is_none() => step(&|it| {
                it.kept_tail = Some(it.tail + 1);
                (it.guest, it.moves) = (1, it.moves - 1);
            }),
            // The fence waits until the store is visible.
            1 if !fences || self.kept_tail.is_none() => step(&|it| it.guest = 2),
            2 => step(&|it| {
                let new = it.guest_sees_tail();
                it.doorbell |= rings(it.event, new, new - 1);
                it.guest = 0;
            }),
            _ => {}
        }
        match self.function {
            Function::Awake if self.tail != self.seen => step(&|it| it.seen = it.tail),
            Function::Awake if self.kept_event.is_none() => step(&|it| {
                it.kept_event = Some(EventIndex::default().asleep(it.seen) as u16);
                it.function = Function::IndexWritten;
            }),
            Function::IndexWritten if !fences || self.kept_event.is_none() => {
                step(&|it| it.function = Function::Fenced);
            }
            Function::Fenced => step(&|it| {
                let moved = it.tail != it.seen;
                it.function = if moved {
                    Function::Awake
                } else {
                    Function::Asleep
                };
            }),
            Function::Asleep if self.doorbell => step(&|it| {
                (it.doorbell, it.function) = (false, Function::Awake);
            }),
            _ => {}
        }
        all
    }

    /// Nothing happens any more, and the function sleeps over a move.
    fn is_stuck(&self) -> bool {
        self.moves == 0 && self.guest == 0 && self.seen != self.guest_sees_tail()
    }
}

/// Goes through all orders; whether any of them ends with a move that the function does not see.
fn loses_a_move(fences: bool) -> bool {
    let begin = Machine {
        tail: 0,
        event: 100,
        kept_tail: None,
        kept_event: None,
        guest: 0,
        moves: 3,
        function: Function::Awake,
        seen: 0,
        doorbell: false,
    };
    let (mut known, mut open) = (BTreeSet::new(), Vec::from([begin]));
    let mut lost = false;
    while let Some(machine) = open.pop() {
        let next = machine.next(fences);
        lost |= next.is_empty() && machine.is_stuck();
        open.extend(next.into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(known.len() > 100, "{} states", known.len());
    lost
}

#[test]
fn no_move_is_lost_in_any_order_and_one_would_be_without_the_fences() {
    assert!(!loses_a_move(true));
    assert!(loses_a_move(false), "the model sees what fences are for");
}
