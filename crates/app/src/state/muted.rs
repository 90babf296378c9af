//! What is wrong with the target and does not count for some time, because a user said so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::applied::{document, put_document};
use super::{State, StateError};
use crate::control::HealthCode;

/// Until when, in seconds since the beginning of 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Muted(pub BTreeMap<HealthCode, u64>);

impl State {
    /// What was muted, and may have come back since.
    pub fn muted(&self) -> Result<Muted, StateError> {
        Ok(document(&self.connection, "muted")?.unwrap_or_default())
    }

    /// Remembers what is muted from now on.
    pub fn put_muted(&mut self, muted: &Muted) -> Result<(), StateError> {
        self.change(|transaction| put_document(transaction, "muted", muted))
    }
}
