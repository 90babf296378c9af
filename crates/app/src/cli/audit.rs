//! `flashyard audit`.

use clap::Args;

use super::Reach;
use crate::options::{moment, within};

/// `flashyard audit`.
#[derive(Args, Debug)]
#[command(
    after_help = "The target keeps some 80 MiB of records, over its runs. Without --limit and --since the last 100 are shown. With\n\
        --follow it goes on until Ctrl-C. With --json each record is a line. A number that is missing is a record that was lost.\n\n\
        Examples:\n  flashyard audit\n  flashyard audit --who root --since 8h\n  flashyard audit --limit 20 --follow --json"
)]
pub struct AuditArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// At most so many, the newest
    #[arg(long, help_heading = "What to show", value_name = "N", value_parser = within::<usize>(1, 1000))]
    pub limit: Option<usize>,
    /// Only of this user, token or certificate
    #[arg(long, help_heading = "What to show", value_name = "NAME")]
    pub who: Option<String>,
    /// Only from this moment on, in UTC, such as 2026-11-23 or 2026-11-23T19:20:01Z, or so long
    /// ago, such as 8h
    #[arg(long, help_heading = "What to show", value_name = "TIME", value_parser = moment)]
    pub since: Option<String>,
    /// Go on with what is still to come
    #[arg(short, long, help_heading = "What to show")]
    pub follow: bool,
}
