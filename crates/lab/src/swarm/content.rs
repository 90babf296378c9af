//! The possible contents of a volume's blocks: which worker has written what, which writes have
//! been answered and which are durable. A read may find the last write that was answered before it
//! began, or any that overlapped it; after a power cut also any that was not durable yet, and what
//! such a write had replaced.
//!
//! Order is given by a counter that moves with every begin and end, not by time, since events in
//! one instant have an order, too.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use super::stamp::{self, SECTOR};

/// A place in the order of all begins and ends.
type Moment = u64;

const NEVER: Moment = Moment::MAX;

/// Numbers that all volumes share.
#[derive(Clone, Default)]
pub struct Order {
    moment: Rc<Cell<Moment>>,
    write: Rc<Cell<u32>>,
}

impl Order {
    fn next(&self) -> Moment {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }
}

/// How a write has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was done; with forced unit access it is durable.
    Done { durable: bool },
    /// None of it was done, nor will be.
    Nothing,
    /// Some of it may have been done, and nothing more will be.
    Unknown,
}

/// A write, zeroing among them.
struct Write {
    /// Number of the host.
    host: u32,
    lba: u64,
    blocks: u64,
    begun: Moment,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may still be done.
    Open,
    /// Done, and not durable.
    Done(Moment),
}

/// What a block may hold: the word of one write.
#[derive(Clone, Copy, Debug)]
struct Entry {
    write: u32,
    word: u64,
    /// From when on the write does nothing more.
    ended: Moment,
    /// Reads that begin later do not see it.
    hidden: Moment,
    /// A power cut later does not bring it back.
    lost: Moment,
}

/// A block that was never written.
const BLANK: Entry = Entry {
    write: 0,
    word: 0,
    ended: 0,
    hidden: NEVER,
    lost: NEVER,
};

/// The content of one volume.
pub struct Content {
    tenant: usize,
    block_size: usize,
    /// Whether it outlives the target.
    persistent: bool,
    order: Order,
    /// By block; none for a block that was never written.
    blocks: BTreeMap<u64, Vec<Entry>>,
    /// Those that are open, or done and not durable.
    writes: BTreeMap<u32, Write>,
    /// Reads in flight, by when they began.
    reads: BTreeSet<Moment>,
    /// When the target ended last. Reads that began before were answered by it, perhaps on their
    /// way until later.
    stopped: Moment,
}

/// What a read brought and could not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    lba: u64,
    found: Found,
    may: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Word(u64),
    Mixture,
}

impl Content {
    /// Blank.
    pub fn new(tenant: usize, block_size: u32, persistent: bool, order: &Order) -> Self {
        Self {
            tenant,
            block_size: block_size as usize,
            persistent,
            order: order.clone(),
            blocks: BTreeMap::new(),
            writes: BTreeMap::new(),
            reads: BTreeSet::new(),
            stopped: 0,
        }
    }

    /// A write begins; gives its number. With `zeroes` it makes blocks read as zeroes.
    pub fn begin_write(&mut self, host: u32, lba: u64, blocks: u64, zeroes: bool) -> u32 {
        let number = self.order.write.get() + 1;
        self.order.write.set(number);
        let begun = self.order.next();
        for lba in lba..lba + blocks {
            let word = match zeroes {
                true => 0,
                false => stamp::word(self.tenant, number, lba),
            };
            let entries = self.blocks.entry(lba).or_insert_with(|| vec![BLANK]);
            entries.push(Entry {
                write: number,
                word,
                ended: NEVER,
                ..BLANK
            });
        }
        let write = Write {
            host,
            lba,
            blocks,
            begun,
            fate: Fate::Open,
        };
        self.writes.insert(number, write);
        number
    }

    /// A write has ended.
    pub fn end_write(&mut self, number: u32, ended: Ended) {
        let now = self.order.next();
        let Some(mut write) = self.writes.remove(&number) else {
            return;
        };
        let oldest = self.oldest_read(now);
        for lba in write.range() {
            let Some(entries) = self.blocks.get_mut(&lba) else {
                continue;
            };
            if ended == Ended::Nothing {
                entries.retain(|entry| entry.write != number);
                continue;
            }
            for entry in entries.iter_mut() {
                if entry.write == number {
                    entry.ended = now;
                } else if let Ended::Done { durable } = ended
                    && entry.ended < write.begun
                {
                    entry.hidden = entry.hidden.min(now);
                    if durable || !self.persistent {
                        entry.lost = entry.lost.min(now);
                    }
                }
            }
            forget_past(entries, oldest, now);
        }
        if self.persistent && ended == (Ended::Done { durable: false }) {
            write.fate = Fate::Done(now);
            self.writes.insert(number, write);
        }
    }

    /// The open writes of a host will do nothing more: it has connected again, or it has gone with
    /// everything it had.
    pub fn settle(&mut self, host: u32) {
        let open = self.writes.iter();
        let open = open.filter(|(_, write)| write.host == host && write.fate == Fate::Open);
        let open: Vec<u32> = open.map(|(number, _)| *number).collect();
        for number in open {
            self.end_write(number, Ended::Unknown);
        }
    }

    /// A flush begins; the moment is for [`Self::end_flush`].
    pub fn begin_flush(&self) -> Moment {
        self.order.next()
    }

    /// A flush has succeeded: what was done before it began is durable.
    pub fn end_flush(&mut self, begun: Moment) {
        let now = self.order.next();
        let oldest = self.oldest_read(now);
        let durable = self.writes.iter().filter_map(|(number, write)| {
            let done = matches!(write.fate, Fate::Done(at) if at < begun);
            done.then_some(*number)
        });
        let durable: Vec<u32> = durable.collect();
        for number in durable {
            let Some(write) = self.writes.remove(&number) else {
                continue;
            };
            for lba in write.range() {
                let Some(entries) = self.blocks.get_mut(&lba) else {
                    continue;
                };
                let replaced = entries.iter_mut().filter(|entry| entry.ended < write.begun);
                replaced.for_each(|entry| entry.lost = entry.lost.min(now));
                forget_past(entries, oldest, now);
            }
        }
    }

    /// A read begins; the moment is for [`Self::end_read`].
    pub fn begin_read(&mut self) -> Moment {
        let now = self.order.next();
        self.reads.insert(now);
        now
    }

    /// A read has ended, or was given up.
    pub fn forget_read(&mut self, begun: Moment) {
        self.reads.remove(&begun);
    }

    /// What a read has brought, from block `lba` on.
    pub fn look(&mut self, begun: Moment, lba: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let now = self.order.next();
        if begun < self.stopped {
            return Ok(());
        }
        for (block, lba) in bytes.chunks(self.block_size).zip(lba..) {
            let entries = self.blocks.get(&lba).map_or(&[BLANK][..], Vec::as_slice);
            let visible = entries.iter().filter(|entry| entry.hidden >= begun);
            let may: Vec<u64> = visible.map(|entry| entry.word).collect();
            let mut seen = Vec::new();
            for sector in block.chunks(SECTOR) {
                let found = stamp::read(sector).map_or(Found::Mixture, Found::Word);
                match found {
                    Found::Word(word) if may.contains(&word) => seen.push(word),
                    found => return Err(Wrong { lba, found, may }),
                }
            }
            // What had ended before and was not seen is not there any more.
            for entry in self.blocks.get_mut(&lba).into_iter().flatten() {
                if entry.ended < begun && !seen.contains(&entry.word) {
                    entry.hidden = entry.hidden.min(now);
                }
            }
        }
        Ok(())
    }

    /// Whether a compare that began then may find exactly the words of write `number`, and whether
    /// it may find anything else.
    pub fn compare(&self, begun: Moment, number: u32, lba: u64, blocks: u64) -> (bool, bool) {
        if begun < self.stopped {
            return (true, true);
        }
        let (mut may_equal, mut may_differ) = (true, false);
        for lba in lba..lba + blocks {
            let expected = stamp::word(self.tenant, number, lba);
            let entries = self.blocks.get(&lba).map_or(&[BLANK][..], Vec::as_slice);
            let visible = entries.iter().filter(|entry| entry.hidden >= begun);
            let (equal, differ): (Vec<&Entry>, Vec<&Entry>) =
                visible.partition(|entry| entry.word == expected);
            may_equal &= !equal.is_empty();
            may_differ |= !differ.is_empty();
        }
        (may_equal, may_differ)
    }

    /// A write that block `lba` may hold now, for a compare that is to find it.
    pub fn last_write(&self, lba: u64) -> Option<u32> {
        let entry = self.blocks.get(&lba)?.last()?;
        (entry.word != 0).then_some(entry.write)
    }

    /// The target has ended: nothing that is open will be done.
    pub fn stop(&mut self) {
        let open = self.writes.iter();
        let open = open.filter(|(_, write)| write.fate == Fate::Open);
        let open: Vec<u32> = open.map(|(number, _)| *number).collect();
        for number in open {
            self.end_write(number, Ended::Unknown);
        }
        self.stopped = self.order.next();
        if !self.persistent {
            self.blocks.clear();
        }
    }

    /// The power was cut, after [`Self::stop`].
    pub fn power_cut(&mut self) {
        let now = self.order.next();
        self.writes.clear();
        for entries in self.blocks.values_mut() {
            entries.retain(|entry| entry.lost > now);
            for entry in entries {
                entry.hidden = NEVER;
            }
        }
    }

    fn oldest_read(&self, now: Moment) -> Moment {
        self.reads.first().copied().unwrap_or(now)
    }
}

/// Drops what no read can see and no power cut can bring back.
fn forget_past(entries: &mut Vec<Entry>, oldest_read: Moment, now: Moment) {
    entries.retain(|entry| entry.hidden >= oldest_read || entry.lost > now);
}

impl Write {
    fn range(&self) -> std::ops::Range<u64> {
        self.lba..self.lba + self.blocks
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lba, found, may } = self;
        write!(f, "block {lba} holds ")?;
        match found {
            Found::Mixture => write!(f, "a mixture within one sector")?,
            Found::Word(word) => describe(*word, f)?,
        }
        write!(f, "; it may hold")?;
        for word in may {
            write!(f, " ")?;
            describe(*word, f)?;
        }
        Ok(())
    }
}

fn describe(word: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (write, lba) = stamp::origin(word);
    match (word, stamp::owner(word)) {
        (0, _) => write!(f, "zeroes"),
        (_, None) => write!(f, "{word:#018x}"),
        (_, Some(tenant)) => write!(f, "write {write} of tenant {tenant} (block {lba})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1024;
    const DONE: Ended = Ended::Done { durable: false };

    fn content(persistent: bool) -> Content {
        Content::new(0, BLOCK as u32, persistent, &Order::default())
    }

    fn bytes(write: u32) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        if write != 0 {
            stamp::fill(&mut bytes, BLOCK, 0, write, 3);
        }
        bytes
    }

    /// Whether a read that begins and ends now may find the block as this write left it.
    fn may(content: &Content, write: u32) -> bool {
        let mut content = Content {
            order: content.order.clone(),
            blocks: content.blocks.clone(),
            writes: BTreeMap::new(),
            reads: BTreeSet::new(),
            ..*content
        };
        let begun = content.begin_read();
        content.look(begun, 3, &bytes(write)).is_ok()
    }

    fn written(content: &mut Content, ended: Ended) -> u32 {
        let write = content.begin_write(1, 3, 1, false);
        content.end_write(write, ended);
        write
    }

    #[test]
    fn the_last_write_is_read() {
        let mut content = content(true);
        assert!(may(&content, 0));
        let first = written(&mut content, DONE);
        let second = content.begin_write(1, 3, 1, false);
        assert!(may(&content, first) && may(&content, second) && !may(&content, 0));
        content.end_write(second, DONE);
        assert!(!may(&content, first) && may(&content, second));
        let failed = written(&mut content, Ended::Unknown);
        assert!(may(&content, second) && may(&content, failed));
        let nothing = written(&mut content, Ended::Nothing);
        assert!(!may(&content, nothing) && may(&content, failed));
    }

    #[test]
    fn what_was_read_is_read_again() {
        let mut content = content(true);
        let first = written(&mut content, DONE);
        let unknown = written(&mut content, Ended::Unknown);
        let begun = content.begin_read();
        assert!(content.look(begun, 3, &bytes(unknown)).is_ok());
        assert!(!may(&content, first));
    }

    #[test]
    fn a_read_may_find_what_was_there_when_it_began() {
        let mut content = content(true);
        let first = written(&mut content, DONE);
        let begun = content.begin_read();
        let second = written(&mut content, DONE);
        written(&mut content, DONE);
        assert!(content.look(begun, 3, &bytes(first)).is_ok());
        assert!(content.look(begun, 3, &bytes(second)).is_ok());
        content.forget_read(begun);
        assert!(!may(&content, first) && !may(&content, second));
    }

    #[test]
    fn an_unanswered_write_may_come_late_until_it_is_settled() {
        let mut content = content(true);
        let late = content.begin_write(7, 3, 1, false);
        let other = written(&mut content, DONE);
        assert!(may(&content, late) && may(&content, other));
        content.settle(7);
        assert!(may(&content, late), "it may have come after the other");
        written(&mut content, DONE);
        assert!(!may(&content, late));
    }

    #[test]
    fn a_power_cut_takes_what_is_not_durable() {
        let mut content = content(true);
        let durable = written(&mut content, Ended::Done { durable: true });
        let cached = written(&mut content, DONE);
        assert!(!may(&content, durable));
        content.stop();
        assert!(!may(&content, durable), "a crash loses nothing");
        content.power_cut();
        assert!(may(&content, durable) && may(&content, cached) && !may(&content, 0));
        let flushed = written(&mut content, DONE);
        let begun = content.begin_flush();
        let after = written(&mut content, DONE);
        content.end_flush(begun);
        content.stop();
        content.power_cut();
        assert!(may(&content, flushed) && may(&content, after));
        assert!(!may(&content, durable) && !may(&content, cached));
    }

    #[test]
    fn memory_is_forgotten() {
        let mut content = content(false);
        let write = written(&mut content, DONE);
        content.stop();
        assert!(may(&content, 0) && !may(&content, write));
    }

    #[test]
    fn sectors_of_a_block_may_differ_and_halves_of_sectors_may_not() {
        let mut content = content(true);
        let (a, b) = (
            content.begin_write(1, 3, 1, false),
            content.begin_write(2, 3, 1, false),
        );
        let mut mixed = bytes(a);
        mixed[SECTOR..].copy_from_slice(&bytes(b)[SECTOR..]);
        let begun = content.begin_read();
        assert!(content.look(begun, 3, &mixed).is_ok());
        mixed[..8].copy_from_slice(&bytes(b)[..8]);
        assert!(content.look(begun, 3, &mixed).is_err());
    }

    #[test]
    fn compares_know_what_they_may_find() {
        let mut content = content(true);
        let first = written(&mut content, DONE);
        let begun = content.begin_read();
        assert_eq!(content.compare(begun, first, 3, 1), (true, false));
        assert_eq!(content.last_write(3), Some(first));
        let second = content.begin_write(1, 3, 1, false);
        assert_eq!(content.compare(begun, first, 3, 1), (true, true));
        content.end_write(second, DONE);
        content.forget_read(begun);
        let begun = content.begin_read();
        assert_eq!(content.compare(begun, first, 3, 1), (false, true));
    }
}
