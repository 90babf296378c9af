//! Where a physical unit lies: a profile's geometry at a given capacity.
//!
//! Physical units are numbered in the order in which they are written. A superblock is a block of
//! every die; it is written row by row, where a row is one program of every die. Within a row the
//! lower pages of all dies come first, then the middle and the upper ones, so a cell - one page of
//! all planes of one die - is followed by a cell of the next die.
//!
//! A smaller drive keeps dies, times, buffer and the fractions of spare and reserved flash, and has
//! fewer programs per block. An erase then costs its full time only once for as many blocks as
//! make a real one.

use core::ops::Range;

use super::BuildError;
use crate::{Profile, ProfileError, UNIT_BYTES};

/// Blocks are shrunk until there are this many superblocks: with fewer the reserve eats into the
/// spare flash.
const WANTED_SUPERBLOCKS: u64 = 600;
/// Superblocks that are reserved at least: one to write into, one to collect into, one under erase
/// and one more.
const LEAST_RESERVE: u64 = 4;
/// Superblocks' worth of capacity without which there is nothing to collect.
const LEAST_LOGICAL: u64 = 16;

/// The geometry of a drive, in units unless it says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub dies: u32,
    pub types: u32,
    pub pages_per_program: u32,
    pub cell_units: u32,
    /// Units of one program.
    pub program_units: u32,
    pub superblock_units: u32,
    pub superblocks: u32,
    /// Superblocks that are kept free.
    pub reserve: u32,
    pub logical: u32,
    /// Of so many superblocks erased, one takes the time of an erase.
    pub erase_dilution: u32,
    cell_shift: u32,
    by_dies: Divisor,
    by_types: Divisor,
    by_pages: Divisor,
}

/// A number to divide by often: division by multiplication with the reciprocal, exact for 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    by: u32,
    /// 2^64 divided by the number, rounded up.
    reciprocal: u64,
}

/// A place on a die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub die: u32,
    pub page_type: u8,
}

impl Layout {
    pub fn new(profile: &Profile, capacity: u64) -> Result<Self, BuildError> {
        profile.check().map_err(BuildError::Profile)?;
        let row = profile.row_bytes() / UNIT_BYTES;
        let logical = capacity / UNIT_BYTES;
        let (least, most) = (row * LEAST_LOGICAL * UNIT_BYTES, 8 << 40);
        if !capacity.is_multiple_of(UNIT_BYTES) || !(least..=most).contains(&capacity) {
            return Err(BuildError::Capacity { least, most });
        }
        let physical = u64::try_from(
            u128::from(logical) * u128::from(1_000_000 + profile.spare_ppm) / 1_000_000,
        )
        .expect("at most 11 times 8 TiB");
        let mut rows = profile.programs_per_block;
        while rows > 1 && physical / (row * rows) < WANTED_SUPERBLOCKS {
            rows /= 2;
        }
        let superblock = row * rows;
        let wanted = physical.div_ceil(superblock);
        let fraction = (wanted * profile.reserve_ppm).div_ceil(1_000_000);
        // What the least reserve adds is added to the flash, so that the spare flash stays what it
        // was.
        let superblocks = wanted + LEAST_RESERVE.saturating_sub(fraction);
        let total = superblocks * superblock;
        // Both write points may be open while the reserve is still free.
        let usable = superblocks.saturating_sub(fraction.max(LEAST_RESERVE) + 2) * superblock;
        if usable < logical {
            return Err(BuildError::Profile(ProfileError::Conflict {
                field: "reserve_ppm",
                value: profile.reserve_ppm,
                bound: "so small, or spare flash or capacity so large, that the rest of the flash holds the capacity",
            }));
        }
        if total >= u64::from(u32::MAX) {
            return Err(BuildError::Capacity { least, most });
        }
        let dies = (profile.channels * profile.dies_per_channel) as u32;
        let cell_units = (profile.planes * profile.page_bytes / UNIT_BYTES) as u32;
        Ok(Self {
            dies,
            by_dies: Divisor::new(dies),
            by_types: Divisor::new(profile.page_types as u32),
            by_pages: Divisor::new(profile.pages_per_program as u32),
            cell_shift: cell_units.trailing_zeros(),
            types: profile.page_types as u32,
            pages_per_program: profile.pages_per_program as u32,
            cell_units,
            program_units: (profile.planes * profile.page_bytes * profile.pages_per_program
                / UNIT_BYTES) as u32,
            superblock_units: superblock as u32,
            superblocks: superblocks as u32,
            reserve: fraction.max(LEAST_RESERVE) as u32,
            logical: logical as u32,
            erase_dilution: (profile.programs_per_block / rows) as u32,
        })
    }

    /// Units of all superblocks.
    pub fn physical(&self) -> u32 {
        self.superblocks * self.superblock_units
    }

    /// Units of one program of every die.
    pub fn row_units(&self) -> u32 {
        self.dies * self.program_units
    }

    /// Whether `unit` is the first of a row.
    pub fn begins_row(&self, unit: u32) -> bool {
        unit & (self.cell_units - 1) == 0 && unit.is_multiple_of(self.row_units())
    }

    /// Units of the rows that share their cells: more than one row where pages of different types
    /// are programmed one at a time.
    pub fn group_units(&self) -> u32 {
        self.types / self.pages_per_program * self.row_units()
    }

    /// Whether `next` is the first unit after a group of rows that share their cells.
    pub fn ends_group(&self, next: u32) -> bool {
        next.is_multiple_of(self.group_units()) || next.is_multiple_of(self.superblock_units)
    }

    /// The first unit of the group that `unit` is in.
    pub fn group_start(&self, unit: u32) -> u32 {
        let superblock = unit / self.superblock_units * self.superblock_units;
        (unit / self.group_units() * self.group_units()).max(superblock)
    }

    /// The cell of `unit`, counted over all superblocks.
    pub fn cell_number(&self, unit: u32) -> u32 {
        unit >> self.cell_shift
    }

    pub fn cell(&self, unit: u32) -> Cell {
        let cell = self.cell_number(unit);
        let page = self.by_dies.divide(cell);
        Cell {
            die: cell - page * self.dies,
            page_type: (page - self.by_types.divide(page) * self.types) as u8,
        }
    }

    /// The program that holds `unit`, counted over all superblocks.
    pub fn program(&self, unit: u32) -> u32 {
        let cell = self.cell_number(unit);
        let page = self.by_dies.divide(cell);
        self.by_pages.divide(page) * self.dies + cell - page * self.dies
    }

    /// The programs of a row, which is counted over all superblocks.
    pub fn programs_of(&self, row: u32) -> Range<u32> {
        row * self.dies..(row + 1) * self.dies
    }

    /// The units that a program writes.
    pub fn units_of(&self, program: u32) -> impl Iterator<Item = u32> {
        let (row, die) = (program / self.dies, program % self.dies);
        let (pages, cell_units) = (self.pages_per_program, self.cell_units);
        let first_cell = row * pages * self.dies + die;
        let dies = self.dies;
        (0..pages).flat_map(move |page| {
            let first = (first_cell + page * dies) * cell_units;
            first..first + cell_units
        })
    }

    /// The programs whose lower pages lie in the cells of `program`, of an upper one; none where
    /// all are programmed at once.
    pub fn sharing_cells(&self, program: u32) -> impl Iterator<Item = u32> {
        let row = program / self.dies;
        let in_superblock = row % (self.superblock_units / self.row_units());
        let below = u32::from(self.program_type(program)).min(in_superblock);
        let dies = self.dies;
        (1..=below).map(move |below| program - below * dies)
    }

    /// The page type of the first page of program `program`.
    pub fn program_type(&self, program: u32) -> u8 {
        (program / self.dies * self.pages_per_program % self.types) as u8
    }

    /// The program that is complete once the unit before `next` is written; only at the end of
    /// the last cell of a die in a row.
    pub fn completed_by(&self, next: u32) -> Option<u32> {
        if next & (self.cell_units - 1) != 0 {
            return None;
        }
        let page = self.by_dies.divide(self.cell_number(next - 1));
        (page % self.pages_per_program == self.pages_per_program - 1)
            .then(|| self.program(next - 1))
    }
}

impl Divisor {
    pub fn new(by: u32) -> Self {
        assert!(by > 0, "nothing is divided by zero");
        Self {
            by,
            reciprocal: (u64::MAX / u64::from(by)).wrapping_add(1),
        }
    }

    pub fn by(self) -> u32 {
        self.by
    }

    /// `number` divided by the divisor, rounded down.
    pub fn divide(self, number: u32) -> u32 {
        // Only the reciprocal of one does not fit, and is zero.
        if self.reciprocal == 0 {
            return number;
        }
        ((u128::from(self.reciprocal) * u128::from(number)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(name: &str, gib: u64) -> Layout {
        Layout::new(&Profile::named(name).expect("it ships"), gib << 30).expect("it fits")
    }

    #[test]
    fn capacity_changes_the_blocks_and_nothing_else() {
        for (gib, dilution) in [(4, 128), (8, 64), (16, 32), (32, 16)] {
            let layout = layout("dct983", gib);
            assert_eq!((layout.superblocks, layout.reserve), (765, 8), "{gib} GiB");
            assert_eq!(layout.erase_dilution, dilution);
        }
        assert_eq!(layout("dct983", 894).erase_dilution, 1);
    }

    #[test]
    fn units_follow_the_stripe() {
        let layout = layout("dct983", 8);
        let place = |unit| {
            let cell = layout.cell(unit);
            (cell.die, cell.page_type, layout.program(unit))
        };
        assert_eq!(place(7), (0, 0, 0));
        assert_eq!(place(8), (1, 0, 1));
        assert_eq!(place(256), (0, 1, 0), "the middle page of the same program");
        assert_eq!(place(767), (31, 2, 31));
        assert_eq!(place(768), (0, 0, 32), "the next row");
        assert_eq!(layout.completed_by(256), None);
        assert_eq!(layout.completed_by(520), Some(0));
        assert_eq!(layout.completed_by(521), None);
        assert_eq!(layout.completed_by(768), Some(31));
    }

    #[test]
    fn pages_programmed_one_at_a_time_change_type_from_row_to_row() {
        let layout = layout("970pro", 8);
        assert_eq!(layout.completed_by(8), Some(0));
        assert_eq!((layout.program_type(15), layout.program_type(16)), (0, 1));
        assert_eq!(
            (layout.cell(0).page_type, layout.cell(16 * 8).page_type),
            (0, 1)
        );
    }

    #[test]
    fn division_is_exact() {
        for by in [1, 2, 3, 7, 32, 768, 3072, 65_537, 1 << 31, u32::MAX] {
            for number in [
                0,
                1,
                by - 1,
                by,
                by.saturating_add(1),
                12_345_678,
                u32::MAX - 1,
                u32::MAX,
            ] {
                assert_eq!(
                    Divisor::new(by).divide(number),
                    number / by,
                    "{number} / {by}"
                );
            }
        }
    }

    #[test]
    fn capacities_without_sense_are_refused() {
        let profile = Profile::named("dct983").expect("it ships");
        for capacity in [0, 4096, (1 << 30) + 1, 1 << 60, u64::MAX] {
            let refused = Layout::new(&profile, capacity);
            assert!(
                matches!(refused, Err(BuildError::Capacity { .. })),
                "{capacity}"
            );
        }
    }
}
