//! `flashyard generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `flashyard generate`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  flashyard generate man /usr/local/share/man/man1\n  flashyard generate completions bash\n\n\
    `make install` does both."
)]
pub struct GenerateArgs {
    /// What to make.
    #[command(subcommand)]
    pub command: GenerateCommand,
}

/// What can be made of the commands.
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
