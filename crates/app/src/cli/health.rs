//! `flashyard health`.

use clap::{Args, Subcommand};

use super::Reach;
use crate::control::HealthCode;
use crate::units::LASTING;

/// `flashyard health`.
#[derive(Args, Debug)]
pub struct HealthArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do; without it, show what is wrong.
    #[command(subcommand)]
    pub command: Option<HealthCommand>,
}

/// What can be done about health.
#[derive(Debug, Subcommand)]
pub enum HealthCommand {
    /// Have a code not count for some time
    #[command(after_help = "Example:\n  flashyard health mute POOL_NEARLY_FULL --for 8h")]
    Mute {
        /// The code, as `flashyard health` shows it
        code: HealthCode,
        /// For how long
        #[arg(long = "for", help_heading = "Time", value_name = "TIME", default_value = "1h", value_parser = |text: &str| LASTING.parse(text))]
        seconds: u64,
    },
    /// Have a code count again
    #[command(after_help = "Example:\n  flashyard health unmute POOL_NEARLY_FULL")]
    Unmute {
        /// The code
        code: HealthCode,
    },
}
