//! The memory table: every record since the last cut, found by chunk and listed by leaf.
//!
//! Records lie in the order they came in. An index of 32-bit words (a few bits of the hash, and the
//! number of the record) finds one in two steps of memory, and says in one that there is none.
//! Records of one leaf are chained, so that a checkpoint loads each leaf once. Long trims are
//! ranges beside the records; which is newer, range or record, follows from their order.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::entry::{CHUNK_BITS, Entry, LEAF_CHUNKS, Lineage, key};

/// Ranges of trims that a table holds.
pub const MOST_TRIMS: usize = 1024;
/// Records that a table can hold at most.
pub const MOST_RECORDS: usize = 1 << 22;

const NUMBER_BITS: u32 = 22;
const NONE: u32 = u32::MAX;

/// The table has no room: it has to be written into leaves first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// A chunk as the table knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Where it is; [`Entry::UNMAPPED`] after a trim.
    pub entry: Entry,
    /// The epoch of its volume in which it was written.
    pub epoch: u32,
}

/// Every record since the last cut.
#[derive(Debug)]
pub struct Table {
    /// What makes the hash: a tenant who chooses chunks cannot choose where they fall.
    seed: u64,
    index: Index,
    records: Vec<Record>,
    leaf_index: Index,
    leaves: Vec<Leaf>,
    trims: BTreeMap<u64, Trim>,
    /// The order of the next record or trim.
    order: u32,
    capacity: usize,
    most_trims: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: u64,
    /// The entry, in two parts so that a record has 32 bytes.
    place: u64,
    crc: u32,
    epoch: u32,
    order: u32,
    /// The next record of the leaf.
    next: u32,
}

impl Record {
    fn entry(&self) -> Entry {
        Entry {
            place: self.place,
            crc: self.crc,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// The key of its first chunk.
    key: u64,
    /// Its newest record.
    head: u32,
}

#[derive(Clone, Copy, Debug)]
struct Trim {
    end: u64,
    order: u32,
    epoch: u32,
}

impl Table {
    /// A table of up to `capacity` records. All memory is taken here.
    pub fn new(capacity: usize, seed: u64) -> Self {
        let capacity = capacity.clamp(1, MOST_RECORDS - 1);
        Self {
            seed,
            index: Index::new(capacity),
            records: Vec::with_capacity(capacity),
            leaf_index: Index::new(capacity),
            leaves: Vec::with_capacity(capacity),
            trims: BTreeMap::new(),
            order: 0,
            capacity,
            most_trims: MOST_TRIMS,
        }
    }

    /// A table for what recovery finds, which is known: any number of trims.
    pub fn for_recovery(capacity: usize, seed: u64) -> Self {
        Self {
            most_trims: usize::MAX,
            ..Self::new(capacity, seed)
        }
    }

    /// Records that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many records it can take besides trims.
    pub fn room(&self) -> usize {
        self.capacity - self.records.len().max(self.leaves.len())
    }

    /// How many leaves have records or trims.
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// What was recorded last of a chunk; nothing when leaves have the answer.
    #[inline]
    pub fn get(&self, lineage: Lineage, chunk: u64) -> Option<Known> {
        let key = key(lineage, chunk);
        let record = self.find(key);
        if !self.trims.is_empty()
            && let Some(trim) = self.trim_of(key)
            && record.is_none_or(|record| record.order < trim.order)
        {
            let (entry, epoch) = (Entry::UNMAPPED, trim.epoch);
            return Some(Known { entry, epoch });
        }
        record.map(|record| Known {
            entry: record.entry(),
            epoch: record.epoch,
        })
    }

    /// Records where a chunk is from now on.
    pub fn put(
        &mut self,
        lineage: Lineage,
        chunk: u64,
        entry: Entry,
        epoch: u32,
    ) -> Result<(), Full> {
        let key = key(lineage, chunk);
        let order = self.order;
        let hash = self.hash(key);
        let found = self
            .index
            .find(hash, |number| self.records[number].key == key);
        if let Some(number) = found {
            let record = &mut self.records[number];
            (record.place, record.crc) = (entry.place, entry.crc);
            (record.epoch, record.order) = (epoch, order);
        } else {
            if self.room() == 0 {
                return Err(Full);
            }
            let leaf = self.leaf_of(leaf_key(key))?;
            let number = self.records.len();
            let next = core::mem::replace(&mut self.leaves[leaf].head, number as u32);
            self.records.push(Record {
                key,
                place: entry.place,
                crc: entry.crc,
                epoch,
                order,
                next,
            });
            self.index.insert(hash, number);
        }
        self.order += 1;
        Ok(())
    }

    /// Changes where the data of the newest record lie, if that is still `from`.
    pub fn relocate(&mut self, lineage: Lineage, chunk: u64, from: Entry, to: Entry) -> bool {
        let key = key(lineage, chunk);
        let records = &self.records;
        let found = self
            .index
            .find(self.hash(key), |number| records[number].key == key);
        let Some(record) = found.map(|number| &mut self.records[number]) else {
            return false;
        };
        let same = record.entry() == from;
        if same {
            (record.place, record.crc) = (to.place, to.crc);
        }
        same
    }

    /// Records that a range of chunks, in at most [`room`](Self::room) leaves, is not mapped.
    pub fn trim(&mut self, lineage: Lineage, chunks: Range<u64>, epoch: u32) -> Result<(), Full> {
        let (first, end) = (key(lineage, chunks.start), key(lineage, chunks.end - 1) + 1);
        let leaves = chunks.start / LEAF_CHUNKS..(chunks.end - 1) / LEAF_CHUNKS + 1;
        if !self.takes_trims() || leaves.end - leaves.start > self.room() as u64 {
            return Err(Full);
        }
        for leaf in leaves {
            self.leaf_of(key(lineage, leaf * LEAF_CHUNKS))?;
        }
        // What lies below an older range loses that part of it.
        let before = self.trims.range(..first).next_back();
        if let Some((&start, &older)) = before.filter(|(_, older)| older.end > first) {
            self.trims.insert(
                start,
                Trim {
                    end: first,
                    ..older
                },
            );
            if older.end > end {
                self.trims.insert(end, older);
            }
        }
        while let Some((&start, &older)) = self.trims.range(first..end).next() {
            self.trims.remove(&start);
            if older.end > end {
                self.trims.insert(end, older);
            }
        }
        let order = self.order;
        self.trims.insert(first, Trim { end, order, epoch });
        self.order += 1;
        Ok(())
    }

    /// Whether there are trims.
    pub fn has_trims(&self) -> bool {
        !self.trims.is_empty()
    }

    /// Whether another trim has a place.
    pub fn takes_trims(&self) -> bool {
        self.trims.len() + 2 <= self.most_trims
    }

    /// Whether a leaf has records or trims.
    pub fn has_leaf(&self, lineage: Lineage, leaf: u64) -> bool {
        let key = key(lineage, leaf * LEAF_CHUNKS);
        let is_it = |number: usize| self.leaves[number].key == key;
        !self.leaves.is_empty() && self.leaf_index.find(self.hash(key), is_it).is_some()
    }

    /// A leaf that has records or trims: its volume and its number there.
    pub fn leaf(&self, number: usize) -> Option<(Lineage, u64)> {
        let leaf = self.leaves.get(number)?;
        let chunk = leaf.key & ((1 << CHUNK_BITS) - 1);
        Some((
            Lineage((leaf.key >> CHUNK_BITS) as u32),
            chunk / LEAF_CHUNKS,
        ))
    }

    /// What was recorded last of each chunk of a leaf that anything was recorded of: its place in
    /// the leaf and where it is. A chunk may be named twice; the later one counts.
    pub fn changes(&self, number: usize, mut change: impl FnMut(usize, Entry)) {
        let Some(leaf) = self.leaves.get(number) else {
            return;
        };
        let leaf_end = leaf.key + LEAF_CHUNKS;
        let before = self.trims.range(..leaf.key).next_back();
        let within = self.trims.range(leaf.key..leaf_end);
        for (&start, trim) in before.into_iter().chain(within) {
            for key in start.max(leaf.key)..trim.end.min(leaf_end) {
                change((key - leaf.key) as usize, Entry::UNMAPPED);
            }
        }
        let mut number = leaf.head;
        while let Some(record) = self.records.get(number as usize) {
            let trimmed = self.trim_of(record.key);
            if trimmed.is_none_or(|trim| trim.order < record.order) {
                change((record.key - leaf.key) as usize, record.entry());
            }
            number = record.next;
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.index.clear();
        self.leaf_index.clear();
        self.records.clear();
        self.leaves.clear();
        self.trims.clear();
        self.order = 0;
    }

    /// Bytes of memory that it takes when it is full.
    pub fn memory(&self) -> usize {
        (self.index.words.len() + self.leaf_index.words.len()) * size_of::<u32>()
            + self.capacity * (size_of::<Record>() + size_of::<Leaf>())
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&Record> {
        let is_it = |number: usize| self.records[number].key == key;
        let number = self.index.find(self.hash(key), is_it)?;
        Some(&self.records[number])
    }

    /// The trim that covers a key.
    fn trim_of(&self, key: u64) -> Option<&Trim> {
        let (_, trim) = self.trims.range(..=key).next_back()?;
        (trim.end > key).then_some(trim)
    }

    /// The leaf that begins with this key, made if it is not there.
    fn leaf_of(&mut self, key: u64) -> Result<usize, Full> {
        let hash = self.hash(key);
        let found = self
            .leaf_index
            .find(hash, |number| self.leaves[number].key == key);
        if let Some(number) = found {
            return Ok(number);
        }
        if self.leaves.len() == self.capacity {
            return Err(Full);
        }
        self.leaves.push(Leaf { key, head: NONE });
        self.leaf_index.insert(hash, self.leaves.len() - 1);
        Ok(self.leaves.len() - 1)
    }

    #[inline]
    fn hash(&self, key: u64) -> u64 {
        let product =
            u128::from(key ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15 ^ self.seed | 1);
        (product >> 64) as u64 ^ product as u64
    }
}

/// The key of the first chunk of the leaf that a key belongs to.
fn leaf_key(key: u64) -> u64 {
    let chunk = key & ((1 << CHUNK_BITS) - 1);
    key - chunk % LEAF_CHUNKS
}

/// Numbers found by hash: open addressing, at most half full.
#[derive(Debug)]
struct Index {
    words: Vec<u32>,
    mask: usize,
}

impl Index {
    fn new(numbers: usize) -> Self {
        let words = (2 * numbers).next_power_of_two();
        Self {
            words: vec![0; words],
            mask: words - 1,
        }
    }

    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let tag = (hash >> 54) as u32;
        let mut place = hash as usize & self.mask;
        loop {
            let word = self.words[place];
            if word == 0 {
                return None;
            }
            let number = (word & ((1 << NUMBER_BITS) - 1)) as usize - 1;
            if word >> NUMBER_BITS == tag && is_it(number) {
                return Some(number);
            }
            place = (place + 1) & self.mask;
        }
    }

    fn insert(&mut self, hash: u64, number: usize) {
        let mut place = hash as usize & self.mask;
        while self.words[place] != 0 {
            place = (place + 1) & self.mask;
        }
        self.words[place] = ((hash >> 54) as u32) << NUMBER_BITS | (number as u32 + 1);
    }

    fn clear(&mut self) {
        self.words.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashyard_time::Rng;

    fn entry(number: u64) -> Entry {
        Entry::stored(number + 1, 8, 7, number as u32)
    }

    /// Everything that a table knows, chunk by chunk, by leaves.
    fn by_leaves(table: &Table) -> BTreeMap<(u32, u64), Entry> {
        let mut all = BTreeMap::new();
        for number in 0..table.leaves() {
            let (lineage, leaf) = table.leaf(number).expect("it is one of them");
            table.changes(number, |place, entry| {
                all.insert((lineage.0, leaf * LEAF_CHUNKS + place as u64), entry);
            });
        }
        all
    }

    #[test]
    fn the_table_equals_a_map_whatever_is_put_moved_and_trimmed() {
        for seed in 0..24 {
            let mut chance = Rng::new(seed);
            let chunks = [40, 700, 3_000][seed as usize % 3];
            let mut table = Table::new(512, chance.next_u64());
            let mut model: BTreeMap<(u32, u64), Entry> = BTreeMap::new();
            for step in 0..2_000 {
                let lineage = chance.below(3) as u32;
                let chunk = chance.below(chunks);
                let result = match chance.below(10) {
                    0 => {
                        let end = (chunk + 1 + chance.below(chunks / 8)).min(chunks);
                        let result = table.trim(Lineage(lineage), chunk..end, 0);
                        if result.is_ok() {
                            for chunk in chunk..end {
                                model.insert((lineage, chunk), Entry::UNMAPPED);
                            }
                        }
                        result
                    }
                    1 => {
                        let from = model.get(&(lineage, chunk)).copied().unwrap_or_default();
                        let moved =
                            table.relocate(Lineage(lineage), chunk, from, entry(step + 9_000));
                        if from.is_stored() {
                            assert!(moved);
                            model.insert((lineage, chunk), entry(step + 9_000));
                        }
                        assert!(!table.relocate(Lineage(lineage), chunk, entry(1 << 30), from));
                        Ok(())
                    }
                    _ => {
                        let result = table.put(Lineage(lineage), chunk, entry(step), 0);
                        if result.is_ok() {
                            model.insert((lineage, chunk), entry(step));
                        }
                        result
                    }
                };
                if result.is_err() {
                    assert!(table.room() < 20 || !table.takes_trims());
                    assert_eq!(by_leaves(&table), model);
                    table.clear();
                    model.clear();
                }
                let (lineage, chunk) = (chance.below(3) as u32, chance.below(chunks));
                let known = table.get(Lineage(lineage), chunk).map(|known| known.entry);
                assert_eq!(known, model.get(&(lineage, chunk)).copied(), "seed {seed}");
            }
            assert_eq!(by_leaves(&table), model);
        }
    }

    #[test]
    fn a_trim_of_another_volume_beside_the_last_chunk_changes_nothing() {
        let mut table = Table::new(64, 1);
        let last = (1 << CHUNK_BITS) - 1;
        table.put(Lineage(1), last, entry(1), 0).expect("room");
        table.put(Lineage(2), 0, entry(2), 0).expect("room");
        table.trim(Lineage(1), last - 5..last + 1, 0).expect("room");
        let entry_of = |lineage, chunk| table.get(Lineage(lineage), chunk).map(|k| k.entry);
        assert_eq!(entry_of(1, last), Some(Entry::UNMAPPED));
        assert_eq!(entry_of(2, 0), Some(entry(2)));
        assert_eq!(entry_of(2, 1), None);
    }

    #[test]
    fn a_full_table_still_takes_what_it_knows() {
        let mut table = Table::new(3, 1);
        for chunk in 0..3 {
            table.put(Lineage(0), chunk, entry(chunk), 0).expect("room");
        }
        assert_eq!(table.put(Lineage(0), 3, entry(3), 0), Err(Full));
        assert_eq!(table.put(Lineage(0), 2, entry(4), 5), Ok(()));
        let known = table.get(Lineage(0), 2);
        assert_eq!(
            known,
            Some(Known {
                entry: entry(4),
                epoch: 5
            })
        );
        assert_eq!(table.get(Lineage(0), 3), None);
    }

    #[test]
    fn a_table_of_a_million_records_stays_within_its_memory() {
        let table = Table::new(1 << 20, 1);
        assert_eq!(table.memory(), 64 << 20);
    }
}
