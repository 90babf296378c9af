//! Dies and channels: which operation uses a die next, and which a channel.
//!
//! A die does one thing at a time. Reads of the host come first, but only so many may overtake what
//! else waits; then erases, reads in the background, and programs. A program or erase in flight may
//! be suspended for reads of the host. A channel moves data in pieces of 16 KiB, those of reads
//! first. Either can be set to [first come, first served](Order) instead.
//!
//! The engine knows no commands and no addresses: its owner asks for reads, programs and erases
//! of dies, and learns from [`Engine::next`] which of them has [happened](Happened). The owner's
//! own events stand in the same [order](events::Events), so that ties are broken in one place.

mod bus;
mod counts;
mod events;
mod work;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flashyard_time::EventKey;

pub(crate) use self::events::Lane;
pub use counts::{DieCounts, DieTime};

use crate::{Profile, UNIT_BYTES};
use bus::{Bus, PIECE_UNITS};
use events::{Event, Events, Rare};

/// A read of one cell: a page of all planes of a die.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// What the owner knows it by.
    pub token: u32,
    pub die: u32,
    /// Units to be moved; at least one.
    pub units: u8,
    /// 0 is the lower page.
    pub page_type: u8,
    /// Not for the host: yields to reads that are, and suspends nothing.
    pub background: bool,
}

/// A program of all planes of a die.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// What the owner knows it by.
    pub token: u32,
    pub die: u32,
    /// Of its first page.
    pub page_type: u8,
    /// Not of the host's data; makes no difference to the die.
    pub background: bool,
    /// Tell when the die has the data.
    pub tell_loaded: bool,
    /// Nanoseconds by which it takes longer, or less long, than others of its page type; never more
    /// than those take.
    pub longer_by: i32,
}

/// An erase of a block of all planes of a die.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Erase {
    /// What the owner knows it by.
    pub token: u32,
    pub die: u32,
    /// Takes no time.
    pub instant: bool,
}

/// What changes cells, and may therefore be cut short.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    Program(Program),
    Erase(Erase),
}

/// What an owner learns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happened<T> {
    /// An event of one of the owner's lanes.
    Sorted(Lane, u32),
    /// Another event of the owner.
    Rare(T),
    /// The data of a read has left the channel.
    Read(Read),
    /// A die has the data of a program that asked for this.
    Loaded(Program),
    Programmed(Program),
    Erased(Erase),
}

/// In which order dies and channels serve what waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// A die serves first what came first, whatever it is, and nothing is suspended.
    pub die_in_turn: bool,
    /// A channel serves first what came first, a whole program or read at once. Even the command
    /// of a read waits.
    pub channel_in_turn: bool,
    /// Host reads that may overtake what else waits for a die.
    pub bypass: u16,
    /// How often one program or erase may be suspended.
    pub suspends: u8,
}

/// The dies and channels of a device, and its events, where `T` is what the owner has of rare ones.
#[derive(Debug)]
pub(crate) struct Engine<T> {
    pub events: Events<T>,
    times: Times,
    order: Order,
    dies: Vec<Die>,
    buses: Vec<Bus>,
    /// Units of one program.
    program_units: u8,
    /// Dies that wait until fewer program, and how many do.
    power_queue: VecDeque<u32>,
    programming: u32,
}

/// Nanoseconds, but for the last one.
#[derive(Debug)]
struct Times {
    /// Sensing a page of each type, command and address included.
    sense: [u64; 3],
    program: [u64; 3],
    erase: u64,
    /// Moving 1 to 4 units over a channel.
    piece: [u64; PIECE_UNITS as usize],
    suspend: u64,
    resume: u64,
    guard: u64,
    programming_dies: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Waiting for the channel to take the command to sense.
    Commanding,
    /// Sensing, then waiting for the channel and moving.
    Reading,
    /// Taking the data of a program.
    Loading,
    /// Programming or erasing.
    Working,
    Suspending,
    Resuming,
}

#[derive(Debug)]
struct Die {
    phase: Phase,
    /// When the phase began.
    since: u64,
    read: Read,
    /// The program or erase in flight, suspended or not.
    job: Option<Job>,
    /// How long the suspended job still takes.
    paused: Option<u64>,
    /// The end of the job, while it works.
    end: Option<(u64, EventKey)>,
    suspends: u8,
    /// Host reads since something else began to wait.
    overtaken: u16,
    /// Waits for fewer dies to program.
    in_power_queue: bool,
    /// Units still to be moved.
    moving: u8,
    host_reads: VecDeque<Read>,
    background_reads: VecDeque<Read>,
    programs: VecDeque<Program>,
    erases: VecDeque<Erase>,
    /// Of which queue each turn is, when dies serve in turn.
    turns: VecDeque<Turn>,
    counts: DieCounts,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    HostRead,
    BackgroundRead,
    Program,
    Erase,
}

impl Order {
    /// Reads first, as far as the profile lets them.
    pub fn of(profile: &Profile) -> Self {
        Self {
            die_in_turn: false,
            channel_in_turn: false,
            bypass: profile.read_bypass as u16,
            suspends: profile.suspends as u8,
        }
    }
}

impl<T> Engine<T> {
    /// The dies of a sound profile, idle.
    pub fn new(profile: &Profile, order: Order) -> Self {
        let dies = profile.channels * profile.dies_per_channel;
        Self {
            events: Events::new(256),
            times: Times::new(profile),
            order,
            dies: (0..dies).map(|_| Die::new()).collect(),
            buses: (0..profile.channels)
                .map(|_| Bus::new(profile.dies_per_channel as usize))
                .collect(),
            program_units: (profile.planes * profile.page_bytes * profile.pages_per_program
                / UNIT_BYTES) as u8,
            power_queue: VecDeque::with_capacity(dies as usize),
            programming: 0,
        }
    }

    /// Takes what happens first, if not later than `now`, and does what of it is the dies' own.
    #[expect(
        clippy::inline_always,
        reason = "once in each owner's loop, where what happened need not go through memory"
    )]
    #[inline(always)]
    pub fn next(&mut self, now: u64) -> Option<(u64, Happened<T>)> {
        while let Some((at, event)) = self.events.pop_due(now) {
            let happened = match event {
                Event::Sorted(Lane::SenseLower | Lane::SenseMiddle | Lane::SenseUpper, die) => {
                    self.sensed(at, die);
                    None
                }
                Event::Sorted(Lane::Move1 | Lane::Move2 | Lane::Move3 | Lane::Move4, bus) => {
                    self.moved(at, bus)
                }
                Event::Sorted(lane, value) => Some(Happened::Sorted(lane, value)),
                Event::Rare(Rare::JobDone(die)) => Some(match self.job_done(at, die) {
                    Job::Program(program) => Happened::Programmed(program),
                    Job::Erase(erase) => Happened::Erased(erase),
                }),
                Event::Rare(Rare::Suspended(die)) => {
                    self.suspended(at, die);
                    None
                }
                Event::Rare(Rare::Resumed(die)) => {
                    self.resumed(at, die);
                    None
                }
                Event::Rare(Rare::Owner(event)) => Some(Happened::Rare(event)),
            };
            if let Some(happened) = happened {
                return Some((at, happened));
            }
        }
        None
    }

    /// What each die has done.
    pub fn counts(&self) -> impl Iterator<Item = &DieCounts> {
        self.dies.iter().map(|die| &die.counts)
    }

    /// What all dies have done together.
    pub fn total(&self) -> DieCounts {
        self.counts()
            .fold(DieCounts::default(), |sum, die| sum.plus(die))
    }

    /// Takes the power away: every event, the owner's too, and everything that waits is forgotten.
    /// Tells of each program or erase that had begun to change cells and had not ended.
    pub fn cut(&mut self, mut interrupted: impl FnMut(Job)) {
        self.events.clear();
        self.power_queue.clear();
        self.programming = 0;
        for bus in &mut self.buses {
            bus.clear();
        }
        for die in &mut self.dies {
            if let Some(job) = die.clear() {
                interrupted(job);
            }
        }
    }
}

impl Times {
    fn new(profile: &Profile) -> Self {
        let sense = |ns: u64| ns + profile.read_overhead_ns;
        Self {
            sense: [
                sense(profile.read_lower_ns),
                sense(profile.read_middle_ns),
                sense(profile.read_upper_ns),
            ],
            program: [
                profile.program_ns,
                profile.program_upper_ns,
                profile.program_upper_ns,
            ],
            erase: profile.erase_ns,
            piece: core::array::from_fn(|units| {
                moving(units as u64 + 1, profile.channel_bytes_per_second)
            }),
            suspend: profile.suspend_ns,
            resume: profile.resume_ns,
            guard: profile.suspend_guard_ns,
            programming_dies: profile.programming_dies as u32,
        }
    }
}

impl Die {
    fn new() -> Self {
        Self {
            phase: Phase::Idle,
            since: 0,
            read: Read {
                token: 0,
                die: 0,
                units: 1,
                page_type: 0,
                background: false,
            },
            job: None,
            paused: None,
            end: None,
            suspends: 0,
            overtaken: 0,
            in_power_queue: false,
            moving: 0,
            host_reads: VecDeque::with_capacity(64),
            background_reads: VecDeque::with_capacity(16),
            programs: VecDeque::with_capacity(16),
            erases: VecDeque::with_capacity(16),
            turns: VecDeque::new(),
            counts: DieCounts::default(),
        }
    }

    /// Forgets everything but what was counted. The job that was changing cells, if one was.
    fn clear(&mut self) -> Option<Job> {
        let loading = self.phase == Phase::Loading;
        self.phase = Phase::Idle;
        (self.paused, self.end) = (None, None);
        self.in_power_queue = false;
        self.host_reads.clear();
        self.background_reads.clear();
        self.programs.clear();
        self.erases.clear();
        self.turns.clear();
        self.job.take().filter(|_| !loading)
    }
}

/// Nanoseconds that `units` take at `rate` bytes per second.
pub(crate) fn moving(units: u64, rate: u64) -> u64 {
    (units * UNIT_BYTES * 1_000_000_000 + rate / 2) / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(suspends: u8) -> Engine<u32> {
        let profile = Profile::named("cnex").expect("it ships");
        let order = Order {
            die_in_turn: suspends == 0,
            channel_in_turn: false,
            bypass: 8,
            suspends,
        };
        Engine::new(&profile, order)
    }

    fn read(token: u32) -> Read {
        Read {
            token,
            die: 0,
            units: 1,
            page_type: 0,
            background: false,
        }
    }

    fn program(token: u32, die: u32) -> Program {
        Program {
            token,
            die,
            page_type: 0,
            background: false,
            tell_loaded: true,
            longer_by: 0,
        }
    }

    /// What happens until `now`: when, and the token.
    fn until(engine: &mut Engine<u32>, now: u64) -> Vec<(u64, u32)> {
        core::iter::from_fn(|| engine.next(now))
            .map(|(at, happened)| match happened {
                Happened::Read(read) => (at, read.token),
                Happened::Loaded(program) => (at, 100 + program.token),
                Happened::Programmed(program) => (at, program.token),
                Happened::Erased(erase) => (at, erase.token),
                Happened::Sorted(_, value) | Happened::Rare(value) => (at, value),
            })
            .collect()
    }

    #[test]
    fn in_turn_nothing_overtakes() {
        let mut engine = engine(0);
        let erase = Erase {
            token: 3,
            die: 0,
            instant: false,
        };
        engine.program(0, program(1, 0));
        engine.read(0, read(2));
        engine.erase(0, erase);
        engine.read(0, read(4));
        let loaded = 4 * 58_514;
        let read_at = loaded + 850_000 + 48_000 + 14_629;
        let happened = [
            (loaded, 101),
            (loaded + 850_000, 1),
            (read_at, 2),
            (read_at + 3_000_000, 3),
            (read_at + 3_000_000 + 48_000 + 14_629, 4),
        ];
        assert_eq!(until(&mut engine, u64::MAX), happened);
    }

    #[test]
    fn a_cut_reports_what_was_changing_cells() {
        let cut = |engine: &mut Engine<u32>, now| {
            until(engine, now);
            let mut tokens = Vec::new();
            engine.cut(|job| {
                tokens.push(match job {
                    Job::Program(program) => program.token,
                    Job::Erase(erase) => erase.token,
                });
            });
            assert_eq!(until(engine, u64::MAX), [], "nothing is left to happen");
            tokens
        };
        let mut engine = engine(1);
        // The first two dies are on channels of their own; the third has to wait for the data of
        // the first.
        for die in [0, 1, 16] {
            engine.program(0, program(die, die));
        }
        engine.program(0, program(9, 0));
        assert_eq!(cut(&mut engine, 300_000), [0, 1]);
        engine.program(300_000, program(5, 0));
        until(&mut engine, 600_000);
        engine.read(600_000, read(6));
        assert_eq!(cut(&mut engine, 640_000), [5], "suspended for a read");
        let erase = Erase {
            token: 7,
            die: 3,
            instant: false,
        };
        engine.erase(700_000, erase);
        assert_eq!(cut(&mut engine, 700_001), [7]);
        assert_eq!(cut(&mut engine, 800_000), []);
    }
}
