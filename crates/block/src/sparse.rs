//! Bytes of a large address space of which only what was written takes memory.

use crate::IoError;

/// Memory is taken and given back in pieces of this size, in bytes, unless another is asked for.
pub const EXTENT: usize = 64 * 1024;

/// Extents per table.
const TABLE: usize = 1024;

type Extent = Option<Box<[u8]>>;

/// Two levels of tables over extents. Positions and lengths are in bytes; the caller keeps them
/// inside its size.
#[derive(Debug)]
pub struct Sparse {
    tables: Vec<Option<Box<[Extent]>>>,
    extents: usize,
    /// Bytes of an extent, as a power of two.
    extent_bits: u32,
}

impl Default for Sparse {
    fn default() -> Self {
        Self::with_extents(EXTENT)
    }
}

impl Sparse {
    /// Nothing written; memory will be taken in pieces of `extent` bytes, a power of two.
    pub fn with_extents(extent: usize) -> Self {
        assert!(
            extent.is_power_of_two(),
            "positions are divided by shifting"
        );
        Self {
            tables: Vec::new(),
            extents: 0,
            extent_bits: extent.ilog2(),
        }
    }

    /// Bytes of memory its extents take.
    pub fn allocated(&self) -> u64 {
        (self.extents as u64) << self.extent_bits
    }

    /// Whether nothing was ever written (or all of it was freed) in the extents that the range
    /// touches.
    pub fn is_unwritten(&self, position: u64, len: usize) -> bool {
        self.pieces(position, len as u64)
            .all(|piece| self.extent(piece.index).is_none())
    }

    /// Copies what is there, zeroes where nothing is, to all of `target`.
    pub fn read(&self, position: u64, target: &mut [u8]) {
        let mut rest = target;
        for piece in self.pieces(position, rest.len() as u64) {
            let (target, behind) = rest.split_at_mut(piece.len);
            match self.extent(piece.index) {
                Some(extent) => {
                    target.copy_from_slice(&extent[piece.start..piece.start + piece.len]);
                }
                None => target.fill(0),
            }
            rest = behind;
        }
    }

    /// Shows the range piece by piece, each with its length, and nothing where nothing is; false
    /// when `show` is false for one, which then is the last.
    pub fn each(
        &self,
        position: u64,
        len: usize,
        mut show: impl FnMut(Option<&[u8]>, usize) -> bool,
    ) -> bool {
        self.pieces(position, len as u64).all(|piece| {
            let extent = self.extent(piece.index);
            let bytes = extent.map(|extent| &extent[piece.start..piece.start + piece.len]);
            show(bytes, piece.len)
        })
    }

    /// Has the range filled piece by piece; errors as of [`Self::write`], false as of
    /// [`Self::each`].
    pub fn each_for_write(
        &mut self,
        position: u64,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, IoError> {
        for piece in self.pieces(position, len as u64) {
            let extent = self.extent_for_write(piece.index)?;
            if !fill(&mut extent[piece.start..piece.start + piece.len]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the content equals `expected`.
    pub fn equals(&self, position: u64, expected: &[u8]) -> bool {
        let mut rest = expected;
        self.pieces(position, expected.len() as u64).all(|piece| {
            let (expected, behind) = rest.split_at(piece.len);
            rest = behind;
            match self.extent(piece.index) {
                Some(extent) => extent[piece.start..piece.start + piece.len] == *expected,
                None => expected.iter().all(|&byte| byte == 0),
            }
        })
    }

    /// Stores `source`. [`IoError::NoSpace`] when memory has run out; a part may be stored then.
    pub fn write(&mut self, position: u64, source: &[u8]) -> Result<(), IoError> {
        let size = 1 << self.extent_bits;
        let mut rest = source;
        for piece in self.pieces(position, source.len() as u64) {
            let (source, behind) = rest.split_at(piece.len);
            match self.place(piece.index)? {
                (Some(extent), _) => {
                    extent[piece.start..piece.start + piece.len].copy_from_slice(source);
                }
                (empty, extents) => {
                    *empty = Some(around(size, piece.start, source)?);
                    *extents += 1;
                }
            }
            rest = behind;
        }
        Ok(())
    }

    /// Makes a range read as zeroes; `free` gives the memory of whole extents back.
    pub fn zero(&mut self, position: u64, len: u64, free: bool) {
        let table_bytes = self.table_bytes();
        let end = (position + len).min(self.tables.len() as u64 * table_bytes);
        let mut at = position;
        while at < end {
            let table_end = (at / table_bytes + 1).saturating_mul(table_bytes).min(end);
            self.zero_in_table(at, table_end - at, free);
            at = table_end;
        }
    }

    fn zero_in_table(&mut self, position: u64, len: u64, free: bool) {
        let (whole, whole_table) = (1 << self.extent_bits, self.table_bytes());
        let pieces = self.pieces(position, len);
        let slot = (position / whole_table) as usize;
        let Some(Some(table)) = self.tables.get_mut(slot) else {
            return;
        };
        for piece in pieces {
            let extent = &mut table[piece.index as usize % TABLE];
            if let Some(bytes) = extent {
                if free && piece.len == whole {
                    *extent = None;
                    self.extents -= 1;
                } else {
                    bytes[piece.start..piece.start + piece.len].fill(0);
                }
            }
        }
        if free && len == whole_table {
            self.tables[slot] = None;
        }
    }

    fn extent(&self, index: u64) -> Option<&[u8]> {
        let table = self.tables.get(index as usize / TABLE)?.as_ref()?;
        table[index as usize % TABLE].as_deref()
    }

    fn extent_for_write(&mut self, index: u64) -> Result<&mut [u8], IoError> {
        let size = 1 << self.extent_bits;
        match self.place(index)? {
            (Some(extent), _) => Ok(extent),
            (empty, extents) => {
                let extent = empty.insert(filled(size, || 0)?);
                *extents += 1;
                Ok(extent)
            }
        }
    }

    /// Where an extent is, or will be, and how many there are.
    fn place(&mut self, index: u64) -> Result<(&mut Extent, &mut usize), IoError> {
        let slot = index as usize / TABLE;
        if slot >= self.tables.len() {
            let missing = slot + 1 - self.tables.len();
            self.tables
                .try_reserve(missing)
                .map_err(|_| IoError::NoSpace)?;
            self.tables.resize_with(slot + 1, || None);
        }
        let table = match &mut self.tables[slot] {
            Some(table) => table,
            empty => empty.insert(filled(TABLE, || None)?),
        };
        Ok((&mut table[index as usize % TABLE], &mut self.extents))
    }

    /// Bytes that one table covers.
    fn table_bytes(&self) -> u64 {
        (TABLE as u64) << self.extent_bits
    }

    /// The parts of a range, extent by extent.
    fn pieces(&self, position: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let bits = self.extent_bits;
        let end = position + len;
        let mut at = position;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let index = at >> bits;
            let len = end.min((index + 1) << bits) - at;
            let piece = Piece {
                index,
                start: (at - (index << bits)) as usize,
                len: len as usize,
            };
            at += len;
            Some(piece)
        })
    }
}

/// A part of a range that lies in one extent.
struct Piece {
    index: u64,
    start: usize,
    len: usize,
}

/// Memory that may be refused, unlike `vec![]`'s.
fn filled<T>(len: usize, value: impl FnMut() -> T) -> Result<Box<[T]>, IoError> {
    let mut items = Vec::new();
    items.try_reserve_exact(len).map_err(|_| IoError::NoSpace)?;
    items.resize_with(len, value);
    Ok(items.into_boxed_slice())
}

/// An extent that has some bytes, and zeroes before and behind them: what is filled at once is not
/// zeroed first.
fn around(size: usize, start: usize, bytes: &[u8]) -> Result<Box<[u8]>, IoError> {
    let mut extent = Vec::new();
    extent
        .try_reserve_exact(size)
        .map_err(|_| IoError::NoSpace)?;
    extent.resize(start, 0);
    extent.extend_from_slice(bytes);
    extent.resize(size, 0);
    Ok(extent.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const TABLE_BYTES: u64 = (TABLE * EXTENT) as u64;

    #[test]
    fn behaves_as_one_large_array() {
        const SIZE: u64 = 5 * EXTENT as u64;
        // The array lies across the border of two tables.
        const BASE: u64 = TABLE_BYTES - 2 * EXTENT as u64;
        for extent in [EXTENT, EXTENT / 16] {
            compare(Sparse::with_extents(extent), BASE, SIZE);
        }
    }

    fn compare(mut sparse: Sparse, base: u64, size: u64) {
        let mut rng = Rng::new(7);
        let mut model = vec![0u8; size as usize];
        for _ in 0..2000 {
            let start = rng.below(size);
            let len = rng.below((size - start).min(2 * EXTENT as u64) + 1);
            let range = start as usize..(start + len) as usize;
            match rng.below(4) {
                0 => {
                    model[range.clone()].fill(rng.below(256) as u8);
                    sparse.write(base + start, &model[range]).unwrap();
                }
                1 => {
                    model[range].fill(0);
                    sparse.zero(base + start, len, rng.below(2) == 0);
                }
                2 => assert!(sparse.equals(base + start, &model[range])),
                _ => {
                    let mut read = vec![1; len as usize];
                    sparse.read(base + start, &mut read);
                    assert_eq!(read, model[range.clone()]);
                    if sparse.is_unwritten(base + start, len as usize) {
                        assert!(model[range].iter().all(|&byte| byte == 0));
                    }
                }
            }
        }
    }

    #[test]
    fn memory_is_taken_on_write_and_given_back_when_freed() {
        let mut sparse = Sparse::default();
        assert!(sparse.is_unwritten(1 << 40, 1 << 20));
        sparse.write((1 << 40) - 1, &[1, 2]).unwrap();
        assert_eq!(sparse.allocated(), 2 * EXTENT as u64);
        sparse.zero(0, 1 << 39, true);
        assert_eq!(sparse.allocated(), 2 * EXTENT as u64);
        sparse.zero((1 << 40) - 1, 2, true);
        assert_eq!(
            sparse.allocated(),
            2 * EXTENT as u64,
            "a part of an extent cannot be freed"
        );
        sparse.zero(0, 1 << 41, true);
        assert_eq!(sparse.allocated(), 0);
        assert!(sparse.is_unwritten((1 << 40) - 1, 2));
    }
}
