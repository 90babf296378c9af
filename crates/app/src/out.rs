//! Standard output. Whoever reads it may leave before the end, as `| head` does: that is no
//! failure, and ends the program quietly.

use std::fmt;
use std::io::{self, Write};
use std::process;

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
    let _ = writeln!(io::stderr(), "flashyard: {text}");
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
