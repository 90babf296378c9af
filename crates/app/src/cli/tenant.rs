//! `flashyard tenant`: what can be typed about tenants.

use clap::{Args, Subcommand};
use flashyard_time::Duration;

use super::reach::Reach;
use crate::options::whole;
use crate::spec::{ClassName, RatesSpec, Size, Span, ValueError};
use crate::units::UnitError;

/// `flashyard tenant`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard tenant create db --host '*' --class latency\n  flashyard tenant list"
)]
pub struct TenantArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: TenantCommand,
}

/// What a tenant is owed of each of its devices, and the most that it gets.
#[derive(Args, Clone, Debug)]
pub struct OwedArgs {
    /// What it gets whatever the others do, such as `read_iops=20000,write_bandwidth=50MB/s`, or
    /// `none`
    #[arg(long, help_heading = "Sharing", value_name = "RATES", value_parser = parse_rates)]
    pub guarantee: Option<RatesSpec>,
    /// What it never gets more of, or `none`
    #[arg(long, help_heading = "Sharing", value_name = "RATES", value_parser = parse_rates)]
    pub limit: Option<RatesSpec>,
    /// What 99 of 100 of its latency-sensitive I/Os should stay under, such as `500us`, or `none`
    #[arg(long, help_heading = "Sharing", value_name = "SPAN", value_parser = parse_target)]
    pub latency_target: Option<Span>,
    /// What its volumes and their snapshots may take of a mapped pool, such as `safe=100GiB`, or
    /// `safe=none`; may be repeated
    #[arg(long, help_heading = "Sharing", value_name = "POOL=SIZE", value_parser = parse_quota)]
    pub quota: Vec<(String, Size)>,
    /// Take a guarantee that a device cannot give, or that its policy does not keep
    #[arg(long, help_heading = "Sharing")]
    pub force: bool,
}

fn parse_rates(text: &str) -> Result<RatesSpec, ValueError> {
    match text {
        "none" => Ok(RatesSpec::default()),
        rates => rates.parse(),
    }
}

fn parse_quota(text: &str) -> Result<(String, Size), ValueError> {
    let (pool, size) = text
        .split_once('=')
        .ok_or_else(|| ValueError::Quota(text.to_owned()))?;
    let size = match size {
        "none" => Size(0),
        size => size
            .parse()
            .map_err(|error| ValueError::In(pool.to_owned(), error))?,
    };
    Ok((pool.to_owned(), size))
}

fn parse_target(text: &str) -> Result<Span, UnitError> {
    match text {
        "none" => Ok(Span(Duration::ZERO)),
        span => span.parse(),
    }
}

/// What can be done with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// List all tenants
    #[command(after_help = "Example:\n  flashyard tenant list")]
    List,
    /// Show one tenant
    #[command(after_help = "Example:\n  flashyard tenant show db")]
    Show {
        /// Its name
        name: String,
    },
    /// Create a tenant
    #[command(
        after_help = "Examples:\n  flashyard tenant create db --host nqn.2014-08.org.nvmexpress:uuid:…\n  \
        flashyard tenant create lab --host '*' --weight 2 --guarantee read_iops=20000 --limit bandwidth=1GB/s\n  \
        flashyard tenant create shop --host '*' --nqn nqn.2014-08.org.example:shop --serial S3EVNX0J800042\n\n\
        NQN, serial and model number are fixed from now on: hosts know the subsystem by them."
    )]
    Create {
        /// Name: letters, digits, `-`, `_`, `.`
        name: String,
        /// NQN of its subsystem [default: PREFIX:NAME, with nqn_prefix of the configuration file]
        #[arg(long, help_heading = "Identity")]
        nqn: Option<String>,
        /// Serial number of its subsystem, up to 20 characters [default: made of the target's
        /// identity and the NQN]
        #[arg(long, help_heading = "Identity")]
        serial: Option<String>,
        /// Model number of its subsystem, up to 40 characters [default: Flashyard]
        #[arg(long, help_heading = "Identity")]
        model: Option<String>,
        /// Host NQN that may connect, or `*`; may be repeated
        #[arg(long = "host", help_heading = "Access", value_name = "NQN")]
        hosts: Vec<String>,
        /// What its I/O wants, and the best that its hosts may ask for
        #[arg(long, help_heading = "Sharing", default_value = "throughput")]
        class: ClassName,
        /// Its share when there is not enough for all
        #[arg(long, help_heading = "Sharing", default_value_t = 1, value_parser = whole::<u32>("tenant", "weight"))]
        weight: u32,
        /// What it is owed.
        #[command(flatten)]
        owed: OwedArgs,
    },
    /// Change a tenant; what is not given stays as it is
    #[command(
        after_help = "Examples:\n  flashyard tenant set db --host nqn.… --host nqn.…\n  \
        flashyard tenant set db --latency-target 500us --limit none\n  \
        flashyard tenant set db --quota safe=100GiB"
    )]
    Set {
        /// Its name
        name: String,
        /// The hosts that may connect from now on, or `*`; may be repeated
        #[arg(long = "host", help_heading = "Access", value_name = "NQN")]
        hosts: Vec<String>,
        /// What its I/O wants, and the best that its hosts may ask for
        #[arg(long, help_heading = "Sharing")]
        class: Option<ClassName>,
        /// Its share when there is not enough for all
        #[arg(long, help_heading = "Sharing", value_parser = whole::<u32>("tenant", "weight"))]
        weight: Option<u32>,
        /// What it is owed.
        #[command(flatten)]
        owed: OwedArgs,
    },
    /// Call a tenant otherwise; its subsystem keeps its NQN, so hosts notice nothing
    #[command(after_help = "Example:\n  flashyard tenant rename db shop\n\n\
        A configuration file that still has the old name would make a new tenant of it: change the file as well.")]
    Rename {
        /// Its name
        name: String,
        /// What it is called from now on
        new: String,
    },
    /// Delete a tenant without volumes
    #[command(after_help = "Example:\n  flashyard tenant delete db")]
    Delete {
        /// Its name
        name: String,
    },
}
