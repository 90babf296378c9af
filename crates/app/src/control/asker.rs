//! Whoever has asked for something that takes long: they may go away, and want to know how far it
//! is.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use super::{Answer, answer};

/// How far something is that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Parts that are done.
    pub done: u32,
    /// All parts.
    pub of: u32,
}

/// Whoever has asked for something, while it is done.
pub trait Asker {
    /// Whether no client waits for the answer any more.
    fn is_gone(&self) -> bool;
    /// Tells how far it is.
    fn tell(&self, progress: Progress);
}

/// One that waits for the answer and for nothing else.
impl Asker for () {
    fn is_gone(&self) -> bool {
        false
    }

    fn tell(&self, _: Progress) {}
}

/// A client that waits for an answer.
pub(super) struct Client<'a, 's> {
    stream: &'s UnixStream,
    reader: RefCell<&'a mut BufReader<&'s UnixStream>>,
}

impl<'a, 's> Client<'a, 's> {
    pub(super) fn new(stream: &'s UnixStream, reader: &'a mut BufReader<&'s UnixStream>) -> Self {
        let reader = RefCell::new(reader);
        Self { stream, reader }
    }
}

impl Asker for Client<'_, '_> {
    /// A client that sends nothing more has gone: it would keep its end open to be answered.
    fn is_gone(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        // What it has sent meanwhile stays where it is, for later.
        let gone = match self.reader.borrow_mut().fill_buf() {
            Ok(sent) => sent.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        gone || self.stream.set_nonblocking(false).is_err()
    }

    fn tell(&self, progress: Progress) {
        // One that does not hear it has gone.
        let _ = answer(self.stream, &Answer::<()>::Progress(progress));
    }
}
