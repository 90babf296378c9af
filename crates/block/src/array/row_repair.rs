//! What is known of rows is put right: after a crash parity is made to agree with the data, members
//! that are rebuilt get their columns, and blocks that are wrong are found and written anew.

use std::rc::Rc;

use flashyard_runtime::{Buf, Data, Shared as Bytes};

use super::careful::{into_buf, to_the_end};
use super::flight::is_momentary;
use super::member::Member;
use super::rows::{Rows, UNIT};
use super::set::{At, Set};
use super::sums::{Changed, Columns, agree, fill};
use crate::io::Done;
use crate::{IoError, Tag};

/// Where what a block holds can be had from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the member that has it.
    Stored,
    /// From the others of its rows; this column is left out, too.
    Computed(Option<usize>),
}

/// What a stretch holds once its rows agree.
struct Settled {
    /// What is known, by role.
    columns: Columns,
    /// What was written anew.
    fixed: Vec<Fixed>,
}

/// A block that was written anew so that its row agrees.
struct Fixed {
    member: Rc<Member>,
    /// See [`Changed::was_wrong`].
    was_wrong: bool,
}

impl Set {
    /// The block that a range of the set begins in, on its member: the rows, where it is there, and
    /// its column. Nothing in the part that all members have alike.
    pub(super) fn block_of(&self, at: At) -> Option<(Rows, At, usize)> {
        let rows = self.span.rows.filter(|rows| at.at >= rows.alike)?;
        let block = At {
            at: at.at,
            bytes: 1,
        };
        let stretch = rows.stretch(block);
        let (role, ..) = rows.pieces(block).next()?;
        Some((rows, stretch, rows.column(stretch.at, role)))
    }

    /// All ways to have what a block of a column holds.
    pub(super) fn sources(&self, rows: Rows, column: usize) -> Vec<Source> {
        let missing: Vec<usize> = (0..rows.columns)
            .filter(|it| self.of_column(*it).is_none())
            .collect();
        let stored = (!missing.contains(&column)).then_some(Source::Stored);
        let ways = rows.ways(column, &missing).into_iter();
        stored
            .into_iter()
            .chain(ways.map(Source::Computed))
            .collect()
    }

    /// Reads a block in one of the ways.
    pub(super) async fn read_source_of(
        self: Rc<Self>,
        rows: Rows,
        tag: Tag,
        (block, column): (At, usize),
        number: usize,
        into: Buf,
    ) -> Result<Done, IoError> {
        // Rows of an unequal region are not what they were before: none was read.
        self.make_equal(self.regions_of(block)).await?;
        let sources = self.sources(rows, column);
        let source = *sources.get(number).ok_or(IoError::OutOfRange)?;
        let (set, rt) = (Rc::clone(&self), self.rt.clone());
        let read = to_the_end(&rt, async move {
            set.read_from(rows, tag, (block, column), source, into)
                .await
        });
        let data = read.await.unwrap_or(Err(IoError::Aborted))?;
        Ok(Data::Buf(data).into())
    }

    async fn read_from(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        (block, column): (At, usize),
        source: Source,
        into: Buf,
    ) -> Result<Buf, IoError> {
        match source {
            Source::Stored => {
                let member = self.of_column(column).ok_or(IoError::OutOfRange)?;
                let read = self.read_into(&member, tag, block, into).await?;
                into_buf(read)
            }
            Source::Computed(without) => {
                let without: Vec<usize> = without.into_iter().collect();
                self.computed(rows, tag, block, column, &without).await
            }
        }
    }

    /// Writes a block anew if its member holds something else, and the others of its rows tell that
    /// it held this: else it was overwritten since. Gives how many were put right.
    pub(super) async fn heal_block(
        self: Rc<Self>,
        tag: Tag,
        (rows, block, column): (Rows, At, usize),
        data: Buf,
    ) -> Result<usize, IoError> {
        let _held = self.hold_equal(self.regions_of(block)).await?;
        let Some(member) = self.of_column(column) else {
            return Ok(0);
        };
        let lies = match self.read_copy(&member, tag, block).await.and_then(into_buf) {
            Ok(read) if *read == *data => return Ok(0),
            Ok(_) => true,
            Err(IoError::Read | IoError::Integrity) => false,
            Err(error) if is_momentary(error) => return Err(error),
            Err(error) => {
                self.give_up(&member, error);
                self.recorded().await?;
                return Ok(0);
            }
        };
        if !self.is_told(rows, tag, (block, column), &data).await {
            return Ok(0);
        }
        member.count(|counts| counts.wrong_reads += u64::from(lies));
        self.write_anew(&member, tag, block, Bytes::from(data))
            .await;
        // One that is being rebuilt may have been computed from what was wrong.
        for member in self.members_that(|it| it.is_written() && !it.is_active()) {
            let column = member.column.get();
            if let Ok(data) = self.computed(rows, tag, block, column, &[]).await {
                self.write_anew(&member, tag, block, Bytes::from(data))
                    .await;
            }
        }
        self.recorded().await?;
        Ok(1)
    }

    /// Whether a block follows in one of the ways from the others of its rows.
    async fn is_told(
        self: &Rc<Self>,
        rows: Rows,
        tag: Tag,
        (block, column): (At, usize),
        data: &Buf,
    ) -> bool {
        for source in self.sources(rows, column) {
            let Source::Computed(without) = source else {
                continue;
            };
            let without: Vec<usize> = without.into_iter().collect();
            let told = self.computed(rows, tag, block, column, &without).await;
            if told.is_ok_and(|told| *told == **data) {
                return true;
            }
        }
        false
    }

    /// Gives members that are rebuilt their columns of a stretch. If parity may not agree with the
    /// data it is made to, first. The rows are held.
    pub(super) async fn copy_rows(
        self: &Rc<Self>,
        rows: Rows,
        stretch: At,
        unequal: bool,
    ) -> Result<(), IoError> {
        let tag = Tag::default();
        let rebuilt = self.members_that(|it| it.is_written() && !it.is_active());
        let mut columns: Columns = (0..rows.columns).map(|_| None).collect();
        if unequal {
            let settled = self.settle_rows(rows, stretch).await?;
            for fixed in settled.fixed {
                fixed.member.count(|counts| counts.copied_bytes += UNIT);
            }
            columns = settled.columns;
        }
        for member in rebuilt {
            let role = rows.role(stretch.at, member.column.get());
            if columns[role].is_none() {
                columns[role] = self.column(rows, stretch, member.column.get()).await?;
            }
            if columns[role].is_none() {
                self.compute_for(rows, stretch, role, &mut columns).await?;
            }
            let data = columns[role].as_ref().ok_or(IoError::NotReady)?;
            let mut copy = Buf::take(data.len()).ok_or(IoError::Busy)?;
            copy.copy_from_slice(data);
            match self.write_to(&member, tag, stretch, copy).await {
                Ok(()) => member.count(|counts| counts.copied_bytes += stretch.bytes),
                Err(IoError::Busy) => return Err(IoError::Busy),
                Err(error) => self.give_up(&member, error),
            }
        }
        Ok(())
    }

    /// Computes a column that no member has.
    async fn compute_for(
        self: &Rc<Self>,
        rows: Rows,
        stretch: At,
        role: usize,
        columns: &mut Columns,
    ) -> Result<(), IoError> {
        let mut known = 0;
        for other in 0..rows.columns {
            if columns[other].is_none() && known < rows.data() {
                let column = rows.column(stretch.at, other);
                columns[other] = self.column(rows, stretch, column).await?;
            }
            known += usize::from(columns[other].is_some());
        }
        if known < rows.data() {
            return Err(IoError::NotReady);
        }
        match fill(&rows, self.parity, columns, |it| it == role) {
            true => Ok(()),
            false => Err(IoError::Busy),
        }
    }

    /// Reads all of a stretch and makes parity agree.
    async fn settle_rows(self: &Rc<Self>, rows: Rows, stretch: At) -> Result<Settled, IoError> {
        let mut columns: Columns = Vec::with_capacity(rows.columns);
        for role in 0..rows.columns {
            let column = rows.column(stretch.at, role);
            columns.push(self.column(rows, stretch, column).await?);
        }
        let there: Vec<bool> = columns.iter().map(Option::is_some).collect();
        let count = there.iter().filter(|there| **there).count();
        if count < rows.data() {
            return Err(IoError::NotReady);
        }
        // What is left says what is missing: nothing can differ from that.
        if count == rows.data() {
            return Ok(Settled {
                columns,
                fixed: Vec::new(),
            });
        }
        if !fill(&rows, self.parity, &mut columns, |_| true) {
            return Err(IoError::Busy);
        }
        let mut all: Vec<Buf> = columns.into_iter().flatten().collect();
        let changed = agree(&rows, self.parity, &mut all).ok_or(IoError::Busy)?;
        let mut columns: Columns = all.into_iter().map(Some).collect();
        let mut fixed = Vec::new();
        for Changed {
            role,
            from,
            was_wrong,
        } in changed
        {
            let at = stretch.at + from as u64;
            let member = self.of_column(rows.column(at, role));
            if let (Some(member), Some(column)) = (member.filter(|_| there[role]), &columns[role]) {
                let mut data = Buf::take(UNIT as usize).ok_or(IoError::Busy)?;
                data.copy_from_slice(&column[from..from + UNIT as usize]);
                let block = At { at, bytes: UNIT };
                match self.write_to(&member, Tag::default(), block, data).await {
                    Ok(()) => fixed.push(Fixed { member, was_wrong }),
                    Err(IoError::Busy) => return Err(IoError::Busy),
                    Err(error) => self.give_up(&member, error),
                }
            }
        }
        for (column, there) in columns.iter_mut().zip(there) {
            *column = column.take_if(|_| there);
        }
        Ok(Settled { columns, fixed })
    }

    async fn write_to(
        self: &Rc<Self>,
        member: &Rc<Member>,
        tag: Tag,
        at: At,
        data: Buf,
    ) -> Result<(), IoError> {
        let lba = self.lba(member, at.at);
        let write = crate::Io::Write {
            lba,
            data: data.into(),
            fua: false,
        };
        let written = self.run(member, |device| device.submit(tag, write)).await;
        written.map(drop)
    }

    /// What the member of a column has in a stretch, blocks that it cannot read computed and
    /// written anew; zeroes where that cannot be. Nothing if no member has the column.
    async fn column(
        self: &Rc<Self>,
        rows: Rows,
        stretch: At,
        column: usize,
    ) -> Result<Option<Buf>, IoError> {
        let tag = Tag::default();
        let Some(member) = self.of_column(column) else {
            return Ok(None);
        };
        match self
            .read_copy(&member, tag, stretch)
            .await
            .and_then(into_buf)
        {
            Ok(buf) => return Ok(Some(buf)),
            Err(IoError::Read | IoError::Integrity) => {}
            Err(error) if is_momentary(error) => return Err(error),
            Err(error) => {
                self.give_up(&member, error);
                return match member.is_active() {
                    true => Err(error),
                    false => Ok(None),
                };
            }
        }
        member.count(|counts| counts.read_errors += 1);
        let lost = self.mend(rows, tag, stretch, &member).await;
        self.note_lost(&lost);
        let mut whole = Buf::take_zeroed(stretch.bytes as usize).ok_or(IoError::Busy)?;
        for from in (0..stretch.bytes).step_by(UNIT as usize) {
            let at = stretch.at + from;
            let block = At { at, bytes: UNIT };
            match self.read_copy(&member, tag, block).await.and_then(into_buf) {
                Ok(buf) => whole[from as usize..(from + UNIT) as usize].copy_from_slice(&buf),
                Err(error) if is_momentary(error) => return Err(error),
                // Who wrote it knows its checksum, and that it is lost.
                Err(_) => {}
            }
        }
        Ok(Some(whole))
    }

    fn note_lost(&self, lost: &[u64]) {
        if let Some(shared) = self.shared.upgrade() {
            shared.counts(|counts| counts.unresolved += lost.len() as u64);
        }
    }

    /// Reads all of a stretch, and makes parity agree with the data. The rows are held.
    ///
    /// Where the row does not say which of its blocks was wrong, no member is said to have given
    /// it: a block that is not needed any more may have been wrong, and parity of a sound member
    /// follows it.
    pub(super) async fn scrub_rows(
        self: &Rc<Self>,
        rows: Rows,
        stretch: At,
    ) -> Result<(), IoError> {
        let settled = self.settle_rows(rows, stretch).await?;
        for Fixed { member, was_wrong } in settled.fixed {
            member.count(|counts| {
                counts.wrong_reads += u64::from(was_wrong);
                counts.healed += 1;
            });
        }
        self.recorded().await
    }
}
