//! Who plays in the demonstration, and what each does.

use std::net::SocketAddr;

use clap::Parser;

use crate::perf::PerfArgs;
use crate::spec::TargetSettings;

/// A tenant of the demonstration and what it does.
pub(super) struct Player {
    pub(super) tenant: &'static str,
    pub(super) class: &'static str,
    pub(super) does: &'static str,
    /// The same in options of `flashyard perf`.
    pub(super) load: &'static [&'static str],
}

/// The places of these in [`PLAYERS`].
pub(super) const READER: usize = 0;
/// See [`READER`].
pub(super) const WRITER: usize = 2;

pub(super) const PLAYERS: [Player; 3] = [
    Player {
        tenant: "db",
        class: "latency",
        does: "4 KiB reads, one at a time",
        load: &[
            "--rw", "randread", "--bs", "4KiB", "--qd", "1", "--class", "latency",
        ],
    },
    Player {
        tenant: "analytics",
        class: "throughput",
        does: "128 KiB reads, 8 in flight",
        load: &[
            "--rw",
            "read",
            "--bs",
            "128KiB",
            "--qd",
            "8",
            "--class",
            "throughput",
        ],
    },
    Player {
        tenant: "backup",
        class: "background",
        does: "4 KiB writes, 32 in flight",
        load: &[
            "--rw",
            "randwrite",
            "--bs",
            "4KiB",
            "--qd",
            "32",
            "--class",
            "background",
        ],
    },
];

#[derive(Parser)]
struct PerfLine {
    #[command(flatten)]
    args: PerfArgs,
}

impl Player {
    /// The same as typing `flashyard perf` with these options. With the same seed as before a
    /// writer would write the same blocks again, which is cheap for a drive.
    pub(super) fn measurement(
        &self,
        address: SocketAddr,
        seconds: f64,
        warm_up: f64,
        seed: usize,
    ) -> Result<PerfArgs, clap::Error> {
        let subnqn = format!("{}:{}", TargetSettings::default().prefix(), self.tenant);
        let (address, seconds, seed) = (address.to_string(), seconds.to_string(), seed.to_string());
        let fixed = [
            "perf",
            "--json",
            "--connect",
            &address,
            "--subnqn",
            &subnqn,
            "--seconds",
            &seconds,
            "--seed",
            &seed,
        ];
        let warm_up = warm_up.to_string();
        let warmup = ["--warmup", warm_up.as_str()];
        let line = PerfLine::try_parse_from(fixed.iter().chain(&warmup).chain(self.load));
        line.map(|line| line.args)
    }
}
