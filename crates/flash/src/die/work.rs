//! Decides what a die does next, and suspends what it does.

use super::events::{Lane, Rare};
use super::{Die, Engine, Erase, Job, Phase, Program, Read, Turn};

impl<T> Engine<T> {
    /// Has a die read.
    pub fn read(&mut self, now: u64, read: Read) {
        let die = &mut self.dies[read.die as usize];
        let (queue, turn) = if read.background {
            (&mut die.background_reads, Turn::BackgroundRead)
        } else {
            (&mut die.host_reads, Turn::HostRead)
        };
        queue.push_back(read);
        match die.phase {
            _ if self.order.die_in_turn => self.wait_turn(now, read.die, turn),
            Phase::Idle => self.dispatch(now, read.die),
            Phase::Working if !read.background => self.maybe_suspend(now, read.die),
            _ => {}
        }
    }

    /// Has a die program.
    pub fn program(&mut self, now: u64, program: Program) {
        let die = program.die;
        self.dies[die as usize].programs.push_back(program);
        if self.order.die_in_turn {
            return self.wait_turn(now, die, Turn::Program);
        }
        self.dispatch_if_idle(now, die);
    }

    /// Has a die erase a block.
    pub fn erase(&mut self, now: u64, erase: Erase) {
        let die = erase.die;
        self.dies[die as usize].erases.push_back(erase);
        if self.order.die_in_turn {
            return self.wait_turn(now, die, Turn::Erase);
        }
        self.dispatch_if_idle(now, die);
    }

    fn wait_turn(&mut self, now: u64, die: u32, turn: Turn) {
        self.dies[die as usize].turns.push_back(turn);
        self.dispatch_if_idle(now, die);
    }

    fn dispatch_if_idle(&mut self, now: u64, die: u32) {
        if self.dies[die as usize].phase == Phase::Idle {
            self.dispatch(now, die);
        }
    }

    /// Begins what an idle die does next.
    fn dispatch(&mut self, now: u64, index: u32) {
        if self.order.die_in_turn {
            return self.dispatch_in_turn(now, index);
        }
        let die = &mut self.dies[index as usize];
        let others = die.others_wait();
        if !others {
            die.overtaken = 0;
        }
        if (!others || die.overtaken < self.order.bypass)
            && let Some(read) = die.host_reads.pop_front()
        {
            die.overtaken += u16::from(others);
            return self.begin_read(now, index, read);
        }
        if die.paused.is_some() {
            die.overtaken = 0;
            return self.begin_switch(now, index, Phase::Resuming);
        }
        if let Some(erase) = die.erases.pop_front() {
            return self.begin_erase(now, index, erase);
        }
        if let Some(read) = die.background_reads.pop_front() {
            die.overtaken = 0;
            return self.begin_read(now, index, read);
        }
        if !die.programs.is_empty() && self.may_program(index) {
            return self.begin_program(now, index);
        }
        // What waits is a program that the power budget holds back; it must not hold back reads.
        if let Some(read) = self.dies[index as usize].host_reads.pop_front() {
            self.begin_read(now, index, read);
        }
    }

    /// Begins what came first.
    fn dispatch_in_turn(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        let Some(&turn) = die.turns.front() else {
            return;
        };
        if matches!(turn, Turn::Program) && !self.may_program(index) {
            return;
        }
        let waited = "every turn is of something that waits";
        let die = &mut self.dies[index as usize];
        die.turns.pop_front();
        match turn {
            Turn::HostRead => {
                let read = die.host_reads.pop_front().expect(waited);
                self.begin_read(now, index, read);
            }
            Turn::BackgroundRead => {
                let read = die.background_reads.pop_front().expect(waited);
                self.begin_read(now, index, read);
            }
            Turn::Program => self.begin_program(now, index),
            Turn::Erase => {
                let erase = die.erases.pop_front().expect(waited);
                self.begin_erase(now, index, erase);
            }
        }
    }

    fn begin_read(&mut self, now: u64, index: u32, read: Read) {
        let die = &mut self.dies[index as usize];
        (die.phase, die.since, die.read) = (Phase::Reading, now, read);
        self.command(now, index);
    }

    /// A die has got the command to sense its page.
    pub(super) fn sense(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        die.phase = Phase::Reading;
        let page_type = die.read.page_type;
        let sensed = now + self.times.sense[page_type as usize];
        self.events.push(Lane::sense(page_type), sensed, index);
    }

    /// A die has sensed its page and wants the channel.
    pub(super) fn sensed(&mut self, now: u64, index: u32) {
        self.want_channel(now, index, self.dies[index as usize].read.units);
    }

    pub(super) fn read_moved(&mut self, now: u64, index: u32) -> Read {
        let die = &mut self.dies[index as usize];
        die.counts.time.reading += now - die.since;
        die.counts.reads += 1;
        die.phase = Phase::Idle;
        let read = die.read;
        self.dispatch(now, index);
        read
    }

    /// Whether the power budget lets another die program; if not, the die is called when it does.
    fn may_program(&mut self, index: u32) -> bool {
        if self.programming < self.times.programming_dies {
            return true;
        }
        let die = &mut self.dies[index as usize];
        if !core::mem::replace(&mut die.in_power_queue, true) {
            self.power_queue.push_back(index);
        }
        false
    }

    fn begin_program(&mut self, now: u64, index: u32) {
        self.programming += 1;
        let die = &mut self.dies[index as usize];
        let program = die.programs.pop_front().expect("the caller saw one");
        die.job = Some(Job::Program(program));
        die.suspends = 0;
        die.overtaken = 0;
        (die.phase, die.since) = (Phase::Loading, now);
        self.want_channel(now, index, self.program_units);
    }

    pub(super) fn loaded(&mut self, now: u64, index: u32) -> Program {
        let die = &mut self.dies[index as usize];
        die.counts.time.loading += now - die.since;
        let Some(Job::Program(program)) = die.job else {
            unreachable!("only a program is loaded")
        };
        let span = self.times.program[program.page_type as usize];
        let span = span.saturating_add_signed(i64::from(program.longer_by));
        self.begin_work(now, index, span);
        program
    }

    fn begin_erase(&mut self, now: u64, index: u32, erase: Erase) {
        let die = &mut self.dies[index as usize];
        die.overtaken = 0;
        die.job = Some(Job::Erase(erase));
        die.suspends = 0;
        let span = if erase.instant { 0 } else { self.times.erase };
        self.begin_work(now, index, span);
    }

    /// Programs or erases for `span`.
    fn begin_work(&mut self, now: u64, index: u32, span: u64) {
        let at = now + span;
        let key = self.events.push_own(at, Rare::JobDone(index));
        let die = &mut self.dies[index as usize];
        (die.phase, die.since, die.end) = (Phase::Working, now, Some((at, key)));
        if !die.host_reads.is_empty() {
            self.maybe_suspend(now, index);
        }
    }

    /// Suspends the job of a die for a read that waits, if it may be.
    fn maybe_suspend(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        let (at, key) = die.end.expect("a working die has an end");
        if die.suspends >= self.order.suspends || at - now <= self.times.guard {
            return;
        }
        die.suspends += 1;
        die.overtaken = 0;
        die.paused = Some(at - now);
        die.end = None;
        die.counts.suspends += 1;
        self.events.cancel(key);
        self.count_work(now, index);
        self.begin_switch(now, index, Phase::Suspending);
    }

    fn begin_switch(&mut self, now: u64, index: u32, phase: Phase) {
        let die = &mut self.dies[index as usize];
        (die.phase, die.since) = (phase, now);
        let (span, event) = match phase {
            Phase::Suspending => (self.times.suspend, Rare::Suspended(index)),
            _ => (self.times.resume, Rare::Resumed(index)),
        };
        self.events.push_own(now + span, event);
    }

    pub(super) fn suspended(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        die.counts.time.switching += now - die.since;
        die.phase = Phase::Idle;
        self.dispatch(now, index);
    }

    pub(super) fn resumed(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        die.counts.time.switching += now - die.since;
        let left = die.paused.take().expect("only what is suspended resumes");
        self.begin_work(now, index, left);
    }

    /// Counts the time a die worked since its phase began.
    fn count_work(&mut self, now: u64, index: u32) {
        let die = &mut self.dies[index as usize];
        let worked = now - die.since;
        match die.job {
            Some(Job::Program(_)) => die.counts.time.programming += worked,
            _ => die.counts.time.erasing += worked,
        }
    }

    /// A program or erase has ended.
    pub(super) fn job_done(&mut self, now: u64, index: u32) -> Job {
        self.count_work(now, index);
        let die = &mut self.dies[index as usize];
        (die.phase, die.end) = (Phase::Idle, None);
        let job = die.job.take().expect("a working die has a job");
        match job {
            Job::Program(_) => {
                die.counts.programs += 1;
                self.programming -= 1;
                self.dispatch(now, index);
                self.give_power(now);
            }
            Job::Erase(_) => {
                die.counts.erases += 1;
                self.dispatch(now, index);
            }
        }
        job
    }

    /// Calls dies that wait to program, as long as the budget lasts.
    fn give_power(&mut self, now: u64) {
        for _ in 0..self.power_queue.len() {
            if self.programming >= self.times.programming_dies {
                return;
            }
            let Some(index) = self.power_queue.pop_front() else {
                return;
            };
            self.dies[index as usize].in_power_queue = false;
            self.dispatch_if_idle(now, index);
        }
    }
}

impl Die {
    /// Whether anything but reads of the host waits.
    fn others_wait(&self) -> bool {
        self.paused.is_some()
            || !self.programs.is_empty()
            || !self.background_reads.is_empty()
            || !self.erases.is_empty()
    }
}
