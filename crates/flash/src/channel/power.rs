//! The state of the flash after a power cut.

use alloc::vec::Vec;

use flashyard_time::{Duration, Time};

use super::execute::parts;
use super::{ChunkState, Device};
use crate::die::Job;

/// What a power cut did, and what the device needed to be ready again. The chunk report tells what
/// is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commands that are never completed.
    pub commands: u32,
    /// Programs cut short: their chunks are closed and end before them.
    pub programs: u32,
    /// Erases cut short: nothing can be read of their chunks before they are reset.
    pub erases: u32,
    /// Sectors of writes that were complete and are lost. Only with a buffer that is not protected,
    /// or when the program of a page destroyed those of its word line; all of them less than
    /// `mw_cunits` before the write pointer.
    pub lost_sectors: u64,
    /// Looking for the ends of open chunks; commands wait as long.
    pub span: Duration,
}

impl Device {
    /// Lets time pass until `now`, takes the power away and gives it back. No command in flight is
    /// ever completed. What was programmed stays, and open chunks end behind it. A program under
    /// way destroys its write unit and those of its word line; one that is protected ends. An erase
    /// in flight leaves its chunk to be reset.
    pub fn power_cut(&mut self, now: Time) -> Recovered {
        self.run(now.as_ns());
        let mut recovered = Recovered {
            commands: self.commands.iter().filter(|one| !one.complete).count() as u32,
            ..Recovered::default()
        };
        let mut jobs = Vec::new();
        self.dies.cut(|job| jobs.push(job));
        for job in jobs {
            self.interrupt(job, &mut recovered);
        }
        let open = self.settle_chunks(&mut recovered.lost_sectors);
        recovered.span = self.scan(open);
        self.forget_commands(recovered.span);
        recovered
    }

    fn interrupt(&mut self, job: Job, recovered: &mut Recovered) {
        match job {
            Job::Program(program) => {
                let (index, first) = parts(program.token);
                let unit = self.commands[index as usize].targets()[first as usize];
                let protected = self.options.buffered
                    && self.options.buffer_protected
                    && !self.lacks_source(index, first);
                self.interrupt_program(unit, protected, recovered);
            }
            Job::Erase(erase) => {
                let (index, place) = parts(erase.token);
                let (chunk, _) = self.split(self.commands[index as usize].units[place as usize]);
                let chunk = &mut self.chunks[chunk];
                (chunk.programmed, chunk.resets) = (0, chunk.resets + 1);
                chunk.close_early(self.geometry.clba);
                recovered.erases += 1;
            }
        }
    }

    /// Cuts the program of the write unit at `unit` short, unless it is protected or in a chunk
    /// closed already.
    fn interrupt_program(&mut self, unit: u32, protected: bool, recovered: &mut Recovered) {
        let (chunk, sector) = self.split(unit);
        let size = self.geometry.ws_min;
        let chunk = &mut self.chunks[chunk];
        if chunk.state != ChunkState::Open {
            return;
        }
        if protected {
            chunk.programmed += size;
            if chunk.programmed == self.geometry.clba {
                chunk.state = ChunkState::Closed;
            }
            return;
        }
        let word_line = self.geometry.ws_opt;
        chunk.programmed = chunk.programmed.min(sector / word_line * word_line);
        recovered.lost_sectors += u64::from(chunk.acknowledged - chunk.programmed);
        recovered.programs += 1;
        chunk.close_early(sector + size);
    }

    /// Brings every chunk to what is programmed of it, and counts what was complete and is not. The
    /// most open chunks that a die has.
    fn settle_chunks(&mut self, lost: &mut u64) -> u32 {
        self.open.fill(0);
        for number in 0..self.chunks.len() {
            let die = self.die_of(number) as usize;
            let chunk = &mut self.chunks[number];
            (chunk.writers, chunk.readers) = (0, 0);
            (chunk.resetting, chunk.waiting) = (false, None);
            if chunk.state != ChunkState::Open {
                continue;
            }
            *lost += u64::from(chunk.acknowledged - chunk.programmed);
            (chunk.next, chunk.acknowledged) = (chunk.programmed, chunk.programmed);
            if chunk.programmed == 0 {
                chunk.state = ChunkState::Free;
            } else {
                self.open[die] += 1;
            }
        }
        self.open.iter().copied().max().unwrap_or(0)
    }

    /// How long the die with the most open chunks looks for their ends, each by halving.
    fn scan(&self, open: u32) -> Duration {
        let programs = self.geometry.clba / self.geometry.ws_min;
        let steps = u64::from(u32::BITS - programs.leading_zeros());
        let (_, read) = self.geometry.read_ns;
        Duration::from_ns(u64::from(open) * steps * read)
    }

    fn forget_commands(&mut self, span: Duration) {
        self.unused.clear();
        for (index, command) in (0..).zip(&mut self.commands) {
            command.complete = true;
            command.programs = 0;
            // A completion from before the cut finds no metadata.
            command.serial = 0;
            self.unused.push(index);
        }
        self.firmware_free = self.clock + span.as_ns();
        (self.link_out_free, self.link_in_free) = (self.clock, self.clock);
    }
}
