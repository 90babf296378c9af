//! Garbage collection: lists what victims hold, asks the maps what of it lives, and moves that.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::io::{Action, IoError, IoOp, Part, Purpose, Sum, Tag};
use super::lane::kept;
use super::reads::{Found, verify};
use super::scan::Scan;
use super::segments::Use;
use super::state::Store;
use crate::entry::{Entry, Lineage};
use crate::format::BLOCK_SECTORS;
use crate::format::batch::{Lane, Record, RecordKind};

/// Victims that are emptied together.
const VICTIMS: usize = 4;
/// Reads of victims in flight at most, and blocks of each.
const READS: u32 = 4;
const READ_BLOCKS: u64 = 32;
/// Records that are looked up ahead, so that leaves are read side by side.
const AHEAD: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    Idle,
    Listing,
    Looking,
    Moving,
    Settling,
}

/// A chunk of a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Item {
    lineage: Lineage,
    chunk: u64,
    entry: Entry,
    epoch: u32,
}

/// A chunk that was read: where, or that it could not be.
#[derive(Clone, Copy, Debug)]
struct Moved {
    item: Item,
    from: Option<(Tag, u32)>,
}

#[derive(Debug, Default)]
pub(super) struct Collector {
    phase: Phase,
    victims: Vec<u32>,
    scans: Vec<Scan>,
    items: Vec<Item>,
    next: usize,
    live: Vec<Item>,
    reads: u32,
    moved: VecDeque<Moved>,
    /// Cuts that were durable when there was no victim.
    idle_at: Option<u64>,
}

impl Collector {
    /// Whether all that lives in the victims is in batches.
    pub fn is_settling(&self) -> bool {
        self.phase == Phase::Settling
    }
}

impl Store {
    pub(super) fn collect(&mut self) {
        loop {
            let before = self.collector.phase;
            match before {
                Phase::Idle => self.choose_victims(),
                Phase::Listing => self.list_victims(),
                Phase::Looking => self.look_up(),
                Phase::Moving => self.move_live(),
                Phase::Settling => self.settle(),
            }
            if self.collector.phase == before {
                return;
            }
            self.progress = true;
        }
    }

    fn choose_victims(&mut self) {
        let starved = self.lanes.iter().any(|lane| lane.starved);
        let headroom = self.headroom();
        let lead = i64::from(self.limits.lead);
        if headroom >= lead / 4 && !starved {
            return;
        }
        // What is drained comes back with the next cut.
        if !self.checkpoint.drained.is_empty() {
            self.checkpoint.wanted = true;
        }
        if self.is_deleting() || self.checkpoint.drained.len() >= 2 * VICTIMS {
            return;
        }
        let greedy = headroom < -lead / 2;
        // What lives in the victims has to find a place, also when cuts end batches early.
        let room = self.segments.listed().saturating_sub(kept(Lane::Collector));
        let room = room * self.segments.geometry.most_live() * 3 / 4;
        let mut room = u64::from(room) * BLOCK_SECTORS;
        while self.collector.victims.len() < VICTIMS {
            let Some(victim) = self.segments.victim(self.sequence, greedy) else {
                break;
            };
            let live = u64::from(self.segments.get(victim).live);
            if live > room {
                break;
            }
            room -= live;
            self.segments.set_use(victim, Use::Victim);
            self.collector.victims.push(victim);
        }
        if self.collector.victims.is_empty() {
            self.checkpoint.list_wanted |= starved;
            return self.no_victims(starved);
        }
        self.collector.idle_at = None;
        let geometry = self.segments.geometry;
        for &victim in &self.collector.victims {
            let generation = self.segments.get(victim).generation;
            let block = geometry.block(victim);
            let scan = Scan::new(victim, generation, block, geometry.segment_blocks);
            self.collector.scans.push(scan);
        }
        for number in 0..self.collector.scans.len() as u32 {
            self.read_list(number);
        }
        self.collector.phase = Phase::Listing;
    }

    /// Nothing can be won. A cut may show garbage; when two have not, the pool is full.
    fn no_victims(&mut self, starved: bool) {
        let cuts = self.stats.checkpoints;
        match self.collector.idle_at {
            _ if !starved => {}
            None => {
                self.collector.idle_at = Some(cuts);
                self.checkpoint.wanted = true;
            }
            Some(at) if cuts < at + 3 => self.checkpoint.wanted = true,
            Some(_) => {
                self.collector.idle_at = None;
                self.refuse_waiting();
            }
        }
    }

    /// There is no space, and none comes.
    fn refuse_waiting(&mut self) {
        for lane in Lane::ALL {
            for waiting in core::mem::take(&mut self.lanes[lane as usize].waiting) {
                self.answer(waiting.waiter.request, super::io::Outcome::NoSpace);
            }
            self.lanes[lane as usize].starved = false;
        }
    }

    fn read_list(&mut self, number: u32) {
        if let Some((block, blocks)) = self.collector.scans[number as usize].next() {
            let purpose = Purpose::List(number);
            let tag = self.ios.begin(IoOp::Read, block, blocks, purpose);
            self.out.push_back(Action::Submit(tag));
            self.collector.reads += 1;
        }
    }

    pub(super) fn victim_listed(&mut self, tag: Tag, number: u32, result: Result<&[u8], IoError>) {
        self.ios.release(tag);
        self.collector.reads -= 1;
        let secret = self.secret;
        if let Some(scan) = self.collector.scans.get_mut(number as usize) {
            scan.take(secret, result);
            self.read_list(number);
        }
    }

    fn list_victims(&mut self) {
        if self.collector.reads > 0 {
            return;
        }
        for scan in core::mem::take(&mut self.collector.scans) {
            let records = scan.batches.iter().flat_map(|batch| &batch.records);
            let stored = records
                .filter(|record| matches!(record.kind, RecordKind::Write | RecordKind::Move));
            // Without a footer, and with a header that cannot be read, more may live than is known.
            let complete = scan.by_footer || scan.end() >= self.segments.get(scan.segment).done;
            self.segments.get_mut(scan.segment).stuck = !complete;
            let generation = self.segments.get(scan.segment).generation;
            let items = stored.map(|record| Item {
                lineage: record.lineage,
                chunk: record.chunk,
                entry: Entry::stored(record.address, record.sectors, generation, record.crc),
                epoch: record.epoch,
            });
            self.collector.items.extend(items);
        }
        self.collector
            .items
            .sort_unstable_by_key(|item| (item.lineage, item.chunk));
        self.collector.next = 0;
        self.collector.phase = Phase::Looking;
    }

    /// Asks the maps of every record: counts advise, maps decide.
    fn look_up(&mut self) {
        while let Some(&item) = self.collector.items.get(self.collector.next) {
            match self.find(item.lineage, item.chunk) {
                Found::At(entry) if entry == item.entry => self.collector.live.push(item),
                Found::At(_) => {}
                Found::In(_) => return self.load_ahead(),
            }
            self.collector.next += 1;
        }
        self.collector.items.clear();
        self.collector
            .live
            .sort_unstable_by_key(|item| item.entry.address());
        self.collector.next = 0;
        self.collector.phase = Phase::Moving;
    }

    fn load_ahead(&mut self) {
        for ahead in self.collector.next..self.collector.next + AHEAD {
            let item = self.collector.items.get(ahead).copied();
            if let Some(item) = item
                && let Found::In(page) = self.find(item.lineage, item.chunk)
            {
                self.load(page);
            }
        }
    }

    fn move_live(&mut self) {
        while self.collector.reads < READS && self.collector.moved.len() < 4 * READ_BLOCKS as usize
        {
            let first = self.collector.next;
            let Some(&begin) = self.collector.live.get(first) else {
                break;
            };
            let address = begin.entry.address();
            let run = self.collector.live[first..].iter().zip(0..READ_BLOCKS);
            let run = run.take_while(|(item, ahead)| {
                item.entry.address() == address + ahead * BLOCK_SECTORS
            });
            let blocks = run.count();
            let block = address / BLOCK_SECTORS;
            let tag = self
                .ios
                .begin(IoOp::Read, block, blocks as u32, Purpose::Collect);
            for item in &self.collector.live[first..first + blocks] {
                self.ios.get_mut(tag).sums.push(Sum {
                    lineage: item.lineage,
                    chunk: item.chunk,
                    crc: item.entry.crc,
                });
            }
            self.out.push_back(Action::Submit(tag));
            self.collector.reads += 1;
            self.collector.next += blocks;
        }
        self.append_moved();
        let done = self.collector.next == self.collector.live.len();
        if done && self.collector.reads == 0 && self.collector.moved.is_empty() {
            self.collector.live.clear();
            self.collector.phase = Phase::Settling;
        }
    }

    pub(super) fn victim_read(&mut self, tag: Tag, result: Result<&[u8], IoError>) {
        let io = self.ios.get(tag);
        let bytes = result.unwrap_or_default();
        let good: Vec<bool> = verify(&io.sums, bytes).collect();
        if io.tries == 0 && !good.iter().all(|&good| good) {
            self.stats.bad_reads += 1;
            self.ios.again(tag);
            self.out.push_back(Action::Submit(tag));
            return;
        }
        self.collector.reads -= 1;
        let address = io.block * BLOCK_SECTORS;
        let at = self
            .collector
            .live
            .partition_point(|item| item.entry.address() < address);
        let items = self.collector.live.iter().skip(at).take(good.len());
        for ((&item, &good), place) in items.zip(&good).zip(0..) {
            let from = good.then_some((tag, place));
            self.collector.moved.push_back(Moved { item, from });
        }
        // One more, so that it stays until all of it was looked at.
        self.ios.get_mut(tag).copies = good.iter().filter(|&&good| good).count() as u32 + 1;
        self.release_copy(tag, 1);
    }

    /// Records moves of what still is where it was.
    fn append_moved(&mut self) {
        while let Some(moved) = self.collector.moved.front().copied() {
            let item = moved.item;
            let found = match self.find(item.lineage, item.chunk) {
                Found::At(entry) => entry,
                Found::In(page) => return self.load(page),
            };
            if found == item.entry {
                if self.active.room() == 0 {
                    self.checkpoint.wanted = true;
                    return;
                }
                let data = u32::from(moved.from.is_some());
                if !self.make_room(Lane::Collector, 1, data) {
                    return;
                }
                self.append_move(moved);
                self.progress = true;
            } else if let Some((tag, _)) = moved.from {
                self.release_copy(tag, 1);
            }
            self.collector.moved.pop_front();
        }
    }

    fn append_move(&mut self, moved: Moved) {
        let item = moved.item;
        let (address, generation) = self.next_address(Lane::Collector);
        let Some(batch) = &mut self.lanes[Lane::Collector as usize].open else {
            return;
        };
        let mut record = Record {
            kind: RecordKind::Lost,
            lineage: item.lineage,
            epoch: item.epoch,
            chunk: item.chunk,
            count: 1,
            address: 0,
            sectors: 0,
            crc: 0,
        };
        let mut entry = Entry::LOST;
        if let Some((read, first)) = moved.from {
            let sectors = item.entry.sectors();
            (record.kind, record.address) = (RecordKind::Move, address);
            (record.sectors, record.crc) = (sectors, item.entry.crc);
            entry = Entry::stored(address, sectors, generation, item.entry.crc);
            batch.data += 1;
            batch.push(Part::Copy {
                read,
                first,
                blocks: 1,
            });
            self.stats.moved_blocks += 1;
        } else {
            self.stats.poisoned += 1;
        }
        batch.records.push(record);
        let put = self.active.put(item.lineage, item.chunk, entry, item.epoch);
        debug_assert!(put.is_ok(), "there was room");
    }

    /// Moves are complete: the victims have nothing that is needed.
    fn settle(&mut self) {
        if !self.lanes[Lane::Collector as usize].is_idle() {
            return;
        }
        for victim in core::mem::take(&mut self.collector.victims) {
            if self.segments.get(victim).stuck {
                self.segments.set_use(victim, Use::Closed);
                continue;
            }
            self.segments.set_use(victim, Use::Drained);
            self.checkpoint.drained.push(victim);
            self.stats.victims += 1;
        }
        self.collector.phase = Phase::Idle;
    }
}
