//! What a block device promises, as a plain map: which versions each unit may have, now and after a
//! power cut.

use std::ops::Range;

use flashyard_flash::ftl::{Op, Outcome};

use crate::owner::{LOST, Owner, Version};

/// What was asked of an FTL, and what may come of it.
pub struct Model {
    units: Vec<Unit>,
    in_flight: Vec<Asked>,
    next_version: Version,
    /// Flash may run out.
    pub may_end: bool,
    /// Units that read as older than they should, after a cut. No more than sectors that recovery
    /// could not read and knew not whose they were: it counts these.
    pub stale: u64,
    /// Units that could not be read when all were read last.
    pub lost: u64,
}

/// Writes to a unit, deallocations included, from the newest that is certainly durable on.
#[derive(Clone, Debug)]
struct Unit {
    /// Writes before those.
    passed: usize,
    writes: Vec<Write>,
    /// Versions that were replaced.
    past: Vec<Version>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    command: u64,
    version: Version,
    answered: bool,
}

/// A command in flight.
struct Asked {
    id: u64,
    op: Op,
    first: u64,
    count: u32,
    /// For a flush: how many writes of each unit it passes.
    passes: Vec<usize>,
    /// For a read: what each unit may read as.
    allowed: Vec<Vec<Version>>,
}

impl Model {
    pub fn new(capacity: u64) -> Self {
        let zeros = Write {
            command: 0,
            version: 0,
            answered: true,
        };
        let unit = Unit {
            passed: 0,
            writes: vec![zeros],
            past: Vec::new(),
        };
        Self {
            units: vec![unit; capacity as usize],
            in_flight: Vec::new(),
            next_version: 1,
            may_end: false,
            stale: 0,
            lost: 0,
        }
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Submits a command and remembers what it may do.
    pub fn submit(&mut self, owner: &mut Owner, op: Op, first: u64, count: u32) {
        let version = self.next_version;
        let id = owner.submit(op, first, count, version);
        let range = range(first, count);
        let mut asked = Asked {
            id,
            op,
            first,
            count,
            passes: Vec::new(),
            allowed: Vec::new(),
        };
        match op {
            Op::Write { .. } => {
                self.next_version += u64::from(count);
                for (unit, version) in self.units[range].iter_mut().zip(version..) {
                    unit.write(id, version);
                }
            }
            Op::Deallocate => {
                for unit in &mut self.units[range] {
                    unit.write(id, 0);
                }
            }
            Op::Read => {
                let allowed = self.units[range].iter().map(Unit::visible);
                asked.allowed = allowed.collect();
            }
            Op::Flush | Op::Stop => {
                asked.passes = self.units.iter().map(Unit::answered).collect();
            }
        }
        self.in_flight.push(asked);
    }

    /// Takes what was answered, and holds it against what was promised.
    pub fn take(&mut self, owner: &mut Owner) {
        for (id, outcome) in std::mem::take(&mut owner.done) {
            let place = self.in_flight.iter().position(|asked| asked.id == id);
            let asked = self.in_flight.remove(place.expect("each is answered once"));
            match (asked.op, outcome) {
                (Op::Read, outcome) => self.lost += check_read(owner, &asked, outcome),
                (_, Outcome::Success) => self.answered(&asked),
                (_, Outcome::ReadOnly) => assert!(self.may_end, "flash has run out"),
                (_, Outcome::Unreadable) => panic!("only reads find data unreadable"),
            }
        }
    }

    fn answered(&mut self, asked: &Asked) {
        let durable = asked.op == (Op::Write { durable: true });
        match asked.op {
            Op::Write { .. } | Op::Deallocate => {
                for unit in &mut self.units[range(asked.first, asked.count)] {
                    unit.answer(asked.id, durable);
                }
            }
            Op::Flush | Op::Stop => {
                for (unit, &passes) in self.units.iter_mut().zip(&asked.passes) {
                    unit.pass(passes);
                }
            }
            Op::Read => {}
        }
    }

    /// Reads everything while the power is on.
    pub fn check_now(&mut self, owner: &mut Owner) {
        owner.settle();
        self.take(owner);
        self.lost = 0;
        for logical in 0..self.units.len() as u64 {
            self.submit(owner, Op::Read, logical, 1);
            owner.settle();
            self.take(owner);
        }
    }

    /// A flush was answered when nothing else was in flight.
    pub fn all_is_durable(&mut self) {
        for unit in &mut self.units {
            unit.pass(unit.answered());
        }
    }

    /// After a power cut: every unit has one version that it may have, and has it from now on.
    pub fn check_after_cut(&mut self, owner: &mut Owner) {
        const AT_ONCE: u64 = 128;
        self.in_flight.clear();
        self.stale = 0;
        let unknown = owner
            .ftl
            .recovery()
            .map_or(0, |stats| stats.unreadable_sectors);
        let capacity = self.units.len() as u64;
        for first in (0..capacity).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(capacity - first) as u32;
            let read = owner.read_many(first, count);
            for (logical, read) in (first..).zip(read) {
                self.check_unit(owner, logical, read, unknown);
            }
        }
    }

    fn check_unit(&mut self, owner: &Owner, logical: u64, read: Option<Version>, unknown: u64) {
        let unit = &mut self.units[logical as usize];
        let versions = unit.writes.iter().map(|write| write.version);
        let version = read.unwrap_or(LOST);
        let known = versions.clone().any(|one| one == version);
        if !known && version == LOST {
            let rotted = versions.clone().any(|one| owner.rotted.contains(&one));
            assert!(rotted, "unit {logical} is lost, one of {:?}", unit.writes);
        } else if !known {
            let older = version == 0 || unit.past.contains(&version);
            self.stale += u64::from(older);
            assert!(
                older && (self.stale <= unknown || owner.may_lack_records()),
                "unit {logical} has {version} after a cut, not one of {:?}",
                unit.writes
            );
        }
        unit.pass(unit.passed + unit.writes.len());
        unit.writes.push(Write {
            command: 0,
            version,
            answered: true,
        });
    }
}

impl Unit {
    fn write(&mut self, command: u64, version: Version) {
        self.writes.push(Write {
            command,
            version,
            answered: false,
        });
    }

    /// How many writes lie before the newest that was answered.
    fn answered(&self) -> usize {
        let newest = self.writes.iter().rposition(|write| write.answered);
        self.passed + newest.unwrap_or(0)
    }

    /// What may be read now.
    fn visible(&self) -> Vec<Version> {
        let from = self.answered() - self.passed;
        self.writes[from..]
            .iter()
            .map(|write| write.version)
            .collect()
    }

    fn answer(&mut self, command: u64, durable: bool) {
        // It may have been passed already.
        let Some(place) = self
            .writes
            .iter()
            .position(|write| write.command == command)
        else {
            return;
        };
        self.writes[place].answered = true;
        if durable {
            self.pass(self.passed + place);
        }
    }

    /// What was written before so many writes is no more.
    fn pass(&mut self, passes: usize) {
        let gone = passes.saturating_sub(self.passed);
        let gone = self.writes.drain(..gone);
        self.passed += gone.len();
        self.past.extend(gone.map(|write| write.version));
    }
}

fn range(first: u64, count: u32) -> Range<usize> {
    first as usize..first as usize + count as usize
}

/// Units that could not be read.
fn check_read(owner: &mut Owner, asked: &Asked, outcome: Outcome) -> u64 {
    let mut lost = 0;
    for (unit, allowed) in (0..).zip(&asked.allowed) {
        let read = owner.got.remove(&(asked.id, unit)).unwrap_or(LOST);
        lost += u64::from(read == LOST);
        let rotted = read == LOST && allowed.iter().any(|one| owner.rotted.contains(one));
        let logical = asked.first + u64::from(unit);
        assert!(
            rotted || allowed.contains(&read),
            "unit {logical} reads as {read}, not one of {allowed:?}"
        );
    }
    let expected = match lost {
        0 => Outcome::Success,
        _ => Outcome::Unreadable,
    };
    assert_eq!(outcome, expected, "{lost} units could not be read");
    lost
}
