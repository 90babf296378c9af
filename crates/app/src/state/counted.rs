//! What is counted over restarts, for the SMART log: the life of the target, and what the hosts of
//! each tenant did.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::{State, StateError, decode, encode, pair, rows};

/// The life of the target since its store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Life {
    /// Starts.
    pub starts: u64,
    /// Runs that did not end in order: killed, or without power.
    pub cut: u64,
    /// Seconds that it ran.
    pub seconds: u64,
    /// It runs; or it did not end in order.
    pub running: bool,
}

/// What the hosts of a tenant did, since the tenant was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Read and Compare commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Other I/O commands.
    pub others: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// I/O commands that failed.
    pub errors: u64,
    /// Of these, by fault of the medium.
    pub media_errors: u64,
    /// Controllers lost without a shutdown.
    pub unsafe_shutdowns: u64,
}

impl Life {
    /// With one more start.
    pub fn started(self) -> Self {
        Self {
            starts: self.starts + 1,
            cut: self.cut + u64::from(self.running),
            running: true,
            ..self
        }
    }
}

impl State {
    /// Notes that the target runs; gives its life with this start.
    pub fn begin_run(&mut self) -> Result<Life, StateError> {
        let life = self.life()?.started();
        self.put_counted(&life, &BTreeMap::new())?;
        Ok(life)
    }

    /// The life of the target so far.
    pub fn life(&self) -> Result<Life, StateError> {
        let sql = "SELECT life FROM target";
        let life: String = self.connection.query_row(sql, [], |row| row.get(0))?;
        decode(&life)
    }

    /// What was counted for each tenant, by its number.
    pub fn counted(&mut self) -> Result<BTreeMap<u32, Counted>, StateError> {
        let transaction = self.connection.transaction()?;
        let sql = "SELECT tenant, counters FROM counted";
        rows::<(u32, String)>(&transaction, sql, pair)?
            .into_iter()
            .map(|(tenant, counters)| Ok((tenant, decode(&counters)?)))
            .collect()
    }

    /// Keeps what was counted; of a tenant that is not there any more, nothing.
    pub fn put_counted(
        &mut self,
        life: &Life,
        tenants: &BTreeMap<u32, Counted>,
    ) -> Result<(), StateError> {
        self.change(|transaction| {
            transaction.execute("UPDATE target SET life = ?1", [encode(life)])?;
            let mut put = transaction.prepare_cached(
                "INSERT INTO counted (tenant, counters) SELECT id, ?2 FROM tenant WHERE id = ?1
                 ON CONFLICT (tenant) DO UPDATE SET counters = ?2",
            )?;
            for (tenant, counters) in tenants {
                put.execute(params![tenant, encode(counters)])?;
            }
            Ok(())
        })
    }
}
