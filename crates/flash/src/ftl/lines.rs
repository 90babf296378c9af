//! Lines: one chunk of each parallel unit, filled and erased together.

use alloc::vec;
use alloc::vec::Vec;

use super::layout::Layout;
use super::options::Choice;

/// What a line without valid units scores as a victim, divided by its age where age counts.
const SCALE: u64 = 1 << 20;

/// What is written to lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// What the host writes.
    Host = 0,
    /// What garbage collection moves.
    Moved = 1,
    /// Checkpoints.
    Checkpoint = 2,
}

pub(super) const STREAMS: [Stream; 3] = [Stream::Host, Stream::Moved, Stream::Checkpoint];

/// What a line is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// Being written, or not all of it in effect.
    Open,
    Closed,
    /// Being collected.
    Victim,
    Erasing,
    /// No good chunk is left.
    Dead,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub state: Use,
    pub stream: Stream,
    /// Counts openings of lines; what is written in it bears it.
    pub serial: u32,
    pub erases: u32,
    /// No more is placed in it.
    pub left: bool,
    /// Its chunks that are being written.
    pub open_chunks: u32,
    /// Units placed in it that are not in effect yet.
    pub unsettled: u32,
    /// Reads in flight.
    pub readers: u32,
    /// It may be erased when the checkpoint of this generation is complete: until then it has
    /// tombstones that are needed.
    pub needed_until: u64,
    /// The newest checkpoint that has pages in it; of those that recovery found, the one it used,
    /// or 0.
    pub generation: u64,
    /// It is to be collected soon: a write failed, or a power cut left it unfinished.
    pub suspect: bool,
    /// Good chunks.
    pub good: u32,
}

impl Line {
    /// Whether it may be collected when the checkpoint `complete` is the newest.
    fn is_collectable(&self, complete: u64) -> bool {
        self.state == Use::Closed
            && self.stream != Stream::Checkpoint
            && self.needed_until <= complete
    }
}

#[derive(Debug)]
pub(super) struct Lines {
    all: Vec<Line>,
    /// Of each chunk: it is bad, it is not erased.
    bad: Vec<bool>,
    used: Vec<bool>,
    free: u32,
    width: u32,
    chunk_units: u32,
    next_serial: u32,
}

impl Lines {
    pub fn new(layout: &Layout) -> Self {
        let line = Line {
            state: Use::Free,
            stream: Stream::Host,
            serial: 0,
            erases: 0,
            left: false,
            open_chunks: 0,
            unsettled: 0,
            readers: 0,
            needed_until: 0,
            generation: 0,
            suspect: false,
            good: layout.width,
        };
        Self {
            all: vec![line; layout.lines as usize],
            bad: vec![false; layout.chunks() as usize],
            used: vec![false; layout.chunks() as usize],
            free: layout.lines,
            width: layout.width,
            chunk_units: layout.chunk_units,
            next_serial: 1,
        }
    }

    pub fn get(&self, line: u32) -> &Line {
        &self.all[line as usize]
    }

    pub fn get_mut(&mut self, line: u32) -> &mut Line {
        &mut self.all[line as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Line)> {
        (0..).zip(&self.all)
    }

    /// Lines that can be opened.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Units of all good chunks.
    pub fn good_units(&self) -> u32 {
        let good: u32 = self.all.iter().map(|line| line.good).sum();
        good * self.chunk_units
    }

    /// Units of the good chunks of a line.
    pub fn capacity(&self, line: u32) -> u32 {
        self.get(line).good * self.chunk_units
    }

    pub fn is_bad(&self, chunk: u32) -> bool {
        self.bad[chunk as usize]
    }

    pub fn is_used(&self, chunk: u32) -> bool {
        self.used[chunk as usize]
    }

    /// Something was written into a chunk.
    pub fn set_used(&mut self, chunk: u32) {
        self.used[chunk as usize] = true;
    }

    /// A chunk leaves use.
    pub fn set_bad(&mut self, chunk: u32) {
        if core::mem::replace(&mut self.bad[chunk as usize], true) {
            return;
        }
        self.used[chunk as usize] = false;
        let line = &mut self.all[(chunk / self.width) as usize];
        line.good -= 1;
        if line.good == 0 && line.state == Use::Free {
            line.state = Use::Dead;
            self.free -= 1;
        }
    }

    /// Serial numbers begin above `serial`.
    pub fn begin_serials(&mut self, serial: u32) {
        self.next_serial = serial + 1;
    }

    pub fn next_serial(&self) -> u32 {
        self.next_serial
    }

    /// Opens a free line for a stream: the least worn one, for what is moved the most worn one,
    /// since it is cold.
    pub fn open(&mut self, stream: Stream) -> Option<u32> {
        let free = self.iter().filter(|(_, line)| line.state == Use::Free);
        let (number, _) = match stream {
            Stream::Moved => free.max_by_key(|(number, line)| (line.erases, u32::MAX - number)),
            _ => free.min_by_key(|(_, line)| line.erases),
        }?;
        let serial = self.next_serial;
        self.next_serial += 1;
        self.free -= 1;
        let line = self.get_mut(number);
        (line.state, line.stream, line.serial) = (Use::Open, stream, serial);
        (line.left, line.suspect) = (false, false);
        (line.needed_until, line.generation) = (0, 0);
        Some(number)
    }

    /// Says what a line is that was found by recovery.
    pub fn restore(&mut self, number: u32, stream: Stream, serial: u32, suspect: bool) {
        let line = self.get_mut(number);
        if line.state == Use::Free {
            self.free -= 1;
        }
        let line = self.get_mut(number);
        (line.state, line.stream, line.serial) = (Use::Closed, stream, serial);
        (line.left, line.suspect) = (true, suspect);
    }

    /// Closes a line when nothing more happens to it.
    pub fn close_if_done(&mut self, number: u32) {
        let line = self.get_mut(number);
        let done = line.left && line.open_chunks == 0 && line.unsettled == 0;
        if done && line.state == Use::Open {
            line.state = Use::Closed;
        }
    }

    /// A line is erased.
    pub fn erased(&mut self, number: u32) {
        let chunks = (number * self.width) as usize..((number + 1) * self.width) as usize;
        self.used[chunks].fill(false);
        let line = &mut self.all[number as usize];
        line.erases += 1;
        line.suspect = false;
        line.state = if line.good == 0 { Use::Dead } else { Use::Free };
        self.free += u32::from(line.good > 0);
    }

    /// The line to collect next, of those that gain anything and whose tombstones are not needed by
    /// then.
    pub fn victim(&self, valid: &[u32], choice: Choice, complete: u64) -> Option<u32> {
        let candidates = self.iter().filter(|(number, line)| {
            line.is_collectable(complete)
                && (valid[*number as usize] < self.capacity(*number) || line.suspect)
        });
        let score = |number: u32, line: &Line| {
            let (valid, units) = (valid[number as usize], self.capacity(number));
            let age = u64::from(self.next_serial - line.serial);
            let won = u64::from(units - valid) * SCALE;
            let score = match choice {
                Choice::Greedy => won / u64::from(units.max(1)),
                Choice::CostBenefit => won * age / u64::from(units + valid).max(1),
            };
            score + if line.suspect { SCALE / 2 } else { 0 }
        };
        candidates
            .max_by_key(|(number, line)| (score(*number, line), u32::MAX - number))
            .map(|(number, _)| number)
    }

    /// The least worn closed line, if `spread` erases or more lie between it and the most worn one.
    pub fn coldest(&self, spread: u32, complete: u64) -> Option<u32> {
        let most = self.all.iter().map(|line| line.erases).max()?;
        self.iter()
            .filter(|(_, line)| line.is_collectable(complete))
            .min_by_key(|(_, line)| line.erases)
            .filter(|(_, line)| most - line.erases >= spread.max(1))
            .map(|(number, _)| number)
    }

    /// The first checkpoint that lines wait for to be collected.
    pub fn awaited(&self, complete: u64) -> Option<u64> {
        let closed = self
            .all
            .iter()
            .filter(|line| line.state == Use::Closed && line.stream != Stream::Checkpoint);
        let needed = closed.map(|line| line.needed_until);
        needed.filter(|&generation| generation > complete).min()
    }

    pub fn bytes(&self) -> u64 {
        (self.all.len() * size_of::<Line>() + 2 * self.bad.len()) as u64
    }
}
