//! Small drives of random profiles under heavy load: every command completes, and all invariants
//! hold.
//!
//! A drive that has commands and no event ahead would never answer again; so would one that goes
//! through events without end and completes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use flashyard_flash::profile::Victim;
use flashyard_flash::ssd::{
    BuildError, Command, Completion, Condition, Device, Op, PowerCut, SnapshotError,
};
use flashyard_flash::{Profile, UNIT_BYTES};
use flashyard_time::{Duration, Rng, Time};

const DRIVES: u64 = if cfg!(debug_assertions) { 40 } else { 200 };
/// Looks at a drive between two completions; far more than any command takes.
const MOST_EVENTS: u64 = 500_000;

/// A sound profile, unlike any that is sold.
fn profile(chance: &mut Rng) -> Profile {
    let names: Vec<_> = Profile::names().collect();
    let name = names[chance.below(names.len() as u64) as usize];
    let mut profile = Profile::named(name).expect("it ships");
    profile.channels = 1 + chance.below(3);
    profile.dies_per_channel = 1 + chance.below(2);
    profile.planes = 1 << chance.below(3);
    profile.page_bytes = UNIT_BYTES << chance.below(3);
    profile.page_types = 1 + chance.below(3);
    profile.pages_per_program = [1, profile.page_types][chance.below(2) as usize];
    profile.programs_per_block = 1 << chance.below(7);
    profile.buffer_bytes = row_bytes(&profile) * 2 + chance.below(3) * UNIT_BYTES;
    profile.buffer_protected = chance.below(2);
    profile.spare_ppm = [10_000, 70_000, 275_000, 1_000_000][chance.below(4) as usize];
    profile.reserve_ppm = [0, 10_000, 100_000][chance.below(3) as usize];
    profile.gc_reads = 1 + chance.below(32);
    profile.gc_lead_units = [1, 64, 16_777_216][chance.below(3) as usize];
    profile.gc_victim = [Victim::Greedy, Victim::Fifo][chance.below(2) as usize];
    profile.read_bypass = [1, 8, 65_535][chance.below(3) as usize];
    profile.suspends = [0, 1, 255][chance.below(3) as usize];
    profile.programming_dies = 1 + chance.below(4);
    if chance.chance(1, 8) {
        for time in [
            &mut profile.command_ns,
            &mut profile.unit_ns,
            &mut profile.entry_ns,
            &mut profile.read_exit_ns,
            &mut profile.write_exit_ns,
            &mut profile.buffer_hit_ns,
            &mut profile.flush_ns,
            &mut profile.erase_ns,
            &mut profile.suspend_ns,
            &mut profile.resume_ns,
        ] {
            *time = 0;
        }
    }
    profile
}

/// A small drive, often the smallest there is.
fn drive(chance: &mut Rng) -> (Profile, u64, Device) {
    loop {
        let profile = profile(chance);
        let seed = chance.next_u64();
        let condition = [
            Condition::Empty,
            Condition::Clean,
            Condition::Fragmented(50),
            Condition::Fragmented(100),
        ][chance.below(4) as usize];
        let Err(BuildError::Capacity { least, .. }) = Device::new(&profile, 0, seed) else {
            panic!("no capacity is refused");
        };
        let more = if chance.chance(1, 2) {
            0
        } else {
            chance.below(3 * least / UNIT_BYTES) * UNIT_BYTES
        };
        let capacity = least + more;
        match Device::in_condition(&profile, capacity, seed, condition) {
            Ok(device) => return (profile, capacity, device),
            Err(BuildError::Profile(_)) => {}
            Err(error) => panic!("{capacity}: {error}"),
        }
    }
}

/// What a host is up to for a while.
#[derive(Clone, Copy, Debug)]
struct Mood {
    ops: &'static [Op],
    depth: u64,
    most_units: u64,
    in_order: bool,
    commands: u64,
}

const MIXED: [Op; 6] = [
    Op::Read,
    Op::Write,
    Op::WriteCold,
    Op::WriteThrough,
    Op::Deallocate,
    Op::Flush,
];

fn mood(chance: &mut Rng, units: u64) -> Mood {
    const WRITES: [Op; 2] = [Op::Write, Op::WriteCold];
    let ops: &[&'static [Op]] = &[
        &MIXED,
        &WRITES,
        &[Op::Write],
        &[Op::WriteThrough],
        &[Op::WriteThrough, Op::WriteCold, Op::Flush],
        &[Op::Write, Op::Deallocate],
        &[Op::Read, Op::Write],
    ];
    let most_units = [1, 8, units][chance.below(3) as usize];
    Mood {
        ops: ops[chance.below(ops.len() as u64) as usize],
        depth: [1, 4, 64][chance.below(3) as usize],
        most_units,
        in_order: chance.chance(1, 3),
        commands: if most_units == units { 12 } else { 300 },
    }
}

struct Host {
    chance: Rng,
    device: Device,
    done: Vec<Completion>,
    tags: u64,
    next_start: u64,
}

impl Host {
    fn issue(&mut self, now: Time, mood: Mood) {
        let capacity = self.device.capacity() / UNIT_BYTES;
        let units = 1 + self.chance.below(mood.most_units);
        let start = if mood.in_order {
            let start = self.next_start.min(capacity - units);
            self.next_start = (start + units) % capacity;
            start
        } else {
            self.chance.below(capacity - units + 1)
        };
        let command = Command {
            tag: self.tags,
            op: mood.ops[self.chance.below(mood.ops.len() as u64) as usize],
            start,
            units: units as u32,
        };
        self.tags += 1;
        self.device
            .submit(now, command)
            .expect("it is on the drive");
    }

    /// Lets the next completions come, and says when.
    fn wait(&mut self) -> Time {
        let before = self.done.len();
        for _ in 0..MOST_EVENTS {
            let at = self.device.next_completion().expect("it will answer");
            self.device.advance(at, &mut self.done);
            if self.done.len() > before {
                return at;
            }
            assert!(self.device.next_event().is_some(), "nothing is ahead");
        }
        panic!("it goes round without answering");
    }

    /// Does what the mood says, until all of it is done.
    fn live(&mut self, mood: Mood) {
        let mut now = self.device.now();
        let (mut issued, mut completed, done_before) = (0, 0, self.done.len());
        while completed < mood.commands {
            while issued < mood.commands && issued - completed < mood.depth {
                self.issue(now, mood);
                issued += 1;
            }
            now = self.wait();
            completed = (self.done.len() - done_before) as u64;
        }
        self.sound();
    }

    fn sound(&self) {
        if let Err(wrong) = self.device.check() {
            panic!("{wrong}");
        }
    }

    /// Cuts the power while commands are in flight, which are gone then.
    fn cut(&mut self) {
        let mood = mood(&mut self.chance, self.device.capacity() / UNIT_BYTES);
        let now = self.device.now();
        for _ in 0..mood.depth {
            self.issue(now, mood);
        }
        let later = self.chance.below(20_000_000);
        let power = PowerCut {
            hold_up: Duration::from_ns([0, 1_000_000, 100_000_000][self.chance.below(3) as usize]),
            checkpoint_rows: self.chance.below(3),
        };
        let at = now + Duration::from_ns(later);
        self.device.power_cut(at, &power);
        self.device.advance(at, &mut self.done);
        assert_eq!(self.device.outstanding(), 0);
        self.sound();
    }

    fn rest(&mut self) {
        while let Some(at) = self.device.next_event() {
            self.device.advance(at, &mut self.done);
        }
        self.sound();
    }

    /// Writes the drive down, and goes on with what is read back.
    fn restore(&mut self, profile: &Profile, capacity: u64) {
        self.rest();
        let bytes = self.device.snapshot().expect("it is at rest");
        let restored: Result<Device, SnapshotError> = Device::restore(profile, capacity, &bytes);
        self.device = restored.expect("it was written down");
        assert_eq!(self.device.snapshot().as_ref(), Ok(&bytes));
    }
}

fn torture(seed: u64) {
    let mut chance = Rng::new(seed);
    let (profile, capacity, device) = drive(&mut chance);
    let mut host = Host {
        chance: chance.split(1),
        device,
        done: Vec::new(),
        tags: 0,
        next_start: 0,
    };
    for _ in 0..6 {
        let mood = mood(&mut chance, capacity / UNIT_BYTES);
        host.live(mood);
        match chance.below(4) {
            0 => host.cut(),
            1 => host.restore(&profile, capacity),
            2 => host.rest(),
            _ => {}
        }
    }
}

#[test]
fn no_drive_ever_stops_answering() {
    let first = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    // The seed of a volatile drive of one row to a superblock, whose writes once never ended.
    for seed in (first..first + DRIVES).chain([120]) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| torture(seed))) {
            let (profile, capacity, device) = drive(&mut Rng::new(seed));
            drop(device);
            eprintln!("seed {seed}: {capacity} bytes of {profile:?}");
            resume_unwind(panic);
        }
    }
}

/// Bytes of one program of every die.
fn row_bytes(profile: &Profile) -> u64 {
    let dies = profile.channels * profile.dies_per_channel;
    dies * profile.planes * profile.page_bytes * profile.pages_per_program
}
