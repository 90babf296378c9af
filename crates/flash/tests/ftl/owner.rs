//! The owner of an FTL in tests: a device in virtual time, the payload, and what goes between the
//! FTL and the device.

use std::collections::{HashMap, HashSet};

use flashyard_flash::Profile;
use flashyard_flash::channel::{self, Device, Metadata};
use flashyard_flash::ftl::{
    Action, BuildError, Command, Ftl, IoOp, Op, Options, Outcome, Part, State, Tag,
};
use flashyard_time::{Duration, Rng, Time};

/// The contents of a unit: which write it is of. Zero is zeros.
pub type Version = u64;

/// What is in a sector.
#[derive(Clone, Debug)]
enum Content {
    Data(Version),
    Page(Box<[u8]>),
}

/// What a unit reads as whose data the medium has lost.
pub const LOST: Version = Version::MAX;

/// The kind of a page of tombstones, the low bits of its metadata.
const TOMBSTONES: u64 = 3;

/// The kind of data as the host wrote them.
const DATA: u64 = 1;
/// Where the sequence stands in the second word of the metadata.
const SEQUENCE_AT: u32 = 20;

/// The key of every partition here.
pub const KEY: u64 = 0x5EED;

/// A device, an FTL on some of its units, and payload.
pub struct Owner {
    pub device: Device,
    pub ftl: Ftl,
    pub units: Vec<(u32, u32)>,
    pub options: Options,
    content: HashMap<u64, Content>,
    slots: Vec<Version>,
    /// Data of writes in flight, and of reads.
    pub given: HashMap<(u64, u32), Version>,
    pub got: HashMap<(u64, u32), Version>,
    pub done: Vec<(u64, Outcome)>,
    /// Write vectors submitted.
    pub writes: u64,
    /// Instead of the write vector of this number, the power goes.
    pub cut_at: Option<u64>,
    /// Completions are reported so many nanoseconds late at most, in any order: there may be more
    /// behind the owner than the device.
    pub late: u64,
    unreported: Vec<(Time, channel::Completion, Vec<Metadata>)>,
    /// Sectors that go bad once they are written, in millionths, and the chance for it.
    pub rot: u64,
    chance: Rng,
    rotten: HashSet<u64>,
    /// Of these, those with tombstones.
    rotten_records: HashSet<u64>,
    /// Writes of the host that were in such a sector.
    pub rotted: HashSet<Version>,
    next_id: u64,
    /// The highest sequence that was given to a write of the host and reached the device, and that
    /// of the lives before.
    highest: u64,
    highest_before: u64,
}

/// A small device of two channels with two dies each, and chunks of few programs.
pub fn profile(name: &str) -> Profile {
    Profile {
        channels: 2,
        dies_per_channel: 2,
        planes: 1,
        programs_per_block: 8,
        ..Profile::named(name).expect("it ships")
    }
}

/// All parallel units of a device.
pub fn all_units(device: &Device) -> Vec<(u32, u32)> {
    let geometry = device.geometry();
    let groups = 0..geometry.groups;
    groups
        .flat_map(|group| (0..geometry.pus).map(move |pu| (group, pu)))
        .collect()
}

impl Owner {
    /// Formats a partition.
    pub fn new(
        device: Device,
        units: Vec<(u32, u32)>,
        options: Options,
    ) -> Result<Self, BuildError> {
        let ftl = Ftl::format(device.geometry(), &units, device.report(), KEY, options)?;
        let mut owner = Self {
            slots: vec![0; ftl.slots() as usize],
            device,
            ftl,
            units,
            options,
            content: HashMap::new(),
            given: HashMap::new(),
            got: HashMap::new(),
            done: Vec::new(),
            writes: 0,
            cut_at: None,
            late: 0,
            unreported: Vec::new(),
            rot: 0,
            chance: Rng::new(KEY),
            rotten: HashSet::new(),
            rotten_records: HashSet::new(),
            rotted: HashSet::new(),
            next_id: 1,
            highest: 0,
            highest_before: 0,
        };
        owner.settle();
        Ok(owner)
    }

    /// The usual device, with chunks for `lines` lines.
    pub fn on(
        name: &str,
        lines: u64,
        seed: u64,
        device: channel::Options,
        options: Options,
    ) -> Self {
        let profile = profile(name);
        let row = 2 * 2 * profile.planes * profile.page_bytes * profile.pages_per_program;
        let device = Device::new(&profile, row * 8 * lines, seed, device).expect("it suits");
        let units = all_units(&device);
        Self::new(device, units, options).expect("there are chunks enough")
    }

    pub fn now(&self) -> Time {
        self.device.now()
    }

    /// Submits a command; the data of a write follow from `version`, one more for each unit.
    pub fn submit(&mut self, op: Op, first: u64, count: u32, version: Version) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if matches!(op, Op::Write { .. }) {
            for unit in 0..count {
                self.given.insert((id, unit), version + u64::from(unit));
            }
        }
        let command = Command {
            id,
            op,
            first,
            count,
        };
        self.ftl.submit(command).expect("commands are legal");
        id
    }

    /// Does all that is to be done now. False when the power has to go.
    pub fn act(&mut self) -> bool {
        while let Some(action) = self.ftl.poll(self.device.now()) {
            match action {
                Action::Submit(tag) => {
                    if !self.send(tag) {
                        return false;
                    }
                }
                Action::Store { id, unit, slot } => {
                    let version = self.given.remove(&(id, unit));
                    self.slots[slot as usize] = version.expect("data are stored once");
                }
                Action::Load { id, unit, slot } => {
                    self.got.insert((id, unit), self.slots[slot as usize]);
                }
                Action::Zeroes { id, unit } => {
                    self.got.insert((id, unit), 0);
                }
                Action::Done { id, outcome } => self.done.push((id, outcome)),
            }
        }
        true
    }

    fn send(&mut self, tag: Tag) -> bool {
        let now = self.device.now();
        let io = self.ftl.io(tag).clone();
        let op = match io.op() {
            IoOp::Report => {
                let info = self.device.chunk(io.addresses()[0]);
                self.ftl.on_report(now, tag, info);
                return true;
            }
            IoOp::Read => channel::Op::Read,
            IoOp::Reset => channel::Op::Reset,
            IoOp::Write => channel::Op::Write {
                metadata: io.metadata(),
            },
        };
        if io.op() == IoOp::Write {
            if self.cut_at == Some(self.writes) {
                return false;
            }
            self.writes += 1;
        }
        let command = channel::Command {
            tag: u64::from(tag),
            op,
            addresses: io.addresses(),
        };
        let accepted = self.device.submit(now, command).expect("vectors are legal");
        if io.op() == IoOp::Write {
            for (place, (&address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
                if accepted >> place & 1 == 1 {
                    let content = self.contents(tag, place, *part);
                    let [low, high] = io.metadata()[place];
                    self.note_sequence(low & 0xF, high >> SEQUENCE_AT);
                    self.expose(address, &content, low & 0xF == TOMBSTONES);
                    self.content.insert(address, content);
                }
            }
        }
        true
    }

    /// A sequence that was used is not used again, even if nothing of it was found: what has it may
    /// be read later.
    fn note_sequence(&mut self, kind: u64, sequence: u64) {
        if [DATA, TOMBSTONES].contains(&kind) {
            assert!(
                sequence > self.highest_before,
                "sequence {sequence} is used again, {} was",
                self.highest_before
            );
            self.highest = self.highest.max(sequence);
        }
    }

    /// Whether both copies of tombstones may have gone bad.
    pub fn may_lack_records(&self) -> bool {
        self.rotten_records.len() > 1
    }

    /// What is written to a sector may go bad, until it is written again.
    fn expose(&mut self, address: u64, content: &Content, records: bool) {
        self.rotten.remove(&address);
        self.rotten_records.remove(&address);
        if self.rot > 0 && self.chance.chance(self.rot, 1_000_000) {
            self.rotten.insert(address);
            if records {
                self.rotten_records.insert(address);
            }
            if let Content::Data(version) = content {
                self.rotted.insert(*version);
            }
        }
    }

    fn contents(&self, tag: Tag, place: usize, part: Part) -> Content {
        match part {
            Part::Slot(slot) => Content::Data(self.slots[slot as usize]),
            Part::Page => {
                let mut bytes = vec![0; 4096].into_boxed_slice();
                self.ftl.page(tag, place, &mut bytes);
                Content::Page(bytes)
            }
            Part::Unused => Content::Data(0),
            Part::Host(..) => unreachable!("a host's read is not written"),
        }
    }

    /// Lets everything happen until `until`. False when the power has to go.
    pub fn run(&mut self, until: Time) -> bool {
        let go_on = self.run_events(until);
        if go_on {
            self.device.advance(until, &mut Vec::new());
        }
        go_on
    }

    /// Lets everything happen that is due until `until`. False when the power has to go.
    fn run_events(&mut self, until: Time) -> bool {
        let mut completions = Vec::new();
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(
                turns < 100_000,
                "never at rest: {:?} {:?}",
                self.ftl.stats(),
                self.ftl.space()
            );
            if !self.act() {
                return false;
            }
            let events = [self.next_reported(), self.ftl.next_wakeup()];
            let next = events.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                return true;
            };
            self.device.advance(next, &mut completions);
            self.tell(next, &mut completions);
        }
    }

    /// Tells what has completed, and what was completed before and is due until `now`.
    fn tell(&mut self, now: Time, completions: &mut Vec<channel::Completion>) {
        for completion in completions.drain(..) {
            let metadata = self.device.metadata(&completion).to_vec();
            let late = if self.late > 0 {
                self.chance.below(self.late)
            } else {
                0
            };
            let at = completion.at + Duration::from_ns(late);
            self.unreported.push((at, completion, metadata));
        }
        while let Some(place) = self.unreported.iter().position(|(at, ..)| *at <= now) {
            let (at, completion, metadata) = self.unreported.remove(place);
            self.complete(at, completion, &metadata);
        }
    }

    /// When something is reported next.
    fn next_reported(&self) -> Option<Time> {
        let unreported = self.unreported.iter().map(|(at, ..)| *at).min();
        self.device.next_event().into_iter().chain(unreported).min()
    }

    fn complete(&mut self, at: Time, completion: channel::Completion, metadata: &[Metadata]) {
        let tag = completion.tag as Tag;
        let io = self.ftl.io(tag).clone();
        let mut failed = completion.failed;
        if io.op() == IoOp::Read {
            for (place, (address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
                failed |= u64::from(self.rotten.contains(address)) << place;
                if failed >> place & 1 == 1 {
                    continue;
                }
                match (*part, &self.content[address]) {
                    (Part::Slot(slot), Content::Data(version)) => {
                        self.slots[slot as usize] = *version;
                    }
                    (Part::Host(id, unit), Content::Data(version)) => {
                        self.got.insert((id, unit), *version);
                    }
                    (Part::Page, Content::Page(bytes)) => self.ftl.on_page(tag, place, bytes),
                    (Part::Unused, _) => {}
                    (part, content) => panic!("{part:?} reads {content:?}"),
                }
            }
        }
        self.ftl.on_completion(at, tag, failed, metadata);
    }

    /// Runs until nothing is in flight.
    pub fn settle(&mut self) -> bool {
        self.run_events(Time::MAX)
    }

    /// The power goes and comes back. The FTL is another one, that has not begun to recover.
    pub fn cut(&mut self) {
        let now = self.device.now();
        self.device.power_cut(now);
        self.restart();
    }

    /// The FTL is forgotten, and another one begins to recover.
    pub fn restart(&mut self) {
        let (device, units) = (&self.device, &self.units);
        let ftl = Ftl::recover(device.geometry(), units, device.report(), KEY, self.options);
        self.ftl = ftl.expect("it was built before");
        self.highest_before = self.highest;
        self.slots.fill(0);
        self.given.clear();
        self.got.clear();
        self.done.clear();
        self.unreported.clear();
        self.cut_at = None;
    }

    /// Recovers up to where commands are taken; false when the power has to go before.
    pub fn recover(&mut self) -> bool {
        let mut completions = Vec::new();
        while self.ftl.state() == State::Recovering {
            if !self.act() {
                return false;
            }
            let Some(next) = self.next_reported() else {
                break;
            };
            self.device.advance(next, &mut completions);
            self.tell(next, &mut completions);
        }
        true
    }

    /// What a unit reads as, once nothing is in flight; nothing when it cannot be read.
    pub fn read(&mut self, logical: u64) -> Option<Version> {
        self.read_many(logical, 1)[0]
    }

    /// What units read as, once nothing is in flight.
    pub fn read_many(&mut self, first: u64, count: u32) -> Vec<Option<Version>> {
        let id = self.submit(Op::Read, first, count, 0);
        self.settle();
        let place = self.done.iter().position(|(done, _)| *done == id);
        let (_, outcome) = self.done.swap_remove(place.expect("a read is answered"));
        let versions: Vec<_> = (0..count)
            .map(|unit| self.got.remove(&(id, unit)))
            .collect();
        match (outcome, count) {
            (Outcome::Success, _) => versions,
            (_, 1) => vec![None],
            _ => (0..count)
                .map(|unit| self.read(first + u64::from(unit)))
                .collect(),
        }
    }
}
