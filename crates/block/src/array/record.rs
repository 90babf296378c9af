//! What every member knows of its array: the content of its superblock, in the frame of
//! [`crate::superblock`], little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 20 | the frame, with the magic of a pool and a version of its own |
//! | 20 | 4 | block size in bytes |
//! | 24 | 8 | generation |
//! | 32 | 16 | UUID of the array |
//! | 48 | 16 | identity of this member |
//! | 64 | 4 | copies that a set is to have |
//! | 68 | 4 | 1 if reads compare all copies, else 0; with parity, 256 for each of its columns |
//! | 72 | 4 | spans |
//! | 76 | 4 | members |
//! | 80 | 4 | incarnations |
//! | 84 | | spans: sets (4), bytes on each member (8), bytes of a region (8) |
//! | | | members: identity (16), part (4), state (4), generation of that state (8), length of the name (4), name |
//! | | | incarnations: generation (8), chance (8) |
//!
//! With parity each span is one set, as wide as the others. The members of a set are one for each
//! column, and their part is that column, and as many more as there are columns in the sets before.
//! The version is one higher then, and two higher with more than one set.
//!
//! The magic is that of a pool, so that an earlier program says "a later version" of a member, and
//! does not offer to make a pool of it.

use std::fmt;

use super::geometry::{Geometry, MAX_COPIES, MAX_MEMBERS, MAX_SPANS, Span};
use super::rows::Rows;
use crate::superblock::{Content, Reader, Writer};

/// Bytes of a member's name at most.
const MAX_LABEL: usize = 64;
/// Incarnations that are remembered.
pub(super) const MAX_HISTORY: usize = 128;
/// No array lives to have so many changes: a record that says more is no record.
const MAX_GENERATION: u64 = 1 << 60;
/// What stands for no set.
const SPARE: u32 = u32::MAX;

/// The version of the layout of a pool's first bytes that says: this is a member of an array.
pub const MEMBER_VERSION: u32 = 1000;
/// The same, of an array with parity.
pub const PARITY_VERSION: u32 = 1001;
/// The same, of an array with several sets that have parity.
pub const SETS_VERSION: u32 = 1002;
/// A column of parity, beside [`Record::safe_read`].
const PARITY: u32 = 256;

/// Names an array or a member; given once.
pub type Uuid = [u8; 16];

/// What is known of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Grows with every change.
    pub(super) generation: u64,
    /// Names the array.
    pub(super) array: Uuid,
    /// Names the member that this record is on.
    pub(super) own: Uuid,
    /// Members that a set is to have: copies, or columns where there is parity.
    pub(super) copies: u32,
    /// Columns of a set that have parity.
    pub(super) parity: u32,
    /// Reads compare all copies.
    pub(super) safe_read: bool,
    pub(super) geometry: Geometry,
    pub(super) members: Vec<Member>,
    /// The latest last.
    pub(super) history: Vec<Incarnation>,
}

/// A member as the record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: Uuid,
    pub(super) part: Part,
    pub(super) state: MemberState,
    /// The generation from which on it has this state.
    pub(super) since: u64,
    /// What its device was called, to tell people which one is missing.
    pub(super) label: String,
}

/// What a member is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A copy of this set.
    Copy(u32),
    /// This column of a set with parity.
    Column { set: u32, column: u32 },
    /// A hot spare.
    Spare,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has everything: it is read and written.
    Active,
    /// It lacks what was written since it failed or was missed, and is not used.
    Failed,
    /// It is written, gets what it lacks, and is not read.
    Rebuilding,
    /// It takes the place of one that fails.
    Spare,
}

/// A time during which the same members had everything. It begins when the array is opened, and
/// when a member fails or has everything again. Two that went on apart have other chances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    pub(super) generation: u64,
    pub(super) chance: u64,
}

impl MemberState {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Rebuilding => "rebuilding",
            Self::Spare => "spare",
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Active => 0,
            Self::Failed => 1,
            Self::Rebuilding => 2,
            Self::Spare => 3,
        }
    }

    fn of(number: u32) -> Option<Self> {
        [Self::Active, Self::Failed, Self::Rebuilding, Self::Spare]
            .into_iter()
            .find(|state| state.number() == number)
    }
}

impl Record {
    /// The members that are to be copies of a set.
    pub(super) fn of_set(&self, set: usize) -> impl Iterator<Item = (usize, &Member)> {
        let members = self.members.iter().enumerate();
        members.filter(move |(_, member)| match member.part {
            Part::Copy(of) | Part::Column { set: of, .. } => of as usize == set,
            Part::Spare => false,
        })
    }

    /// Members of a set that are needed for its data: what they are to each other.
    pub(super) fn needed(&self) -> usize {
        match self.parity {
            0 => 1,
            parity => (self.copies - parity) as usize,
        }
    }

    /// The place of a member.
    pub(super) fn find(&self, id: Uuid) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// A later record, of a new incarnation.
    pub(super) fn next(&self, chance: u64) -> Self {
        let mut next = self.clone();
        next.generation += 1;
        let generation = next.generation;
        next.history.push(Incarnation { generation, chance });
        let surplus = next.history.len().saturating_sub(MAX_HISTORY);
        next.history.drain(..surplus);
        next
    }

    /// Changes the state of a member, as of this record's generation.
    pub(super) fn set_state(&mut self, member: usize, state: MemberState) {
        let generation = self.generation;
        if let Some(member) = self.members.get_mut(member)
            && member.state != state
        {
            (member.state, member.since) = (state, generation);
        }
    }

    /// What a member needs of its device, in bytes: that of its span, for a spare the most of all.
    pub(super) fn bytes_of(&self, part: Part) -> u64 {
        let spans = self.geometry.spans.iter();
        match part {
            Part::Copy(set) | Part::Column { set, .. } => {
                let span = self.geometry.span_of(set as usize);
                span.map_or(0, |span| span.member_bytes())
            }
            Part::Spare => spans.map(Span::member_bytes).max().unwrap_or(0),
        }
    }
}

/// Why fields of a record cannot belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The sizes of a span.
    Span,
    /// A member is there twice.
    Twice,
    /// This member is not in the list, or not so as its state says.
    Member,
    /// A set has too few or too many copies.
    Copies,
    /// The incarnations are not in order.
    History,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Span => "the sizes of a span are impossible",
            Self::Twice => "it lists a member twice",
            Self::Member => "it lists a member that cannot be one",
            Self::Copies => "a set has no copies, or too many",
            Self::History => "its incarnations are not in order",
        })
    }
}

impl Content for Record {
    type Contradiction = Contradiction;
    const MAGIC: [u8; 8] = *b"FLSHPOOL";
    const VERSION: u32 = MEMBER_VERSION;
    const NEWEST: u32 = SETS_VERSION;
    const MAX_BYTES: usize = 64 << 10;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn version(&self) -> u32 {
        match (self.parity, self.geometry.spans.len()) {
            (0, _) => MEMBER_VERSION,
            (_, 0 | 1) => PARITY_VERSION,
            _ => SETS_VERSION,
        }
    }

    fn write(&self, fields: &mut Writer) {
        fields.u32(self.geometry.block_size);
        fields.u64(self.generation);
        fields.bytes(&self.array);
        fields.bytes(&self.own);
        fields.u32(self.copies);
        fields.u32(u32::from(self.safe_read) + self.parity * PARITY);
        fields.count(self.geometry.spans.len());
        fields.count(self.members.len());
        fields.count(self.history.len());
        for span in &self.geometry.spans {
            fields.u32(span.sets);
            fields.u64(span.data);
            fields.u64(span.region);
        }
        for member in &self.members {
            fields.bytes(&member.id);
            fields.u32(match member.part {
                Part::Copy(set) => set,
                Part::Column { set, column } => set * self.copies + column,
                Part::Spare => SPARE,
            });
            fields.u32(member.state.number());
            fields.u64(member.since);
            fields.count(member.label.len());
            fields.bytes(member.label.as_bytes());
        }
        for incarnation in &self.history {
            fields.u64(incarnation.generation);
            fields.u64(incarnation.chance);
        }
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let block_size = fields.u32().filter(|size| [512, 4096].contains(size))?;
        let (generation, array, own) = (fields.u64()?, fields.array()?, fields.array()?);
        let copies = fields.u32()?;
        let how = fields.u32()?;
        let (parity, safe_read) = (how / PARITY, how % PARITY == 1);
        if parity > 2 || how % PARITY > 1 {
            return None;
        }
        let spans = fields.count(MAX_SPANS)?;
        let members = fields.count(MAX_MEMBERS)?;
        let history = fields.count(MAX_HISTORY)?;
        let spans: Option<Vec<Span>> = (0..spans)
            .map(|at| {
                let span = span(fields, (copies as usize, parity as usize))?;
                Some(if at == 0 { span } else { span.behind() })
            })
            .collect();
        let columns = (parity > 0).then_some(copies);
        let members: Option<Vec<Member>> = (0..members).map(|_| member(fields, columns)).collect();
        let history: Option<Vec<Incarnation>> = (0..history).map(|_| past(fields)).collect();
        let geometry = Geometry {
            block_size,
            spans: spans?,
        };
        Some(Self {
            generation,
            array,
            own,
            copies,
            parity,
            safe_read,
            geometry,
            members: members?,
            history: history?,
        })
    }

    fn check(&self) -> Result<(), Contradiction> {
        let spans = &self.geometry.spans;
        let bytes = spans.iter().try_fold(0u64, |sum, span| {
            let columns = span.rows.map_or(1, |rows| rows.columns as u64);
            let bytes = span.data.checked_mul(u64::from(span.sets) * columns)?;
            span.is_possible().then(|| sum.checked_add(bytes))?
        });
        if spans.is_empty() || bytes.is_none_or(|bytes| bytes > crate::MAX_BYTES) {
            return Err(Contradiction::Span);
        }
        self.check_members()?;
        if self.generation > MAX_GENERATION {
            return Err(Contradiction::History);
        }
        let increasing = self.history.is_sorted_by_key(|it| it.generation);
        let last = self.history.last().map(|it| it.generation);
        match increasing && last.is_some_and(|last| last <= self.generation) {
            true => Ok(()),
            false => Err(Contradiction::History),
        }
    }
}

impl Record {
    fn check_members(&self) -> Result<(), Contradiction> {
        for (at, member) in self.members.iter().enumerate() {
            if self.find(member.id) != Some(at) {
                return Err(Contradiction::Twice);
            }
            let spare = member.part == Part::Spare;
            // A spare that has failed is dropped from the list.
            if spare != (member.state == MemberState::Spare) || member.since > self.generation {
                return Err(Contradiction::Member);
            }
            let is_there = match member.part {
                Part::Copy(set) => self.parity == 0 && (set as usize) < self.geometry.sets(),
                Part::Column { set, column } => {
                    let is_set = (set as usize) < self.geometry.sets();
                    self.parity > 0 && is_set && column < self.copies
                }
                Part::Spare => true,
            };
            if !is_there {
                return Err(Contradiction::Member);
            }
        }
        if self.find(self.own).is_none() {
            return Err(Contradiction::Member);
        }
        if self.parity > 0 {
            return self.check_columns();
        }
        let good = (0..self.geometry.sets()).all(|set| {
            let copies = self.of_set(set).count();
            (1..=MAX_COPIES + 1).contains(&copies)
        });
        match good && (1..=MAX_COPIES as u32).contains(&self.copies) {
            true => Ok(()),
            false => Err(Contradiction::Copies),
        }
    }
}

impl Record {
    fn check_columns(&self) -> Result<(), Contradiction> {
        let possible = Rows::is_possible(self.copies as usize, self.parity as usize);
        let has = |part: Part| self.members.iter().filter(|it| it.part == part).count();
        let sets = 0..self.geometry.sets() as u32;
        let mut columns = sets.flat_map(|set| (0..self.copies).map(move |it| (set, it)));
        let good =
            columns.all(|(set, column)| (1..=2).contains(&has(Part::Column { set, column })));
        match possible && good && !self.safe_read {
            true => Ok(()),
            false => Err(Contradiction::Copies),
        }
    }
}

/// How many of the members of a set add up: one of each column, or all copies.
pub(super) fn count<'a>(members: impl Iterator<Item = &'a Member>) -> usize {
    let mut columns: Vec<u32> = Vec::new();
    let mut count = 0;
    for member in members {
        match member.part {
            Part::Column { column, .. } if columns.contains(&column) => {}
            Part::Column { column, .. } => columns.push(column),
            _ => count += 1,
        }
    }
    count + columns.len()
}

/// A name as a record keeps it: cut to what fits.
pub(super) fn label(name: &str) -> String {
    let mut end = name.len().min(MAX_LABEL);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

fn span(fields: &mut Reader<'_>, (columns, parity): (usize, usize)) -> Option<Span> {
    let (sets, data) = (fields.u32()?, fields.u64()?);
    let region = fields.u64().filter(|region| *region > 0)?;
    let rows = (parity > 0).then(|| Rows::new(columns, parity, region));
    if rows.is_some() && !Rows::is_possible(columns, parity) {
        return None;
    }
    Some(Span {
        sets,
        data,
        region,
        rows,
    })
}

fn member(fields: &mut Reader<'_>, columns: Option<u32>) -> Option<Member> {
    let id = fields.array()?;
    let part = match (fields.u32()?, columns) {
        (SPARE, _) => Part::Spare,
        (set, None) => Part::Copy(set),
        (number, Some(columns)) => Part::Column {
            set: number.checked_div(columns)?,
            column: number % columns,
        },
    };
    let state = MemberState::of(fields.u32()?)?;
    let since = fields.u64()?;
    let length = fields.count(MAX_LABEL)?;
    Some(Member {
        id,
        part,
        state,
        since,
        label: fields.text(length)?,
    })
}

fn past(fields: &mut Reader<'_>) -> Option<Incarnation> {
    Some(Incarnation {
        generation: fields.u64()?,
        chance: fields.u64()?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use flashyard_time::Rng;

    use super::*;
    use crate::superblock::{Decoded, decode, encode, seal};

    /// An array of so many sets with so many copies, all active.
    pub(in crate::array) fn sample(sets: u32, copies: u32) -> Record {
        let members = (0..sets * copies).map(|at| Member {
            id: [at as u8 + 1; 16],
            part: Part::Copy(at / copies),
            state: MemberState::Active,
            since: 1,
            label: format!("ssd{at}"),
        });
        Record {
            generation: 3,
            array: [0xaa; 16],
            own: [1; 16],
            copies,
            parity: 0,
            safe_read: false,
            geometry: Geometry {
                block_size: 4096,
                spans: vec![Span::of(sets, 64 << 20).expect("it has room")],
            },
            members: members.collect(),
            history: vec![Incarnation {
                generation: 1,
                chance: 77,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_and_every_changed_bit_is_noticed() {
        let mut record = sample(2, 2);
        record.members.push(Member {
            id: [9; 16],
            part: Part::Spare,
            state: MemberState::Spare,
            since: 2,
            label: "x".repeat(MAX_LABEL),
        });
        let bytes = encode(&record);
        assert_eq!(decode(&bytes), Decoded::Valid(record));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(!matches!(decode::<Record>(&changed), Decoded::Valid(_)));
            assert!(!matches!(decode::<Record>(&bytes[..at]), Decoded::Valid(_)));
        }
    }

    /// The same with parity: sets of columns.
    fn columns(sets: u32, count: u32, parity: u32) -> Record {
        let mut record = sample(sets, count);
        let first = Span::of_rows(count as usize, parity as usize, 64 << 20);
        let first = first.expect("it has room");
        record.geometry.spans = vec![first.behind(); sets as usize];
        record.geometry.spans[0] = first;
        record.parity = parity;
        for (at, member) in (0..).zip(&mut record.members) {
            let (set, column) = (at / count, at % count);
            member.part = Part::Column { set, column };
        }
        record
    }

    #[test]
    fn columns_are_read_as_they_were_written_and_have_a_version_of_their_own() {
        let shapes = [
            (1, 3, 1),
            (1, 16, 1),
            (1, 4, 2),
            (1, 16, 2),
            (2, 3, 1),
            (4, 16, 2),
        ];
        for (sets, count, parity) in shapes {
            let record = columns(sets, count, parity);
            let bytes = encode(&record);
            let version = [PARITY_VERSION, SETS_VERSION][usize::from(sets > 1)];
            assert_eq!(bytes[8..12], version.to_le_bytes());
            assert_eq!(bytes[68..72], (parity * 256).to_le_bytes());
            assert_eq!(decode(&bytes), Decoded::Valid(record));
            // The version of another array.
            for wrong in [MEMBER_VERSION, PARITY_VERSION, SETS_VERSION] {
                let mut other = bytes.clone();
                other[8..12].copy_from_slice(&wrong.to_le_bytes());
                seal(&mut other);
                let is_right = matches!(decode::<Record>(&other), Decoded::Valid(_));
                assert_eq!(is_right, wrong == version);
            }
        }
        // Too few members, a column that nobody has, and one that three have.
        let part = |set, column| Part::Column { set, column };
        let mut twice = columns(1, 5, 1);
        twice.members[4].part = part(0, 3);
        let mut thrice = columns(1, 5, 1);
        thrice.members[4].part = part(0, 0);
        thrice.members[3].part = part(0, 0);
        // One of another set, and one of a set that is not there.
        let mut other = columns(2, 3, 1);
        other.members[5].part = part(0, 2);
        let mut beyond = columns(2, 3, 1);
        beyond.members[5].part = part(2, 2);
        let narrow = [columns(1, 2, 1), columns(1, 3, 2)];
        for wrong in [twice, thrice, other, beyond].into_iter().chain(narrow) {
            let decoded = decode::<Record>(&encode(&wrong));
            assert!(matches!(decoded, Decoded::Damaged(_)), "{wrong:?}");
        }
    }

    #[test]
    fn the_layout_does_not_move() {
        let bytes = encode(&sample(1, 1));
        let mut expected = Vec::from(*b"FLSHPOOL");
        expected.extend(1000u32.to_le_bytes());
        expected.extend((bytes.len() as u32).to_le_bytes());
        assert_eq!(bytes[..16], expected);
        let mut rest = Vec::new();
        rest.extend(4096u32.to_le_bytes());
        rest.extend(3u64.to_le_bytes());
        rest.extend([0xaa; 16]);
        rest.extend([1; 16]);
        for number in [1u32, 0, 1, 1, 1, 1] {
            rest.extend(number.to_le_bytes());
        }
        rest.extend((61u64 << 20).to_le_bytes());
        rest.extend((1u64 << 20).to_le_bytes());
        rest.extend([1; 16]);
        rest.extend([0; 8]);
        rest.extend(1u64.to_le_bytes());
        rest.extend(4u32.to_le_bytes());
        rest.extend(*b"ssd0");
        rest.extend(1u64.to_le_bytes());
        rest.extend(77u64.to_le_bytes());
        assert_eq!(bytes[20..], rest);
    }

    #[test]
    fn the_largest_record_fits_its_place() {
        let mut record = sample(1, 1);
        let span = record.geometry.spans[0];
        record.geometry.spans = vec![span; MAX_SPANS];
        record.members = (0..MAX_MEMBERS)
            .map(|at| Member {
                id: [at as u8 + 1; 16],
                part: Part::Copy(at as u32 / 2),
                label: "x".repeat(MAX_LABEL),
                ..record.members[0].clone()
            })
            .collect();
        for chance in 0..2 * MAX_HISTORY as u64 {
            record = record.next(chance);
        }
        assert_eq!(record.history.len(), MAX_HISTORY);
        assert_eq!(decode(&encode(&record)), Decoded::Valid(record));
    }

    #[test]
    fn hostile_content_with_a_right_checksum_is_refused_or_consistent() {
        let original = encode(&sample(2, 2));
        let (mut refused, mut accepted) = (0, 0);
        for seed in 0..20_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = original.clone();
            for _ in 0..=rng.below(3) {
                let at = 20 + rng.below(bytes.len() as u64 - 20) as usize;
                bytes[at] = [0, 1, 0x7f, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            }
            seal(&mut bytes);
            match decode::<Record>(&bytes) {
                Decoded::Valid(record) => {
                    accepted += 1;
                    assert_eq!(record.check(), Ok(()));
                    let end = record.geometry.bytes();
                    assert_eq!(record.geometry.first_piece(end, 1), None);
                    assert!(record.geometry.first_piece(end - 1, 1).is_some());
                }
                Decoded::Damaged(_) => refused += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(refused > 1000 && accepted > 100, "{refused} {accepted}");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(label("ssd0"), "ssd0");
        assert_eq!(label(&"\u{e9}".repeat(40)).len(), 64);
        assert_eq!(label(&format!("a{}", "\u{e9}".repeat(40))).len(), 63);
    }
}
