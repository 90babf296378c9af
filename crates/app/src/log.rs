//! The log of a target: what happens, a line each, on standard error, as text or JSON. It reads the
//! events as any client that follows them does, so a standard error that nobody reads holds nobody
//! up. Many lines of one kind within a short time are counted instead, lest a host that is refused
//! again and again fills a disk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use crate::control::{Asker, EventKind, EventView, Level, Progress, SlowIoView};
use crate::out;

/// Of one kind so many lines are written in each of these spans.
const LINES: u32 = 50;
const SPAN: Duration = Duration::from_secs(10);

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// Only what somebody has to know of
    Off,
    /// Also what happens, as text
    Text,
    /// The same as JSON, an object in a line
    Json,
}

/// A line for programs.
#[derive(Serialize)]
pub struct Line<'a> {
    pub at: &'a str,
    pub level: &'static str,
    pub kind: &'a str,
    pub id: Option<&'a str>,
    pub what: &'a str,
    pub detail: &'a str,
    /// Of slow I/Os: the slowest.
    pub slow: Option<&'a SlowIoView>,
}

/// Writes the log.
pub struct Log {
    form: LogForm,
    /// What is less urgent is not written.
    level: Level,
    spans: RefCell<BTreeMap<&'static str, Span>>,
}

/// What was written of a kind since a moment.
#[derive(Debug)]
struct Span {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Span {
    fn new(began: Instant) -> Self {
        Self {
            began,
            lines: 0,
            left_out: 0,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= SPAN
    }

    /// Counts one more; whether it is written.
    fn admit(&mut self) -> bool {
        let is_written = self.lines < LINES;
        match is_written {
            true => self.lines += 1,
            false => self.left_out += 1,
        }
        is_written
    }
}

/// The same bound for something of one kind that is written elsewhere.
#[derive(Debug, Default)]
pub struct Bounded(Option<Span>);

impl Bounded {
    /// Whether one more is written, and how many were not in the span before.
    pub fn admit(&mut self, now: Instant) -> (bool, u64) {
        let over = self.0.take_if(|span| span.is_over(now));
        let span = self.0.get_or_insert_with(|| Span::new(now));
        (span.admit(), over.map_or(0, |span| span.left_out))
    }
}

impl Log {
    /// One of this form, for what is at least so urgent.
    pub fn new(form: LogForm, level: Level) -> Self {
        Self {
            form,
            level,
            spans: RefCell::default(),
        }
    }

    /// Whether an event is written, and how many of which kinds were not before it.
    fn admit(&self, now: Instant, kind: Option<EventKind>) -> (bool, Vec<(&'static str, u64)>) {
        let mut spans = self.spans.borrow_mut();
        let over = spans.iter().filter(|(_, span)| span.is_over(now));
        let left_out = over.filter(|(_, span)| span.left_out > 0);
        let left_out = left_out
            .map(|(kind, span)| (*kind, span.left_out))
            .collect();
        spans.retain(|_, span| !span.is_over(now));
        let Some(kind) = kind else {
            return (false, left_out);
        };
        let span = spans.entry(kind.name());
        let is_written = span.or_insert_with(|| Span::new(now)).admit();
        (is_written, left_out)
    }

    fn write(&self, event: &EventView) {
        let EventView {
            at, what, detail, ..
        } = event;
        let kind = event.kind.name();
        match self.form {
            LogForm::Off => {}
            LogForm::Text => out::note(format_args!("{at} {kind} {what}: {detail}")),
            LogForm::Json => out::line_of_log(&Line {
                at,
                level: event.level.name(),
                kind,
                id: Some(&event.id),
                what,
                detail,
                slow: event.slow.as_ref(),
            }),
        }
    }
}

impl Asker for Log {
    fn is_gone(&self) -> bool {
        false
    }

    fn tell(&self, _: Progress) {}

    fn send(&self, event: Option<EventView>) -> bool {
        let event = event.filter(|event| event.level <= self.level);
        let (is_written, left_out) = self.admit(Instant::now(), event.as_ref().map(|it| it.kind));
        for (kind, count) in left_out {
            out::note(format_args!(
                "{count} events `{kind}` more than are logged in {SPAN:?}"
            ));
        }
        if let Some(event) = event.filter(|_| is_written) {
            self.write(&event);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_a_kind_are_counted_and_others_are_written() {
        let (log, start) = (Log::new(LogForm::Text, Level::Info), Instant::now());
        let admit = |after: u64, kind| log.admit(start + Duration::from_secs(after), kind);
        for _ in 0..LINES {
            assert_eq!(admit(0, Some(EventKind::Refused)), (true, Vec::new()));
        }
        for second in 0..9 {
            assert_eq!(admit(second, Some(EventKind::Refused)), (false, Vec::new()));
        }
        assert_eq!(admit(9, Some(EventKind::Changed)), (true, Vec::new()));
        let after = admit(10, Some(EventKind::Refused));
        assert_eq!(after, (true, vec![("refused", 9)]));
        // What is left out is told of, though nothing happens any more.
        for _ in 0..=LINES {
            admit(11, Some(EventKind::Refused));
        }
        assert_eq!(admit(19, None), (false, Vec::new()));
        assert_eq!(admit(20, None), (false, vec![("refused", 2)]));
        assert_eq!(admit(40, None), (false, Vec::new()));
    }
}
