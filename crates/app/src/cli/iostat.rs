//! `flashyard iostat`.

use clap::Args;

use super::Reach;
use crate::iostat::By;
use crate::options::interval;

/// `flashyard iostat`.
#[derive(Args, Debug)]
#[command(
    after_help = "The first line is since the target started, each further one since the one before. Times are those at the device:\n\
        waiting for a turn, and served; what the network and the host take is not in them. p99 is right to a quarter.\n\
        A target that is started again meanwhile is waited for. Ctrl-C ends it.\n\n\
        Examples:\n  flashyard iostat\n  flashyard iostat --by volume 1\n  flashyard iostat --by device --latency 5 12\n  \
        flashyard iostat -H 10\n  flashyard iostat --histogram --json"
)]
pub struct IostatArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What a row is about
    #[arg(long, help_heading = "What to show", value_enum, default_value_t = By::Tenant)]
    pub by: By,
    /// Show also how long I/O waited for its turn, and how long it was served
    #[arg(long, help_heading = "What to show")]
    pub latency: bool,
    /// Show also how many took how long
    #[arg(long, help_heading = "What to show")]
    pub histogram: bool,
    /// For scripts: no header, tabs between columns, and exact numbers: I/Os and bytes per second,
    /// and microseconds
    #[arg(short = 'H', long, help_heading = "Output", conflicts_with_all = ["json", "histogram"])]
    pub script: bool,
    /// Seconds between lines; without it there is one line
    #[arg(value_parser = interval)]
    pub interval: Option<f64>,
    /// How many lines; without it, until Ctrl-C
    #[arg(value_parser = crate::options::within::<u64>(1, u64::MAX))]
    pub count: Option<u64>,
}
