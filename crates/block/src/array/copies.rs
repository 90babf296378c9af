//! The copies of an array, one by one.

use std::rc::Rc;

use flashyard_runtime::Buf;

use super::Array;
use super::careful::to_the_end;
use super::geometry::STRIPE;
use super::member::Member;
use super::rows::UNIT;
use super::set::{At, Set};
use crate::{Copies, Healed, IoError, IoFuture, Tag, Unneeded};

impl Copies for Array {
    fn stripe(&self) -> u64 {
        STRIPE
    }

    fn count(&self, lba: u64) -> usize {
        let found = self.whole_piece(lba, 1);
        found.map_or(0, |(set, at)| match set.block_of(at) {
            Some((rows, _, column)) => set.sources(rows, column).len(),
            None => set.active(),
        })
    }

    fn stored(&self, lba: u64) -> usize {
        let found = self.whole_piece(lba, 1);
        found.map_or(0, |(set, at)| match set.block_of(at) {
            Some((_, _, column)) => usize::from(set.of_column(column).is_some()),
            None => set.active(),
        })
    }

    fn verified(&self) {
        let rows = self.shared.record.borrow().geometry.rows();
        if rows.is_some() {
            self.scrub();
        }
    }

    fn set_unneeded(&self, unneeded: Unneeded) {
        *self.shared.unneeded.borrow_mut() = Some(unneeded);
    }

    fn read(&self, tag: Tag, copy: usize, lba: u64, into: Buf) -> IoFuture {
        let found = self.whole_piece(lba, into.len() as u64);
        let (set, at) = match found {
            Ok(found) => found,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        if let Some((rows, block, column)) = set.block_of(at) {
            if at.bytes > UNIT {
                return IoFuture::ready(Err(IoError::OutOfRange));
            }
            return IoFuture::boxed(set.read_source_of(rows, tag, (block, column), copy, into));
        }
        IoFuture::boxed(async move {
            // Copies of an unequal region are not what they were before: none was read.
            set.make_equal(set.tracked(at)).await?;
            let active = set.members_that(Member::is_active);
            let member = active.get(copy).ok_or(IoError::OutOfRange)?;
            let data = set.read_into(member, tag, at, into).await?;
            Ok(data.into())
        })
    }

    fn heal(&self, tag: Tag, lba: u64, data: Buf) -> Healed {
        let (found, rt) = (
            self.whole_piece(lba, data.len() as u64),
            self.shared.rt.clone(),
        );
        Box::pin(async move {
            let (set, at) = found?;
            let healed = to_the_end(&rt, async move {
                match set.block_of(at) {
                    Some(block) => set.heal_block(tag, block, data).await,
                    None => set.heal_with(tag, at, data).await,
                }
            });
            healed.await.unwrap_or(Err(IoError::Aborted))
        })
    }
}

impl Array {
    fn whole_piece(&self, lba: u64, bytes: u64) -> Result<(Rc<Set>, At), IoError> {
        let block_size = self.shared.record.borrow().geometry.block_size;
        let at = lba.checked_mul(block_size.into());
        let at = at.ok_or(IoError::OutOfRange)?;
        let found = self.shared.piece(at, bytes);
        let found = found.filter(|(_, at)| at.bytes == bytes);
        found.ok_or(IoError::OutOfRange)
    }
}
