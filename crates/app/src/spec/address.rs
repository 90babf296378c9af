//! Where somebody listens, as it is written: `127.0.0.1:4420`, `[::1]:4420` or `localhost:4420`. A
//! name is looked up when it is used, and kept as it was written.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long one of several addresses of a name is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest name of a host (RFC 1035, 2.3.4).
const NAME_MOST: usize = 253;

/// An address or the name of a host, with a port.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct Address(String);

/// What is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl Address {
    /// The port; 0 is any.
    pub fn port(&self) -> u16 {
        parts(&self.0).map_or(0, |(_, port)| port)
    }

    /// All that the name stands for now, each once. Waits for the answer of a name server.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in self.0.to_socket_addrs()? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        match found.is_empty() {
            true => Err(io::Error::other("the name has no address")),
            false => Ok(found),
        }
    }

    /// The one to connect to: of several the first at which somebody listens, else the first.
    pub fn reachable(&self) -> io::Result<SocketAddr> {
        let found = self.resolve()?;
        let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
        match found[..] {
            [only] => Ok(only),
            _ => Ok(*found.iter().find(listens).unwrap_or(&found[0])),
        }
    }
}

/// Host and port.
fn parts(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(port)?;
    Some((host, port.parse().ok()?))
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        (1..=63).contains(&label.len()) && label.chars().all(good) && !label.starts_with('-')
    };
    // All digits and dots would be an IPv4 address that is wrong.
    let digits = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    host.len() <= NAME_MOST && !digits && host.trim_end_matches('.').split('.').all(label)
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let good = text.parse::<SocketAddr>().is_ok()
            || parts(text).is_some_and(|(host, _)| is_name(host));
        match good {
            true => Ok(Self(text.to_owned())),
            false => Err(AddressError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;
    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.0
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an address with a port: write it like 127.0.0.1:4420, [::1]:4420 or localhost:4420",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_kept_as_written() {
        for (text, port) in [
            ("127.0.0.1:4420", 4420),
            ("[::1]:4420", 4420),
            ("[2001:db8::1]:0", 0),
            ("localhost:4420", 4420),
            ("target-1.storage_a.example.:8009", 8009),
            ("4b.example:1", 1),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(
                (address.port(), address.to_string()),
                (port, text.to_owned())
            );
            let json = serde_json::to_string(&address).expect("plain data");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Address>(&json).ok(), Some(address));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "localhost",
            "127.0.0.1",
            ":4420",
            "localhost:",
            "localhost:x",
            "localhost:+1",
            "localhost:65536",
            "127.0.0.256:4420",
            "1.2.3:4420",
            "::1:4420",
            "[::1]",
            "two words:1",
            "a..b:1",
            "-a:1",
            "http://localhost:4420",
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            let message = "is not an address with a port: write it like 127.0.0.1:4420";
            assert!(error.starts_with(&format!("`{text}` {message}")), "{error}");
        }
    }

    #[test]
    fn a_name_is_looked_up_when_it_is_used() {
        let local: Address = "localhost:4420".parse().expect("a name");
        let found = local.resolve().expect("every machine knows it");
        assert!(
            found
                .iter()
                .all(|it| it.ip().is_loopback() && it.port() == 4420),
            "{found:?}"
        );
        let nowhere: Address = "no-such-host.invalid:1".parse().expect("a name");
        nowhere.resolve().expect_err("RFC 6761 reserves it");
    }

    /// `localhost` has two addresses on many machines, and a target listens at one of them.
    #[test]
    fn of_several_addresses_the_one_that_answers_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let real = listener.local_addr().expect("it listens");
        let local: Address = format!("localhost:{}", real.port())
            .parse()
            .expect("a name");
        assert_eq!(local.reachable().expect("it is known"), real);
    }
}
