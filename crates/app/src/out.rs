//! Standard output. Whoever reads it may leave before the end, as `| head` does: that is no
//! failure, and ends the program quietly.

use std::fmt;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::log::Line;
use crate::units;

/// Standard error is for programs.
static NOTES_AS_JSON: AtomicBool = AtomicBool::new(false);

/// Prints.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::out::write(format_args!($($text)*), "")
    };
}

/// Prints a line.
macro_rules! say_line {
    () => {
        $crate::out::write(format_args!(""), "\n")
    };
    ($($text:tt)*) => {
        $crate::out::write(format_args!($($text)*), "\n")
    };
}

pub(crate) use {say, say_line};

/// Writes a line for whoever looks after the program. That nobody reads it is no failure: a target
/// goes on when its terminal is gone.
pub fn note(text: fmt::Arguments<'_>) {
    if !NOTES_AS_JSON.load(Ordering::Relaxed) {
        let _ = writeln!(io::stderr(), "flashyard: {text}");
        return;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    line_of_log(&Line {
        at: &units::utc(since.unwrap_or_default().as_secs()),
        level: "notice",
        kind: "notice",
        id: None,
        what: "target",
        detail: &text.to_string(),
        slow: None,
    });
}

/// Has notes be lines of the log for programs from now on.
pub fn write_notes_as_json() {
    NOTES_AS_JSON.store(true, Ordering::Relaxed);
}

/// Writes a line of the log for programs; likewise no failure when nobody reads it.
pub fn line_of_log(line: &Line<'_>) {
    let line = serde_json::to_string(line).expect("a line is plain data");
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a line of a target to standard output. It goes on when nobody reads that.
pub fn report(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Writes `text` and `end`.
pub fn write(text: fmt::Arguments<'_>, end: &str) {
    let mut out = io::stdout().lock();
    let written = out
        .write_fmt(text)
        .and_then(|()| out.write_all(end.as_bytes()));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("flashyard: cannot write the output: {error}");
            process::exit(1);
        }
    }
}
