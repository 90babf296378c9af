//! A store with its device and its hosts: does what the store says, in an order by seed, and holds
//! what hosts get against the model.

use std::collections::{BTreeMap, BTreeSet};

use flashyard_logstore::format::rows::LABEL;
use flashyard_logstore::format::{SECTOR, chunk_sum};
use flashyard_logstore::{
    Action, COPIES, Form, Geometry, Growth, IoError, IoOp, Lineage, OpenError, Options, Outcome,
    Part, Refused, Report, Request, SUPERBLOCK, Secret, State, Store, Stored, Tag,
};
use flashyard_time::Rng;

use crate::device::{BLOCK, Cut, Device};
use crate::model::{Ask, Model, Version, is_zero};
use crate::referenced::Referenced;
use crate::rows::UsedRows;

pub const SUPER_BLOCKS: u64 = (SUPERBLOCK / BLOCK) as u64;

/// An I/O of the store that has not ended.
struct InFlight {
    tag: Tag,
    op: IoOp,
    block: u64,
    blocks: u32,
    /// What is written.
    bytes: Vec<u8>,
    /// Of a flush, what it covers.
    mark: usize,
    host: Option<(Request, u32)>,
    /// It writes what garbage collection moves.
    moves: bool,
}

pub struct World {
    pub store: Store,
    pub device: Device,
    /// Where the last two superblocks end.
    superblocks_end: u64,
    rows: UsedRows,
    pub model: Model,
    pub chance: Rng,
    pub options: Options,
    in_flight: Vec<InFlight>,
    /// What reads gave whose data are moved.
    kept: BTreeMap<Tag, Vec<u8>>,
    /// Versions of the chunks of each read so far.
    got: BTreeMap<Request, BTreeMap<u32, Version>>,
    next_request: Request,
    /// Writes to the device so far, and the one at which the power goes.
    pub writes: u64,
    pub cut_at: Option<u64>,
    /// Of 1,000 writes so many fail.
    pub write_errors: u64,
    pub errors: u64,
    pub discards: u64,
    /// Other I/O overtakes writes of what is moved.
    pub slow_moves: bool,
    /// Requests that were not about data, and are done.
    pub done: BTreeMap<Request, Outcome>,
    /// Snapshots that were asked for.
    pub coming: BTreeMap<Request, Vec<Lineage>>,
    pub referenced: Referenced,
    forms: BTreeMap<Lineage, Form>,
    /// Contents that a tenant has chosen, and the version that each stands for.
    forged: BTreeMap<Version, Vec<u8>>,
    /// What the next chunk that is written has.
    next_content: Option<Vec<u8>>,
}

/// What volumes can be.
pub const FORMS: [Form; 5] = [
    form(12, 0),
    form(12, 1),
    form(14, 0),
    form(14, 1),
    form(14, 2),
];

const fn form(chunk_shift: u8, codec: u8) -> Form {
    Form { chunk_shift, codec }
}

/// Sectors and codec of a version: where there is a codec every third is stored as it is, some are
/// zeroes, and the others take anything from a sector on.
fn shape(form: Form, version: Version) -> (u8, u8) {
    let whole = form.chunk_sectors();
    match form.codec {
        0 => (whole as u8, 0),
        _ if is_zero(version) => (0, 0),
        _ if version.is_multiple_of(3) => (whole as u8, 0),
        codec => {
            let sectors = 1 + version * 7919 % u64::from(whole - 1);
            (sectors as u8, codec)
        }
    }
}

/// The stored bytes of a chunk.
fn content(version: Version, sectors: u8) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(sectors) * SECTOR];
    for (place, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(version ^ (place as u64) << 48).to_le_bytes());
    }
    bytes
}

pub fn small() -> Geometry {
    Geometry {
        segments: 80,
        segment_blocks: 40,
        first_block: 2 * SUPER_BLOCKS,
        row: 1,
    }
}

impl World {
    pub fn new(seed: u64, geometry: Geometry, options: Options) -> Self {
        let blocks = u64::from(geometry.segments) * u64::from(geometry.segment_blocks);
        let device = Device::new(blocks + 4 * SUPER_BLOCKS);
        let superblocks_end = device.blocks();
        let secret = Secret(*b"a secret of test");
        let store = Store::create(geometry, *b"the pool of test", secret, options);
        let mut world = Self {
            store: store.expect("there are segments enough"),
            device,
            superblocks_end,
            rows: UsedRows::new(geometry),
            model: Model::default(),
            chance: Rng::new(seed),
            options,
            in_flight: Vec::new(),
            kept: BTreeMap::new(),
            got: BTreeMap::new(),
            next_request: 1,
            writes: 0,
            cut_at: None,
            write_errors: 0,
            errors: 0,
            discards: 0,
            slow_moves: false,
            done: BTreeMap::new(),
            coming: BTreeMap::new(),
            referenced: Referenced::default(),
            forms: BTreeMap::new(),
            forged: BTreeMap::new(),
            next_content: None,
        };
        assert!(world.settle());
        assert_eq!(world.store.state(), State::Ready);
        world
    }

    /// Whether nothing is in flight and the store has nothing to do.
    pub fn is_idle(&mut self) -> bool {
        self.pump() && self.in_flight.is_empty() && self.store.is_idle()
    }

    /// The first block of a copy of the superblock.
    fn super_block(&self, copy: u8) -> u64 {
        match copy {
            0 | 1 => u64::from(copy) * SUPER_BLOCKS,
            _ => self.superblocks_end - u64::from(4 - copy) * SUPER_BLOCKS,
        }
    }

    /// What the pool can become on the device as it is now.
    pub fn growth(&self) -> Option<Growth> {
        let kept = self.super_block(2)..self.superblocks_end;
        self.store.growth(self.device.blocks(), kept)
    }

    /// Takes up the device, if there is more of it; false when the power went.
    pub fn grow(&mut self) -> bool {
        let Some(growth) = self.growth() else {
            return true;
        };
        let request = self.request();
        self.store.grow(request, growth).expect("it is ready");
        self.settle() && self.done.remove(&request) == Some(Outcome::Success)
    }

    pub fn request(&mut self) -> Request {
        self.next_request += 1;
        self.next_request
    }

    /// Makes a volume, durably.
    pub fn create(&mut self, chunks: u64) -> Lineage {
        self.create_formed(chunks, Form::default())
    }

    /// The same, of any form.
    pub fn create_formed(&mut self, chunks: u64, form: Form) -> Lineage {
        let request = self.request();
        let lineage = self.store.create_formed(request, chunks, form, [7; LABEL]);
        let lineage = lineage.expect("there is a place");
        assert!(self.settle());
        assert_eq!(self.done.remove(&request), Some(Outcome::Success));
        self.model.create(lineage, chunks);
        self.forms.insert(lineage, form);
        if form.codec != 0 {
            self.model.packed.insert(lineage);
        }
        lineage
    }

    /// How a volume keeps its chunks.
    pub fn form(&self, lineage: Lineage) -> Form {
        self.forms[&lineage]
    }

    /// A snapshot or a clone is as what it is of.
    pub fn inherit_form(&mut self, from: Lineage, to: Lineage) {
        self.forms.insert(to, self.forms[&from]);
        if self.model.packed.contains(&from) {
            self.model.packed.insert(to);
        }
    }

    /// Begins to delete a volume.
    pub fn begin_delete(&mut self, lineage: Lineage) {
        let request = self.request();
        self.store
            .delete_volume(request, lineage)
            .expect("it exists");
    }

    /// Deletes a volume; false when the power went.
    pub fn delete(&mut self, lineage: Lineage) -> bool {
        self.begin_delete(lineage);
        let through = self.settle();
        if through {
            self.model.delete(lineage);
        }
        through
    }

    /// Asks; what becomes of it the model sees.
    pub fn ask(&mut self, ask: Ask) -> Result<(), Refused> {
        let request = self.request();
        let begun = self.model.begin(request, ask);
        let result = match ask {
            Ask::Write {
                lineage,
                chunk,
                count,
                durable,
            } => {
                if let Some(content) = self.next_content.take() {
                    self.forged.insert(begun, content);
                }
                let stored = (chunk..chunk + u64::from(count)).zip(begun..);
                let stored: Vec<Stored> = stored
                    .map(|(chunk, version)| self.stored(lineage, chunk, version).0)
                    .collect();
                self.store.write(request, lineage, chunk, &stored, durable)
            }
            Ask::Trim {
                lineage,
                chunk,
                count,
            } => self.store.trim(request, lineage, chunk..chunk + count),
            Ask::Read {
                lineage,
                chunk,
                count,
            } => self.store.read(request, lineage, chunk, count),
            Ask::Flush { lineage } => self.store.flush(request, lineage),
        };
        if result.is_err() {
            self.model.refuse(request);
        }
        result
    }

    /// Does what the store says; false when the power has to go.
    pub fn pump(&mut self) -> bool {
        while let Some(action) = self.store.poll() {
            match action {
                Action::Submit(tag) => {
                    if !self.submit(tag) {
                        return false;
                    }
                }
                Action::Forget(tag) => {
                    self.kept.remove(&tag).expect("a read that was kept");
                }
                Action::Zeroes {
                    request,
                    first,
                    blocks,
                } => {
                    let chunk = self.form_of(request).chunk_blocks();
                    assert_eq!((first % chunk, blocks % chunk), (0, 0));
                    let got = self.got.entry(request).or_default();
                    let chunks = first / chunk..(first + blocks) / chunk;
                    got.extend(chunks.map(|place| (place, 0)));
                }
                Action::Done { request, outcome } => {
                    let got = self.got.remove(&request).unwrap_or_default();
                    if outcome == Outcome::Success {
                        for snapshot in self.coming.remove(&request).unwrap_or_default() {
                            self.model.end_snapshot(snapshot);
                        }
                    }
                    if !self.model.end(request, outcome, &got) {
                        self.done.insert(request, outcome);
                    }
                }
            }
        }
        true
    }

    fn submit(&mut self, tag: Tag) -> bool {
        let io = self.store.io(tag);
        let (op, blocks, host) = (io.op, io.blocks, io.host);
        let moves = io
            .parts
            .iter()
            .any(|part| matches!(part, Part::Copy { .. }));
        let mut block = io.block;
        let mut bytes = Vec::new();
        for part in &io.parts {
            match *part {
                Part::Own => bytes.extend_from_slice(&io.own),
                Part::Host {
                    request,
                    first,
                    sectors,
                } => {
                    let all = self.written(request);
                    let from = first as usize * SECTOR;
                    bytes.extend_from_slice(&all[from..from + sectors as usize * SECTOR]);
                }
                Part::Copy {
                    read,
                    first,
                    sectors,
                } => {
                    let from = first as usize * SECTOR;
                    let kept = &self.kept[&read];
                    bytes.extend_from_slice(&kept[from..from + sectors as usize * SECTOR]);
                }
                Part::Gap(sectors) => bytes.resize(bytes.len() + sectors as usize * SECTOR, 0),
            }
        }
        if let IoOp::WriteSuperblock(copy) = op {
            block = self.super_block(copy);
        }
        if op == IoOp::Discard {
            self.referenced.assert_free(block, blocks);
        }
        if matches!(op, IoOp::Write | IoOp::WriteSuperblock(_)) {
            assert_eq!(bytes.len(), blocks as usize * BLOCK, "parts fill the write");
            if op == IoOp::Write {
                let over = |at: u64| at < block + u64::from(blocks) && block < at + SUPER_BLOCKS;
                assert!(!self.copies().into_iter().any(over), "it hits a superblock");
                self.referenced.assert_free(block, blocks);
                self.rows.take(block, &bytes);
            }
            if self.cut_at == Some(self.writes) {
                self.in_flight.push(InFlight {
                    tag,
                    op,
                    block,
                    blocks,
                    bytes,
                    mark: 0,
                    host,
                    moves,
                });
                return false;
            }
            self.writes += 1;
        }
        self.in_flight.push(InFlight {
            tag,
            op,
            block,
            blocks,
            bytes,
            mark: self.device.mark(),
            host,
            moves,
        });
        true
    }

    /// Ends one I/O, any one; false when there is none.
    pub fn end_one(&mut self) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        let mut place = self.chance.below(self.in_flight.len() as u64) as usize;
        if self.slow_moves && self.chance.below(30) > 0 {
            let others = self.in_flight.iter().position(|io| !io.moves);
            place = others.unwrap_or(place);
        }
        let io = self.in_flight.swap_remove(place);
        match io.op {
            IoOp::Write | IoOp::WriteSuperblock(_) => {
                let fails = io.op == IoOp::Write && self.chance.below(1000) < self.write_errors;
                // What failed may have been written all the same.
                if !fails || self.chance.below(2) == 0 {
                    self.device.write(io.block, &io.bytes);
                }
                self.errors += u64::from(fails);
                let result = if fails {
                    Err(IoError::NoSpace)
                } else {
                    Ok(&[][..])
                };
                self.store.completed(io.tag, result);
            }
            IoOp::Read => {
                let bytes = self.device.read(io.block, io.blocks);
                let result = bytes.as_deref().ok_or(IoError::Failed);
                if let (Some((request, first)), Ok(bytes)) = (io.host, result) {
                    let form = self.form_of(request);
                    let asked = self.store.io(io.tag);
                    let got = self.got.entry(request).or_default();
                    for (place, chunk) in (first / form.chunk_blocks()..).zip(asked.chunks()) {
                        let whole = form.chunk_sectors();
                        assert!(chunk.codec != 0 || chunk.sectors == whole);
                        let from = place * whole - first * 8;
                        assert!(
                            !asked.is_plain() || chunk.first == from,
                            "it is where it goes"
                        );
                        let chunk = chunk.of(bytes).expect("it lies in what was read");
                        let forged = self.forged.iter().filter(|(_, bytes)| *bytes == chunk);
                        let version = u64::from_le_bytes(chunk[..8].try_into().expect("8 bytes"));
                        // Two versions may have the same content: any that is allowed.
                        let allowed = self.model.allowed(request, place);
                        let forged = forged.map(|(version, _)| *version);
                        let forged: Vec<Version> = forged.collect();
                        let fits = forged.iter().find(|version| allowed.contains(version));
                        let version = *fits.or(forged.first()).unwrap_or(&version);
                        got.insert(place, version);
                    }
                }
                self.store.completed(io.tag, result);
                if io.host.is_none() {
                    self.kept.insert(io.tag, bytes.unwrap_or_default());
                }
            }
            IoOp::Flush => {
                self.device.flushed(io.mark);
                self.store.completed(io.tag, Ok(&[]));
                self.referenced.look(&self.device, self.copies());
            }
            IoOp::Discard => {
                // What the device makes of it is its matter.
                let bytes = vec![0xdd; io.blocks as usize * BLOCK];
                self.device.write(io.block, &bytes);
                self.discards += 1;
                self.store.completed(io.tag, Ok(&[]));
            }
        }
        true
    }

    fn copies(&self) -> [u64; COPIES] {
        core::array::from_fn(|copy| self.super_block(copy as u8))
    }

    /// Until nothing is in flight; false when the power went.
    pub fn settle(&mut self) -> bool {
        let mut turns = 0;
        loop {
            if !self.pump() {
                return false;
            }
            if !self.end_one() {
                return true;
            }
            turns += 1;
            assert!(turns < 2_000_000, "it does not come to an end");
        }
    }

    /// The power goes, and comes again; false when it goes again before the pool is open.
    pub fn cut(&mut self, cut: Cut) -> bool {
        let in_flight = self.stop();
        self.device.cut(cut, &in_flight, &mut self.chance);
        self.reopen()
    }

    /// Writes that were in flight when everything stopped.
    fn stop(&mut self) -> Vec<(u64, Vec<u8>)> {
        let in_flight = self.in_flight.drain(..);
        let writes = in_flight.filter(|io| matches!(io.op, IoOp::Write | IoOp::WriteSuperblock(_)));
        writes.map(|io| (io.block, io.bytes)).collect()
    }

    /// The program is killed: the device keeps its cache.
    pub fn kill(&mut self) -> bool {
        for io in std::mem::take(&mut self.in_flight) {
            if matches!(io.op, IoOp::Write | IoOp::WriteSuperblock(_)) && self.chance.below(2) == 0
            {
                self.device.write(io.block, &io.bytes);
            }
        }
        self.reopen()
    }

    /// A chunk as it is stored.
    fn stored(&self, lineage: Lineage, chunk: u64, version: Version) -> (Stored, Vec<u8>) {
        let (sectors, codec) = shape(self.forms[&lineage], version);
        let forged = self.forged.get(&version).cloned();
        let bytes = forged.unwrap_or_else(|| content(version, sectors));
        let crc = match sectors {
            0 => 0,
            _ => chunk_sum(lineage, chunk, &bytes),
        };
        let stored = Stored {
            sectors,
            codec,
            crc,
        };
        (stored, bytes)
    }

    /// All that a write stores.
    fn written(&self, request: Request) -> Vec<u8> {
        let Some(Ask::Write {
            lineage,
            chunk,
            count,
            ..
        }) = self.model.ask_of(request)
        else {
            return Vec::new();
        };
        let chunks = (chunk..chunk + u64::from(count)).zip(self.model.version_of(request)..);
        chunks
            .flat_map(|(chunk, version)| self.stored(lineage, chunk, version).1)
            .collect()
    }

    /// The form of the volume that a read is of.
    fn form_of(&self, request: Request) -> Form {
        match self.model.ask_of(request) {
            Some(Ask::Read { lineage, .. }) => self.forms[&lineage],
            _ => Form::default(),
        }
    }

    /// The next chunk that is written has this content.
    pub fn forge(&mut self, content: Vec<u8>) {
        self.next_content = Some(content);
    }

    /// All blocks of the device that are headers of batches.
    pub fn headers(&self) -> Vec<Vec<u8>> {
        let blocks = (0..self.device.blocks()).filter_map(|block| self.device.read(block, 1));
        blocks.filter(|bytes| bytes[8..12] == *b"FYLB").collect()
    }

    /// Flips a bit in those copies of the superblock.
    pub fn damage_superblocks(&mut self, which: impl Fn(u8) -> bool) {
        for copy in (0..COPIES as u8).filter(|copy| which(*copy)) {
            let bit = self.chance.below(8 * SUPERBLOCK as u64) as usize;
            let block = self.super_block(copy) + (bit / (8 * BLOCK)) as u64;
            self.device.flip(block, bit % (8 * BLOCK));
        }
    }

    /// A checkpoint; false when the power went.
    pub fn checkpoint(&mut self) -> bool {
        let request = self.request();
        self.store.checkpoint(request).expect("it is ready");
        self.settle()
    }

    /// A delete that was cut off may have happened or not.
    pub fn model_follows_deletes(&mut self) {
        let there: BTreeSet<Lineage> = self
            .store
            .volumes()
            .filter(|volume| !volume.deleting)
            .map(|volume| volume.lineage)
            .collect();
        self.model.keep(&there);
    }

    /// The power goes, and comes again, to a pool that may be damaged.
    pub fn try_cut(&mut self, cut: Cut) -> Result<(), OpenError> {
        let in_flight = self.stop();
        self.device.cut(cut, &in_flight, &mut self.chance);
        self.try_reopen().map(drop)
    }

    fn reopen(&mut self) -> bool {
        let opened = self.try_reopen();
        opened.expect("the pool is whole")
    }

    /// False when the power went.
    fn try_reopen(&mut self) -> Result<bool, OpenError> {
        self.kept.clear();
        self.got.clear();
        self.done.clear();
        self.coming.clear();
        self.model.forget_requests();
        let copies: Vec<Option<Vec<u8>>> = (0..COPIES as u8)
            .map(|copy| {
                self.device
                    .read(self.super_block(copy), SUPER_BLOCKS as u32)
            })
            .collect();
        let copies = core::array::from_fn(|copy| copies[copy].as_deref());
        self.options.seed += 1;
        self.store = Store::open(copies, self.device.blocks(), self.options)?;
        let mut turns = 0;
        while self.store.state() == State::Opening {
            if !self.pump() {
                return Ok(false);
            }
            if self.store.state() == State::Opening {
                assert!(self.end_one(), "opening goes on");
            }
            turns += 1;
            assert!(turns < 1_000_000, "opening comes to an end");
        }
        match self.store.state() {
            State::Failed(error) => Err(error),
            State::ReadOnly(_) if self.model.may_be_read_only => Ok(true),
            state => {
                assert_eq!(state, State::Ready);
                Ok(true)
            }
        }
    }

    /// Reads everything and holds it against the model, whatever is known of it; from then on it
    /// may not change. False when the power went.
    pub fn read_all(&mut self) -> bool {
        self.read_all_within(u64::MAX)
    }

    /// The same of so many first chunks of each volume.
    pub fn read_all_within(&mut self, most: u64) -> bool {
        for (lineage, chunks) in self.model.volumes() {
            let chunks = chunks.min(most);
            let at_once = u64::from(self.form(lineage).most_chunks().min(16));
            for chunk in (0..chunks).step_by(at_once as usize) {
                let count = at_once.min(chunks - chunk) as u32;
                let ask = Ask::Read {
                    lineage,
                    chunk,
                    count,
                };
                self.ask(ask).expect("the volume is there");
                if !self.settle() {
                    return false;
                }
            }
        }
        true
    }

    /// Begins a check of the store.
    pub fn begin_check(&mut self) -> Request {
        let request = self.request();
        self.store.check(request).expect("it is ready");
        request
    }

    /// The check of the store.
    pub fn check(&mut self) -> Report {
        let request = self.begin_check();
        assert!(self.settle());
        assert_eq!(self.done.remove(&request), Some(Outcome::Success));
        self.store.take_report().expect("it is done")
    }

    /// A checkpoint, and what the check says of it.
    pub fn check_all(&mut self) {
        assert!(self.settle());
        assert!(self.checkpoint());
        let report = self.check();
        assert_eq!(
            report.problems,
            [],
            "trees, segments and accounting are the same"
        );
        let mapped: BTreeSet<Lineage> = self.store.volumes().map(|one| one.lineage).collect();
        let wanted = self.model.volumes().into_iter().map(|(lineage, _)| lineage);
        assert_eq!(mapped, wanted.collect());
        assert!(self.settle());
    }
}
