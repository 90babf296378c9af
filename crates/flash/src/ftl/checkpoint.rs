//! Checkpoints: the map and the table of lines, written piece by piece while everything goes on.
//!
//! Pages are composed when they are written: the map may be newer than the beginning of the
//! checkpoint, never older. Each page is written twice; a root, also twice, makes the checkpoint
//! complete when all pages are durable.

use alloc::vec::Vec;

use super::lines::{Stream, Use};
use super::open_chunks::Item;
use super::stamp::{LATER, LINES_PER_PAGE, PageWriter, SETTLED, UNITS_PER_PAGE, VERSION};
use super::{Ftl, State};

/// Copies of each page.
const COPIES: u32 = 2;
/// The part of the capacity that is written between two checkpoints.
const INTERVAL: u32 = 4;
/// Vectors that are written at least between two checkpoints.
const LEAST_VECTORS: u32 = 256;
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// The newest complete one, from 1.
    complete: u64,
    /// The newest that was ever begun: pages of two attempts must not bear the same number.
    begun: u64,
    running: Option<Run>,
    /// One of at least this generation is wanted.
    wanted: u64,
    /// Units written since one began.
    written: u32,
    /// No other has been completed in this life: until then nothing else is written.
    later: bool,
}

#[derive(Debug)]
struct Run {
    generation: u64,
    /// What the host wrote up to this sequence had taken effect when it began.
    applied: u64,
    /// Serial number of each line, with how often it was erased and [`SETTLED`].
    table: Vec<(u32, u32)>,
    /// Pages queued, all copies counted.
    queued: u32,
    /// Of what is queued, what is not durable.
    unsettled: u32,
    root: bool,
}

impl Run {
    /// What a page says of itself: its checkpoint, and which writes of the host are in it, counted
    /// from those that had taken effect when the checkpoint began. More than can be said are not
    /// said: they are found anyway.
    fn word(&self, applied: u64) -> u64 {
        let since = applied.saturating_sub(self.applied).min(LATER);
        since << 32 | self.generation & LATER
    }
}

impl Checkpoint {
    /// Whether nothing but a checkpoint may be written, for want of a complete one.
    pub fn is_first(&self) -> bool {
        !self.later
    }

    /// The newest complete one.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// The newest that was begun: the one that is being written, if one is.
    pub fn generation(&self) -> u64 {
        self.begun
    }

    /// The one that begins next.
    pub fn next_generation(&self) -> u64 {
        self.begun + 1
    }

    /// Has one written that begins after now. Its generation.
    pub fn request(&mut self) -> u64 {
        self.wanted = self.next_generation();
        self.wanted
    }

    /// Has one of at least this generation written.
    pub fn want(&mut self, generation: u64) {
        self.wanted = self.wanted.max(generation);
    }

    /// Recovery has found the newest complete one, and others that were begun after it.
    pub fn resume(&mut self, complete: u64, begun: u64) {
        (self.complete, self.begun) = (complete, begun.max(complete));
        self.request();
    }

    pub fn is_due(&self) -> bool {
        self.running.is_some() || self.wanted > self.complete
    }

    pub fn give_up(&mut self) {
        self.running = None;
        self.wanted = self.complete;
    }

    /// Units were written.
    pub fn count(&mut self, units: u32) {
        self.written = self.written.saturating_add(units);
    }

    /// A page or root is durable.
    pub fn settle(&mut self) {
        if let Some(run) = &mut self.running {
            run.unsettled = run.unsettled.saturating_sub(1);
        }
    }
}

impl Ftl {
    /// Begins, continues or completes a checkpoint.
    pub(super) fn advance_checkpoint(&mut self) {
        if self.checkpoint.running.is_none() {
            let interval = (self.layout.logical / INTERVAL).max(LEAST_VECTORS * self.layout.grain);
            let due = self.checkpoint.is_due() || self.checkpoint.written >= interval;
            if !due || !self.may_begin() {
                return;
            }
            self.begin_checkpoint();
        }
        loop {
            self.queue_pages();
            let ends = self.checkpoint.running.as_ref();
            let ends = ends.is_some_and(|run| run.queued == self.layout.pages() * COPIES);
            let queued = self.writers[Stream::Checkpoint as usize].queue.len();
            self.write(Stream::Checkpoint, ends);
            if self.writers[Stream::Checkpoint as usize].queue.len() == queued {
                break;
            }
        }
        self.complete_if_durable();
    }

    /// Whether a checkpoint is wanted and finds no room in the line that was written last.
    pub(super) fn checkpoint_needs_line(&self) -> bool {
        let needed = self.layout.checkpoint_units(self.layout.logical);
        self.checkpoint.is_due() && self.writers[Stream::Checkpoint as usize].room < needed
    }

    /// A format erases everything first.
    fn may_begin(&self) -> bool {
        if self.state != State::Formatting {
            return true;
        }
        self.lines
            .iter()
            .all(|(_, line)| matches!(line.state, Use::Free | Use::Dead))
    }

    fn begin_checkpoint(&mut self) {
        let needed = self.layout.checkpoint_units(self.layout.logical);
        if self.writers[Stream::Checkpoint as usize].room < needed {
            self.leave_line(Stream::Checkpoint);
        }
        let table = self.lines.iter().map(|(_, line)| {
            let settled = matches!(line.state, Use::Closed | Use::Victim);
            let serial = match line.state {
                Use::Free | Use::Dead | Use::Erasing => 0,
                _ => line.serial,
            };
            (serial, line.erases | if settled { SETTLED } else { 0 })
        });
        let run = Run {
            generation: self.checkpoint.next_generation(),
            applied: self.applied(),
            table: table.collect(),
            queued: 0,
            unsettled: 0,
            root: false,
        };
        self.checkpoint.begun = run.generation;
        self.checkpoint.running = Some(run);
        self.checkpoint.written = 0;
    }

    /// What the host wrote up to this sequence has taken effect on the map, and nothing after it.
    fn applied(&self) -> u64 {
        self.buffer.first_sequence().unwrap_or(self.sequence) - 1
    }

    /// Queues pages, some at a time, and the root when all are durable.
    fn queue_pages(&mut self) {
        let pages = self.layout.pages();
        let queue = &mut self.writers[Stream::Checkpoint as usize].queue;
        let Some(run) = &mut self.checkpoint.running else {
            return;
        };
        while run.queued < pages * COPIES && (queue.len() as u32) < self.layout.grain {
            queue.push_back(Item::Page(run.queued % pages));
            run.queued += 1;
            run.unsettled += 1;
        }
        if run.queued == pages * COPIES && run.unsettled == 0 && !run.root {
            queue.extend([Item::Root; COPIES as usize]);
            run.unsettled = COPIES;
            run.root = true;
        }
    }

    fn complete_if_durable(&mut self) {
        let run = self
            .checkpoint
            .running
            .take_if(|run| run.root && run.unsettled == 0);
        let Some(run) = run else {
            return;
        };
        self.checkpoint.complete = run.generation;
        self.checkpoint.later = true;
        self.stats.checkpoints += 1;
        if self.state == State::Formatting {
            self.state = State::Ready;
        }
        self.sweep();
        self.answer_stops(run.generation);
        self.check_spare();
    }

    /// Writes a page of the checkpoint that is being written.
    pub(super) fn write_page(&self, number: u32, mut page: PageWriter<'_>, unit: u32) {
        let Some(run) = &self.checkpoint.running else {
            return;
        };
        let maps = self.layout.map_pages();
        if number < maps {
            let first = number * UNITS_PER_PAGE;
            for logical in first..(first + UNITS_PER_PAGE).min(self.layout.logical) {
                page.put_u32(self.map.durable(&self.buffer, logical));
            }
        } else {
            let first = ((number - maps) * LINES_PER_PAGE) as usize;
            let lines = run.table.iter().skip(first).take(LINES_PER_PAGE as usize);
            for &(serial, flags) in lines {
                page.put_u32(serial);
                page.put_u32(flags);
            }
        }
        page.seal(self.key, run.word(self.applied()), unit);
    }

    /// Writes the page that makes the checkpoint complete.
    pub(super) fn write_root(&self, mut page: PageWriter<'_>, unit: u32) {
        let Some(run) = &self.checkpoint.running else {
            return;
        };
        page.put_u32(VERSION);
        page.put_u32(self.layout.width);
        page.put_u32(self.layout.lines);
        page.put_u32(self.layout.chunk_units);
        page.put_u32(self.layout.logical);
        page.put_u32(self.lines.next_serial());
        page.put_u64(run.applied);
        page.put_u64(self.sequence);
        page.seal(self.key, run.generation, unit);
    }

    /// Bytes that the FTL keeps of every unit and line.
    pub(super) fn tables_bytes(&self) -> u64 {
        let table = self
            .checkpoint
            .running
            .as_ref()
            .map_or(0, |run| run.table.len() * 8);
        self.map.bytes() + self.lines.bytes() + table as u64
    }
}
