//! Who has changed something, or was refused, as programs see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error_kind::ErrorKind;

/// Which records are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditAsk {
    /// At most so many in a part.
    pub limit: Option<usize>,
    /// Those after the one with this number.
    pub after: Option<u64>,
    /// Only so many, the newest.
    pub last: Option<usize>,
    /// Only of this user, token or certificate.
    pub who: Option<String>,
    /// Only from this moment on, in UTC.
    pub since: Option<String>,
}

/// One operation that was to change something, or that somebody may not ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Each one more than that before, over all runs of the target: one that is not there was lost.
    pub number: u64,
    /// When it had ended, in UTC.
    pub at: String,
    /// How whoever asked is known.
    pub by: Means,
    /// The name of the user or token, or the subject of the certificate.
    pub who: String,
    /// Of the user.
    pub uid: Option<u32>,
    /// The address that it was asked from, or what else it comes from.
    pub from: String,
    /// Method and path, as the list of operations has it, and the query.
    pub operation: String,
    /// What it was about.
    pub object: String,
    /// The body, shortened, and without what may be a secret.
    pub change: String,
    /// Why it was not done, by who has to act; null if it was.
    pub code: Option<ErrorKind>,
    /// The same in words.
    pub detail: String,
    pub duration_us: u64,
}

/// How somebody is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// A user of this machine, at the socket in the state directory.
    Socket,
    /// The holder of a token.
    Token,
    /// The holder of a certificate.
    Certificate,
    /// The target itself.
    Target,
    /// They are not known.
    Nobody,
}

impl Means {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Target => "target",
            Self::Nobody => "nobody",
        }
    }
}
