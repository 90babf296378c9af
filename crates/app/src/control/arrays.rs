//! What is asked of a device made of others, and what is shown of it.

use flashyard_block::array::{Failure, MemberStatus, Status};
use flashyard_block::pool::Scrub;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Request;
use crate::spec::{
    ArraySpec, Bandwidth, DeviceSpec, KeyText, PoolSpec, RebuildPriority, VolumeKind,
};

/// A device made of others, and what stands on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayOf {
    /// The device.
    pub device: DeviceSpec,
    /// A pool on it.
    #[serde(default)]
    pub pool: Option<PoolSpec>,
    /// Who gets the volumes of a pool that is imported.
    #[serde(default)]
    pub tenant: Option<String>,
}

/// How an array begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayHow {
    /// Even if a device holds something.
    pub force: bool,
    /// It is on its devices already.
    pub import: bool,
    /// No device that is missing was used without those that are there.
    pub degraded: bool,
}

impl Request {
    /// A pool on an array of its own, which is called like it.
    pub fn on_array(
        device: DeviceSpec,
        (kind, key): (Option<VolumeKind>, Option<KeyText>),
        tenant: Option<String>,
        how: ArrayHow,
    ) -> Self {
        let pool = Some(PoolSpec {
            name: device.name.clone(),
            devices: vec![device.name.clone()],
            kind,
            key,
            compression: None,
            chunk: None,
        });
        let of = Box::new(ArrayOf {
            device,
            pool,
            tenant,
        });
        Self::CreateArray { of, how }
    }

    /// Something to be done with the array under a pool.
    pub fn change_array(name: String, change: ArrayChange) -> Self {
        Self::ChangeArray { name, change }
    }
}

impl ArrayHow {
    /// A new one.
    pub fn made(force: bool) -> Self {
        Self {
            force,
            ..Self::default()
        }
    }

    /// One that is on its devices.
    pub fn found(degraded: bool) -> Self {
        Self {
            force: false,
            import: true,
            degraded,
        }
    }
}

/// What is to be done with an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayChange {
    /// Open it, with what stands on it.
    Start {
        /// No device that is missing was used without those that are there.
        degraded: bool,
    },
    /// Grow it by devices.
    Add {
        /// Which.
        devices: Vec<String>,
        /// Even if they hold something.
        force: bool,
    },
    /// Have devices ready for when another one fails.
    AddSpares {
        /// Which.
        devices: Vec<String>,
        /// Even if they hold something.
        force: bool,
    },
    /// Have another device take the place of one.
    Replace {
        /// The one that goes.
        old: String,
        /// The one that comes; the same if not given.
        new: Option<String>,
        /// Even if that holds something.
        force: bool,
    },
    /// Take a device away that is not needed.
    Remove {
        /// Which.
        device: String,
    },
    /// Say what a rebuild gets from now on; what is not given stays.
    SetRebuild(RebuildChange),
    /// Read everything, and repair what differs.
    Scrub {
        /// End that.
        stop: bool,
    },
}

/// What a rebuild gets from now on; what is not given stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildChange {
    /// What it is beside the I/O of tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<RebuildPriority>,
    /// Bytes a second that it writes to each device at most; zero for any rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bandwidth>,
}

impl RebuildChange {
    /// Makes the change.
    pub fn apply_to(self, array: &mut ArraySpec) {
        if let Some(priority) = self.priority {
            array.rebuild_priority = priority;
        }
        if let Some(limit) = self.limit {
            array.rebuild_limit = Some(limit).filter(|limit| limit.0 > 0);
        }
    }
}

/// An open array: its members, and what is done to them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ArrayView {
    /// The identity on its members.
    pub array_uuid: String,
    pub members: Vec<MemberRow>,
    /// How much of what is copied to members is there, of a hundred; nothing while there is nothing
    /// to copy.
    pub rebuild_percent: Option<f64>,
    /// How long the rest takes at the speed so far, in seconds.
    pub rebuild_left_seconds: Option<u64>,
    /// The scrub that runs, or the last one since the start.
    pub scrub: Option<ScrubView>,
    /// Safe reads that found copies different.
    pub mismatches: u64,
    /// Ranges of which no copy was known to be right.
    pub unresolved: u64,
    /// Bytes that a power cut now would have to be made equal in all copies.
    pub dirty_bytes: u64,
    /// What was noticed when it was opened.
    pub notes: Vec<String>,
}

/// A member of an array.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MemberRow {
    pub device: String,
    /// The mirror that it is a copy of, by number; nothing of a spare.
    pub set: Option<usize>,
    pub state: &'static str,
    pub read_errors: u64,
    pub wrong_reads: u64,
    pub healed: u64,
    pub copied_bytes: u64,
    /// Why it is not used, or that it goes.
    pub why: Option<String>,
}

/// A scrub.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ScrubView {
    /// `running` or `ended`.
    pub scrub_state: &'static str,
    pub percent: f64,
    pub repaired: u64,
    pub unresolved: u64,
}

impl ScrubView {
    /// One that runs, or the last one.
    pub fn new(running: bool, (done, of): (u64, u64), repaired: u64, unresolved: u64) -> Self {
        Self {
            scrub_state: if running { "running" } else { "ended" },
            percent: percent(done, of),
            repaired,
            unresolved,
        }
    }
}

impl From<Scrub> for ScrubView {
    fn from(scrub: Scrub) -> Self {
        let place = (scrub.done, scrub.of);
        Self::new(scrub.running, place, scrub.repaired, scrub.unresolved)
    }
}

fn percent(done: u64, of: u64) -> f64 {
    match of {
        0 => 100.0,
        of => (done as f64 / of as f64 * 1000.0).round() / 10.0,
    }
}

/// Bytes of a region, where members are smaller than 16 TiB.
const REGION: u64 = 1 << 20;

impl From<&Status> for ArrayView {
    fn from(status: &Status) -> Self {
        let rebuild = status.rebuild;
        let scrub = &status.scrub;
        Self {
            array_uuid: uuid::Uuid::from_bytes(status.uuid).to_string(),
            members: status.members.iter().map(MemberRow::from).collect(),
            rebuild_percent: rebuild.map(|it| percent(it.done, it.of)),
            rebuild_left_seconds: rebuild.and_then(|it| it.left).map(|it| it.as_ms() / 1000),
            scrub: (scrub.running || scrub.of > 0).then(|| {
                let place = (scrub.done, scrub.of);
                ScrubView::new(scrub.running, place, scrub.repaired, scrub.unresolved)
            }),
            mismatches: status.counts.mismatches,
            unresolved: status.counts.unresolved,
            dirty_bytes: status.dirty_regions as u64 * REGION,
            notes: status.notes.clone(),
        }
    }
}

impl From<&MemberStatus> for MemberRow {
    fn from(member: &MemberStatus) -> Self {
        let counts = member.counts;
        let failed = member.failure.map(|why| match why {
            Failure::Missing => "it was not there when the array was opened".to_owned(),
            Failure::Hung => "an I/O did not end in time".to_owned(),
            Failure::Error(error) => format!("an I/O failed: {error:?}"),
        });
        let leaving = member
            .leaving
            .then(|| "it goes when its successor has everything".to_owned());
        Self {
            device: member.name.clone(),
            set: member.set,
            state: member.state.name(),
            read_errors: counts.read_errors,
            wrong_reads: counts.wrong_reads,
            healed: counts.healed,
            copied_bytes: counts.copied_bytes,
            why: failed.or(leaving),
        }
    }
}
