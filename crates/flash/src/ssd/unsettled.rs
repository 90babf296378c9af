//! Written data that would not survive a power cut.
//!
//! Every write point fills rows, one after another; a row is one program of every die. Data is
//! settled when the programs of its row have ended, and with them those of the rows that share
//! its cells: where pages of different types are programmed one at a time, a program of an upper
//! its cells: where pages of different types are programmed one at a time, a program of an upper
//! page that is cut short takes the lower page with it. For each unit that is not settled the
//! replaced unit is kept, so that a cut can go back to it.

use alloc::collections::VecDeque;

use super::map::Writer;

const WRITERS: usize = 3;

/// What is not settled, at every write point.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    streams: [Stream; WRITERS],
    /// Units of the host written so far, without padding.
    accepted: u64,
}

/// A point in the order of what is written: what was before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark([u64; WRITERS]);

/// A write point.
#[derive(Debug, Default)]
struct Stream {
    rows: VecDeque<Row>,
    /// The unit that each unit of these rows replaced, in order.
    replaced: VecDeque<u32>,
    /// Rows begun and settled so far.
    begun: u64,
    settled: u64,
}

/// A row that is not settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub number: u32,
    /// Programs that have not ended.
    left: u32,
    /// The last of those that share their cells.
    ends_group: bool,
    /// Units the host had written before this row was begun.
    accepted: u64,
}

impl Unsettled {
    /// A write point goes on in another row of `programs`.
    pub fn begin(&mut self, writer: Writer, number: u32, programs: u32, ends_group: bool) {
        let stream = &mut self.streams[writer as usize];
        stream.begun += 1;
        stream.rows.push_back(Row {
            number,
            left: programs,
            ends_group,
            accepted: self.accepted,
        });
    }

    /// A write point has written one more unit of the host in place of `replaced`.
    pub fn write(&mut self, writer: Writer, replaced: u32) {
        self.accepted += 1;
        self.replaced(writer).push_back(replaced);
    }

    /// Where a write point puts what each unit that it moves or pads with has replaced.
    pub fn replaced(&mut self, writer: Writer) -> &mut VecDeque<u32> {
        &mut self.streams[writer as usize].replaced
    }

    /// A program of row `number` has ended. True when something is settled by that.
    pub fn programmed(&mut self, number: u32, row_units: u32) -> bool {
        for stream in &mut self.streams {
            if let Some(row) = stream.rows.iter_mut().find(|row| row.number == number) {
                row.left -= 1;
                return row.left == 0 && stream.settle(row_units);
            }
        }
        false
    }

    /// What is written until now.
    pub fn mark(&self) -> Mark {
        Mark(self.streams.each_ref().map(|stream| stream.begun))
    }

    /// What is written until now at those write points that are `wanted`.
    pub fn mark_of(&self, wanted: impl Fn(Writer) -> bool) -> Mark {
        let mut mark = self.mark();
        for writer in Writer::ALL.into_iter().filter(|writer| !wanted(*writer)) {
            mark.0[writer as usize] = 0;
        }
        mark
    }

    /// Whether everything before `mark` is settled.
    pub fn is_settled(&self, mark: Mark) -> bool {
        (self.streams.iter().zip(mark.0)).all(|(stream, begun)| stream.settled >= begun)
    }

    /// Whether at this write point something before `mark` is not settled.
    pub fn holds_up(&self, writer: Writer, mark: Mark) -> bool {
        self.streams[writer as usize].settled < mark.0[writer as usize]
    }

    /// What each unit of a write point that is not settled replaced.
    pub fn all_replaced(&self, writer: Writer) -> impl Iterator<Item = u32> {
        self.streams[writer as usize].replaced.iter().copied()
    }

    /// Units that the host has written.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Of these, the first ones up to the first that is not settled.
    pub fn settled(&self) -> u64 {
        [Writer::Host, Writer::HostCold]
            .into_iter()
            .filter_map(|writer| self.streams[writer as usize].rows.front())
            .map(|row| row.accepted)
            .min()
            .unwrap_or(self.accepted)
    }

    /// The rows of a write point, the oldest first.
    pub fn rows(&self, writer: Writer) -> impl Iterator<Item = u32> {
        let rows = &self.streams[writer as usize].rows;
        rows.iter().map(|row| row.number)
    }

    /// The write that is in `unit`, and what it replaced; nothing when it is settled.
    pub fn origin(&self, unit: u32, row_units: u32) -> Option<(Writer, u32)> {
        let number = unit / row_units;
        [Writer::Host, Writer::HostCold, Writer::Collector]
            .into_iter()
            .find_map(|writer| {
                let stream = &self.streams[writer as usize];
                let place = stream.rows.iter().position(|row| row.number == number)?;
                let written = place * row_units as usize + (unit % row_units) as usize;
                Some((writer, *stream.replaced.get(written)?))
            })
    }

    /// Everything written is settled, or given up.
    pub fn settle_all(&mut self) {
        for stream in &mut self.streams {
            stream.rows.clear();
            stream.replaced.clear();
            stream.settled = stream.begun;
        }
    }
}

impl Stream {
    /// Settles whole groups from the front. False when there is none that is programmed.
    fn settle(&mut self, row_units: u32) -> bool {
        let mut any = false;
        while let Some(end) = self.end_of_programmed_group() {
            self.rows.drain(..=end);
            self.settled += end as u64 + 1;
            self.replaced.drain(..(end + 1) * row_units as usize);
            any = true;
        }
        any
    }

    /// The last row of the first group, if all of it is programmed.
    fn end_of_programmed_group(&self) -> Option<usize> {
        for (place, row) in self.rows.iter().enumerate() {
            if row.left > 0 {
                return None;
            }
            if row.ends_group {
                return Some(place);
            }
        }
        None
    }
}
