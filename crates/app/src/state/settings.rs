//! What was set of the target itself.

use super::{State, StateError, decode, encode};
use crate::spec::TargetSettings;

impl State {
    /// What was set so far.
    pub fn settings(&self) -> Result<TargetSettings, StateError> {
        let text: String = self
            .connection
            .query_row("SELECT settings FROM target", [], |row| row.get(0))?;
        decode(&text)
    }

    /// Remembers what is set from now on.
    pub fn put_settings(&mut self, settings: &TargetSettings) -> Result<(), StateError> {
        self.execute("UPDATE target SET settings = ?1", [encode(settings)])
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::state::opening;
    use crate::state::schema::SCHEMA;

    #[test]
    fn a_store_of_the_first_version_is_brought_up_to_date() {
        let mut connection = Connection::open_in_memory().expect("a store");
        connection.execute_batch(SCHEMA).expect("as it was");
        let rows = "
            INSERT INTO target (id, uuid) VALUES (0, x'00112233445566778899aabbccddeeff');
            PRAGMA user_version = 1;";
        connection.execute_batch(rows).expect("as it was");
        opening::bring_up_to_date(&mut connection, false).expect("it is brought up to date");
        let mut state = State::prepare(connection, None).expect("it is whole");
        assert_eq!(state.target_uuid().as_bytes()[1], 0x11);
        assert_eq!(
            state.settings().expect("readable"),
            TargetSettings::default()
        );
        let settings = TargetSettings {
            io_queues: Some(4),
            ..TargetSettings::default()
        };
        state.put_settings(&settings).expect("stored");
        assert_eq!(state.settings().expect("readable"), settings);
    }
}
