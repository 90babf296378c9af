//! Every redundancy, with members in any order that are missing, foreign, older, of a wrong size or
//! twice there: a table of what each of these does, and rules of what comes of them together.

use super::super::geometry::{Geometry, Span};
use super::super::record::Member;
use super::super::record::tests::sample;
use super::*;

/// A redundancy: its name, sets, members of a set, and how many of these have parity.
pub(super) const SHAPES: [(&str, u32, u32, u32); 10] = [
    ("none", 3, 1, 0),
    ("mirror", 1, 2, 0),
    ("mirror of three", 1, 3, 0),
    ("two mirrors", 2, 2, 0),
    ("parity of three", 1, 3, 1),
    ("parity of five", 1, 5, 1),
    ("two parities of three", 2, 3, 1),
    ("double parity of four", 1, 4, 2),
    ("double parity of five", 1, 5, 2),
    ("double parity of seven", 1, 7, 2),
];

const BYTES: u64 = 64 << 20;

/// How a member is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Good,
    /// A power cut kept the last record from it.
    OneBehind,
    /// Its image is from before several records.
    Old,
    /// The others have recorded that it failed.
    Failed,
    /// The same, and it is not here.
    FailedAway,
    // Not here, or as good as that.
    Away,
    Small,
    OtherBlocks,
    Blank,
    HoldsPool,
    Damaged,
    Unreadable,
}

const AS_IF_AWAY: [Found; 7] = [
    Found::Away,
    Found::Small,
    Found::OtherBlocks,
    Found::Blank,
    Found::HoldsPool,
    Found::Damaged,
    Found::Unreadable,
];

pub(super) fn record_of((_, sets, copies, parity): (&str, u32, u32, u32)) -> Record {
    let plain = sample(sets, copies);
    if parity == 0 {
        return plain;
    }
    let first = Span::of_rows(copies as usize, parity as usize, BYTES);
    let first = first.expect("it has room");
    let mut spans = vec![first.behind(); sets as usize];
    spans[0] = first;
    let column = |(at, member): (u32, &Member)| Member {
        part: Part::Column {
            set: at / copies,
            column: at % copies,
        },
        ..member.clone()
    };
    Record {
        parity,
        geometry: Geometry {
            spans,
            ..plain.geometry.clone()
        },
        members: (0..).zip(&plain.members).map(column).collect(),
        ..plain
    }
}

/// Devices as they are found, in the order of the members.
fn candidates(base: &Record, found: &[Found]) -> Vec<Candidate> {
    let before = base.next(8);
    let mut now = before.next(9);
    for (at, _) in gone(found, &[Found::Failed, Found::FailedAway]) {
        now.set_state(at, MemberState::Failed);
    }
    let all = base.members.iter().zip(found);
    let candidate = |(member, found): (&Member, &Found)| {
        let record = match found {
            Found::Old => base.clone(),
            Found::OneBehind | Found::Failed => before.clone(),
            _ => now.clone(),
        };
        let own = member.id;
        let record = match found {
            Found::Away | Found::FailedAway => return None,
            Found::Blank => Err(NoRecord::Absent),
            Found::HoldsPool => Err(NoRecord::Pool),
            Found::Damaged => Err(NoRecord::Damaged(["a".into(), "b".into()])),
            Found::Unreadable => Err(NoRecord::Unreadable(crate::IoError::Read)),
            _ => Ok(Record { own, ..record }),
        };
        Some(Candidate {
            name: member.label.clone(),
            bytes: if *found == Found::Small {
                10 << 20
            } else {
                BYTES
            },
            block_size: if *found == Found::OtherBlocks {
                512
            } else {
                4096
            },
            record,
        })
    };
    all.filter_map(candidate).collect()
}

fn gone<'a>(
    found: &'a [Found],
    which: &'a [Found],
) -> impl Iterator<Item = (usize, Found)> + use<'a> {
    let all = found.iter().copied().enumerate();
    all.filter(|(_, it)| which.contains(it))
}

/// What is to come of it, said of each member; or why it is refused.
fn expected(
    base: &Record,
    found: &[Found],
    degraded: bool,
) -> Result<Vec<MemberState>, ArrayError> {
    let needed = match base.parity {
        0 => 1,
        parity => (base.copies - parity) as usize,
    };
    let set_of = |at: usize| at / base.copies as usize;
    let label = |at: usize| base.members[at].label.clone();
    let mut states = Vec::new();
    for (at, it) in found.iter().enumerate() {
        let others = found.iter().enumerate().filter(|(other, it)| {
            let failed = [Found::Failed, Found::FailedAway].contains(it);
            *other != at && set_of(*other) == set_of(at) && !failed
        });
        states.push(match it {
            // Nobody can have gone on without it.
            Found::Old if others.count() < needed => MemberState::Active,
            Found::Good | Found::OneBehind => MemberState::Active,
            Found::Old | Found::Failed => MemberState::Rebuilding,
            _ => MemberState::Failed,
        });
    }
    let (mut could_go_on, mut missing) = (true, Vec::new());
    for set in 0..base.members.len() / base.copies as usize {
        let own: Vec<usize> = (0..found.len()).filter(|at| set_of(*at) == set).collect();
        let here = own.iter().filter(|at| states[**at] == MemberState::Active);
        if here.count() < needed {
            let absent = own.iter().filter(|at| states[**at] == MemberState::Failed);
            let absent: Vec<String> = absent.map(|at| label(*at)).collect();
            let old = own
                .iter()
                .filter(|at| states[**at] == MemberState::Rebuilding);
            return Err(match absent.is_empty() {
                true => ArrayError::AllOld(old.map(|at| label(*at)).collect()),
                false => ArrayError::NoCopy(absent),
            });
        }
        let away = own.iter().filter(|at| AS_IF_AWAY.contains(&found[**at]));
        let away: Vec<String> = away.map(|at| label(*at)).collect();
        could_go_on &= away.len() >= needed;
        missing.extend(away);
    }
    match could_go_on && !degraded {
        true => Err(ArrayError::MayBeOld(missing)),
        false => Ok(states),
    }
}

/// Assembles them in several orders, and counts what has come of it.
fn check(base: &Record, found: &[Found], outcomes: &mut [usize; 4]) {
    for degraded in [false, true] {
        let expected = expected(base, found, degraded);
        let mut given = candidates(base, found);
        for turn in 0..3.min(given.len().max(1)) {
            given.rotate_left(turn);
            let place = format!("{found:?}, degraded {degraded}, turn {turn}");
            let assembled = assemble(&given, None, degraded, 5);
            if given.iter().all(|it| it.record.is_err()) {
                assert!(matches!(assembled, Err(ArrayError::NoMember(_))), "{place}");
                continue;
            }
            let states = assembled.as_ref().map(|assembled| {
                let members = assembled.record.members.iter();
                members.map(|it| it.state).collect::<Vec<_>>()
            });
            assert_eq!(states.map_err(Clone::clone), expected, "{place}");
            match &assembled {
                Err(ArrayError::MayBeOld(_)) => outcomes[0] += 1,
                Err(why) => {
                    let text = why.to_string();
                    assert!(text.contains("bring ssd"), "{place}: {text}");
                    outcomes[1] += 1;
                }
                Ok(assembled) if assembled.record.members.iter().any(not_active) => {
                    outcomes[2] += 1;
                }
                Ok(assembled) => {
                    assert!(assembled.notes.is_empty(), "{place}: {:?}", assembled.notes);
                    outcomes[3] += 1;
                }
            }
        }
    }
}

fn not_active(member: &Member) -> bool {
    member.state != MemberState::Active
}

#[test]
fn every_subset_of_members_in_any_order() {
    for shape in SHAPES {
        let base = record_of(shape);
        let (members, mut outcomes) = (base.members.len(), [0; 4]);
        for bits in 0..1u32 << members {
            let found = |at: usize| match bits & 1 << at {
                0 => Found::Away,
                _ => Found::Good,
            };
            let found: Vec<Found> = (0..members).map(found).collect();
            check(&base, &found, &mut outcomes);
        }
        let [may_be_old, no_copy, degraded, whole] = outcomes;
        assert!(whole > 0, "{}: {outcomes:?}", shape.0);
        // Of a mirror alone nothing is left but a copy, or no member.
        let has_parts = shape.1 > 1 || shape.3 > 0;
        assert_eq!(no_copy > 0, has_parts, "{}: {outcomes:?}", shape.0);
        assert_eq!(degraded > 0, shape.2 > 1, "{}: {outcomes:?}", shape.0);
        // Only where those that are missing could be an array of their own.
        let needed = if shape.3 == 0 { 1 } else { shape.2 - shape.3 };
        let can_be_two = shape.2 >= 2 * needed;
        assert_eq!(may_be_old > 0, can_be_two, "{}: {outcomes:?}", shape.0);
    }
}

#[test]
fn each_member_in_each_state_alone_and_beside_another() {
    let all = [
        Found::OneBehind,
        Found::Old,
        Found::Failed,
        Found::FailedAway,
    ];
    let all: Vec<Found> = all.into_iter().chain(AS_IF_AWAY).collect();
    for shape in SHAPES {
        let base = record_of(shape);
        let members = base.members.len();
        let mut outcomes = [0; 4];
        for first in 0..members {
            for one in &all {
                // Of a set of which all have failed there is no record.
                let alone = shape.2 == 1;
                if alone && [Found::Failed, Found::FailedAway].contains(one) {
                    continue;
                }
                let mut found = vec![Found::Good; members];
                found[first] = *one;
                check(&base, &found, &mut outcomes);
                for second in (0..members).filter(|it| *it != first) {
                    for other in &all {
                        let failed = [Found::Failed, Found::FailedAway];
                        if failed.contains(other) && (alone || failed.contains(one)) {
                            continue;
                        }
                        let mut found = found.clone();
                        found[second] = *other;
                        if found.iter().any(|it| has_last_record(*it)) {
                            check(&base, &found, &mut outcomes);
                        }
                    }
                }
            }
        }
        assert_eq!(outcomes[2] > 0, shape.2 > 1, "{}: {outcomes:?}", shape.0);
    }
}

/// Whether a device has the newest record, so that others are older.
fn has_last_record(found: Found) -> bool {
    [Found::Good, Found::Small, Found::OtherBlocks].contains(&found)
}

/// Two that claim one place, members of two arrays, and what a later program has made are refused
/// whatever is missing, and in any order.
#[test]
fn what_cannot_be_told_apart_is_refused_in_every_redundancy() {
    for shape in SHAPES {
        let base = record_of(shape);
        let members = base.members.len();
        for (at, missing) in
            (0..members).flat_map(|at| [(at, None), (at, Some((at + 1) % members))])
        {
            let mut found = vec![Found::Good; members];
            if let Some(missing) = missing {
                // One that is alone differs from nothing.
                if members == 2 {
                    continue;
                }
                found[missing] = Found::Away;
            }
            let given = candidates(&base, &found);
            let place = given.iter().position(|it| it.name == format!("ssd{at}"));
            let place = place.expect("it is here");
            let with = |change: &dyn Fn(&mut Vec<Candidate>)| {
                let mut given = given.clone();
                change(&mut given);
                let turn = at % given.len();
                given.rotate_left(turn);
                let forced = assemble(&given, None, true, 5).err();
                let refused = assemble(&given, None, false, 5).err();
                assert_eq!(forced, refused, "nobody can say which of them is right");
                refused
            };
            let twin = with(&|given| {
                let name = "copy".to_owned();
                let copy = Candidate {
                    name,
                    ..given[place].clone()
                };
                given.push(copy);
            });
            let names = |first: &str, second: &str| {
                let both = [first, second];
                both.contains(&"copy") && both.contains(&&*format!("ssd{at}"))
            };
            assert!(
                matches!(&twin, Some(ArrayError::Twin(first, second)) if names(first, second)),
                "{} {at}: {twin:?}",
                shape.0
            );
            let foreign = with(&|given| {
                if let Ok(record) = &mut given[place].record {
                    record.array = [0xbb; 16];
                }
            });
            assert!(
                matches!(foreign, Some(ArrayError::Foreign(..))),
                "{} {at}: {foreign:?}",
                shape.0
            );
            let newer = with(&|given| given[place].record = Err(NoRecord::Newer(1001)));
            assert_eq!(newer, Some(ArrayError::Newer(format!("ssd{at}"), 1001)));
        }
    }
}
