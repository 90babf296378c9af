//! What the demonstration found: a table and plain words for people, JSON for programs.

use std::fmt;
use std::net::SocketAddr;

use flashyard_drives::FlashStats;
use flashyard_flash::ssd;
use flashyard_time::Duration;
use serde_json::{Value, json};

use super::machine::Machine;
use super::players::{PLAYERS, READER, WRITER};
use crate::perf::Report;
use crate::spec::PolicyName;
use crate::table::Table;
use crate::units;

/// Tenants at work at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// What stands in front of the drive.
    pub(super) policy: PolicyName,
    /// Places in [`PLAYERS`].
    pub(super) players: &'static [usize],
}

/// A phase, and what came of it.
pub(super) struct Measured {
    pub(super) phase: Phase,
    /// Of each player of the phase.
    pub(super) reports: Vec<Report>,
    /// What the drive did in the phase.
    pub(super) counted: ssd::Stats,
    /// How it kept its time in the phase.
    pub(super) timing: FlashStats,
}

/// All of it.
pub(super) struct Outcome {
    pub(super) address: SocketAddr,
    pub(super) seconds: u64,
    pub(super) dilation: u32,
    /// What was found out before; nothing if no I/O came to the drive.
    pub(super) machine: Option<Machine>,
    pub(super) phases: Vec<Measured>,
}

const ALONE: &str = "alone";
const BESIDE_WRITER: &str = "reads beside writes";
const TOGETHER: &str = "all together";
const FAIR: &str = "all, fair switch";

impl Phase {
    /// All phases, in order.
    pub(super) fn all() -> [Self; 6] {
        let phase = |name, players| Self {
            name,
            policy: if name == FAIR {
                PolicyName::default()
            } else {
                PolicyName::fifo()
            },
            players,
        };
        [
            phase(ALONE, &[0]),
            phase(ALONE, &[1]),
            phase(ALONE, &[2]),
            phase(BESIDE_WRITER, &[READER, WRITER]),
            phase(TOGETHER, &[0, 1, 2]),
            phase(FAIR, &[0, 1, 2]),
        ]
    }

    /// What the machine is judged by: the fastest reads, and the most work.
    pub(super) fn judged() -> [Self; 2] {
        let [reader, _, _, _, together, _] = Self::all();
        [reader, together]
    }

    /// Seconds before the phase is measured: the fair switch learns what I/O costs.
    pub(super) fn warm_up(&self) -> f64 {
        let learns = self.policy == PolicyName::default();
        if learns { 2.0 } else { 0.2 }
    }

    /// Who does what.
    pub(super) fn describe(&self) -> String {
        let players = self.players.iter().map(|&player| &PLAYERS[player]);
        match self.players {
            [player] => format!(
                "{} alone: {}",
                PLAYERS[*player].tenant, PLAYERS[*player].does
            ),
            _ => {
                let names: Vec<_> = players.map(|player| player.tenant).collect();
                format!("{}: {}", self.name, names.join(", "))
            }
        }
    }
}

impl Measured {
    fn report(&self, player: usize) -> Option<&Report> {
        let place = self.phase.players.iter().position(|&one| one == player)?;
        self.reports.get(place)
    }

    /// Whether the machine was too busy for the figures to be the drive's.
    pub(super) fn is_void(&self) -> bool {
        let mean = Duration::from_ns(self.timing.latency.mean());
        self.timing.is_void(mean)
    }

    /// What the drive took for an I/O, in the mean.
    pub(super) fn mean_us(&self) -> f64 {
        self.timing.latency.mean() as f64 / 1e3
    }

    /// How late 99 of 100 completions were at most.
    pub(super) fn lateness_us(&self) -> f64 {
        self.timing.lateness.percentile(990_000) as f64 / 1e3
    }

    fn write_amplification(&self) -> f64 {
        self.counted.write_amplification() as f64 / 1e3
    }
}

impl Outcome {
    /// The same for programs.
    pub(super) fn to_json(&self) -> Value {
        let tenants = PLAYERS.iter().enumerate().map(|(place, player)| {
            json!({
                "tenant": player.tenant,
                "class": player.class,
                "load": player.load.join(" "),
                "alone": self.report(ALONE, place),
                "beside_writer": self.report(BESIDE_WRITER, place),
                "together": self.report(TOGETHER, place),
                "together_fair": self.report(FAIR, place),
            })
        });
        let drive = self.phases.iter().map(|measured| {
            json!({
                "phase": measured.phase.name,
                "policy": measured.phase.policy.name(),
                "tenants": measured.phase.players.iter().map(|&player| PLAYERS[player].tenant).collect::<Vec<_>>(),
                "write_amplification": measured.write_amplification(),
                "moved_units": measured.counted.moved_units,
                "free_superblocks": measured.counted.free_superblocks,
                "lateness_p99_us": measured.lateness_us(),
                "void": measured.is_void(),
            })
        });
        json!({
            "address": self.address,
            "seconds": self.seconds,
            "profile": "dct983",
            "condition": "fragmented",
            "dilation": self.dilation,
            "machine": self.machine.map(Machine::to_json),
            "tenants": tenants.collect::<Vec<_>>(),
            "drive": drive.collect::<Vec<_>>(),
            "finding": self.finding(),
        })
    }

    fn report(&self, phase: &str, player: usize) -> Option<&Report> {
        let mut measured = self.phases.iter().filter(|one| one.phase.name == phase);
        measured.find_map(|measured| measured.report(player))
    }

    /// What is to be seen, in one sentence; that nothing is, if the machine was too busy.
    fn finding(&self) -> String {
        let with_reader = |one: &&Measured| one.report(READER).is_some();
        if self
            .phases
            .iter()
            .filter(with_reader)
            .any(Measured::is_void)
        {
            return "This machine was too busy to keep the drive's time, so the figures say nothing of the drive: stop \
                    what else runs, or give a larger --dilation."
                .to_owned();
        }
        let latency = |phase| Some(&self.report(phase, READER)?.latency_us);
        let (Some(alone), Some(beside), Some(together), Some(fair)) = (
            latency(ALONE),
            latency(BESIDE_WRITER),
            latency(TOGETHER),
            latency(FAIR),
        ) else {
            return String::new();
        };
        format!(
            "Beside the writes of {} a read of {} takes {} instead of {} in the mean, and {} instead of {} at the 99th \
             percentile ({:.1} times as long): reads wait for the programs and erases that writes cause. With all three at \
             work it takes {} first in, first out, and {} behind the fair switch (99th percentile: {} and {}).",
            PLAYERS[WRITER].tenant,
            PLAYERS[READER].tenant,
            micros(beside.mean),
            micros(alone.mean),
            micros(beside.p99),
            micros(alone.p99),
            beside.p99 / alone.p99.max(1.0),
            micros(together.mean),
            micros(fair.mean),
            micros(together.p99),
            micros(fair.p99),
        )
    }

    fn table(&self) -> Table {
        let words = ["PHASE", "SWITCH", "TENANT", "DOES"].map(|name| (name.to_owned(), false));
        let numbers = ["I/O PER S", "BANDWIDTH", "MEAN US", "P99 US", "TIME KEPT"]
            .map(|name| (name.to_owned(), true));
        let mut table = Table::of(words.into_iter().chain(numbers));
        for measured in &self.phases {
            for (&player, report) in measured.phase.players.iter().zip(&measured.reports) {
                table.row(vec![
                    measured.phase.name.to_owned(),
                    measured.phase.policy.name().to_owned(),
                    PLAYERS[player].tenant.to_owned(),
                    PLAYERS[player].does.to_owned(),
                    format!("{:.0}", report.iops),
                    units::bandwidth(report.bytes_per_second),
                    format!("{:.0}", report.latency_us.mean),
                    format!("{:.0}", report.latency_us.p99),
                    if measured.is_void() { "no" } else { "yes" }.to_owned(),
                ]);
            }
        }
        table
    }

    /// What the drive says, and how far it can be believed.
    fn drive(&self) -> String {
        let amplification = self
            .phases
            .iter()
            .filter(|measured| measured.counted.written_units > 0)
            .map(Measured::write_amplification)
            .fold(0.0, f64::max);
        let late = self
            .phases
            .iter()
            .map(Measured::lateness_us)
            .fold(0.0, f64::max);
        let slower = match self.dilation {
            1 => String::new(),
            dilation => format!(
                " It runs {dilation} times slower than its model: divide latencies by {dilation}, multiply rates by it."
            ),
        };
        format!(
            "The drive writes up to {amplification:.1} units for each one that it is given (garbage collection), and reported \
             99 % of all completions within {} of their time.{slower}",
            micros(late)
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, finding, drive) = (self.table().render(), self.finding(), self.drive());
        if let Some(machine) = self.machine {
            writeln!(f, "{machine}\n")?;
        }
        write!(f, "{table}\n{finding}\n{drive}\n")
    }
}

pub(super) fn micros(us: f64) -> String {
    match us {
        us if us >= 1_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}
