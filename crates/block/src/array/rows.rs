//! Rows of a set with parity: blocks at the same place of all members, some of data and the others
//! of their parity. Pure.
//!
//! The first set of an array begins with a part that all members have alike, for what is
//! overwritten in place. Behind it come rows, which are all that other sets have. Each member has a
//! **column**, given for good. What a column holds in a row, its **role**, turns by one with each
//! group of rows: the roles are the data in their order, then P, then Q.

/// Bytes of a member's part of a row: what is read alone.
pub(super) const UNIT: u64 = 4096;
/// Bytes of a member in which roles do not turn. Regions are no smaller.
const GROUP: u64 = 1 << 20;
/// Bytes at the beginning of a member that all have alike, where regions are not larger.
const ALIKE: u64 = 4 << 20;
/// Members of a set with parity at most.
pub const MAX_COLUMNS: usize = 16;

/// Where an I/O is in the data of a set or of its members, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) columns: usize,
    pub(super) parity: usize,
    /// Bytes that all members have alike.
    pub(super) alike: u64,
}

impl Rows {
    /// Rows over so many members whose regions have so many bytes.
    pub(super) fn new(columns: usize, parity: usize, region: u64) -> Self {
        Self {
            columns,
            parity,
            alike: ALIKE.max(region),
        }
    }

    /// Whether rows can be over so many members: two have data at least.
    pub(super) fn is_possible(columns: usize, parity: usize) -> bool {
        (1..=2).contains(&parity) && (parity + 2..=MAX_COLUMNS).contains(&columns)
    }

    /// Columns with data, which are as many as are needed.
    pub(super) fn data(&self) -> usize {
        self.columns - self.parity
    }

    /// Bytes that members read for a range: each that has some of it reads the whole stretch.
    pub(super) fn read_for(&self, at: At) -> u64 {
        let mut roles = 0u32;
        for (role, ..) in self.pieces(at) {
            roles |= 1 << role;
        }
        u64::from(roles.count_ones()) * self.stretch(at).bytes
    }

    /// Bytes of data in a row.
    pub(super) fn row(&self) -> u64 {
        self.data() as u64 * UNIT
    }

    /// Bytes of a set whose members have so many each.
    pub(super) fn bytes(&self, member: u64) -> u64 {
        self.alike + (member - self.alike) * self.data() as u64
    }

    /// The column that has a role at a place of the members.
    pub(super) fn column(&self, at: u64, role: usize) -> usize {
        (role + (at / GROUP) as usize) % self.columns
    }

    /// The role of a column at a place of the members.
    pub(super) fn role(&self, at: u64, column: usize) -> usize {
        let turned = (at / GROUP) as usize % self.columns;
        (column + self.columns - turned) % self.columns
    }

    /// How many of `bytes` bytes from a byte of the set on are in one part or group.
    pub(super) fn together(&self, at: u64, bytes: u64) -> u64 {
        if at < self.alike {
            return bytes.min(self.alike - at);
        }
        let group = GROUP * self.data() as u64;
        bytes.min(group - (at - self.alike) % group)
    }

    /// The place on each member of the rows that a range of the set touches.
    pub(super) fn stretch(&self, range: At) -> At {
        let from = range.at - self.alike;
        let (first, end) = (from / self.row(), (from + range.bytes).div_ceil(self.row()));
        At {
            at: self.alike + first * UNIT,
            bytes: (end - first) * UNIT,
        }
    }

    /// Whether a range of the set is whole rows.
    pub(super) fn is_whole(&self, range: At) -> bool {
        let from = range.at - self.alike;
        from.is_multiple_of(self.row()) && range.bytes.is_multiple_of(self.row())
    }

    /// The pieces of a range of the set in order: their roles, bytes from the stretch's start on,
    /// and lengths.
    pub(super) fn pieces(&self, range: At) -> impl Iterator<Item = (usize, usize, usize)> {
        let rows = *self;
        let from = range.at - rows.alike;
        let (start, end) = (from % rows.row(), from % rows.row() + range.bytes);
        let mut at = start;
        std::iter::from_fn(move || {
            let left = end - at;
            let (block, inside) = (at / UNIT, at % UNIT);
            let bytes = left.min(UNIT - inside);
            let data = rows.data() as u64;
            let (row, role) = (block / data, block % data);
            at += bytes;
            (bytes > 0).then_some((
                role as usize,
                (row * UNIT + inside) as usize,
                bytes as usize,
            ))
        })
    }

    /// The ways to compute what a column holds without reading it, where some are missing: each is
    /// the columns that are left out beside it and those.
    pub(super) fn ways(&self, column: usize, missing: &[usize]) -> Vec<Option<usize>> {
        let gone = missing.len() + usize::from(!missing.contains(&column));
        match self.parity.checked_sub(gone) {
            None => Vec::new(),
            Some(0) => vec![None],
            Some(_) => {
                let others = 0..self.columns;
                let others = others.filter(|it| *it != column && !missing.contains(it));
                others.map(Some).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    fn all() -> impl Iterator<Item = Rows> {
        (1..=2).flat_map(|parity| {
            (parity + 2..=MAX_COLUMNS).map(move |columns| Rows::new(columns, parity, 1 << 20))
        })
    }

    #[test]
    fn every_byte_has_one_place_and_every_place_of_data_one_byte() {
        for rows in all() {
            let member = rows.alike + 3 * GROUP;
            let blocks = member / UNIT;
            let mut held = vec![0u8; rows.columns * blocks as usize];
            let mut at = rows.alike;
            while at < rows.bytes(member) {
                let bytes = rows.together(at, rows.bytes(member) - at);
                let range = At { at, bytes };
                let stretch = rows.stretch(range);
                assert!(rows.is_whole(range), "{range:?}");
                assert_eq!(stretch.at / GROUP, (stretch.at + stretch.bytes - 1) / GROUP);
                for (role, from, bytes) in rows.pieces(range) {
                    assert!(role < rows.data() && bytes == UNIT as usize);
                    let place = stretch.at + from as u64;
                    let column = rows.column(place, role);
                    assert_eq!(rows.role(place, column), role);
                    held[column * blocks as usize + (place / UNIT) as usize] += 1;
                }
                at += bytes;
            }
            for place in (rows.alike..member).step_by(UNIT as usize) {
                for column in 0..rows.columns {
                    let held = held[column * blocks as usize + (place / UNIT) as usize];
                    assert_eq!(held == 1, rows.role(place, column) < rows.data());
                    assert!(held <= 1);
                }
            }
            assert!(
                held.iter().map(|held| u64::from(*held)).sum::<u64>() * UNIT == at - rows.alike
            );
        }
    }

    #[test]
    fn parts_of_a_range_are_its_bytes_in_order() {
        let mut rng = Rng::new(3);
        for rows in all() {
            for _ in 0..50 {
                let at = rows.alike + rng.below(GROUP * rows.data() as u64);
                let bytes = rows.together(at, 1 + rng.below(300_000));
                let range = At { at, bytes };
                let stretch = rows.stretch(range);
                let sum: usize = rows.pieces(range).map(|(_, _, bytes)| bytes).sum();
                assert_eq!(sum as u64, bytes);
                let mut next = at;
                for (role, from, bytes) in rows.pieces(range) {
                    assert!(from + bytes <= stretch.bytes as usize, "inside the stretch");
                    let row = (stretch.at - rows.alike + from as u64) / UNIT;
                    let inside = from as u64 % UNIT;
                    let byte = rows.alike + row * rows.row() + role as u64 * UNIT + inside;
                    assert_eq!(byte, next);
                    next += bytes as u64;
                }
            }
        }
    }

    #[test]
    fn what_is_left_out_is_never_more_than_parity_bears() {
        for rows in all() {
            for column in 0..rows.columns {
                let others = (0..rows.columns).filter(|it| *it != column);
                let missing = others
                    .map(|other| vec![other])
                    .chain([vec![], vec![column]]);
                for missing in missing {
                    let ways = rows.ways(column, &missing);
                    let gone = missing.len() + usize::from(!missing.contains(&column));
                    assert_eq!(ways.is_empty(), gone > rows.parity);
                    for way in &ways {
                        assert_eq!(gone + usize::from(way.is_some()), rows.parity);
                        assert!(way.is_none_or(|way| way != column && !missing.contains(&way)));
                    }
                }
            }
        }
    }
}
