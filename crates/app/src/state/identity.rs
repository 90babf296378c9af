//! Changes of what things are called and whose they are, each in one transaction: killed in the
//! middle, the old or the new is there, and never both or none.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, Transaction, params};

use super::applied::rename_in_file;
use super::moving::{MoveRecord, MoveStage};
use super::{Kind, State, StateError, VolumeRecord, encode};
use crate::spec::{TenantSpec, VolumeKind, VolumeSpec};

impl State {
    /// Gives a volume to another tenant, under the number `nsid` or a free one.
    pub fn move_volume(
        &mut self,
        record: &VolumeRecord,
        tenant: &str,
        nsid: Option<u32>,
        most: u32,
    ) -> Result<VolumeRecord, StateError> {
        self.change(|transaction| {
            let moved = VolumeRecord {
                nsid: take_nsid(transaction, tenant, nsid, most)?,
                spec: VolumeSpec {
                    tenant: tenant.to_owned(),
                    ..record.spec.clone()
                },
                ..record.clone()
            };
            transaction.execute(
                "UPDATE volume SET spec = ?2, nsid = ?3 WHERE name = ?1",
                params![moved.spec.name, encode(&moved.spec), moved.nsid],
            )?;
            Ok(moved)
        })
    }

    /// Calls a volume otherwise.
    pub fn rename_volume(
        &mut self,
        record: &VolumeRecord,
        new: &str,
    ) -> Result<VolumeRecord, StateError> {
        let spec = VolumeSpec {
            name: new.to_owned(),
            ..record.spec.clone()
        };
        self.change(|transaction| {
            transaction.execute(
                "UPDATE volume SET name = ?2, spec = ?3 WHERE name = ?1",
                params![record.spec.name, new, encode(&spec)],
            )?;
            rename_in_file(transaction, Kind::Volume, &record.spec.name, new)
        })?;
        Ok(VolumeRecord {
            spec,
            ..record.clone()
        })
    }

    /// Remembers whether a volume refuses writes.
    pub fn set_volume_read_only(
        &mut self,
        record: &VolumeRecord,
        on: bool,
    ) -> Result<VolumeRecord, StateError> {
        let spec = VolumeSpec {
            read_only: on.then_some(true),
            ..record.spec.clone()
        };
        self.execute(
            "UPDATE volume SET spec = ?2 WHERE name = ?1",
            params![spec.name, encode(&spec)],
        )?;
        Ok(VolumeRecord {
            spec,
            ..record.clone()
        })
    }

    /// Puts `spec` in the place of tenant `name`, which is called otherwise from now on; its
    /// volumes and functions go with it.
    pub fn rename_tenant(&mut self, name: &str, spec: &TenantSpec) -> Result<(), StateError> {
        self.change(|transaction| {
            transaction.execute(
                "UPDATE tenant SET name = ?2, spec = ?3 WHERE name = ?1",
                params![name, spec.name, encode(spec)],
            )?;
            transaction.execute(
                "UPDATE volume SET spec = json_set(spec, '$.tenant', ?2)
                    WHERE json_extract(spec, '$.tenant') = ?1",
                params![name, spec.name],
            )?;
            transaction.execute(
                "UPDATE function SET spec = json_set(spec, '$.tenant', ?2)
                    WHERE json_extract(spec, '$.tenant') = ?1",
                params![name, spec.name],
            )?;
            rename_in_file(transaction, Kind::Tenant, name, &spec.name)
        })
    }
}

impl State {
    /// Notes how far the move of a volume is, or that there is none.
    pub fn note_move(
        &mut self,
        record: &VolumeRecord,
        moving: Option<MoveRecord>,
    ) -> Result<VolumeRecord, StateError> {
        self.execute(
            "UPDATE volume SET move = ?2 WHERE name = ?1",
            params![record.spec.name, moving.as_ref().map(encode)],
        )?;
        Ok(VolumeRecord {
            moving,
            ..record.clone()
        })
    }

    /// The volume is in the other pool from now on: the one change that decides which side counts.
    /// That keeps volumes of this kind.
    pub fn switch_move(
        &mut self,
        record: &VolumeRecord,
        kind: Option<VolumeKind>,
    ) -> Result<VolumeRecord, StateError> {
        let Some(moving) = &record.moving else {
            return Ok(record.clone());
        };
        // A raw pool keeps data as they are.
        let of_mapped = kind.is_some();
        let kept = moving.form.unwrap_or_default().applied_to(&record.spec);
        let spec = VolumeSpec {
            pool: Some(moving.pool.clone()),
            kind,
            compression: kept.compression.filter(|_| of_mapped),
            chunk: kept.chunk.filter(|_| of_mapped),
            reserve: record.spec.reserve.filter(|_| of_mapped),
            device: None,
            // What became of old content of a whole device is past.
            content: record.spec.content.filter(|_| record.spec.pool.is_some()),
            ..record.spec.clone()
        };
        let left = MoveRecord {
            pool: record.place().to_owned(),
            whole: record.spec.pool.is_none(),
            stage: MoveStage::Leaving,
            copied_bytes: 0,
            ..moving.clone()
        };
        self.execute(
            "UPDATE volume SET spec = ?2, move = ?3 WHERE name = ?1",
            params![spec.name, encode(&spec), encode(&left)],
        )?;
        Ok(VolumeRecord {
            spec,
            moving: Some(left),
            ..record.clone()
        })
    }
}

/// Takes a namespace number: `wanted`, or the first free one behind the one given last, so that a
/// number is used again as late as possible.
pub(super) fn take_nsid(
    transaction: &Transaction<'_>,
    tenant: &str,
    wanted: Option<u32>,
    most: u32,
) -> Result<u32, StateError> {
    let next: Option<u32> = transaction
        .query_row(
            "SELECT nsid_next FROM tenant WHERE name = ?1",
            [tenant],
            |row| row.get(0),
        )
        .optional()?;
    let next = next.ok_or_else(|| StateError::Damaged(format!("no tenant `{tenant}`")))?;
    let mut used =
        transaction.prepare("SELECT nsid FROM volume WHERE json_extract(spec, '$.tenant') = ?1")?;
    let used = used
        .query_map([tenant], |row| row.get(0))?
        .collect::<Result<BTreeSet<u32>, _>>()?;
    let (nsid, next) = match wanted {
        Some(nsid) if nsid > most => return Err(StateError::NumberTooGreat { nsid, most }),
        Some(nsid) if used.contains(&nsid) => {
            let tenant = tenant.to_owned();
            return Err(StateError::NumberTaken { tenant, nsid });
        }
        Some(nsid) => (nsid, next.max(nsid.saturating_add(1))),
        None => {
            let free = (next..=most)
                .chain(1..next.min(most.saturating_add(1)))
                .find(|nsid| !used.contains(nsid))
                .ok_or_else(|| StateError::NoNumber(tenant.to_owned()))?;
            (free, free.saturating_add(1))
        }
    };
    transaction.execute(
        "UPDATE tenant SET nsid_next = ?2 WHERE name = ?1",
        params![tenant, next],
    )?;
    Ok(nsid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::decode;

    /// Volumes of a tenant.
    const MOST: u32 = 4;

    fn tenant(name: &str) -> TenantSpec {
        decode(&format!("{{\"name\":\"{name}\",\"hosts\":[\"*\"]}}")).expect("a tenant")
    }

    fn volume(name: &str, tenant: &str) -> VolumeSpec {
        let text = format!(
            "{{\"name\":\"{name}\",\"pool\":\"fast\",\"size\":1048576,\"tenant\":\"{tenant}\"}}"
        );
        decode(&text).expect("a volume, as the first version stored it")
    }

    #[test]
    fn a_volume_has_the_uuid_and_number_that_it_asks_for() {
        let mut state = State::in_memory().expect("a store");
        for name in ["db", "lab"] {
            state.put_tenant(&tenant(name)).expect("stored");
        }
        let uuid = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11";
        let asks = |name: &str, nsid| VolumeSpec {
            uuid: Some(uuid.parse().expect("good")),
            nsid: Some(nsid),
            ..volume(name, "db")
        };
        let record = state.add_volume(&asks("a", 3), MOST).expect("stored");
        assert_eq!((record.nsid, record.uuid.to_string()), (3, uuid.to_owned()));
        assert_eq!(state.inventory().expect("readable").volumes["a"], record);
        for (nsid, why) in [
            (3, "another volume of tenant `db` has nsid 3"),
            (5, "1 to 4"),
        ] {
            let refused = state.add_volume(&asks("b", nsid), MOST).expect_err(why);
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let next = state.add_volume(&volume("b", "db"), MOST).expect("stored");
        assert_eq!(next.nsid, 4, "a number is used again as late as possible");

        let refused = state.move_volume(&record, "lab", Some(5), MOST);
        assert!(matches!(refused, Err(StateError::NumberTooGreat { .. })));
        let moved = state
            .move_volume(&record, "lab", None, MOST)
            .expect("stored");
        assert_eq!((moved.nsid, moved.uuid), (1, record.uuid));
        assert_eq!(state.inventory().expect("readable").volumes["a"], moved);
        let back = state.move_volume(&moved, "db", Some(4), MOST);
        assert!(matches!(back, Err(StateError::NumberTaken { .. })));
        assert_eq!(state.inventory().expect("readable").volumes["a"], moved);
    }

    #[test]
    fn what_is_renamed_is_there_once() {
        let mut state = State::in_memory().expect("a store");
        let before = state.put_tenant(&tenant("db")).expect("stored");
        let record = state.add_volume(&volume("a", "db"), MOST).expect("stored");
        state.add_volume(&volume("b", "db"), MOST).expect("stored");
        assert!(state.rename_volume(&record, "b").is_err());
        let renamed = state.rename_volume(&record, "c").expect("stored");
        assert_eq!((renamed.uuid, renamed.nsid), (record.uuid, record.nsid));
        let renamed = state.set_volume_read_only(&renamed, true).expect("stored");
        state.rename_tenant("db", &tenant("shop")).expect("stored");
        let after = state.inventory().expect("readable");
        assert_eq!(after.tenants["shop"].id, before.id);
        let volumes = after.volumes.iter();
        let names: Vec<_> = volumes
            .map(|(name, it)| (&**name, &*it.spec.tenant))
            .collect();
        assert_eq!(names, [("b", "shop"), ("c", "shop")]);
        assert_eq!(after.volumes["c"].uuid, record.uuid);
        assert_eq!(after.volumes["c"].spec.read_only, renamed.spec.read_only);
    }
}
