//! The thread that asks the target, so that keys are heard while that takes its time: two requests
//! for a look, and a third one while somebody looks at a `why`.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::figures::Look;
use super::model::Input;
use crate::api::{self, AskError, Place};
use crate::control::{ActivityView, Page, Request, TrafficView, WhyView};
use crate::why::why_text;

/// How often a target that is away is looked for.
const AWAY: Duration = Duration::from_millis(500);

/// What it is told.
#[derive(Debug)]
pub(super) enum Told {
    /// This many seconds between looks.
    Interval(f64),
    /// No looks, or looks again.
    Paused(bool),
    /// What `why` says of this tenant, now and with each look; or no more of it.
    Why(Option<String>),
}

/// Looks at a target.
pub(super) fn look(place: &Place) -> Result<Look, AskError> {
    Ok(Look {
        traffic: api::ask::<TrafficView>(place, &Request::Traffic(Page::default()))?,
        activity: api::ask::<ActivityView>(place, &Request::Activity(Page::default()))?,
    })
}

/// Begins to look at a target again and again, and gives what that finds to `found`, all of a look
/// at once; the first look is after one interval. It ends with who tells it.
pub(super) fn begin(
    place: Place,
    interval: f64,
    found: impl Fn(Vec<Input>) + Send + 'static,
) -> Sender<Told> {
    let (tell, told) = mpsc::channel();
    let mut asking = Asking {
        place,
        every: Duration::from_secs_f64(interval),
        paused: false,
        away: false,
        why: None,
        found,
    };
    thread::spawn(move || asking.go_on(&told));
    tell
}

struct Asking<F> {
    place: Place,
    every: Duration,
    paused: bool,
    away: bool,
    why: Option<String>,
    found: F,
}

impl<F: Fn(Vec<Input>)> Asking<F> {
    fn go_on(&mut self, told: &Receiver<Told>) {
        let mut last = Instant::now();
        loop {
            let pause = if self.away {
                self.every.min(AWAY)
            } else {
                self.every
            };
            let left = (last + pause).saturating_duration_since(Instant::now());
            let word = match self.paused {
                true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => told.recv_timeout(left),
            };
            match word {
                Ok(Told::Interval(seconds)) => self.every = Duration::from_secs_f64(seconds),
                Ok(Told::Paused(paused)) => self.paused = paused,
                Ok(Told::Why(tenant)) => {
                    self.why = tenant;
                    (self.found)(self.ask_why().into_iter().collect());
                }
                Err(RecvTimeoutError::Timeout) => {
                    last = Instant::now();
                    self.look();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self) {
        let looked = look(&self.place);
        self.away = looked.is_err();
        (self.found)(match looked {
            Ok(look) => {
                let look = Input::Look(Box::new(look));
                [look].into_iter().chain(self.ask_why()).collect()
            }
            Err(error) => vec![Input::Away(error.to_string())],
        });
    }

    /// What `why` says, while somebody looks at that.
    fn ask_why(&self) -> Option<Input> {
        let tenant = self.why.clone()?;
        let request = Request::Why {
            tenant: tenant.clone(),
        };
        let answer = api::ask::<WhyView>(&self.place, &request);
        let text = answer.map(|why| why_text(&why));
        let text = text.map_err(|error| error.to_string());
        Some(Input::Why(tenant, text))
    }
}
