//! Which of the devices at hand are an array, and whether it may be used with them. Pure.
//!
//! The newest record rules: it lists who has everything. It is trusted for these reasons:
//!
//! - A record is durable on all active members before the next one is begun, and before any write
//!   is answered that a failed member has missed. So an active member is at most one record behind;
//!   one that is further behind is an old image, and is rebuilt. An opening begins a record too:
//!   before it does, those that are behind get the one that rules ([`Assembly::behind`]).
//! - Each opening and each failure begins an incarnation with a number drawn by chance. So members
//!   that were used apart have histories of which neither continues the other: refused.
//! - A record that lists a member as active, and which that member has gone on without, was never
//!   everywhere: nothing was answered under it. A member that has such a record from a power cut is
//!   what the record before it says, and was not used apart.
//! - Members that are not here may have gone on without those that are, if they have a copy of
//!   every set, or with parity as many columns as are needed. If so it takes somebody who knows
//!   better: `degraded`.

use super::error::ArrayError;
use super::geometry::Geometry;
use super::record::{Incarnation, Member, MemberState, Part, Record, Uuid, count};

/// A device that may be a member.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// What it is called, for people.
    pub(super) name: String,
    /// Its size in bytes.
    pub(super) bytes: u64,
    pub(super) block_size: u32,
    /// What it says of its array; or why it says nothing.
    pub(super) record: Result<Record, NoRecord>,
}

/// Why a device says nothing of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecord {
    /// It was never a member, or was erased.
    Absent,
    /// It holds a pool.
    Pool,
    /// Both copies are damaged: what is wrong with each.
    Damaged([String; 2]),
    /// A later program made it.
    Newer(u32),
    /// The device cannot be read.
    Unreadable(crate::IoError),
}

/// What a member lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Nothing, or it is not here.
    Nothing,
    /// What the region maps of the others say.
    Missed,
    /// It is not known what: all of it is copied.
    All,
}

/// An array that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assembly {
    /// The newest record that was found, which rules.
    pub(super) newest: Record,
    /// Members of it that a power cut kept it from: they get it before the next one is begun.
    pub(super) behind: Vec<usize>,
    /// The record to be made durable before the first I/O.
    pub(super) record: Record,
    /// For each member of the record the candidate that it is.
    pub(super) places: Vec<Option<usize>>,
    /// What each of them lacks.
    pub(super) lacks: Vec<Lack>,
    /// What people should know, one line each.
    pub(super) notes: Vec<String>,
}

/// Decides about the devices at hand, in any order. `expected`: the array that they should be;
/// `degraded`: no other members have gone on without these.
pub(super) fn assemble(
    candidates: &[Candidate],
    expected: Option<Uuid>,
    degraded: bool,
    chance: u64,
) -> Result<Assembly, ArrayError> {
    let mut notes = Vec::new();
    let known = members(candidates, expected, &mut notes)?;
    let known = in_force(&known);
    let newest = known
        .iter()
        .max_by_key(|(_, record)| record.generation)
        .ok_or_else(|| ArrayError::NoMember(notes.clone()))?;
    check_histories(candidates, &known, newest)?;
    let newest = &newest.1;
    let mut record = newest.next(chance);
    let listed = record.members.len();
    let (mut places, mut lacks) = (vec![None; listed], vec![Lack::Nothing; listed]);
    let mut behind = Vec::new();
    for (at, own) in &known {
        let Some(member) = newest.find(own.own) else {
            let name = &candidates[*at].name;
            notes.push(format!(
                "device {name} was a member once and is not any more: it is not used"
            ));
            continue;
        };
        if fits(&candidates[*at], newest, member, &mut notes) {
            places[member] = Some(*at);
            lacks[member] = lack(newest, member, own);
            if lacks[member] != Lack::All && is_older(&candidates[*at], newest) {
                behind.push(member);
            }
        }
    }
    check_copies(newest, &places, &lacks, degraded)?;
    for member in 0..listed {
        let state = newest.members[member].state;
        let name = &newest.members[member].label;
        let next = match (state, places[member], lacks[member]) {
            (MemberState::Spare, ..) | (MemberState::Active, Some(_), Lack::Nothing) => state,
            (_, None, _) => {
                notes.push(format!(
                    "member {name} was missing when the array was opened"
                ));
                MemberState::Failed
            }
            (_, Some(_), Lack::All) => {
                notes.push(format!("member {name} is old: all of it is copied anew"));
                MemberState::Rebuilding
            }
            (..) => MemberState::Rebuilding,
        };
        record.set_state(member, next);
        if let Some(at) = places[member] {
            record.members[member].label = super::record::label(&candidates[at].name);
        }
    }
    Ok(Assembly {
        newest: newest.clone(),
        behind,
        record,
        places,
        lacks,
        notes,
    })
}

/// The candidates that are members of one array, each with its record.
fn members<'a>(
    candidates: &'a [Candidate],
    expected: Option<Uuid>,
    notes: &mut Vec<String>,
) -> Result<Vec<(usize, &'a Record)>, ArrayError> {
    let mut known: Vec<(usize, &Record)> = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        let name = || candidate.name.clone();
        let record = match &candidate.record {
            Ok(record) => record,
            Err(NoRecord::Newer(version)) => return Err(ArrayError::Newer(name(), *version)),
            Err(why) => {
                notes.push(format!("device {}: {why}", candidate.name));
                continue;
            }
        };
        if expected.is_some_and(|expected| expected != record.array) {
            notes.push(format!(
                "device {} is a member of another array",
                candidate.name
            ));
            continue;
        }
        if let Some((first, _)) = known.iter().find(|(_, it)| it.array != record.array) {
            return Err(ArrayError::Foreign(candidates[*first].name.clone(), name()));
        }
        if let Some((first, _)) = known.iter().find(|(_, it)| it.own == record.own) {
            return Err(ArrayError::Twin(candidates[*first].name.clone(), name()));
        }
        known.push((at, record));
    }
    Ok(known)
}

/// The same without records that were never in force: of a member with one, what it was before.
/// It says little of that, but how old it is and what it continues.
fn in_force(known: &[(usize, &Record)]) -> Vec<(usize, Record)> {
    let in_force = |(at, record): &(usize, &Record)| {
        let mut record = (*record).clone();
        if known.iter().any(|(_, other)| was_never(&record, other)) {
            record.history.pop();
            record.generation -= 1;
        }
        (*at, record)
    };
    known.iter().map(in_force).collect()
}

/// Whether a record was never on a member that it lists as active: that has gone on from the record
/// before it.
fn was_never(record: &Record, other: &Record) -> bool {
    let listed = record.find(other.own);
    let is_active = listed.is_some_and(|at| record.members[at].state == MemberState::Active);
    let instead = |last: &Incarnation| {
        let mut history = other.history.iter();
        history.any(|it| it.generation == last.generation && it.chance != last.chance)
    };
    is_active && record.history.last().is_some_and(instead)
}

/// Refuses members that were used apart.
fn check_histories(
    candidates: &[Candidate],
    known: &[(usize, Record)],
    (newest_at, newest): &(usize, Record),
) -> Result<(), ArrayError> {
    for (at, record) in known {
        let last = record.history.last();
        let continued = last.is_some_and(|last| newest.history.contains(last));
        let same = record.generation < newest.generation || is_same(record, newest);
        if !(continued && same) {
            return Err(ArrayError::Diverged(
                candidates[*newest_at].name.clone(),
                candidates[*at].name.clone(),
            ));
        }
    }
    Ok(())
}

fn is_same(one: &Record, other: &Record) -> bool {
    let own = other.own;
    Record { own, ..one.clone() } == *other
}

/// Whether a device is what its member needs.
fn fits(candidate: &Candidate, newest: &Record, member: usize, notes: &mut Vec<String>) -> bool {
    let Geometry { block_size, .. } = newest.geometry;
    let needs = match newest.members[member].part {
        // It is looked at again before it is used.
        Part::Spare => 0,
        part @ (Part::Copy(_) | Part::Column { .. }) => newest.bytes_of(part),
    };
    let (name, bytes) = (&candidate.name, candidate.bytes);
    if bytes < needs {
        notes.push(format!(
            "device {name} has {bytes} bytes and its part of the array {needs}: it was cut short or exchanged"
        ));
    }
    if candidate.block_size != block_size {
        notes.push(format!(
            "device {name} has blocks of {} bytes and the array of {block_size}: set block_size = {block_size}",
            candidate.block_size
        ));
    }
    bytes >= needs && candidate.block_size == block_size
}

/// Whether the record on a device has a lower generation. One of the same generation that was never
/// in force stays there until the next: two copies of one generation that differ are damage.
fn is_older(candidate: &Candidate, newest: &Record) -> bool {
    let record = candidate.record.as_ref();
    record.is_ok_and(|it| it.generation < newest.generation)
}

/// What a member lacks that is here and says `own`.
fn lack(newest: &Record, member: usize, own: &Record) -> Lack {
    let (at, member) = (member, &newest.members[member]);
    let mut others = match member.part {
        Part::Copy(set) | Part::Column { set, .. } => newest
            .of_set(set as usize)
            .filter(|(it, _)| *it != at)
            .collect(),
        Part::Spare => Vec::new(),
    };
    others.retain(|(_, it)| it.state == MemberState::Active);
    let others = count(others.iter().map(|(_, it)| *it));
    if member.state == MemberState::Active && others < newest.needed() {
        // No other members can have later data of its set.
        return Lack::Nothing;
    }
    // A record is begun when the one before is everywhere.
    let knew = |generation: u64| own.generation.saturating_add(1) >= generation;
    match member.state {
        MemberState::Active if knew(newest.generation) => Lack::Nothing,
        MemberState::Failed if knew(member.since) => Lack::Missed,
        MemberState::Rebuilding if knew(newest.generation) => Lack::Missed,
        MemberState::Active | MemberState::Failed | MemberState::Rebuilding => Lack::All,
        MemberState::Spare => Lack::Nothing,
    }
}

/// Refuses what has no copy of a set, and what others may have gone on without.
fn check_copies(
    newest: &Record,
    places: &[Option<usize>],
    lacks: &[Lack],
    degraded: bool,
) -> Result<(), ArrayError> {
    let mut others_could = true;
    let mut missing = Vec::new();
    for set in 0..newest.geometry.sets() {
        let active = newest.of_set(set);
        let active = active.filter(|(_, member)| member.state == MemberState::Active);
        let (mut here, mut away) = (Vec::new(), Vec::new());
        for (at, member) in active {
            match (places[at], lacks[at]) {
                (Some(_), Lack::Nothing) => here.push(member),
                (Some(_), _) => {}
                (None, _) => away.push(member),
            }
        }
        if count(here.into_iter()) < newest.needed() {
            let (absent, old): (Vec<_>, Vec<_>) = newest
                .of_set(set)
                .partition(|(at, _)| places[*at].is_none());
            let labels = |members: Vec<(usize, &Member)>| {
                let labels = members.into_iter().map(|(_, member)| member.label.clone());
                labels.collect::<Vec<String>>()
            };
            return Err(match absent.is_empty() {
                // All are here, and too many of them are images of before.
                true => {
                    let old = old
                        .into_iter()
                        .filter(|(at, _)| lacks[*at] != Lack::Nothing);
                    ArrayError::AllOld(labels(old.collect()))
                }
                false => ArrayError::NoCopy(labels(absent)),
            });
        }
        others_could &= count(away.iter().copied()) >= newest.needed();
        missing.extend(away.iter().map(|member| member.label.clone()));
    }
    match others_could && !degraded {
        true => Err(ArrayError::MayBeOld(missing)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
