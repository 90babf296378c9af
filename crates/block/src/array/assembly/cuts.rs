//! Power cuts between the members while a record is written, in openings that follow each other,
//! while members fail and are rebuilt: all members are here, so the array opens each time with the
//! last data, and nothing is copied that is not known to be missed.

use flashyard_time::Rng;

use super::matrix::{SHAPES, record_of};
use super::*;

/// An array with all its members, and what was written to it.
struct World {
    rng: Rng,
    /// What each member says.
    disks: Vec<Record>,
    /// The last write that each member has, and the last one there was.
    has: Vec<u64>,
    truth: u64,
    /// Power cuts while a record was written, and rebuilds.
    cuts: usize,
    rebuilds: usize,
}

/// The power was cut.
struct Cut;

impl World {
    fn new(base: &Record, seed: u64) -> Self {
        let own = |member: &Member| Record {
            own: member.id,
            ..base.clone()
        };
        Self {
            rng: Rng::new(seed),
            disks: base.members.iter().map(own).collect(),
            has: vec![0; base.members.len()],
            truth: 0,
            cuts: 0,
            rebuilds: 0,
        }
    }

    /// Writes a record to members; a power cut leaves it on some of them.
    fn put(&mut self, record: &Record, members: &[usize]) -> Result<(), Cut> {
        let cut = self.rng.below(3) == 0;
        for at in members {
            if !cut || self.rng.below(2) == 0 {
                let own = record.members[*at].id;
                self.disks[*at] = Record {
                    own,
                    ..record.clone()
                };
            }
        }
        self.cuts += usize::from(cut);
        if cut { Err(Cut) } else { Ok(()) }
    }

    /// The next record, which says of members that they are in a state now.
    fn change(
        &mut self,
        record: &Record,
        members: &[usize],
        state: MemberState,
    ) -> Result<Record, Cut> {
        let mut record = record.next(self.rng.below(u64::MAX));
        for at in members {
            record.set_state(*at, state);
        }
        self.put(&record, &in_states(&record, &USED))?;
        Ok(record)
    }

    fn write(&mut self, record: &Record) {
        self.truth += 1;
        for at in in_states(record, &[MemberState::Active]) {
            self.has[at] = self.truth;
        }
    }

    fn open(&mut self, place: &str) -> Result<Record, Cut> {
        let names = self.disks[0].members.clone();
        let candidates = self.disks.iter().zip(names);
        let mut candidates: Vec<Candidate> = candidates
            .map(|(record, member)| Candidate {
                name: member.label,
                bytes: 64 << 20,
                block_size: 4096,
                record: Ok(record.clone()),
            })
            .collect();
        let turn = self.rng.below(candidates.len() as u64) as usize;
        candidates.rotate_left(turn);
        let chance = self.rng.below(u64::MAX);
        let found = assemble(&candidates, None, false, chance);
        let found = found.unwrap_or_else(|why| panic!("{place}: {why}"));
        assert!(
            !found.lacks.contains(&Lack::All),
            "{place}: {:?}",
            found.lacks
        );
        for at in in_states(&found.record, &[MemberState::Active]) {
            assert_eq!(self.has[at], self.truth, "{place}: member {at}");
        }
        self.put(&found.newest, &found.behind)?;
        self.put(&found.record, &in_states(&found.record, &USED))?;
        Ok(found.record)
    }

    /// Opens it and uses it until the power is cut.
    fn live(&mut self, place: &str) -> Result<(), Cut> {
        let mut record = self.open(place)?;
        loop {
            self.write(&record);
            let rebuilding = in_states(&record, &[MemberState::Rebuilding]);
            if !rebuilding.is_empty() && self.rng.below(2) == 0 {
                for at in &rebuilding {
                    self.has[*at] = self.truth;
                }
                self.rebuilds += 1;
                record = self.change(&record, &rebuilding, MemberState::Active)?;
            } else if let Some(member) = self.loss(&record) {
                record = self.change(&record, &[member], MemberState::Failed)?;
            } else {
                return Err(Cut);
            }
        }
    }

    /// A member that may fail, by chance.
    fn loss(&mut self, record: &Record) -> Option<usize> {
        let active = in_states(record, &[MemberState::Active]);
        let member = active[self.rng.below(active.len() as u64) as usize];
        let copies = record.copies as usize;
        let of_set = active.iter().filter(|it| *it / copies == member / copies);
        (of_set.count() > record.needed()).then_some(member)
    }
}

const USED: [MemberState; 2] = [MemberState::Active, MemberState::Rebuilding];

fn in_states(record: &Record, states: &[MemberState]) -> Vec<usize> {
    let members = record.members.iter().enumerate();
    let used = members.filter(|(_, member)| states.contains(&member.state));
    used.map(|(at, _)| at).collect()
}

#[test]
fn cuts_in_a_row_leave_an_array_that_opens_with_the_last_data() {
    for shape in SHAPES {
        let base = record_of(shape);
        let (mut cuts, mut rebuilds) = (0, 0);
        for seed in 0..1000 {
            let mut world = World::new(&base, seed);
            for life in 0..12 {
                let place = format!("{}, seed {seed}, life {life}", shape.0);
                let _ = world.live(&place);
            }
            cuts += world.cuts;
            rebuilds += world.rebuilds;
        }
        assert!(cuts > 3000, "{}: {cuts}", shape.0);
        let can_lose = shape.2 > 1;
        assert_eq!(rebuilds > 1000, can_lose, "{}: {rebuilds}", shape.0);
    }
}
