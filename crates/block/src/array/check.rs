//! Verification of what is on a member, read-only.

use std::fmt;

use super::places::Start;
use super::record::{MemberState, Part, Record, SETS_VERSION, Uuid};
use crate::superblock::{self, COPY_NAMES, CopyReport, Repair, Unusable};
use crate::{Device, IoError, Verdict};

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The two copies of the superblock.
    pub copies: [CopyReport; 2],
    /// The array, where one copy is good.
    pub array: Option<Uuid>,
    /// Number of changes of its record so far.
    pub generation: u64,
    /// Each member of the array: its name, its set (nothing for a spare), how it is, and whether it
    /// is this one.
    pub members: Vec<(String, Option<u32>, MemberState, bool)>,
    /// What is repaired when the array is opened, one line each.
    pub repairs: Vec<String>,
    /// What is lost, or cannot be used, one line each.
    pub problems: Vec<String>,
}

/// Looks at both copies of the superblock of a member; nothing if the device is none.
///
/// Fails only when the device cannot be read at all.
pub async fn check(device: &dyn Device) -> Result<Option<MemberReport>, IoError> {
    let found = superblock::find::<Record, _>(&Start(device)).await?;
    let copies = found.copies.each_ref().map(CopyReport::from);
    let mut report = MemberReport {
        array: None,
        generation: 0,
        members: Vec::new(),
        repairs: superblock::repairs(&copies).into_iter().map(tell).collect(),
        problems: Vec::new(),
        copies,
    };
    match found.newest() {
        Ok(newest) => report.describe(device, &newest.content),
        Err(Unusable::Newer(version)) if version > SETS_VERSION => {
            let why = format!("a later version made it (layout {version}): use that version");
            report.problems.push(why);
        }
        // It is a pool, or holds nothing of ours that says what it was.
        Err(_) => return Ok(None),
    }
    Ok(Some(report))
}

impl MemberReport {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.repairs, &self.problems)
    }

    fn describe(&mut self, device: &dyn Device, record: &Record) {
        (self.array, self.generation) = (Some(record.array), record.generation);
        let members = record.members.iter().map(|member| {
            let set = match member.part {
                Part::Copy(set) | Part::Column { set, .. } => Some(set),
                Part::Spare => None,
            };
            let own = member.id == record.own;
            (member.label.clone(), set, member.state, own)
        });
        self.members = members.collect();
        let info = device.info();
        let bytes = info.blocks * u64::from(info.block_size);
        let part = record.find(record.own).map(|at| record.members[at].part);
        let needs = part.map_or(0, |part| record.bytes_of(part));
        if bytes < needs {
            self.problems.push(format!(
                "it has {bytes} bytes and its part of the array {needs}: it was cut short"
            ));
        }
        if info.block_size != record.geometry.block_size {
            self.problems.push(format!(
                "the array has blocks of {} bytes, the device of {}",
                record.geometry.block_size, info.block_size
            ));
        }
    }
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy is not usable: {why}; it is written anew when the array is opened"
        ),
        Repair::Older => {
            "one copy is older: a change was cut off; opening the array repairs it".into()
        }
    }
}

impl fmt::Display for MemberReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in COPY_NAMES.iter().zip(&self.copies) {
            writeln!(f, "{name} copy: {}", copy.state)?;
        }
        for (name, set, state, own) in &self.members {
            let own = if *own { ", which this is" } else { "" };
            match set {
                Some(set) => writeln!(f, "member {name} of set {set}: {}{own}", state.name())?,
                None => writeln!(f, "member {name}: {}{own}", state.name())?,
            }
        }
        for repair in &self.repairs {
            writeln!(f, "to be put right: {repair}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        self.verdict().fmt(f)
    }
}
