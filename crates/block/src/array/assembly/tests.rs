//! Every subset, order and age of members, and devices that are none.

use super::super::record::tests::sample;
use super::*;

fn candidate(name: &str, record: Record) -> Candidate {
    Candidate {
        name: name.into(),
        bytes: 64 << 20,
        block_size: 4096,
        record: Ok(record),
    }
}

/// All members as they were after a record.
fn all(record: &Record) -> Vec<Candidate> {
    let own = |member: &super::super::record::Member| {
        let own = member.id;
        let record = Record {
            own,
            ..record.clone()
        };
        candidate(&member.label, record)
    };
    record.members.iter().map(own).collect()
}

fn decide(candidates: &[Candidate]) -> Result<Assembly, ArrayError> {
    assemble(candidates, None, false, 5)
}

#[test]
fn all_members_in_any_order_are_one_array() {
    let members = all(&sample(2, 2));
    let whole = decide(&members).expect("all are here");
    assert_eq!(whole.record.generation, 4);
    assert!(whole.notes.is_empty());
    for turn in 0..4 {
        let mut turned = members.clone();
        turned.rotate_left(turn);
        turned.swap(0, 2);
        let found = decide(&turned).expect("all are here");
        assert_eq!(
            Record {
                own: whole.record.own,
                ..found.record.clone()
            },
            whole.record
        );
        for (member, place) in found.places.iter().enumerate() {
            let place = place.expect("all are here");
            assert_eq!(turned[place].name, found.record.members[member].label);
        }
    }
}

#[test]
fn each_subset_is_whole_degraded_or_refused() {
    let record = sample(2, 2);
    for bits in 0..16u32 {
        let members = all(&record);
        let here: Vec<Candidate> = (0..4)
            .filter(|at| bits & 1 << at != 0)
            .map(|at| members[at].clone())
            .collect();
        let set = |at: u32| (bits >> (2 * at)) & 3;
        let found = decide(&here);
        let forced = assemble(&here, None, true, 5);
        match (set(0), set(1)) {
            (0, 0) => assert!(matches!(found, Err(ArrayError::NoMember(_)))),
            (0, _) | (_, 0) => assert!(matches!(found, Err(ArrayError::NoCopy(_))), "{bits:b}"),
            // One set is whole, so that the missing one cannot have gone on without these.
            (3, _) | (_, 3) => {
                let failed = found.expect("safe").record.members;
                let failed = failed.iter().filter(|it| it.state == MemberState::Failed);
                assert_eq!(failed.count() as u32, 4 - bits.count_ones());
            }
            _ => {
                assert!(
                    matches!(found, Err(ArrayError::MayBeOld(ref missing)) if missing.len() == 2)
                );
                assert!(forced.is_ok());
            }
        }
    }
}

/// Whatever happens to two and three members, one after the other: never two truths. A truth is an
/// incarnation in which something was written.
#[test]
fn members_used_in_turn_never_give_two_truths() {
    for copies in 2..=3u32 {
        let subsets = 1..1u32 << copies;
        for first in subsets.clone() {
            for second in subsets.clone() {
                for third in subsets.clone() {
                    lives(copies, &[first, second, third]);
                }
            }
        }
    }
}

fn lives(copies: u32, subsets: &[u32]) {
    let mut disks = all(&sample(1, copies));
    // What the last opened array wrote last, and what each disk has of it.
    let (mut truth, mut has) = (0, vec![0; copies as usize]);
    // Somebody said that nothing was written elsewhere; from then on that is for them to know.
    let mut forced = false;
    for (step, bits) in subsets.iter().enumerate() {
        let here: Vec<usize> = (0..copies as usize)
            .filter(|at| bits & 1 << at != 0)
            .collect();
        let given: Vec<Candidate> = here.iter().map(|at| disks[*at].clone()).collect();
        let chance = 100 + step as u64;
        for degraded in [false, true] {
            let Ok(found) = assemble(&given, None, degraded, chance) else {
                continue;
            };
            let active: Vec<usize> = found
                .record
                .members
                .iter()
                .enumerate()
                .filter(|(_, member)| member.state == MemberState::Active)
                .map(|(at, _)| at)
                .collect();
            assert!(!active.is_empty());
            // All that would be read hold the same, and without force it is the last truth.
            for at in &active {
                assert_eq!(has[*at], has[active[0]], "{subsets:?} step {step}");
                assert!(here.contains(at));
            }
            forced |= degraded;
            if !forced {
                assert_eq!(has[active[0]], truth, "{subsets:?} step {step}");
            }
            // It is used: those that are here get the record, and those that have everything what
            // is written.
            truth = step + 1;
            for at in &here {
                let own = found.record.members[*at].id;
                disks[*at].record = Ok(Record {
                    own,
                    ..found.record.clone()
                });
            }
            for at in active {
                has[at] = truth;
            }
            break;
        }
    }
}

#[test]
fn a_member_that_failed_is_caught_up_and_an_old_image_is_copied() {
    let before = sample(1, 2);
    let mut after = before.next(9);
    after.set_state(1, MemberState::Failed);
    let mut disks = all(&after);
    disks[1].record = Ok(Record {
        own: [2; 16],
        ..before.clone()
    });
    let found = decide(&disks).expect("the failure is recorded");
    assert_eq!(found.lacks, [Lack::Nothing, Lack::Missed]);
    assert_eq!(found.record.members[1].state, MemberState::Rebuilding);
    assert!(
        decide(&disks[..1]).is_ok(),
        "the missing one is recorded as failed"
    );
    assert!(matches!(decide(&disks[1..]), Err(ArrayError::MayBeOld(_))));

    // The same image while nothing says that it failed: more than a cut can leave it behind.
    let later = before.next(9).next(10);
    let mut disks = all(&later);
    disks[1].record = Ok(Record {
        own: [2; 16],
        ..before
    });
    let found = decide(&disks).expect("one has everything");
    assert_eq!(found.lacks, [Lack::Nothing, Lack::All]);
    assert_eq!(found.record.members[1].state, MemberState::Rebuilding);
}

#[test]
fn a_change_that_was_cut_off_between_members_is_no_failure() {
    let before = sample(1, 3);
    let after = before.next(9);
    for cut in 0..8u32 {
        let mut disks = all(&before);
        for (at, disk) in disks.iter_mut().enumerate() {
            if cut & 1 << at != 0 {
                let own = [at as u8 + 1; 16];
                disk.record = Ok(Record {
                    own,
                    ..after.clone()
                });
            }
        }
        let found = decide(&disks).expect("a cut");
        assert_eq!(found.lacks, [Lack::Nothing; 3]);
        assert!(found.record.generation > after.generation.min(before.generation));
    }
}

/// A member begins another incarnation, without these members.
fn go_on(candidate: &mut Candidate, chance: u64, without: &[usize]) {
    let mut record = candidate.record.clone().expect("a record").next(chance);
    for member in without {
        record.set_state(*member, MemberState::Failed);
    }
    candidate.record = Ok(record);
}

/// A record that the power cut left on one member only, before the others went on without that.
#[test]
fn a_record_that_was_never_everywhere_is_no_use_apart() {
    for members in [2_usize, 3] {
        for alone in [1, members - 1] {
            let mut given = all(&sample(1, members as u32));
            // Those from `alone` on have the record, the others went on from the one before it.
            let without: Vec<usize> = (alone..members).collect();
            for (at, member) in given.iter_mut().enumerate() {
                match at < alone {
                    true => go_on(member, 7, &without),
                    false => go_on(member, 8, &[]),
                }
            }
            for turn in 0..members {
                given.rotate_left(turn);
                let found = decide(&given).expect("none was used apart");
                for (member, lack) in found.lacks.iter().enumerate() {
                    let (want, state) = match member < alone {
                        true => (Lack::Nothing, MemberState::Active),
                        false => (Lack::Missed, MemberState::Rebuilding),
                    };
                    assert_eq!((*lack, found.record.members[member].state), (want, state));
                }
                assert!(found.record.history.iter().any(|it| it.chance == 7));
                assert!(found.record.history.iter().all(|it| it.chance != 8));
            }
        }
    }
    // Two incarnations on: the first of them was everywhere it names, and may have been answered.
    let mut given = all(&sample(1, 2));
    go_on(&mut given[0], 7, &[1]);
    go_on(&mut given[1], 8, &[]);
    go_on(&mut given[1], 9, &[]);
    assert!(matches!(decide(&given), Err(ArrayError::Diverged(..))));
    // Whoever went on alone was used apart, however the other one went on.
    let mut given = all(&sample(1, 2));
    go_on(&mut given[0], 7, &[]);
    go_on(&mut given[0], 8, &[1]);
    go_on(&mut given[1], 9, &[0]);
    assert!(matches!(decide(&given), Err(ArrayError::Diverged(..))));
}

#[test]
fn what_is_no_member_is_named() {
    let record = sample(1, 2);
    let members = all(&record);
    let with = |change: &dyn Fn(&mut Vec<Candidate>)| {
        let mut given = members.clone();
        change(&mut given);
        decide(&given)
    };
    let foreign = with(&|given| {
        if let Ok(record) = &mut given[1].record {
            record.array = [0xbb; 16];
        }
    });
    assert_eq!(
        foreign,
        Err(ArrayError::Foreign("ssd0".into(), "ssd1".into()))
    );
    let twin = with(&|given| given[1].record = given[0].record.clone());
    assert_eq!(twin, Err(ArrayError::Twin("ssd0".into(), "ssd1".into())));
    let newer = with(&|given| given[1].record = Err(NoRecord::Newer(1001)));
    assert_eq!(newer, Err(ArrayError::Newer("ssd1".into(), 1001)));
    let apart = with(&|given| {
        for (at, chance) in [(0, 1), (1, 2)] {
            go_on(&mut given[at], chance, &[1 - at]);
        }
    });
    assert_eq!(
        apart,
        Err(ArrayError::Diverged("ssd1".into(), "ssd0".into()))
    );
    let other = with(&|given| {
        if let Ok(record) = &mut given[1].record {
            record.safe_read = true;
        }
    });
    assert!(matches!(other, Err(ArrayError::Diverged(..))));
    // These count as missing.
    for change in [
        |it: &mut Candidate| it.bytes = 10 << 20,
        |it: &mut Candidate| it.block_size = 512,
        |it: &mut Candidate| it.record = Err(NoRecord::Absent),
        |it: &mut Candidate| it.record = Err(NoRecord::Pool),
        |it: &mut Candidate| it.record = Err(NoRecord::Damaged(["a".into(), "b".into()])),
    ] {
        let mut given = members.clone();
        change(&mut given[1]);
        assert_eq!(
            decide(&given),
            Err(ArrayError::MayBeOld(vec!["ssd1".into()]))
        );
        let found = assemble(&given, None, true, 5).expect("degraded");
        assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
    }
    // With an array that is expected, the member of another one is as good as missing.
    let mut given = members.clone();
    if let Ok(record) = &mut given[0].record {
        record.array = [0xbb; 16];
    }
    let found = assemble(&given, Some([0xaa; 16]), true, 5).expect("degraded");
    assert_eq!(found.places, [None, Some(1)]);
}

#[test]
fn refusals_are_one_line_and_say_what_to_do() {
    let name = || "ssd0".to_owned();
    for (error, advice) in [
        (ArrayError::Members(3, 2), "give a multiple"),
        (ArrayError::TooMany, "second pool"),
        (ArrayError::BlockSize(name(), 512, 4096), "same block_size"),
        (ArrayError::TooSmall(name(), 1, 2), "use a larger one"),
        (
            ArrayError::Occupied(name(), "a pool".into()),
            "choose another one",
        ),
        (ArrayError::NoMember(Vec::new()), "create the array"),
        (ArrayError::Foreign(name(), name()), "of one array"),
        (ArrayError::Twin(name(), name()), "leave the copy out"),
        (ArrayError::Diverged(name(), name()), "choose one"),
        (ArrayError::Newer(name(), 2), "use that version"),
        (
            ArrayError::NoCopy(vec![name(), name()]),
            "bring ssd0 or ssd0 back",
        ),
        (ArrayError::AllOld(vec![name()]), "as it was used last"),
        (ArrayError::MayBeOld(vec![name()]), "as degraded"),
        (ArrayError::NotAMember(name()), "show lists"),
        (ArrayError::IsMember(name()), "name another one"),
        (ArrayError::Needed(name()), "replace it instead"),
        (ArrayError::Rebuilding(name()), "wait"),
        (
            ArrayError::Device(name(), "reading", crate::IoError::Read),
            "see to the device",
        ),
        (ArrayError::Closed, "try again"),
    ] {
        let text = error.to_string();
        assert!(!text.contains('\n') && text.contains(advice), "{text}");
    }
}
