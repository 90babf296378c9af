//! What can be known of a start before it, while the target before still serves: for `serve
//! --check`, and for `serve --take-over`, which has that one end only then.

use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

use crate::api::Tcp;
use crate::cli::ServeArgs;
use crate::failure::{Failure, Invalid, Unavailable};
use crate::json;
use crate::listening::Listening;
use crate::out::say_line;
use crate::serve::api_files;
use crate::service::{Service, is_absent};
use crate::spec::{Address, Document};
use crate::state::State;
use crate::takeover::TakeoverError;

/// What is known of a start.
#[derive(Debug, Serialize)]
pub struct Preflight {
    /// Where it would listen, as it is written.
    listen: Vec<Address>,
}

impl Preflight {
    /// Refuses what a start would refuse of the state and of what the file says of the target.
    pub fn new(
        file: Option<&Document>,
        args: &ServeArgs,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let state = State::rehearse(directory)?;
        let settings = match file {
            Some(file) => Service::settings_at_start(&state, file)?,
            None => state.settings()?,
        };
        let set = settings.effective().listen.unwrap_or_default();
        if let Some((address, files)) = api_files(args) {
            Tcp::check(address, files).map_err(Invalid::Api)?;
        }
        let listen = if args.listen.is_empty() {
            set
        } else {
            args.listen.clone()
        };
        Ok(Self { listen })
    }

    /// Tells whoever asked.
    pub fn tell(&self, as_json: bool) {
        if as_json {
            say_line!("{}", json::text("", self));
            return;
        }
        let listen: Vec<String> = self.listen.iter().map(Address::to_string).collect();
        say_line!(
            "a start would use this state and listen on {}",
            listen.join(", ")
        );
    }

    /// Has a socket for each address, those that were given among them.
    pub fn reserve(&self, listening: &Listening) -> Result<(), Failure> {
        for written in &self.listen {
            let unknown = |error| Unavailable::Unknown(written.clone(), error);
            let asked = written.resolve().map_err(unknown)?;
            let several = asked.len() > 1;
            for asked in asked {
                reserve(asked, several, listening)?;
            }
        }
        Ok(())
    }
}

/// Of a name that stands for several addresses this machine may not have each.
fn reserve(asked: SocketAddr, several: bool, listening: &Listening) -> Result<(), TakeoverError> {
    match listening.reserve(asked) {
        Err(error) if !(several && is_absent(&error)) => Err(TakeoverError::Address(asked, error)),
        _ => Ok(()),
    }
}
