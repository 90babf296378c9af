//! `flashyard top`: what tenants are promised, want and get, and who makes them wait, on the whole
//! terminal. What is shown is decided by `model.rs` and drawn by `draw.rs`, which know neither a
//! terminal nor a target; here these are brought together.

mod ask;
mod blame;
mod column;
mod draw;
mod figures;
mod keys;
mod layout;
mod model;
mod once;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::io::{self, IsTerminal};
use std::process;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ratatui_crossterm::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::TopArgs;
use crate::commands::place;
use crate::failure::{Failure, Invalid, System};
use ask::Told;
use draw::Palette;
use model::{Input, Model, Wanted};
pub use tables::Tab;
use terminal::Screen;

/// A target that has not answered for so much longer than it should is shown as away.
const PATIENCE: Duration = Duration::from_secs(4);

/// What happens.
enum Happened {
    /// To the model, all of a moment.
    Inputs(Vec<Input>),
    /// The terminal has another size.
    Resized,
    /// Somebody wants the end.
    Ended,
    /// The terminal tells of no keys any more.
    Deaf(io::Error),
}

/// Draws until somebody ends it, or prints one table.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let columns = args.tab.columns();
    let sort = args.sort.as_deref();
    let sort = sort.map(|typed| {
        let found = columns.iter().position(|column| column.is_called(typed));
        found.ok_or_else(|| {
            let known = columns.iter().map(|column| column.key).collect();
            Invalid::NoColumn(args.tab.name(), typed.to_owned(), known)
        })
    });
    let sort = sort.transpose()?;
    let place = place(&args.reach)?;
    if args.once {
        return once::run(&place, args, sort);
    }
    if args.reach.json {
        return Err(Invalid::JsonOfScreen.into());
    }
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    if !io::stdout().is_terminal() || is_dumb {
        return Err(Invalid::NoTerminal.into());
    }
    // One that is not there is no reason to take the terminal.
    let first = ask::look(&place)?;
    let mut model = begun(Box::new(first), args, sort);
    let (tell, happened) = mpsc::channel();
    tell_of_signals(tell.clone())?;
    let mut screen = Screen::open(palette()).map_err(System::Terminal)?;
    tell_of_keys(tell.clone());
    let asking = ask::begin(place, args.interval, move |inputs| {
        // Nobody listens at the very end.
        let _ = tell.send(Happened::Inputs(inputs));
    });
    go_on(&mut model, &mut screen, &happened, &asking)
}

/// What is shown at first.
fn begun(first: Box<figures::Look>, args: &TopArgs, sort: Option<usize>) -> Model {
    let mut model = Model::new(first, args.tab, args.interval);
    if let Some(sort) = sort {
        model.sort_by(sort);
    }
    if let Some(filter) = &args.filter {
        model.filter_by(filter);
    }
    model
}

/// Colours unless the environment says otherwise (<https://no-color.org>).
fn palette() -> Palette {
    let no_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Palette {
        colours: !no_colours,
    }
}

/// Draws what has happened, all that there is at a time at once.
fn go_on(
    model: &mut Model,
    screen: &mut Screen,
    happened: &Receiver<Happened>,
    asking: &Sender<Told>,
) -> Result<(), Failure> {
    loop {
        screen.show(model).map_err(System::Terminal)?;
        let silence = Duration::from_secs_f64(model.interval()) + PATIENCE;
        let mut next = match happened.recv_timeout(silence) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) => Some(Happened::Inputs(vec![Input::Silent])),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        while let Some(it) = next {
            match it {
                Happened::Inputs(inputs) => {
                    for input in inputs {
                        if let Doing::End = follow(model.take(input), asking) {
                            return Ok(());
                        }
                    }
                }
                Happened::Resized => {}
                Happened::Ended => return Ok(()),
                Happened::Deaf(error) => return Err(System::Terminal(error).into()),
            }
            next = happened.try_recv().ok();
        }
    }
}

/// Whether it goes on.
enum Doing {
    GoOn,
    End,
}

/// Has done what the model wants.
fn follow(wanted: Wanted, asking: &Sender<Told>) -> Doing {
    let told = match wanted {
        Wanted::Nothing => return Doing::GoOn,
        Wanted::End => return Doing::End,
        Wanted::Interval(seconds) => Told::Interval(seconds),
        Wanted::Paused(paused) => Told::Paused(paused),
        Wanted::Why(tenant) => Told::Why(tenant),
    };
    // It lives as long as it can be told something.
    let _ = asking.send(told);
    Doing::GoOn
}

/// A signal ends it in good order, and the second one at once: the first may wait for a terminal
/// that takes nothing.
fn tell_of_signals(tell: Sender<Happened>) -> Result<(), Failure> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(System::Signals)?;
    thread::spawn(move || {
        for (number, signal) in signals.forever().enumerate() {
            if number > 0 || tell.send(Happened::Ended).is_err() {
                process::exit(128 + signal);
            }
        }
    });
    Ok(())
}

fn tell_of_keys(tell: Sender<Happened>) {
    thread::spawn(move || {
        loop {
            let happened = match event::read() {
                Ok(Event::Key(key)) => {
                    let keys = keys::pressed(key).into_iter().map(Input::Key);
                    Some(Happened::Inputs(keys.collect()))
                }
                Ok(Event::Resize(..)) => Some(Happened::Resized),
                Ok(_) => None,
                Err(error) => Some(Happened::Deaf(error)),
            };
            let is_deaf = matches!(happened, Some(Happened::Deaf(_)));
            let sent = happened.map_or(Ok(()), |it| tell.send(it));
            if is_deaf || sent.is_err() {
                return;
            }
        }
    });
}
