//! Making a pool, and opening one: the superblock, the map but for its leaves, the listed segments.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::accounts::Accounts;
use super::cache::Cache;
use super::checkpoint::{Checkpoint, Kind, MapWriter};
use super::collector::Collector;
use super::flusher::Flusher;
use super::io::{Action, IoError, IoOp, Ios, Purpose, Tag};
use super::lane::LaneState;
use super::map::{Inner, LEVELS, Pages, System, Tree};
use super::payers::Payers;
use super::reads::Reads;
use super::replay::Replay;
use super::scrubber::Scrubbed;
use super::segments::{Geometry, Segments, Use};
use super::state::{CATALOGUE_PAGES, Limits, Options, State, Stats, Store, Tally, Volume};
use crate::entry::Lineage;
use crate::format::page::{FANOUT, HEAD, Head, PageKind, decode_inner};
use crate::format::rows::{PageRef, Row, SegmentRow, VolumeRow};
use crate::format::superblock::{COPIES, Features, MOST_DIRECTORY, Superblock, Tail};
use crate::format::{BLOCK, Block, FormatError, block_sum};
use crate::keyed::Secret;
use crate::table::Table;

/// Reads of recovery in flight.
const READS: u32 = 32;

/// Why a pool cannot be made or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No copy of the superblock is good; why the first is not.
    NoSuperblock(FormatError),
    /// Too few segments.
    Size,
    /// The device has fewer blocks than the pool.
    Smaller {
        /// Blocks up to the end of the pool.
        wanted: u64,
        /// Blocks of the device.
        blocks: u64,
    },
    /// The page table, its directory or the catalogue are damaged in both copies.
    Map,
    /// What an earlier recovery had decided on cannot be read any more.
    Log,
    /// The superblock could not be written.
    CannotWrite,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuperblock(why) => write!(f, "no copy of its superblock is good: {why}"),
            Self::Size => f.write_str("its segments are too few"),
            Self::Smaller { wanted, blocks } => {
                let bytes = |blocks: &u64| blocks.saturating_mul(BLOCK as u64);
                let (wanted, bytes) = (bytes(wanted), bytes(blocks));
                write!(
                    f,
                    "the pool takes {wanted} bytes and the device has {bytes}: give it its size back"
                )
            }
            Self::Map => f.write_str("both copies of a page of its map are damaged"),
            Self::Log => f.write_str("a part of its log that was read before cannot be read"),
            Self::CannotWrite => f.write_str("its superblock cannot be written"),
        }
    }
}

impl core::error::Error for OpenError {}

/// What recovery reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    Directory(u32),
    Table(u32),
    Segments(u32),
    Catalogue(u32),
    Inner {
        lineage: Lineage,
        level: usize,
        index: usize,
        page: u32,
    },
    /// A part of the log.
    Scan(u32),
    /// Data of a batch.
    Payload(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Directory,
    Table,
    System,
    Inner,
    Log,
    Beyond,
    Payload,
}

#[derive(Debug)]
pub(super) struct Recovery {
    stage: Stage,
    jobs: Vec<Job>,
    queue: VecDeque<u32>,
    in_flight: u32,
    pub replay: Replay,
}

impl Store {
    /// Makes an empty pool. `secret` is random, `pool` its identity.
    pub fn create(
        geometry: Geometry,
        pool: [u8; 16],
        secret: Secret,
        options: Options,
    ) -> Result<Self, OpenError> {
        let superblock = Superblock {
            pool,
            secret,
            generation: 0,
            parent: 0,
            segments: geometry.segments,
            segment_blocks: geometry.segment_blocks,
            first_block: geometry.first_block,
            row: geometry.row,
            incarnation: 1,
            incarnations: Vec::new(),
            next_lineage: 1,
            pages: 1,
            segment_pages: geometry.segments.div_ceil(SegmentRow::PER_PAGE as u32),
            catalogue_pages: CATALOGUE_PAGES,
            tails: [Tail::default(); 3],
            features: Features::of_row(geometry.row),
            grown: None,
            directory: Vec::new(),
            log: Vec::new(),
        };
        let mut store = Self::build(superblock, options)?;
        store.incarnation = 1;
        store.checkpoint.begin(Kind::Cut);
        Ok(store)
    }

    /// The same, for a pool that has `features` from its first superblock on. Before the first
    /// [`poll`](Self::poll).
    #[must_use]
    pub fn with(mut self, features: Features) -> Self {
        self.superblock.features = self.superblock.features.with(features);
        self
    }

    /// Opens a pool of which these are the copies of the superblock, as far as they can be read, on
    /// a device of so many blocks.
    pub fn open(
        copies: [Option<&[u8]>; COPIES],
        device_blocks: u64,
        options: Options,
    ) -> Result<Self, OpenError> {
        let mut newest: Option<Superblock> = None;
        let mut why = FormatError::Absent;
        for (copy, bytes) in (0..).zip(copies) {
            match bytes.map_or(Err(FormatError::Absent), |bytes| {
                Superblock::decode(bytes, copy)
            }) {
                Ok(found) => {
                    let before = newest.as_ref().map_or(0, |newest| newest.generation);
                    if found.generation > before || newest.is_none() {
                        newest = Some(found);
                    }
                }
                Err(error) if why == FormatError::Absent => why = error,
                Err(_) => {}
            }
        }
        let superblock = newest.ok_or(OpenError::NoSuperblock(why))?;
        let blocks = u64::from(superblock.segments) * u64::from(superblock.segment_blocks);
        let rows = superblock.segments.div_ceil(SegmentRow::PER_PAGE as u32);
        let tables = (superblock.pages as usize).div_ceil(PageRef::PER_PAGE);
        // Each growth gives the segment table other numbers.
        let times = 1 + u64::from(superblock.grown.is_some());
        let most_pages = times * blocks + u64::from(rows + CATALOGUE_PAGES + 1);
        let sound = superblock.segment_pages == rows
            && superblock.catalogue_pages == CATALOGUE_PAGES
            && u64::from(superblock.pages) <= most_pages
            && superblock.pages > rows + CATALOGUE_PAGES
            && superblock.directory.len() == tables.div_ceil(PageRef::PER_PAGE)
            && superblock.directory.len() <= MOST_DIRECTORY;
        let wanted = superblock.first_block + blocks;
        if wanted > device_blocks {
            return Err(OpenError::Smaller {
                wanted,
                blocks: device_blocks,
            });
        }
        if !sound {
            return Err(OpenError::Map);
        }
        let mut store = Self::build(superblock, options)?;
        store.begin_recovery();
        Ok(store)
    }

    fn build(superblock: Superblock, options: Options) -> Result<Self, OpenError> {
        let geometry = Geometry {
            segments: superblock.segments,
            segment_blocks: superblock.segment_blocks,
            first_block: superblock.first_block,
            row: superblock.row,
        };
        let segments = Segments::new(geometry, superblock.unused());
        let limits = Limits::new(segments.usable(), &options).ok_or(OpenError::Size)?;
        let system = System {
            segments: superblock.segment_table(),
            catalogue: superblock.catalogue(),
        };
        let table = || Table::new(limits.records, options.seed);
        Ok(Self {
            pool: superblock.pool,
            secret: superblock.secret,
            options,
            limits,
            state: State::Opening,
            ios: Ios::default(),
            out: VecDeque::with_capacity(256),
            segments,
            pages: Pages::new(system),
            cache: Cache::new(options.leaves),
            loading: BTreeSet::new(),
            lost: BTreeSet::new(),
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            next_lineage: superblock.next_lineage,
            active: table(),
            frozen: table(),
            accounts: Accounts::default(),
            parked: Vec::new(),
            lanes: core::array::from_fn(|_| LaneState::default()),
            spare: Vec::new(),
            flusher: Flusher::default(),
            reads: Reads::default(),
            writers: core::array::from_fn(|_| MapWriter::default()),
            checkpoint: Checkpoint::default(),
            collector: Collector::default(),
            payers: Payers::default(),
            checker: None,
            scrubber: None,
            scrubbed: Scrubbed::default(),
            report: None,
            differ: None,
            difference: None,
            recovery: None,
            decided: Vec::new(),
            is_cut_short: false,
            incarnation: superblock.incarnation + 1,
            superblock,
            sequence: 0,
            hand: 0,
            stats: Stats::default(),
            progress: false,
        })
    }

    fn begin_recovery(&mut self) {
        self.pages.resize(self.superblock.pages);
        self.pages.directory.clone_from(&self.superblock.directory);
        let mut recovery = Recovery {
            stage: Stage::Directory,
            jobs: Vec::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            replay: Replay::default(),
        };
        for number in 0..self.pages.directory.len() as u32 {
            recovery.add(Job::Directory(number));
        }
        self.recovery = Some(recovery);
    }

    /// Reads what is next; when a stage has read all, begins the next one.
    pub(super) fn recover(&mut self) {
        let Some(mut recovery) = self.recovery.take() else {
            return;
        };
        loop {
            while recovery.in_flight < READS {
                let Some(job) = recovery.queue.pop_front() else {
                    break;
                };
                self.submit_job(&mut recovery, job);
            }
            if recovery.in_flight > 0 {
                break;
            }
            match self.next_stage(&mut recovery) {
                Ok(true) => {}
                Ok(false) => return self.checkpoint.begin(Kind::Incarnation),
                Err(error) => {
                    self.state = State::Failed(error);
                    return;
                }
            }
        }
        self.recovery = Some(recovery);
    }

    fn submit_job(&mut self, recovery: &mut Recovery, number: u32) {
        let place = match recovery.jobs[number as usize] {
            Job::Scan(scan) => recovery.replay.next_read(scan),
            Job::Payload(batch) => Some(recovery.replay.payload(batch, self.segments.geometry)),
            job => Some((self.place_of(job).block, 1)),
        };
        if let Some((block, blocks)) = place {
            let purpose = Purpose::Recover(number);
            let tag = self.ios.begin(IoOp::Read, block, blocks, purpose);
            self.out.push_back(Action::Submit(tag));
            self.stats.recovery_blocks += u64::from(blocks);
            recovery.in_flight += 1;
        }
    }

    /// Where the page of a job is.
    pub(super) fn place_of(&self, job: Job) -> PageRef {
        let system = &self.pages.system;
        match job {
            Job::Directory(number) => self.pages.directory[number as usize],
            Job::Table(number) => self.pages.table[number as usize],
            Job::Segments(number) => self.pages.get(system.segments.start + number),
            Job::Catalogue(number) => self.pages.get(system.catalogue.start + number),
            Job::Inner { page, .. } => self.pages.get(page),
            Job::Scan(_) | Job::Payload(_) => PageRef::default(),
        }
    }

    pub(super) fn recovered(&mut self, tag: Tag, number: u32, result: Result<&[u8], IoError>) {
        let Some(mut recovery) = self.recovery.take() else {
            return self.ios.release(tag);
        };
        recovery.in_flight -= 1;
        let job = recovery.jobs[number as usize];
        let done = match job {
            Job::Scan(scan) => {
                recovery.replay.take(scan, self.secret, result);
                recovery.queue.push_back(number);
                Ok(())
            }
            Job::Payload(batch) => {
                let geometry = self.segments.geometry;
                recovery.replay.verify(batch, geometry, result);
                Ok(())
            }
            job => self.take_page(&mut recovery, job, result),
        };
        let tries = self.ios.get(tag).tries;
        let place = self.place_of(job);
        if done.is_err() && tries <= 1 && place.copy != 0 {
            self.stats.bad_pages += 1;
            self.ask_again(tag);
            self.ios.get_mut(tag).block = place.copy;
            recovery.in_flight += 1;
        } else {
            self.ios.release(tag);
            if done.is_err() {
                self.state = State::Failed(OpenError::Map);
            }
        }
        self.recovery = Some(recovery);
    }

    fn take_page(
        &mut self,
        recovery: &mut Recovery,
        job: Job,
        result: Result<&[u8], IoError>,
    ) -> Result<(), FormatError> {
        let bytes = result.ok().and_then(|bytes| <&Block>::try_from(bytes).ok());
        let bytes = bytes.ok_or(FormatError::Absent)?;
        if block_sum(bytes) != self.place_of(job).crc {
            return Err(FormatError::Checksum);
        }
        let system = self.pages.system.clone();
        let of_pool = |kind, number: u32, page: u32| {
            Head::of_pool(kind, u64::from(number), u64::from(page)).check(bytes)
        };
        match job {
            Job::Directory(number) => {
                of_pool(PageKind::Directory, number, 0)?;
                let from = number as usize * PageRef::PER_PAGE;
                let count = self.pages.table.len().saturating_sub(from);
                for place in 0..count.min(PageRef::PER_PAGE) {
                    self.pages.table[from + place] = PageRef::get(bytes, place)?;
                }
            }
            Job::Table(number) => {
                of_pool(PageKind::Table, number, 0)?;
                let from = number * PageRef::PER_PAGE as u32;
                let count = self.pages.count().saturating_sub(from);
                for place in 0..count.min(PageRef::PER_PAGE as u32) {
                    self.pages
                        .set(from + place, PageRef::get(bytes, place as usize)?);
                }
            }
            Job::Segments(number) => {
                of_pool(PageKind::Segments, number, system.segments.start + number)?;
                let from = number * SegmentRow::PER_PAGE as u32;
                let count = self.segments.geometry.segments - from;
                for place in 0..count.min(SegmentRow::PER_PAGE as u32) {
                    let row = SegmentRow::get(bytes, place as usize)?;
                    self.segments.restore(from + place, row);
                }
            }
            Job::Catalogue(number) => {
                of_pool(PageKind::Catalogue, number, system.catalogue.start + number)?;
                self.take_catalogue(bytes)?;
            }
            Job::Inner { .. } => self.take_inner(recovery, job, bytes)?,
            Job::Scan(_) | Job::Payload(_) => {}
        }
        Ok(())
    }

    fn take_catalogue(&mut self, bytes: &Block) -> Result<(), FormatError> {
        for place in 0..VolumeRow::PER_PAGE {
            let at = HEAD + place * VolumeRow::BYTES;
            if bytes[at..at + 4] == [0; 4] {
                return Ok(());
            }
            let row = VolumeRow::get(bytes, place)?;
            if row.root >= self.pages.count() || row.lineage.0 >= self.next_lineage {
                return Err(FormatError::Field("page number"));
            }
            let tally = Tally {
                chunks: row.mapped,
                sectors: row.sectors,
                packed: row.packed,
            };
            let mut tree = Tree::default();
            if row.root != 0 {
                tree.restore(LEVELS - 1, 0, empty_inner(row.root));
            }
            let volume = Volume {
                data: row.data,
                parent: row.parent,
                tally,
                form: row.form,
                shared: row.shared,
                made: row.made,
                reserved: row.reserved,
                deleting: row.deleting,
                epoch: row.epoch,
                tree,
                ..Volume::new(row.lineage, row.chunks, row.label)
            };
            if volume.is_snapshot() {
                self.snapshots.insert((row.data, row.epoch), row.lineage);
            }
            self.volumes.insert(row.lineage, volume);
        }
        Ok(())
    }

    fn take_inner(
        &mut self,
        recovery: &mut Recovery,
        job: Job,
        bytes: &Block,
    ) -> Result<(), FormatError> {
        let Job::Inner {
            lineage,
            level,
            index,
            page,
        } = job
        else {
            return Ok(());
        };
        let data = self
            .volumes
            .get(&lineage)
            .map_or(lineage, |volume| volume.data);
        let head = Head {
            kind: PageKind::Inner,
            level: level as u8 + 1,
            lineage: data.0,
            birth: self.pages.get(page).birth,
            index: index as u64,
            page: u64::from(page),
        };
        let mut inner = empty_inner(page);
        decode_inner(&head, bytes, self.pages.count(), &mut inner.children)?;
        for (within, &child) in inner.children.iter().enumerate() {
            if child != 0 && level > 0 {
                recovery.add(Job::Inner {
                    lineage,
                    level: level - 1,
                    index: index * FANOUT + within,
                    page: child,
                });
            }
        }
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            volume.tree.restore(level, index, inner);
        }
        Ok(())
    }

    /// A stage has read everything. False when recovery is done.
    fn next_stage(&mut self, recovery: &mut Recovery) -> Result<bool, OpenError> {
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        recovery.jobs.clear();
        recovery.stage = match recovery.stage {
            Stage::Directory => {
                let tables = 0..self.pages.table.len() as u32;
                tables.for_each(|number| recovery.add(Job::Table(number)));
                Stage::Table
            }
            Stage::Table => {
                (0..self.segments.pages()).for_each(|number| recovery.add(Job::Segments(number)));
                let first = self.pages.system.catalogue.start;
                let used = |number: &u32| self.pages.get(first + number).is_used();
                let catalogue = (0..CATALOGUE_PAGES).filter(used);
                catalogue.for_each(|number| recovery.add(Job::Catalogue(number)));
                Stage::System
            }
            Stage::System => {
                self.check_layers()?;
                for volume in self.volumes.values() {
                    let page = volume.tree.root();
                    if page != 0 {
                        recovery.add(Job::Inner {
                            lineage: volume.lineage,
                            level: LEVELS - 1,
                            index: 0,
                            page,
                        });
                    }
                }
                Stage::Inner
            }
            Stage::Inner => {
                self.take_map()?;
                let scans = recovery
                    .replay
                    .begin(&self.superblock, self.segments.geometry);
                scans.for_each(|number| recovery.add(Job::Scan(number)));
                Stage::Log
            }
            Stage::Log => {
                let scans = recovery.replay.look_beyond();
                scans.for_each(|number| recovery.add(Job::Scan(number)));
                Stage::Beyond
            }
            Stage::Beyond => {
                let tails = self.superblock.tails;
                let batches = recovery.replay.chain(tails).map_err(|()| OpenError::Log)?;
                for number in batches {
                    recovery.add(Job::Payload(number));
                }
                Stage::Payload
            }
            Stage::Payload => {
                self.take_log(&mut recovery.replay)?;
                return Ok(false);
            }
        };
        Ok(true)
    }

    /// Every layer stands on one that is there, and none on itself.
    fn check_layers(&self) -> Result<(), OpenError> {
        let snapshots = self.volumes.values().filter(|volume| volume.is_snapshot());
        if snapshots.count() != self.snapshots.len() {
            return Err(OpenError::Map);
        }
        for volume in self.volumes.values() {
            let mut at = volume.parent;
            for _ in 0..self.volumes.len() {
                let Some(parent) = at else {
                    break;
                };
                let below = self.volumes.get(&parent);
                let below = below.filter(|below| below.is_snapshot());
                at = below.ok_or(OpenError::Map)?.parent;
            }
            if at.is_some() {
                return Err(OpenError::Map);
            }
        }
        Ok(())
    }

    /// The map is in memory: what its pages use.
    fn take_map(&mut self) -> Result<(), OpenError> {
        self.pages.set_clean();
        self.pages.find_free();
        let pages = self.pages.iter().map(|(_, page)| page);
        let tables = self.pages.table.iter().chain(&self.pages.directory);
        let places: Vec<u64> = pages
            .chain(tables.copied())
            .flat_map(|page| [page.block, page.copy])
            .filter(|&block| block != 0)
            .collect();
        for block in places {
            let found = self.segments.geometry.locate(block);
            let (segment, _) = found.ok_or(OpenError::Map)?;
            match self.segments.get(segment).used {
                Use::Free => self.segments.set_use(segment, Use::Map),
                Use::Map => {}
                _ => return Err(OpenError::Map),
            }
            self.segments.add_page(segment, true);
        }
        Ok(())
    }

    /// Takes what replay has decided: the frozen table, and which segments hold it.
    fn take_log(&mut self, replay: &mut Replay) -> Result<(), OpenError> {
        replay.settle();
        self.is_cut_short = replay.is_cut_short();
        for entry in &self.superblock.log {
            let segment = self.segments.get(entry.segment);
            if segment.used == Use::Map {
                return Err(OpenError::Map);
            }
            let state = self.segments.get_mut(entry.segment);
            state.generation = entry.generation.max(state.generation);
            let end = replay.end_of(entry).unwrap_or(entry.from);
            let used = if end > 0 { Use::Closed } else { Use::Free };
            (state.done, state.suspect) = (end, end > 0);
            self.segments.set_use(entry.segment, used);
            self.segments.touch(entry.segment);
        }
        let ages = self.segments.iter().map(|(_, segment)| segment.age).max();
        self.sequence = replay.last_sequence().max(ages.unwrap_or(0));
        for entry in &self.superblock.log {
            self.segments.get_mut(entry.segment).age = self.sequence;
        }
        self.decided = replay.decided(&self.superblock.log);
        let seed = self.options.seed;
        let holder = |data, epoch, leaf| self.holder(data, epoch, leaf);
        let frozen = replay.table(seed, holder);
        self.frozen = frozen.ok_or(OpenError::Log)?;
        // Snapshots and volumes that never became durable have used epochs and numbers.
        for (lineage, epoch) in replay.epochs() {
            self.next_lineage = self.next_lineage.max(lineage.0 + 1);
            if let Some(volume) = self.volumes.get_mut(&lineage) {
                volume.epoch = volume.epoch.max(epoch);
            }
        }
        self.open_accounts();
        Ok(())
    }
}

impl Recovery {
    fn add(&mut self, job: Job) {
        self.queue.push_back(self.jobs.len() as u32);
        self.jobs.push(job);
    }

    pub fn job(&self, number: u32) -> Option<Job> {
        self.jobs.get(number as usize).copied()
    }
}

/// A page whose children are not known yet.
fn empty_inner(page: u32) -> Inner {
    let children: Box<[u32]> = vec![0; FANOUT].into_boxed_slice();
    Inner {
        page,
        children: children.try_into().expect("as many as a page has"),
        dirty: false,
    }
}
