//! What all commands share that watch a running target until somebody ends them: they ask again and
//! again, wait for a target that is away in the middle, and end at a signal.

use std::process;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::api::{self, AskError, Place};
use crate::control::{ErrorKind, EventView, Request};
use crate::failure::{Failure, System};

/// How often a target that is away is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// A target that is watched.
pub struct Watched {
    place: Place,
    end: Receiver<()>,
    /// It has answered before: if it is away now, it is waited for.
    seen: bool,
    away: bool,
}

/// What a target that is watched says.
pub enum Said<T> {
    Answer(T),
    /// Somebody wants the end.
    Ended,
}

impl Watched {
    /// The target at this place. From now on a signal ends what goes on in good order,
    /// and the second one at once.
    pub fn new(place: Place) -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(System::Signals)?;
        let (send, end) = mpsc::channel();
        thread::spawn(move || {
            for signal in signals.forever() {
                if send.send(()).is_err() {
                    process::exit(128 + signal);
                }
            }
        });
        Ok(Self {
            place,
            end,
            seen: false,
            away: false,
        })
    }

    /// Asks; waits for a target that has answered before and is away, and says so on standard
    /// error.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Said<T>, Failure> {
        loop {
            match self.try_ask(request) {
                Ok(Some(answer)) => return Ok(Said::Answer(answer)),
                Ok(None) if self.pause(LOOK) => return Ok(Said::Ended),
                Ok(None) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Has `take` take each event from the one after `after` on, and connects again where the
    /// target was away.
    pub fn follow(
        &mut self,
        after: Option<String>,
        mut take: impl FnMut(EventView),
    ) -> Result<(), Failure> {
        let mut last = after;
        loop {
            let place = self.place.clone();
            let outcome = api::follow(&place, last.clone(), |event| {
                self.is_back();
                if let Some(event) = event {
                    last = Some(event.id.clone());
                    take(event);
                }
                !self.pause(Duration::ZERO)
            });
            match outcome {
                Ok(()) => return Ok(()),
                Err(error) if self.seen && is_away(&error) => self.is_away(&error),
                Err(error) => return Err(error.into()),
            }
            if self.pause(LOOK) {
                return Ok(());
            }
        }
    }

    /// Asks once; nothing from a target that is away.
    fn try_ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Option<T>, AskError> {
        match api::ask(&self.place, request) {
            Ok(answer) => {
                self.is_back();
                Ok(Some(answer))
            }
            Err(error) if self.seen && is_away(&error) => {
                self.is_away(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// It has answered.
    fn is_back(&mut self) {
        if self.away {
            eprintln!("flashyard: the target is back");
        }
        (self.seen, self.away) = (true, false);
    }

    /// It does not answer.
    fn is_away(&mut self, error: &AskError) {
        if !self.away {
            eprintln!("flashyard: the target is away, and waited for: {error}");
        }
        self.away = true;
    }

    /// Waits; whether somebody wants the end.
    fn pause(&self, span: Duration) -> bool {
        self.end.recv_timeout(span) != Err(RecvTimeoutError::Timeout)
    }

    /// The same until an instant.
    pub fn pause_until(&self, at: Instant) -> bool {
        self.pause(at.saturating_duration_since(Instant::now()))
    }
}

/// Whether a target that could not be asked may come back.
pub fn is_away(error: &AskError) -> bool {
    match error {
        AskError::NoTarget(_)
        | AskError::Unreachable(..)
        | AskError::Tls(..)
        | AskError::Lost(_) => true,
        AskError::Refused(problem) => problem.code == ErrorKind::Unavailable,
        AskError::TooLong | AskError::NotUnderstood(_) => false,
    }
}
