//! What is wrong with the target and does not count for some time, because a user said so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::applied::{document, put_document};
use super::{State, StateError};
use crate::control::HealthCode;

/// Until when each code is muted, in seconds since the beginning of 1970. By name: a code that only
/// a newer version knows keeps an older one from nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Muted(BTreeMap<String, u64>);

impl Muted {
    /// Until when a code is muted, if it is at `now`.
    pub fn until(&self, code: HealthCode, now: u64) -> Option<u64> {
        let until = self.0.get(&code.to_string()).copied();
        until.filter(|until| *until > now)
    }

    /// The same with a code muted until then, or no more, and without what has ended.
    pub fn with(&self, code: HealthCode, until: Option<u64>, now: u64) -> Self {
        let mut muted = self.0.clone();
        muted.retain(|_, until| *until > now);
        muted.remove(&code.to_string());
        muted.extend(until.map(|until| (code.to_string(), until)));
        Self(muted)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_newer_version_is_kept_until_it_has_ended() {
        let stored = r#"{"SOMETHING_NEW":20,"POOL_FULL":30}"#;
        let muted: Muted = serde_json::from_str(stored).unwrap();
        assert_eq!(muted.until(HealthCode::PoolFull, 10), Some(30));
        assert_eq!(muted.until(HealthCode::PoolFull, 30), None);
        let later = muted.with(HealthCode::PoolFull, None, 15);
        assert_eq!(
            serde_json::to_string(&later).unwrap(),
            r#"{"SOMETHING_NEW":20}"#
        );
        let later = later.with(HealthCode::ReadOnly, Some(50), 20);
        assert_eq!(
            serde_json::to_string(&later).unwrap(),
            r#"{"READ_ONLY":50}"#
        );
    }
}
