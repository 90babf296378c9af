//! Garbage collection: lists what victims hold, asks the maps what of it lives, and moves that.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::io::{Action, IoError, IoOp, Part, Payer, Purpose, Read, Tag};
use super::lane::kept;
use super::reads::Found;
use super::scan::Scan;
use super::segments::Use;
use super::state::Store;
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::BLOCK_SECTORS;
use crate::format::batch::{Lane, Record, RecordKind};

/// Victims that are emptied together.
const VICTIMS: usize = 8;
/// Segments that are found in one look at all.
const CANDIDATES: usize = 64;
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
    segment: u32,
}

impl Item {
    /// In what order data are moved: what is packed apart from what begins at whole blocks, so that
    /// few blocks are left with a gap.
    fn order(&self) -> (bool, u64) {
        (self.entry.codec() != 0, self.entry.address())
    }
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
    /// Segments to collect next, the best last; and the cuts that were durable when they were
    /// looked for, and whether space was short.
    candidates: Vec<u32>,
    looked_at: (u64, bool),
    /// There were none.
    none_left: bool,
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
    /// Whether it moves nothing.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether all that lives in the victims is in batches.
    pub fn is_settling(&self) -> bool {
        self.phase == Phase::Settling
    }
}

impl Store {
    pub(super) fn collect(&mut self) {
        self.cut_for_space();
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

    /// What is drained comes back with the next cut, which the memory table wants soon enough: a
    /// cut costs too much to be made for a few segments. Only when space is short it is.
    fn cut_for_space(&mut self) {
        let starved = self.lanes.iter().any(|lane| lane.starved);
        let short = self.headroom() < -i64::from(self.limits.lead) / 2;
        if (short || starved) && !self.checkpoint.drained.is_empty() {
            self.checkpoint.wanted = true;
        }
    }

    fn choose_victims(&mut self) {
        let starved = self.lanes.iter().any(|lane| lane.starved);
        let headroom = self.headroom();
        let lead = i64::from(self.limits.lead);
        let drained = i64::try_from(self.checkpoint.drained.len()).unwrap_or(i64::MAX);
        let short = headroom < -lead / 2;
        let enough = headroom.saturating_add(drained) >= lead / 4 && !(starved && drained == 0);
        // What recovery found is in no count before its cut: segments that hold it look empty, and
        // there might be no room for what lives in them.
        let unknown = !self.decided.is_empty();
        let deletes = self.checkpoint.deletes_next && self.is_deleting();
        if enough || unknown || deletes || self.checkpoint.deletes {
            return;
        }
        // What lives in the victims has to find a place, also when cuts end batches early.
        let room = self.segments.listed().saturating_sub(kept(Lane::Collector));
        let room = room * self.segments.geometry.most_live() * 3 / 4;
        let mut room = u64::from(room) * BLOCK_SECTORS;
        while self.collector.victims.len() < VICTIMS {
            let Some(victim) = self.next_candidate(short) else {
                break;
            };
            let live = u64::from(self.segments.get(victim).live);
            if live > room {
                self.collector.candidates.push(victim);
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
            let scan = Scan::new(victim, generation, geometry);
            self.collector.scans.push(scan);
        }
        for number in 0..self.collector.scans.len() as u32 {
            self.read_list(number);
        }
        self.collector.phase = Phase::Listing;
    }

    /// The segment that is best to collect. Counts change with cuts only, so one look at all
    /// segments is good for many until the next one.
    fn next_candidate(&mut self, greedy: bool) -> Option<u32> {
        let now = (self.stats.checkpoints, greedy);
        if self.collector.looked_at != now {
            (self.collector.looked_at, self.collector.none_left) = (now, false);
            self.collector.candidates.clear();
        }
        while let Some(victim) = self.collector.candidates.pop() {
            if self.segments.may_collect(self.segments.get(victim)) {
                return Some(victim);
            }
        }
        if !self.collector.none_left {
            self.collector.candidates = self.segments.victims(CANDIDATES, self.sequence, greedy);
        }
        self.collector.none_left = self.collector.candidates.is_empty();
        self.collector.candidates.pop()
    }

    /// Nothing can be won. A cut may show garbage; when two have not, the pool is full.
    fn no_victims(&mut self, starved: bool) {
        let cuts = self.stats.checkpoints;
        match self.collector.idle_at {
            _ if !starved => {}
            // What is deleted makes room.
            _ if self.is_deleting() => self.checkpoint.deletes_next = true,
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
        for parked in core::mem::take(&mut self.parked) {
            self.answer(parked.waiting.waiter.request, super::io::Outcome::NoSpace);
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

    /// Whether bytes are what the list of a victim goes on with.
    pub(super) fn is_list(&self, victim: u32, bytes: &[u8]) -> bool {
        let scan = self.collector.scans.get(victim as usize);
        scan.is_none_or(|scan| scan.is_good(self.secret, bytes))
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
                entry: record.entry(generation),
                epoch: record.epoch,
                segment: scan.segment,
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
            let lives = match self.find_held(item) {
                Found::At(entry, _) => entry == item.entry,
                Found::In(_) => return self.load_ahead(),
            };
            if lives {
                self.collector.live.push(item);
            }
            let (victim, sectors) = (item.segment, item.entry.sectors());
            self.payers.found(item.lineage, victim, sectors, lives);
            self.collector.next += 1;
        }
        self.payers.divide();
        self.collector.items.clear();
        self.collector.live.sort_unstable_by_key(Item::order);
        self.collector.next = 0;
        self.collector.phase = Phase::Moving;
    }

    /// What the layer says that has what was written then.
    fn find_held(&mut self, item: Item) -> Found {
        let layer = self.holder(item.lineage, item.epoch, item.chunk / LEAF_CHUNKS);
        self.find_own(layer, item.chunk)
    }

    fn load_ahead(&mut self) {
        for ahead in self.collector.next..self.collector.next + AHEAD {
            let item = self.collector.items.get(ahead).copied();
            if let Some(item) = item
                && let Found::In(page) = self.find_held(item)
            {
                self.load_for(page, Payer::Collection);
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
            let block = begin.entry.address() / BLOCK_SECTORS;
            let most = (block + READ_BLOCKS) * BLOCK_SECTORS;
            let mut end = begin.entry.address();
            let run = self.collector.live[first..].iter().take_while(|item| {
                let follows = item.entry.address() == end && item.entry.end() <= most;
                end = if follows { item.entry.end() } else { end };
                follows
            });
            let chunks = run.count();
            let blocks = (end.div_ceil(BLOCK_SECTORS) - block) as u32;
            let tag = self.ios.begin(IoOp::Read, block, blocks, Purpose::Collect);
            for item in &self.collector.live[first..first + chunks] {
                let read = Read::new(item.lineage, item.chunk, item.entry, block);
                self.ios.get_mut(tag).chunks.push(read);
            }
            self.out.push_back(Action::Submit(tag));
            self.collector.reads += 1;
            self.collector.next += chunks;
        }
        self.append_moved();
        if self.is_stuck() {
            return self.give_victims_back();
        }
        let done = self.collector.next == self.collector.live.len();
        if done && self.collector.reads == 0 && self.collector.moved.is_empty() {
            self.collector.live.clear();
            self.collector.phase = Phase::Settling;
        }
    }

    pub(super) fn victim_read(&mut self, tag: Tag, result: Result<&[u8], IoError>) {
        let io = self.ios.get(tag);
        let bytes = result.unwrap_or_default();
        let good: Vec<bool> = io.chunks.iter().map(|chunk| chunk.is_good(bytes)).collect();
        if io.tries == 0 && !good.iter().all(|&good| good) {
            self.stats.bad_reads += 1;
            self.ask_again(tag);
            return;
        }
        self.collector.reads -= 1;
        let order = io.chunks.first().map_or((false, 0), |chunk| {
            let address = io.block * BLOCK_SECTORS + u64::from(chunk.first);
            (chunk.codec != 0, address)
        });
        let live = &self.collector.live;
        let at = live.partition_point(|item| item.order() < order);
        let items = live.iter().skip(at).zip(&io.chunks);
        let mut kept = 0;
        for ((&item, chunk), &good) in items.zip(&good) {
            let from = good.then_some((tag, chunk.first));
            kept += if good { chunk.sectors } else { 0 };
            self.collector.moved.push_back(Moved { item, from });
        }
        // One more, so that it stays until all of it was looked at.
        self.ios.get_mut(tag).copies = kept + 1;
        self.release_copy(tag, 1);
    }

    /// Records moves of what still is where it was.
    fn append_moved(&mut self) {
        while let Some(moved) = self.collector.moved.front().copied() {
            let item = moved.item;
            let (found, layer) = match self.find_held(item) {
                Found::At(entry, layer) => (entry, layer),
                Found::In(page) => {
                    self.load_for(page, Payer::Collection);
                    return;
                }
            };
            if found == item.entry {
                if self.active.room() == 0 {
                    self.checkpoint.wanted = true;
                    return;
                }
                let data = moved
                    .from
                    .map(|_| (item.entry.sectors(), item.entry.codec()));
                if !self.make_room(Lane::Collector, 1, data.into_iter()) {
                    return;
                }
                self.append_move(moved, layer);
                self.progress = true;
            } else if let Some((tag, _)) = moved.from {
                self.release_copy(tag, item.entry.sectors());
            }
            self.collector.moved.pop_front();
        }
    }

    fn append_move(&mut self, moved: Moved, layer: Lineage) {
        let item = moved.item;
        let (address, generation) = self.first_address(Lane::Collector);
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
            codec: 0,
            crc: 0,
        };
        let mut entry = Entry::LOST;
        if let Some((read, first)) = moved.from {
            let (sectors, codec) = (item.entry.sectors(), item.entry.codec());
            record.kind = RecordKind::Move;
            record.address = address + u64::from(batch.take(sectors, codec));
            (record.sectors, record.codec, record.crc) = (sectors, codec, item.entry.crc);
            entry = record.entry(generation);
            batch.push(Part::Copy {
                read,
                first,
                sectors,
            });
            self.stats.moved_blocks += u64::from(sectors).div_ceil(BLOCK_SECTORS);
        } else {
            self.stats.poisoned += 1;
        }
        batch.records.push(record);
        batch.layers.push(layer);
        let put = self.active.put(layer, item.chunk, entry, item.epoch);
        debug_assert!(put.is_ok(), "there was room");
    }

    /// What lives in the victims has no segment to go to, and nothing that has begun brings one:
    /// batches that were written again took those that were there when the victims were chosen.
    fn is_stuck(&self) -> bool {
        let lane = &self.lanes[Lane::Collector as usize];
        let checkpoint = &self.checkpoint;
        let cut_comes = checkpoint.is_busy() || checkpoint.wanted || !checkpoint.drained.is_empty();
        lane.starved
            && !lane.failing
            && lane.redo.is_empty()
            && self.collector.reads == 0
            && self.segments.listed() <= kept(Lane::Collector)
            && !cut_comes
            && !self.can_list()
    }

    /// The victims stay as they are. What was moved so far counts with the next cut: then those
    /// that are empty need no segment.
    fn give_victims_back(&mut self) {
        for Moved { item, from } in core::mem::take(&mut self.collector.moved) {
            if let Some((tag, _)) = from {
                self.release_copy(tag, item.entry.sectors());
            }
        }
        self.collector.live.clear();
        for victim in core::mem::take(&mut self.collector.victims) {
            self.segments.set_use(victim, Use::Closed);
        }
        self.checkpoint.wanted = true;
        self.collector.phase = Phase::Idle;
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
        self.checkpoint.deletes_next = true;
    }
}
