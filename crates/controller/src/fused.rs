//! Fused Compare and Write: which two commands are a pair, and whether the pair may be executed
//! (Base Specification, fused operations).
//!
//! A pair is made by the order of arrival on its queue, never by the order in which data become
//! ready: with several pairs in flight, R2T finishes their halves in any order.

use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::{IoOpcode, Status, SubmissionQueueEntry};

use super::io::{self, IoOp};
use super::{NamespaceInfo, Transfer};

/// Finds the pairs of one queue. `T` is a command as the transport keeps it.
#[derive(Debug)]
pub struct FusedPairs<T> {
    last: Last<T>,
}

/// What came last, as far as the next command depends on it.
#[derive(Debug)]
enum Last<T> {
    /// Nothing that it does.
    Other,
    /// A first, whose second should come next.
    First(T),
    /// The same, but it was refused and has been answered.
    RefusedFirst,
}

/// What a command is that has arrived.
#[derive(PartialEq, Eq, Debug)]
pub enum Arrival<T> {
    /// Not fused: to be executed by itself.
    Alone(T),
    /// The first of a pair: kept until the next command comes.
    Kept,
    /// Both halves of a pair.
    Pair {
        /// Said to be the first; [`check_pair`] looks whether it is a Compare.
        first: T,
        /// Said to be the second.
        second: T,
    },
    /// A second without a first: [`MISSING_FUSED`].
    Unpaired(T),
    /// A second whose first was refused: [`FAILED_FUSED`].
    Failed(T),
}

/// The answer to half of a pair whose other half did not come next to it.
pub const MISSING_FUSED: Status = Status::ABORTED_MISSING_FUSED.with_dnr();

/// The answer to the command whose other half was refused or failed.
pub const FAILED_FUSED: Status = Status::ABORTED_FAILED_FUSED;

impl<T> Default for FusedPairs<T> {
    fn default() -> Self {
        Self { last: Last::Other }
    }
}

impl<T> FusedPairs<T> {
    /// Whether no second is expected; then a command that is not fused is not a matter of this
    /// type.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.last, Last::Other)
    }

    /// A command has arrived. The other result is a first whose second did not come: answer it
    /// [`MISSING_FUSED`].
    pub fn arrive(&mut self, fuse: Fuse, command: T) -> (Option<T>, Arrival<T>) {
        let last = core::mem::replace(&mut self.last, Last::Other);
        match (fuse, last) {
            (Fuse::First, last) => {
                self.last = Last::First(command);
                (last.into_first(), Arrival::Kept)
            }
            (Fuse::Second, Last::First(first)) => {
                let second = command;
                (None, Arrival::Pair { first, second })
            }
            (Fuse::Second, Last::RefusedFirst) => (None, Arrival::Failed(command)),
            (Fuse::Second, Last::Other) => (None, Arrival::Unpaired(command)),
            // The reserved value is refused by the check of the command itself.
            (Fuse::Normal | Fuse::Reserved, last) => (last.into_first(), Arrival::Alone(command)),
        }
    }

    /// Half of a pair has arrived and was refused before it could be kept. Gives the first that was
    /// kept, and its answer.
    pub fn refuse(&mut self, fuse: Fuse) -> Option<(T, Status)> {
        let (next, status) = match fuse {
            // What is kept should have been followed by its second.
            Fuse::First => (Last::RefusedFirst, MISSING_FUSED),
            _ => (Last::Other, FAILED_FUSED),
        };
        let kept = core::mem::replace(&mut self.last, next).into_first();
        kept.map(|first| (first, status))
    }

    /// Takes what is kept: at an abort, a reset or the end of the queue.
    pub fn take(&mut self) -> Option<T> {
        core::mem::replace(&mut self.last, Last::Other).into_first()
    }

    /// What is kept.
    pub fn kept(&self) -> Option<&T> {
        match &self.last {
            Last::First(first) => Some(first),
            Last::Other | Last::RefusedFirst => None,
        }
    }
}

impl<T> Last<T> {
    fn into_first(self) -> Option<T> {
        match self {
            Self::First(first) => Some(first),
            Self::Other | Self::RefusedFirst => None,
        }
    }
}

/// A Compare and Write that may be executed; `D` is where the transport has the data of a half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompareAndWrite<D> {
    /// Blocks.
    pub range: LbaRange,
    /// Data to compare with.
    pub compare: D,
    /// Data to write.
    pub write: D,
    /// Force Unit Access of the compare: what is compared has to be on the medium.
    pub compare_fua: bool,
    /// Force Unit Access of the write.
    pub fua: bool,
}

/// Statuses of both halves of a refused pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Of the first command.
    pub first: Status,
    /// Of the second command.
    pub second: Status,
}

/// Checks both halves of a pair; `namespace` is the one that the first names. `locate` finds the
/// data of each half, or says why they cannot be where the command says.
///
/// # Errors
/// What to answer to each.
pub fn check_pair<D>(
    [first, second]: [&SubmissionQueueEntry; 2],
    namespace: Option<&NamespaceInfo>,
    transfer_bytes: u32,
    locate: [impl FnOnce(Transfer) -> Result<D, Status>; 2],
) -> Result<CompareAndWrite<D>, Refused> {
    let both = |status| Refused {
        first: status,
        second: status,
    };
    let opcodes = (first.io_opcode(), second.io_opcode());
    if opcodes != (IoOpcode::COMPARE, IoOpcode::WRITE) {
        return Err(both(MISSING_FUSED));
    }
    if first.nsid() != second.nsid() {
        return Err(both(MISSING_FUSED));
    }
    let check = |half| io::check(half, namespace, transfer_bytes);
    let [locate_compare, locate_write] = locate;
    let compare = check(first).and_then(|compare| {
        let data = locate_compare(compare.transfer)?;
        Ok((compare.op, data))
    });
    let (compare_op, compare) = compare.map_err(|status| Refused {
        first: status,
        second: FAILED_FUSED,
    })?;
    let write = check(second).and_then(|write| {
        let data = locate_write(write.transfer)?;
        Ok((write.op, data))
    });
    let (write_op, write) = write.map_err(|status| Refused {
        first: FAILED_FUSED,
        second: status,
    })?;
    let (
        IoOp::Compare {
            range,
            fua: compare_fua,
        },
        IoOp::Write { range: same, fua },
    ) = (compare_op, write_op)
    else {
        return Err(both(MISSING_FUSED));
    };
    if range != same {
        return Err(both(Status::INVALID_FIELD.with_dnr()));
    }
    if namespace.is_some_and(|namespace| range.blocks > namespace.atomic_write.max(1)) {
        return Err(both(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr()));
    }
    Ok(CompareAndWrite {
        range,
        compare,
        write,
        compare_fua,
        fua,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::namespace;
    use flashyard_nvme::Sgl;

    #[test]
    fn pairs_are_made_by_the_order_of_arrival() {
        let mut pairs = FusedPairs::default();
        assert!(pairs.is_empty());
        assert_eq!(pairs.arrive(Fuse::Normal, 1), (None, Arrival::Alone(1)));
        assert_eq!(pairs.arrive(Fuse::First, 2), (None, Arrival::Kept));
        assert_eq!(pairs.kept(), Some(&2));
        let (first, second) = (2, 3);
        assert_eq!(
            pairs.arrive(Fuse::Second, 3),
            (None, Arrival::Pair { first, second })
        );
        assert!(pairs.is_empty());
    }

    #[test]
    fn broken_pairs() {
        let mut pairs = FusedPairs::default();
        assert_eq!(
            pairs.arrive(Fuse::Second, 1),
            (None, Arrival::Unpaired(1)),
            "a second alone"
        );
        assert_eq!(pairs.arrive(Fuse::First, 2), (None, Arrival::Kept));
        assert_eq!(
            pairs.arrive(Fuse::Normal, 3),
            (Some(2), Arrival::Alone(3)),
            "something between"
        );
        assert_eq!(
            pairs.arrive(Fuse::Second, 4),
            (None, Arrival::Unpaired(4)),
            "the second comes too late"
        );
        assert_eq!(pairs.arrive(Fuse::First, 5), (None, Arrival::Kept));
        assert_eq!(
            pairs.arrive(Fuse::First, 6),
            (Some(5), Arrival::Kept),
            "two firsts"
        );
        assert_eq!(pairs.take(), Some(6));
        assert_eq!(pairs.take(), None);
    }

    #[test]
    fn a_refused_half_fails_the_other_one() {
        let mut pairs = FusedPairs::default();
        assert_eq!(pairs.arrive(Fuse::First, 1), (None, Arrival::Kept));
        assert_eq!(pairs.refuse(Fuse::Second), Some((1, FAILED_FUSED)));
        assert!(pairs.is_empty());
        assert_eq!(pairs.refuse(Fuse::First), None);
        assert!(!pairs.is_empty());
        assert_eq!(
            pairs.arrive(Fuse::Second, 2),
            (None, Arrival::Failed(2)),
            "its first was refused"
        );
        assert_eq!(pairs.arrive(Fuse::Second, 3), (None, Arrival::Unpaired(3)));
        assert_eq!(pairs.arrive(Fuse::First, 4), (None, Arrival::Kept));
        assert_eq!(
            pairs.refuse(Fuse::First),
            Some((4, MISSING_FUSED)),
            "two firsts"
        );
        assert_eq!(pairs.arrive(Fuse::Normal, 5), (None, Arrival::Alone(5)));
        assert_eq!(pairs.arrive(Fuse::Second, 6), (None, Arrival::Unpaired(6)));
    }

    const BLOCK: Sgl = Sgl::Transport { length: 512 };

    fn at(slba: u64) -> LbaRange {
        LbaRange { slba, blocks: 1 }
    }

    fn checked(
        first: SubmissionQueueEntry,
        second: SubmissionQueueEntry,
    ) -> Result<CompareAndWrite<u32>, Refused> {
        let length = |sqe: SubmissionQueueEntry| match sqe.sgl() {
            Sgl::Transport { length } => length,
            _ => 0,
        };
        let locate = [length(first), length(second)].map(|length| {
            move |transfer| {
                (transfer == Transfer::from_host(length))
                    .then_some(length)
                    .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
            }
        });
        check_pair([&first, &second], Some(&namespace(1)), 1 << 20, locate)
    }

    #[test]
    fn a_good_pair() {
        let compare = SubmissionQueueEntry::compare(1, at(7), BLOCK).with_fuse(Fuse::First);
        let write = SubmissionQueueEntry::write(1, at(7), BLOCK)
            .with_fua()
            .with_fuse(Fuse::Second);
        assert_eq!(
            checked(compare, write),
            Ok(CompareAndWrite {
                range: at(7),
                compare: 512,
                write: 512,
                compare_fua: false,
                fua: true,
            })
        );
    }

    #[test]
    fn bad_pairs() {
        let compare = |nsid, slba| SubmissionQueueEntry::compare(nsid, at(slba), BLOCK);
        let write = |nsid, slba| SubmissionQueueEntry::write(nsid, at(slba), BLOCK);
        let wide = LbaRange { slba: 0, blocks: 9 };
        let nine = Sgl::Transport { length: 9 * 512 };
        let range = Status::LBA_OUT_OF_RANGE.with_dnr();
        let field = Status::INVALID_FIELD.with_dnr();
        let unit = Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr();
        let length = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
        let table = [
            (write(1, 0), compare(1, 0), MISSING_FUSED, MISSING_FUSED),
            (compare(1, 0), compare(1, 0), MISSING_FUSED, MISSING_FUSED),
            (compare(1, 0), write(2, 0), MISSING_FUSED, MISSING_FUSED),
            (compare(1, 0), write(1, 1), field, field),
            (compare(1, u64::MAX), write(1, 0), range, FAILED_FUSED),
            (compare(1, 0), write(1, 9999), FAILED_FUSED, range),
            (
                compare(1, 0),
                write(1, 0).with_sgl(nine),
                FAILED_FUSED,
                length,
            ),
            (
                SubmissionQueueEntry::compare(1, wide, nine),
                SubmissionQueueEntry::write(1, wide, nine),
                unit,
                unit,
            ),
        ];
        for (first, second, of_first, of_second) in table {
            let refused = Refused {
                first: of_first,
                second: of_second,
            };
            assert_eq!(checked(first, second), Err(refused), "{first:?} {second:?}");
        }
    }
}
