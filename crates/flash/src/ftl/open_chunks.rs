//! The lines that streams fill, and the chunks of them that are being written.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flashyard_time::Time;

use super::lines::Stream;

/// What is written into a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// What a slot of the buffer holds.
    Slot(u32),
    /// A page of the checkpoint that is being written.
    Page(u32),
    /// What makes it complete.
    Root,
}

/// A stream and the line it fills.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub line: Option<u32>,
    /// Its chunks, open or filled, and the one to write next.
    pub chunks: Vec<u32>,
    pub cursor: usize,
    /// What is to be written.
    pub queue: VecDeque<Item>,
    /// Units left in the line.
    pub room: u32,
}

/// A chunk that is being written, or holds back what is not durable.
#[derive(Debug)]
pub(super) struct OpenChunk {
    pub stream: Stream,
    pub chunk: u32,
    /// Where the next vector goes.
    pub next: u32,
    /// Sectors of complete writes, and one write completed before those in front of it.
    pub acknowledged: u32,
    pub early: Option<(u32, u32)>,
    pub writes: u32,
    pub failed: bool,
    /// A report was asked for, or is to be asked for at an instant.
    pub asked: bool,
    pub ask_at: Option<Time>,
    /// Sectors, and what they hold, that are not durable.
    pub held: VecDeque<(u32, Item)>,
}

/// Chunks that are being written.
#[derive(Debug, Default)]
pub(super) struct OpenChunks {
    pub chunks: Vec<OpenChunk>,
    pub unused: Vec<u32>,
    /// Chunks that a report is to be asked for later.
    pub asking: Vec<u32>,
}

impl OpenChunks {
    pub fn get(&self, open: u32) -> &OpenChunk {
        &self.chunks[open as usize]
    }

    pub fn get_mut(&mut self, open: u32) -> &mut OpenChunk {
        &mut self.chunks[open as usize]
    }

    /// The earliest instant at which a report is to be asked for.
    pub fn next_report(&self) -> Option<Time> {
        self.asking
            .iter()
            .filter_map(|&open| self.get(open).ask_at)
            .min()
    }

    pub fn begin(&mut self, stream: Stream, chunk: u32) -> u32 {
        let open = self.unused.pop().unwrap_or_else(|| {
            self.chunks.push(OpenChunk {
                stream,
                chunk,
                next: 0,
                acknowledged: 0,
                early: None,
                writes: 0,
                failed: false,
                asked: false,
                ask_at: None,
                held: VecDeque::new(),
            });
            self.chunks.len() as u32 - 1
        });
        let fresh = self.get_mut(open);
        (fresh.stream, fresh.chunk) = (stream, chunk);
        (fresh.next, fresh.acknowledged, fresh.early) = (0, 0, None);
        (fresh.failed, fresh.asked, fresh.ask_at) = (false, false, None);
        open
    }
}

impl OpenChunk {
    /// Writes of which something is still to come: one that is complete waits for the one in front
    /// of it, and there is never more than one of these.
    pub fn in_flight(&self) -> u32 {
        self.writes + u32::from(self.early.is_some())
    }

    /// A write of `count` sectors from `sector` on is complete.
    pub fn acknowledge(&mut self, sector: u32, count: u32) {
        if sector != self.acknowledged {
            assert!(self.early.is_none(), "two writes at most are in flight");
            self.early = Some((sector, count));
            return;
        }
        self.acknowledged += count;
        if let Some((sector, count)) = self.early.take_if(|early| early.0 == self.acknowledged) {
            self.acknowledge(sector, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sectors of a chunk count as written up to the first that is not, in whatever order writes
    /// are completed.
    #[test]
    fn a_write_that_is_complete_early_counts_when_the_one_in_front_of_it_is() {
        let mut open = OpenChunks::default();
        let chunk = open.begin(Stream::Host, 0);
        let chunk = open.get_mut(chunk);
        chunk.acknowledge(0, 16);
        assert_eq!((chunk.acknowledged, chunk.in_flight()), (16, 0));
        chunk.acknowledge(32, 16);
        assert_eq!((chunk.acknowledged, chunk.in_flight()), (16, 1));
        chunk.acknowledge(16, 16);
        assert_eq!((chunk.acknowledged, chunk.in_flight()), (48, 0));
    }
}
