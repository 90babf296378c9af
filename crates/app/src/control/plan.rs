//! What a configuration file changes, as it is shown.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{Keys, Section};
use crate::units;

/// How a file is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct How {
    /// Only tell.
    pub plan: bool,
    /// Delete what the last file had and this one has no longer.
    pub prune: bool,
    /// Also what hurts hosts or loses data.
    pub yes: bool,
    /// Take pools and volumes over that are on devices already.
    #[serde(default)]
    pub import: bool,
    /// Also what promises more than a device can give.
    #[serde(default)]
    pub force: bool,
}

/// The answer to `apply`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedView {
    /// What the file changes, in the order in which it is done.
    pub changes: Vec<ObjectChange>,
    /// What stays although the file says otherwise, or says it no longer.
    pub notes: Vec<String>,
    /// What would hurt hosts or lose data, and needs `--yes`.
    pub risks: Vec<String>,
    /// Whether it was done; otherwise it is a plan.
    pub done: bool,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectChange {
    /// Its kind.
    pub kind: Section,
    /// Its name; empty for the target itself.
    pub name: String,
    /// What is done to it.
    pub verb: Verb,
    /// It was deleted by hand since the last file was applied.
    pub by_hand: bool,
    /// Its keys that change.
    pub keys: Vec<KeyChange>,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// It is made.
    Create,
    /// Keys of it change.
    Change,
    /// It goes.
    Delete,
}

/// A key that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyChange {
    /// With the table that it is in: `guarantee.read_iops`.
    pub key: String,
    /// What it says now; null if nothing.
    pub old: Option<Value>,
    /// What it is to say; null for its default.
    pub new: Option<Value>,
    /// It was changed by hand since the last file was applied.
    pub by_hand: bool,
}

/// What would hurt hosts or lose data: done only if somebody says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Risk {
    /// No host may connect to a tenant any more.
    NoHosts(String),
    /// A thing goes, and what is on it.
    Delete(Section, String),
}

impl KeyChange {
    /// All keys of something new.
    pub fn all_of(table: &Keys) -> Vec<Self> {
        let said = table.iter().filter(|(key, _)| *key != "name");
        let change = |(key, value): (&String, &Value)| Self {
            key: key.clone(),
            old: None,
            new: Some(value.clone()),
            by_hand: false,
        };
        said.map(change).collect()
    }
}

impl fmt::Display for ObjectChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Change => "change",
            Verb::Delete => "delete",
        };
        write!(f, "{verb} {}", self.kind.name())?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        if self.by_hand {
            f.write_str(" (deleted by hand since the last file was applied)")?;
        }
        for change in &self.keys {
            write!(f, "\n    {change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| units::shown(&self.key, value.as_ref());
        match &self.old {
            None if self.new.is_some() => write!(f, "{}: {}", self.key, show(&self.new))?,
            _ => write!(
                f,
                "{}: {} -> {}",
                self.key,
                show(&self.old),
                show(&self.new)
            )?,
        }
        if self.by_hand {
            f.write_str(" (changed by hand since the last file was applied)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHosts(tenant) => write!(
                f,
                "tenant {tenant} would have no hosts: none could connect to it any more"
            ),
            Self::Delete(section @ (Section::Volume | Section::Pool), name) => {
                write!(
                    f,
                    "{} {name} would be deleted with its data",
                    section.name()
                )
            }
            Self::Delete(section, name) => {
                write!(f, "{} {name} would be deleted", section.name())
            }
        }
    }
}
