//! `flashyard generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `flashyard generate`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard generate man /usr/local/share/man/man1\n  flashyard generate completions bash\n  \
    flashyard generate alerts\n  flashyard generate grafana\n\n\
    `make install` does all of it."
)]
pub struct GenerateArgs {
    /// What to make.
    #[command(subcommand)]
    pub command: GenerateCommand,
}

/// What can be made.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Write a page for each command into a folder
    #[command(
        after_help = "Examples:\n  flashyard generate man /usr/local/share/man/man1\n  flashyard generate man ./man"
    )]
    Man {
        /// The folder; made if it is not there. Pages of these names are replaced
        folder: PathBuf,
    },
    /// Print what makes a shell complete commands and options
    #[command(after_help = "Put what is printed where the shell looks, such as\n\
        bash: /usr/share/bash-completion/completions/flashyard\n\
        zsh:  /usr/share/zsh/vendor-completions/_flashyard\n\
        fish: /usr/share/fish/vendor_completions.d/flashyard.fish\n\n\
        Example:\n  flashyard generate completions bash")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print alert rules for Prometheus
    #[command(
        after_help = "The job in Prometheus has to be called `flashyard`; see docs/monitoring.md.\n\n\
        Example:\n  flashyard generate alerts"
    )]
    Alerts,
    /// Print a dashboard for Grafana
    #[command(
        after_help = "Import what is printed, or have Grafana find it in a folder; see docs/monitoring.md.\n\n\
        Example:\n  flashyard generate grafana"
    )]
    Grafana,
}

/// A shell that completes what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}
