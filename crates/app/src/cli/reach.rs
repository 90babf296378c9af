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
    /// Address of a target elsewhere, such as https://storage.example:4421; goes before --state
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "URL",
        env = "FLASHYARD_API"
    )]
    pub api: Option<String>,
    /// Who has signed the certificate of --api, in PEM form; else those whom this machine trusts
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "FILE",
        env = "FLASHYARD_API_CA"
    )]
    pub api_ca: Option<PathBuf>,
    /// File with a token for --api, which only its owner may read
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "FILE",
        env = "FLASHYARD_API_TOKEN_FILE"
    )]
    pub api_token_file: Option<PathBuf>,
    /// Certificate for --api, with --api-client-key
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "FILE",
        requires = "api_client_key",
        env = "FLASHYARD_API_CLIENT_CERT"
    )]
    pub api_client_cert: Option<PathBuf>,
    /// Private key of --api-client-cert, which only its owner may read
    #[arg(
        long,
        help_heading = "Running target",
        global = true,
        value_name = "FILE",
        requires = "api_client_cert",
        env = "FLASHYARD_API_CLIENT_KEY"
    )]
    pub api_client_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long, help_heading = "Output", global = true)]
    pub json: bool,
}
