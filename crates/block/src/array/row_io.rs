//! I/O of rows. A write is of whole rows, and goes to all members at the same time; a read goes to
//! the members that have the data, and where one is not there, or cannot read, the others' parts of
//! its rows tell what it has.

use std::rc::Rc;

use flashyard_runtime::{Buf, Data, Shared as Bytes};

use super::careful::{into_buf, to_the_end};
use super::flight::{Kind, is_momentary};
use super::member::Member;
use super::rows::{Rows, UNIT};
use super::set::{At, Change, Set};
use super::sums::{Columns, encode, fill};
use crate::io::Done;
use crate::{Io, IoError, IoFuture, Tag, Zero};

/// What members could not read.
pub(super) type Ill = Vec<Rc<Member>>;

impl Set {
    /// The role of a member in the rows at a place.
    pub(super) fn role_of(&self, member: &Member, at: u64) -> usize {
        let rows = self.span.rows;
        rows.map_or(0, |rows| rows.role(at, member.column.get()))
    }

    /// The member that has everything of a column.
    pub(super) fn of_column(&self, column: usize) -> Option<Rc<Member>> {
        let members = self.members.borrow();
        let mut members = members.iter();
        let found = members.find(|it| it.is_active() && it.column.get() == column);
        found.cloned()
    }

    /// Does an I/O behind the part that all members have alike.
    pub(super) fn submit_rows(&self, rows: Rows, tag: Tag, at: At, io: Io) -> IoFuture {
        if let Io::Read { into, .. } = io {
            return self.read_rows(rows, tag, at, into);
        }
        if !rows.is_whole(at) {
            return IoFuture::ready(Err(IoError::Unsupported));
        }
        let stretch = rows.stretch(at);
        match io {
            Io::Write { data, fua, .. } => match encode(&rows, self.parity, at, &data) {
                Some(columns) => self.change(tag, stretch, Change::Rows(columns, fua)),
                None => IoFuture::ready(Err(IoError::Busy)),
            },
            // The parity of zeroes is zeroes: what is not needed has to read as such, too.
            Io::Zero { how, .. } => {
                let deallocate = how.frees();
                self.change(tag, stretch, Change::Zero(Zero::Write { deallocate }))
            }
            _ => IoFuture::ready(Err(IoError::Unsupported)),
        }
    }

    fn read_rows(&self, rows: Rows, tag: Tag, at: At, into: Buf) -> IoFuture {
        let stretch = rows.stretch(at);
        let unequal = self.regions.borrow().any_unequal(self.regions_of(stretch));
        if at.bytes == UNIT && stretch.bytes == UNIT && !unequal {
            let role = rows.pieces(at).next().map_or(0, |(role, ..)| role);
            if let Some(member) = self.of_column(rows.column(stretch.at, role)) {
                let mut into = Some(into);
                let which = |it: &Member| it.id == member.id;
                return self.begin(tag, stretch, Kind::Read, which, move |_, lba| {
                    let into = into.take()?;
                    Some(Io::Read { lba, into })
                });
            }
        }
        let (set, rt) = (self.own(), self.rt.clone());
        IoFuture::boxed(async move {
            let read = to_the_end(&rt, async move { set.gather(rows, tag, at, into).await });
            read.await.unwrap_or(Err(IoError::Aborted))
        })
    }

    /// Reads a range of rows of several members, or of those that are there.
    async fn gather(
        self: Rc<Self>,
        rows: Rows,
        tag: Tag,
        at: At,
        mut into: Buf,
    ) -> Result<Done, IoError> {
        let stretch = rows.stretch(at);
        self.make_equal(self.regions_of(stretch)).await?;
        let mut wanted = vec![false; rows.columns];
        for (role, ..) in rows.pieces(at) {
            wanted[role] = true;
        }
        let columns = self.columns(rows, tag, stretch, &wanted).await?;
        let mut to = 0;
        for (role, from, bytes) in rows.pieces(at) {
            let column = columns[role].as_ref().ok_or(IoError::Internal)?;
            into[to..to + bytes].copy_from_slice(&column[from..from + bytes]);
            to += bytes;
        }
        Ok(Data::Buf(into).into())
    }

    /// The columns that are wanted of a stretch of rows; what a member could not read is written
    /// there anew.
    async fn columns(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        stretch: At,
        wanted: &[bool],
    ) -> Result<Columns, IoError> {
        let mut ill = Vec::new();
        let found = self
            .known_columns(rows, tag, stretch, wanted, &[], &mut ill)
            .await;
        let found = match found {
            // Blocks of several members cannot be read, maybe not of the same rows.
            Err(IoError::Read | IoError::Integrity) if stretch.bytes > UNIT => {
                self.by_row(rows, tag, stretch, wanted, &mut ill).await?
            }
            found => found?,
        };
        if !ill.is_empty() {
            let _held = self.hold_equal(self.regions_of(stretch)).await?;
            for member in ill {
                self.mend(rows, tag, stretch, &member).await;
            }
            self.recorded().await?;
        }
        Ok(found)
    }

    async fn by_row(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        stretch: At,
        wanted: &[bool],
        ill: &mut Ill,
    ) -> Result<Columns, IoError> {
        let mut whole: Columns = Vec::new();
        for wanted in wanted {
            whole.push(match wanted {
                true => Some(Buf::take(stretch.bytes as usize).ok_or(IoError::Busy)?),
                false => None,
            });
        }
        for from in (0..stretch.bytes).step_by(UNIT as usize) {
            let row = At {
                at: stretch.at + from,
                bytes: UNIT,
            };
            let found = self.known_columns(rows, tag, row, wanted, &[], ill).await?;
            for (whole, found) in whole.iter_mut().zip(found) {
                if let (Some(whole), Some(found)) = (whole, found) {
                    whole[from as usize..(from + UNIT) as usize].copy_from_slice(&found);
                }
            }
        }
        Ok(whole)
    }

    /// The columns that are wanted of a stretch of rows, read or computed, without reading some:
    /// by role. Adds the members that could not read.
    pub(super) async fn known_columns(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        stretch: At,
        wanted: &[bool],
        without: &[usize],
        ill: &mut Ill,
    ) -> Result<Columns, IoError> {
        let mut failed = IoError::NotReady;
        let mut bad: Vec<usize> = without.to_vec();
        let mut known: Columns = (0..rows.columns).map(|_| None).collect();
        loop {
            let sources = self.choose(rows, stretch, wanted, &bad);
            let sources = sources.ok_or(failed)?;
            let unread = |role: &&(usize, Rc<Member>)| known[role.0].is_none();
            let reads: Vec<_> = sources.iter().filter(unread).cloned().collect();
            let mut whole = true;
            for (role, member, read) in self.read_each(tag, stretch, reads).await {
                match read.and_then(into_buf) {
                    Ok(buf) => known[role] = Some(buf),
                    Err(error) if is_momentary(error) => return Err(error),
                    Err(error) => {
                        failed = error;
                        whole = false;
                        bad.push(member.column.get());
                        self.note_ill(&member, error, ill);
                    }
                }
            }
            if whole {
                break;
            }
        }
        let missing = |role: usize| wanted[role] && known[role].is_none();
        if (0..rows.columns).any(missing)
            && !fill(&rows, self.parity, &mut known, |role| wanted[role])
        {
            return Err(IoError::Busy);
        }
        Ok(known)
    }

    /// Which members to read, with their roles; nothing if too few are left.
    fn choose(
        &self,
        rows: Rows,
        stretch: At,
        wanted: &[bool],
        bad: &[usize],
    ) -> Option<Vec<(usize, Rc<Member>)>> {
        let there = |role: usize| {
            let column = rows.column(stretch.at, role);
            let good = !bad.contains(&column);
            good.then(|| self.of_column(column)).flatten()
        };
        let all: Vec<_> = (0..rows.columns)
            .filter_map(|role| Some((role, there(role)?)))
            .collect();
        let has = |role: usize| all.iter().any(|(it, _)| *it == role);
        if (0..rows.columns).all(|role| !wanted[role] || has(role)) {
            let wanted = all.into_iter().filter(|(role, _)| wanted[*role]);
            return Some(wanted.collect());
        }
        (all.len() >= rows.data()).then(|| all.into_iter().take(rows.data()).collect())
    }

    /// Reads a stretch of members, all at the same time.
    async fn read_each(
        self: &Rc<Self>,
        tag: Tag,
        stretch: At,
        members: Vec<(usize, Rc<Member>)>,
    ) -> Vec<(usize, Rc<Member>, Result<Data, IoError>)> {
        let reads = members.into_iter().map(|(role, member)| {
            let set = Rc::clone(self);
            self.rt.spawn(async move {
                let read = set.read_copy(&member, tag, stretch).await;
                (role, member, read)
            })
        });
        let reads: Vec<_> = reads.collect();
        let mut ended = Vec::with_capacity(reads.len());
        for read in reads {
            ended.push(read.await);
        }
        ended
    }

    /// A member could not read.
    fn note_ill(self: &Rc<Self>, member: &Rc<Member>, error: IoError, ill: &mut Ill) {
        match error {
            IoError::Read | IoError::Integrity => {
                member.count(|counts| counts.read_errors += 1);
                if !ill.iter().any(|it| it.id == member.id) {
                    ill.push(Rc::clone(member));
                }
            }
            error => self.give_up(member, error),
        }
    }

    /// What a column holds in rows that its member could not read, which is written there anew.
    pub(super) async fn read_column_carefully(
        self: Rc<Self>,
        rows: Rows,
        tag: Tag,
        at: At,
        column: usize,
    ) -> Result<Done, IoError> {
        let rt = self.rt.clone();
        let read = async move {
            let mut wanted = vec![false; rows.columns];
            let role = rows.role(at.at, column);
            wanted[role] = true;
            let mut columns = self.columns(rows, tag, at, &wanted).await?;
            let found = columns[role].take().ok_or(IoError::Internal)?;
            Ok(Data::Buf(found).into())
        };
        to_the_end(&rt, read).await.unwrap_or(Err(IoError::Aborted))
    }

    /// Writes the blocks of a stretch that a member cannot read anew, as far as the others tell
    /// what they are; gives those that nobody can tell. The rows are held.
    pub(super) async fn mend(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        stretch: At,
        member: &Rc<Member>,
    ) -> Vec<u64> {
        let column = member.column.get();
        let mut lost = Vec::new();
        for at in (stretch.at..stretch.at + stretch.bytes).step_by(UNIT as usize) {
            let block = At { at, bytes: UNIT };
            match self.read_copy(member, tag, block).await {
                Err(IoError::Read | IoError::Integrity) => {}
                _ => continue,
            }
            match self.computed(rows, tag, block, column, &[]).await {
                Ok(data) => {
                    self.write_anew(member, tag, block, Bytes::from(data)).await;
                }
                Err(error) if is_momentary(error) => {}
                Err(_) => lost.push(at),
            }
        }
        lost
    }

    /// What a column has to hold in rows as others tell, some of which are left out.
    pub(super) async fn computed(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        at: At,
        column: usize,
        without: &[usize],
    ) -> Result<Buf, IoError> {
        let mut wanted = vec![false; rows.columns];
        let role = rows.role(at.at, column);
        wanted[role] = true;
        let without: Vec<usize> = without.iter().copied().chain([column]).collect();
        let mut ill = Vec::new();
        let known = self.known_columns(rows, tag, at, &wanted, &without, &mut ill);
        known.await?[role].take().ok_or(IoError::Internal)
    }
}
