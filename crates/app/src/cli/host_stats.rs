//! `flashyard host-stats`.

use std::path::PathBuf;

use clap::Args;

/// `flashyard host-stats`.
#[derive(Args, Debug)]
#[command(
    after_help = "On a host that is connected, nvme-cli reads the log of a controller, or with --namespace-id that of a namespace:\n  \
        nvme get-log /dev/nvme0 --log-id=0xd0 --log-len=4096 --raw-binary | flashyard host-stats\n\n\
        Counts begin when a volume begins to be served. Times are those at the target: waiting for a turn, and served; what\n\
        the network and the host take is not in them. Percentiles are right to a half. docs/monitoring.md has the layout.\n\n\
        Examples:\n  flashyard host-stats log.bin\n  flashyard host-stats --histogram log.bin\n  flashyard host-stats --json -"
)]
pub struct HostStatsArgs {
    /// Show also how many took how long
    #[arg(long, help_heading = "What to show")]
    pub histogram: bool,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// A file with the log, as binary; `-` is standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
}
