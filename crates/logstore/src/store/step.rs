//! One turn of the store, and the ends of I/Os.

use super::io::{Action, IoError, IoOp, Payer, Purpose, Tag};
use super::state::{State, Store};
use crate::entry::Lineage;
use crate::format::batch::Lane;

impl Store {
    /// Who has caused an I/O that has not ended, each to a part; nobody if it is the pool's own, or
    /// if it is a host's read. To be asked before its end is told.
    pub fn payers(&self, tag: Tag) -> &[(Lineage, u64)] {
        let io = self.ios.get(tag);
        match io.payer {
            Payer::Pool => &[],
            Payer::Listed => &io.payers,
            Payer::Collection => &self.payers.collection,
            Payer::Map => &self.payers.map,
        }
    }

    /// Whether an I/O is no request's: garbage collection, the map, or the pool's own.
    pub fn is_upkeep(&self, tag: Tag) -> bool {
        let io = self.ios.get(tag);
        io.host.is_none() && io.payer != Payer::Listed
    }

    /// An I/O has ended; `result` has the bytes of a read. A completion that nobody waits for
    /// changes nothing.
    pub fn completed(&mut self, tag: Tag, result: Result<&[u8], IoError>) {
        let purpose = self.ios.end(tag);
        if purpose.is_some() && self.asks_again(tag, result) {
            return;
        }
        match purpose {
            None | Some(Purpose::None) => {}
            Some(Purpose::Batch(lane, number)) => {
                self.batch_ended(tag, lane, number, result.is_ok());
            }
            Some(Purpose::Footer(segment)) => self.footer_ended(tag, segment),
            Some(Purpose::Host(slot)) => self.host_read(tag, slot, result),
            Some(Purpose::Leaf(page)) => self.leaf_read(tag, page, result),
            Some(Purpose::MapRun) => self.run_ended(tag, result.is_ok()),
            Some(Purpose::Flush) => self.flush_ended(tag, result.is_ok()),
            Some(Purpose::Superblock) => self.superblock_ended(tag, result.is_ok()),
            Some(Purpose::Discard(segment)) => self.discard_ended(tag, segment),
            Some(Purpose::List(victim)) => self.victim_listed(tag, victim, result),
            Some(Purpose::ScrubList) => self.scrub_listed(tag, result),
            Some(Purpose::Scrub) => self.scrub_ended(tag, result),
            Some(Purpose::Collect) => self.victim_read(tag, result),
            Some(Purpose::Recover(job)) => self.recovered(tag, job, result),
        }
    }

    /// Lets everybody do what can be done now.
    pub(super) fn step(&mut self) {
        self.progress = true;
        while core::mem::take(&mut self.progress) && self.out.is_empty() {
            match self.state {
                State::Failed(_) => return,
                State::Opening => {
                    self.recover();
                    self.step_checkpoint();
                    self.step_flushes();
                }
                State::ReadOnly(_) => self.retry_reads(),
                State::Ready => self.step_ready(),
            }
        }
    }

    fn step_ready(&mut self) {
        for lane in Lane::ALL {
            self.redo(lane);
            self.admit(lane);
        }
        self.collect();
        self.step_checkpoint();
        for lane in Lane::ALL {
            let state = &self.lanes[lane as usize];
            // Nobody waits for moves: their batches are full but for the last.
            let wanted = lane != Lane::Collector || self.collector.is_settling();
            if state.open.is_some()
                && wanted
                && !state.failing
                && state.in_flight.len() < self.options.at_once
            {
                self.issue(lane);
                self.progress = true;
            }
        }
        self.step_flushes();
        self.retry_reads();
        self.step_check();
        self.step_scrub();
        self.step_difference();
    }

    /// Begins a flush when somebody waits for what is complete.
    fn step_flushes(&mut self) {
        if self.flusher.unproved >= self.options.unproved_blocks && !self.flusher.in_flight() {
            self.flusher.want();
        }
        let mut place = 0;
        while let Some(wait) = self.flusher.waiting.get(place).copied() {
            let each = || Lane::ALL.iter().map(|&lane| lane as usize);
            if each().all(|lane| self.lanes[lane].durable.0 >= wait.numbers[lane]) {
                self.flusher.waiting.swap_remove(place);
                self.answer(wait.request, super::io::Outcome::Success);
                continue;
            }
            place += 1;
            if each().all(|lane| self.lanes[lane].complete.number >= wait.numbers[lane]) {
                let covered = each().all(|lane| self.flusher.covers[lane].0 >= wait.numbers[lane]);
                if !(self.flusher.in_flight() && covered) {
                    self.flusher.want();
                }
                continue;
            }
            for lane in Lane::ALL {
                let state = &self.lanes[lane as usize];
                if wait.numbers[lane as usize] > state.issued && !state.failing {
                    self.issue(lane);
                }
            }
        }
        if self.flusher.in_flight() || self.flusher.wanted <= self.flusher.begun {
            return;
        }
        self.flusher.begun += 1;
        self.flusher.unproved = 0;
        for (covers, lane) in self.flusher.covers.iter_mut().zip(&self.lanes) {
            *covers = (lane.complete.number, lane.complete.sequence);
        }
        let tag = self.ios.begin(IoOp::Flush, 0, 0, Purpose::Flush);
        self.out.push_back(Action::Submit(tag));
    }

    fn flush_ended(&mut self, tag: Tag, good: bool) {
        self.ios.release(tag);
        if !good {
            return self.go_read_only();
        }
        self.flusher.finished = self.flusher.begun;
        for (covers, lane) in self.flusher.covers.iter().zip(&mut self.lanes) {
            lane.durable = *covers;
        }
    }
}
