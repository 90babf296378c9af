//! Splits one I/O into the commands of the drive that do it, one after the other.
//!
//! A drive maps units of 4 KiB. Blocks of 512 bytes may leave the first and the last unit covered
//! in part only; as a real drive does, such a unit is read before it is written anew, also when a
//! part of it is deallocated.

use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ssd::{Command, Op};

/// Longer commands are divided: the work of a drive at one instant stays small, also when a
/// terabyte is deallocated.
const PIECE: u64 = 32_768;
/// Two units read, two written, and the rest.
const STEPS: usize = 5;

/// The commands of one I/O, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    steps: [Step; STEPS],
    len: u8,
    at: u8,
}

/// One operation on a range of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    op: Op,
    start: u64,
    units: u64,
}

impl Plan {
    /// Reads `len` bytes at `offset`; `len` is not 0, here and below.
    pub(super) fn read(offset: u64, len: u64) -> Self {
        let mut plan = Self::empty();
        plan.cover(Op::Read, offset, len);
        plan
    }

    /// Writes a range.
    pub(super) fn write(offset: u64, len: u64, through: bool) -> Self {
        let mut plan = Self::empty();
        plan.read_ends(offset, len);
        plan.cover(write_op(through), offset, len);
        plan
    }

    /// Forgets a range, and rewrites what it has of units covered in part.
    pub(super) fn deallocate(offset: u64, len: u64) -> Self {
        let mut plan = Self::empty();
        plan.read_ends(offset, len);
        for unit in partial_units(offset, len).into_iter().flatten() {
            plan.push(Op::Write, unit, 1);
        }
        let start = offset.div_ceil(UNIT_BYTES);
        let end = (offset + len) / UNIT_BYTES;
        plan.push(Op::Deallocate, start, end.saturating_sub(start));
        plan
    }

    /// Reads a range, and then, if `write` says so, writes it.
    pub(super) fn compare(offset: u64, len: u64, write: Option<Through>) -> Self {
        let mut plan = Self::read(offset, len);
        if let Some(Through(through)) = write {
            plan.cover(write_op(through), offset, len);
        }
        plan
    }

    /// Forces out what was written.
    pub(super) fn flush() -> Self {
        let mut plan = Self::empty();
        plan.push(Op::Flush, 0, 1);
        plan
    }

    /// The next command, which carries `tag`; nothing when the I/O is done.
    pub(super) fn next(&mut self, tag: u64) -> Option<Command> {
        if self.at >= self.len {
            return None;
        }
        let step = &mut self.steps[self.at as usize];
        let units = step.units.min(PIECE);
        let command = Command {
            tag,
            op: step.op,
            start: step.start,
            units: units as u32,
        };
        step.start += units;
        step.units -= units;
        self.at += u8::from(step.units == 0);
        Some(command)
    }

    fn empty() -> Self {
        let none = Step {
            op: Op::Read,
            start: 0,
            units: 0,
        };
        Self {
            steps: [none; STEPS],
            len: 0,
            at: 0,
        }
    }

    fn push(&mut self, op: Op, start: u64, units: u64) {
        if units > 0 {
            self.steps[self.len as usize] = Step { op, start, units };
            self.len += 1;
        }
    }

    /// All units that a range touches.
    fn cover(&mut self, op: Op, offset: u64, len: u64) {
        let start = offset / UNIT_BYTES;
        let end = (offset + len).div_ceil(UNIT_BYTES);
        self.push(op, start, end - start);
    }

    /// Reads the units that a range covers in part, by one command when they are neighbours.
    fn read_ends(&mut self, offset: u64, len: u64) {
        match partial_units(offset, len) {
            [Some(first), Some(last)] if first + 1 == last => self.push(Op::Read, first, 2),
            ends => ends
                .into_iter()
                .flatten()
                .for_each(|unit| self.push(Op::Read, unit, 1)),
        }
    }
}

/// Whether a write has to be on the medium when it completes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Through(pub(super) bool);

fn write_op(through: bool) -> Op {
    if through { Op::WriteThrough } else { Op::Write }
}

/// First and last unit of a range, where it covers only a part of them.
fn partial_units(offset: u64, len: u64) -> [Option<u64>; 2] {
    let end = offset + len;
    let first = (!offset.is_multiple_of(UNIT_BYTES)).then_some(offset / UNIT_BYTES);
    let last = (!end.is_multiple_of(UNIT_BYTES)).then_some(end / UNIT_BYTES);
    match (first, last) {
        (Some(first), Some(last)) if first == last => [Some(first), None],
        ends => [ends.0, ends.1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(mut plan: Plan) -> Vec<(Op, u64, u32)> {
        std::iter::from_fn(|| plan.next(7))
            .map(|command| (command.op, command.start, command.units))
            .collect()
    }

    #[test]
    fn whole_units_take_one_command() {
        assert_eq!(commands(Plan::read(8192, 4096)), [(Op::Read, 2, 1)]);
        assert_eq!(commands(Plan::write(0, 8192, false)), [(Op::Write, 0, 2)]);
        assert_eq!(
            commands(Plan::write(0, 8192, true)),
            [(Op::WriteThrough, 0, 2)]
        );
        assert_eq!(
            commands(Plan::deallocate(4096, 12288)),
            [(Op::Deallocate, 1, 3)]
        );
        assert_eq!(commands(Plan::flush()), [(Op::Flush, 0, 1)]);
        assert_eq!(
            commands(Plan::compare(0, 4096, Some(Through(true)))),
            [(Op::Read, 0, 1), (Op::WriteThrough, 0, 1)]
        );
        assert_eq!(commands(Plan::compare(0, 4096, None)), [(Op::Read, 0, 1)]);
    }

    #[test]
    fn what_covers_a_unit_in_part_reads_it_first() {
        use Op::{Deallocate, Read, Write};
        let cases: [(u64, u64, &[_], &[_]); 5] = [
            // Within one unit.
            (
                512,
                512,
                &[(Read, 0, 1), (Write, 0, 1)],
                &[(Read, 0, 1), (Write, 0, 1)],
            ),
            // The end of one and the beginning of the next.
            (
                3584,
                1024,
                &[(Read, 0, 2), (Write, 0, 2)],
                &[(Read, 0, 2), (Write, 0, 1), (Write, 1, 1)],
            ),
            // From within one to the end of another.
            (
                512,
                7680,
                &[(Read, 0, 1), (Write, 0, 2)],
                &[(Read, 0, 1), (Write, 0, 1), (Deallocate, 1, 1)],
            ),
            // From the beginning of one into another.
            (
                4096,
                4608,
                &[(Read, 2, 1), (Write, 1, 2)],
                &[(Read, 2, 1), (Write, 2, 1), (Deallocate, 1, 1)],
            ),
            // From within one into another, with some in between.
            (
                512,
                16384,
                &[(Read, 0, 1), (Read, 4, 1), (Write, 0, 5)],
                &[
                    (Read, 0, 1),
                    (Read, 4, 1),
                    (Write, 0, 1),
                    (Write, 4, 1),
                    (Deallocate, 1, 3),
                ],
            ),
        ];
        for (offset, len, write, deallocate) in cases {
            assert_eq!(
                commands(Plan::write(offset, len, false)),
                write,
                "{offset} {len}"
            );
            assert_eq!(
                commands(Plan::deallocate(offset, len)),
                deallocate,
                "{offset} {len}"
            );
        }
    }

    #[test]
    fn long_ranges_come_in_pieces() {
        let units = 3 * PIECE + 5;
        let pieces = commands(Plan::deallocate(UNIT_BYTES, units * UNIT_BYTES));
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[3], (Op::Deallocate, 1 + 3 * PIECE, 5));
        let all: u64 = pieces.iter().map(|piece| u64::from(piece.2)).sum();
        assert_eq!(all, units);
    }
}
