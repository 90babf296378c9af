//! What has happened, for whoever asks: the last events, numbered, in memory. Who writes one takes
//! a lock for as long as it takes to push it; readers have no queues here, only a number up to
//! which they have read, so a slow one costs nothing and misses what is not kept any more, and is
//! told.

mod changes;
mod watch;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flashyard_engine::{HostEvent, HostEventKind, Target};

use crate::control::{
    Asker, EventKind, EventView, EventsAsk, EventsView, HealthState, Level, SlowIoView, View,
};
use crate::units;

pub(super) use watch::Seen;
pub use watch::WATCH_EVERY;

/// How many are kept.
const KEPT: usize = 1024;
/// Who follows is heard of so often, lest a client that has gone is taken for one that waits.
const BEAT: Duration = Duration::from_secs(10);

/// The last events of this run of the target.
pub(super) struct Events {
    /// Which start of the target this is.
    run: u64,
    log: Mutex<Log>,
    news: Condvar,
}

#[derive(Default)]
struct Log {
    kept: VecDeque<EventView>,
    /// The number of the last one; the first is 1.
    last: u64,
    /// The target ends.
    closed: bool,
}

impl Events {
    /// Of start number `run`, which is the first event.
    pub(super) fn new(run: u64) -> Arc<Self> {
        let events = Arc::new(Self {
            run,
            log: Mutex::default(),
            news: Condvar::new(),
        });
        events.add(EventKind::Started, "target", &format!("start number {run}"));
        events
    }

    /// Has what hosts of `target` do become events.
    pub(super) fn follow(self: &Arc<Self>, target: &Target) {
        let events = Arc::clone(self);
        target.follow_hosts(Box::new(move |event| events.add_host(event)));
    }

    /// Something has happened.
    pub(super) fn add(&self, kind: EventKind, what: &str, detail: &str) {
        self.add_at(kind.level(), kind, (what, detail), None);
    }

    /// Sampled I/Os took long.
    pub(super) fn add_slow(&self, slow: SlowIoView) {
        let kind = EventKind::SlowIo;
        let (what, detail) = (format!("tenant {}", slow.tenant), slow.text());
        self.add_at(kind.level(), kind, (&what, &detail), Some(slow));
    }

    /// Something is wrong that makes this of the target.
    fn add_problem(&self, severity: HealthState, what: &str, detail: &str) {
        let level = match severity {
            HealthState::Failed => Level::Error,
            HealthState::Healthy | HealthState::Degraded => Level::Warning,
        };
        self.add_at(level, EventKind::Problem, (what, detail), None);
    }

    fn add_at(
        &self,
        level: Level,
        kind: EventKind,
        (what, detail): (&str, &str),
        slow: Option<SlowIoView>,
    ) {
        let mut log = self.lock();
        if log.kept.len() == KEPT {
            log.kept.pop_front();
        }
        log.last += 1;
        let event = EventView {
            id: self.id(log.last),
            at: now(),
            kind,
            level,
            what: what.to_owned(),
            detail: detail.to_owned(),
            missed: None,
            slow,
        };
        log.kept.push_back(event);
        drop(log);
        self.news.notify_all();
    }

    fn add_host(&self, event: &HostEvent) {
        let kind = match event.kind {
            HostEventKind::Connected => EventKind::Connected,
            HostEventKind::Ended { .. } => EventKind::Disconnected,
            HostEventKind::NotAllowed => EventKind::Refused,
            HostEventKind::KeepAliveExpired | HostEventKind::Violation(_) => {
                EventKind::ConnectionEnded
            }
        };
        let controller = event.controller.as_ref();
        let tenant = controller.and_then(|controller| controller.tenant.as_deref());
        let what = tenant.map_or("host".to_owned(), |tenant| format!("tenant {tenant}"));
        self.add(kind, &what, &event.to_string());
    }

    /// What is kept of what is asked for; whoever follows gets all that comes, until they go or the
    /// target ends.
    pub(super) fn answer(&self, ask: &EventsAsk, asker: &dyn Asker) -> View {
        let mut read = self.read_until(ask.after.as_deref());
        loop {
            let events = self.after(&mut read);
            if !ask.follow {
                return View::Events(EventsView { events });
            }
            let gone = events.into_iter().any(|event| !asker.send(Some(event)));
            if gone || !self.wait(&read, asker) {
                return View::Done;
            }
        }
    }

    /// No more come: whoever follows is done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }

    /// Waits for one that is not read; false when there will be none, or the asker has gone.
    fn wait(&self, read: &Read, asker: &dyn Asker) -> bool {
        loop {
            let log = self.lock();
            let until = |log: &mut Log| log.last <= read.number && !log.closed;
            let waited = self.news.wait_timeout_while(log, BEAT, until);
            let (log, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if log.last > read.number {
                return true;
            }
            let closed = log.closed;
            drop(log);
            if closed || (timeout.timed_out() && !asker.send(None)) {
                return false;
            }
        }
    }

    /// Those that are not read, with a word before them about those that are not kept.
    fn after(&self, read: &mut Read) -> Vec<EventView> {
        let log = self.lock();
        let before_kept = log.last - log.kept.len() as u64;
        let unread = log.last.saturating_sub(read.number.max(before_kept)) as usize;
        let lost = before_kept.saturating_sub(read.number);
        let missed = match read.other_run {
            true => Some(None),
            false => (lost > 0 && !read.from_start).then_some(Some(lost)),
        };
        let word = missed.map(|missed| self.missed(missed, before_kept.max(read.number)));
        let kept = log.kept.range(log.kept.len() - unread..).cloned();
        let events = word.into_iter().chain(kept).collect();
        *read = Read {
            number: log.last,
            ..Read::default()
        };
        events
    }

    fn missed(&self, missed: Option<u64>, number: u64) -> EventView {
        let detail = match missed {
            Some(count) => format!("{count} events are not kept any more"),
            None => "events of another run of the target are not kept".to_owned(),
        };
        EventView {
            id: self.id(number),
            at: now(),
            kind: EventKind::Missed,
            level: EventKind::Missed.level(),
            what: "events".to_owned(),
            detail,
            missed,
            slow: None,
        }
    }

    /// Up to where somebody has read who names the last event that they know.
    fn read_until(&self, after: Option<&str>) -> Read {
        let Some(after) = after else {
            return Read {
                from_start: true,
                ..Read::default()
            };
        };
        let parts = after.split_once('-');
        let parts = parts.and_then(|(run, number)| {
            Some((run.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
        });
        match parts {
            Some((run, number)) if run == self.run && number <= self.lock().last => Read {
                number,
                ..Read::default()
            },
            _ => Read {
                other_run: true,
                ..Read::default()
            },
        }
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far somebody has read.
#[derive(Default)]
struct Read {
    number: u64,
    /// They ask for what there is, and know of nothing that they could have missed.
    from_start: bool,
    /// What they know is of another run.
    other_run: bool,
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    units::utc(since.unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::control::Progress;

    fn kept(events: &Events, after: Option<&str>) -> Vec<EventView> {
        let ask = EventsAsk {
            after: after.map(str::to_owned),
            follow: false,
        };
        match events.answer(&ask, &()) {
            View::Events(view) => view.events,
            other => panic!("{other:?}"),
        }
    }

    fn ids(events: &[EventView]) -> Vec<&str> {
        events.iter().map(|event| &*event.id).collect()
    }

    #[test]
    fn who_comes_back_gets_what_is_kept_and_is_told_what_is_not() {
        let events = Events::new(4);
        for number in 2..=5 {
            events.add(EventKind::Changed, "volume v", &number.to_string());
        }
        assert_eq!(
            ids(&kept(&events, None)),
            ["4-1", "4-2", "4-3", "4-4", "4-5"]
        );
        assert_eq!(ids(&kept(&events, Some("4-3"))), ["4-4", "4-5"]);
        assert_eq!(ids(&kept(&events, Some("4-5"))), [""; 0]);
        for other in ["3-2", "4-6", "x", "4-", "-", "4-18446744073709551616"] {
            let all = kept(&events, Some(other));
            assert_eq!(
                (all[0].kind, all[0].missed),
                (EventKind::Missed, None),
                "{other}"
            );
            assert_eq!(all.len(), 6, "{other}");
        }
        for _ in 0..KEPT {
            events.add(EventKind::Changed, "volume v", "again");
        }
        let all = kept(&events, Some("4-2"));
        assert_eq!((all[0].kind, all[0].missed), (EventKind::Missed, Some(3)));
        // Whoever goes on from there misses nothing more.
        assert_eq!((&*all[0].id, &*all[1].id), ("4-5", "4-6"));
        assert_eq!(all.len(), KEPT + 1);
        assert_eq!(kept(&events, None).len(), KEPT);
        assert_eq!(kept(&events, Some(&all[0].id)).len(), KEPT);
    }

    /// One that takes an event when the test lets it.
    struct Slow(mpsc::Sender<EventView>, Mutex<mpsc::Receiver<()>>);

    impl Asker for Slow {
        fn is_gone(&self) -> bool {
            false
        }

        fn tell(&self, _: Progress) {}

        fn send(&self, event: Option<EventView>) -> bool {
            let Some(event) = event else { return true };
            let may = self.1.lock().expect("not poisoned").recv();
            may.is_ok() && self.0.send(event).is_ok()
        }
    }

    #[test]
    fn a_slow_reader_holds_nobody_up_and_is_told_what_it_missed() {
        let events = Events::new(1);
        let (send, got) = mpsc::channel();
        let (let_go, may) = mpsc::channel();
        thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let ask = EventsAsk {
                    follow: true,
                    ..EventsAsk::default()
                };
                events.answer(&ask, &Slow(send, Mutex::new(may)))
            });
            let take = || {
                let_go.send(()).expect("it follows");
                got.recv().expect("it follows")
            };
            assert_eq!(take().kind, EventKind::Started);
            events.add(EventKind::Changed, "volume v", "seen");
            assert_eq!(take().detail, "seen");
            // It has one of these in its hands; nobody waits for it.
            let many = KEPT as u64 + 10;
            for _ in 0..many {
                events.add(EventKind::Changed, "volume v", "unseen");
            }
            let (mut seen, mut missed) = (0, 0);
            while seen + missed < many {
                match take() {
                    EventView {
                        kind: EventKind::Missed,
                        missed: Some(count),
                        ..
                    } => missed += count,
                    _ => seen += 1,
                }
            }
            assert_eq!(seen + missed, many);
            events.close();
            assert!(matches!(follower.join().expect("it ends"), View::Done));
        });
    }
}
