//! What happened to one block, and whether a single block without anything in between could have
//! done it: each operation takes effect at one moment between its beginning and its end.

use std::collections::HashSet;

use flashyard_time::Time;

/// An operation on a block.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When it began, and when it ended.
    pub from: Time,
    pub to: Time,
    pub what: What,
}

/// What was done. A value is what the whole block holds.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// It held this.
    Read(u32),
    /// From now on it holds this.
    Write(u32),
    /// It held the first, and holds the second from now on.
    Swap(u32, u32),
    /// It did not hold this.
    Differs(u32),
}

/// Whether there is an order of all that makes a block of `first` do what happened.
///
/// # Panics
/// When more than 128 operations are given.
pub fn is_linearizable(first: u32, events: &[Event]) -> bool {
    assert!(events.len() <= 128, "more than a set of bits holds");
    let mut seen = HashSet::new();
    let mut open = vec![(0_u128, first)];
    while let Some((done, value)) = open.pop() {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        let left = (0..events.len()).filter(|at| done & (1 << at) == 0);
        // Nothing that began after another one had ended comes before it.
        let horizon = left.clone().map(|at| events[at].to).min();
        for at in left {
            let event = events[at];
            if horizon.is_some_and(|horizon| event.from > horizon) {
                continue;
            }
            let next = match event.what {
                What::Read(read) if read == value => value,
                What::Write(new) => new,
                What::Swap(old, new) if old == value => new,
                What::Differs(other) if other != value => value,
                _ => continue,
            };
            let state = (done | 1 << at, next);
            if seen.insert(state) {
                open.push(state);
            }
        }
    }
    false
}

/// The checker finds what is wrong, and nothing else.
pub fn check_the_checker() {
    let at = |ms| Time::ZERO + flashyard_time::Duration::from_ms(ms);
    let event = |from, to, what| Event {
        from: at(from),
        to: at(to),
        what,
    };
    let write = event(2, 6, What::Write(1));
    let good = [
        vec![
            event(0, 3, What::Read(0)),
            write,
            event(4, 5, What::Read(1)),
        ],
        vec![
            write,
            event(3, 4, What::Read(1)),
            event(5, 7, What::Read(1)),
        ],
        vec![
            write,
            event(1, 3, What::Swap(0, 7)),
            event(7, 8, What::Read(1)),
        ],
    ];
    let bad = [
        vec![write, event(7, 8, What::Read(0))],
        vec![
            write,
            event(3, 4, What::Read(1)),
            event(5, 6, What::Read(0)),
        ],
        vec![event(0, 1, What::Read(1)), write],
        vec![event(0, 1, What::Swap(0, 3)), event(2, 3, What::Swap(0, 4))],
        vec![write, event(7, 8, What::Differs(1))],
    ];
    for (at, events) in good.iter().enumerate() {
        assert!(is_linearizable(0, events), "good {at}");
    }
    for (at, events) in bad.iter().enumerate() {
        assert!(!is_linearizable(0, events), "bad {at}");
    }
}
