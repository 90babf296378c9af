//! Where the target is that a command asks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::api::{Place, Remote, RemoteFiles};
use crate::cli::Reach;
use crate::failure::Invalid;

/// Where the state is when nobody says.
pub fn default_state() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    match (root, home) {
        (false, Some(home)) => home.join(".local/state/flashyard"),
        _ => PathBuf::from("/var/lib/flashyard"),
    }
}

/// Where the target is that somebody wants to ask.
pub fn place(reach: &Reach) -> Result<Place, Invalid> {
    let Some(url) = &reach.api else {
        let state = reach.state.clone().unwrap_or_else(default_state);
        return Ok(Place::State(state));
    };
    let files = RemoteFiles {
        ca: reach.api_ca.clone(),
        token: reach.api_token_file.clone(),
        own: reach
            .api_client_cert
            .clone()
            .zip(reach.api_client_key.clone()),
    };
    let remote = Remote::new(url, &files).map_err(Invalid::Place)?;
    Ok(Place::Remote(remote))
}
