//! Channels: moving the data of reads and programs in pieces.

use alloc::collections::VecDeque;

use super::events::Lane;
use super::{Engine, Happened, Phase};

/// Units of a piece that a channel moves at once.
pub(super) const PIECE_UNITS: u8 = 4;

/// A channel.
#[derive(Debug)]
pub(super) struct Bus {
    /// The die whose piece is moved, and the units of the piece.
    current: Option<(u32, u8)>,
    /// Dies that want to give the data of a read.
    reads: VecDeque<u32>,
    /// Dies that want the data of a program; where a channel serves in turn, the others too.
    programs: VecDeque<u32>,
}

impl Bus {
    pub fn new(dies: usize) -> Self {
        Self {
            current: None,
            reads: VecDeque::with_capacity(dies),
            programs: VecDeque::with_capacity(dies),
        }
    }

    pub fn clear(&mut self) {
        self.current = None;
        self.reads.clear();
        self.programs.clear();
    }

    fn queue(&mut self, before_others: bool) -> &mut VecDeque<u32> {
        if before_others {
            &mut self.reads
        } else {
            &mut self.programs
        }
    }
}

impl<T> Engine<T> {
    /// Has the channel move `units` of `die`.
    pub(super) fn want_channel(&mut self, now: u64, index: u32, units: u8) {
        let die = &mut self.dies[index as usize];
        die.moving = units;
        let first = die.phase == Phase::Reading && !self.order.channel_in_turn;
        let bus = index % self.buses.len() as u32;
        self.buses[bus as usize].queue(first).push_back(index);
        self.begin_move(now, bus);
    }

    /// Has the channel tell `die` to sense. A channel that serves in turn lets nothing pass a
    /// transfer, not even that.
    pub(super) fn command(&mut self, now: u64, index: u32) {
        let bus = index % self.buses.len() as u32;
        let bus = &mut self.buses[bus as usize];
        if self.order.channel_in_turn && bus.current.is_some() {
            self.dies[index as usize].phase = Phase::Commanding;
            return bus.programs.push_back(index);
        }
        self.sense(now, index);
    }

    /// Lets a free channel move the next piece.
    fn begin_move(&mut self, now: u64, index: u32) {
        let bus = &mut self.buses[index as usize];
        if bus.current.is_some() {
            return;
        }
        let Some(die) = bus.reads.pop_front().or_else(|| bus.programs.pop_front()) else {
            return;
        };
        if self.dies[die as usize].phase == Phase::Commanding {
            self.sense(now, die);
            return self.begin_move(now, index);
        }
        let units = self.dies[die as usize].moving.min(PIECE_UNITS);
        bus.current = Some((die, units));
        let moved = now + self.times.piece[units as usize - 1];
        self.events.push(Lane::moving(units), moved, index);
    }

    /// A channel has moved a piece. What its owner has to know, if it was the last one.
    pub(super) fn moved(&mut self, now: u64, index: u32) -> Option<Happened<T>> {
        let bus = &mut self.buses[index as usize];
        let (die_index, units) = bus.current.take().expect("only a busy channel moves");
        let die = &mut self.dies[die_index as usize];
        die.moving -= units;
        let (left, reading) = (die.moving, die.phase == Phase::Reading);
        if left > 0 {
            let first = reading && !self.order.channel_in_turn;
            bus.queue(first).push_front(die_index);
        }
        self.begin_move(now, index);
        if left > 0 {
            return None;
        }
        if reading {
            return Some(Happened::Read(self.read_moved(now, die_index)));
        }
        let program = self.loaded(now, die_index);
        program.tell_loaded.then_some(Happened::Loaded(program))
    }
}
