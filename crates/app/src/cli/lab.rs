//! `flashyard lab`: what can be typed about experiments.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::options::{self, whole};

/// `flashyard lab`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard lab list\n  flashyard lab run ssd-latency-curve --quick"
)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What can be done in the laboratory.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List all experiments, and what each one shows
    #[command(after_help = "Example:\n  flashyard lab list")]
    List {
        /// Print JSON
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Show an experiment: its claim, and what can be set
    #[command(after_help = "Example:\n  flashyard lab show ssd-validate")]
    Show {
        /// Its name
        name: String,
        /// Print JSON
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Run an experiment
    Run(LabRunArgs),
}

/// `flashyard lab run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  flashyard lab run ssd-validate\n  \
    flashyard lab run ssd-latency-curve --quick --json\n  \
    flashyard lab run ssd-interference --seeds 5 --plot ./plots\n  \
    flashyard lab run ssd-latency-curve --set profile=970pro --markdown curve.md\n\n\
    `flashyard lab show NAME` tells what can be set.\n\
    Ctrl-C ends a run early: what was measured until then is printed, and the exit status is 130.")]
pub struct LabRunArgs {
    /// Its name
    pub name: String,
    /// Compare these policies in the switch; may be repeated
    #[arg(
        long = "policy",
        help_heading = "Experiment",
        value_name = "P",
        value_delimiter = ','
    )]
    pub policies: Vec<String>,
    /// What all chance follows from [default: 1]
    #[arg(long, help_heading = "Experiment", value_name = "N", value_parser = whole::<u64>("device", "seed"))]
    pub seed: Option<u64>,
    /// Take means over this many seeds, with their 95 % confidence intervals [default: 1]
    #[arg(long, help_heading = "Experiment", value_name = "N")]
    pub seeds: Option<u32>,
    /// Small drives and short spans: to see whether it works, not what comes of it
    #[arg(long, help_heading = "Experiment")]
    pub quick: bool,
    /// Set something; may be repeated
    #[arg(long = "set", help_heading = "Experiment", value_name = "KEY=VALUE", value_parser = options::setting)]
    pub settings: Vec<(String, String)>,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write a page with charts, and each chart as SVG, into this directory
    #[arg(long, help_heading = "Output", value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Exit with status 1 when a row does not pass
    #[arg(long, help_heading = "Output")]
    pub check: bool,
}
