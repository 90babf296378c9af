//! What theory says of a drive: closed forms of the numbers in its profile. Times are microseconds.

use flashyard_flash::{Profile, UNIT_BYTES};

/// Microseconds that each stage of a drive takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stages {
    pub command: f64,
    unit: f64,
    entry: f64,
    /// Sensing a page, in the mean over its types.
    pub sense: f64,
    /// A unit over a channel.
    pub channel: f64,
    /// A unit over the link.
    pub link: f64,
    read_exit: f64,
    write_exit: f64,
    program: f64,
    erase: f64,
    pub channels: f64,
    pub dies: f64,
    cell_units: f64,
    pub program_units: f64,
    block_units: f64,
}

impl Stages {
    pub fn of(profile: &Profile) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let unit_at = |rate: u64| UNIT_BYTES as f64 / rate as f64 * 1e6;
        let senses = [
            profile.read_lower_ns,
            profile.read_middle_ns,
            profile.read_upper_ns,
        ];
        let types = profile.page_types as usize;
        let one_shot = profile.pages_per_program == profile.page_types;
        let program = if one_shot {
            us(profile.program_ns)
        } else {
            let upper = profile.program_upper_ns * (profile.page_types - 1);
            us(profile.program_ns + upper) / profile.page_types as f64
        };
        let cell_units = (profile.planes * profile.page_bytes / UNIT_BYTES) as f64;
        let program_units = cell_units * profile.pages_per_program as f64;
        Self {
            command: us(profile.command_ns),
            unit: us(profile.unit_ns),
            entry: us(profile.entry_ns),
            sense: us(senses[..types].iter().sum::<u64>()) / types as f64
                + us(profile.read_overhead_ns),
            channel: unit_at(profile.channel_bytes_per_second),
            link: unit_at(profile.link_bytes_per_second),
            read_exit: us(profile.read_exit_ns),
            write_exit: us(profile.write_exit_ns),
            program,
            erase: us(profile.erase_ns),
            channels: profile.channels as f64,
            dies: (profile.channels * profile.dies_per_channel) as f64,
            cell_units,
            program_units,
            block_units: program_units * profile.programs_per_block as f64,
        }
    }

    /// A read of `units` of an idle drive. A large one lies on a die of as many channels as it
    /// takes cells.
    pub fn idle_read(&self, units: f64) -> f64 {
        let moved = units.min(self.cell_units) * self.channel;
        self.firmware(units) + self.entry + self.sense + moved + units * self.link + self.read_exit
    }

    /// A write of one unit to an idle drive with room in its buffer.
    pub fn idle_write(&self) -> f64 {
        self.firmware(1.0) + self.entry + self.link + self.write_exit
    }

    /// Reads of one unit per second that the dies can do; the other stages as in the fields.
    pub fn die_reads(&self) -> f64 {
        self.dies / self.die_read() * 1e6
    }

    /// What a read of one unit takes of its die.
    pub fn die_read(&self) -> f64 {
        self.sense + self.channel
    }

    /// What a program takes of its die, loading included.
    pub fn die_program(&self) -> f64 {
        self.program + self.program_units * self.channel
    }

    /// Bytes per second that the dies can program.
    pub fn write_rate(&self) -> f64 {
        self.dies * self.program_units * UNIT_BYTES as f64 / self.die_program() * 1e6
    }

    /// Mean wait of reads of one unit that arrive at random, `rate` in a microsecond, before all
    /// stages: each an M/D/1 queue.
    pub fn wait(&self, rate: f64) -> f64 {
        md1(rate, self.command)
            + md1(rate / self.dies, self.die_read())
            + md1(rate / self.channels, self.channel)
            + md1(rate, self.link)
    }

    /// Writes of one unit per second that the dies can do under collection: every unit is
    /// programmed `amplification` times, and what is moved is read, a cell at a time.
    pub fn fragmented_writes(&self, amplification: f64) -> f64 {
        let valid = self.cell_units * (1.0 - 1.0 / amplification);
        let moved = self.sense / valid + self.channel;
        let programmed = self.die_program() / self.program_units + self.erase / self.block_units;
        self.dies / (amplification * programmed + (amplification - 1.0) * moved) * 1e6
    }

    fn firmware(&self, units: f64) -> f64 {
        self.command + (units - 1.0) * self.unit
    }
}

/// Mean wait before a server that takes `service` microseconds, for arrivals at random, `rate` in a
/// microsecond.
fn md1(rate: f64, service: f64) -> f64 {
    let busy = rate * service;
    busy * service / (2.0 * (1.0 - busy))
}

/// Reads per second in a closed loop of `depth` over `servers` that take `service` microseconds
/// each, if service times were exponential (product form).
pub(super) fn product_form(depth: f64, servers: f64, service: f64) -> f64 {
    servers / service * depth / (depth + servers - 1.0) * 1e6
}

/// Write amplification of collection in order of age - and for large blocks of greedy collection -
/// under uniformly random writes, `ratio` being flash for data: the valid fraction `v` of what is
/// collected solves `v = exp(-ratio (1 - v))`, which is `ratio / (ratio + W(-ratio exp(-ratio)))`
/// with Lambert's W.
pub(super) fn amplification(ratio: f64) -> f64 {
    amplification_of_classes(ratio, &[(1.0, 1.0)])
}

/// The same when addresses are of classes, each with its share of the data and of the writes. A
/// unit of a class is overwritten within a cycle with probability `1 - exp(-x)`, where `x` is its
/// writes in a cycle; all that is programmed in a cycle is the flash (Desnoyers' analysis of LRU
/// cleaning).
pub(super) fn amplification_of_classes(ratio: f64, classes: &[(f64, f64)]) -> f64 {
    let programmed = |amplification: f64| -> f64 {
        let copies = classes.iter().map(|(data, writes)| {
            let overwritten = ratio * writes / (amplification * data);
            writes / (1.0 - exp_negative(overwritten))
        });
        copies.sum()
    };
    let (mut least, mut most) = (1.0, 1e4);
    for _ in 0..100 {
        let middle = f64::midpoint(least, most);
        if programmed(middle) > middle {
            least = middle;
        } else {
            most = middle;
        }
    }
    most
}

/// `exp(-x)` for `x` from 0, which the core library lacks.
fn exp_negative(x: f64) -> f64 {
    if x > 700.0 {
        return 0.0;
    }
    let step = x / 65_536.0;
    let series = 1.0 - step * (1.0 - step / 2.0 * (1.0 - step / 3.0 * (1.0 - step / 4.0)));
    (0..16).fold(series, |power, _| power * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(measured: f64, expected: f64, tolerance: f64) {
        let error = measured / expected - 1.0;
        assert!(error.abs() < tolerance, "{measured} for {expected}");
    }

    #[test]
    fn the_exponential_is_exact_enough() {
        for (x, exact) in [
            (0.0, 1.0),
            (0.1, 0.904_837_418),
            (1.0, 0.367_879_441),
            (20.0, 2.061_153_622e-9),
        ] {
            near(exp_negative(x), exact, 1e-7);
        }
        assert!(exp_negative(1e9) < 1e-300);
    }

    #[test]
    fn write_amplification_is_the_published_one() {
        for (ratio, published) in [
            (1.05, 10.7),
            (1.07, 7.8),
            (1.09, 6.2),
            (1.12, 4.85),
            (1.20, 3.19),
            (1.28, 2.48),
            (1.60, 1.56),
            (2.00, 1.25),
        ] {
            near(amplification(ratio), published, 0.02);
        }
    }

    #[test]
    fn classes_that_are_alike_are_one() {
        for ratio in [1.07, 1.28, 2.0] {
            let split = amplification_of_classes(ratio, &[(0.3, 0.3), (0.7, 0.7)]);
            near(split, amplification(ratio), 1e-6);
        }
        let skewed = amplification_of_classes(1.2, &[(0.1, 0.9), (0.9, 0.1)]);
        assert!(skewed > amplification(1.2), "{skewed}");
    }

    #[test]
    fn stages_add_up_to_what_the_study_says() {
        let stages = Stages::of(&Profile::named("dct983").expect("it ships"));
        near(stages.idle_read(1.0), 85.2, 1e-9);
        near(stages.idle_read(32.0), 162.58, 1e-9);
        near(stages.idle_write(), 14.08, 1e-9);
        near(stages.die_reads(), 463e3, 1e-3);
        near(stages.write_rate(), 1.199e9, 1e-3);
        for (rate, published) in [(0.05, 89.4), (0.1, 94.7), (0.2, 111.5), (0.3, 148.8)] {
            // The study counts the wait before the dies alone.
            let wait = md1(rate / stages.dies, stages.die_read());
            near(stages.idle_read(1.0) + wait, published, 1e-3);
            let others = stages.wait(rate) - wait;
            assert!((0.0..5.0).contains(&others), "{rate}: {others}");
        }
    }
}
