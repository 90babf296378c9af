//! What a user says of a `crypt` device: what it stands before, and where the secret is that opens
//! it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use flashyard_keys::{KeySource, SourceSyntax};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::namespace_uuid::NamespaceUuid;

/// A layer that encrypts a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CryptSpec {
    /// The device that it stands before.
    pub device: String,
    /// Where its key or passphrase is.
    pub key: KeyText,
    /// Which encrypted device it is; noted when it is created, if not given.
    pub uuid: Option<NamespaceUuid>,
}

/// Where a secret is, in one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct KeyText(pub KeySource);

impl KeyText {
    /// The same, where a path of a file is meant from `folder`.
    #[must_use]
    pub fn within(self, folder: &Path) -> Self {
        Self(self.0.within(folder))
    }
}

impl FromStr for KeyText {
    type Err = SourceSyntax;
    fn from_str(text: &str) -> Result<Self, SourceSyntax> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for KeyText {
    type Error = SourceSyntax;
    fn try_from(text: String) -> Result<Self, SourceSyntax> {
        text.parse()
    }
}

impl From<KeyText> for String {
    fn from(text: KeyText) -> Self {
        text.to_string()
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
