//! `flashyard events`.

use clap::Args;

use super::Reach;

/// `flashyard events`.
#[derive(Args, Debug)]
#[command(
    after_help = "The target keeps the last 1024 events of its present run. With --follow it goes on until Ctrl-C; a target that is\n\
        started again meanwhile is waited for. With --json each event is a line.\n\n\
        Examples:\n  flashyard events\n  flashyard events --follow\n  flashyard events --after 3-17 --json"
)]
pub struct EventsArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// Go on with what is still to come
    #[arg(short, long, help_heading = "What to show")]
    pub follow: bool,
    /// Only what came after this event
    #[arg(long, help_heading = "What to show", value_name = "ID")]
    pub after: Option<String>,
}
