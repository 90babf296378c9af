//! What is not needed is not copied to members that are rebuilt: it becomes zeroes on all members,
//! which then agree as if it had been copied. Who stands on the array says what that is. Where a
//! member would have to write zeroes it is copied: nothing would be gained.

use std::rc::Rc;

use flashyard_sched::Op;

use super::careful::to_the_end;
use super::flight::is_momentary;
use super::member::Member;
use super::set::{At, Set};
use super::shared::Shared;
use crate::{Io, IoError, SystemWork, Tag, Zero};

impl Set {
    /// In one turn, a region that is to be copied becomes zeroes on all members if it is not
    /// needed; false if it is to be copied.
    pub(super) async fn clear_in_turn(
        self: &Rc<Self>,
        shared: &Rc<Shared>,
        at: usize,
    ) -> Result<bool, IoError> {
        let (copying, place) = (self.copying(at), self.region(at));
        if copying.unequal || !self.is_unneeded(place) {
            return Ok(false);
        }
        // It moves no data: it is as much work as a block.
        let block = At {
            bytes: self.block_size.into(),
            ..place
        };
        let step = self.step_of(SystemWork::Rebuild, Op::Write, block, 1);
        let mut turn = shared.queue.take(step).await.ok_or(IoError::Aborted)?;
        let set = Rc::clone(self);
        let cleared = to_the_end(&self.rt, async move {
            // A power cut may leave zeroes on some members only. It is dirty until it is rebuilt.
            set.mark_dirty(at..at + 1).await?;
            let _held = set.hold(at..at + 1).await;
            // It may be in use since.
            if !set.is_still_wanted(&copying) || !set.is_unneeded(place) {
                return Ok(false);
            }
            turn.begin();
            let cleared = set.clear(place).await;
            turn.end(cleared.is_ok());
            if cleared.is_err() {
                // Some members have zeroes there, and others what was there before.
                set.regions.borrow_mut().make_unequal(at..at + 1);
            }
            cleared?;
            set.end_copy(copying).await.map(|()| true)
        });
        cleared.await.unwrap_or(Err(IoError::Aborted))
    }

    /// Whether what a range of the members holds is not needed, and they can free it.
    fn is_unneeded(&self, place: At) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        let range = shared.record.borrow().geometry.around(self.number, place);
        let unneeded = shared.unneeded.borrow();
        let (Some(range), Some(is_unneeded)) = (range, unneeded.as_ref()) else {
            return false;
        };
        let frees = |it: &Rc<Member>| it.device.as_ref().is_some_and(|it| it.info().deallocate);
        let block_size = u64::from(self.block_size);
        self.members_that(Member::is_written).iter().all(frees)
            && is_unneeded(range.start / block_size..range.end.div_ceil(block_size))
    }

    async fn clear(self: &Rc<Self>, place: At) -> Result<(), IoError> {
        for member in self.members_that(Member::is_written) {
            let io = Io::Zero {
                lba: self.lba(&member, place.at),
                blocks: place.bytes / u64::from(self.block_size),
                how: Zero::Write { deallocate: true },
            };
            let cleared = self.run(&member, |device| device.submit(Tag::default(), io));
            match cleared.await {
                Ok(_) => {}
                Err(error) if is_momentary(error) => return Err(error),
                Err(error) => self.give_up(&member, error),
            }
        }
        Ok(())
    }
}
