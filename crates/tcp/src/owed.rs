//! What a peer owes: the rest of a PDU, or room for what it is to be sent. Looked at now and then,
//! without a timer for each: what is owed at one look has to be there a span later, and less than
//! all of it does not help.

use std::cell::Cell;

use flashyard_time::{Duration, Time};

/// One kind of debt, of which there is always more or none.
#[derive(Default)]
pub(crate) struct Owed(Cell<Option<Due>>);

#[derive(Clone, Copy)]
struct Due {
    /// What has to be reached.
    count: u64,
    since: Time,
}

impl Owed {
    /// Whether what was owed at an earlier look is still owed `span` later. `done` counts what has
    /// been done so far; it has to reach `owed`, if anything is owed.
    pub(crate) fn is_overdue(
        &self,
        now: Time,
        span: Duration,
        done: u64,
        owed: Option<u64>,
    ) -> bool {
        let due = owed.map(|count| match self.0.get() {
            Some(earlier) if done < earlier.count => earlier,
            _ => Due { count, since: now },
        });
        self.0.set(due);
        due.is_some_and(|due| now.since(due.since) >= span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_part_of_it_does_not_help() {
        let owed = Owed::default();
        for second in 0..10 {
            assert!(!owed.is_overdue(at(second), SPAN, second, Some(1000 + second)));
        }
        assert!(owed.is_overdue(at(10), SPAN, 10, Some(1010)));
        assert!(!owed.is_overdue(at(11), SPAN, 1000, Some(2000)), "it came");
        assert!(!owed.is_overdue(at(20), SPAN, 1999, Some(3000)));
        assert!(owed.is_overdue(at(21), SPAN, 1999, Some(3000)));
    }

    #[test]
    fn who_always_pays_may_always_owe() {
        let owed = Owed::default();
        for second in 0..100 {
            assert!(!owed.is_overdue(at(second), SPAN, second, Some(second + 9)));
        }
        assert!(!owed.is_overdue(at(100), SPAN, 100, None));
        assert!(!owed.is_overdue(at(200), SPAN, 100, Some(101)), "a new one");
    }
}
