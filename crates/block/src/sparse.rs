//! Bytes of a large address space of which only what was written takes memory.

use crate::IoError;

/// Memory is taken and given back in pieces of this size, in bytes.
pub(crate) const EXTENT: usize = 64 * 1024;

/// Extents per table.
const TABLE: usize = 1024;
const TABLE_BYTES: u64 = (TABLE * EXTENT) as u64;

type Extent = Option<Box<[u8]>>;

/// Two levels of tables over extents. Positions and lengths are in bytes; the caller keeps them inside its size.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    tables: Vec<Option<Box<[Extent]>>>,
    extents: usize,
}

impl Sparse {
    /// Bytes of memory its extents take.
    pub(crate) fn allocated(&self) -> u64 {
        (self.extents * EXTENT) as u64
    }

    /// Whether nothing was ever written (or all of it was freed) in the extents that the range touches.
    pub(crate) fn is_unwritten(&self, position: u64, len: usize) -> bool {
        pieces(position, len as u64).all(|piece| self.extent(piece.index).is_none())
    }

    /// Copies what is there, zeroes where nothing is, to all of `target`.
    pub(crate) fn read(&self, position: u64, target: &mut [u8]) {
        let mut rest = target;
        for piece in pieces(position, rest.len() as u64) {
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

    /// Whether the content equals `expected`.
    pub(crate) fn equals(&self, position: u64, expected: &[u8]) -> bool {
        let mut rest = expected;
        pieces(position, expected.len() as u64).all(|piece| {
            let (expected, behind) = rest.split_at(piece.len);
            rest = behind;
            match self.extent(piece.index) {
                Some(extent) => extent[piece.start..piece.start + piece.len] == *expected,
                None => expected.iter().all(|&byte| byte == 0),
            }
        })
    }

    /// Stores `source`. [`IoError::NoSpace`] when memory has run out; a part may be stored then.
    pub(crate) fn write(&mut self, position: u64, source: &[u8]) -> Result<(), IoError> {
        let mut rest = source;
        for piece in pieces(position, source.len() as u64) {
            let (source, behind) = rest.split_at(piece.len);
            let extent = self.extent_for_write(piece.index)?;
            extent[piece.start..piece.start + piece.len].copy_from_slice(source);
            rest = behind;
        }
        Ok(())
    }

    /// Makes a range read as zeroes; `free` gives the memory of whole extents back.
    pub(crate) fn zero(&mut self, position: u64, len: u64, free: bool) {
        let end = position + len;
        let mut at = position;
        while at < end {
            let table_end = (at / TABLE_BYTES + 1).saturating_mul(TABLE_BYTES).min(end);
            self.zero_in_table(at, table_end - at, free);
            at = table_end;
        }
    }

    fn zero_in_table(&mut self, position: u64, len: u64, free: bool) {
        let slot = (position / TABLE_BYTES) as usize;
        let Some(Some(table)) = self.tables.get_mut(slot) else {
            return;
        };
        for piece in pieces(position, len) {
            let extent = &mut table[piece.index as usize % TABLE];
            if let Some(bytes) = extent {
                if free && piece.len == EXTENT {
                    *extent = None;
                    self.extents -= 1;
                } else {
                    bytes[piece.start..piece.start + piece.len].fill(0);
                }
            }
        }
        if free && len == TABLE_BYTES {
            self.tables[slot] = None;
        }
    }

    fn extent(&self, index: u64) -> Option<&[u8]> {
        let table = self.tables.get(index as usize / TABLE)?.as_ref()?;
        table[index as usize % TABLE].as_deref()
    }

    fn extent_for_write(&mut self, index: u64) -> Result<&mut [u8], IoError> {
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
        match &mut table[index as usize % TABLE] {
            Some(extent) => Ok(extent),
            empty => {
                let extent = empty.insert(filled(EXTENT, || 0)?);
                self.extents += 1;
                Ok(extent)
            }
        }
    }
}

/// A part of a range that lies in one extent.
struct Piece {
    index: u64,
    start: usize,
    len: usize,
}

fn pieces(position: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = position + len;
    let mut at = position;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % EXTENT as u64) as usize;
        let len = (end - at).min((EXTENT - start) as u64) as usize;
        let piece = Piece {
            index: at / EXTENT as u64,
            start,
            len,
        };
        at += len as u64;
        Some(piece)
    })
}

/// Memory that may be refused, unlike `vec![]`'s.
fn filled<T>(len: usize, value: impl FnMut() -> T) -> Result<Box<[T]>, IoError> {
    let mut items = Vec::new();
    items.try_reserve_exact(len).map_err(|_| IoError::NoSpace)?;
    items.resize_with(len, value);
    Ok(items.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn behaves_as_one_large_array() {
        const SIZE: u64 = 5 * EXTENT as u64;
        // The array lies across the border of two tables.
        const BASE: u64 = TABLE_BYTES - 2 * EXTENT as u64;
        let mut rng = Rng::new(7);
        let mut sparse = Sparse::default();
        let mut model = vec![0u8; SIZE as usize];
        for _ in 0..2000 {
            let start = rng.below(SIZE);
            let len = rng.below((SIZE - start).min(2 * EXTENT as u64) + 1);
            let range = start as usize..(start + len) as usize;
            match rng.below(4) {
                0 => {
                    model[range.clone()].fill(rng.below(256) as u8);
                    sparse.write(BASE + start, &model[range]).unwrap();
                }
                1 => {
                    model[range].fill(0);
                    sparse.zero(BASE + start, len, rng.below(2) == 0);
                }
                2 => assert!(sparse.equals(BASE + start, &model[range])),
                _ => {
                    let mut read = vec![1; len as usize];
                    sparse.read(BASE + start, &mut read);
                    assert_eq!(read, model[range.clone()]);
                    if sparse.is_unwritten(BASE + start, len as usize) {
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
