//! What is looked for now and then, since nobody says it: problems that appear and go, and arrays
//! that are rebuilt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Events;
use crate::control::{EventKind, HealthCode, ProblemRow};

/// How often it is looked.
pub const WATCH_EVERY: Duration = Duration::from_secs(5);
/// A problem that is not seen so many times is over: some come and go with the load.
const OVER: u32 = 3;

/// What was seen until now.
#[derive(Default)]
pub(in crate::service) struct Seen {
    /// Each problem, and how often it was not seen since.
    problems: BTreeMap<HealthCode, u32>,
    rebuilds: BTreeSet<String>,
}

impl Seen {
    /// What is wrong now.
    pub(in crate::service) fn problems(&mut self, rows: &[ProblemRow], events: &Events) {
        for missing in self.problems.values_mut() {
            *missing += 1;
        }
        for row in rows {
            if self.problems.insert(row.code, 0).is_none() {
                let what = row.what.join(", ");
                let detail = format!("{what}: {}; to do: {}", row.detail, row.remedy);
                events.add_problem(row.severity, &row.code.to_string(), &detail);
            }
        }
        self.problems.retain(|code, missing| {
            if *missing == OVER {
                events.add(EventKind::ProblemOver, &code.to_string(), "it is over");
            }
            *missing < OVER
        });
    }

    /// Arrays that are rebuilt now.
    pub(in crate::service) fn rebuilds(&mut self, now: BTreeSet<String>, events: &Events) {
        for name in now.difference(&self.rebuilds) {
            events.add(EventKind::Rebuild, &format!("device {name}"), "is rebuilt");
        }
        for name in self.rebuilds.difference(&now) {
            let what = format!("device {name}");
            events.add(EventKind::RebuildOver, &what, "is not rebuilt any more");
        }
        self.rebuilds = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{EventView, EventsAsk, HealthState, View};

    fn row(code: HealthCode) -> ProblemRow {
        ProblemRow {
            code,
            severity: HealthState::Degraded,
            count: 1,
            what: vec!["pool fast".into()],
            detail: "4 % free".into(),
            remedy: "delete something".into(),
            muted_until: None,
        }
    }

    fn told(events: &Events) -> Vec<(EventKind, String)> {
        let View::Events(view) = events.answer(&EventsAsk::default(), &()) else {
            panic!("they are listed");
        };
        let told = view.events.into_iter().skip(1);
        told.map(|EventView { kind, what, .. }| (kind, what))
            .collect()
    }

    #[test]
    fn problems_are_told_when_they_appear_and_when_they_have_been_gone_for_a_while() {
        let (events, mut seen) = (Events::new(1), Seen::default());
        let full = HealthCode::PoolFull;
        seen.problems(&[row(full)], &events);
        for _ in 0..3 {
            // It flaps.
            seen.problems(&[], &events);
            seen.problems(&[row(full)], &events);
        }
        assert_eq!(told(&events), [(EventKind::Problem, "POOL_FULL".into())]);
        for _ in 0..5 {
            seen.problems(&[], &events);
        }
        let over = (EventKind::ProblemOver, "POOL_FULL".to_owned());
        assert_eq!(told(&events)[1..], [over]);
        seen.rebuilds(BTreeSet::from(["a".to_owned()]), &events);
        seen.rebuilds(BTreeSet::from(["a".to_owned()]), &events);
        seen.rebuilds(BTreeSet::new(), &events);
        let rebuilt = |kind| (kind, "device a".to_owned());
        let both = [EventKind::Rebuild, EventKind::RebuildOver].map(rebuilt);
        assert_eq!(told(&events)[2..], both);
    }
}
