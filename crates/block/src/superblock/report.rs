//! What is wrong with the copies, for the verification of a device.

use super::frame::{Content, Decoded};

/// The names of the copies.
pub const COPY_NAMES: [&str; 2] = ["first", "second"];

/// The state of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// Checksum, bounds and owners of space are right.
    pub whole: bool,
    /// Generation, when whole.
    pub generation: Option<u64>,
    /// In words.
    pub state: String,
}

impl<C: Content> From<&Decoded<C>> for CopyReport {
    fn from(copy: &Decoded<C>) -> Self {
        let generation = copy.generation();
        Self {
            whole: generation.is_some(),
            generation,
            state: copy.to_string(),
        }
    }
}

/// What has to be done about copies of which one can be used. Nothing of it is a loss: what was
/// acknowledged is in both, so it is in that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair<'a> {
    /// This copy is not usable, and why.
    Rewrite(&'static str, &'a str),
    /// One copy is older: a change was cut off.
    Older,
}

/// What has to be done about `copies` of which one can be used.
pub fn repairs(copies: &[CopyReport; 2]) -> Vec<Repair<'_>> {
    let named = copies.iter().zip(COPY_NAMES);
    let damaged = named.filter(|(copy, _)| !copy.whole);
    let mut repairs: Vec<Repair<'_>> = damaged
        .map(|(copy, name)| Repair::Rewrite(name, &copy.state))
        .collect();
    if repairs.is_empty() && copies[0].generation != copies[1].generation {
        repairs.push(Repair::Older);
    }
    repairs
}
