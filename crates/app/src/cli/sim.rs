//! `flashyard sim`: what can be typed about lives of a target in virtual time.

use clap::Args;
use flashyard_lab::swarm::{Fault, UnknownFault};

use crate::options::{self, Seeds, within};

/// `flashyard sim`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard sim\n  flashyard sim --seeds 0..20000 --json\n  \
    flashyard sim --minutes 10 --faults network,power\n  flashyard sim --seed 4711\n\n\
    A life has hosts, tenants, devices and trouble as its seed decides. The exit status is 1 when anything was found."
)]
pub struct SimArgs {
    /// Live this one life
    #[arg(long, help_heading = "Lives", value_name = "N", conflicts_with_all = ["seeds", "minutes"])]
    pub seed: Option<u64>,
    /// Live these lives; B is not among them [default: 0..1000]
    #[arg(long, help_heading = "Lives", value_name = "A..B", value_parser = options::seeds)]
    pub seeds: Option<Seeds>,
    /// Kinds of trouble there may be, or `none`: network, disk, power, config, hostile, limits
    /// [default: all]
    #[arg(long, help_heading = "Lives", value_name = "LIST", value_parser = faults)]
    pub faults: Option<Faults>,
    /// End after this many minutes; without --seeds there is no other end
    #[arg(long, help_heading = "Lives", value_name = "N", value_parser = within::<u64>(1, 100_000))]
    pub minutes: Option<u64>,
    /// Lives at a time [default: as many as there are processors]
    #[arg(long, help_heading = "Lives", value_name = "N", value_parser = within::<u16>(1, 256))]
    pub jobs: Option<u16>,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Kinds of trouble.
pub type Faults = std::vec::Vec<Fault>;

/// The list of `--faults`.
fn faults(text: &str) -> Result<Faults, UnknownFault> {
    match text {
        "none" => Ok(Faults::new()),
        list => list.split(',').map(str::parse).collect(),
    }
}
