//! What every command has that talks to a running target.

use std::path::PathBuf;

use clap::Args;

/// How to reach the running target.
#[derive(Args, Clone, Debug)]
pub struct Reach {
    /// State directory of the target, where the socket of its API is
    /// [default: /var/lib/flashyard as root, else ~/.local/state/flashyard]
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "DIR",
        env = "FLASHYARD_STATE",
        verbatim_doc_comment
    )]
    pub state: Option<PathBuf>,
    /// Print JSON
    #[arg(long, help_heading = "Output", global = true)]
    pub json: bool,
}
