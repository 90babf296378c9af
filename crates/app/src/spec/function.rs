//! `[[function]]`: an NVMe PCIe controller that is offered to a virtual machine on a unix socket.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

use flashyard_vfio::Doorbells;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{SpecError, check_name};
use super::target::CORES_MOST;

/// Bytes of a socket's path at most. An address of a unix socket has 107, and the target keeps a
/// second, longer name of each socket beside it.
pub(super) const SOCKET_LEN_MAX: usize = 96;

/// A function of a tenant's subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// Unique among functions.
    pub name: String,
    /// Whose volumes it shows as namespaces; its weight, limits and guarantees hold.
    pub tenant: String,
    /// Path of its socket; `NAME.sock` in `socket_folder` of the target if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Permissions of its socket: who may write to it has the tenant's volumes; `0600` if not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<SocketMode>,
    /// Owner of its socket, a user name or number; who runs the target if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group of its socket, a name or number; that of who runs the target if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How a guest without shadow doorbells rings: by a message each, or in memory that a core
    /// looks at each millisecond while it sleeps. Holds for a function that is there from the next
    /// start on; `trapped` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doorbells: Option<DoorbellName>,
    /// How many cores serve its I/O queues, at most: for a guest whose volumes are on several
    /// cores. Commands for a volume of another core than their queue's are handed over, and their
    /// data copied once, so a guest with one volume gets less. Holds for a function that is there
    /// from the next start on; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
}

/// How a guest without shadow doorbells rings.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum DoorbellName {
    /// By a message of its virtual machine monitor, which wakes the core.
    #[default]
    Trapped,
    /// By a store to memory, which does not.
    Mapped,
}

impl DoorbellName {
    /// As functions know it.
    pub fn doorbells(self) -> Doorbells {
        match self {
            Self::Trapped => Doorbells::Trapped,
            Self::Mapped => Doorbells::Mapped,
        }
    }
}

/// Permissions of a socket, as `chmod` takes them: an octal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct SocketMode(pub u32);

/// What is wrong with a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionError {
    /// Not the path of a socket.
    Socket(String),
    /// A path of so many bytes.
    Long(String),
    /// An owner or group without a name.
    Nobody(&'static str),
    /// No number of cores.
    Cores,
}

/// Not the permissions of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeError(String);

impl FunctionSpec {
    /// Checks names and the path of the socket.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name("function", &self.name)?;
        let wrong = |error| Err(SpecError::Function(self.name.clone(), error));
        if let Some(socket) = &self.socket {
            let Some(Component::Normal(_)) = Path::new(socket).components().next_back() else {
                return wrong(FunctionError::Socket(socket.clone()));
            };
            if socket.ends_with('/') || socket.contains('\0') {
                return wrong(FunctionError::Socket(socket.clone()));
            }
            if socket.len() > SOCKET_LEN_MAX {
                return wrong(FunctionError::Long(socket.clone()));
            }
        }
        if self
            .cores
            .is_some_and(|cores| !(1..=CORES_MOST).contains(&cores))
        {
            return wrong(FunctionError::Cores);
        }
        for (key, name) in [("owner", &self.owner), ("group", &self.group)] {
            if name.as_ref().is_some_and(String::is_empty) {
                return wrong(FunctionError::Nobody(key));
            }
        }
        Ok(())
    }
}

impl SocketMode {
    /// Only the owner of the socket.
    pub const OWNER: Self = Self(0o600);
}

impl FromStr for SocketMode {
    type Err = ModeError;
    fn from_str(text: &str) -> Result<Self, ModeError> {
        let wrong = || ModeError(text.to_owned());
        let is_octal = text.len() <= 4 && text.chars().all(|digit| digit.is_digit(8));
        let mode = u32::from_str_radix(text, 8).map_err(|_| wrong())?;
        // Sockets are not executed, and a client writes.
        let good = is_octal && mode & !0o666 == 0 && mode & 0o600 == 0o600;
        good.then_some(Self(mode)).ok_or_else(wrong)
    }
}

impl TryFrom<String> for SocketMode {
    type Error = ModeError;
    fn try_from(text: String) -> Result<Self, ModeError> {
        text.parse()
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl From<SocketMode> for String {
    fn from(mode: SocketMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` are no permissions of a socket: write it like 0600 (its owner) or 0660 (its group, too)",
            self.0
        )
    }
}

impl std::error::Error for ModeError {}

impl FunctionError {
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Socket(_) | Self::Long(_) => "socket",
            Self::Nobody(key) => key,
            Self::Cores => "cores",
        }
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(
                f,
                "socket `{path}` is no path of a socket: write it like /run/flashyard/vm1.sock"
            ),
            Self::Long(path) => write!(
                f,
                "socket `{path}` has {} bytes, at most {SOCKET_LEN_MAX} are possible: choose a shorter folder or name",
                path.len()
            ),
            Self::Nobody(key) => {
                write!(f, "{key} is empty: give a name or number, or leave it out")
            }
            Self::Cores => write!(f, "cores: give a whole number, 1 to {CORES_MOST}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Config;

    #[test]
    fn permissions_are_read_as_chmod_has_them() {
        for (text, mode) in [("0600", 0o600), ("660", 0o660), ("0666", 0o666)] {
            assert_eq!(text.parse(), Ok(SocketMode(mode)), "{text}");
        }
        assert_eq!(SocketMode(0o660).to_string(), "0660");
        for wrong in [
            "",
            "0700",
            "0060",
            "600 ",
            "+600",
            "1600",
            "rw-rw----",
            "00600",
        ] {
            assert!(wrong.parse::<SocketMode>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_function_is_named_with_its_line() {
        let function = "[[tenant]]\nname = \"db\"\n[[function]]\nname = \"vm1\"\ntenant = \"db\"\n";
        Config::parse(function).expect("it is right");
        let long = format!("socket = \"/run/{}\"", "x".repeat(SOCKET_LEN_MAX));
        for (line, why) in [
            (
                "socket = \"/run/\"",
                "line 6: function `vm1`: socket `/run/` is no path",
            ),
            ("socket = \"..\"", "is no path of a socket"),
            (&long, "at most 96 are possible"),
            (
                "mode = \"0777\"",
                "line 6: function `vm1`: mode: `0777` are no permissions",
            ),
            ("mode = 600", "line 6: function `vm1`: mode is 600: give"),
            ("owner = \"\"", "line 6: function `vm1`: owner is empty"),
            ("cores = 0", "line 6: function `vm1`: cores: give a whole"),
            ("path = \"/x\"", "unknown field `path`"),
        ] {
            let error = Config::parse(&format!("{function}{line}\n")).expect_err(line);
            assert!(error.to_string().contains(why), "{line}: {error}");
        }
        let twice = format!("{function}[[function]]\nname = \"vm1\"\ntenant = \"db\"\n");
        let error = Config::parse(&twice).expect_err("twice").to_string();
        assert!(error.contains("function `vm1` is there twice"), "{error}");
        let one = format!("{function}socket = \"/run/a\"\n");
        let two =
            format!("{one}[[function]]\nname = \"vm2\"\ntenant = \"db\"\nsocket = \"/run/a\"\n");
        let error = Config::parse(&two).expect_err("one socket").to_string();
        assert!(error.contains("/run/a is there twice"), "{error}");
    }
}
