//! The log after a crash, as a fold: which batches count, and the table that they make.

use alloc::vec::Vec;

use super::io::{IoError, Read};
use super::scan::{FoundBatch, Scan};
use super::segments::Geometry;
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::batch::{Lane, Record, RecordKind};
use crate::format::superblock::{LogEntry, Superblock, Tail};
use crate::keyed::Secret;
use crate::table::{MOST_RECORDS, Table};

/// Segments behind the last one that is seen to have been written to, in which a lane may be: each
/// lane has one, and a few more may be in flight.
const AHEAD: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Replay {
    scans: Vec<Scan>,
    log: Vec<LogEntry>,
    /// What an earlier recovery decided on.
    old: Vec<FoundBatch>,
    /// Batches of each lane that count, in order.
    lanes: [Vec<FoundBatch>; 3],
    /// The sequence up to which each lane is known to have been durable, and where it was at the
    /// cut.
    durable: [u64; 3],
    cut: [u64; 3],
    /// Batches whose data were not known to be durable: lane, place there, and whether they are
    /// good.
    doubtful: Vec<(usize, usize, bool)>,
}

impl Replay {
    /// One scan for each part of the log.
    pub fn begin(
        &mut self,
        superblock: &Superblock,
        geometry: Geometry,
    ) -> impl Iterator<Item = u32> + use<> {
        self.log.clone_from(&superblock.log);
        for entry in &superblock.log {
            let scan = Scan::new(entry.segment, entry.generation, geometry);
            self.scans
                .push(scan.within(entry.incarnation, entry.from, entry.end));
        }
        0..self.scans.len() as u32
    }

    pub fn next_read(&self, scan: u32) -> Option<(u64, u32)> {
        self.scans[scan as usize].next()
    }

    pub fn take(&mut self, scan: u32, secret: Secret, result: Result<&[u8], IoError>) {
        self.scans[scan as usize].take(secret, result);
    }

    /// Looks for batches behind where the log seems to end. Gives the scans that go on.
    ///
    /// Lanes take segments in the order in which the superblock lists them, so behind the last one
    /// that was written to only the next ones may be, with a first header that cannot be read.
    pub fn look_beyond(&mut self) -> impl Iterator<Item = u32> + use<> {
        let open = (0..)
            .zip(&self.log)
            .filter(|(_, entry)| entry.end.is_none());
        let open: Vec<u32> = open.map(|(number, _)| number).collect();
        let is_used = |number: &u32| self.scans[*number as usize].is_used();
        let used = open.iter().rposition(is_used);
        let most = used.map_or(0, |place| place + 1) + AHEAD;
        let mut scans = open;
        scans.truncate(most);
        for &number in &scans {
            self.scans[number as usize].look_beyond();
        }
        scans.into_iter()
    }

    /// Follows the chain of each lane. Gives the batches whose data have to be verified; an error
    /// when a part is missing that was decided on before.
    pub fn chain(&mut self, tails: [Tail; 3]) -> Result<Vec<u32>, ()> {
        let mut runs: Vec<Vec<FoundBatch>> = Vec::new();
        self.cut = tails.map(|tail| tail.watermark);
        self.durable = self.cut;
        for (scan, entry) in core::mem::take(&mut self.scans).into_iter().zip(&self.log) {
            match entry.end {
                Some(end) if scan.end() != end => return Err(()),
                Some(_) => self.old.extend(scan.batches),
                None => {
                    for (durable, known) in self.durable.iter_mut().zip(scan.known) {
                        *durable = known.max(*durable);
                    }
                    runs.push(scan.batches);
                }
            }
        }
        runs.retain(|run| !run.is_empty());
        runs.sort_unstable_by_key(|run| run[0].sequence);
        for run in runs {
            let lane = run[0].lane as usize;
            let chain = &mut self.lanes[lane];
            let before = run[0].before;
            // A lane that goes on behind an earlier batch says that those after it failed.
            let keep = match chain.iter().rposition(|batch| batch.checksum == before) {
                Some(place) => place + 1,
                None if before == tails[lane].checksum => 0,
                // What was before it is missing.
                None => continue,
            };
            chain.truncate(keep);
            let mut before = before;
            for batch in run {
                if batch.before != before || batch.lane as usize != lane {
                    break;
                }
                before = batch.checksum;
                chain.push(batch);
            }
        }
        for lane in Lane::ALL {
            self.doubt(lane as usize);
        }
        Ok((0..self.doubtful.len() as u32).collect())
    }

    /// Notes the batches of a lane above its watermark.
    fn doubt(&mut self, lane: usize) {
        for (place, batch) in self.lanes[lane].iter().enumerate() {
            if batch.sequence > self.durable[lane] && batch.blocks > 1 {
                self.doubtful.push((lane, place, false));
            }
        }
    }

    /// Where the data of a batch are.
    pub fn payload(&self, number: u32, geometry: Geometry) -> (u64, u32) {
        let (lane, place, _) = self.doubtful[number as usize];
        let batch = &self.lanes[lane][place];
        let block = geometry.block(batch.segment) + u64::from(batch.block + 1);
        (block, batch.blocks - 1)
    }

    /// Whether bytes are what a list goes on with.
    pub fn is_list(&self, scan: u32, secret: Secret, bytes: &[u8]) -> bool {
        let scan = self.scans.get(scan as usize);
        scan.is_none_or(|scan| scan.is_good(secret, bytes))
    }

    /// The data of a batch, in what is read from this block on.
    pub fn data(&self, number: u32, block: u64) -> impl Iterator<Item = Read> {
        let (lane, batch, _) = self.doubtful[number as usize];
        let records = self.lanes[lane][batch].records.iter();
        let data = records.filter(|one| one.sectors > 0 && one.kind != RecordKind::Void);
        data.map(move |one| Read::new(one.lineage, one.chunk, one.entry(0), block))
    }

    /// Data of a batch were read.
    pub fn verify(&mut self, number: u32, geometry: Geometry, result: Result<&[u8], IoError>) {
        let (block, _) = self.payload(number, geometry);
        let bytes = result.unwrap_or_default();
        let good = self.data(number, block).all(|read| read.is_good(bytes));
        self.doubtful[number as usize].2 = good;
    }

    /// Cuts each lane at its first bad batch.
    pub fn settle(&mut self) {
        for (lane, place, good) in core::mem::take(&mut self.doubtful) {
            if !good {
                self.lanes[lane].truncate(place);
            }
        }
    }

    /// Whether a lane ends before a batch that was durable: the medium has lost a part of the log.
    pub fn is_cut_short(&self) -> bool {
        let lanes = self.lanes.iter().zip(self.cut).zip(self.durable);
        let mut ends = lanes.map(|((lane, cut), durable)| {
            let end = lane.last().map_or(cut, |batch| batch.sequence);
            end < durable
        });
        ends.any(|is_short| is_short)
    }

    fn all(&self) -> impl Iterator<Item = &FoundBatch> {
        self.old.iter().chain(self.lanes.iter().flatten())
    }

    /// Where a part of the log ends; nothing when no batch of it counts.
    pub fn end_of(&self, entry: &LogEntry) -> Option<u32> {
        let of_it = self.all().filter(|batch| {
            batch.segment == entry.segment && batch.incarnation == entry.incarnation
        });
        of_it.map(|batch| batch.block + batch.blocks).max()
    }

    /// The parts of the log that count, with their ends.
    pub fn decided(&self, log: &[LogEntry]) -> Vec<LogEntry> {
        let ends = log.iter().filter_map(|entry| {
            let end = self.end_of(entry).filter(|&end| end > entry.from);
            Some(LogEntry {
                end: Some(end?),
                ..*entry
            })
        });
        ends.collect()
    }

    /// The highest sequence that counts.
    pub fn last_sequence(&self) -> u64 {
        self.all().map(|batch| batch.sequence).max().unwrap_or(0)
    }

    /// The epochs in which volumes were written.
    pub fn epochs(&self) -> impl Iterator<Item = (Lineage, u32)> {
        let records = self.all().flat_map(|batch| &batch.records);
        records.map(|record| (record.lineage, record.epoch))
    }

    /// The memory table of all that counts; nothing when it cannot be one of a sound log.
    /// `holder` says which layer has what was written to a volume in an epoch.
    pub fn table(&self, seed: u64, holder: impl Fn(Lineage, u32, u64) -> Lineage) -> Option<Table> {
        let generation = |segment: u32| {
            let entry = self.log.iter().find(|entry| entry.segment == segment);
            entry.map_or(0, |entry| entry.generation)
        };
        let mut batches: Vec<&FoundBatch> = self.all().collect();
        batches.sort_unstable_by_key(|batch| (batch.incarnation, batch.sequence));
        let records = || batches.iter().flat_map(|batch| &batch.records);
        let leaves = records().map(|record| match record.kind {
            RecordKind::Trim if record.count > 1 => record.count / LEAF_CHUNKS + 2,
            _ => 1,
        });
        // What is overwritten counts once: of a sound log both tables had it all.
        let capacity = leaves.sum::<u64>().min(MOST_RECORDS as u64);
        let mut table = Table::for_recovery(capacity as usize + 1, seed);
        for batch in &batches {
            let generation = generation(batch.segment);
            for record in &batch.records {
                let layer = holder(record.lineage, record.epoch, record.chunk / LEAF_CHUNKS);
                replay(&mut table, record, layer, generation)?;
            }
        }
        Some(table)
    }
}

/// Does what a record says.
fn replay(table: &mut Table, record: &Record, layer: Lineage, generation: u32) -> Option<()> {
    let (lineage, chunk): (Lineage, u64) = (record.lineage, record.chunk);
    // A snapshot that never became durable had the older data: they are not needed.
    let known = table.get(layer, chunk);
    let older = known.is_some_and(|known| known.epoch > record.epoch);
    if older && matches!(record.kind, RecordKind::Move | RecordKind::Lost) {
        return Some(());
    }
    let done = match record.kind {
        RecordKind::Write | RecordKind::Move => {
            let layer = if record.kind == RecordKind::Write {
                lineage
            } else {
                layer
            };
            table.put(layer, chunk, record.entry(generation), record.epoch)
        }
        RecordKind::Lost => table.put(layer, chunk, Entry::LOST, record.epoch),
        RecordKind::Trim if record.count == 1 => {
            table.put(lineage, chunk, Entry::UNMAPPED, record.epoch)
        }
        RecordKind::Trim => table.trim(lineage, chunk..chunk + record.count, record.epoch),
        RecordKind::Void => Ok(()),
    };
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot that never became durable held the older block; its number is nowhere.
    #[test]
    fn a_move_of_what_was_written_in_an_earlier_epoch_replaces_nothing_newer() {
        let (volume, snapshot) = (Lineage(1), Lineage(2));
        let record = |kind, epoch, address| Record {
            kind,
            lineage: volume,
            epoch,
            chunk: 5,
            count: 1,
            address,
            sectors: 8 * u32::from(kind != RecordKind::Trim),
            crc: 0,
            codec: 0,
        };
        let newer = [
            (record(RecordKind::Write, 2, 80), Entry::stored(80, 8, 0, 0)),
            (record(RecordKind::Trim, 2, 0), Entry::UNMAPPED),
        ];
        for (newer, entry) in newer {
            let mut table = Table::for_recovery(8, 1);
            let older = record(RecordKind::Move, 1, 160);
            for (record, layer) in [(newer, volume), (older, volume)] {
                assert_eq!(replay(&mut table, &record, layer, 0), Some(()));
            }
            assert_eq!(table.get(volume, 5).map(|known| known.entry), Some(entry));
            assert_eq!(replay(&mut table, &older, snapshot, 0), Some(()));
            let moved = table.get(snapshot, 5).map(|known| known.entry);
            assert_eq!(moved, Some(Entry::stored(160, 8, 0, 0)));
        }
    }
}
