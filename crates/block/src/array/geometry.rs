//! Where a byte of the array is: spans follow each other, each stripes over its sets, and the
//! members of a set have the same bytes at the same place. Pure.

use std::ops::Range;

use super::rows::{At, Rows, UNIT};

/// Bytes of a region where a member has at most [`MAX_REGIONS`] of them.
const REGION: u64 = 1 << 20;
/// Regions of a member at most; a larger member has larger regions.
const MAX_REGIONS: u64 = 1 << 24;
/// Bytes of a member before its region map: two copies of its superblock.
pub(super) const MAP_START: u64 = 2 << 20;
/// Bytes that follow each other on one set, unless there is one set only.
pub(super) const STRIPE: u64 = 128 << 10;
/// Spans of an array at most.
pub(super) const MAX_SPANS: usize = 32;
/// Members of an array at most, spares included.
pub(super) const MAX_MEMBERS: usize = 64;
/// Copies of a set at most; one more while a member is being replaced.
pub const MAX_COPIES: usize = 4;

/// Regions whose state stands in one sector of a region map.
pub(super) const REGIONS_PER_SECTOR: u64 = 1920;
/// Bytes of such a sector.
pub(super) const MAP_SECTOR: u64 = 512;

/// Sets of equal size, over which the data are striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// How many sets.
    pub(super) sets: u32,
    /// Bytes of data on each member, whole regions.
    pub(super) data: u64,
    /// Bytes of a region.
    pub(super) region: u64,
    /// How data and parity lie on the members of a set; nothing where members are copies.
    pub(super) rows: Option<Rows>,
}

/// All spans, in the order of the array's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) block_size: u32,
    pub(super) spans: Vec<Span>,
}

/// Bytes that lie together on a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Which set, counted over all spans.
    pub(super) set: usize,
    /// From which byte of the set's data on.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Span {
    /// The span of `sets` sets whose smallest member has so many bytes; none if that is too small.
    pub(super) fn of(sets: u32, member: u64) -> Option<Self> {
        let mut region = REGION;
        while member / region > MAX_REGIONS {
            region *= 2;
        }
        let mut regions = member.saturating_sub(MAP_START) / region;
        while regions > 0 && MAP_START + map_bytes(regions) + regions * region > member {
            regions -= 1;
        }
        let data = regions * region;
        (regions > 0 && sets > 0).then_some(Self {
            sets,
            data,
            region,
            rows: None,
        })
    }

    /// The span of a set with parity over so many members; none if they are too small.
    pub(super) fn of_rows(columns: usize, parity: usize, member: u64) -> Option<Self> {
        let span = Self::of(1, member)?;
        let rows = Rows::new(columns, parity, span.region);
        let rows = Some(rows).filter(|rows| rows.alike < span.data);
        rows.map(|rows| Self {
            rows: Some(rows),
            ..span
        })
    }

    /// The same behind another span: rows are all that it has, and follow on those before.
    pub(super) fn behind(self) -> Self {
        let rows = self.rows.map(|rows| Rows { alike: 0, ..rows });
        Self { rows, ..self }
    }

    /// Regions of each member.
    pub(super) fn regions(&self) -> u64 {
        self.data / self.region
    }

    /// Where the data of a member begin.
    pub(super) fn data_start(&self) -> u64 {
        MAP_START + map_bytes(self.regions())
    }

    /// Bytes that a member needs.
    pub(super) fn member_bytes(&self) -> u64 {
        self.data_start() + self.data
    }

    /// Bytes of all its sets.
    fn bytes(&self) -> u64 {
        match self.rows {
            Some(rows) => rows.bytes(self.data),
            None => self.data * u64::from(self.sets),
        }
    }

    /// Whether its numbers can be those of a span.
    pub(super) fn is_possible(&self) -> bool {
        let sizes = self.region.is_power_of_two() && (REGION..=1 << 40).contains(&self.region);
        let rows = self
            .rows
            .is_none_or(|rows| self.sets == 1 && rows.alike < self.data);
        sizes
            && rows
            && self.data > 0
            && self.data <= crate::MAX_BYTES
            && self.data.is_multiple_of(self.region)
            && self.regions() <= MAX_REGIONS
            && (1..=MAX_MEMBERS as u32).contains(&self.sets)
            && self.data.checked_mul(self.sets.into()).is_some()
    }
}

/// Bytes of a region map for so many regions, in whole mebibytes.
pub(super) fn map_bytes(regions: u64) -> u64 {
    (regions.div_ceil(REGIONS_PER_SECTOR) * MAP_SECTOR).next_multiple_of(1 << 20)
}

impl Geometry {
    /// Bytes of the array.
    pub(super) fn bytes(&self) -> u64 {
        self.spans.iter().map(Span::bytes).sum()
    }

    /// How its rows are, where there is parity: those of later spans follow on.
    pub(super) fn rows(&self) -> Option<Rows> {
        self.spans.first().and_then(|span| span.rows)
    }

    /// Sets of all spans.
    pub(super) fn sets(&self) -> usize {
        self.spans.iter().map(|span| span.sets as usize).sum()
    }

    /// The span of a set.
    pub(super) fn span_of(&self, set: usize) -> Option<Span> {
        let mut first = 0;
        self.spans.iter().copied().find(|span| {
            first += span.sets as usize;
            set < first
        })
    }

    /// The bytes of the array around those of a range of a set's members, with what lies on other
    /// sets between them; none for a set that is not there.
    pub(super) fn around(&self, set: usize, place: At) -> Option<Range<u64>> {
        let (mut start, mut first_set) = (0, 0);
        for span in &self.spans {
            first_set += span.sets as usize;
            if set < first_set {
                let end = place.at + place.bytes;
                return Some(start + span.before(place.at)..start + span.up_to(end));
            }
            start += span.bytes();
        }
        None
    }

    /// As many of `bytes` bytes from `at` on as lie together; none behind the end.
    pub(super) fn first_piece(&self, at: u64, bytes: u64) -> Option<Piece> {
        let (mut start, mut first_set) = (0, 0);
        for span in &self.spans {
            if at - start < span.bytes() {
                return Some(span.piece(first_set, at - start, bytes));
            }
            start += span.bytes();
            first_set += span.sets as usize;
        }
        None
    }

    /// All of `bytes` bytes from `at` on, one piece for each set of each span that has any: for
    /// I/O without data, since the bytes of a set follow each other there.
    pub(super) fn by_set(&self, at: u64, bytes: u64) -> Vec<Piece> {
        let (mut start, mut first_set) = (0, 0);
        let mut pieces = Vec::new();
        for span in &self.spans {
            let from = at.clamp(start, start + span.bytes()) - start;
            let to = (at + bytes).clamp(start, start + span.bytes()) - start;
            if span.rows.is_some() {
                let mut next = from;
                while next < to {
                    let piece = span.piece(first_set, next, to - next);
                    next += piece.bytes;
                    pieces.push(piece);
                }
                start += span.bytes();
                first_set += span.sets as usize;
                continue;
            }
            for set in 0..u64::from(span.sets) {
                let range = span.held(set, from)..span.held(set, to);
                if !range.is_empty() {
                    pieces.push(Piece {
                        set: first_set + set as usize,
                        at: range.start,
                        bytes: range.end - range.start,
                    });
                }
            }
            start += span.bytes();
            first_set += span.sets as usize;
        }
        pieces
    }
}

impl Span {
    fn piece(&self, first_set: usize, at: u64, bytes: u64) -> Piece {
        let sets = u64::from(self.sets);
        if sets == 1 {
            let bytes = match self.rows {
                Some(rows) => rows.together(at, bytes.min(self.bytes() - at)),
                None => bytes.min(self.data - at),
            };
            let set = first_set;
            return Piece { set, at, bytes };
        }
        let (stripe, inside) = (at / STRIPE, at % STRIPE);
        Piece {
            set: first_set + (stripe % sets) as usize,
            at: stripe / sets * STRIPE + inside,
            bytes: bytes.min(STRIPE - inside),
        }
    }

    /// Where in the span the stripes, or rows, begin that have a byte of its members.
    fn before(&self, at: u64) -> u64 {
        match self.rows {
            Some(rows) if at >= rows.alike => rows.bytes(at / UNIT * UNIT),
            Some(_) => at,
            None if self.sets == 1 => at,
            None => at / STRIPE * STRIPE * u64::from(self.sets),
        }
    }

    /// Where in the span the stripes, or rows, end that have a byte before `end` of its members.
    fn up_to(&self, end: u64) -> u64 {
        match self.rows {
            Some(rows) if end > rows.alike => rows.bytes(end.next_multiple_of(UNIT)),
            Some(_) => end,
            None if self.sets == 1 => end,
            None => end.next_multiple_of(STRIPE) * u64::from(self.sets),
        }
    }

    /// How many of the span's first `bytes` bytes are on a set.
    fn held(&self, set: u64, bytes: u64) -> u64 {
        let sets = u64::from(self.sets);
        if sets == 1 {
            return bytes;
        }
        let (stripe, inside) = (bytes / STRIPE, bytes % STRIPE);
        let (row, turn) = (stripe / sets, stripe % sets);
        row * STRIPE
            + match set.cmp(&turn) {
                std::cmp::Ordering::Less => STRIPE,
                std::cmp::Ordering::Equal => inside,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// The regions that a range of a set's data touches.
    pub(super) fn regions_of(&self, at: u64, bytes: u64) -> Range<usize> {
        (at / self.region) as usize..(at + bytes).div_ceil(self.region) as usize
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    fn some(rng: &mut Rng) -> Geometry {
        let spans = (0..=rng.below(3)).map(|_| {
            let (sets, member) = (1 + rng.below(4) as u32, (4 + rng.below(8)) << 20);
            Span::of(sets, member).expect("it has room")
        });
        Geometry {
            block_size: 4096,
            spans: spans.collect(),
        }
    }

    #[test]
    fn every_byte_has_one_place_and_every_place_one_byte() {
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            let geometry = some(&mut rng);
            let mut held: Vec<Vec<bool>> = (0..geometry.sets())
                .map(|set| {
                    let span = geometry.span_of(set).expect("a set has a span");
                    vec![false; (span.data / 4096) as usize]
                })
                .collect();
            let mut at = 0;
            while at < geometry.bytes() {
                let piece = geometry.first_piece(at, geometry.bytes() - at);
                let piece = piece.expect("it is before the end");
                for block in piece.at / 4096..(piece.at + piece.bytes) / 4096 {
                    let place = &mut held[piece.set][block as usize];
                    assert!(!std::mem::replace(place, true), "{piece:?}");
                }
                at += piece.bytes;
            }
            assert!(held.into_iter().flatten().all(|held| held));
            assert_eq!(geometry.first_piece(at, 1), None);
        }
    }

    #[test]
    fn what_lies_around_a_place_has_all_bytes_that_are_there() {
        let mut rng = Rng::new(3);
        for round in 0..500 {
            let mut geometry = some(&mut rng);
            if round % 2 == 0 {
                let (columns, parity) = [(3, 1), (5, 1), (4, 2)][rng.below(3) as usize];
                let member = (12 + rng.below(8)) << 20;
                let span = Span::of_rows(columns, parity, member).expect("it has room");
                geometry.spans = vec![span];
            }
            let from = rng.below(geometry.bytes() / 4096) * 4096;
            let piece = geometry.first_piece(from, 1 + rng.below(1 << 20));
            let piece = piece.expect("it is before the end");
            let place = At {
                at: piece.at,
                bytes: piece.bytes,
            };
            let rows = geometry.rows().filter(|rows| place.at >= rows.alike);
            let place = rows.map_or(place, |rows| rows.stretch(place));
            let around = geometry.around(piece.set, place).expect("there is the set");
            assert!(around.start <= from && from + piece.bytes <= around.end);
            assert!(around.end <= geometry.bytes(), "{around:?} of {geometry:?}");
            assert_eq!(geometry.around(geometry.sets(), place), None);
        }
    }

    #[test]
    fn by_sets_is_the_same_as_by_pieces() {
        let mut rng = Rng::new(2);
        for _ in 0..500 {
            let geometry = some(&mut rng);
            let blocks = geometry.bytes() / 4096;
            let from = rng.below(blocks);
            let (from, bytes) = (from * 4096, rng.below(blocks - from + 1) * 4096);
            let mut by_piece = vec![0u64; geometry.sets()];
            let (mut at, mut first) = (from, vec![None; geometry.sets()]);
            while at < from + bytes {
                let piece = geometry.first_piece(at, from + bytes - at).expect("inside");
                by_piece[piece.set] += piece.bytes;
                first[piece.set].get_or_insert(piece.at);
                at += piece.bytes;
            }
            let mut by_set = vec![0u64; geometry.sets()];
            for piece in geometry.by_set(from, bytes) {
                by_set[piece.set] = piece.bytes;
                assert_eq!(first[piece.set], Some(piece.at));
            }
            assert_eq!(by_piece, by_set);
        }
    }

    #[test]
    fn a_member_has_room_for_what_it_says() {
        for member in [3 << 20, (4 << 20) - 1, 4 << 20, 1 << 30, 1 << 40, 1 << 50] {
            match Span::of(2, member) {
                None => assert!(member < 4 << 20),
                Some(span) => {
                    assert!(span.is_possible(), "{span:?}");
                    assert!(span.member_bytes() <= member);
                    assert!(member - span.member_bytes() < 2 * span.region + (1 << 20));
                }
            }
        }
    }
}
