//! Making an array, and opening one of the devices at hand.

use std::rc::Rc;

use flashyard_runtime::Rt;

use super::Array;
use super::assembly::{Candidate, Lack, assemble};
use super::changes::{by_set, list, spans_of};
use super::error::ArrayError;
use super::flight::is_momentary;
use super::geometry::{Geometry, MAX_COPIES, MAX_MEMBERS};
use super::member::{Failure, Member};
use super::places::{self, new_id, occupied};
use super::record::{Incarnation, MemberState, Part, Record, Uuid, label};
use super::rows::Rows;
use super::shared::Shared;
use super::types::{Layout, NewMember, Options};
use crate::IoError;

impl Array {
    /// Makes devices an array, in sets of `layout.copies` that follow each other. Refuses a device
    /// that holds something, unless `force`; what is there is lost then.
    pub async fn create(
        rt: &Rt,
        devices: Vec<NewMember>,
        uuid: Uuid,
        layout: Layout,
        options: Options,
        force: bool,
    ) -> Result<Self, ArrayError> {
        let (copies, sets) = (layout.copies, devices.len() / layout.copies.max(1));
        let first = devices.first();
        let first = first.ok_or(ArrayError::Members(0, copies))?;
        let block_size = first.device.info().block_size;
        // What holds an array is to be imported, however many devices are named.
        for new in &devices {
            let own = new.device.info().block_size;
            if own != block_size {
                return Err(ArrayError::BlockSize(new.name.clone(), own, block_size));
            }
            if !force {
                occupied(new).await?;
            }
        }
        if layout.parity > 0 {
            if !Rows::is_possible(copies, layout.parity) {
                return Err(ArrayError::Columns(copies, layout.parity));
            }
            if sets == 0 || !devices.len().is_multiple_of(copies) {
                return Err(ArrayError::Groups(devices.len(), copies));
            }
            if layout.safe_read {
                return Err(ArrayError::SafeRead);
            }
        } else if !(1..=MAX_COPIES).contains(&copies)
            || sets == 0
            || !devices.len().is_multiple_of(copies)
        {
            return Err(ArrayError::Members(devices.len(), copies));
        }
        if devices.len() > MAX_MEMBERS {
            return Err(ArrayError::TooMany);
        }
        let mut spans = spans_of(&devices, copies, layout.parity)?;
        for span in &mut spans[1..] {
            *span = span.behind();
        }
        let blank = devices.iter().all(|new| new.device.is_blank());
        let record = Record {
            generation: 0,
            array: uuid,
            own: [0; 16],
            copies: copies as u32,
            parity: layout.parity as u32,
            safe_read: layout.safe_read,
            geometry: Geometry {
                block_size,
                spans: spans.clone(),
            },
            members: Vec::new(),
            history: vec![Incarnation {
                generation: 0,
                chance: rt.random(),
            }],
        };
        let shared = Shared::new(rt, options, record, blank);
        for ((number, chunk), span) in devices.chunks(copies).enumerate().zip(by_set(&spans)) {
            let members = chunk.iter().map(|new| {
                let device = Some(new.device.clone());
                let name = label(&new.name);
                Member::new(new_id(rt), name, MemberState::Active, device, 1)
            });
            let set = shared.new_set(number, span, members.collect());
            set.number_columns();
            set.begin_empty(blank).await?;
            shared
                .members
                .borrow_mut()
                .extend(set.all().iter().cloned());
            shared.sets.borrow_mut().push(set);
        }
        let sets = shared.all_sets();
        shared
            .commit(|record| sets.iter().for_each(|set| list(record, set)))
            .await?;
        let array = Self { shared };
        // Until all have it there is no array.
        if let Some(member) = array
            .status()
            .members
            .iter()
            .find(|it| it.failure.is_some())
        {
            let error = match member.failure {
                Some(Failure::Error(error)) => error,
                _ => IoError::NotReady,
            };
            let name = member.name.clone();
            return Err(ArrayError::Device(name, "writing the superblock of", error));
        }
        array.shared.watch_rests();
        array.shared.work();
        Ok(array)
    }

    /// Opens the array that devices are members of, given in any order. `expected`: which array
    /// that is to be; others are passed over then. `degraded`: no member that is missing was used
    /// without those that are here.
    pub async fn open(
        rt: &Rt,
        devices: Vec<NewMember>,
        expected: Option<Uuid>,
        options: Options,
        degraded: bool,
    ) -> Result<Self, ArrayError> {
        let mut candidates = Vec::new();
        let mut newest = Vec::new();
        for new in &devices {
            let (candidate, place) = look_at(new).await;
            candidates.push(candidate);
            newest.push(place);
        }
        let found = assemble(&candidates, expected, degraded, rt.random())?;
        // What comes next is the record that was decided; another one if a member fails before.
        let Record {
            generation,
            history,
            ..
        } = found.newest.clone();
        let before = Record {
            generation,
            history,
            ..found.record.clone()
        };
        let shared = Shared::new(rt, options, before, false);
        *shared.notes.borrow_mut() = found.notes;
        let members = found.record.members.iter().zip(&found.places);
        let members = members.map(|(member, place)| {
            let device = place.map(|at| devices[at].device.clone());
            let newest = place.map_or(1, |at| newest[at]);
            let state = member.state;
            Member::new(member.id, member.label.clone(), state, device, newest)
        });
        *shared.members.borrow_mut() = members.collect();
        for number in 0..found.record.geometry.sets() {
            shared.open_set(number, &found.record, &found.lacks).await?;
        }
        // What was found is written down before anything is built on it, and is durable then: a
        // program that was killed may have left data in volatile caches.
        for set in shared.all_sets() {
            // A copy that cannot be flushed now is made equal, where it matters, before it is read.
            let _ = set.flush_all().await;
        }
        let turn = shared.turn().await?;
        shared.complete(&found.newest, &found.behind).await;
        let written = shared.commit(|_| ()).await;
        drop(turn);
        match written {
            Ok(()) => shared.take_spares().await,
            // It can be read. Before this is written no change is answered, and no spare taken.
            Err(ArrayError::Device(_, _, IoError::WriteProtected)) => shared.record_later(),
            Err(error) => return Err(error),
        }
        shared.watch_rests();
        shared.work();
        Ok(Self { shared })
    }
}

impl Shared {
    /// A set of members that were found, with what their maps say.
    async fn open_set(
        self: &Rc<Self>,
        number: usize,
        record: &Record,
        lacks: &[Lack],
    ) -> Result<(), ArrayError> {
        let span = record.geometry.span_of(number).ok_or(ArrayError::Closed)?;
        let of_set: Vec<usize> = record.of_set(number).map(|(at, _)| at).collect();
        let all = self.members.borrow().clone();
        let members: Vec<Rc<Member>> = of_set.iter().map(|at| all[*at].clone()).collect();
        for (member, at) in members.iter().zip(&of_set) {
            if let Part::Column { column, .. } = record.members[*at].part {
                member.column.set(column as usize);
            }
        }
        let set = self.new_set(number, span, members);
        for member in set.members_that(Member::is_active) {
            if let Some(device) = &member.device
                && set.regions.borrow().count() > 0
            {
                // The others have the same map, where one that does not work can be done without.
                if let Err(error) = set.load_map(device).await
                    && (is_momentary(error) || !self.fail(&set, &member, Failure::Error(error)))
                {
                    let name = member.label.borrow().clone();
                    return Err(ArrayError::Device(name, "reading the region map of", error));
                }
            }
        }
        {
            let mut regions = set.regions.borrow_mut();
            if of_set.iter().any(|at| lacks[*at] == Lack::All) {
                let all = 0..regions.count();
                regions.make_missed(all);
            }
            if set.active() > 1 {
                regions.dirty_are_unequal();
            }
            if set.is_rebuilding() {
                regions.begin_rebuild();
            }
            // Each member has all of it from now on.
            regions.change_all();
        }
        if set.regions.borrow().count() > 0 {
            match set.persist().await {
                // It can be read; a change waits until the map says that it may be.
                Ok(()) | Err(IoError::WriteProtected) => {}
                Err(error) => {
                    let action = "writing the region map of";
                    return Err(ArrayError::Device(String::new(), action, error));
                }
            }
        }
        self.sets.borrow_mut().push(set);
        Ok(())
    }
}

/// What a device says of its array, and where its newest superblock is.
async fn look_at(new: &NewMember) -> (Candidate, usize) {
    let info = new.device.info();
    let (record, place) = match places::read(&*new.device).await {
        Ok((record, place)) => (Ok(record), place),
        Err(why) => (Err(why), 1),
    };
    let candidate = Candidate {
        name: new.name.clone(),
        bytes: info.blocks * u64::from(info.block_size),
        block_size: info.block_size,
        record,
    };
    (candidate, place)
}
